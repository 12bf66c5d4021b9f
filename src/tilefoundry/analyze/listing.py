"""The author's lines with their facts: types, work, traffic, reuse, peaks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import prod

from tilefoundry.analyze.access import READ
from tilefoundry.analyze.figure import Figure, Undecidable
from tilefoundry.analyze.flow import Site
from tilefoundry.analyze.function import Priced
from tilefoundry.analyze.peak import Peak, fits
from tilefoundry.analyze.program import Program, types_of
from tilefoundry.analyze.record import (
    BYTE,
    PERCENT,
    Item,
    Line,
    Row,
    number,
    precise,
    word,
)
from tilefoundry.analyze.reuse import Window
from tilefoundry.analyze.traffic import Move
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import CALL, CONST, Loop, Node
from tilefoundry.ir.shard import shape_text
from tilefoundry.ir.types import IMMEDIATE
from tilefoundry.lang.source import source_file


class Listing:
    """Rows of one function's source; facts are added to the last line of their statement."""

    def __init__(self, priced: Priced) -> None:
        self.priced = priced
        self.program: Program = priced.program
        span = self.program.func.span
        file = source_file(span.file)
        self._anchor: dict[int, int] = {}
        node = _function(file.tree, span.line)
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        last = node.end_lineno or node.lineno
        self.rows = {n: Row(n, file.lines[n - 1]) for n in range(first, last + 1)}
        self._anchor = dict(_anchors(node))

    def add(self, line: int, *facts: Line) -> None:
        at = self._anchor.get(line, line)
        if at in self.rows:
            self.rows[at].facts += facts

    # ---- families

    def types(self) -> None:
        """Every value's name, type, local part and bytes, and the units in force."""
        for node in self.program.func.params:
            self._type(node)
        for scope, _ in self.program.flow.scopes:
            if scope.span:
                self.add(scope.span.line, Line("mesh", tuple(_units(scope.mesh))))
        for site in self.program.flow.sites:
            if site.node.op is not CONST:
                self._type(site.node)

    def _type(self, node: Node) -> None:
        for type in types_of(node):
            if type.storage == IMMEDIATE or node.span is None:
                continue
            items = [word("name", node.name or "_"), word("type", type.text())]
            if type.digits:
                items.append(word("local", shape_text(type.local_shape)))
            items.append(word("storage", type.storage))
            items.append(number("bytes", self.program.most(self.program.local_bytes(type)), BYTE))
            if node.mesh.axes:
                items += _units(node.mesh)
            self.add(node.span.line, Line("value", tuple(items)))

    def loops(self) -> None:
        """Every loop's trips: of all units together and of the busiest."""
        for loop, nest in self.program.flow.nests.items():
            if loop.span:
                self.add(loop.span.line, Line("loop", tuple(self._trips(loop, nest))))

    def _trips(self, loop: Loop, nest: tuple[Loop, ...]) -> Iterator[Item]:
        yield word("var", loop.var.name)
        try:
            inside = self.program.trips((*nest, loop))
        except Undecidable as why:
            yield from (
                number("trips", Figure(None)),
                *precise(Figure(None, "undecided", why.reason)),
            )
            return
        yield number("trips", Figure(inside.total(inside.axes)))
        if inside.axes:
            yield number("busiest", Figure(inside.most))
            yield word("over", ",".join(f"{a.level}.{a.name}" for a in inside.axes))
        yield word("precision", "exact")

    def compute(self) -> None:
        """Each statement's operations by kind."""
        for site in self.program.flow.sites:
            for kind, cost in self.priced.work.by_node.get(site.node, {}).items():
                items = (
                    word("op", _op(site.node)),
                    word("kind", ".".join(kind)),
                    number("logical", cost.logical),
                    number("executed", cost.executed),
                    number("per_unit", cost.per_unit),
                    word("unit", self.priced.level),
                    *precise(cost.logical, cost.executed, cost.per_unit),
                )
                self._at(site, Line("compute", items))
            if site.node in self.priced.calls:
                callee = self.priced.calls[site.node]
                for kind, each in callee.cost.items():
                    cost = self.priced.scaled(site, each)
                    items = (
                        word("call", callee.program.func.name),
                        word("kind", ".".join(kind)),
                        number("executed", cost.executed),
                        *precise(cost.executed),
                    )
                    self._at(site, Line("compute", items))

    def memory(self, storages: list[str]) -> None:
        """Each statement's traffic, each buffer's reuse, where each storage is fullest.

        Traffic of storages that no document states a bandwidth of is in the head only.
        """
        target = self.program.target
        timed = [s for s in storages if target.bandwidth(s) or s == target.default_storage]
        by_move: dict[Move, list[Window]] = {}
        for window in self.priced.windows:
            by_move.setdefault(window.access.move, []).append(window)
        for site in self.program.flow.sites:
            for move in self.priced.traffic.by_node.get(site.node, ()):
                if move.storage not in timed:
                    continue
                self._at(site, _traffic(self.program, move))
                for window in by_move.get(move, ()):
                    self._at(site, _window(window, self.priced.cache_bytes))
        for peak in self.priced.peaks:
            if peak.storage.name in storages and peak.held:
                self._peak(peak)

    def _peak(self, peak: Peak) -> None:
        line = self.line_of(peak.at)
        if line:
            items = (
                word("storage", peak.storage.name),
                number("peak", peak.amount, BYTE),
                word("unit", peak.level or "device"),
                word("values", ",".join(r.home.name for r in peak.held)),
            )
            self.add(line, Line("fullest", items))

    def line_of(self, at: int) -> int | None:
        """The source line of statement ``at``, or of the next that has one."""
        found = next((s for s in self.program.flow.sites if s.at >= at), None)
        return found.node.span.line if found and found.node.span else None

    def _at(self, site: Site, *facts: Line) -> None:
        if site.node.span:
            self.add(site.node.span.line, *facts)


