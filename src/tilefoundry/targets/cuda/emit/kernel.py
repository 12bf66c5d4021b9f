"""One kernel as CUDA C++: declarations, coordinates, statements.

Instructions' emitters (``EMITTERS`` of the files of this folder) get a :class:`Kernel`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import prod

from tilefoundry.emit.language import Statements
from tilefoundry.emit.registry import emitter_of
from tilefoundry.emit.writer import Writer
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.lower.allocate import slot_bytes
from tilefoundry.targets.contract.unit import CLUSTER
from tilefoundry.targets.cuda.emit import flight, overlap, rings, roles, sync
from tilefoundry.targets.cuda.emit.held import moving, words
from tilefoundry.targets.cuda.emit.places import MapUse, Places
from tilefoundry.targets.cuda.emit.scopes import Arrays, Turns, steps
from tilefoundry.targets.cuda.emit.text import narrow, stored_type, word_type
from tilefoundry.targets.fact import Fact
from tilefoundry.tir.naming import ring_name
from tilefoundry.tir.plans import participants
from tilefoundry.tir.program import (
    Barrier,
    Buffer,
    For,
    Issue,
    PrimFunc,
    Stmt,
    Sync,
    When,
    With,
    coupled,
    views,
    walk,
)

WARP = 32
SHARE = 0.3
"""Of the estimated registers, what a kernel is tried with for the sake of more CTAs: results
take the places of operands, which the estimate counts beside each other."""


class Kernel(Places, Statements):
    """The function ``<name>``: one thread's program."""

    def __init__(self, func: PrimFunc, out: Writer, sources: Mapping[str, tuple[str, ...]]) -> None:
        self.func = func
        self.out = out
        self.sources = sources
        self.names: dict[object, str] = {}
        self.maps: dict[object, MapUse] = {}
        self.functions: dict[str, tuple[str, ...]] = {}
        """Device functions that the kernel calls, by name: instructions of one shape."""
        self.sizes = {t.level: t.size for t in func.topologies}
        self.threads = self.sizes.get("thread", 1)
        self.grid = prod(n for level, n in self.sizes.items() if level != "thread")
        self.warps = -(-self.threads // WARP)
        self.work: list[tuple[Buffer, int]] = []
        self.meets = False
        """CTAs wait for one another: all must be resident."""
        self.overlaps = False
        """It starts while the kernel before it ends."""
        self._behind: Sync | None = None
        self._waits = 0
        """How often that is written: once for each kind of warp that is written apart."""
        self.cluster = _cluster(func, self.sizes)
        """CTAs that are launched together, for each other's shared memory; 1: each alone."""
        self.remote = {s.barrier for s, _ in walk(func.body) if isinstance(s, Sync) and s.over}
        """Barriers that other CTAs arrive on."""
        self.flight = flight.operands(func)
        self.zeros = flight.zeros(func)
        self.active = frozenset(range(self.threads))
        """Threads that execute what is being written."""
        used = {s.id for s, _ in walk(func.body) if isinstance(s, Sync)}
        self.free_barriers = [n for n in range(15, 0, -1) if n not in used]
        self.group_barriers: dict[frozenset[int], int] = {}
        self.turns = Turns()
        self.said: dict[Dim, str] = {}
        """Variables that hold an index expression."""
        self.loops = 0
        self.alive: set[Buffer] = set()
        """Arrays that are declared where the writing stands."""
        self.arrays = Arrays()
        self.computed: set[object] = set()
        """Operations on registers that are written already."""

    # The function

    def prepare(self) -> None:
        """Names of parameters, device memory and tensor maps."""
        for buffer in self.func.params:
            self.names[buffer] = self.out.name(buffer.name)
        for stmt, _ in walk(self.func.body):
            if isinstance(stmt, Issue) and stmt.attrs.get("scope") == "grid":
                self.meets = True
                buffer = stmt.attrs["workspace"]
                self._device(buffer, prod(buffer.shape))
            elif isinstance(stmt, Sync) and stmt.kind == "grid":
                self.form(stmt, f"T.sync_{stmt.kind}", "no program has needed it yet",
                          "split the kernel in two")  # fmt: skip
        self.overlaps = overlap.overlaps(self.func) and not self.meets
        self._behind = overlap.after(self.func) if self.overlaps else None
        for buffer in self.func.buffers:
            if buffer.role == "work":
                self._device(buffer, slot_bytes(buffer))

    def _device(self, buffer: Buffer, size: int) -> None:
        if buffer not in self.names:
            self.names[buffer] = self.out.name(buffer.name)
            self.work.append((buffer, size))

    def parameters(self) -> list[str]:
        """The parameters as declared: tensors, device memory, tensor maps."""
        written = {
            v.buffer for s, _ in walk(self.func.body) if isinstance(s, Issue) for v in s.writes
        }
        out: list[str] = []
        for buffer in (*self.func.params, *(b for b, _ in self.work)):
            const = "" if buffer in written or buffer.role == "work" else "const "
            out.append(f"{const}{stored_type(buffer.dtype)} *__restrict__ {self.names[buffer]}")
        out += [f"const __grid_constant__ TensorMap {m.name}" for m in self.maps.values()]
        return out

    def write(self) -> None:
        """The function. Its head is written last, when all tensor maps are known."""
        self.prepare()
        mark = len(self.out.lines)
        with self.out.at(self.func.span), self.out.block(""):
            if self.func.shared_bytes:
                self.out.line("extern __shared__ __align__(1024) char smem[];")
                self.out.line("const uint32_t shared = tf_shared_start(smem);")
            self.out.line("const int tid = threadIdx.x;")
            self.out.line("const int warp = __shfl_sync(0xffffffff, tid / 32, 0);")
            start = len(self.out.lines)
            coordinates = self._coordinates()
            for barrier in self.func.barriers:
                self._barrier(barrier)
            for counter in self.func.counters:
                self.names[counter] = self.out.name(counter.name)
                self.out.line(f"int {self.names[counter]} = 0;")
            if self.overlaps and self._behind is None:
                self._wait_for_the_one_before()
            self.body(self.func.body, Mesh())
        assert bool(self._waits) == self.overlaps, self.func.name
        self._unused(coordinates)
        at = self.func.span
        fetch = [f"    if (tid == 0) tf_prefetch({m.name});" for m in self.maps.values()]
        self.out.lines[start:start] = [(text, at) for text in fetch]
        resident = self.resident()
        macro = f"{self.func.name.upper()}_RESIDENT"
        head = [
            f"#ifndef {macro}",
            f"#define {macro} {resident}  // CTAs on one SM: fewer where registers would spill",
            "#endif",
        ] if resident > 1 else []  # fmt: skip
        head += [
            f'extern "C" __global__ void __launch_bounds__({self.threads}, '
            f"{macro if resident > 1 else 1})",
            f"{self.func.name}({', '.join(self.parameters())})",
        ]
        self.out.lines[mark:mark] = [(text, at) for text in head]

    def resident(self) -> int:
        """CTAs that the launch would put on one SM if registers allow: as many as there are,
        up to what shared memory has room for and what leaves most of the estimate."""
        if any(isinstance(s, Sync) and s.kind == "registers" for s, _ in walk(self.func.body)):
            return 1
        target = self.func.target
        file, shared = target.registers, target.storages["smem"]
        most = max((n for _, n, _ in self.func.registers), default=1)
        limits = [
            (_known(target.resident.get("thread")), self.threads),
            (_known(target.resident.get("cta")), 1),
            (file.count if file else 0, self.threads * max(WARP, int(most * SHARE))),
        ]
        if self.func.shared_bytes:
            each = self.func.shared_bytes + _known(shared.reserved)
            limits.append((_known(shared.processor_capacity), each))
        count = _known(target.processor.count)
        wanted = -(-self.grid // count) if count else 1
        return max(1, min(wanted, *(have // each for have, each in limits if have)))

    def _wait_for_the_one_before(self) -> None:
        self._waits += 1
        self.out.line("tf_overlap_wait();  // for the end of the kernel before this one")
        self.out.line("tf_overlap_next();  // the next one may start, and wait")

    def declare(self, buffer: Buffer) -> None:
        """A buffer of the kernel's own: an array of words, or a place in shared memory."""
        if buffer.storage != "rmem":
            if buffer not in self.names:
                self.names[buffer] = self.out.name(ring_name(buffer))
            return
        if buffer in self.alive:
            return
        if buffer not in self.names:
            self.names[buffer] = self.out.name(ring_name(buffer))
        self.alive.add(buffer)
        with self.out.at(buffer.span):
            name, size = self.names[buffer], words(buffer)
            self.out.line(f"{word_type(buffer.dtype)} {name}[{size}];  // {_said(buffer)}")

    def _barrier(self, barrier: Barrier) -> None:
        name = self.names[barrier] = self.out.name(barrier.name)
        self.out.line(f"const uint32_t {name} = shared + {barrier.offset};")

    def _unused(self, lines: range) -> None:
        """Takes away the coordinates that nothing mentions."""
        later = " ".join(text for text, _ in self.out.lines[lines.start :])
        counts = Counter(re.findall(r"\w+", later))
        for n in reversed(lines):
            name = self.out.lines[n][0].split(" = ")[0].split()[-1]
            if counts[name] == 1:
                del self.out.lines[n]

    def _coordinates(self) -> range:
        """Where this thread stands on every axis that a scope names; the lines that say so."""
        begin = len(self.out.lines)
        meshes = [s.mesh for s, _ in walk(self.func.body) if isinstance(s, With)]
        inner: dict[str, int] = {}
        step = 1
        for level, size in reversed(self.sizes.items()):
            if level != "thread":
                inner[level] = step
                step *= size
        for axis in dict.fromkeys(a for m in meshes for a in m.axes):
            name = self.names[axis] = self.out.name(axis.name)
            if axis.extent == 1:
                self.out.line(f"const int {name} = 0;")
                continue
            size = self.sizes.get(axis.level, 1)
            whole = axis.extent * axis.stride + axis.offset >= size
            if axis.level == "thread":
                by_warp = axis.offset % WARP == 0 and axis.stride % WARP == 0
                unit = "warp" if by_warp else "tid"
                unit_size = WARP if by_warp else 1
            else:
                unit, unit_size = "(int)blockIdx.x", 1
                if len(inner) > 1:
                    unit = f"((int)blockIdx.x / {inner[axis.level]} % {size})"
            offset, stride = axis.offset // unit_size, axis.stride // unit_size
            text = f"({unit} - {offset})" if offset else unit
            text = f"{text} / {stride}" if stride != 1 else text
            self.out.line(f"const int {name} = {text if whole else f'{text} % {axis.extent}'};")
        return range(begin, len(self.out.lines))

    def ranks(self, over: Sequence[Axis]) -> tuple[str, list[int]]:
        """The CTAs along ``over``, by their number in the cluster: the first one's, and how far
        the others are from it."""
        steps = [0]
        for a in over:
            steps = [s + n * a.stride for s in steps for n in range(a.extent)]
        if sorted(steps) == list(range(self.cluster)):
            return "", steps
        first = f"(int)blockIdx.x % {self.cluster}"
        for a in over:
            first += f" - {self.names[a]} * {a.stride}" if a.stride != 1 else f" - {self.names[a]}"
        return f"({first})", steps

    # Statements

    def body(self, stmts: tuple[Stmt, ...], mesh: Mesh) -> None:
        """Statements of the threads in ``self.active``; what different warps do apart from
        the others is written apart, so that each has its own registers."""
        left = roles.restricted(self, stmts, mesh, self.active)
        outside = set(self.alive)
        while left:
            self._declare_for(left)
            alone = len(left) == 1 and roles.spans(self, left[0])
            parts = [] if alone else roles.components(self, left, mesh, self.active)
            if len(parts) > 1:
                self._apart(parts, left, mesh)
                break
            run = 1
            while run < len(left) and all(roles.elected(s) for s in left[: run + 1]):
                run += 1
            if roles.elected(left[0]):
                with sync.one_thread(self, mesh):
                    for stmt in left[:run]:
                        self.statement(stmt, mesh)
            else:
                self.statement(left[0], mesh)
            left = left[run:]
        self.alive = outside

    def _declare_for(self, stmts: tuple[Stmt, ...]) -> None:
        """Declares the arrays of the first statement that the others use as well, or that it
        does not keep to itself."""
        first, *rest = stmts
        later = frozenset[Buffer]().union(*(self.arrays.used(s) for s in rest))
        for buffer in sorted(self.arrays.used(first) - self.alive, key=lambda b: b.name):
            own = isinstance(first, (With, When))
            if isinstance(first, For):
                own = self.arrays.begins(first, buffer) is True
            if buffer in later or not own:
                self.declare(buffer)

    def _apart(self, parts: list[frozenset[int]], stmts: tuple[Stmt, ...], mesh: Mesh) -> None:
        before, left, word = self.active, self.active, "if"
        for part in parts:
            mine = roles.restricted(self, stmts, mesh, part)
            if not mine:
                continue
            self.active = before
            test = roles.test(self, part)
            head = "else" if part == left and left != before else f"{word} ({test})"
            with self.out.block(head):
                self.active = part
                self.body(mine, mesh)
            word, left = "else if", left - part
        self.active = before

    def sync(self, stmt: Sync, mesh: Mesh) -> None:
        sync.write(self, stmt, mesh)
        if stmt is self._behind:
            self._wait_for_the_one_before()

    def scope(self, stmt: With, mesh: Mesh) -> None:
        tests: list[str] = []
        for level, size in self.sizes.items():
            units = frozenset(stmt.mesh.units(level)) if stmt.mesh.at(level) else frozenset[int]()
            if not units:
                continue
            if level == "thread":
                if not self.active <= units:
                    tests.append(roles.test(self, units & self.active))
                continue
            around = frozenset(mesh.units(level)) if mesh.at(level) else frozenset(range(size))
            if units != around:
                tests.append(self._among(level, sorted(units)))
        if not tests:
            self._inside(stmt)
            return
        with self.out.block(f"if ({' && '.join(tests)})"):
            self._inside(stmt)

    def _inside(self, stmt: With) -> None:
        before = self.active
        units = frozenset(stmt.mesh.units("thread")) if stmt.mesh.at("thread") else before
        self.active = before & units
        self.body(stmt.body, stmt.mesh)
        self.active = before

    def _among(self, level: str, units: list[int]) -> str:
        step = prod([n for x, n in self.sizes.items() if x != "thread"][
            [x for x in self.sizes if x != "thread"].index(level) + 1:])  # fmt: skip
        unit = f"(int)blockIdx.x / {step} % {self.sizes[level]}"
        if units == list(range(units[0], units[-1] + 1)):
            return f"{unit} >= {units[0]} && {unit} <= {units[-1]}"
        return "(" + " || ".join(f"{unit} == {u}" for u in units) + ")"

    def counted(self, stmt: For, mesh: Mesh) -> None:
        name = self.names[stmt.var] = self.out.name(stmt.var.name)
        whole = stmt.unroll or self._names_registers(stmt)
        start, stop, step = (self.dim(x) for x in (stmt.start, stmt.stop, stmt.step))
        counter = self.turns.of(stmt, name)
        turn = "" if counter is None else counter.name
        if counter is not None:
            self.names[counter] = turn
            self.out.names.add(turn)
        known = dict(self.said)
        mine = roles.restricted(self, stmt.body, mesh, self.active)
        going, ahead, own = self._rings(stmt, mine)
        going = [f"{turn} = 0"] * bool(turn) + going
        ahead = [f"{name} += {step}"] + [f"{turn}++"] * bool(turn) + ahead
        wide = not narrow(stmt.stop + stmt.step)
        with self.out.block("") if wide and going else nullcontext():
            first = f"{'int64_t' if wide else 'int'} {name} = {start}"
            if wide and going:
                self.out.line(f"int {', '.join(going)};")
            elif going:
                first += f", {', '.join(going)}"
            self.out.line("#pragma unroll" if whole else "#pragma unroll 1")
            with self.out.block(f"for ({first}; {name} < {stop}; {', '.join(ahead)})"):
                self.loops += 1
                self._say(mine)
                self.body(stmt.body, mesh)
                self.out.names -= set(self.said.values()) - set(known.values())
                self.said = known
                self.loops -= 1
        self.out.names -= {name, turn, *own}

    def _names_registers(self, stmt: For) -> bool:
        """Whether the loop's variable is part of registers' numbers, which are constants."""
        named = any(
            isinstance(found := moving(v), tuple) and found[0] is stmt.var
            for s, _ in walk(stmt.body) for v in (views(s) if isinstance(s, Issue) else ())
            if v.storage == "rmem"
        )  # fmt: skip
        if named and not all(isinstance(x, int) for x in (stmt.start, stmt.stop, stmt.step)):
            self.form(stmt, f"registers numbered by {stmt.var}", "its bounds are not constant",
                      "let the loop start and end at constants")  # fmt: skip
        return named

    def _rings(self, stmt: For, body: tuple[Stmt, ...]) -> tuple[list[str], list[str], list[str]]:
        """Variables for slots and phases that go on with the loop: their declarations, their
        steps, their names."""
        first, more, own = list[str](), list[str](), list[str]()
        for ring in rings.rings(stmt, body):
            slot, phase = self.out.name("slot"), self.out.name("phase")
            begin, turn = (self.dim(x) for x in ring.first(stmt))
            first += [f"{slot} = {begin}", f"{phase} = {turn}"]
            more.append(f"tf_next<{ring.slots}>({slot}, {phase})")
            own += [slot, phase]
            for x, ahead in ring.ahead:
                self.said[x] = f"tf_ahead<{ring.slots}>({slot}, {ahead})" if ahead else slot
            for x, later in ring.later:
                self.said[x] = f"{phase} ^ 1" if later else phase
        return first, more, own

    def _say(self, body: tuple[Stmt, ...]) -> None:
        """Variables for slots and phases that several statements of a loop's body name."""
        for stem, found in steps(body):
            if found in self.said:
                continue
            name = self.out.name(stem)
            self.out.line(f"const int {name} = {self.dim(found)};")
            self.said[found] = name

    def issue(self, stmt: Issue, mesh: Mesh) -> None:
        if stmt in self.zeros.fills:
            self.declare(stmt.writes[0].buffer)
            return
        for view in views(stmt):
            found = moving(view) if view.storage == "rmem" else None
            if isinstance(found, str):
                self.form(stmt, f"{view}", f"its registers have no fixed numbers: {found}",
                          "write the loop as `for n in (0, 1)`, or cut by constants")  # fmt: skip
        write = emitter_of(self.func.target, stmt)
        if stmt.span is not None:
            text = self.sources.get(stmt.span.file, ())
            said = text[stmt.span.line - 1].strip() if stmt.span.line <= len(text) else ""
            if said:
                self.out.line(f"// {said}")
        with self.out.block(""):
            before, known = set(self.out.names), set(self.names.values())
            write(self, stmt, participants(mesh, self.func))
            self.out.names = before | (set(self.names.values()) - known)
        self.trim()

    def trim(self) -> None:
        """A block of one line needs no braces."""
        lines = self.out.lines
        if len(lines) >= 3 and lines[-1][0].strip() == "}" and lines[-3][0].strip() == "{":
            text, span = lines[-2]
            if text.strip().endswith(";") and "=" not in text.split("(")[0].split("[")[0]:
                lines[-3:] = [(text[4:], span)]


def _known(fact: Fact | None) -> int:
    """0 where nothing is known."""
    return fact.value if fact and isinstance(fact.value, int) else 0


def _cluster(func: PrimFunc, sizes: Mapping[str, int]) -> int:
    if not coupled(func):
        return 1
    levels = list(sizes)
    return prod(sizes[x] for x in levels[levels.index(CLUSTER) + 1 :] if x != "thread")


def _said(buffer: Buffer) -> str:
    return f"{buffer.type}"
