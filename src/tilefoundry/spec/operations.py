"""The document ``operations``: one section for each operation, from the operation's file.

Signature, mathematics and rounding are what the file states; cost and distribution are
what the operation answers for its own first example.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tilefoundry.ops
from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import dtype_of
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.shard import Digit, from_digits, shape_text
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.ops import ALIASES, find, names
from tilefoundry.ops.base import Call, Example, Op
from tilefoundry.ops.signature import REQUIRED, Operand, bind

TITLE = "What each operation computes, where it rounds, what it costs, which splits survive"

OPERATIONS = Path(tilefoundry.ops.__file__).parent

HEAD = """\
A section says how one operation is called (a parameter with `=` may be left out, `*inputs`
takes any number of tensors), what it computes, where it rounds, and what it answers for its
first example:

- `cost` is the arithmetic of the example as `class:dtype=count`. Classes: `matrix` (a
  multiply-add of a contraction counts 2), `float`, `int`, `special` (exp, log, rsqrt, sin,
  a reciprocal: one each). Data that only moves costs none here; its bytes are traffic,
  which `tilefoundry analyze` counts where the value lives.
- `split` says, for each operand axis split over units, what becomes of the split: `out[1]`
  is split there, `partial sum` leaves each unit one term of a sum, `whole` ends the split,
  `refused` needs a `tf.reshard` first. `together`: all operands split alike.
- `partial` lists which partial operands may be given; any other is refused. The result is
  partial likewise unless it says `whole`.

