"""Random programs of decisions, as source: units, places, layouts, copies, roles, loops.

``decide(seed, target)`` draws a program of what an author may decide: meshes of CTAs (also of
clusters) and threads or of cores and lanes, values split over them in blocks or dealt out,
registers, shared and device memory in several layouts, windows, reductions over split axes and
their completion, copies over what is there, asynchronous copies into rings, roles, loops (also
backwards, or with trips that differ between units), matrix instructions. Not each is legal: a
program is refused with a code, or it is lowered, verified and right. Values are small whole
numbers, so sums are exact in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import {cls}


@module(
    entry="f",
    target={cls}("{device}"),
    topologies=({levels}),
)
class Decided:
    @func
    def f({params}):
{body}
"""
COPIES = ("copy", "copy", "copy_async", "copy_async_bulk", "copy_async_tensor")
ROWS, COLS = (1, 2, 3, 4, 6, 8, 16), (4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Axis:
    """A mesh axis that may be in force: how a program names it, its level and extent."""

    text: str
    level: str
    extent: int


@dataclass(frozen=True)
class Value:
    """A tensor in sight; ``scope`` names the threads it was made by, ``layout`` is as written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage: str
    layout: str = ""
    split: tuple[Axis, ...] = ()
    partial: tuple[Axis, ...] = ()
    scope: str = ""
    varies: bool = False
    """It differs between outer units."""
    size: int = 4
    """A bound of its elements' magnitude."""


@dataclass(frozen=True)
class Scope:
    """Threads that execute statements: the ``with`` line and the axes that it names."""

    head: str
    axes: tuple[Axis, ...]


def decide(seed: int, target: str = "cuda") -> str:
    """The source of one program for ``target``, ``cuda`` or ``cpu``."""
    return (_Cuda if target == "cuda" else _Cpu)(Random(f"{target}{seed}")).text()


class _Writer:
    """Statements of a function; lines are kept with their depth."""

    cls = device = ""
    shared = True

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.depth = 2
        self.made = 0
        self.params: list[str] = []
        self.outs: list[tuple[str, tuple[int, ...], str]] = []
        self.loops: list[tuple[str, int]] = []
        self.outer: tuple[Axis, ...] = ()
        self.scopes: list[Scope] = []

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def one(self, items):
        return self.random.choice(list(items))

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, stem: str = "v") -> str:
        self.made += 1
        return f"{stem}{self.made}"

    # What is in force

    @property
    def inner(self) -> tuple[Axis, ...]:
        return self.scopes[-1].axes if self.scopes else ()

    @property
    def scope(self) -> str:
        return self.scopes[-1].head if self.scopes else ""

    def number(self, without: tuple[Axis, ...] = ()) -> tuple[str, int]:
        """An expression that differs between outer units and iterations, and its count."""
        words, count = "0", 1
        for text, extent in [(a.text, a.extent) for a in self.outer if a not in without] + [
            *self.loops
        ]:
            words, count = (text if count == 1 else f"({words}) * {extent} + {text}"), (
                count * extent
            )
        return words, count

    # Layouts

    def layout(
        self, shape: tuple[int, ...], storage: str, varies: bool
    ) -> tuple[str, tuple[Axis, ...]]:
        """A layout of ``shape`` in ``storage`` and the axes that it splits."""
        outer = () if varies and not self.chance(0.03) else self.outer
        if storage == "smem":
            return self.shared_layout(shape, outer)
        axes = [*(outer if self.chance(0.3) else ()), *self.inner]
        if storage == "gmem":
            axes = axes if self.chance(0.2) else []
        left = list(axes)
        modes: list[str] = []
        taken: list[Axis] = []
        for extent in shape:
            rest, mine = extent, []
            while left and (not mine or self.chance(0.4)):
                fits = [a for a in left if rest % a.extent == 0]
                if not fits or self.chance(0.15):
                    break
                axis = fits[0] if self.chance(0.6) else self.one(fits)
                left.remove(axis)
                taken.append(axis)
                rest //= axis.extent
                mine.append(f"{axis.extent} @ {axis.text}")
            if not mine:
                modes.append(str(extent))
                continue
            if rest > 1:
                cut = self.one([d for d in range(1, rest + 1) if rest % d == 0])
                for part in [p for p in (cut, rest // cut) if p > 1]:
                    mine.insert(self.random.randint(0, len(mine)), str(part))
            modes += mine
        return _tuple(modes), tuple(taken)

    def shared_layout(self, shape, outer) -> tuple[str, tuple[Axis, ...]]:
        if len(shape) == 2 and self.chance(0.4):
            rows, cols = shape
            form = self.one(["turned", "padded", "swizzled", "blocked"])
            if form == "turned":
                return f"(({rows}, {cols}), (1, {rows}))", ()
            if form == "padded":
                return f"(({rows}, {cols}), ({cols + self.one([1, 4])}, 1))", ()
            if form == "swizzled":
                bits = self.one(["1, 4, 3", "2, 4, 3", "3, 4, 3"])
                return f"Layout(({rows}, {cols})) | Swizzle({bits})", ()
            if cols % 4 == 0:
                return f"Layout(({rows}, ({cols // 4}, 4)), (4, ({4 * rows}, 1)))", ()
        fits = [a for a in outer if shape[0] % a.extent == 0 and a.extent > 1]
        if fits and self.chance(0.3):
            axis = self.one(fits)
            modes = [f"{shape[0]} @ {axis.text}", *map(str, shape[1:])]
            return _tuple(modes), (axis,)
        return "", ()

    # Statements

    def load(self, seen: dict[str, Value]) -> None:
        """A window of a parameter or of what lies in memory, in another place."""
        source = self.one([v for v in seen.values() if v.storage == "gmem"])
        storage = self.one(["rmem", "rmem", "smem"] if self.shared else ["rmem", "rmem", "gmem"])
        window, shape = self.window(source)
        varies = source.varies or any(a.text in window for a in self.outer)
        layout, split = self.layout(shape, storage, varies)
        made = Value(self.name(), shape, source.dtype, storage, layout, split, (), self.scope,
                     varies, source.size)  # fmt: skip
        if storage == "smem" and self.chance(0.5):
            room, slots = self.name("room"), self.one([1, 1, 2, 3]) if self.loops else 1
            more = f", buffers={slots}" if slots > 1 else ""
            place = ", ".join([str(shape), f'"{source.dtype}"', *([layout] if layout else []),
                               f'"{storage}"'])  # fmt: skip
            self.line(f"{room} = tf.empty(Tensor[{place}]{more})")
            copy = self.copy(source.storage, storage)
            self.line(f"{made.name} = tf.schedule(({window}, {room}), op=T.{copy}())")
        else:
            self.line(f'{made.name} = tf.reshard({window}, {layout or None}, "{storage}")')
        seen[made.name] = made

    def copy(self, before: str, after: str) -> str:
        """The name of a copy between two places; some that the places do not allow."""
        moved = {(("gmem", "smem")): COPIES, ("smem", "gmem"): ("copy", *COPIES[3:])}
        return self.one(COPIES if self.chance(0.02) else moved.get((before, after), ["copy"]))

    def window(self, source: Value) -> tuple[str, tuple[int, ...]]:
        """A window of a value in device memory that may differ between units and steps."""
        rows = source.shape[0]
        size = self.one([d for d in range(1, rows + 1) if rows % d == 0 and rows // d <= 8])
        text, count = self.number()
        whole = rows // size
        at = self.one([text, "0", str(self.random.randrange(whole))])
        if at == text and count > whole:
            at = f"({text}) % {whole}"
        words = f"{source.name}[({at}) * {size}:({at}) * {size} + {size}]"
        return words, (size, *source.shape[1:])

    def move(self, seen: dict[str, Value]) -> None:
        """Another place or another distribution."""
        value = self.one(self.usable(seen))
        storages = ["rmem", "rmem", "smem", "smem"] if self.shared else ["rmem", "gmem"]
        storage = self.one([*storages, "gmem"] if self.chance(0.15) else storages)
        layout, split = self.layout(value.shape, storage, value.varies)
        made = replace(value, name=self.name(), storage=storage, layout=layout, split=split,
                       partial=(), scope=self.scope)  # fmt: skip
        how = "tf.reshard({0}, {1}, {2})"
        if not value.partial and self.chance(0.25):
            place = ", ".join([str(value.shape), f'"{value.dtype}"', *([layout] if layout else []),
                               f'"{storage}"'])  # fmt: skip
            copy = self.copy(value.storage, storage)
            how = f"tf.schedule(({{0}}, tf.empty(Tensor[{place}])), op=T.{copy}())"
        self.line(f"{made.name} = " + how.format(value.name, layout or None, f'"{storage}"'))
        seen[made.name] = made

    def usable(self, seen: dict[str, Value]) -> list[Value]:
        """Values that a statement here may read: those of other threads' registers hardly."""
        mine = [v for v in seen.values() if v.storage != "rmem" or v.scope == self.scope]
        return mine if mine and not self.chance(0.02) else [*seen.values()]

    def held(self, seen: dict[str, Value], *more: str) -> list[Value]:
        """Values in registers, or in ``more`` storages; others hardly."""
        found = [v for v in self.usable(seen) if v.storage in ("rmem", *more)]
        return found if not self.chance(0.02) else self.usable(seen)

    def unary(self, seen: dict[str, Value]) -> None:
        values = self.held(seen)
        if not values:
            return self.load(seen)
        value = self.one(values)
        op, size = self.one([
            ("-{0}", value.size), ("tf.abs({0})", value.size), ("tf.relu({0})", value.size),
            ("{0} + 3", value.size + 3), ("{0} * 2", value.size * 2),
            ("tf.clamp({0}, -2, 5)", 5),
        ])  # fmt: skip
        self.result(seen, value, op.format(value.name), size)

    def result(self, seen: dict[str, Value], value: Value, text: str, size: int) -> None:
        if size > 120:  # bf16 holds whole numbers to 256
            return
        made = replace(value, name=self.name(), size=size)
        self.line(f"{made.name} = {text}")
        seen[made.name] = made

    def binary(self, seen: dict[str, Value]) -> None:
        values = self.held(seen)
        if not values:
            return self.load(seen)
        a = self.one(values)
        same = [b for b in self.usable(seen)
                if b.shape == a.shape and b.dtype == a.dtype and b.partial == a.partial
                and ((b.layout, b.storage) == (a.layout, a.storage) or self.chance(0.1))
                ]  # fmt: skip
        b = self.one(same or [a])
        op, size = self.one([
            ("{0} + {1}", a.size + b.size), ("{0} - {1}", a.size + b.size),
            ("tf.maximum({0}, {1})", max(a.size, b.size)), ("{0} * {1}", a.size * b.size),
            ("tf.where({0} > {1}, {0}, {1})", max(a.size, b.size)),
        ])  # fmt: skip
        varies = a.varies or b.varies
        self.result(seen, replace(a, varies=varies), op.format(a.name, b.name), size)

    def reduce(self, seen: dict[str, Value]) -> None:
        values = [v for v in self.held(seen, "smem") if not v.partial and v.layout != "view"]
        if not values:
            return self.load(seen)
        value = self.one(values)
        axis = self.random.randrange(len(value.shape))
        kind = self.one(["sum", "sum", "max", "min"])
        shape = tuple(1 if n == axis else e for n, e in enumerate(value.shape))
        size = value.size * (value.shape[axis] if kind == "sum" else 1)
        if size > 120:
            return
        gone = _axis_splits(value, axis)
        text = f'tf.reduce({value.name}, ({axis},), keepdim=True, kind="{kind}")'
        made = replace(value, name=self.name(), shape=shape, size=size, layout="reduced",
                       split=tuple(a for a in value.split if a not in gone), partial=gone,
                       dtype="i64" if kind == "sum" and value.dtype == "i32" else value.dtype,
                       scope=self.scope)  # fmt: skip
        self.line(f"{made.name} = {text}")
        seen[made.name] = made
        if gone or self.chance(0.5):
            storage = self.one(["rmem", "rmem", "smem"] if self.shared else ["rmem"])
            layout, split = self.layout(shape, storage, value.varies)
            done = replace(made, name=self.name(), storage=storage, layout=layout, split=split,
                           partial=())  # fmt: skip
            self.line(f'{done.name} = tf.reshard({made.name}, {layout or None}, "{storage}")')
            seen[done.name] = done
            if self.chance(0.5) and value.storage == storage == "rmem":
                whole = replace(value, name=self.name(), size=value.size + size)
                self.line(f"{whole.name} = {value.name} - {done.name}")
                seen[whole.name] = whole

    def view(self, seen: dict[str, Value]) -> None:
        value = self.one(self.usable(seen))
        if value.split or value.partial or len(value.shape) != 2:
            return
        rows, cols = value.shape
        table = {
            f"tf.transpose({value.name}, (1, 0))": (cols, rows),
            f"{value.name}[:, {cols // 2}:]": (rows, cols - cols // 2),
            f"tf.pad({value.name}, ({self.one([0, 2])}, 2))": None,
            f"tf.repeat_interleave({value.name}, 2, axis=0)": (2 * rows, cols),
            f"tf.reshape({value.name}, ({rows * 2}, {cols // 2}))": (rows * 2, cols // 2),
        }
        text = self.one(table)
        shape = table[text] or (rows, cols + 2 + int(text.split("(")[2][0]))
        made = replace(value, name=self.name(), shape=shape, layout="view")
        self.line(f"{made.name} = {text}")
        seen[made.name] = made

    def update(self, seen: dict[str, Value]) -> None:
        """A part of a value replaced by a part of the same place or another value."""
        values = [v for v in self.usable(seen) if v.name not in ("x", "y")]
        if not values:
            return self.load(seen)
        value = self.one(values)
        fits = [v for v in self.usable(seen) if v.dtype == value.dtype and not v.partial
                and len(v.shape) == len(value.shape) and not v.split and v is not value
                and all(a <= b for a, b in zip(v.shape, value.shape, strict=True))]  # fmt: skip
        if not fits or value.partial or value.split:
            return
        part = self.one(fits)
        at = tuple(self.random.randint(0, b - a)
                   for a, b in zip(part.shape, value.shape, strict=True))  # fmt: skip
        text = f"tf.insert_slice({value.name}, {part.name}, {at})"
        self.result(seen, value, text, max(value.size, part.size))

    def overwrite(self, seen: dict[str, Value]) -> None:
        """Another window copied over a value in shared memory."""
        places = [v for v in self.usable(seen) if v.storage == "smem" and v.layout != "reduced"]
        values = [v for v in seen.values() if v.name in ("x", "y")]
        pairs = [(v, p) for v in values for p in places
                 if v.dtype == p.dtype and v.shape[1:] == p.shape[1:]
                 and v.shape[0] >= p.shape[0]]  # fmt: skip
        if not pairs:
            return self.load(seen)
        source, place = self.one(pairs)
        made = replace(place, name=self.name(), size=source.size)
        window = f"{source.name}[0:{place.shape[0]}]"
        self.line(f"{made.name} = tf.schedule(({window}, {place.name}), op=T.copy())")
        seen[made.name] = made

    def store(self, seen: dict[str, Value]) -> None:
        """A value written to a result of its own, at a place of its own."""
        values = self.usable(seen)
        whole = [v for v in values if not v.partial]
        if not whole:
            return
        self.stored(self.one([v for v in whole if v.storage != "gmem"] or whole))

    def stored(self, value: Value) -> None:
        text, count = self.number(value.split)
        out = f"out{len(self.outs)}"
        shape = (count * value.shape[0], *value.shape[1:])
        self.outs.append((out, shape, value.dtype))
        zeros = ", 0" * (len(shape) - 1)
        at = f"(({text}) * {value.shape[0]}{zeros or ','})"
        self.line(f"{out} = tf.insert_slice({out}, {value.name}, {at})")

    # Structure

    def block(self, seen: dict[str, Value], deep: int, count: int) -> None:
        for _ in range(count):
            self.statement(seen, deep)

    def statement(self, seen: dict[str, Value], deep: int) -> None:
        kinds = ["load", "load", "move", "move", "unary", "binary", "binary", "reduce", "store",
                 "view", "update", "overwrite"]  # fmt: skip
        if deep:
            kinds += ["loop", "role", "role", "carried"]
        getattr(self, self.one(kinds))(seen)

    def loop(self, seen: dict[str, Value]) -> None:
        if len(self.loops) > 1:
            return
        self.enter_loop(seen, None)

    def carried(self, seen: dict[str, Value]) -> None:
        """A loop that adds to a value."""
        fits = [v for v in self.usable(seen) if v.storage == "rmem" and not v.partial]
        if fits and len(self.loops) < 2:
            self.enter_loop(seen, self.one(fits))

    def enter_loop(self, seen: dict[str, Value], acc: Value | None) -> None:
        var, trips = self.name("i"), self.random.randint(0, 4)
        last = self.random.random()
        head = f"for {var} in range({trips}):"
        varying = [a for a in self.outer if a.extent > 1]
        if last < 0.25 and varying:
            axis = self.one(varying)
            trips = max(1, trips) + axis.extent
            head = f"for {var} in range({axis.text}, {trips}, {self.one([1, axis.extent])}):"
        trips = max(trips, 1)
        at = f"({trips - 1} - {var})" if 0.25 < last < 0.4 else var  # forwards, or from the end
        if acc is not None:
            self.line(f"{acc.name}_sum = {acc.name} + 0")
        self.line(head)
        self.depth += 1
        self.loops.append((at, trips))
        inside = dict(seen)
        start = len(self.lines)
        if acc is not None:
            inside[f"{acc.name}_sum"] = replace(acc, name=f"{acc.name}_sum", size=200)
        self.block(inside, 1 if len(self.loops) < 2 else 0, self.random.randint(1, 4))
        if acc is not None:
            like = [v for v in self.usable(inside) if (v.shape, v.layout, v.storage, v.dtype) ==
                    (acc.shape, acc.layout, acc.storage, acc.dtype) and v.size <= 100]  # fmt: skip
            more = self.one(like).name if like else "1"
            self.line(f"{acc.name}_sum = {acc.name}_sum + {more}")
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1
        self.loops.pop()
        if acc is not None:
            seen[f"{acc.name}_sum"] = replace(acc, name=f"{acc.name}_sum", size=500)

    def role(self, seen: dict[str, Value]) -> None:
        scope = self.narrowed()
        if scope is None:
            return
        self.line(f"with {scope.head}:")
        self.depth += 1
        self.scopes.append(scope)
        start = len(self.lines)
        self.block(seen, 0, self.random.randint(1, 4))
        if len(self.lines) == start:
            self.line("pass")
        self.scopes.pop()
        self.depth -= 1

    def narrowed(self) -> Scope | None:
        return None

    def parameters(self) -> dict[str, Value]:
        seen: dict[str, Value] = {}
        rows, cols = self.one(ROWS), self.one(COLS)
        for name in ("x", "y")[: self.random.randint(1, 2)]:
            if self.chance(0.3):
                rows, cols = self.one(ROWS), self.one(COLS)
            dtype = self.one(["f32", "f32", "f32", "bf16", "i32"] if name == "x" else ["f32"])
            shape = (rows * self.one([1, 2, 4]), cols)
            seen[name] = Value(name, shape, dtype, "gmem")
            self.params.append(f'{name}: Tensor[{shape}, "{dtype}"]')
        return seen

    def levels(self) -> list[str]:
        raise NotImplementedError

    def body(self, seen: dict[str, Value]) -> None:
        raise NotImplementedError

    def text(self) -> str:
        seen = self.parameters()
        self.body(seen)
        heads = [f'        {n} = tf.zeros(Tensor[{s}, "{d}"])' for n, s, d in self.outs]
        results = ", ".join(n for n, _, _ in self.outs)
        lines = [*heads, *self.lines, f"        return {results}"]
        return HEAD.format(cls=self.cls, device=self.device, levels=", ".join(self.levels()),
                           params=", ".join(self.params), body="\n".join(lines))  # fmt: skip


class _Cuda(_Writer):
    cls, device = "CudaTarget", "nvidia.h200_sxm"

    def levels(self) -> list[str]:
        ctas = math.prod(a.extent for a in self.outer if a.level == "cta")
        out = [f'Topology("cta", {ctas})', f'Topology("thread", {self.threads})']
        return [f'Topology("cluster", {self.clusters})', *out] if self.clusters else out

    def body(self, seen: dict[str, Value]) -> None:
        self.warps = self.one([1, 1, 2, 2, 3, 4])
        self.threads = self.warps * 32
        self.clusters = self.one([1, 2]) if self.chance(0.25) else 0
        shape = self.one([(1,), (2,), (3,), (2, 2), (4,)])
        if self.clusters:
            shape = self.one([(2,), (4,), (2, 2)])
        names = tuple("cd"[: len(shape)])
        self.outer = tuple(Axis(f"cta.{n}", "cta", e) for n, e in zip(names, shape, strict=True))
        words = ", ".join(f'"{n}"' for n in names)
        if self.clusters:
            self.outer = (Axis("cl.g", "cluster", self.clusters), *self.outer)
            self.line(f'with Mesh(("cluster",), layout=({self.clusters},), names=("g",)) as cl:')
            self.depth += 1
        self.line(f'with Mesh(("cta",), layout={shape}, names=({words},)) as cta:')
        self.depth += 1
        lanes = self.one([(32,), (32,), (8, 4), (4, 8)])
        names = ("w", "l", "m")[: 1 + len(lanes)]
        form = (self.warps, *lanes)
        axes = [Axis(f"t.{n}", "thread", e) for n, e in zip(names, form, strict=True)]
        words = ", ".join(f'"{n}"' for n in names)
        self.line(f'with Mesh(("thread",), layout={(self.warps, *lanes)}, names=({words})) as t:')
        self.depth += 1
        self.lanes = lanes
        self.scopes.append(Scope("t", tuple(axes)))
        self.block(seen, 2, self.random.randint(3, 9))
        self.last(seen)

    def last(self, seen: dict[str, Value]) -> None:
        """What was made last is stored, by those who have it."""
        made = [v for v in seen.values() if v.name not in ("x", "y") and not v.partial]
        for value in [v for v in made if v.scope in ("", "t")][-2:] or [seen["x"]]:
            self.stored(value)

    def narrowed(self) -> Scope | None:
        if len(self.scopes) > 1:
            return None
        form = self.one(["warps", "warps", "warps", "turned", "part"])
        lo = self.random.randrange(self.warps)
        hi = self.random.randint(lo + 1, self.warps)
        rest = ", :" * len(self.lanes)
        name = f"r{lo}{hi}"
        lanes = [Axis(f"{name}.{a.text[2:]}", "thread", a.extent) for a in self.inner[1:]]
        first = Axis(f"{name}.w", "thread", hi - lo)
        if form == "warps":
            return Scope(f"t[{lo}:{hi}{rest}] as {name}", (first, *lanes))
        if form == "part" and len(self.lanes) == 1:
            half = self.one([8, 16])
            at = self.one([0, 16])
            return Scope(f"t[{lo}:{hi}, {at}:{at + half}] as p{name}",
                         (Axis(f"p{name}.w", "thread", hi - lo),
                          Axis(f"p{name}.l", "thread", half)))  # fmt: skip
        shape = self.one([(hi - lo, 4, 8), (2, (hi - lo) * 16), (hi - lo, 32)])
        names = tuple("abc"[: len(shape)])
        words = ", ".join(f'"{n}"' for n in names)
        axes = tuple(Axis(f"q{name}.{n}", "thread", e) for n, e in zip(names, shape, strict=True))
        head = f"Mesh(t[{lo}:{hi}{rest}], layout={shape}, names=({words})) as q{name}"
        return Scope(head, axes)


class _Cpu(_Writer):
    cls, device, shared = "X86Target", "x86_64.generic", False

    def levels(self) -> list[str]:
        cores = math.prod(a.extent for a in self.outer)
        return [f'Topology("core", {cores})', f'Topology("lane", {self.lanes})']

    def body(self, seen: dict[str, Value]) -> None:
        shape = self.one([(1,), (2,), (3,), (2, 2)])
        names = tuple("cd"[: len(shape)])
        self.outer = tuple(Axis(f"core.{n}", "core", e) for n, e in zip(names, shape, strict=True))
        words = ", ".join(f'"{n}"' for n in names)
        self.line(f'with Mesh(("core",), layout={shape}, names=({words},)) as core:')
        self.depth += 1
        self.lanes = self.one([4, 8, 16])
        form = (self.lanes,) if self.chance(0.7) else (self.lanes // 2, 2)
        names = tuple("lm"[: len(form)])
        words = ", ".join(f'"{n}"' for n in names)
        axes = tuple(Axis(f"t.{n}", "lane", e) for n, e in zip(names, form, strict=True))
        self.line(f'with Mesh(("lane",), layout={form}, names=({words},)) as t:')
        self.depth += 1
        self.scopes.append(Scope("t", axes))
        self.block(seen, 2, self.random.randint(3, 9))
        made = [v for v in seen.values() if v.name not in ("x", "y") and not v.partial]
        for value in made[-2:] or [seen["x"]]:
            self.stored(value)


def _axis_splits(value: Value, axis: int) -> tuple[Axis, ...]:
    """Axes that split one axis of a value, read off the layout as written."""
    text = value.layout
    if not value.split or not text.startswith("("):
        return ()
    held, at, out = 1, 0, []
    for mode in text.strip("(),").split(", "):
        extent, _, word = mode.partition(" @ ")
        found = next((a for a in value.split if a.text == word), None)
        if found is not None and at == axis:
            out.append(found)
        held *= int(extent)
        if held == value.shape[at] and at + 1 < len(value.shape):
            held, at = 1, at + 1
    return tuple(out)


def _tuple(modes: list[str]) -> str:
    return f"({', '.join(modes)}{',' if len(modes) == 1 else ''})"
