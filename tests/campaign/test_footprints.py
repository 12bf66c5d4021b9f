"""Access relations composed along a program against what perturbing an element changes."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path

import torch
from campaign_profile import campaign
from hypothesis import given, note
from hypothesis import strategies as st

from roundtrip import HEAD, parse
from tilefoundry.evaluate import evaluate
from tilefoundry.ir import expr as ix
from tilefoundry.ir.access import Whole
from tilefoundry.ir.node import CONST, ITEM, Node, nodes
from tilefoundry.lang.parse import module_context
from tilefoundry.ops.base import call_of

FOLDER = Path(tempfile.mkdtemp(prefix="footprints"))
Element = tuple[int, ...]
SHAPES = [(3,), (2, 3), (3, 2), (2, 2, 2), (1, 4), (4,)]


@st.composite
def sources(draw):
    """A function of x and y in which every read element shows in the result."""
    shape = draw(st.sampled_from(SHAPES))
    other = draw(st.sampled_from([shape, shape[-1:], (1,) * len(shape)]))
    shapes = {"x": shape, "y": other}
    lines = []
    current = "x"
    for n in range(draw(st.integers(1, 4))):
        s = shapes[current]
        name = f"t{n}"
        kinds = ["neg", "slice", "reshape", "transpose", "sum", "concat", "insert", "other"]
        kinds += ["matmul", "swap"] if len(s) > 1 else []
        kind = draw(st.sampled_from(kinds))
        factor = 3 + n / 7  # copies differ, or what is computed from both could be constant
        text, made = statement(draw, kind, current, s, shapes, factor)
        if math.prod(made) > 24:
            continue
        lines.append(f"{name} = {text}")
        shapes[name] = made
        current = name
    wide = [n for n, e in enumerate(shapes[current]) if e > 1]
    if wide and draw(st.booleans()):  # last, as sums over it are 1 whatever was read
        lines.append(f"last = tf.softmax({current} * 0.01, {draw(st.sampled_from(wide))})")
        current = "last"
    body = "\n".join(f"        {line}" for line in [*lines, f"return {current}"])
    params = f'x: Tensor[{shape}, "f64"], y: Tensor[{other}, "f64"]'
    return f"{HEAD}\n@module()\nclass M:\n    @func\n    def f({params}):\n{body}\n", shape, other


def statement(draw, kind, a, s, shapes, factor):
    """Text and shape of one operation on ``a``."""
    if kind == "slice":
        starts = [draw(st.integers(0, e - 1)) for e in s]
        steps = [draw(st.integers(1, 2)) for _ in s]
        sizes = [
            draw(st.integers(1, (e - b - 1) // d + 1))
            for e, b, d in zip(s, starts, steps, strict=True)
        ]
        return f"tf.slice({a}, {tuple(starts)}, {tuple(sizes)}, {tuple(steps)})", tuple(sizes)
    if kind == "reshape":
        size = math.prod(s)
        new = draw(st.sampled_from([(size,), tuple(reversed(s)), (1, *s), (size, 1)]))
        return f"tf.reshape({a}, {new})", new
    if kind in ("transpose", "swap"):
        perm = tuple(draw(st.permutations(range(len(s)))))
        return f"tf.transpose({a}, {perm})", tuple(s[p] for p in perm)
    if kind == "sum":
        axis = draw(st.integers(0, len(s) - 1))
        return f"tf.reduce({a}, ({axis},), True)", tuple(
            1 if n == axis else e for n, e in enumerate(s)
        )
    if kind == "concat":
        axis = draw(st.integers(0, len(s) - 1))
        made = tuple(2 * e if n == axis else e for n, e in enumerate(s))
        return f"tf.concat({a}, {a} * {factor}, axis={axis})", made
    if kind == "insert":
        sizes = [draw(st.integers(1, e)) for e in s]
        starts = [draw(st.integers(0, e - n)) for e, n in zip(s, sizes, strict=True)]
        places = tuple(draw(st.integers(0, e - n)) for e, n in zip(s, sizes, strict=True))
        reads = ", ".join(f"{b}:{b + n}" for b, n in zip(starts, sizes, strict=True))
        return f"tf.insert_slice({a}, {a}[{reads}] * {factor}, {places})", s
    if kind == "matmul":
        made = (*s[:-1], s[-2])
        return f'tf.matmul({a}, {a} * 2, b_layout="NK")', made
    if kind == "other" and len(shapes["y"]) <= len(s):
        wide = tuple(torch.broadcast_shapes(s, shapes["y"])) if fits(s, shapes["y"]) else None
        if wide is not None:
            return f"{a} * y", wide
    return f"-{a}", s


def fits(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def footprints(module) -> dict[Element, dict[str, set[Element]]]:
    """Per result element, the elements of each parameter that it is computed from."""
    func = module.funcs["f"]
    context = module_context(module)
    held: dict[Node, dict[Element, dict[str, set[Element]]]] = {}
    for param in func.params:
        held[param] = {e: {param.name: {e}} for e in elements(param.tensor.shape)}
    for node in nodes(func.body):
        assert node.op is not ITEM
        if node.op is CONST:
            held[node] = {(): {}}
        else:
            held[node] = reads(node, context, held)
    return held[func.returns.values[0]]


def reads(node, context, held):
    call = call_of(node, context)
    relation = node.op.relation(call, (node.tensor.shape,))
    out: dict[Element, dict[str, set[Element]]] = {e: {} for e in elements(node.tensor.shape)}
    written = set()
    for point in itertools.product(*(range(d.extent) for d in relation.domain)):
        env = {d.var: i for d, i in zip(relation.domain, point, strict=True)}
        targets = list(places(relation.results[0], node.tensor.shape, env))
        written.update(targets)
        for n, (operand, coords) in enumerate(zip(node.args, relation.operands, strict=True)):
            if node.op.name == "insert_slice" and n == 0:
                continue  # the window of the destination is overwritten, not read
            for source in places(coords, operand.tensor.shape, env):
                for target in targets:
                    merge(out[target], held[operand].get(source, {}))
    if node.op.name == "insert_slice":  # outside the window the destination stays
        for e in set(out) - written:
            merge(out[e], held[node.args[0]][e])
    return out


def places(coords, shape, env):
    """The elements that coordinates name at a point; none outside the operand."""
    ranges = [
        range(extent) if isinstance(c, Whole) else [ix.evaluate(c, env)]
        for c, extent in zip(coords, shape, strict=True)
    ]
    for e in itertools.product(*ranges):
        if all(0 <= i < extent for i, extent in zip(e, shape, strict=True)):
            yield e


def merge(into, found):
    for name, more in found.items():
        into.setdefault(name, set()).update(more)


def elements(shape):
    return itertools.product(*(range(e) for e in shape))


def changed(module, inputs):
    """The same by experiment: which results change with each input element."""
    base = evaluate(module, "f", inputs)[0]
    out: dict[Element, dict[str, set[Element]]] = {e: {} for e in elements(base.shape)}
    for n, name in enumerate(("x", "y")):
        for e in elements(inputs[n].shape):
            moved = [x.clone() for x in inputs]
            moved[n][e] += 0.37
            differs = evaluate(module, "f", moved)[0] != base
            for place in map(tuple, differs.nonzero().tolist()):
                out[place].setdefault(name, set()).add(e)
    return out


@campaign(60, 1500)
@given(sources())
def test_footprints(case):
    text, shape, other = case
    note(text)
    module = parse(text, FOLDER)
    rng = torch.Generator().manual_seed(1)
    inputs = [torch.rand(s, generator=rng, dtype=torch.float64) + 0.5 for s in (shape, other)]
    said = footprints(module)
    seen = changed(module, inputs)
    for e, by_name in seen.items():
        for name in ("x", "y"):
            assert by_name.get(name, set()) == said[e].get(name, set()), (e, name)
