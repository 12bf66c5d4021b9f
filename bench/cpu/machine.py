"""What this machine has of the targets that we ship."""

from __future__ import annotations

from collections.abc import Iterable


def fitting(names: Iterable[str], threads: int) -> str | None:
    """The first of these targets whose capabilities are all here and which has as many cores, as
    far as its document says; None where none is."""
    from tilefoundry.build.machine import missing
    from tilefoundry.targets import load_target

    for name in names:
        target = load_target(name)
        cores = target.max_units("core")
        known = cores.value if cores else None
        if not missing(target.capabilities) and (known is None or threads <= known):
            return name
    return None