def _function(tree: ast.Module, line: int) -> ast.FunctionDef:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno == line]
    return found[0]


def _anchors(function: ast.FunctionDef) -> Iterator[tuple[int, int]]:
    """(line, last line of the statement, or of the statement's head, that it is in)."""
    stack: list[ast.stmt] = [function]
    while stack:
        stmt = stack.pop()
        last = stmt.end_lineno or stmt.lineno
        match stmt:
            case ast.FunctionDef(args=args):
                for arg in (*args.args, *args.kwonlyargs):
                    yield arg.lineno, arg.end_lineno or arg.lineno
                stack += stmt.body
                continue
            case ast.For(iter=head):
                last = head.end_lineno or last
            case ast.With(items=items):
                last = max((i.optional_vars or i.context_expr).end_lineno or 0 for i in items)
            case ast.If(test=head) | ast.While(test=head):
                last = head.end_lineno or last
        for line in range(stmt.lineno, last + 1):
            yield line, last
        for name in ("body", "orelse"):
            stack += getattr(stmt, name, [])


def _units(mesh: Mesh) -> Iterator[Item]:
    for level in mesh.levels:
        yield number(level, prod(a.extent for a in mesh.at(level)))


def _op(node: Node) -> str:
    return node.op.name if node.op is not CALL else str(node.attrs["func"])


def _traffic(program: Program, move: Move) -> Line:
    node = move.value
    items = (
        word("value", node.name or "_"),
        word("storage", move.storage),
        number("part", program.most(move.part), BYTE),
        number("logical", move.logical, BYTE),
        number("executed", move.executed, BYTE),
        *precise(move.logical, move.executed),
    )
    return Line("read" if move.way == READ else "write", items)


def _window(window: Window, capacity: int | None) -> Line:
    items = [
        word("buffer", window.access.home.name),
        number("holds", window.holds, BYTE),
        word("time", window.time),
        word("space", window.space),
    ]
    if window.window.value == 0:
        items.append(word("reuse", "none"))
    else:
        items.append(number("reuse", window.window, BYTE))
        items.append(word("fits", fits(window.window, capacity)))
    items += precise(window.holds, window.window)
    if window.shared:
        held = window.shared
        span = str(held.least) if held.least == held.most else f"{held.least}..{held.most}"
        items += [number("tiles", held.tiles), word("shared", span)]
    if window.hit is not None:
        items.append(number("hit", window.hit, PERCENT))
    return Line("", tuple(items))
