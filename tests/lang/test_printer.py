"""Print, parse, print: the same text and the same program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from roundtrip import HEAD, parse, round_trip
from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source
from tilefoundry.lang.printer import print_module

TESTS = Path(__file__).parents[1]
CASES = [
    *sorted((TESTS / "cases").glob("*.py")),
    *sorted((TESTS.parent / "examples" / "gpu").glob("*.py")),
]
SHOWN = ("chain_two_cuts", "gemm_grid", "gemm_optimal", "residual_rmsnorm")


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_identity_on_the_cases(path, tmp_path):
    round_trip(load_source(str(path), None, {}).module, tmp_path)


@pytest.mark.parametrize("name", SHOWN)
def test_printed_cases(name, golden):
    path = next(p for p in CASES if p.stem == name)
    golden(f"{name}.txt", print_module(load_source(str(path), None, {}).module))


def test_identity_on_the_shipped_model(tmp_path):
    import tilefoundry.models as models

    path = Path(models.__file__).parent / "qwen3.py"
    text, _ = round_trip(load_source(str(path), None, {}).module, tmp_path)
    assert "layers = ModuleList(Layer, 28)" in text


def test_identity_on_the_documents(tmp_path):
    """Every program on a shipped page that is accepted."""
    import tilefoundry

    done = 0
    for page in sorted(Path(tilefoundry.__file__).parent.rglob("*.md")):
        blocks = re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        for text in blocks:
            if "@module" not in text:
                continue
            try:
                made = parse(text, tmp_path)
            except Refusal:
                continue  # a page shows what is refused, too
            round_trip(made, tmp_path)
            done += 1
    assert done > 100


def module(body: str, head: str = "", options: str = "") -> str:
    """A file with one module ``M`` whose functions are ``body``."""
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return f"{HEAD}{head}\n@module({options})\nclass M:\n{lines}\n"


X = 'x: Tensor[(4, 8), "f32"]'
META = (
    'target=CudaTarget("nvidia.h200_sxm"), '
    'topologies=(Topology("cta", 132), Topology("thread", 384))'
)
LOOPS = {
    "sum": """
acc = tf.zeros(Tensor[(4, 8), "f32"])
for i in range(3):
    acc = acc + x
return acc
""",
    "a parameter is carried": """
for i in range(3):
    x = x + 1
return x
""",
    "the start stays alive": """
acc = x * 2
keep = acc
for i in range(3):
    acc = acc + x
return acc + keep
""",
    "another name before": """
first = x * 2
acc = first
for i in range(3):
    acc = acc + first
return acc
""",
    "two carried values change places": """
a = x * 2
b = x + 1
for i in range(3):
    a, b = b, a
return a, b
""",
    "Fibonacci": """
a = x * 2
b = x + 1
for i in range(4):
    a, b = b, a + b
return b
""",
    "the head is read after the step": """
a = x * 2
for i in range(3):
    old = a
    a = a + 1
    b = old * a
    a = a + b
return a
""",
    "a step that is a value from before": """
a = x * 2
y = x + 1
b = x
for i in range(3):
    b = b + a
    a = y
return a, b
""",
    "two values start as one": """
a = x * 2
b = a
for i in range(3):
    a = a + 1
    b = b + a
return a, b
""",
    "nested loops carry through": """
acc = tf.zeros(Tensor[(4, 8), "f32"])
for i in range(2):
    for j in range(i, 3):
        acc = acc + x * j
return acc
""",
    "an inner loop starts anew": """
total = x * 0
for i in range(2):
    acc = x + i
    for i in range(3):
        acc = acc * 0.5 + i
    total = total + acc
return total
""",
    "names are used again": """
y = x + 1
y = y * 2
for k in range(2):
    t = y * k
    y = y + t
for k in range(2):
    t = y - k
    y = y + t
t = y * 2
return t
""",
    "a tile that does not divide": """
total = tf.zeros(Tensor[(4, 1), "f32"])
for k in tf.tile(8, 3):
    part = tf.reduce(x[:, k], (1,), True)
    total = total + part
return total
""",
    "a window is moved": """
total = tf.zeros(Tensor[(4, 2), "f32"])
for k in tf.tile(6, 2):
    total = total + x[:, k + 2] * (k.start - k.stop)
