"""Device memory that a scope makes and whose parts different units write.

What units write into a value that they share is united (``tilefoundry spec language``), but each
has a copy of its own in the kernel, as nothing orders what they write. That is the same where a
unit reads only what it wrote itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, Sym, substitute, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Loop, Node, walk
from tilefoundry.ir.program import Func
from tilefoundry.lower.views import VIEWS
from tilefoundry.targets.target import Target


def refuse_united(func: Func, varies: Mapping[Node, frozenset[Axis]], target: Target) -> None:
    """Refuses (``sync-device-memory``) reads of such a value that move otherwise with a unit's
    coordinate than its writes: they reach what another unit wrote. A read that moves alike and
    goes further is left to the verifier, which looks at every element."""
    starts: dict[Sym, Dim] = {s.var: s.start for s in walk(func.body) if isinstance(s, Loop)}
    for founder, made in _updated(func).items():
        split = {d.axis for d in founder.tensor.digits}
        shared = {a for a in founder.mesh.axes if a.level != target.levels[-1]} - split
        shared -= frozenset[Axis]().union(*(varies[n] for n in made))
        here = founder.tensor.storage == target.default_storage
        if here and shared and made.isdisjoint(func.returns.values):
            _hold(func, made, shared, starts)


def _updated(func: Func) -> dict[Node, set[Node]]:
    """Each value of which parts are written anew, with all that updates and loops make of it."""
    first: dict[Node, Node] = {}
    for stmt in walk(func.body):
        if isinstance(stmt, Loop):
            for c in stmt.carried:
                first[c.head] = first[c.result] = first.get(c.init, c.init)
        elif isinstance(stmt, Node) and stmt.op.name == "insert_slice":
            first[stmt] = first.get(stmt.args[0], stmt.args[0])
    found: dict[Node, set[Node]] = {}
    for node, founder in first.items():
        found.setdefault(founder, {founder}).add(node)
    return {f: made for f, made in found.items() if any(n.op.name == "insert_slice" for n in made)}


def _hold(func: Func, made: set[Node], shared: set[Axis], starts: Mapping[Sym, Dim]) -> None:
    nodes = [s for s in walk(func.body) if isinstance(s, Node)]
    writes = [n for n in nodes if n in made and n.op.name == "insert_slice"]
    places = [[_begun(o, starts) for o in _dims(n, "offsets")] for n in writes]
    moved = {a for place in places for x in place for a in _axes(x)} & shared
    for node in nodes if moved else ():
        read = [n for n, a in enumerate(node.args) if a in made]
        if not read or (node.op.name == "insert_slice" and read == [0]):
            continue
        if node.op.name != "slice":
            if node.op.name not in VIEWS:
                refuse("sync-device-memory", node.span, name=node.args[read[0]].name)
            continue
        at = [_begun(x, starts) for x in _dims(node, "starts")]
        for place in places:
            if any(_axes(a - b) & moved for a, b in zip(at, place, strict=True)):
                refuse("sync-device-memory", node.span, name=node.args[0].name)


def _dims(node: Node, name: str) -> tuple[Dim, ...]:
    found: tuple[Dim, ...] = node.attrs[name]  # type: ignore[assignment]
    return found


def _begun(x: Dim, starts: Mapping[Sym, Dim]) -> Dim:
    """``x`` with the starts of loops in the place of their variables."""
    while any(s in starts for s in symbols(x)):
        x = substitute(x, starts)
    return x


def _axes(x: Dim) -> set[Axis]:
    return {s.axis for s in symbols(x) if isinstance(s, Coord) and s.axis is not None}
