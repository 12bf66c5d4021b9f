"""No value in any place of a program ends in a traceback: it is accepted or refused in words."""

from __future__ import annotations

import textwrap

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source
from tilefoundry.ops import find, names
from tilefoundry.ops.signature import Operand

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N = DimVar("n", 1, 64)


class Odd:
    __hash__ = None

    def __bool__(self):
        raise OSError("no truth")

    def __iter__(self):
        raise KeyError("no items")

    def __getattr__(self, name):
        raise RuntimeError("no attributes")


ODD = Odd()


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 8), Topology("thread", 128)),
)
class Program:
"""
SIGNATURE = 'x: Tensor[(64, 32), "f32"], q: Tensor[(N, 32), "f32"], i: Tensor[(4,), "i32"]'
VALUES = [
    "x", "q", "i", "(x, q)", "[x]", "None", "True", "...", "0", "-1", "7", "10**40", "1.5",
    '"a"', 'b"a"', "1j", "()", "(1,)", "((1, 2), (2, 1))", "[]", "{}", "{1: 2}", "N", "N - 65",
    "cta", "cta.c", "cta[0:2]", "k", "w", "slice(1, 2)", "range(3)", "tf", "tf.exp", "T", "T.copy",
    "T.copy()", "Tensor", 'Tensor[(8,), "f32"]', "Layout((8, 4))", "Swizzle(3, 4, 3)", "B()",
    'P("sum")', "S(0)", "{B()}", "(8 @ cta.c, 8)", "print", "ODD", "Odd", 'Topology("cta", 8)',
    "ReduceKind.SUM", "f", "float('nan')",
]  # fmt: skip
PARAMETER_VALUES = [
    "x", "[x]", "None", "True", "...", "-1", "7", "10**40", "1.5", '"a"', "()", "(1,)",
    "((1, 2), (2, 1))", "{}", "N", "tf", "T.copy()", "Tensor", "ReduceKind.SUM", "ODD",
]  # fmt: skip
PLACES = [
    "y = {v}", "y = -{v}", "y = not {v}", "y = ~{v}", "y = x + {v}", "y = {v} + x", "y = {v} + {v}",
    "y = {v} * 2", "y = 2 // {v}", "y = {v} % 3", "y = {v} ** 2", "y = {v} | {v}",
    "y = {v} @ cta.c",
    "y = 8 @ {v}", "y = {v} @ {{B()}}", "y = x < {v}", "y = {v} < 3", "y = {v} == (8, N)",
    "y = {v} in (0, 1)", "y = 1 in {v}", "y = {v} is None", "y = {v} and True", "y = [*{v}]",
    "y = {{{v}}}", "y = {{{v}: 1}}", "y = {{**{v}}}", "y = f'{{{v}}}'", "y = f'{{{v}:>8}}'",
    "y = [e for e in {v}]", "y = x if {v} else q", "y = x[{v}]", "y = x[{v}:]", "y = x[:{v}]",
    "y = x[::{v}]", "y = x[..., {v}]", "y = q[{v}]", "y = {v}[0]", "y = {v}[0:1, 0]", "y = {v}.c",
    "y = {v}.shape", "y = {v}(x)", "y = {v}()", "y = {v}(*{v}, **{v})", "y = len({v})",
    "y = min({v}, 3)", "y = int({v})", "y = tf.zeros({v})", 'y = tf.zeros(Tensor[{v}, "f32"])',
    "y = tf.zeros(Tensor[(8,), {v}])", 'y = tf.zeros(Tensor[(8, 4), "f32", {v}])',
    'y = tf.zeros(Tensor[(8, 4), "f32", (8, 4), {v}])', 'y = tf.zeros(Tensor[({v}, 4), "f32"])',
    "y = Layout({v})", "y = Layout((8, 4), {v})", "y = Layout((8, 4)) | {v}", "y = (8, 4) + {v}",
    "y = Swizzle({v}, 4, 3)", 'y = DimVar("m", 1, {v})', "y = tf.reshard(x, {v})",
    'y = tf.reshard(x, (64, 32), {v})', "y = tf.reshard(x, (64 @ cta.c, {v}))",
    "y = tf.reshard(x, ShardLayout(layout={v}, attrs=(S(0),), mesh=cta))",
    "y = tf.reshard(x, ShardLayout(layout=(8, 8, 32), attrs={v}, mesh=cta))",
    "y = tf.reshard(x, ShardLayout(layout=(8, 8, 32), attrs=({v},), mesh=cta))",
    "y = tf.reshard(x, ShardLayout(layout=(8, 8, 32), attrs=(S(0),), mesh={v}))",
    "y = tf.schedule({v}, op=T.copy())", "y = tf.schedule((x, {v}), op=T.copy())",
    "y = tf.schedule((x, x), op={v})", "y = tf.schedule((x, x, x), op=T.tiled_mma(atom={v}))",
    "y = tf.schedule((x, x), op=T.copy(), repeat={v})", "y = tf.schedule((x,), op=T.cast({v}))",
    "y = tf.concat({v}, axis=0)", "y = tf.concat(inputs={v}, axis=0)", "y = tf.{v}",
    "y = tf.rank({v})",
    "a, *b = {v}", "(a, b), c = {v}, x", "y: {v} = x", "y = x\n{v}", "assert {v}, {v}",
    "if {v}:\n    pass", "while {v}:\n    x = q", "return {v}", "return x, {v}",
    "for a in {v}:\n    x = x * 2.0", "for a in range({v}):\n    x = x * 2.0",
    "for a in range(0, 8, {v}):\n    x = x * 2.0", "for a in tf.tile({v}, 4):\n    x = x * 2.0",
    "for a in tf.tile(64, {v}):\n    x = x * 2.0", "for a in range({v}, {v}):\n    x = x + a",
    "for a in range(2):\n    x = {v}", "with {v} as m:\n    x = x * 2.0",
    'with Mesh({v}, layout=(8,), names=("m",)) as m:\n    x = x * 2.0',
    'with Mesh(("thread",), layout={v}, names=("m",)) as m:\n    x = x * 2.0',
    'with Mesh(("thread",), layout=({v},), names=("m",)) as m:\n    x = x * 2.0',
    'with Mesh(("thread",), layout=(8,), names={v}) as m:\n    x = x * 2.0',
    'with Mesh(("thread",), layout=(8,), names=({v},)) as m:\n    x = x * 2.0',
    'with Mesh(("gpu", "thread"), layout={v}, names=("m", "n")) as m:\n    x = x * 2.0',
    'with cta[{v}] as m:\n    x = x * 2.0',
    'with Mesh(cta[{v}:], layout=(2,), names=("m",)) as m:\n    x = x * 2.0',
]  # fmt: skip


pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")


def check(text, tmp_path):
    """Load a program; whatever it refuses has words."""
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    try:
        load_source(str(path), None, {})
    except Refusal as refusal:
        assert all(d.span for d in refusal.diags)
        assert str(refusal)


@pytest.mark.parametrize("place", PLACES)
def test_any_value_in_any_place(place, tmp_path):
    for value in VALUES:
        inner = textwrap.indent(place.format(v=value), " " * 20)
        body = (
            f"    @func\n    def f({SIGNATURE}):\n"
            '        with Mesh(("cta",), layout=(8,), names=("c",)) as cta:\n'
            "            for k in range(2, 4):\n"
            "                for w in tf.tile(64, 8):\n"
            f"{inner}\n"
            "        return x\n"
        )
        check(HEAD + body, tmp_path)


DECLARED = [
    "def f(x: {v}):\n    return x", "def f(x: Tensor[(8,), 'f32']) -> {v}:\n    return x",
    "def f(x: Tensor[(8,), 'f32'] = {v}):\n    return x",
    "def f(x: Tensor[(8,), 'f32'], *, y: {v}):\n    return x", "def f(x: {v!r}):\n    return x",
]  # fmt: skip


@pytest.mark.parametrize("place", DECLARED)
def test_any_value_in_a_signature(place, tmp_path):
    for value in VALUES:
        outer = value if value not in ("x", "q", "i", "k", "w", "f") and "x" not in value else "5"
        outer = outer.replace("cta.c", "N").replace("cta", "N")
        body = textwrap.indent("@func\n" + place.format(v=outer), "    ")
        check(f"{HEAD}{body}\n", tmp_path)


OUTSIDE = [
    "@module({v})\nclass M: pass", "@module(entry={v})\nclass M: pass",
    "@module(target={v})\nclass M: pass", "@module(target=CudaTarget({v}))\nclass M: pass",
    "@module(topologies={v})\nclass M: pass", "@module(topologies=({v},))\nclass M: pass",
    '@module(topologies=(Topology("cta", {v}),))\nclass M: pass',
    "@module(topologies=(Topology({v}, 8),))\nclass M: pass",
    "@module()\nclass M:\n    f = func({v})", "@module()\nclass M:\n    f = prim_func({v})",
    "@module()\nclass M:\n    m = ModuleList({v}, 2)",
    "@module()\nclass M:\n    m = ModuleList(Program, {v})",
    "@module()\nclass M:\n    m = {v}", "M = module()({v})", "D = DimVar({v}, 1, 2)",
    "R = RangePattern({v}, 1, 2)", 'R = RangePattern("n", 1, {v})', "R = Program.g.specialize({v})",
    "R = Program.g.specialize(RangePattern('n', 1, 64))({v})", "M = Mesh({v})", "M = tf.exp({v})",
    "S1 = ShardLayout({v}, {v}, {v})", "T1 = Topology({v}, {v})", "L = Layout({v}, {v})",
]  # fmt: skip


@pytest.mark.parametrize("place", OUTSIDE)
def test_any_value_outside_functions(place, tmp_path):
    good = '    @func\n    def g(x: Tensor[(8,), "f32"]):\n        return x\n'
    head = HEAD.replace('entry="f"', 'entry="g"') + good
    for value in VALUES:
        outer = value.replace("cta.c", "N").replace("cta", "N")
        outer = "ODD" if outer in ("x", "q", "i", "k", "w", "f") or "x" in outer else outer
        if outer == "Tensor" and "module()(" in place:
            continue  # it would make the language's own class a module
        check(f"{head}\n\n{place.format(v=outer)}\n", tmp_path)


def written(value):
    """An example's attribute as source."""
    return f"{value!r}" if not isinstance(value, str) else f'"{value}"'


@pytest.mark.parametrize("name", sorted(names()))
def test_any_value_for_any_parameter(name, tmp_path):
    op = find(name)
    if not op.examples:
        return
    example = op.examples[0]
    types = [t for t in example.inputs if t is not None]
    params = ", ".join(f'a{n}: Tensor[{s}, "{d}"]' for n, (s, d) in enumerate(types))
    operands = [p for p in op.params if isinstance(p, Operand)]
    many = any(p.many for p in operands)
    args = [f"a{n}" for n in range(len(types))]
    given = {p.name: a for p, a in zip(operands, args, strict=False)} if not many else {}
    given |= {k: written(v) for k, v in example.attrs.items()}
    lead = ", ".join(args) + ", " if many and args else ""
    for param in op.params:
        for value in PARAMETER_VALUES:
            value = value.replace("x", args[0]) if args else value
            call = ", ".join(f"{k}={v}" for k, v in ({**given, param.name: value}).items())
            body = f"    @func\n    def f({params}):\n        return tf.{name}({lead}{call})\n"
            check(HEAD + body, tmp_path)
