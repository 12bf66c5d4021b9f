"""Targets: typed hardware facts with their provenance, one folder per family.

``load_target(id)`` composes a Device document with its Architecture document. Outside
a family's own folder nothing names a vendor: readers ask a :class:`Target`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilefoundry.targets.document import Architecture, Device
    from tilefoundry.targets.fact import Fact
    from tilefoundry.targets.load import load_architecture, load_target
    from tilefoundry.targets.target import Cache, Processor, Storage, Target

_FROM = {
    "document": ("Architecture", "Device"),
    "fact": ("Fact",),
    "load": ("load_architecture", "load_target"),
    "target": ("Cache", "Processor", "Storage", "Target"),
}
_HOME = {name: file for file, names in _FROM.items() for name in names}


def __getattr__(name: str) -> Any:
    """What is named, from the file that has it: a record of a target reads no documents."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


__all__ = [
    "Architecture",
    "Cache",
    "Device",
    "Fact",
    "Processor",
    "Storage",
    "Target",
    "load_architecture",
    "load_target",
]
