"""The matrix coprocessor of Apple silicon."""
