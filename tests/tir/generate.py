"""Small random schedules in TIR, without synchronisation, each with its own reference.

Roles of one to eight warps, disjoint or overlapping; rings of 1 to 8 slots filled by TMA,
cp.async, plain copies or from registers; readers by plain copies or wgmma, in the same loop
or a deeper one; values rewritten in place; tiles handed on to a role that stores them by TMA
or plainly. Loops of 0 to 9 trips up to three deep, some with bounds that depend on outer
variables or on the CTA. The reference executes the statements in program order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from samples import LEVELS, wgmma

from tilefoundry.ir.dtype import BF16, F32
from tilefoundry.ir.expr import LoopVar, evaluate
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, narrow, rearrange
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.layout import Swizzle
from tilefoundry.lower.allocate import allocate
from tilefoundry.lower.rings import ring_count
from tilefoundry.targets.load import load_target
from tilefoundry.tir.program import (
    Advance,
    Buffer,
    Counter,
    For,
    Issue,
    PrimFunc,
    Scalar,
    When,
    With,
    whole,
    window,
)
from tilefoundry.tir.rewrite import rebuild

ROWS, COLS = 8, 32
"""A plain tile of f32: a row is a warp's 128 bytes."""
SIDE = 64
"""A matrix operand is SIDE x SIDE."""


@dataclass(frozen=True)
class Case:
    """One program; ``reference`` maps its inputs to its outputs (None: never written)."""

    name: str
    func: PrimFunc
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    reference: Callable[[list[Any]], list[Any]]


@dataclass(eq=False)
class Role:
    name: str
    own: Mesh
    mesh: Mesh
    source: str
    warps: int


@dataclass(eq=False)
class Step:
    """A leaf with what it does to the reference's values."""

    role: Role
    issue: Issue
    act: Callable[[dict[Any, Any], dict[Any, int]], None]


@dataclass(eq=False)
class Loop:
    var: LoopVar
    start: Any
    stop: Any
    step: Any
    body: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Test:
    """``body`` where ``test`` is greater than 0."""

    test: Any
    body: list[Any]


def generate(seed: int) -> Case:
    """The program of one seed."""
    return _Maker(Random(seed), f"case{seed}").case()


