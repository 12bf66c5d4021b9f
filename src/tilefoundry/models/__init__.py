"""Shipped models: authors' files in the language, ``tilefoundry models`` lists them.

Each file's docstring says in its first line what the model is, and in the line that starts
with ``Configuration:`` where its constants were published.
"""
