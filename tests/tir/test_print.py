"""TIR prints as source that parses back to it."""

from __future__ import annotations

import math
import random
import re
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from any_kernel import Maker
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import gemm

from tilefoundry.diag import Refusal, Span
from tilefoundry.ir import expr as ix
from tilefoundry.ir.dtype import BF16, F32
from tilefoundry.lang.load import execute, load_source
from tilefoundry.lower import lower
from tilefoundry.tir import program as tir
from tilefoundry.tir.equal import record, same
from tilefoundry.tir.forms import KINDS, SYNCS
from tilefoundry.tir.naming import named
from tilefoundry.tir.parse import parse_program
from tilefoundry.tir.printer import alone, print_func, print_program


def round_trip(program: tir.Program | tir.PrimFunc) -> tuple[str, tir.Program]:
    """Print, parse, print: asserts that both texts and both programs are equal."""
    whole = alone(program) if isinstance(program, tir.PrimFunc) else program
    text = print_program(whole)
    again = parse_program(text, "tir.py")
    assert print_program(again) == text
    assert record(again) == record(whole)
    return text, again


# The GEMM of the post


@pytest.fixture(scope="module")
def optimal() -> str:
    """The size and the mesh of the post's last program."""
    return print_func(gemm(tiles=(64, 68), k_steps=80, ctas=132))


def test_golden(optimal, golden):
    golden("gemm.txt", optimal)


def test_the_posts_lines(optimal):
    """What the post prints of its own TIR, word for word."""
    lines = [line.strip() for line in optimal.splitlines()]
    at = lines.index("lhs_ring_stages = (")
    tail = (
        'dtype="bf16", storage="smem", layout=Layout(((2, 8, 8), (4, 16)), '
        "((4096, 512, 64), (16, 1))) | Swizzle(3, 4, 3), shape=(128, 64)),"
    )
    stages = [f"T.tensor_view({offset}, {tail}" for offset in (98304, 114688, 131072)]
    assert lines[at + 1 : at + 5] == [*stages, ")"]
    assert "for task in range(cta.persistent, 4352, 132):" in lines
    assert "for k in range(0, 5120, 64):" in lines
    slot = "lhs_ring_stages[((((task - cta.persistent) // 132) * 80) + (k // 64)) % 3],"
    assert slot in lines
    assert "with threads[0, :32] as loader:" in lines
    arranged = (
        'Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("group", "warp", "lane8", "lane4"))'
    )
    assert f"with {arranged} as compute:" in lines


@pytest.mark.parametrize(
    "options",
    [{}, {"groups": 1}, {"synced": False}, {"storer": "own", "stages": 1}, {"tiles": (1, 1)}],
    ids=str,
)
def test_samples(options):
    round_trip(gemm(**options))


def test_the_text_is_python(optimal, tmp_path):
    """It loads as any author's file; bodies are not executed."""
    path = tmp_path / "gemm.py"
    path.write_text(optimal, encoding="utf-8")
    python, _ = execute(str(path), {})
    decl = python.Program.__tilefoundry__
    assert decl.entry == "gemm" and decl.funcs["gemm"].kind == "prim_func"
    assert decl.funcs["gemm"].params == ("a", "b", "out")


def test_a_long_kernel_is_linear():
    """128 steps cost at most a little over twice what 64 cost, in calls of functions."""

    def calls(count: int) -> int:
        func = gemm()
        text = print_func(replace(func, body=func.body * count))
        seen = 0

        def count_call(frame, event, arg):
            nonlocal seen
            seen += event == "call"

        sys.setprofile(count_call)
        try:
            parse_program(text, "tir.py")
        finally:
            sys.setprofile(None)
        return seen

    assert calls(16) < 2.2 * calls(8)


# Random kernels


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 30))
def test_random_kernels(seed):
    func = Maker(seed).kernel()
    _, again = round_trip(func)
    assert values(func, seed) == values(again.kernels[func.name], seed)


