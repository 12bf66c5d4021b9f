"""The unit is its model in portable C: any machine executes it."""


def missing(capabilities):
    """The capabilities that this machine lacks."""
    return ()