return total
""",
    "nothing is carried": """
for i in range(3):
    y = x + i
return x
""",
    "an empty body": """
for i in range(3):
    pass
return x
""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, tmp_path):
    source = module(f"@func\ndef f({X}):\n" + indented(LOOPS[name]))
    first = parse(source, tmp_path)
    _, again = round_trip(first, tmp_path)
    x = torch.arange(32.0).reshape(4, 8) / 7
    for a, b in zip(evaluate(first, "f", [x]), evaluate(again, "f", [x]), strict=True):
        assert torch.equal(a, b)


def indented(body: str) -> str:
    return "\n".join("    " + line for line in body.strip("\n").splitlines())


def printed(body: str, folder: Path, **options: str) -> str:
    text, _ = round_trip(parse(module(body, **options), folder), folder)
    return text


def statements(text: str) -> list[str]:
    """The lines of the last function."""
    lines = text.splitlines()
    at = max(n for n, line in enumerate(lines) if line.strip().startswith("def "))
    return [line[8:] for line in lines[at + 1 :]]


def test_carried_names_are_assigned_again(tmp_path):
    text = printed(f"@func\ndef f({X}):\n" + indented(LOOPS["Fibonacci"]), tmp_path)
    assert statements(text) == [
        "a = tf.mul(x, 2)",
        "b = tf.add(x, 1)",
        "for i in range(4):",
        "    b_1 = tf.add(a, b)",
        "    a, b = b, b_1",
        "return b",
    ]


def test_a_value_that_stays_alive_keeps_its_name(tmp_path):
    text = printed(f"@func\ndef f({X}):\n" + indented(LOOPS["the start stays alive"]), tmp_path)
    assert statements(text) == [
        "acc = tf.mul(x, 2)",
        "acc_1 = acc",
        "for i in range(3):",
        "    acc_1 = tf.add(acc_1, x)",
        "v0 = tf.add(acc_1, acc)",
        "return v0",
    ]


def test_unnamed_values_avoid_the_authors_names(tmp_path):
    text = printed(f"@func\ndef f({X}):\n    v0 = x + 1\n    return v0 * (x - 2)", tmp_path)
    assert statements(text) == [
        "v0 = tf.add(x, 1)",
        "v1 = tf.sub(x, 2)",
        "v2 = tf.mul(v0, v1)",
        "return v2",
    ]


def test_operands_attributes_and_results(tmp_path):
    text = printed(
        """
@func
def f(x: Tensor[(4, 8), "f32"], w: ConstTensor[(8,), "f32"], c: Tensor[(), "i64"]):
    a, b = tf.split(x, 2, 1)
    (c1,) = tf.split(x, 1, 0)
    values, index = tf.topk(x, 3, largest=False)
    n = tf.layer_norm(x, None, w, eps=1e-3)
    y = tf.where(x > 0, float("-inf"), x) * -0.0 + float("nan")
    z = tf.pad(tf.clamp(x, max_val=2.5), (1, 0), value=-1)
    m = tf.reduce(x, axes=1, kind=ReduceKind.ABS_MAX)
    s = tf.stack(x, x, axis=1)
    e = tf.einsum("ij,ij->i", x, x)
    return 2 - x, a, b, c1, values, index, n, y, z, m, s, e
""",
        tmp_path,
    )
    assert statements(text) == [
        "a, b = tf.split(x, 2, axis=1)",
        "(c1,) = tf.split(x, 1)",
        "values, index = tf.topk(x, 3, largest=False)",
        "n = tf.layer_norm(x, bias=w, eps=0.001)",
        "v0 = tf.cmp_gt(x, 0)",
        'v1 = tf.where(v0, float("-inf"), x)',
        "v2 = tf.mul(v1, -0.0)",
        'y = tf.add(v2, float("nan"))',
        "v3 = tf.clamp(x, max_val=2.5)",
        "z = tf.pad(v3, (1, 0), value=-1)",
        'm = tf.reduce(x, (1,), kind="abs_max")',
        "s = tf.stack(x, x, axis=1)",
        'e = tf.einsum("ij,ij->i", x, x)',
        "v4 = tf.sub(2, x)",
        "return v4, a, b, c1, values, index, n, y, z, m, s, e",
    ]