def values(func: tir.PrimFunc, seed: int) -> list[int]:
    """Every index expression of a kernel at random points, whatever its symbols are called:
    loops are told apart by their place, variables of views by their axis."""
    r = random.Random(seed)
    env: dict[ix.Sym, int] = {c: r.randint(0, 50) for c in func.counters}
    out: list[int] = []

    def at(x: ix.Dim, more: dict[ix.Sym, int] | None = None) -> None:
        env_here = {**env, **(more or {})}
        for s in ix.symbols(x):
            if s not in env_here:  # a mesh coordinate: equal axes are equal symbols
                where = s.axis.units
                env_here[s] = (sum(map(int, where[1:])) * 7 + seed) % s.axis.extent
        out.append(ix.evaluate(x, env_here))

    for stmt, _mesh in tir.walk(func.body):
        match stmt:
            case tir.For():
                for x in (stmt.start, stmt.stop, stmt.step):
                    at(x)
                start, stop, step = out[-3:]
                env[stmt.var] = r.choice(range(start, stop, step))
            case tir.When():
                at(stmt.test)
            case tir.Advance():
                at(stmt.by)
            case tir.Sync():
                at(stmt.slot)
                at(stmt.parity)
            case tir.Issue():
                for view in tir.views(stmt):
                    at(view.slot)
                    point = [r.randrange(e) for e in view.shape]
                    for x in view.index:
                        at(x, dict(zip(view.vars, point, strict=True)))
    return out


def test_every_synchronisation_has_a_form():
    """The kinds of the data model's own table."""
    doc = tir.Sync.__doc__ or ""
    rows = re.findall(r"^    (\w[\w, ]*?)  +\S", doc, re.M)
    kinds = {kind for row in rows for kind in row.split(", ")} - {"kind"}
    assert len(kinds) == 22
    assert kinds == set(SYNCS)
    assert len(KINDS) == len(SYNCS)


# Index expressions and views

