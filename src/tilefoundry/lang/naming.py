"""Names for the values of a function, so that it can be written as assignments.

A loop-carried value is one variable that is assigned again; every other value gets a
name of its own. Two values share a variable only where neither is read after the other
is assigned.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilefoundry.ir.node import CONST, PARAM, Block, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func
from tilefoundry.ir.types import TupleType


@dataclass(eq=False)
class Names:
    """What each value, loop variable and mesh binding of a function is called."""

    values: dict[Node, str] = field(default_factory=dict)
    loops: dict[Loop, str] = field(default_factory=dict)
    scopes: dict[Scope, str] = field(default_factory=dict)


@dataclass(eq=False)
class _Life:
    """Where a value is assigned, the loops around that, and where it is read."""

    node: Node
    start: int
    loops: tuple[Loop, ...]
    end: int = 0


@dataclass(eq=False)
class _Variable:
    name: str
    lives: list[_Life]


class _Lives:
    """Positions of a function's statements, and from them each value's life."""

    def __init__(self, func: Func) -> None:
        self.lives: dict[Node, _Life] = {}
        self.loops: list[Loop] = []
        self.scopes: list[Scope] = []
        self._ends: dict[Loop, int] = {}
        self._reads: list[tuple[Node, int, tuple[Loop, ...]]] = []
        self._at = 0
        for param in func.params:
            self._assign(param, ())
        self._visit(func.body, ())
        for node, at, loops in self._reads:
            life = self.lives.get(node)
            if life is None:
                continue
            # a read inside a loop of a value from before it happens again in each step
            outer = next((x for x in loops if x not in life.loops), None)
            life.end = max(life.end, at if outer is None else self._ends[outer])

    def _assign(self, node: Node, loops: tuple[Loop, ...]) -> None:
        self.lives[node] = _Life(node, self._at, loops, self._at)

    def _visit(self, block: Block, loops: tuple[Loop, ...]) -> None:
        for stmt in block.stmts:
            self._at += 1
            match stmt:
                case Node():
                    self._reads += [(a, self._at, loops) for a in stmt.args]
                    if stmt.op is not CONST and not isinstance(stmt.type, TupleType):
                        self._assign(stmt, loops)
                case Return():
                    self._reads += [(v, self._at, loops) for v in stmt.values]
                case Scope():
                    self.scopes.append(stmt)
                    self._visit(stmt.body, loops)
                case Loop():
                    self._loop(stmt, loops)

    def _loop(self, loop: Loop, loops: tuple[Loop, ...]) -> None:
        self.loops.append(loop)
        inside = (*loops, loop)
        for c in loop.carried:
            self._reads.append((c.init, self._at, loops))
            self._assign(c.head, inside)
        self._visit(loop.body, inside)
        self._at += 1
        self._ends[loop] = self._at
        for c in loop.carried:
            self._reads.append((c.step, self._at, inside))
            self._assign(c.result, loops)


def name_values(func: Func, reserved: Iterable[str]) -> Names:
    """Names of a function's values, none of them in ``reserved`` but its parameters'.

    An author's name stays where it is free; unnamed values are ``v0``, ``v1``, ...
    """
    found = _Lives(func)
    variables = {n: _Variable(_usable(n.name), [life]) for n, life in found.lives.items()}
    carried = [c for x in found.loops for c in sorted(x.carried, key=lambda c: c.name)]
    for c in carried:
        one = _Variable(_usable(c.name), [found.lives[c.head], found.lives[c.result]])
        variables[c.head] = variables[c.result] = one
    for c in carried:
        _join(variables, variables[c.head], c.init)
        _join(variables, variables[c.head], c.step)
    authored = {v.name for v in variables.values()}
    authored |= {loop.var.name for loop in found.loops} | {s.binding for s in found.scopes}
    pick = _Picker(set(reserved) | {p.name for p in func.params}, authored)
    names = Names()
    chosen: dict[_Variable, str] = {}
    for node, variable in variables.items():
        if variable not in chosen:
            fixed = next((x.node.name for x in variable.lives if x.node.op is PARAM), None)
            chosen[variable] = fixed if fixed is not None else pick(variable.name, "v")
        names.values[node] = chosen[variable]
    names.loops = {loop: pick(_usable(loop.var.name), "i") for loop in found.loops}
    names.scopes = {s: pick(_usable(s.binding), "m") for s in found.scopes}
    return names


def _usable(name: str) -> str:
    return name if name.isidentifier() and not keyword.iskeyword(name) else ""


def _join(variables: dict[Node, _Variable], held: _Variable, node: Node) -> None:
    """Put ``node``'s variable and ``held`` together where their names and lives allow it."""
    other = variables.get(node)
    if other is None or other is held or other.name not in ("", held.name):
        return
    if all(_apart(a, b) for a in held.lives for b in other.lives):
        held.lives += other.lives
        for life in other.lives:
            variables[life.node] = held


def _apart(a: _Life, b: _Life) -> bool:
    first, second = (a, b) if a.start < b.start else (b, a)
    return first.start < second.start and first.end <= second.start


class _Picker:
    """Hands out names, each once."""

    def __init__(self, taken: set[str], authored: set[str]) -> None:
        self.taken = taken
        self.authored = authored
        self._next: dict[str, int] = {}

    def __call__(self, name: str, stem: str) -> str:
        found = name
        lead, at = (f"{name}_", 1) if name else (stem, 0)
        at = self._next.get(lead, at)
        while not found or found in self.taken or (found != name and found in self.authored):
            found = f"{lead}{at}"
            at += 1
            self._next[lead] = at
        self.taken.add(found)
        return found


__all__ = ["Names", "name_values"]