def test_subscripts_become_slices(tmp_path):
    text = printed(f"@func\ndef f({X}):\n    return x[1:, None, ::3], x[..., -1]", tmp_path)
    assert statements(text) == [
        "v0 = tf.slice(x, (1, 0), (3, 3), strides=(1, 3))",
        "v1 = tf.reshape(v0, (3, 1, 3))",
        "v2 = tf.slice(x, (0, 7), (4, 1))",
        "v3 = tf.reshape(v2, (4,))",
        "return v1, v3",
    ]


def test_words_of_the_language_as_the_authors_names(tmp_path):
    text = printed(
        """
@func
def f(T: Tensor[(n,), "f32"], range: Tensor[(n,), "f32"], max: Tensor[(n,), "f32"]):
    Mesh = T + range
    tf_ = Mesh * 2
    with Grid(("cta",), layout=(4,), names=("x",)) as P:
        Tensor = tf.reshard(Mesh, None, "smem")
        for k in tf.tile(n, 3):
            y = Mesh[k] + smaller(k.start, 5)
        for i in steps(2):
            z = tf.empty(Result[(4,), "f32", (4 @ P.x,)])
        return Tensor + max
""",
        tmp_path,
        head="Grid, Result, smaller, steps = Mesh, Tensor, min, range\n"
        + 'n = DimVar("n", 1, 64)\n',
        options=META,
    )
    assert "\nMesh_ = Mesh\n" in text
    assert "\nrange_ = range\n" in text
    assert "with Mesh_((" in text


def test_open_extents_and_specialisations(tmp_path):
    text = printed(
        """
@func
def f(x: Tensor[(n, 8), "f32"]) -> Tensor[(n, 8), "f32"]: ...

@f.specialize(RangePattern("n", 1, 16))
def small(x: Tensor[(n, 8), "f32"]):
    return x + 1

@f.specialize(RangePattern("n", 17, 64))
def large(x: Tensor[(n, 8), "f32"]):
    return x * 2

@func
def g(n: Tensor[(n, 4 * m), "f32"], v0: Tensor[(ceildiv(m, 3),), "f32"]):
    small = f(n[:, :8])
    y = n * m
    return small, f(small), y, v0
""",
        tmp_path,
        head='n = DimVar("n", 1, 64)\nm = DimVar("m")\n',
    )
    assert 'n_1 = DimVar("n", 1, 64)' in text
    assert 'm = DimVar("m")' in text
    assert '@f.specialize(RangePattern("n", 17, 64))' in text
    assert "small = f(v1)" in text


def test_minimum_in_a_parameter(tmp_path):
    head = 'from tilefoundry.ir.expr import minimum\nn = DimVar("n", 1, 64)\n'
    body = '@func\ndef f(x: Tensor[(n,), "f32"], y: Tensor[(minimum(n, 8),), "f32"]):\n    return x'
    text = printed(body, tmp_path, head=head)
    assert text.startswith("from __future__ import annotations\n")


def test_calls_weights_and_children(tmp_path):
    source = HEAD + (
        """
@module(entry="f")
class Inner:
    weight_names = {"w": "self.w"}

    @func
    def f(x: Tensor[(4,), "f32"], w: ConstTensor[(4,), "f32"], b: Tensor[(4,), "f32"]):
        return x * w + b, x

    @func
    def g(x: Tensor[(4,), "f32"]):
        a, b = f(x, x)
        (c, d) = f(x, x, w=a)
        return a, b, c, d


@module()
class Outer:
    layers = ModuleList(Inner, 3)
    one = Inner

    def forward(self, x):
        return x

    @func
    def f(x: Tensor[(4,), "f32"]):
        return x

    @func
    def g(x: Tensor[(4,), "f32"]):
        return x
"""
    )
    text, _ = round_trip(parse(source, tmp_path), tmp_path)
    assert "layers = ModuleList(Inner, 3)\n    one = Inner\n" in text
    assert "c, d = f(x, x, w=a)" in text
    assert 'weight_names = {"w": "self.w"}' in text