TASK, K, N = (ix.LoopVar(n, 0, 1000).expr() for n in ("task", "k", "n"))
DIMS = [
    (7, "7"),
    (-2, "-2"),
    (TASK, "task"),
    (-TASK, "-task"),
    (K + 64, "k + 64"),
    (TASK * 80, "task * 80"),
    (TASK * 80 + K // 64, "(task * 80) + (k // 64)"),
    (3 * K + 3 * TASK, "(task * 3) + (k * 3)"),
    (5 - K, "5 - k"),
    (K * TASK * 2, "task * k * 2"),
    ((TASK + K) % 3, "(task + k) % 3"),
    (K - TASK * 2, "k - (task * 2)"),
    (((TASK * 80 + K) // 3 + 1) % 2, "((((task * 80) + k) // 3) + 1) % 2"),
    (ix.minimum(TASK, K + 1), "min(k + 1, task)"),
    (TASK // (K + 1), "task // (k + 1)"),
]


def kernel(*stmts: tir.Stmt, buffers=(), **more) -> tir.PrimFunc:
    """``stmts`` inside loops over task and k."""
    loops = [next(iter(ix.symbols(x))) for x in (TASK, K)]
    inner = tir.For(loops[1], 0, 1001, 1, stmts)
    outer = tir.For(loops[0], 0, 1001, 1, (inner,))
    return replace(gemm(synced=False), buffers=buffers, body=(outer,), **more)


@pytest.mark.parametrize(("dim", "text"), DIMS, ids=[t for _, t in DIMS])
def test_index(dim, text):
    counter = tir.Counter("n")
    func = kernel(tir.Advance(counter, dim), counters=(counter,))
    printed, again = round_trip(func)
    assert f"n += {text}\n" in printed
    (advance,) = [s for s, _ in tir.walk(again.kernels["gemm"].body) if isinstance(s, tir.Advance)]
    free = sorted(ix.symbols(advance.by), key=lambda s: s.name)
    mine = sorted(ix.symbols(dim), key=lambda s: s.name)
    for point in product((0, 1, 129, 1000), repeat=len(free)):
        env = dict(zip(free, point, strict=True)), dict(zip(mine, point, strict=True))
        assert ix.evaluate(advance.by, env[0]) == ix.evaluate(dim, env[1])


RING = tir.Buffer("x", (128, 1, 64), BF16, "smem", slots=2, offsets=(0, 16384))
WHOLE = tir.whole(RING, K % 2)
AXES = tir.fresh_vars((11, 3))
PAIR = (AXES[0].expr(), AXES[1].expr())
VIEWS = [
    (WHOLE, "x_stages[k % 2]"),
    (tir.whole(RING, 1), "x_stages[1]"),
    (
        tir.window(WHOLE, (TASK * 8, 0, 0), (8, 1, 64)),
        "x_stages[k % 2][task * 8:(task * 8) + 8, :, :]",
    ),
    (tir.window(WHOLE, (0, K, 32), (128, 1, 32)), "x_stages[k % 2][:, k:k + 1, 32:64]"),
    (
        tir.View(RING, (11, 3), AXES, (PAIR[0], 0, PAIR[1] + TASK), 0),
        "x_stages[0][0:11, 0, task:task + 3]",
    ),
    (
        tir.View(RING, (11, 3), AXES, (PAIR[1], 0, PAIR[0]), 0),
        "T.view(x_stages[0], shape=(11, 3), index=lambda i, j: (j, 0, i))",
    ),
    (
        tir.View(RING, (11, 3), AXES, (0, 0, PAIR[0] * 11 + PAIR[1] - K), 0, -math.inf),
        "T.view(x_stages[0], shape=(11, 3), index=lambda i, j: (0, 0, (i * 11) + j - k), "
        'fill=float("-inf"))',
    ),
    (replace(WHOLE, fill=0), "T.view(x_stages[k % 2], fill=0)"),
    (tir.View(RING, (), (), (3, 0, TASK), 0), "x_stages[0][3, 0, task]"),
]


@pytest.mark.parametrize(("view", "text"), VIEWS, ids=[t for _, t in VIEWS])
def test_view(view, text):
    """Each view's text, and that what it parses to reaches the same elements."""
    func = kernel(tir.Issue("fill", (tir.Scalar(0.0, F32),), (view,)), buffers=(RING,))
    printed, again = round_trip(func)
    shown = re.sub(r"\(\n\s+", "(", printed)
    assert re.sub(r"\s+", " ", f"T.f32(0.0), {text}") in re.sub(r"\s+", " ", shown)
    (issue,) = [s for s, _ in tir.walk(again.kernels["gemm"].body) if isinstance(s, tir.Issue)]
    made = issue.writes[0]
    assert (made.shape, made.fill) == (view.shape, view.fill)
    loops = {s.name: s for x in (*made.index, made.slot) for s in ix.symbols(x)}
    outer = {next(iter(ix.symbols(x))): n for x, n in ((TASK, 17), (K, 5))}
    theirs = {s: 17 if n == "task" else 5 for n, s in loops.items()}
    for point in product(*(range(min(e, 3)) for e in view.shape)):
        mine = outer | dict(zip(view.vars, point, strict=True))
        its = theirs | dict(zip(made.vars, point, strict=True))
        for a, b in zip((*view.index, view.slot), (*made.index, made.slot), strict=True):
            assert ix.evaluate(a, mine) == ix.evaluate(b, its)


# Programs of several kernels, names, comments


def two_kernels() -> tir.Program:
    up = replace(gemm(), name="up", notes=("memory peak=208.00KB",))
    down = replace(gemm(synced=False), name="down", registers=(("loader", 40, 24),))
    launches = (tir.Launch("up", ("x", "w"), ("h",)), tir.Launch("down", ("h", "w"), ("y",)))
    return tir.Program(
        {"up": up, "down": down}, "mlp", ("x", "w"), launches, ("y", "h"), frozenset({"w"}), "MLP"
    )


def test_steps():
    text, again = round_trip(two_kernels())
    assert text.endswith(
        "    def mlp(x, w: ConstTensor):\n"
        "        h = up(x, w)\n"
        "        y = down(h, w)\n"
        "        return y, h\n"
    )
    assert again.launches == two_kernels().launches
    above = text.split("    @prim_func")
    assert above[0].endswith("    # memory peak=208.00KB\n")
    assert above[1].endswith("    # registers role=loader estimate=40 declared=24\n")


def test_an_entry_named_as_its_kernel():
    program = replace(alone(gemm()), results=("out", "out"))
    text, _ = round_trip(program)
    assert "def gemm_2(a, b):" in text


def test_a_weight_of_the_only_kernel():
    text, again = round_trip(replace(alone(gemm()), weights=frozenset({"b"})))
    assert 'b: ConstTensor[(256, 512), "bf16"],' in text
    assert again.weights == {"b"}


def test_names_that_clash():
    """One name for a ring, a buffer, a loop, a scope and a word of the language."""
    func = gemm()
    names = iter(("T", "T", "for", "a", "a"))
    swap = {b: replace(b, name=next(names)) for b in func.buffers}
    loops = {"task": "T", "k": "T"}

    def rename(body):
        for stmt in body:
            if isinstance(stmt, tir.With):
                yield replace(stmt, body=tuple(rename(stmt.body)), binding="T", source="")
            elif isinstance(stmt, tir.For):
                object.__setattr__(stmt.var, "name", loops.get(stmt.var.name, stmt.var.name))
                yield replace(stmt, body=tuple(rename(stmt.body)))
            elif isinstance(stmt, tir.When):
                yield replace(stmt, body=tuple(rename(stmt.body)))
            elif isinstance(stmt, tir.Issue):
                yield replace(
                    stmt,
                    reads=tuple(other(v) for v in stmt.reads),
                    writes=tuple(other(v) for v in stmt.writes),
                )
            else:
                yield stmt

    def other(v):
        kept = isinstance(v, tir.Scalar) or v.buffer not in swap
        return v if kept else replace(v, buffer=swap[v.buffer])

    body = tuple(rename(func.body))
    round_trip(replace(func, buffers=tuple(swap.values()), body=body))


def test_named_keeps_what_needs_no_change():
    func = named(gemm())
    assert named(func) is func
    _, again = round_trip(func)
    assert named(again.kernels["gemm"]) is again.kernels["gemm"]


@pytest.mark.parametrize(
    ("why", "span", "comment"),
    [
        ("lhs filled", None, "  # lhs filled"),
        ("", Span("/home/me/optimal.py", 31), "  # optimal.py:31"),
        ("lhs filled", Span("optimal.py", 31), "  # lhs filled (optimal.py:31)"),
        ("", None, ""),
    ],
)
def test_comment(why, span, comment):
    func = kernel(tir.Sync("warp", why=why, span=span))
    text, again = round_trip(func)
    assert f"T.sync_warp(){comment}\n" in text
    (sync,) = [s for s, _ in tir.walk(again.kernels["gemm"].body) if isinstance(s, tir.Sync)]
    assert sync.why == why
    assert (sync.span and sync.span.line) == (span and span.line)


def test_equality_sees_a_difference():
    func = gemm()
    assert same(func, gemm())
    for other in (
        gemm(stages=2),
        gemm(synced=False),
        replace(func, shared_bytes=0),
        gemm(groups=1),
    ):
        assert not same(func, other)


# What is not TIR

SMALL = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 2), Topology("thread", 64)),
)
class Program:
    @prim_func(target=CudaTarget("nvidia.h200_sxm"))
    def f(x: Tensor[(8, 64), "f32"], *, y: Tensor[(8, 64), "f32"]):
        ring_stages = (
            T.tensor_view(0, dtype="f32", storage="smem", shape=(8, 64)),
            T.tensor_view(2048, dtype="f32", storage="smem", shape=(8, 64)),
        )
        full = T.mbarrier(4096, count=1, slots=2)
        n = T.counter()
        with Mesh(("cta",), layout=(2,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(64,), names=("t",)) as threads:
                for k in range(0, 8, 4):
                    if (k - 4) > 0:
                        n += 1
                    T.copy(x[k:k + 4, :], ring_stages[n % 2][0:4, :])
                    T.mbarrier_wait(full[n % 2], parity=0)
"""
WRONG = [
    ("x[k:k + 4, :]", "z[k:k + 4, :]", "tir-name", 24, "z"),
    ("x[k:k + 4, :]", "xx", "tir-name", 24, "did you mean x?"),
    ("n % 2][0:4, :]", "open][0:4, :]", "tir-name", 24, "open"),
    ("x[k:k + 4, :]", "x[k:n, :]", "tir-form", 24, "a window whose extent is known"),
    ("x[k:k + 4, :]", "x[k, 0, 0]", "tir-form", 24, "one index for each axis"),
    ("x[k:k + 4, :]", 'x["k"]', "tir-form", 24, "an index or start:start + extent"),
    ("x[k:k + 4, :]", "full", "tir-form", 24, "a buffer, a part of one or a number"),
    ("x[k:k + 4, :]", "ring_stages", "tir-form", 24, "name a slot: ring_stages[slot]"),
    (
        "x[k:k + 4, :]",
        "T.view(x, shape=(4, 64), index=lambda i: (i, 0))",
        "tir-form",
        24,
        "one variable",
    ),
    (
        "x[k:k + 4, :]",
        "T.view(x, shape=(4,), index=lambda i: (i,))",
        "tir-form",
        24,
        "2 index expressions",
    ),
    ("ring_stages[n % 2][0:4, :])", "3)", "tir-form", 24, "a destination"),
    (
        "ring_stages[n % 2][0:4, :])",
        "ring_stages[n % 2][0:4, :], a=x[0])",
        "tir-form",
        24,
        "a parameter",
    ),
    (
        "T.mbarrier_wait(full[n % 2], parity=0)",
        "T.sync_wrap()",
        "tir-form",
        25,
        "write T.sync_warp(...)",
    ),
    ("full[n % 2], parity=0", "x, parity=0", "tir-form", 25, "a barrier"),
    ("full[n % 2], parity=0", "full[n % 2], every=0.5", "tir-form", 25, "every to be int"),
    ("full[n % 2], parity=0", "full[n % 2], phase=0", "tir-form", 25, "T.mbarrier_wait(barrier)"),
    ("n += 1", "k += 1", "tir-form", 23, "a counter"),
    ("n += 1", "n += 0.5", "tir-form", 23, "an index expression"),
    ("n += 1", "while n: pass", "tir-form", 23, "a statement of TIR"),
    ("n += 1", "import os", "tir-form", 23, "a statement of TIR"),
    ("(k - 4) > 0", "k == 4", "tir-form", 22, "if (expression) > 0"),
    ("range(0, 8, 4)", "tf.tile(8, 4)", "tir-form", 21, "a loop over range(...)"),
    ("range(0, 8, 4)", "range()", "tir-form", 21, "range(start, stop, step)"),
    ("count=1, slots=2", "slots=2", "tir-form", 17, "no count"),
    ("count=1, slots=2", "count=x", "tir-form", 17, "count to be a whole number"),
    ("2048, dtype", '"2048", dtype', "tir-form", 15, "offset to be a whole number"),
    ('2048, dtype="f32"', '2048, dtype="f16"', "tir-form", 15, "differ in their offset only"),
    ("n = T.counter()", "n = 3", "tir-form", 18, "T.tensor_view, T.alloc_tensor"),
    (
        "n = T.counter()",
        'x = T.alloc_tensor((4,), dtype="f32", storage="gmem")',
        "tir-form",
        18,
        "x again",
    ),
    (
        "n = T.counter()",
        'n = T.alloc_tensor((4,), dtype="f32", storage="rmem", mesh=cta)',
        "tir-form",
        18,
        "the name of a mesh",
    ),
    ("n = T.counter()", "T.align(128, full)", "tir-form", 18, "a buffer"),
    ("n = T.counter()", "T.align(128, 3)", "tir-form", 18, "T.align(bytes, buffer, ...)"),
    (
        'names=("t",)',
        'names=("t",), offset=(1, 2)',
        "tir-form",
        20,
        "offset= of one number a level",
    ),
    ('layout=(64,), names=("t",)', 'layout=(65,), names=("t",)', "mesh-too-large", 20, "65"),
    ('x: Tensor[(8, 64), "f32"]', "x", "tir-form", 12, "Tensor[shape, dtype]"),
    ('"f32"], *', '"f33"], *', "dtype-unknown", 12, "f33"),
    ("*, y", "*y", "tir-form", 12, "inputs, *, outputs"),
    (
        '@prim_func(target=CudaTarget("nvidia.h200_sxm"))',
        "@func",
        "tir-form",
        12,
        "@prim_func(target=)",
    ),
    ('    entry="f",\n', "", "tir-form", 9, "@module(entry=, target=, topologies=)"),
    ("class Program", "x = 1\nclass Program", "source-syntax", 10, ""),
    ("from tilefoundry.target import CudaTarget", "print(1)", "tir-form", 2, "imports and a class"),
]


@pytest.mark.parametrize(("old", "new", "code", "line", "words"), WRONG, ids=[w[1] for w in WRONG])
def test_malformed(old, new, code, line, words):
    """Each change of a right program is refused with its code, at its line, in these words."""
    assert SMALL.count(old) >= 1
    with pytest.raises(Refusal) as caught:
        parse_program(SMALL.replace(old, new, 1), "tir.py")
    (diag,) = caught.value.diags
    assert diag.code == code
    assert diag.span is not None and (diag.span.file, diag.span.line) == ("tir.py", line)
    assert words in diag.text()
    assert not re.search(r"object at 0x|<tilefoundry", diag.text())


def test_the_small_program_is_right():
    round_trip(parse_program(SMALL, "tir.py"))
    assert parse_program(SMALL, "tir.py").kernels["f"].buffers[0].slots == 2


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("h = down(x, w)\n        return h", "tir-name", "the kernels are up"),
        ("h = up(x)\n        return h", "tir-form", "2 inputs and 1 outputs"),
        ("h = x + w\n        return h", "tir-form", "a call of a kernel"),
    ],
)
def test_malformed_steps(body, code, words):
    program = replace(two_kernels(), kernels={"up": two_kernels().kernels["up"]})
    program = replace(program, launches=program.launches[:1], results=("h",))
    text = print_program(program).replace("h = up(x, w)\n        return h", body)
    with pytest.raises(Refusal) as caught:
        parse_program(text, "tir.py")
    assert caught.value.diags[0].code == code
    assert words in str(caught.value)


# Programs as they are lowered

LOWERED = sorted((Path(__file__).parents[2] / "examples" / "gpu").glob("*.py"))


@pytest.mark.parametrize("path", LOWERED, ids=lambda p: p.stem)
def test_lowered_programs(path):
    """What is lowered from the example programs prints, and stands as before when read back."""
    try:
        loaded = load_source(str(path), None, {})
        program = lower(loaded.module, loaded.func)
    except Refusal as refusal:
        pytest.skip(str(refusal))
    text, again = round_trip(program)
    assert again.name == loaded.module.name
    assert f"class {again.name}:" in text


# Any change of a right program

TOKEN = re.compile(r'[A-Za-z_]\w*|\d+|"[^"\n]*"|\S')
STRANGE = ("", "0", "-1", "1.5", "None", "T", "min", "x", "full", "(1, 2)", "lambda: 0", "S(0)")


@pytest.mark.filterwarnings("ignore:invalid decimal literal:SyntaxWarning")  # 0and: Python's own
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_change_is_read_or_refused(data):
    """One token deleted, repeated elsewhere or replaced: no failure of our own."""
    tokens = list(TOKEN.finditer(SMALL))
    at = data.draw(st.sampled_from(tokens))
    other = data.draw(st.sampled_from([*STRANGE, *sorted({t[0] for t in tokens})]))
    text = SMALL[: at.start()] + other + SMALL[at.end() :]
    try:
        program = parse_program(text, "tir.py")
    except Refusal as refusal:
        assert str(refusal)
        assert all(d.span is not None for d in refusal.diags)
    else:
        round_trip(program)
