"""Feasible asynchronous pipelines for loops that load tiles and multiply them.

``site`` recognises such a loop, ``tiles`` proposes layouts, ``compute`` matrix instructions
with their consumers, ``moves`` copies; ``search`` combines them under the target's capacities
(``resources``) and orders the plans by a lower bound (``bound``); ``write`` turns a plan into
edits of the author's source, which ``check`` puts in place and loads.
"""
