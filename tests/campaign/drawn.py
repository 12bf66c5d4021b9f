"""Random well-typed programs, each with a plain torch computation of the same values.

Every statement is drawn together with a Python function that does the same to a dict of
named tensors; loops and scopes run their statements, so names rebind as in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

from roundtrip import HEAD

Env = dict[str, Any]
Step = Callable[[Env], None]
DTYPES = {"f64": torch.float64, "f32": torch.float32, "i32": torch.int32, "i64": torch.int64}
EXTENTS = (1, 2, 3, 4, 6, 8)
POOL = ("a", "b", "c", "t", "u", "acc", "y", "v0", "v1", "S", "x_1")
OPTIONS = (
    'entry="f", target=CudaTarget("nvidia.h200_sxm"), '
    'topologies=(Topology("cta", 12), Topology("thread", 8))'
)


@dataclass(frozen=True)
class Var:
    """A value: its type, whether both sides compute it bit by bit alike, and how it is
    split: per mesh axis the dimension (counted from the last) and the block length."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool = True
    tags: tuple[tuple[str, tuple[int, int]], ...] = ()

    @property
    def is_float(self) -> bool:
        return self.dtype[0] == "f"

    @property
    def split(self) -> set[int]:
        return {dim for _, (dim, _) in self.tags}


@dataclass
class Block:
    lines: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def run(self, env: Env) -> None:
        for step in self.steps:
            step(env)


