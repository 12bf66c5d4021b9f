"""The command: a thin layer over the library, one file per verb."""
