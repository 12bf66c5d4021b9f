"""Products by vector registers: repeats along m and n are written out, those along k loop.

Sums stay in registers: each repeat names its vector by a constant. B is loaded and A broadcast
once for each step of k where k is the outer repeat, as the order says. Where the operand is asked
for ahead, so are meanwhile the lines of memory that the sums go to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilefoundry.emit.address import address
from tilefoundry.emit.c.held import digits_of
from tilefoundry.emit.c.kernel import UNROLL, Kernel
from tilefoundry.ir.expr import Dim, IterVar
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.tir.program import Issue, View

WRITTEN_OUT = 32
"""Repeats along k up to which they are written out where registers are an operand."""
DEPTH = 8
"""Steps of the loop over k that the compiler is asked to write out."""


STRETCH = 16
"""Steps of the loop over k between lines of the result that are asked for."""
MOST = 2
"""Of those the lines at once; where steps are too few for that, none is asked for."""
WRITTEN = 4
"""Steps of a stretch that are written out."""
SPARE = 3
"""Registers that a loop written out needs beside its sums and operands."""
LINE = 64
"""Bytes that one request for memory brings."""


def targets(k: Kernel, issue: Issue) -> list[str]:
    """Where the lines of memory lie that later statements of the same body write the sums to, or
    what is made of them, before another product adds to them."""
    made, out = {issue.writes[0].buffer}, list[Dim]()
    names = list[str]()
    for stmt in k.after:
        if not isinstance(stmt, Issue) or "atom" in stmt.attrs:
            break
        write, driver = stmt.writes[0], k.driver(stmt)
        if not made & {v.buffer for v in stmt.reads if isinstance(v, View)} or driver is None:
            continue
        if k.in_registers(write):
            made.add(write.buffer)
            continue
        domain = k.domain(driver)
        for at in k.each(domain) if domain.size <= UNROLL else ():
            lanes = k.per_lane(address(write.buffer, k.element(write, at)))
            near = (lanes[0] - x for x in out)
            line = LINE * 8 // write.dtype.bits
            if lanes[-1] - lanes[0] != k.lanes - 1 or any(x in range(line) for x in near):
                continue
            out.append(lanes[0])
            names.append(f"{k.names[write.buffer]} + {k.dim(lanes[0])}")
    return names


@dataclass
class _Product:
    """One issue: operands, sizes of the atom, and what is already in a variable."""

    k: Kernel
    issue: Issue
    atom: tuple[int, int, int]
    repeat: tuple[int, int, int]
    call: str
    held: dict[object, str] = field(default_factory=lambda: dict[object, str]())

    def nest(self, order: tuple[int, ...], at: dict[int, Dim]) -> None:
        """The repeats of the axes ``order``, outermost first."""
        if not order:
            self.step(at)
            return
        axis, *rest = order
        if axis == 2 and self.rolled:
            asked = [] if at or "prefetch" not in self.issue.attrs else targets(self.k, self.issue)
            if self.spare and 0 < len(asked) <= MOST * (self.repeat[2] // STRETCH):
                self.asking(asked, tuple(rest))
            else:
                self.steps(0, self.repeat[2], tuple(rest), at)
            return
        for n in range(self.repeat[axis]):
            self.nest(tuple(rest), {**at, axis: n})

    def steps(self, first: Dim, count: int, rest: tuple[int, ...], at: dict[int, Dim]) -> None:
        """The loop over ``count`` steps of k from ``first``; a short one is written out in part
        here, as compilers leave its loop as it is."""
        written = WRITTEN if count == STRETCH else 1
        var = IterVar("k", 0, count - 1)
        if written == 1:
            self.k.out.line(f"#pragma GCC unroll {DEPTH}")
        with self.k.loop(var, count, written):
            for step in range(written):
                saved, self.held = self.held, {}
                self.nest(rest, {**at, 2: first + var.expr() + step})
                self.k.out.line("TF_STEP_END;")
                self.held = saved

    def asking(self, lines: list[str], rest: tuple[int, ...]) -> None:
        """The loop over k, in which lines of memory are asked for one by one: all at once they
        would hold up the operands that stream beside them."""
        out, (turns, left) = self.k.out, divmod(self.repeat[2], STRETCH)
        each, table = -(-len(lines) // turns), out.name("into")
        out.line(f"const void *const {table}[{len(lines)}] = {{{', '.join(lines)}}};")
        var = IterVar("turn", 0, turns - 1)
        with self.k.loop(var, turns):
            turn = self.k.names[var]
            for n in range(each):
                place = f"{each} * {turn} + {n}" if each > 1 else turn
                test = f"if ({place} < {len(lines)}) " if each * turns > len(lines) else ""
                out.line(f"{test}__builtin_prefetch({table}[{place}], 1);")
            self.steps(var.expr() * STRETCH, STRETCH, rest, {})
        if left:
            self.steps(turns * STRETCH, left, rest, {})

    @property
    def rolled(self) -> bool:
        in_registers = any(self.k.in_registers(v) for v in self.operands)
        return not in_registers or self.repeat[2] > WRITTEN_OUT

    @property
    def spare(self) -> bool:
        """Registers are left beside the sums and the operands of a step: where all are in use,
        compilers keep some sums of a loop that is written out in memory."""
        m, n, _ = self.repeat
        fact = self.k.func.target.stated("registers.count")
        count = fact.value if fact is not None else None
        return isinstance(count, int) and m * n + n + 1 <= count - SPARE

    @property
    def operands(self) -> tuple[View, View]:
        _, a, b = self.issue.reads
        assert isinstance(a, View) and isinstance(b, View)
        return a, b

    def step(self, at: dict[int, Dim]) -> None:
        m, n, depth = (at[x] * self.atom[x] for x in range(3))
        acc = self.issue.writes[0]
        a, b = self.operands
        left = self.once(("a", m, depth), "a", lambda: self.broadcast(a, m, depth))
        right = self.once(("b", depth, n), "b", lambda: self.vector(b, depth, n))
        into = self.k.vector(acc, (m, n + self.lane(acc, 1)))
        self.k.out.line(f"{into} = {self.call}({left}, {right}, {into});")

    def once(self, key: object, name: str, made: Any) -> str:
        """A variable for an operand, declared where it is first needed."""
        if key not in self.held:
            self.held[key] = self.k.out.name(name)
            self.k.out.line(f"{self.type} {self.held[key]} = {made()};")
        return self.held[key]

    @property
    def type(self) -> str:
        return f"{self.issue.writes[0].dtype.name}v" if self.atom[2] == 1 else "u32v"

    def lane(self, view: View, dim: int) -> Dim:
        """What the lane adds to a coordinate."""
        digits = [d for d in digits_of(view.buffer) if d.dim == dim]
        return self.k.coordinate(digits[0].axis) if digits else 0

    def broadcast(self, a: View, m: Dim, depth: Dim) -> str:
        if self.k.in_registers(a):
            return self.packed(a, [(m, depth + i) for i in range(self.atom[2])])
        place = self.pointer(a, (m, depth))
        if self.atom[2] == 1:
            return f"tf_splat_{a.dtype.name}(*({place}))"
        return f"tf_splat_word({place})"

    def vector(self, b: View, depth: Dim, n: Dim) -> str:
        if self.k.in_registers(b):
            lane = self.lane(b, 1)
            return self.packed(b, [(depth + i, n + lane) for i in range(self.atom[2])])
        place = self.pointer(b, (depth, n))
        ahead = self.issue.attrs.get("prefetch")
        if ahead is not None:
            later = self.pointer(b, (depth + ahead * self.atom[2], n))
            self.k.out.line(f"__builtin_prefetch({later});")
        if self.atom[2] == 1:
            return f"tf_load_{b.dtype.name}({place})"
        return f"tf_load_words({place})"

    def packed(self, view: View, places: list[tuple[Dim, ...]]) -> str:
        """Neighbours along k of each lane in one vector."""
        words = [self.k.vector(view, at) for at in places]
        if len(words) == 1:
            return words[0]
        bits = [f"tf_bits_{view.dtype.bits}({w})" for w in words]
        return f"tf_words_{len(words)}({', '.join(bits)})"

    def pointer(self, view: View, at: tuple[Dim, ...]) -> str:
        if view.fill is not None:
            self.k.form(self.issue, f"{view}", "an operand in memory has no edge",
                        "copy it with its fill first: tf.reshard")  # fmt: skip
        place = address(view.buffer, self.k.element(view, at))
        return f"{self.k.names[view.buffer]} + {self.k.dim(place)}"


def emit_vector_mma(k: Kernel, contract: MmaAtom, call: str, issue: Issue) -> None:
    """One statement for each repeat along m and n, in loops over k."""
    atom, a = issue.attrs["atom"], issue.reads[1]
    size = contract.shape(contract.completed(dict(atom.params), a.dtype.bits))
    product = _Product(k, issue, size, issue.attrs["repeat"], call)
    with k.out.block(""):
        product.nest(tuple(issue.attrs["order"]), {})