@dataclass(frozen=True, repr=False)
class Program:
    """Source text, its inputs, the same in torch, and which results are exact."""

    text: str
    inputs: tuple[Var, ...]
    body: Block
    results: tuple[Var, ...]

    def __repr__(self) -> str:
        return "a program"

    def tensors(self, seed: int) -> list[torch.Tensor]:
        """Inputs: small integers, floats in eighths."""
        rng = torch.Generator().manual_seed(seed)
        out: list[torch.Tensor] = []
        for v in self.inputs:
            whole = torch.randint(-16, 17, v.shape, generator=rng)
            out.append((whole / 8).to(DTYPES[v.dtype]) if v.is_float else whole.to(DTYPES[v.dtype]))
        return out

    def expected(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        env: Env = {v.name: x for v, x in zip(self.inputs, inputs, strict=True)}
        self.body.run(env)
        return [env[v.name] for v in self.results]


class Writer:
    """Draws statements into blocks; ``seen`` holds the values that may be read."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.taken: set[str] = set()
        """Names that a loop's body must not assign: they are read outside of it."""
        self.changed: set[str] = set()
        """Names that some loop carried."""
        self.loops = 0
        self.meshes = 0

    def one(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def chance(self, percent: int = 50) -> bool:
        return self.draw(st.integers(1, 100)) > 100 - percent

    def name(self) -> str:
        return self.one([n for n in POOL if n not in self.taken] or [f"w{len(self.taken)}"])

    def assign(
        self, block: Block, seen: dict[str, Var], made: Var, text: str, step: Callable[[Env], Any]
    ) -> Var:
        """``name = text``, the value of ``step``."""
        block.lines.append(f"{made.name} = {text}")
        block.steps.append(lambda env: env.__setitem__(made.name, step(env)))
        seen[made.name] = made
        return made

    # Values

    def value(self, block: Block, seen: dict[str, Var], index: str = "") -> None:
        """One statement that computes a value; ``index``: an index expression in sight."""
        a = self.one(seen.values())
        kinds = ["unary", "binary", "number", "where", "cast"]
        if a.is_float:
            kinds += ["softmax"]
        if a.shape:
            kinds += ["reduce"]
            if not a.tags:
                kinds += ["slice", "insert", "reshape", "transpose", "concat"]
                kinds += ["matmul"] if len(a.shape) > 1 else []
        getattr(self, f"_{self.one(kinds)}")(block, seen, a, index)

    def _unary(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        exact = {"neg": torch.neg, "abs": torch.abs, "relu": torch.relu}
        smooth = {"tanh": torch.tanh, "sin": torch.sin, "sigmoid": torch.sigmoid}
        word = self.one([*exact, *(smooth if a.is_float else ())])
        f = exact.get(word) or smooth[word]
        made = Var(self.name(), a.shape, a.dtype, a.exact and word in exact, a.tags)
        text = f"-{a.name}" if word == "neg" and self.chance() else f"tf.{word}({a.name})"
        self.assign(block, seen, made, text, lambda env: f(env[a.name]))

    def _partner(self, seen: dict[str, Var], a: Var) -> Var:
        """A value that broadcasts with ``a`` and whose splits agree with its own."""

        def fits(b: Var) -> bool:
            pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
            same = dict(a.tags)
            agree = all(same.get(axis, digit) == digit for axis, digit in b.tags)
            return agree and all(x == y or 1 in (x, y) for x, y in pairs)

        return self.one([b for b in seen.values() if fits(b)])

    def _joined(self, a: Var, b: Var) -> Var:
        shape = tuple(torch.broadcast_shapes(a.shape, b.shape))
        wide = torch.promote_types(DTYPES[a.dtype], DTYPES[b.dtype])
        dtype = next(n for n, t in DTYPES.items() if t == wide)
        tags = tuple(sorted(dict((*a.tags, *b.tags)).items()))
        return Var(self.name(), shape, dtype, a.exact and b.exact, tags)

    def _binary(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        b = self._partner(seen, a)
        made = self._joined(a, b)
        kind = DTYPES[made.dtype]
        table = {
            f"{a.name} + {b.name}": lambda x, y: x + y,
            f"tf.sub({a.name}, {b.name})": lambda x, y: x - y,
            f"tf.clamp({a.name} * {b.name}, -8, 8)": lambda x, y: (x * y).clamp(-8, 8),
            f"tf.minimum({a.name}, rhs={b.name})": torch.minimum,
            f"tf.maximum({a.name}, {b.name})": torch.maximum,
        }
        text = self.one(table)
        f = table[text]
        self.assign(
            block, seen, made, text, lambda env: f(env[a.name].to(kind), env[b.name].to(kind))
        )

    def _number(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        n = self.draw(st.integers(-3, 5))
        made = Var(self.name(), a.shape, a.dtype, a.exact, a.tags)
        table: dict[str, Callable[[Any, Env], Any]] = {
            f"{a.name} + {n}": lambda x, _: x + n,
            f"{n} - {a.name}": lambda x, _: n - x,
        }
        if a.is_float:
            table[f"{a.name} * {n / 4}"] = lambda x, _: x * (n / 4)
        else:
            table[f"{a.name} // {n or 2}"] = lambda x, _: x.div(n or 2, rounding_mode="floor")
            table[f"{a.name} % {n or 2}"] = lambda x, _: torch.remainder(x, n or 2)
        if index and not a.tags:
            table[f"{a.name} + ({index}) % 5"] = lambda x, env: x + at(index, env) % 5
        text = self.one(table)
        f = table[text]
        self.assign(block, seen, made, text, lambda env: f(env[a.name], env))

    def _where(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        b = self._partner(seen, a)
        made = self._joined(a, b)
        if not made.exact:
            return self._unary(block, seen, a, index)
        kind = DTYPES[made.dtype]
        word, f = self.one([(">", torch.gt), ("<=", torch.le), ("==", torch.eq), ("!=", torch.ne)])

        def step(env: Env) -> Any:
            x, y = env[a.name], env[b.name]
            return torch.where(f(x.to(kind), y.to(kind)), x.to(kind), y.to(kind))

        text = f"tf.where({a.name} {word} {b.name}, {a.name}, {b.name})"
        return void(self.assign(block, seen, made, text, step))

    def _cast(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        dtype = self.one(DTYPES if a.exact else ("f64", "f32"))
        made = Var(self.name(), a.shape, dtype, a.exact, a.tags)
        text = f'tf.cast({a.name}, "{dtype}")'
        self.assign(block, seen, made, text, lambda env: env[a.name].to(DTYPES[dtype]))

    def _softmax(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        free = [n for n in range(len(a.shape)) if len(a.shape) - n not in a.split]
        if not free:
            return self._unary(block, seen, a, index)
        axis = self.one(free)

        def step(env: Env) -> Any:
            x = env[a.name]
            e = torch.exp(x - x.amax(axis, keepdim=True))
            return e / e.sum(axis, keepdim=True)

        made = Var(self.name(), a.shape, a.dtype, False, a.tags)
        text = f"tf.softmax({a.name}, {axis - len(a.shape) if self.chance() else axis})"
        return void(self.assign(block, seen, made, text, step))

    def _reduce(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        axes = sorted(self.draw(st.sets(st.integers(0, len(a.shape) - 1), min_size=1)))
        split = [n for n in axes if len(a.shape) - n in a.split]
        kinds = ["sum", "max", "min"] + (["mean", "abs_max"] if not split else [])
        kind = self.one([k for k in kinds if a.is_float or k != "mean"])
        keep = bool(a.tags) or self.chance()
        dtype = "i64" if kind == "sum" and not a.is_float else a.dtype

        def step(env: Env) -> Any:
            x = env[a.name]
            if kind in ("sum", "mean"):
                wide = x.to(torch.float64) if a.is_float else x
                total = wide.sum(axes, keepdim=keep)
                count = math.prod(a.shape[n] for n in axes)
                return (total / count if kind == "mean" else total).to(DTYPES[dtype])
            x = x.abs() if kind == "abs_max" else x
            return (torch.amin if kind == "min" else torch.amax)(x, axes, keepdim=keep)

        shape = tuple(1 if n in axes else e for n, e in enumerate(a.shape) if keep or n not in axes)
        exact = a.exact and (kind in ("max", "min", "abs_max") or not a.is_float)
        gone = {len(a.shape) - n for n in axes}
        tags = tuple(t for t in a.tags if t[1][0] not in gone)
        made = Var(self.name(), shape, dtype, exact, tags)
        text = f'tf.reduce({a.name}, {tuple(axes)}, keepdim={keep}, kind="{kind}")'
        if split:  # a partial value is completed at once
            text = f'tf.reshard({text}, None, "gmem")'
            made = Var(made.name, shape, dtype, exact)
        self.assign(block, seen, made, text, step)

    def _slice(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        words: list[str] = []
        picks: list[Any] = []
        for extent in a.shape:
            start = self.draw(st.integers(0, extent - 1))
            stop = self.draw(st.integers(start + 1, extent))
            form = self.one(["range", "index", "step", "whole", "from the end"])
            if form == "index":
                words.append(str(start))
                picks.append(start)
            elif form == "from the end":
                words.append(f"{start - extent}:")
                picks.append(slice(start, None))
            else:
                step = 2 if form == "step" else 1
                whole = form == "whole"
                words.append(":" if whole else f"{start}:{stop}" + (":2" if step == 2 else ""))
                picks.append(slice(None) if whole else slice(start, stop, step))
        if self.chance(20):
            words.insert(0, "None")
            picks.insert(0, None)
        made = torch.empty(a.shape)[tuple(picks)]
        if not made.numel():
            return self._unary(block, seen, a, index)
        var = Var(self.name(), tuple(made.shape), a.dtype, a.exact)
        text = f"{a.name}[{', '.join(words)}]"
        return void(self.assign(block, seen, var, text, lambda env: env[a.name][tuple(picks)]))

    def _insert(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        sizes = [self.draw(st.integers(1, e)) for e in a.shape]
        places = [
            (self.draw(st.integers(0, e - n)), self.draw(st.integers(0, e - n)))
            for e, n in zip(a.shape, sizes, strict=True)
        ]
        source = tuple(slice(s, s + n) for (s, _), n in zip(places, sizes, strict=True))
        target = tuple(slice(t, t + n) for (_, t), n in zip(places, sizes, strict=True))

        def step(env: Env) -> Any:
            out = env[a.name].clone()
            out[target] = env[a.name][source] + 1
            return out

        reads = ", ".join(f"{s.start}:{s.stop}" for s in source)
        offsets = tuple(t.start for t in target)
        text = f"tf.insert_slice({a.name}, {a.name}[{reads}] + 1, {offsets})"
        self.assign(block, seen, Var(self.name(), a.shape, a.dtype, a.exact), text, step)

    def _reshape(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        size = math.prod(a.shape)
        shapes = {(size,), tuple(reversed(a.shape)), (1, *a.shape), (*a.shape[:-2], -1)}
        shapes |= {(d, size // d) for d in EXTENTS if size % d == 0}
        new = self.one(sorted(shapes))
        shape = tuple(torch.empty(a.shape).reshape(new).shape)
        made = Var(self.name(), shape, a.dtype, a.exact)
        text = f"tf.reshape({a.name}, {new})"
        self.assign(block, seen, made, text, lambda env: env[a.name].reshape(new))

    def _transpose(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        perm = tuple(self.draw(st.permutations(range(len(a.shape)))))
        made = Var(self.name(), tuple(a.shape[p] for p in perm), a.dtype, a.exact)
        text = f"tf.transpose({a.name}, {perm})"
        self.assign(block, seen, made, text, lambda env: env[a.name].permute(perm))

    def _concat(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        axis = self.draw(st.integers(0, len(a.shape) - 1))
        half = a.shape[axis] // 2
        if not half or a.shape[axis] % 2:
            shape = tuple(2 * e if n == axis else e for n, e in enumerate(a.shape))
            if math.prod(shape) > 4096:
                return self._unary(block, seen, a, index)
            made = Var(self.name(), shape, a.dtype, a.exact)
            text = f"tf.concat({a.name}, {a.name}, axis={axis})"
            twice = lambda env: torch.cat([env[a.name]] * 2, axis)  # noqa: E731
            return void(self.assign(block, seen, made, text, twice))
        shape = tuple(half if n == axis else e for n, e in enumerate(a.shape))
        first, second = self.name(), self.name()
        if first == second:
            return self._unary(block, seen, a, index)

        def step(env: Env) -> None:
            env[first], env[second] = env[a.name].split(half, axis)

        block.lines.append(f"{first}, {second} = tf.split({a.name}, 2, {axis})")
        block.steps.append(step)
        for name in (first, second):
            seen[name] = Var(name, shape, a.dtype, a.exact)
        return None

    def _matmul(self, block: Block, seen: dict[str, Var], a: Var, index: str) -> None:
        b = self.one([v for v in seen.values() if not v.tags and v.shape == a.shape])
        if b.dtype != a.dtype:
            b = a
        made = Var(self.name(), (*a.shape[:-1], a.shape[-2]), a.dtype, not a.is_float)
        text = f'tf.matmul({a.name}, {b.name}, b_layout="NK")'

        def step(env: Env) -> Any:
            return torch.einsum("...mk,...nk->...mn", env[a.name], env[b.name])

        self.assign(block, seen, made, text, step)

    # Loops

    def loop(self, block: Block, seen: dict[str, Var], depth: int) -> None:
        """A loop that carries values; its body's own names end with it."""
        plain = [v for v in seen.values() if not v.tags]
        carried = [v for v in plain if self.chance()][:2] or plain[:1]
        tiled = [v for v in plain if v.shape and v.shape[-1] > 1]
        var = f"k{self.loops}" if self.chance(70) else "k"
        self.loops += 1
        if var in self.taken:
            var = f"k{self.loops}"
        window = self.one([None, *tiled])
        outer = self.taken
        self.taken = outer | set(seen) | {var}
        body, inner = Block(), dict(seen)
        if window is None:
            start, step = self.draw(st.integers(0, 2)), self.draw(st.integers(1, 2))
            stop = self.draw(st.integers(0, 5))
            head = f"range({start}, {stop}, {step})"
            steps = [(k, 0) for k in range(start, stop, step)]
            index = var
        else:
            extent = window.shape[-1]
            step = self.draw(st.integers(1, extent))
            head = f"tf.tile({extent}, {step})"
            steps = [(k, min(step, extent - k)) for k in range(0, extent, step)]
            index = f"{var}.start"
            tile = Var("tile" if "tile" not in self.taken else f"tile{self.loops}", (), "")
            self.taken |= {tile.name}
            cut = lambda env: env[window.name][..., env[var] : env[var] + env[f"{var}#"]]  # noqa: E731
            body.lines.append(f"{tile.name} = tf.reduce({window.name}[..., {var}], (-1,), True)")
            total = "i64" if not window.is_float else window.dtype
            wide = lambda x: x.to(torch.float64) if x.is_floating_point() else x  # noqa: E731
            body.steps.append(
                lambda env: env.__setitem__(
                    tile.name, wide(cut(env)).sum(-1, keepdim=True).to(DTYPES[total])
                )
            )
            shape = (*window.shape[:-1], 1)
            inner[tile.name] = Var(tile.name, shape, total, window.exact and not window.is_float)
        inner |= {v.name: rounded(v) for v in inner.values()}  # an inner loop may change any
        for _ in range(self.draw(st.integers(1, 2))):
            self.value(body, inner, index)
        if depth and self.chance(30):
            self.loop(body, inner, depth - 1)
        for v in carried:
            self._carry(body, inner, v, index)
        self.taken = outer

        def run(env: Env) -> None:
            kept = dict(env)
            for k, size in steps:
                env[var], env[f"{var}#"] = k, size
                body.run(env)
            for name in set(env) - set(kept):
                del env[name]

        block.lines += [f"for {var} in {head}:", *("    " + line for line in body.lines)]
        block.steps.append(run)
        self.changed |= {v.name for v in carried}
        seen |= {n: rounded(v) for n, v in seen.items() if n in self.changed}

    def _carry(self, body: Block, seen: dict[str, Var], v: Var, index: str) -> None:
        """A new value of the carried name, of the same type."""
        fits = [
            b
            for b in seen.values()
            if not b.tags
            and torch.promote_types(DTYPES[b.dtype], DTYPES[v.dtype]) == DTYPES[v.dtype]
            and fits_into(b.shape, v.shape)
        ]
        b = self.one(fits)
        lo, hi = -8, 8
        body.lines.append(f"{v.name} = tf.clamp({v.name} + {b.name}, {lo}, {hi})")
        body.steps.append(
            lambda env: env.__setitem__(v.name, (env[v.name] + env[b.name]).clamp(lo, hi))
        )

    # Meshes

    def mesh(self, axes: tuple[int, ...], level: str) -> tuple[str, str]:
        """``with`` head and binding of a declared mesh."""
        self.meshes += 1
        name = f"m{self.meshes}" if self.chance(60) else "m"
        names = ", ".join(f'"x{n}"' for n in range(len(axes)))
        comma = "," if len(axes) == 1 else ""
        layout = f"({', '.join(map(str, axes))}{comma})"
        return f'with Mesh(("{level}",), layout={layout}, names=({names}{comma})) as {name}:', name

    def distributed(self, block: Block, seen: dict[str, Var]) -> None:
        """A scope whose values are split over its units."""
        axes = self.one([(2,), (3,), (4,), (2, 3), (3, 2), (2, 2)])
        head, binding = self.mesh(axes, "cta")
        held = {f"{binding}.x{n}": e for n, e in enumerate(axes)}
        body, inner = Block(), {k: v for k, v in seen.items() if not v.tags}
        lines = body
        nested = self.chance()
        if nested:
            lanes = self.one([(2,), (4,), (2, 4)])
            inner_head, inside = self.mesh(lanes, "thread")
            if inside == binding:
                inner_head, inside = inner_head.replace(f"as {inside}:", "as lanes:"), "lanes"
            held |= {f"{inside}.x{n}": e for n, e in enumerate(lanes)}
            lines = Block()
        before = set(seen)
        for _ in range(self.draw(st.integers(1, 2))):
            self._shard(lines, inner, held)
        for _ in range(self.draw(st.integers(1, 3))):
            self.value(lines, inner)
        out = self.one(inner.values())
        name = self.name()
        shown = Var(name, out.shape, out.dtype, out.exact)
        self.assign(lines, inner, shown, f'tf.reshard({out.name}, None, "gmem")',
                    lambda env: env[out.name])  # fmt: skip
        if nested:
            body.lines += [inner_head, *("    " + line for line in lines.lines)]
            body.steps += lines.steps
        block.lines += [head, *("    " + line for line in body.lines)]
        block.steps += body.steps
        changed = {n for n, v in inner.items() if n not in before or seen[n] is not v}
        for n in changed:
            seen.pop(n, None)
        seen[name] = shown

    def _shard(self, block: Block, seen: dict[str, Var], held: dict[str, int]) -> None:
        a = self.one([v for v in seen.values() if not v.tags])
        left = dict(held)
        modes: list[str] = []
        tags: dict[str, tuple[int, int]] = {}
        for n, extent in enumerate(a.shape):
            dim = len(a.shape) - n
            fits = [x for x, e in left.items() if extent % e == 0]
            if not fits or self.chance(30):
                modes.append(str(extent))
                continue
            axis = self.one(fits)
            units = left.pop(axis)
            rest = extent // units
            if rest > 1 and self.chance(40):  # neighbours on different units
                modes += [str(rest), f"{units} @ {axis}"]
                tags[axis] = (dim, 1)
            else:
                modes.append(f"{extent} @ {axis}")
                tags[axis] = (dim, rest)
        layout = f"({', '.join(modes)}{',' if len(modes) == 1 else ''})"
        made = Var(self.name(), a.shape, a.dtype, a.exact, tuple(sorted(tags.items())))
        text = f'tf.reshard({a.name}, {layout}, "{self.one(["rmem", "smem"])}")'
        self.assign(block, seen, made, text, lambda env: env[a.name])

    def tiled(self, block: Block, seen: dict[str, Var]) -> None:
        """Units that each compute tiles and write them into one destination."""
        sources = [v for v in seen.values() if not v.tags and v.shape]
        if not sources:
            return self.value(block, seen)
        a = self.one(sources)
        rows = a.shape[0]
        size = self.one([d for d in range(1, rows + 1) if rows % d == 0])
        tasks = rows // size
        persistent = self.chance(60)
        units = self.draw(st.integers(1, 5)) if persistent else min(tasks, 12)
        head, binding = self.mesh((units,), "cta")
        out = self.name()
        zero = f'tf.zeros(Tensor[{a.shape}, "{a.dtype}"])'
        block.lines.append(f"{out} = {zero}" if self.chance() else f"{out} = {a.name} * 0")
        block.steps.append(lambda env: env.__setitem__(out, torch.zeros_like(env[a.name])))
        if out == a.name:
            seen[out] = Var(out, a.shape, a.dtype)
        outer = self.taken
        self.taken = outer | set(seen) | {out}
        body = Block()
        task = f"{binding}.x0"
        lines = [head]
        pad = "    "
        if persistent:
            task = "task" if "task" not in self.taken else "task1"
            lines.append(f"    for {task} in range({binding}.x0, {tasks}, {units}):")
            pad = "        "
        rest = len(a.shape) - 1
        tile = Var("piece", (size, *a.shape[1:]), a.dtype, a.exact)
        offset = f"{task} * {size}"
        body.lines.append(f"piece = {a.name}[{offset}:{offset} + {size}]")
        body.steps.append(
            lambda env: env.__setitem__(
                "piece", env[a.name][env["task"] * size : env["task"] * size + size]
            )
        )
        inner = {"piece": tile}
        others = [v for v in seen.values() if v.name != out and not v.tags]
        whole = [v for v in others if fits_into(v.shape, tile.shape)]
        if whole:
            shared = self.one(whole)
            inner[shared.name] = shared
        self.taken |= {"piece", task}
        for _ in range(self.draw(st.integers(0, 3))):
            self.value(body, inner, task)
        final = self.one([v for v in inner.values() if fits_into(v.shape, tile.shape)])
        cast = f'tf.cast({final.name} + piece * 0, "{a.dtype}")'
        sound = final.exact or a.is_float
        if not sound:
            cast, final = "piece", tile
        places = ", ".join([offset] + ["0"] * rest) + ("," if not rest else "")
        body.lines.append(f"{out} = tf.insert_slice({out}, {cast}, ({places}))")

        def run(env: Env) -> None:
            kept = dict(env)
            for n in range(tasks):
                env["task"] = env[task] = n
                body.run(env)
                made = (env[final.name] + env["piece"] * 0).to(DTYPES[a.dtype])
                env[out][n * size : n * size + size] = made
            for name in set(env) - set(kept):
                del env[name]

        block.lines += [*lines, *(pad + line for line in body.lines)]
        block.steps.append(run)
        self.taken = outer
        seen[out] = Var(out, a.shape, a.dtype, a.exact and final.exact)
        return None

    def grid(self, block: Block, seen: dict[str, Var]) -> None:
        """A grid of units, perhaps a part of it: each writes its tile, with a sum over k."""
        sources = [v for v in seen.values() if not v.tags and len(v.shape) == 2]
        if not sources:
            return self.tiled(block, seen)
        a = self.one(sources)
        rows, cols = (self.one([d for d in (1, 2, 3) if e % d == 0]) for e in a.shape)
        high, wide = a.shape[0] // rows, a.shape[1] // cols
        head, binding = self.mesh((rows, cols), "cta")
        lo = self.draw(st.integers(0, rows - 1))
        hi = self.draw(st.integers(lo + 1, rows))
        narrowed = self.chance()
        rank = binding if not narrowed or self.chance() else "part"
        base = lo if rank == binding else 0  # the part counts its own units from 0
        step = self.draw(st.integers(1, a.shape[1]))
        out = self.one([n for n in POOL if n not in self.taken and n != a.name])
        lines = [
            f"{out} = {a.name} * 0",
            head,
            *([f"    with {binding}[{lo}:{hi}] as part:"] if narrowed else []),
        ]
        pad = "        " if narrowed else "    "
        row, col = f"{rank}.x0 * {high}", f"{wide} * {binding}.x1"
        if not narrowed:
            lo, hi, base = 0, rows, 0
        body = [
            f"total = {a.name}[{row}:{row} + {high}, :1] * 0",
            f"for k in tf.tile({a.shape[1]}, {step}):",
            f"    part_k = {a.name}[{row}:{row} + {high}, k]",
            '    total = total + tf.reduce(part_k, (1,), True, "max")',
            f"own = {a.name}[{row}:{row} + {high}, {col}:{col} + {wide}]",
            f"{out} = tf.insert_slice({out}, own + total, ({row}, {col}))",
        ]

        def run(env: Env) -> None:
            x = env[a.name]
            made = x * 0
            for i in range(hi - lo):
                at_row = (base + i) * high
                band = x[at_row : at_row + high]
                chunks = [c.amax(1, keepdim=True) for c in band.split(step, 1)]
                total = sum(chunks[1:], band[:, :1] * 0 + chunks[0])
                for j in range(cols):
                    own = band[:, j * wide : j * wide + wide]
                    made[at_row : at_row + high, j * wide : j * wide + wide] = own + total
            env[out] = made

        block.lines += [*lines, *(pad + line for line in body)]
        block.steps.append(run)
        for name in ("total", "own"):
            seen.pop(name, None)
        seen[out] = Var(out, a.shape, a.dtype, a.exact)
        return None


def void(_: object) -> None:
    """Nothing, whatever was made."""


def rounded(v: Var) -> Var:
    """The value after arithmetic whose rounding the other side need not share."""
    return Var(v.name, v.shape, v.dtype, v.exact and not v.is_float, v.tags)


def fits_into(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether ``small`` broadcasts to exactly ``large``."""
    if len(small) > len(large):
        return False
    return all(s in (1, e) for s, e in zip(reversed(small), reversed(large), strict=False))


def at(index: str, env: Env) -> int:
    """The value of an index: a loop variable, a window's start, a unit's task."""
    name = index.removesuffix(".start")
    return env["task"] if "." in name else env[name]


@st.composite
def programs(draw: Any) -> Program:
    """A module ``M`` with one function ``f``."""
    write = Writer(draw)
    inputs = [
        Var(
            name,
            tuple(draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3))),
            draw(st.sampled_from(["f64", "f64", "f32", "i32"])),
        )
        for name in ("x", "y", "acc")[: draw(st.integers(1, 3))]
    ]
    seen = {v.name: v for v in inputs}
    body = Block()
    for _ in range(draw(st.integers(1, 6))):
        kind = write.one(["value", "value", "loop", "distributed", "tiled", "grid"])
        if kind == "loop":
            write.loop(body, seen, 1)
        else:
            getattr(write, kind)(body, seen)
    results = list(seen.values())[-draw(st.integers(1, 4)) :]
    params = ", ".join(f'{v.name}: Tensor[{v.shape}, "{v.dtype}"]' for v in inputs)
    lines = [f"def f({params}):", *("    " + line for line in body.lines)]
    lines.append(f"    return {', '.join(v.name for v in results)}")
    text = "\n".join("    " + line for line in ["@func", *lines])
    source = f"{HEAD}\n@module({OPTIONS})\nclass M:\n{text}\n"
    return Program(source, tuple(inputs), body, tuple(results))