class _Maker:
    def __init__(self, random: Random, name: str) -> None:
        self.random = random
        self.name = name
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.locals: list[Buffer] = []
        self.counters: dict[LoopVar, Counter] = {}
        self.loops: list[Loop] = []
        self.shared = 0
        self.over: tuple[Buffer, Buffer] | None = None

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    # Units

    def units(self) -> None:
        self.matrix = self.chance(0.35)
        roles = self.random.randint(1, 4)
        sizes = [self.random.choice((1, 1, 2, 4)) for _ in range(roles)]
        if self.matrix:
            sizes[0] = 4
        sizes.sort(reverse=True)
        warps = sum(sizes)
        self.threads = 32 * warps
        self.ctas = self.random.choice((1, 1, 2))
        declared = (("cta", self.ctas), ("thread", self.threads))
        self.grid = Mesh(arrange("cta", (self.ctas,), ("p",)), declared)
        self.block = Mesh(arrange("thread", (warps, 32), ("warp", "lane")), declared)
        self.inside = enter(self.grid, self.block, LEVELS)
        self.roles = []
        at = 0
        for n, size in enumerate(sizes):
            self.roles.append(self.role(f"role{n}", at, size))
            at += size
        self.everyone = Role("everyone", self.block, self.inside, "", warps)
        if self.matrix:
            own = rearrange(narrow(self.block, (slice(0, 4), slice(None))), (4, 8, 4),
                            ("warp4", "lane8", "lane4"))  # fmt: skip
            self.group = Role("group", own, enter(self.inside, own, LEVELS), "threads[0:4, :]", 4)
        self.overlapping = self.chance(0.25)

    def role(self, name: str, at: int, size: int) -> Role:
        own = narrow(self.block, (slice(at, at + size), slice(None)))
        mesh = enter(self.inside, own, LEVELS)
        return Role(name, own, mesh, f"threads[{at}:{at + size}, :]", size)

    def anyone(self) -> Role:
        if self.overlapping and self.chance(0.4) and self.everyone.warps in (1, 2, 4, 8):
            return self.everyone
        return self.random.choice(self.roles)

    # Buffers

    def param(self, shape: tuple[int, ...], role: str, dtype: Any = F32) -> Buffer:
        kept = self.inputs if role == "in" else self.outputs
        made = Buffer(f"{role}{len(kept)}", shape, dtype, "gmem", role=role)
        kept.append(made)
        return made

    def ring(self, name: str, shape: tuple[int, int], dtype: Any, layout: Any, wide: int) -> Buffer:
        size = shape[0] * shape[1] * dtype.bits // 8
        slots = self.random.choice((1, 1, 2, 2, 3, 4, 8)) if self.loops else 1
        while slots > 1 and (self.shared + slots * size > wide):
            slots -= 1
        self.shared += slots * size
        made = Buffer(f"{name}{len(self.locals)}", shape, dtype, "smem", layout, slots=slots)
        self.locals.append(made)
        return made

    def slot(self, ring: Buffer) -> Any:
        if ring.slots == 1:
            return 0
        count = ring_count(self.loops, self.counters)
        if count is None:
            var = self.loops[-1].var
            made = self.counters.setdefault(var, Counter(f"{var.name}_count"))
            count = made.expr()
        return count % ring.slots

    def held(self, role: Role, name: str, turned: bool = False) -> Buffer:
        """A tile in the registers of a role: rows by warp; ``turned``: columns dealt anew."""
        warp, lane = role.mesh.at("thread")
        rows = ROWS // role.warps
        if turned:
            modes, axes = (rows, role.warps, COLS), (None, warp, lane)
        else:
            modes, axes = (role.warps, rows, COLS), (warp, None, lane)
        if rows == 1:
            modes, axes = (role.warps, COLS), (warp, lane)
        layout = ShardLayout(modes, None, axes)
        made = Buffer(f"{name}{len(self.locals)}", (ROWS, COLS), F32, "rmem", layout,
                      mesh=role.mesh)  # fmt: skip
        self.locals.append(made)
        return made

    # Program

    def case(self) -> Case:
        self.units()
        deep = self.random.choice((0, 1, 1, 2, 2, 2, 3))
        body = self.level(deep)
        block = With(self.block, self.inside, "threads", tuple(self.emit(body)))
        func = PrimFunc(
            self.name, (*self.inputs, *self.outputs), tuple(self.locals), (),
            (With(self.grid, self.grid, "cta", (block,)),), load_target("nvidia.h200_sxm"),
            (Topology("cta", self.ctas), Topology("thread", self.threads)),
            counters=tuple(self.counters.values()),
        )  # fmt: skip
        shapes = tuple((b.shape, b.dtype.torch) for b in self.inputs)
        return Case(self.name, self.placed(func), shapes,
                    lambda given: self.reference(body, given))  # fmt: skip

    def placed(self, func: PrimFunc) -> PrimFunc:
        """Offsets; sometimes the staged tile lies over the ring, which is not in use then."""
        func = allocate(func)
        if self.over is None:
            return func
        staged, lhs = (next(b for b in func.buffers if b.name == x.name) for x in self.over)
        size = SIDE * SIDE * 4
        if staged.slots * size > lhs.slots * SIDE * SIDE * 2:
            return func
        at = tuple(lhs.offsets[0] + n * size for n in range(staged.slots))
        return rebuild(func, buffers={staged: replace(staged, offsets=at)})

    def level(self, deep: int) -> list[Any]:
        """Statements of one level, with one loop in it while ``deep`` > 0."""
        several = (0, 1, 1, 2) if deep else (1, 2)
        streams = [self.stream(deep) for _ in range(self.random.choice(several))]
        if self.matrix and deep == 1:
            streams.append(self.product())
        elif deep:
            streams.append([self.loop(deep)])
        return self.woven(streams)

    def woven(self, streams: list[list[Any]]) -> list[Any]:
        """The streams' statements in one order that keeps each stream's own."""
        out: list[Any] = []
        left = [list(s) for s in streams if s]
        while left:
            pick = self.random.choice(left)
            out.append(pick.pop(0))
            left = [s for s in left if s]
        return out

    def loop(self, deep: int, inside: Callable[[], list[Any]] | None = None) -> Loop:
        n = len(self.loops)
        runs = self.random.choice((0, 1, 2, 3, 3, 5, 9) if deep == 1 else (0, 1, 2, 3))
        var = LoopVar(f"i{n}", 0, max(runs - 1, 0))
        start: Any = 0
        if n == 0 and self.ctas > 1:
            start = self.grid.coordinate("p", "cta")
            made = Loop(var, start, runs, self.ctas)
        elif n and self.chance(0.25):
            outer = self.loops[-1].var
            var = LoopVar(f"i{n}", 0, max(int(outer.hi), 1) + 1)
            made = Loop(var, 0, outer.expr() + self.random.choice((0, 1)), 1)
        else:
            step = self.random.choice((1, 1, 4))
            var = LoopVar(f"i{n}", 0, max(runs - 1, 0) * step, step)
            made = Loop(var, 0, runs * step, step)
        self.loops.append(made)
        made.body = inside() if inside else self.level(deep - 1)
        self.loops.pop()
        return made

    def place(self) -> tuple[Any, int]:
        """A number that tells iterations apart, and a bound of it."""
        number: Any = 0
        size = 1
        for loop in self.loops:
            number = number * (int(loop.var.hi) + 1) + loop.var.expr()
            size *= int(loop.var.hi) + 1
        if not (self.loops and self.loops[0].step == self.ctas > 1):
            p = self.grid.coordinate("p", "cta")
            number, size = number * self.ctas + (p if self.ctas > 1 else 0), size * self.ctas
        return number, size

    def stream(self, deep: int) -> list[Any]:
        """A tile filled here, read by some roles here or in an inner loop, perhaps rewritten
        and handed on; each reader stores what it read."""
        out = [*self.filled()]
        ring, slot = self.last, self.last_slot
        whole_test = self.chance(0.1)
        for _ in range(self.random.choice((1, 1, 2))):
            kind = self.random.choice(("read", "read", "rewrite", "store", "inner"))
            if kind == "inner" and deep == 0 and len(self.loops) < 3:
                out.append(self.loop(1, lambda: self.again(ring, slot)))
                continue
            make = {"rewrite": self.rewritten, "store": self.stored}.get(kind, self.read)
            part = make(ring, slot)
            out += self.tested(part) if not whole_test and self.chance(0.1) else part
        return self.tested(out) if whole_test else out

    def again(self, ring: Buffer, slot: Any) -> list[Any]:
        """What an inner loop does to the tile of the outer one, in each of its iterations."""
        order = self.random.choice(("read", "read", "rewrite", "read rewrite", "rewrite read",
                                    "rewrite store", "rewrite rewrite"))  # fmt: skip
        make = {"read": self.read, "rewrite": self.rewritten, "store": self.stored}
        return [step for kind in order.split() for step in make[kind](ring, slot)]

    def tested(self, body: list[Any]) -> list[Any]:
        """``body`` in some iterations only."""
        if not self.loops:
            return body
        var = self.loops[-1].var.expr()
        at = self.random.choice((0, 1, 2))
        return [Test(self.random.choice((var - at, at + 1 - var)), body)]

    def filled(self) -> list[Any]:
        role = self.anyone()
        ring = self.ring("tile", (ROWS, COLS), F32, None, 96 << 10)
        slot = self.slot(ring)
        self.last, self.last_slot = ring, slot
        number, size = self.place()
        source = self.param((size * ROWS, COLS), "in")
        part = window(whole(source), (number * ROWS, 0), (ROWS, COLS))
        place = whole(ring, slot)
        load = _load(source, number, ROWS, ring)
        kind = self.random.choice(("tma", "tma", "async", "copy", "registers", "bulk"))
        instr = {"tma": "copy_async_tensor", "async": "copy_async", "bulk": "copy_async_tensor"}
        if kind != "registers":
            issue = Issue(instr.get(kind, "copy"), (part,), (place,), {"op": "copy"})
            return [Step(role, issue, load)]
        held = self.held(role, "made")
        first = Step(role, Issue("copy", (part,), (whole(held),), {"op": "copy"}),
                     _load(source, number, ROWS, held))  # fmt: skip
        second = Step(role, Issue("copy", (whole(held),), (place,), {"op": "copy"}),
                      _move(held, ring))  # fmt: skip
        return [first, second]

    def read(self, ring: Buffer, slot: Any) -> list[Any]:
        """A role reads the tile and writes it out, each time elsewhere."""
        role = self.anyone()
        held = self.held(role, "seen", self.chance(0.5))
        number, size = self.place()
        out = self.param((size * ROWS, COLS), "out")
        into = window(whole(out), (number * ROWS, 0), (ROWS, COLS))
        return [
            Step(role, Issue("copy", (whole(ring, slot),), (whole(held),), {"op": "copy"}),
                 _move(ring, held)),
            Step(role, Issue("copy", (whole(held),), (into,), {"op": "copy"}),
                 _save(held, out, number, ROWS)),
        ]  # fmt: skip

    def rewritten(self, ring: Buffer, slot: Any) -> list[Any]:
        """A role doubles the tile in place."""
        role = self.anyone()
        turned = self.chance(0.5)
        held, twice = self.held(role, "old", turned), self.held(role, "new", turned)

        def double(state: Any, env: Any) -> None:
            state[twice] = state[held] + state[held]

        return [
            Step(role, Issue("copy", (whole(ring, slot),), (whole(held),), {"op": "copy"}),
                 _move(ring, held)),
            Step(role, Issue("binary", (whole(held), whole(held)), (whole(twice),),
                             {"op": "add", "kind": "add"}), double),
            Step(role, Issue("copy", (whole(twice),), (whole(ring, slot),), {"op": "copy"}),
                 _move(twice, ring)),
        ]  # fmt: skip

    def stored(self, ring: Buffer, slot: Any) -> list[Any]:
        """A role stores the tile to device memory, by TMA or plainly."""
        role = self.anyone()
        number, size = self.place()
        out = self.param((size * ROWS, COLS), "out")
        into = window(whole(out), (number * ROWS, 0), (ROWS, COLS))
        instr = self.random.choice(("copy_async_tensor", "copy_async_tensor", "copy"))
        issue = Issue(instr, (whole(ring, slot),), (into,), {"op": "copy"})
        return [Step(role, issue, _save(ring, out, number, ROWS))]

    # Matrix products

    def product(self) -> list[Any]:
        """Chains of products over a loop, their accumulators stored at its end."""
        accs = [self.accumulator() for _ in range(self.random.choice((1, 1, 2)))]
        chains = [*accs, accs[0]] if self.chance(0.15) else accs
        out = [self.zeroed(acc) for acc in accs]
        out.append(self.loop(1, lambda: self.woven([self.products(acc) for acc in chains])))
        for acc in accs:
            out += self.stored_sum(acc)
        return out

    def accumulator(self) -> Buffer:
        axes = {a.name: a for a in self.group.mesh.at("thread")}
        split = axes["warp4"], None, axes["lane8"], None, axes["lane4"], None
        layout = ShardLayout((4, 2, 8, 8, 4, 2), (16, 8, 1, 512, 128, 64), split)
        made = Buffer(f"acc{len(self.locals)}", (SIDE, SIDE), F32, "rmem", layout,
                      mesh=self.group.mesh)  # fmt: skip
        self.locals.append(made)
        return made

    def zeroed(self, acc: Buffer) -> Any:
        def zero(state: Any, env: Any) -> None:
            import torch

            state[acc] = torch.zeros(SIDE, SIDE)

        issue = Issue("fill", (Scalar(0.0, F32),), (whole(acc),), {"op": "fill"})
        return Step(self.group, issue, zero)

    def stored_sum(self, acc: Buffer) -> list[Any]:
        """Straight from registers, or through shared memory by another role."""
        group = self.group
        number, size = self.place()
        into = self.param((size * SIDE, SIDE), "out")
        part = window(whole(into), (number * SIDE, 0), (SIDE, SIDE))
        if self.chance(0.4):
            return [Step(group, Issue("copy", (whole(acc),), (part,), {"op": "copy"}),
                         _save(acc, into, number, SIDE))]  # fmt: skip
        staged = self.ring("staged", (SIDE, SIDE), F32, None, 180 << 10)
        slot = self.slot(staged)
        if self.chance(0.3):
            self.over = staged, self.lhs
        storer = self.random.choice((*self.roles, group))
        instr = self.random.choice(("copy_async_tensor", "copy"))
        return [
            Step(group, Issue("copy", (whole(acc),), (whole(staged, slot),), {"op": "copy"}),
                 _move(acc, staged)),
            Step(storer, Issue(instr, (whole(staged, slot),), (part,), {"op": "copy"}),
                 _save(staged, into, number, SIDE)),
        ]  # fmt: skip

    def products(self, acc: Buffer) -> list[Any]:
        lhs_layout = ShardLayout(((8, 8), (4, 16)), ((512, 64), (16, 1)), (None,) * 4, (),
                                 Swizzle(3, 4, 3))  # fmt: skip
        rhs_layout = ShardLayout(((4, 2, 8), (1, 64)), ((1024, 512, 64), (64, 1)), (None,) * 5,
                                 (), Swizzle(3, 4, 3))  # fmt: skip
        role = self.random.choice(self.roles)
        number, size = self.place()
        steps: list[Any] = []
        rings: list[Buffer] = []
        instr = (
            "copy_async_tensor" if self.chance(0.7) else self.random.choice(("copy_async", "copy"))
        )
        for name, layout in (("lhs", lhs_layout), ("rhs", rhs_layout)):
            ring = self.ring(name, (SIDE, SIDE), BF16, layout, 70 << 10)
            if rings:
                ring = self._as_deep(ring, rings[0])
            rings.append(ring)
            source = self.param((size * SIDE, SIDE), "in", BF16)
            part = window(whole(source), (number * SIDE, 0), (SIDE, SIDE))
            issue = Issue(instr, (part,), (whole(ring, self.slot(ring)),), {"op": "copy"})
            steps.append(Step(role, issue, _load(source, number, SIDE, ring)))
        lhs, rhs = rings
        self.lhs = lhs

        def multiply(state: Any, env: Any) -> None:
            state[acc] = state[acc] + state[lhs].float() @ state[rhs].float()

        mma = Issue(
            "tiled_mma",
            (whole(acc), whole(lhs, self.slot(lhs)), whole(rhs, self.slot(rhs))), (whole(acc),),
            {"atom": wgmma(SIDE), "repeat": (1, 1, 4), "serial": (1, 1, 4), "order": (0, 1, 2),
             "op": "mma"},
        )  # fmt: skip
        steps.append(Step(self.group, mma, multiply))
        if self.chance(0.2):  # the accumulator is touched in the loop

            def double(state: Any, env: Any) -> None:
                state[acc] = state[acc] + state[acc]

            issue = Issue("binary", (whole(acc), whole(acc)), (whole(acc),),
                          {"op": "add", "kind": "add"})  # fmt: skip
            steps.append(Step(self.group, issue, double))
        return steps

    def _as_deep(self, ring: Buffer, other: Buffer) -> Buffer:
        self.shared += (other.slots - ring.slots) * SIDE * SIDE * 2
        made = replace(ring, slots=other.slots)
        self.locals[-1] = made
        return made

    # Statements

    def emit(self, body: list[Any]) -> list[Any]:
        out: list[Any] = []
        for part in body:
            if isinstance(part, Loop):
                inner = self.emit(part.body)
                if not inner:
                    continue
                if part.var in self.counters:
                    inner.append(Advance(self.counters[part.var]))
                out.append(For(part.var, part.start, part.stop, part.step, tuple(inner)))
            elif isinstance(part, Test):
                out.append(When(part.test, tuple(self.emit(part.body))))
            elif part.role is self.everyone:
                out.append(part.issue)
            elif out and isinstance(out[-1], With) and out[-1].mesh is part.role.mesh:
                last = out.pop()
                out.append(With(last.own, last.mesh, last.binding, (*last.body, part.issue),
                                last.source))  # fmt: skip
            else:
                role = part.role
                out.append(With(role.own, role.mesh, role.name, (part.issue,), role.source))
        return out

    def reference(self, body: list[Any], given: list[Any]) -> list[Any]:
        import torch

        outs = {b: torch.full(b.shape, float("nan")) for b in self.outputs}
        (axis,) = self.grid.axes
        coordinate = self.grid.coordinate(axis.name, "cta")
        assert coordinate is not None
        (symbol,) = coordinate.terms[0][0]
        for p in range(self.ctas):
            state: dict[Any, Any] = {**dict(zip(self.inputs, given, strict=True)), **outs}
            _execute(body, state, {symbol: p})
        return [outs[b] for b in self.outputs]


def _execute(body: list[Any], state: dict[Any, Any], env: dict[Any, int]) -> None:
    for part in body:
        if isinstance(part, Loop):
            start, stop, step = (evaluate(x, env) for x in (part.start, part.stop, part.step))
            for i in range(start, stop, step):
                _execute(part.body, state, {**env, part.var: i})
        elif isinstance(part, Test):
            if evaluate(part.test, env) > 0:
                _execute(part.body, state, env)
        else:
            part.act(state, env)


def _load(source: Buffer, number: Any, rows: int, into: Buffer) -> Any:
    def act(state: Any, env: Any) -> None:
        at = evaluate(number, env) * rows
        state[into] = state[source][at : at + rows].clone()

    return act


def _move(source: Buffer, into: Buffer) -> Any:
    def act(state: Any, env: Any) -> None:
        state[into] = state[source].clone()

    return act


def _save(source: Buffer, into: Buffer, number: Any, rows: int) -> Any:
    def act(state: Any, env: Any) -> None:
        at = evaluate(number, env) * rows
        state[into][at : at + rows] = state[source]

    return act


__all__ = ["Case", "generate"]
