"""A barrier between roles: who signals it, who waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilefoundry.ir.mesh import Axis
from tilefoundry.lower.sync.edges import Level, Touch
from tilefoundry.tir.program import Barrier

FILL, FREE = "filled", "free"


@dataclass(eq=False)
class Channel:
    """One barrier per slot: ``sources`` signal it, ``waits`` wait for it."""

    level: Level
    kind: str
    sources: list[Touch] = field(default_factory=lambda: list[Touch]())
    waits: list[tuple[Touch, int]] = field(default_factory=lambda: list[tuple[Touch, int]]())
    over: tuple[Axis, ...] = ()
    """Its signals go to every CTA along these axes."""
    barrier: Barrier | None = None

    @property
    def reads(self) -> bool:
        """What its signals tell other CTAs is that something was read: nothing written has to
        be made visible to them, which takes long."""
        wrote = any(a.write for t in self.sources for a in t.accesses)
        return bool(self.over) and self.kind == FREE and not wrote

    @property
    def place(self) -> object:
        """What channels have in common that share their counting."""
        return self.level.loop, self.level.slots