MESHES = {
    "strides": (
        'with Mesh(("cta",), layout=((2, 4), (1, 2)), names=("a", "b")) as m:',
        'with Mesh(("cta",), layout=((2, 4), (1, 2)), names=("a", "b")) as m:',
    ),
    "two levels": (
        'with Mesh(("cta", "thread"), layout=((2, 4), (32,)), names=(("a", "b"), ("t",))) as m:',
        'with Mesh(("cta", "thread"), layout=((2, 4), (32,)), names=(("a", "b"), ("t",))) as m:',
    ),
    "a layout object": (
        'with Mesh((Topology("cta", 132),), layout=Layout((2, 4)), names=("a", "b")) as m:',
        'with Mesh(("cta",), layout=(2, 4), names=("a", "b")) as m:',
    ),
    "no name": (
        'with Mesh("cta", layout=8):',
        'with Mesh(("cta",), layout=(8,), names=("axis0",)):',
    ),
}


@pytest.mark.parametrize("name", MESHES)
def test_declared_meshes(name, tmp_path):
    written, expected = MESHES[name]
    body = f"@func\ndef f({X}):\n    {written}\n        y = x + 1\n    return y"
    assert statements(printed(body, tmp_path, options=META))[0] == expected


THREADS = 'with Mesh(("thread",), layout=(3, 128), names=("g", "p")) as threads:'
SLICES = {
    "a slice of a slice": ("threads[1:3, :64][0] as t:", "threads[1:3, :64][0] as t:"),
    "from the end": ("threads[-1, LAST] as t:", "threads[-1, 127] as t:"),
    "a constant": ("threads[: LAST - 125, 8:] as t:", "threads[:2, 8:] as t:"),
    "the mesh itself": ("threads as t:", "threads as t:"),
    "re-arranged": (
        'Mesh(threads[1:3, :], layout=(2, 4, 32), names=("a", "b", "c")) as t:',
        'Mesh(threads[1:3, :], layout=(2, 4, 32), names=("a", "b", "c")) as t:',
    ),
    "re-arranged with strides": (
        'Mesh(threads[0], layout=((4, 32), (1, 4)), names=("a", "b")) as t:',
        'Mesh(threads[0], layout=((4, 32), (1, 4)), names=("a", "b")) as t:',
    ),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_meshes(name, tmp_path):
    written, expected = SLICES[name]
    body = f"""
@func
def f({X}):
    {THREADS}
        with {written}
            y = x + 1
    return y
"""
    lines = statements(printed(body, tmp_path, head="LAST = 127\n", options=META))
    assert lines[1] == f"    with {expected}"


def test_a_shadowed_mesh_is_found_by_its_units(tmp_path):
    body = f"""
@func
def f({X}):
    {THREADS}
        low = threads[0]
        with threads[1:3] as threads:
            y = x + threads.g
        with low as one:
            z = x + one.p + low.p
    return x
"""
    lines = statements(printed(body, tmp_path, options=META))
    assert lines[1:] == [
        "    with threads[1:3] as threads_1:",
        "        y = tf.add(x, threads_1.g)",
        "    with threads[0] as one:",
        "        v0 = tf.add(x, one.p)",
        "        z = tf.add(v0, one.p)",
        "return x",
    ]


def test_the_axis_of_a_slice_without_a_scope(tmp_path):
    body = f"""
@func
def f({X}):
    {THREADS}
        y = x + threads[1:3, 64:].p * threads[1:3].g
    return x
"""
    lines = statements(printed(body, tmp_path, options=META))
    assert lines[1] == "    y = tf.add(x, threads[1:3, 0].g * threads[1, 64:128].p)"


LAYOUTS = {
    "(32, 64 @ g.c)": "(32, 64 @ g.c)",
    "(32 @ g.r, 64 @ g.c)": "(32 @ g.r, 64 @ g.c)",
    "(4 @ g.r, 8, 4, 2 @ g.c, 8)": "(4 @ g.r, 8, 4, 2 @ g.c, 8)",
    "((4 @ g.r, 8), 64)": "(32 @ g.r, 64)",
    "(((4 @ g.r, 2, 4), (4, 2 @ g.c, 8)), None)": "(((4 @ g.r, 2, 4), (4, 2 @ g.c, 8)), None)",
    "Layout(((8, 4), (4, 16)))": "(((8, 4), (4, 16)), None)",
    "((32, 64), (1, 32))": "((32, 64), (1, 32))",
    "((32 @ g.r, 64), (1, 32))": "(((4 @ g.r, 8), 64), ((8, 1), 32))",
    "(((4 @ g.r, 8), 64), ((512, 64), 1))": "(((4 @ g.r, 8), 64), ((512, 64), 1))",
    "(32, 64) + 16": "(32, 64) + 16",
    "Layout((32, (4, 16)), (16, (512, 1))) + 8 | Swizzle(3, 4, 3)": (
        "((32, (4, 16)), (16, (512, 1))) + 8 | Swizzle(3, 4, 3)"
    ),
    "(32, 64) @ {B()}": "(32, 64)",
    "ShardLayout(layout=(4, 8, 64), attrs=(S(0), B()), mesh=g)": "(4 @ g.r, 8, 64)",
    "ShardLayout(layout=Layout(((4, 8), (2, 32))), attrs=(S(0), S(2)), mesh=g)": (
        "(32 @ g.r, 64 @ g.c)"
    ),
}


@pytest.mark.parametrize("written", LAYOUTS)
def test_layouts(written, tmp_path):
    body = f"""
@func
def f(x: Tensor[(32, 64), "f32"]):
    with Mesh(("cta",), layout=(4, 2), names=("r", "c")) as g:
        y = tf.reshard(x, {written})
    return x
"""
    line = statements(printed(body, tmp_path, options=META))[1]
    assert line == f"    y = tf.reshard(x, layout={LAYOUTS[written]})"


def test_partial_values_keep_their_tags(tmp_path):
    body = """
@func
def f(x: Tensor[(32, 64), "f32"]):
    with Mesh(("cta",), layout=(4, 2), names=("r", "c")) as g:
        y = tf.reshard(x, (32 @ g.r, 64 @ g.c))
        s = tf.reduce(y, (0, 1))
        t = tf.reshard(s, () @ {g.c @ P("sum"), g.r @ P("sum")}, "smem")
        return tf.reshard(t, ())
"""
    lines = statements(printed(body, tmp_path, options=META))
    assert lines[3] == (
        '    t = tf.reshard(s, layout=() @ {g.c @ P("sum"), g.r @ P("sum")}, storage="smem")'
    )


def test_index_expressions_and_uneven_loops(tmp_path):
    body = """
@func
def f(x: Tensor[(64, 8), "f32"]):
    out = tf.zeros(Tensor[(64, 8), "f32"])
    with Mesh(("cta",), layout=(6,), names=("p",)) as cta:
        for task in range(cta.p, 16, 6):
            m = task // 2 * 4
            row = x[m:m + 4, task % 2 * 4:task % 2 * 4 + 4]
            for j in range(min(task, 5), max(3, task - cta.p)):
                row = row + j
            out = tf.insert_slice(out, row, (m, task % 2 * 4))
    return out
"""
    lines = statements(printed(body, tmp_path, options=META))
    assert "    for task in range(cta.p, 16, 6):" in lines
    assert "        for j in range(min(5, task), max(-cta.p + task, 3)):" in lines


def test_long_chain(tmp_path):
    chain = "\n".join(f"    x = x * {n % 3} + 1" for n in range(500))
    source = module(f'@func\ndef f(x: Tensor[(2,), "f64"]):\n{chain}\n    return x')
    first = parse(source, tmp_path)
    _, again = round_trip(first, tmp_path)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    want = x
    for n in range(500):
        want = want * (n % 3) + 1
    assert torch.equal(evaluate(again, "f", [x])[0], want)


def test_deep_diamond(tmp_path):
    """Each value is read twice by the next: 2**250 paths."""
    steps = "\n".join("    x = x * 0.5 + x * 0.5" if n % 2 else "    x = x + 1" for n in range(250))
    source = module(f'@func\ndef f(x: Tensor[(2,), "f64"]):\n{steps}\n    return x')
    _, again = round_trip(parse(source, tmp_path), tmp_path)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert torch.equal(evaluate(again, "f", [x])[0], x + 125)