Not operations but forms: `tf.shape_of(x)` and `tf.rank(x)` are extents, known when the
program is read; `tf.tile(extent, step)` is the head of a `for` loop. Python operators stand
for operations: `+ - * / // % **` (`tf.pow`), `@` (`tf.matmul`), `== != < <= > >=`, `-x`,
`& | ~` on bools, `x[a:b, k]` (`tf.slice`).
"""


def outline() -> dict[str, str]:
    """Each operation and the first line of its file; nothing is imported for it."""
    lines: dict[str, str] = {}
    for name in sorted(names()):
        with open(OPERATIONS / f"{name}.py", encoding="utf-8") as file:
            said = file.readline().strip().strip('"').removeprefix(f"{name}: ")
        lines[name] = said.replace("``", "`")
    return lines


def text() -> str:
    """The document as Markdown."""
    parts = [f"# {TITLE}\n", HEAD, *(section(name) for name in outline())]
    return "\n".join(parts)


def section(name: str) -> str:
    """The section of one operation."""
    op = find(name)
    assert op is not None
    also = "".join(f", also `tf.{alias}`" for alias, real in ALIASES.items() if real == name)
    words = inspect.getdoc(sys.modules[f"tilefoundry.ops.{name}"]) or ""
    said = words.removeprefix(f"{name}: ").replace("``", "`")
    lines = [f"## {name}", "", f"`tf.{name}{signature(op)}`{also}", "", said, ""]
    facts = list(_facts(op))
    if facts:
        lines += ["```text", *facts, "```", ""]
    return "\n".join(lines)


def signature(op: Op) -> str:
    """Parameters as an author may write them."""
    words: list[str] = []
    for param in op.params:
        if isinstance(param, Operand):
            optional = "=None" if param.optional else ""
            words.append(f"*{param.name}" if param.many else param.name + optional)
        else:
            default = "" if param.default is REQUIRED else f"={_literal(param.default)}"
            words.append(param.name + default)
    return f"({', '.join(words)})"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _facts(op: Op) -> Iterator[str]:
    example = next(iter(op.examples), None)
    if example is None:
        return
    types = [None if i is None else _type(*i) for i in example.inputs]
    call = _call(op, example, types)
    made = op.infer(call)
    counts = op.work(call, tuple(t.shape for t in _items(made))).counts
    cost = " ".join(f"{kind}:{dtype}={n}" for (kind, dtype), n in counts.items())
    given = [_shown(t) for t in types if t is not None]
    given += [f"{name}={_attribute(value)}" for name, value in example.attrs.items()]
    results = ", ".join(_shown(t) for t in _items(made))
    yield f"example  tf.{op.name}({', '.join(given)}) -> {results}"
    yield f"cost     {cost or 'none'}"
    if splits := _splits(op, example, types):
        yield f"split    {', '.join(splits)}"
    if partials := _partials(op, example, types):
        yield f"partial  {', '.join(partials)}"


def _type(shape: tuple[int, ...], dtype: str) -> TensorType:
    return TensorType(shape, dtype_of(dtype))


def _call(op: Op, example: Example, types: Sequence[TensorType | None]) -> Call:
    rest, given, named = list(types), list[Any](), dict(example.attrs)
    open_ended = any(isinstance(p, Operand) and p.many for p in op.params)
    for param in op.params:
        if isinstance(param, Operand) and param.many:
            given, rest = [*given, *rest], []
        elif isinstance(param, Operand) and rest:
            named[param.name] = rest.pop(0)
        elif open_ended and rest:  # what stands before the open-ended operands
            given.append(named.pop(param.name))
    bound = bind(f"tf.{op.name}", op.params, given, named, None)
    operands: Any = bound.operands
    return Call(op.name, operands, bound.attrs, None, Mesh())


def _items(type: Type) -> tuple[TensorType, ...]:
    return type.items if isinstance(type, TupleType) else (type,)


def _shown(type: TensorType) -> str:
    return f"{shape_text(type.shape)} {type.dtype}"


def _attribute(value: object) -> str:
    return _shown(value) if isinstance(value, TensorType) else _literal(value)


def _names(op: Op, count: int) -> list[str]:
    """What each operand is called; several of one parameter are numbered."""
    out: list[str] = []
    for param in op.params:
        if isinstance(param, Operand) and param.many:
            out += [f"{param.name}.{n}" for n in range(count - len(out))]
        elif isinstance(param, Operand):
            out.append(param.name)
    return out[:count]


def _splits(op: Op, example: Example, types: Sequence[TensorType | None]) -> list[str]:
    """What becomes of a split of each operand axis."""
    out: list[str] = []
    for n, (name, type) in enumerate(zip(_names(op, len(types)), types, strict=True)):
        for dim, extent in enumerate(type.shape if type is not None else ()):
            units = next((p for p in (2, 3, 5, 7) if isinstance(extent, int) and extent and
                          extent % p == 0), None)  # fmt: skip
            if units is None:
                continue
            axis = Axis("thread", "u", units, 1)
            found = _outcome(op, example, _split_only(types, n, dim, axis), axis)
            if found is None and len(types) > 1:
                alike = _outcome(op, example, _split_alike(types, n, dim, axis), axis)
                found = f"{alike} together" if alike else None
            out.append(f"{name}[{dim}] {found or 'refused'}")
    return out


def _split(type: TensorType, dim: int, axis: Axis) -> TensorType:
    digit = Digit(axis, dim, type.shape[dim] // axis.extent)
    return type.with_(layout=from_digits(type.shape, (digit,)))


def _split_only(
    types: Sequence[TensorType | None], n: int, dim: int, axis: Axis
) -> list[TensorType | None]:
    return [_split(t, dim, axis) if i == n and t else t for i, t in enumerate(types)]


def _split_alike(
    types: Sequence[TensorType | None], n: int, dim: int, axis: Axis
) -> list[TensorType | None]:
    """Every operand of the same rank split as operand ``n``, where its extent allows it."""
    one = types[n]
    assert one is not None
    return [
        _split(t, dim, axis)
        if t is not None and t.rank == one.rank and t.shape[dim] % axis.extent == 0
        else t
        for t in types
    ]


def _outcome(
    op: Op, example: Example, types: Sequence[TensorType | None], axis: Axis
) -> str | None:
    """Where the results hold ``axis``; None where the use is refused."""
    try:
        made = _items(op.infer(replace(_call(op, example, types), mesh=Mesh((axis,)))))
    except Refusal:
        return None
    out: list[str] = []
    for n, type in enumerate(made):
        label = "out" if len(made) == 1 else f"out.{n}"
        out += [f"{label}[{d.dim}]" for d in type.digits if d.axis == axis]
        out += [f"partial {kind}" for a, kind in type.partial if a == axis]
    return " ".join(dict.fromkeys(out)) or "whole"


def _partials(op: Op, example: Example, types: Sequence[TensorType | None]) -> list[str]:
    """Which partial operands pass, alone or all together."""
    axis = Axis("thread", "u", 2, 1)
    known = _names(op, len(types))
    out: list[str] = []
    ways: list[tuple[str, Callable[[int], bool]]] = [
        (name, lambda i, n=n: i == n) for n, name in enumerate(known) if types[n] is not None
    ]
    if len(types) > 1:
        ways.append(("together", lambda i: True))
    for label, chosen in ways:
        passed: dict[str, list[str]] = {}
        for kind in ("sum", "max", "min"):
            end = _outcome(op, example, _made_partial(types, chosen, axis, kind), axis)
            if end is not None:
                passed.setdefault(" whole" if end == "whole" else "", []).append(kind)
        out += [f"{label} {' '.join(kinds)}{end}" for end, kinds in passed.items()]
    return out


def _made_partial(
    types: Sequence[TensorType | None], chosen: Callable[[int], bool], axis: Axis, kind: str
) -> list[TensorType | None]:
    return [
        t.with_(layout=from_digits(t.shape, (), ((axis, kind),))) if t and chosen(i) else t
        for i, t in enumerate(types)
    ]
