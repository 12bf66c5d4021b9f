"""The judge: whether two computations agree by stated predicates.

The parent (``check``) executes no author's code and compares raw bytes; the reference and
the candidate each run in a process of their own (``child``), which never holds an answer,
a bound or a seed.
"""
