"""One kernel as C: statements, loops, coordinates, and what instructions ask for.

Instructions' emitters (``EMITTERS`` of the files of this folder) get a :class:`Kernel`:
``each`` walks the vectors that an issue writes, ``value`` reads an operand at a place,
``put`` writes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilefoundry.diag import Span, refuse
from tilefoundry.emit.alike import held_alike
from tilefoundry.emit.c import memory
from tilefoundry.emit.c.files import RegisterFile, opened
from tilefoundry.emit.c.held import Segment, count, digits_of, held, register, segments
from tilefoundry.emit.c.text import c_dim, c_type
from tilefoundry.emit.language import Statements
from tilefoundry.emit.registry import Emitter
from tilefoundry.emit.writer import Writer
from tilefoundry.ir.expr import (
    Dim,
    IterVar,
    Sym,
    evaluate,
    floordiv,
    mod,
    multiple_of,
    substitute,
    symbols,
)
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.shard import Digit
from tilefoundry.lower.allocate import slot_bytes
from tilefoundry.tir.program import (
    Buffer,
    For,
    Issue,
    Operand,
    PrimFunc,
    Scalar,
    Stmt,
    Sync,
    View,
    With,
    walk,
)

UNROLL = 64
"""Vectors up to which an issue is written out; above, it is a loop."""
ORDERED_BY_ITSELF = ("barrier", "warp", "barrier_arrive")
"""Synchronisation among the lanes of a core, which one thread executes."""


@dataclass(frozen=True)
class Domain:
    """What the units of a core do for one issue: ``segments`` they count through, and the
    coordinates of an element in terms of ``vars`` and of the units' coordinates."""

    segments: tuple[Segment, ...]
    vars: tuple[IterVar, ...]
    at: tuple[Dim, ...]

    @property
    def size(self) -> int:
        return prod(s.extent for s in self.segments)


