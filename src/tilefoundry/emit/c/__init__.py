"""C for cores: a core is a thread of OpenMP, the lanes of a core are one vector.

A family's ``emit/program.py`` says what it adds: a :class:`~program.Machine`.
"""
