"""Where values are made, read and overwritten, so that updates can be done in place."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilefoundry.ir.node import (
    CARRY,
    CONST,
    PARAM,
    RESULT,
    Block,
    Carried,
    Loop,
    Node,
    Return,
    Scope,
)
from tilefoundry.ir.program import Func

Loops = tuple[Loop, ...]


@dataclass
class Use:
    """One read of a value: its position, the loops around it, and who reads."""

    at: int
    loops: Loops
    user: Node | Loop | Return


@dataclass
class Lives:
    """Positions of a function's statements in program order."""

    func: Func
    at: dict[Node, int] = field(default_factory=dict)
    loops: dict[Node, Loops] = field(default_factory=dict)
    uses: dict[Node, list[Use]] = field(default_factory=dict)
    spans: dict[Loop, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._now = 0
        for param in self.func.params:
            self._define(param, ())
        self._visit(self.func.body, ())

    def _define(self, node: Node, loops: Loops) -> None:
        self.at[node] = self._now
        self.loops[node] = loops

    def _read(self, node: Node, loops: Loops, user: Node | Loop | Return) -> None:
        self.uses.setdefault(node, []).append(Use(self._now, loops, user))

    def _visit(self, block: Block, loops: Loops) -> None:
        for stmt in block.stmts:
            self._now += 1
            match stmt:
                case Node():
                    for arg in stmt.args:
                        self._read(arg, loops, stmt)
                    self._define(stmt, loops)
                case Scope():
                    self._visit(stmt.body, loops)
                case Return():
                    for value in stmt.values:
                        self._read(value, loops, stmt)
                case Loop():
                    inside = (*loops, stmt)
                    start = self._now
                    for c in stmt.carried:
                        self._read(c.init, loops, stmt)
                        self._define(c.head, inside)
                    self._visit(stmt.body, inside)
                    self._now += 1
                    for c in stmt.carried:
                        self._read(c.step, inside, stmt)
                        self._define(c.result, loops)
                    self.spans[stmt] = (start, self._now)

    def shareable(self, carried: Carried) -> bool:
        """One place can hold the carried value before, during and after its loop: no
        version of it is read after a later one is written."""
        members = self.family(carried)
        writes = [m for m in members if writes_place(m)]
        return not any(
            self._clobbers(w, v, use)
            for v in members
            for use in self.uses.get(v, ())
            for w in writes
            if w is not v
        )

    def family(self, carried: Carried) -> set[Node]:
        """Every value that would live in the carried value's place."""
        found: set[Node] = set()
        stack = [carried.init, carried.head, carried.step, carried.result]
        every = {n: c for loop in self.spans for c in loop.carried for n in (c.head, c.result)}
        while stack:
            node = stack.pop()
            if node in found:
                continue
            found.add(node)
            if node in every:
                c = every[node]
                stack += [c.init, c.head, c.step, c.result]
            before = updated(node)
            if before is not None:
                stack.append(before)
        return found

    def _clobbers(self, write: Node, value: Node, use: Use) -> bool:
        """``write`` changes the place of ``value`` before it is read by ``use``."""
        if use.user is write and use.at == self.at[write]:
            return not in_place(write, value)
        if self.at[value] < self.at[write] < use.at:
            return True
        around = set(use.loops) & set(self.loops[write])
        return bool(around - set(self.loops[value]))


def updated(node: Node) -> Node | None:
    """The operand whose place a node writes, by its meaning."""
    if node.op.name == "insert_slice":
        return node.args[0]
    if node.op.name == "schedule":
        kind = schedule_kind(node)
        if kind == "mma":
            return node.args[0]
        arity = 1 if kind == "copy" else operand_count(kind)
        return node.args[arity] if len(node.args) > arity else None
    return None


def operand_count(name: str) -> int:
    """How many operands the operation ``name`` demands."""
    from tilefoundry.ops import find
    from tilefoundry.ops.signature import Operand

    op = find(name)
    assert op is not None, name
    return sum(1 for p in op.params if isinstance(p, Operand) and not p.optional)


def schedule_kind(node: Node) -> str:
    """``copy``, ``mma`` or the operation's name of a schedule node."""
    from tilefoundry.targets.instructions import meaning

    return meaning(node.attrs["op"], node.span)[0]


def writes_place(node: Node) -> bool:
    """The node's statement writes where its value lives."""
    return node.op not in (CARRY, RESULT, PARAM, CONST) and node.op.name != "empty"


def in_place(write: Node, value: Node) -> bool:
    """``write`` may read ``value`` from the place that it writes."""
    if updated(write) is value:
        return write.args.count(value) == 1
    from tilefoundry.ops._elementwise import Elementwise

    return isinstance(write.op, Elementwise) and write.type == value.type
