"""Targets: typed hardware facts with their provenance, one folder per family.

``load_target(id)`` composes a Device document with its Architecture document. Outside
a family's own folder nothing names a vendor: readers ask a :class:`Target`.
"""

from tilefoundry.targets.document import Architecture, Device
from tilefoundry.targets.fact import Fact
from tilefoundry.targets.load import load_architecture, load_target
from tilefoundry.targets.target import Cache, Processor, Storage, Target

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