class Kernel(Statements):
    """The C function ``<name>_core`` that one core executes."""

    def __init__(
        self, func: PrimFunc, out: Writer, sources: Mapping[str, tuple[str, ...]],
        writer: Callable[[Issue], Emitter], files: Sequence[RegisterFile] = (),
        settling: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.func = func
        self.writer = writer
        """Who writes an issue."""
        self.files = files
        self.settling = settling
        """Statements after which other cores see what this one wrote."""
        self.out = out
        self.sources = sources
        self.level = func.target.levels[-1]
        sizes = {t.level: t.size for t in func.topologies}
        self.lanes = sizes.get(self.level, 1)
        self.sizes = {level: n for level, n in sizes.items() if level != self.level}
        self.cores = prod(self.sizes.values())
        self.names: dict[object, str] = {}
        self.after: tuple[Stmt, ...] = ()
        """What follows the statement that is being written, in its body."""
        self.meets = False
        """Whether cores wait for one another."""
        self.work: list[tuple[Buffer, int]] = []
        """Device memory that the runtime gives, and its bytes."""
        if self.lanes & (self.lanes - 1):
            near = 1 << (self.lanes.bit_length() - 1)
            refuse("emit-lanes", func.span, lanes=self.lanes, near=f"{near} or {2 * near}")

    # The function

    def parameters(self) -> list[tuple[Buffer, str]]:
        """Parameters and device memory, as C declares them."""
        out: list[tuple[Buffer, str]] = []
        self._workspaces()
        for buffer in (*self.func.params, *(b for b, _ in self.work)):
            const = "const " if buffer.role == "in" else ""
            out.append((buffer, f"{const}{c_type(buffer.dtype)} *restrict {self.names[buffer]}"))
        return out

    def _workspaces(self) -> None:
        if self.names:
            return
        for buffer in self.func.params:
            self.names[buffer] = self.out.name(buffer.name)
        for stmt, _ in walk(self.func.body):
            size = self._meeting(stmt)
            if size:
                self.meets = True
                buffer = stmt.attrs["workspace"]  # type: ignore[union-attr]
                self.names[buffer] = self.out.name(buffer.name)
                self.work.append((buffer, size))
        for buffer in self.func.buffers:
            shared = self.func.target.storages[buffer.storage].level is None
            if shared and buffer not in self.names:
                self.names[buffer] = self.out.name(buffer.name)
                self.work.append((buffer, slot_bytes(buffer)))
        self.meets = self.meets or any(
            isinstance(s, Sync) and s.kind in ("grid", "cluster") for s, _ in walk(self.func.body)
        )

    def _meeting(self, stmt: Stmt) -> int:
        """Bytes through which cores combine: a vector of 8-byte terms of each core."""
        if not isinstance(stmt, Issue) or stmt.attrs.get("scope") != "grid":
            return 0
        return self.cores * count(stmt.writes[0].buffer) * self.lanes * 8

    def write(self) -> None:
        """The function."""
        params = ", ".join(text for _, text in self.parameters())
        head = f"static void {self.func.name}_core(long core_id, {params})"
        with self.out.at(self.func.span), self.out.block(head):
            for buffer in self.func.buffers:
                if buffer not in self.names:
                    self._declare(buffer)
            for counter in self.func.counters:
                self.names[counter] = self.out.name(counter.name)
                self.out.line(f"long {self.names[counter]} = 0;")
            self.out.line("(void)core_id;")
            self._coordinates()
            files = opened(self.files, self.func.buffers)
            for begin, _ in files:
                self.out.line(begin)
            self.body(self.func.body, Mesh())
            for _, end in reversed(files):
                self.out.line(end)
            self.settle()

    def settle(self) -> None:
        """What precedes the moment from which other cores read what this one wrote."""
        for statement in self.settling:
            self.out.line(statement)

    def _declare(self, buffer: Buffer) -> None:
        if any(buffer.storage in file.storages for file in self.files):
            return
        level = self.func.target.storages[buffer.storage].level
        if level != self.level or buffer.dtype.bits % 8:
            refuse("emit-form", buffer.span, what=f"{buffer.type}", why="no C type holds it",
                   fix="use registers and elements of whole bytes")  # fmt: skip
        name = self.names[buffer] = self.out.name(buffer.name)
        size = count(buffer) * buffer.slots
        dtype = c_type(buffer.dtype)
        with self.out.at(buffer.span):
            self.out.line(f"{dtype}v {name}[{size}]; /* {buffer.type} */")

    # Statements

    def body(self, stmts: tuple[Stmt, ...], mesh: Mesh) -> None:
        for number, stmt in enumerate(stmts):
            self.after = stmts[number + 1 :]
            self.statement(stmt, mesh)

    def scope(self, stmt: With, mesh: Mesh) -> None:
        lanes = stmt.mesh.at(self.level)
        if lanes and sorted(stmt.mesh.units(self.level)) != list(range(self.lanes)):
            self.form(stmt, "a part of the lanes", "one vector holds all lanes",
                      "let all lanes work, and choose with tf.where")  # fmt: skip
        test: list[str] = []
        for level, size in self.sizes.items():
            units = sorted(stmt.mesh.units(level)) if stmt.mesh.at(level) else []
            around = sorted(mesh.units(level)) if mesh.at(level) else list(range(size))
            if units and units != around:
                test.append(self._among(self._unit(level), units))
        if test:
            with self.out.block(f"if ({' && '.join(test)})"):
                self.body(stmt.body, stmt.mesh)
        else:
            self.body(stmt.body, stmt.mesh)

    def _unit(self, level: str) -> str:
        """The number of this core's unit of ``level``."""
        inner = 1
        for name, size in reversed(self.sizes.items()):
            if name == level:
                break
            inner *= size
        if len(self.sizes) == 1:
            return "core_id"
        return f"core_id / {inner} % {self.sizes[level]}"

    @staticmethod
    def _among(unit: str, units: list[int]) -> str:
        if units == list(range(units[0], units[-1] + 1)):
            return f"({unit}) >= {units[0]} && ({unit}) <= {units[-1]}"
        return "(" + " || ".join(f"({unit}) == {u}" for u in units) + ")"

    def _coordinates(self) -> None:
        """Where this core stands on every axis that a scope arranges cores by."""
        meshes = [s.mesh for s, _ in walk(self.func.body) if isinstance(s, With)]
        for axis in dict.fromkeys(a for m in meshes for a in m.axes if a.level != self.level):
            name = self.names[axis] = self.out.name(axis.name)
            unit = self._unit(axis.level)
            at = f"({unit} - {axis.offset})" if axis.offset else unit
            at = f"({at}) / {axis.stride}" if axis.stride != 1 else at
            whole = axis.extent * axis.stride >= self.sizes[axis.level]
            self.out.line(f"const long {name} = {at if whole else f'({at}) % {axis.extent}'};")
            self.out.line(f"(void){name};")

    def counted(self, stmt: For, mesh: Mesh) -> None:
        name = self.names[stmt.var] = self.out.name(stmt.var.name)
        if stmt.unroll:
            self.out.line("#pragma GCC unroll 16")
        start, stop, step = (self.dim(x) for x in (stmt.start, stmt.stop, stmt.step))
        with self.out.block(f"for (long {name} = {start}; {name} < {stop}; {name} += {step})"):
            self.body(stmt.body, mesh)

    def sync(self, stmt: Sync, mesh: Mesh) -> None:
        if stmt.kind in ("grid", "cluster"):
            self.settle()
            self.out.line("#pragma omp barrier")
        elif stmt.kind not in ORDERED_BY_ITSELF:
            self.form(stmt, f"T.{stmt.kind}", "cores have no such engine", "let a core copy")

    def issue(self, stmt: Issue, mesh: Mesh) -> None:
        write = self.writer(stmt)
        if stmt.span is not None:
            text = self.sources.get(stmt.span.file, ())
            said = text[stmt.span.line - 1].strip() if stmt.span.line <= len(text) else ""
            self.out.note(f"{stmt.span}: {said}" if said else str(stmt.span))
        write(self, stmt, mesh)

    def form(self, stmt: object, what: str, why: str, fix: str) -> None:
        """Refuses a form that C for CPUs has no words for."""
        span: Span | None = getattr(stmt, "span", None)
        refuse("emit-form", span or self.out.span, what=what, why=why, fix=fix)

    # Names

    def symbol(self, sym: Sym) -> str:
        key: object = sym.axis if isinstance(sym, Coord) else sym
        if isinstance(sym, Coord) and key not in self.names:
            self.form(None, f"the coordinate {sym.name}", "it differs between the lanes of a "
                      "vector", "use it in places of elements only")  # fmt: skip
        return self.names[key]

    def dim(self, x: Dim) -> str:
        """An index expression that is the same for all lanes, as C."""
        return c_dim(x, self.symbol)

    def per_lane(self, x: Dim) -> tuple[Dim, ...]:
        """``x`` of each lane."""
        mine = [s for s in symbols(x) if self.is_lane(s)]
        if not mine:
            return (x,) * self.lanes
        return tuple(
            substitute(x, {s: self._lane_at(s.axis, lane) for s in mine})  # type: ignore[union-attr, arg-type]
            for lane in range(self.lanes)
        )

    def is_lane(self, sym: Sym) -> bool:
        return isinstance(sym, Coord) and sym.axis is not None and sym.axis.level == self.level

    @staticmethod
    def _lane_at(axis: Axis, lane: int) -> int:
        return (lane - axis.offset) // axis.stride % axis.extent

    # Places

    def domain(self, view: View) -> Domain:
        """The elements of a view in registers that the units of a core hold."""
        if regrouped(view):
            return self._regrouped(view)
        digits = self._digits(view)
        parts = segments(view.shape, digits)
        return self.over(view.shape, parts, digits)

    def _regrouped(self, view: View) -> Domain:
        """Of a whole buffer in another shape: its own elements, with coordinates of the view."""
        buffer = view.buffer
        own = self.over(buffer.shape, held(buffer), digits_of(buffer))
        flat: Dim = 0
        for x, extent in zip(own.at, buffer.shape, strict=True):
            flat = flat * extent + x
        at: list[Dim] = []
        for n, extent in enumerate(view.shape):
            inner = prod(view.shape[n + 1 :])
            at.append(mod(floordiv(flat, inner), extent))
        return Domain(own.segments, own.vars, tuple(at))

    def over(
        self, shape: tuple[int, ...], parts: tuple[Segment, ...], digits: tuple[Digit, ...] = ()
    ) -> Domain:
        vars = tuple(IterVar(f"i{n}", 0, s.extent - 1) for n, s in enumerate(parts))
        at: list[Dim] = [0] * len(shape)
        for var, segment in zip(vars, parts, strict=True):
            at[segment.dim] = at[segment.dim] + var.expr() * segment.inner
        for d in digits:
            at[d.dim] = at[d.dim] + self.coordinate(d.axis) * d.inner
        return Domain(parts, vars, tuple(at))

    @staticmethod
    def coordinate(axis: Axis) -> Dim:
        return Coord(axis.name, 0, axis.extent - 1, axis=axis).expr()

    def _digits(self, view: View) -> tuple[Digit, ...]:
        """The splits of a buffer as splits of the view's axes."""
        out: list[Digit] = []
        for d in digits_of(view.buffer):
            place = view.index[d.dim]
            found = [n for n, v in enumerate(view.vars) if v in symbols(place)]
            block = int(d.inner) * d.axis.extent  # type: ignore[arg-type]
            start = substitute(place, dict.fromkeys(view.vars, 0)) if found else place
            fits = (
                len(found) == 1
                and place - start == view.vars[found[0]].expr()
                and multiple_of(start) % block == 0
                and view.shape[found[0]] % block == 0
            )
            if not fits:
                self.form(None, f"{view}", f"it cuts the blocks that {d.axis.name} is dealt",
                          "cut registers at multiples of what each unit holds")  # fmt: skip
            out.append(Digit(d.axis, found[0], d.inner))
        return tuple(out)

    def each(self, domain: Domain, unroll: int = UNROLL) -> Iterator[tuple[Dim, ...]]:
        """The coordinates of each vector: once for each where there are few, else inside of
        loops."""
        if domain.size <= unroll:
            for values in _counts([s.extent for s in domain.segments]):
                env: dict[Sym, Dim] = dict(zip(domain.vars, values, strict=True))
                yield tuple(substitute(x, env) for x in domain.at)
            return
        with ExitStack() as stack:
            for var, segment in zip(domain.vars, domain.segments, strict=True):
                stack.enter_context(self.loop(var, segment.extent))
            yield domain.at

    def loop(self, var: IterVar, extent: int, step: int = 1):
        name = self.names[var] = self.out.name(var.name)
        by = f"{name}++" if step == 1 else f"{name} += {step}"
        return self.out.block(f"for (long {name} = 0; {name} < {extent}; {by})")

    def element(self, view: View, at: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Coordinates in the buffer of the view's element at ``at``."""
        env: dict[Sym, Dim] = dict(zip(view.vars, at, strict=True))
        return tuple(substitute(x, env) for x in view.index)

    def vector(self, view: View, at: tuple[Dim, ...]) -> str:
        """The vector of registers that holds the view's element at ``at``, as C."""
        buffer = view.buffer
        place = self.element(view, at)
        for d in digits_of(buffer):
            mine = place[d.dim] // int(d.inner) % d.axis.extent  # type: ignore[arg-type]
            if mine != self.coordinate(d.axis):
                self.form(None, f"{view}", f"units along {d.axis.name} hold other elements of it",
                          held_alike(self.now, view))  # fmt: skip
        number = register(buffer, place)
        if any(self.is_lane(s) for s in symbols(number)):
            self.form(None, f"{view}", "lanes hold its elements in different registers",
                      held_alike(self.now, view))  # fmt: skip
        if buffer.slots > 1:
            number = view.slot * count(buffer) + number
        return f"{self.names[buffer]}[{self.dim(number)}]"

    def in_registers(self, view: View) -> bool:
        return self.func.target.storages[view.storage].level == self.level

    def value(self, operand: Operand, at: tuple[Dim, ...]) -> str:
        """An operand's vector at ``at``, in the type it is stored as."""
        if isinstance(operand, Scalar):
            return memory.scalar(self, operand)
        if self.in_registers(operand):
            return self.vector(operand, at)
        return memory.load(self, operand, at)

    def put(self, view: View, at: tuple[Dim, ...], text: str, call: str = "") -> None:
        """Writes a vector of stored elements at ``at``; to memory by ``call``."""
        if self.in_registers(view):
            self.out.line(f"{self.vector(view, at)} = {text};")
        else:
            memory.store(self, view, at, text, call)

    def driver(self, issue: Issue) -> View | None:
        """The view whose holders say who does what; None where memory alone is touched."""
        held = [v for v in (issue.writes[0], *issue.reads) if isinstance(v, View)]
        return next((v for v in held if self.in_registers(v)), None)


def _counts(extents: list[int]) -> Iterator[tuple[int, ...]]:
    from itertools import product

    return product(*(range(e) for e in extents))


@lru_cache(maxsize=1024)
def regrouped(view: View) -> bool:
    """The view is its whole buffer, in the same order, in another shape."""
    buffer = view.buffer
    if view.shape == buffer.shape or prod(view.shape) != prod(buffer.shape):
        return False
    if any(s not in view.vars for x in view.index for s in symbols(x)):
        return False
    env: dict[Sym, int]
    for number, values in enumerate(_counts(list(view.shape))):
        env = dict(zip(view.vars, values, strict=True))
        flat = 0
        for x, extent in zip(view.index, buffer.shape, strict=True):
            flat = flat * extent + evaluate(x, env)
        if flat != number:
            return False
    return True
