"""How each issue of a kernel is carried out: its contract's plan, with the buffers' layouts.

The same routines judge a written use and candidates; here the windows are those of buffers,
so strides are the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tilefoundry.ir.expr import bounds
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import CopyInstr, Plan, Side
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.place import Window
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Issue, PrimFunc, View, walk


def side(view: View) -> Side | Unmet:
    """A view as an end of a copy, or as an operand."""
    buffer = view.buffer
    if view.is_whole:
        return Side(buffer.type, None, buffer.registers)
    window = Window.at(buffer.type, view.vars, view.shape, view.index)
    if window is None:
        return Unmet("layout", "a box of the buffer", f"{view}", "copy it with T.copy")
    return Side(TensorType(view.shape, view.dtype, None, view.storage), window)


def edged(view: View) -> bool:
    """Some of the view lies outside of its buffer, where it reads as a fill."""
    if view.fill is None:
        return False
    reach = (bounds(x) for x in view.index)
    return any(lo < 0 or hi >= e for (lo, hi), e in zip(reach, view.buffer.shape, strict=True))


EDGED = Unmet(
    "shape",
    "a tile that lies in memory as a whole",
    "a window beyond the edge",
    "copy it with its fill first: tf.insert_slice(tf.empty(Tensor[...]), ..., (0, 0))",
)


@lru_cache(maxsize=256)
def plan_of(issue: Issue, mesh: Mesh, level: str = "thread") -> Plan | Fit | Unmet | None:
    """The plan of a copy or the fit of a matrix instruction as issued by ``mesh``'s units of
    ``level``; None for what works on registers alone, or on a part of them."""
    if issue.instr == TILED:
        return _fit(issue, mesh)
    contract = contract_at(issue.instr)
    source, target = (*issue.reads[:1], None)[0], issue.writes[0]
    if not isinstance(contract, CopyInstr) or not isinstance(source, View):
        return None
    if not contract.moves:
        # the plain copy moves any view; only its widths are asked for
        sides = [side(v) for v in (source, target)]
        if any(isinstance(s, Unmet) for s in sides):
            return None
    for view in (source, target):
        found = side(view)
        if isinstance(found, Unmet):
            return found
    near, far = side(source), side(target)
    assert isinstance(near, Side) and isinstance(far, Side)
    if any(s.window is not None and s.type.storage == "rmem" for s in (near, far)):
        return None
    if contract.rows and any(edged(v) for v in (source, target)):
        return EDGED
    return contract.judge(level, mesh, near, far)


def _fit(issue: Issue, mesh: Mesh) -> Fit | Unmet | None:
    atom = issue.attrs["atom"]
    contract = contract_at(atom.path)
    if not isinstance(contract, MmaAtom):
        return None
    sides: list[Side] = []
    for view in issue.reads:
        assert isinstance(view, View)
        found = side(view)
        if isinstance(found, Unmet):
            return found
        if view.storage != "rmem" and edged(view):
            return EDGED
        sides.append(found)
    acc, lhs, rhs = sides
    if any(s.window is not None and s.type.storage == acc.type.storage for s in sides):
        return None
    windows = lhs.window, rhs.window
    return judge(contract, mesh, lhs.type, rhs.type, acc.type, dict(atom.params), windows)


def unmet(func: PrimFunc) -> Iterator[tuple[Issue, Unmet]]:
    """Issues of a kernel that do not meet their contract."""
    for stmt, mesh in walk(func.body):
        if isinstance(stmt, Issue):
            found = plan_of(stmt, participants(mesh, func), func.target.levels[-1])
            if isinstance(found, Unmet):
                yield stmt, found


def participants(mesh: Mesh, func: PrimFunc) -> Mesh:
    """The participants; all threads of a CTA (lanes of a core) where no scope arranges them."""
    level = func.target.levels[-1]
    if mesh.at(level):
        return mesh
    from tilefoundry.ir.mesh import arrange

    count = next((t.size for t in func.topologies if t.level == level), 1)
    return Mesh((*mesh.axes, *arrange(level, (count,), (level,))), mesh.sizes)


__all__ = ["participants", "plan_of", "side", "unmet"]
