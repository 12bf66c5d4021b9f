"""What this machine has of the targets that we ship."""

from __future__ import annotations

from collections.abc import Iterable


def fitting(names: Iterable[str]) -> str | None:
    """The first of these targets whose capabilities are all here; None where none is."""
    from tilefoundry.build.machine import missing
    from tilefoundry.targets import load_target

    return next((n for n in names if not missing(load_target(n).capabilities)), None)
