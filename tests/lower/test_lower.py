"""Lowering without synchronisation: selection, views, places, slots, offsets."""

import textwrap
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilefoundry.diag import Refusal
from tilefoundry.ir.expr import evaluate
from tilefoundry.ir.mesh import Coord
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.lower.allocate import allocate
from tilefoundry.lower.func import lower_func
from tilefoundry.tir.program import For, Issue, Scalar, View, walk

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 4), Topology("thread", 128)),
)
class Program:
    @func
    def f({params}):
"""
SCOPES = """\
with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
    with Mesh(("thread",), layout=(128,), names=("t",)) as thread:
"""


def lowered(path, params, body, scoped=True):
    text = textwrap.dedent(body)
    if scoped:
        text = SCOPES + textwrap.indent(text, " " * 8)
    path.write_text(HEAD.format(params=params) + textwrap.indent(text, " " * 8))
    loaded = load_source(str(path), None, {})
    return lower_func(loaded.module, loaded.module.funcs["f"], loaded.module.target.load())


def issues(func):
    return [s for s, _ in walk(func.body) if isinstance(s, Issue)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "program.py"


# ---- the post's program


@pytest.fixture(scope="module")
def optimal():
    loaded = load_source("examples/gpu/gemm_optimal.py", None, {})
    return allocate(
        lower_func(loaded.module, loaded.module.funcs["gemm"], loaded.module.target.load())
    )


def test_the_posts_offsets(optimal):
    """Second post: slots of the ring of A at 98304, 114688 and 131072."""
    offsets = {b.name: b.offsets for b in optimal.buffers if b.storage == "smem"}
    assert offsets["lhs_ring"] == (98304, 114688, 131072)
    assert optimal.shared_bytes == 208 * 1024
    taken = [
        (o, o + size)
        for name, size in (("lhs_ring", 16384), ("rhs_ring", 32768), ("staged_dst", 65536))
        for o in offsets[name]
    ]
    assert all(o % 1024 == 0 for o, _ in taken)
    assert all(a[1] <= b[0] for a, b in zip(sorted(taken), sorted(taken)[1:], strict=False))


def test_the_posts_slots(optimal):
    """slot = (((task - cta.persistent) // 132) * 80 + k // 64) % 3"""
    loops = [s for s, _ in walk(optimal.body) if isinstance(s, For)]
    load = next(i for i in issues(optimal) if i.instr == "copy_async_tensor")
    (coord,) = {s for s in _symbols(load.writes[0].slot) if isinstance(s, Coord)}
    for p, turn, step in product((0, 5, 131), (0, 1, 7, 32), (0, 1, 2, 79)):
        env = {coord: p, loops[0].var: p + 132 * turn, loops[1].var: 64 * step}
        assert evaluate(load.writes[0].slot, env) == (turn * 80 + step) % 3


def _symbols(x):
    from tilefoundry.ir.expr import symbols

    return symbols(x)


def test_every_update_is_in_place(optimal):
    """One accumulator, no fill or copy of the output, the last store goes to its window."""
    assert [b.name for b in optimal.buffers] == [
        "acc", "lhs_ring", "rhs_ring", "tile_out", "staged_dst",
    ]  # fmt: skip
    assert [i.instr for i in issues(optimal)] == [
        "fill", "copy_async_tensor", "copy_async_tensor", "tiled_mma", "cast", "copy",
        "copy_async_tensor",
    ]  # fmt: skip
    mma = issues(optimal)[3]
    assert mma.writes[0].buffer is mma.reads[0].buffer
    assert (mma.attrs["repeat"], mma.attrs["serial"]) == ((2, 1, 4), (1, 1, 4))
    assert issues(optimal)[-1].writes[0].buffer.role == "out"


# ---- loop-carried values


def test_a_value_read_after_its_update_is_moved(path):
    func = lowered(
        path,
        'x: Tensor[(8, 128), "f32"]',
        """\
        most = tf.zeros(Tensor[(128 @ thread.t,), "f32", "rmem"])
        acc = tf.zeros(Tensor[(128 @ thread.t,), "f32", "rmem"])
        for i in range(8):
            row = tf.reshard(tf.reshape(x[i:i + 1, :], (128,)), (128 @ thread.t,), "rmem")
            higher = tf.maximum(most, row)
            acc = acc * tf.exp(most - higher) + row
            most = higher
        return tf.reshard(acc + most, (128 @ thread.t,), "gmem")
        """.replace('Tensor[(128 @ thread.t,), "f32", "rmem"]',
                    'Tensor[(128,), "f32", (128 @ thread.t,), "rmem"]'),
    )  # fmt: skip
    found = [(i.instr, i.reads, i.writes) for i in issues(func) if i.instr == "copy"]
    moves = [(r[0].buffer.name, w[0].buffer.name) for _, r, w in found if r[0].storage == "rmem"]
    # most is kept while exp reads it, and only then becomes higher; acc is updated in place
    assert ("higher", "most_2") in moves
    assert not any(name.startswith("acc") for _, name in moves)


def test_values_that_swap_need_a_third_place(path):
    func = lowered(
        path,
        'x: Tensor[(2, 128), "f32"]',
        """\
        a = tf.reshard(tf.reshape(x[0:1, :], (128,)), (128 @ thread.t,), "rmem")
        b = tf.reshard(tf.reshape(x[1:2, :], (128,)), (128 @ thread.t,), "rmem")
        for i in range(5):
            a, b = b, a
        return tf.reshard(a - b, (128 @ thread.t,), "gmem")
        """,
    )
    (loop,) = [s for s, _ in walk(func.body) if isinstance(s, For)]
    state = {}
    for step in [s for s, _ in walk(loop.body) if isinstance(s, Issue)]:
        source, target = step.reads[0].buffer.name, step.writes[0].buffer.name
        state[target] = state.get(source, source)
    heads = sorted({t for t in state if not t.endswith("_next")})
    assert {state[h] for h in heads} == set(heads)
    assert all(state[h] != h for h in heads)


def test_counts_of_uneven_loops_are_counters(path):
    func = lowered(
        path,
        'x: Tensor[(64, 128), "f32"]',
        """\
        acc = tf.zeros(Tensor[(128,), "f32", (128 @ thread.t,), "rmem"])
        for i in range(4):
            for j in range(i + 1):
                ring = tf.empty(Tensor[(1, 128), "f32", "smem"], buffers=3)
                row = tf.schedule((x[j:j + 1, :], ring), op=T.copy())
                held = tf.reshard(tf.reshape(row, (128,)), (128 @ thread.t,), "rmem")
                acc = acc + held
        return tf.reshard(acc, (128 @ thread.t,), "gmem")
        """,
    )
    (counter,) = func.counters
    load = next(i for i in issues(func) if i.writes[0].storage == "smem")
    assert load.writes[0].slot == counter.expr() % 3


# ---- views

VIEWS = ("slice", "transpose", "reshape", "pad", "unit")


@st.composite
def chains(draw):
    """Operations that rename elements, as source text, and what torch does for each."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    first, steps = shape, []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(VIEWS))
        if kind == "slice":
            starts = [draw(st.integers(0, e - 1)) for e in shape]
            stops = [draw(st.integers(s + 1, e)) for s, e in zip(starts, shape, strict=True)]
            index = ", ".join(f"{a}:{b}" for a, b in zip(starts, stops, strict=True))
            steps.append(f"y = y[{index}]")
            shape = tuple(b - a for a, b in zip(starts, stops, strict=True))
        elif kind == "transpose":
            perm = tuple(draw(st.permutations(range(len(shape)))))
            steps.append(f"y = permute(y, {perm})")
            shape = tuple(shape[p] for p in perm)
        elif kind in ("reshape", "unit"):
            count = 1
            for e in shape:
                count *= e
            a = draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
            shape = (a, count // a) if kind == "reshape" else (*shape, 1)
            steps.append(f"y = reshape(y, {shape})")
        elif not steps:  # only the end of a value can be padded by a view
            pads = tuple(draw(st.integers(0, 2)) for _ in range(2))
            steps.append(f"y = pad(y, {pads})")
            shape = (*shape[:-1], shape[-1] + sum(pads))
    return first, steps, shape


@settings(max_examples=60, deadline=None)
@given(chains())
def test_chains_of_views_are_what_torch_does(tmp_path_factory, chain):
    shape, steps, last = chain
    words = {"permute(": "tf.transpose(", "reshape(": "tf.reshape(", "pad(": "tf.pad("}
    body = ["y = x"]
    for step in steps:
        for ours, word in words.items():
            step = step.replace(ours, word)
        body.append(step.replace("tf.pad(y, ", "tf.pad(y, value=-1, pads="))
    body.append('return tf.reshard(tf.reshard(y, storage="rmem"), storage="gmem")')
    path = tmp_path_factory.mktemp("views") / "program.py"
    func = lowered(path, f'x: Tensor[{shape}, "i32"]', "\n".join(body))
    view = issues(func)[0].reads[0]
    assert isinstance(view, View) and view.shape == last

    count = 1
    for e in shape:
        count *= e
    want = torch.arange(count, dtype=torch.int32).reshape(shape)
    scope = {
        "permute": torch.permute,
        "reshape": torch.reshape,
        "pad": lambda y, pads: torch.nn.functional.pad(y, pads, value=-1),
        "y": want,
    }
    for step in steps:
        exec(step, scope)
    flat = torch.arange(count, dtype=torch.int32).reshape(shape)
    for place in product(*(range(e) for e in last)):
        env = dict(zip(view.vars, place, strict=True))
        at = tuple(evaluate(i, env) for i in view.index)
        inside = all(0 <= a < e for a, e in zip(at, shape, strict=True))
        got = int(flat[at]) if inside else view.fill
        assert got == int(scope["y"][place])


def test_results_go_backwards_through_views(path):
    """A padded, reshaped row is cut again: the store is clipped at the result's end."""
    func = lowered(
        path,
        'x: Tensor[(100,), "f32"]',
        """\
        rows = tf.reshape(tf.pad(x, (0, 28), 0.0), (32, 4))
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(128,), names=("t",)) as thread:
                r = tf.reshard(rows, storage="rmem")
                y = tf.reshard(tf.exp(r), storage="gmem")
        return tf.reshape(y, (128,))[:100]
        """,
        scoped=False,
    )
    store = issues(func)[-1].writes[0]
    assert store.buffer.role == "out" and store.buffer.shape == (100,)
    env = dict(zip(store.vars, (24, 3), strict=True))
    assert evaluate(store.index[0], env) == 99 and store.fill is not None


# ---- selection


def test_numbers_stay_in_the_instruction(path):
    func = lowered(
        path,
        'x: Tensor[(4, 128), "f32"]',
        'r = tf.reshard(x, (4 @ cta.c, 128 @ thread.t), "rmem")\n'
        'return tf.reshard(r * 2.0 + 1.0, (4 @ cta.c, 128 @ thread.t), "gmem")\n',
    )
    reads = [r for i in issues(func) for r in i.reads if isinstance(r, Scalar)]
    assert [r.value for r in reads] == [2.0, 1.0]


@pytest.mark.parametrize(
    "axis, scope", [("lane", "warp"), ("warp", "cta"), ("c", "grid")]
)  # fmt: skip
def test_a_partial_sum_is_combined_by_the_smallest_scope(path, axis, scope):
    path.write_text(
        HEAD.format(params='x: Tensor[(4, 4, 32), "f32"]')
        + textwrap.indent(
            textwrap.dedent(
                f"""\
                with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
                    with Mesh(("thread",), layout=(4, 32), names=("warp", "lane")) as t:
                        r = tf.reshard(x, (4 @ cta.c, 4 @ t.warp, 32 @ t.lane), "rmem")
                        s = tf.reduce(r, ({["c", "warp", "lane"].index(axis)},), True)
                        whole = tf.reshard(s, {_kept(axis)}, "rmem")
                        return tf.reshard(whole, {_kept(axis)}, "gmem")
                """
            ),
            " " * 8,
        )
    )
    loaded = load_source(str(path), None, {})
    func = lower_func(loaded.module, loaded.module.funcs["f"], loaded.module.target.load())
    (combine,) = [i for i in issues(func) if i.attrs.get("op") == "combine"]
    assert combine.attrs["scope"] == scope
    assert [a.name for a in combine.attrs["over"]] == [axis]


def _kept(axis):
    modes = {"c": "4 @ cta.c", "warp": "4 @ t.warp", "lane": "32 @ t.lane"}
    return "(" + ", ".join("1" if n == axis else m for n, m in modes.items()) + ")"


def test_a_function_that_calls_launches(path):
    kernel = """\
    @func
    def g(x: Tensor[(4, 128), "f32"]):
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(128,), names=("t",)) as thread:
                r = tf.reshard(x, (4 @ cta.c, 128 @ thread.t), "rmem")
                return tf.reshard(r + 1.0, (4 @ cta.c, 128 @ thread.t), "gmem")

"""
    text = HEAD.format(params='x: Tensor[(4, 128), "f32"]')
    text = text.replace("    @func\n", kernel + "    @func\n")
    path.write_text(text + "        y = g(x)\n        return g(y)\n")
    loaded = load_source(str(path), None, {})
    program = lower(loaded.module, loaded.func)
    steps = [(x.kernel, x.inputs) for x in program.launches]
    assert [k for k, _ in steps] == ["g", "g"] and list(program.kernels) == ["g"]
    assert steps[1][1] == program.launches[0].outputs
    assert program.results == program.launches[1].outputs


def test_a_part_is_not_padded_by_a_view(path):
    body = 'return tf.reshard(tf.reshard(tf.pad(x[1:3], (0, 1)), storage="rmem"), storage="gmem")\n'
    with pytest.raises(Refusal) as refused:
        lowered(path, 'x: Tensor[(4,), "i32"]', body)
    assert refused.value.diags[0].code == "lower-op"
