"""Reuse windows, against a replay of every access in lockstep."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tilefoundry.analyze import reuse
from tilefoundry.analyze.function import price
from tilefoundry.lang.load import load_source
from tilefoundry.lang.parse import module_context

GPU = Path(__file__).parents[2] / "examples" / "gpu"
MB = 1 << 20


def windows(case):
    return {(w.access.home.name, w.time): w for w in case.priced().windows}


def test_walking_m_first_exceeds_the_cache(case):
    """Grid order walks a row of 68 CTAs before the next row: all of B (170 MiB) passes
    between two uses of one of its tiles, more than the 50 MiB of the cache."""
    found = windows(case("gemm_grid"))[("b", "wave")]
    assert found.window.value >= 170 * MB
    assert found.hit == 27  # 50 of 182 MiB


def test_optimal_in_one_step(case):
    found = windows(case("gemm_optimal"))
    for name in "ab":
        assert found[name, "none"].window.value == (256 + 288) * 1024
        assert found[name, "none"].space == "cta.persistent"


def test_optimal_reuses_a_across_tasks(case):
    """A task later, 16 rows of A are used again: 20 MiB of A, at most 9 or 10 columns of B
    (2.5 MiB each) on one side, and 132 tiles written (8.25 MiB)."""
    found = windows(case("gemm_optimal"))[("a", "task")]
    assert found.hit > 90
    assert found.window.value < 80 * MB


def test_invariant_operand(program):
    """w is read again at each step: between two reads, x's tile and w pass: 512 B."""
    found = windows(
        program(
            """
            @func
            def f(x: Tensor[(640,), "f32"], w: Tensor[(64,), "f32"]):
                with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                    acc = tf.zeros(Tensor[(64,), "f32", "rmem"])
                    for i in range(0, 640, 64):
                        v = tf.reshard(x[i:i + 64], storage="rmem")
                        u = tf.reshard(w, storage="rmem")
                        acc = acc + v * u
                    return tf.reshard(acc, storage="gmem")
            """,
            cta=1,
        )
    )
    assert found["w", "i"].window.value == 512
    assert ("x", "i") not in found


def test_a_loop_that_threads_walk_differently(program):
    """Warp 0 makes two steps, warp 1 one. Between two steps no more than w, 256 B, is read;
    from one task to the next w and a row of x, 512 B."""
    found = windows(
        program(
            """
            @func
            def f(x: Tensor[(2, 64), "f32"], w: Tensor[(1, 64), "f32"]):
                with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                    with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:
                        acc = tf.zeros(Tensor[(1, 64), "f32", (1, (32 @ t.l, 2)), "rmem"])
                        for task in range(2):
                            u = tf.reshard(x[task:task + 1, :], (1, (32 @ t.l, 2)), "rmem")
                            for i in range(t.w, 2):
                                v = tf.reshard(w, (1, (32 @ t.l, 2)), "rmem")
                                acc = acc + u * v
                        return tf.reshard(x, storage="gmem")
            """,
            cta=1,
            thread=64,
        )
    )
    assert found["w", "i"].window.value == 256
    assert found["w", "task"].window.value == 512


BODY = """
@func
def f(x: Tensor[(512, 16), "f32"], y: Tensor[(512, 16), "f32"]):
    out = tf.empty(Tensor[({units} * 8, 4), "f32"])
    with Mesh(("cta",), layout=({units},), names=("p",)) as cta:
        acc = tf.zeros(Tensor[(8, 4), "f32", "rmem"])
        for task in range(cta.p, {tasks}, {units}):
            m = {a} * 8
            n = {b} * 8
            for step in range(0, 16, 4):
                k = step + {turn} * (12 - 2 * step)
                s = tf.reshard(x[m:m + 8, k:k + 4], storage="smem")
                t = tf.reshard(y[n:n + 8, k:k + 4], storage="smem")
                acc = acc + tf.reshard(s, storage="rmem") * tf.reshard(t, storage="rmem")
        out = tf.insert_slice(out, tf.reshard(acc, storage="gmem"), (cta.p * 8, 0))
    return out
"""


def replay(units, tasks, a, b, turn):
    """Largest bytes touched between two uses of one tile of x at different tasks, use
    included, when all units step together. A task walks k backwards where ``turn`` is 1."""
    steps = []
    for j in range(-(-tasks // units)):
        live = [p for p in range(units) if p + j * units < tasks]
        for k in range(4):
            slot = set()
            for p in live:
                task = p + j * units
                at = k + eval(turn, {"task": task}) * (3 - 2 * k)
                slot.add(("x", eval(a, {"task": task}), at))
                slot.add(("y", eval(b, {"task": task}), at))
            steps.append((j, slot))
    largest, last = 0, {}
    for at, (j, slot) in enumerate(steps):
        for tile in slot:
            if tile[0] != "x":
                continue
            if tile in last and steps[last[tile]][0] != j:
                between = set().union(*(s for _, s in steps[last[tile] : at + 1]))
                largest = max(largest, len(between) * 8 * 4 * 4)
            last[tile] = at
    return largest


EXPRESSIONS = ["(task % 3)", "(task // 3)", "(task % 4 + task // 12 * 4)", "(task * 5 % 7)"]


@limits(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    units=st.integers(2, 5),
    tasks=st.integers(5, 24),
    a=st.sampled_from(EXPRESSIONS),
    b=st.sampled_from(EXPRESSIONS),
    turn=st.sampled_from(["0", "1", "(task // 2 % 2)", "(task % 2)"]),
)
def test_windows_bound_a_replay(program, units, tasks, a, b, turn):
    case = program(BODY.format(units=units, tasks=tasks, a=a, b=b, turn=turn), cta=units)
    found = windows(case).get(("x", "task"))
    truth = replay(units, tasks, a, b, turn)
    if found is None:
        assert truth == 0
        return
    assert found.window.precision == "upper_bound"
    # The replay also counts, at its two ends, the tiles of the step itself that only one of
    # the two steps touches: at most a step's worth more than one side.
    step = 2 * units * 8 * 4 * 4
    assert truth <= found.window.value + step
    assert found.window.value <= truth + (4 if turn in "01" else 8) * step


def test_k_backwards_on_odd_tasks_is_counted_by_pieces_as_by_tiles(program, monkeypatch):
    turned = BODY.format(units=3, tasks=20, a=EXPRESSIONS[2], b=EXPRESSIONS[1], turn="(task % 2)")
    case = program(turned, cta=3)
    told = []
    for by_tiles in (False, True):
        if by_tiles:
            monkeypatch.setattr(reuse, "_folded", lambda *_: None)
        found = windows(case)[("x", "task")]
        told.append((found.holds.value, found.window.value, found.hit))
    assert told[0] == told[1]


def test_k_backwards_in_a_program_of_many_tiles_is_decided():
    """gemm_halves walks K backwards on odd rounds. The tasks of a wave lie in two groups of 16 rows
    of tiles at most: 32 strips of A of 128 x 5120 bf16, and whole columns of B."""
    loaded = load_source(str(GPU / "gemm_halves.py"), None, {})
    module = loaded.module
    priced = price(module, module.funcs[loaded.func], module.target.load(), module_context(module),
                   {}, "cta")  # fmt: skip
    found = {(w.access.home.name, w.time): w for w in priced.windows}
    assert found["a", "task"].holds.value == 2 * 16 * 128 * 5120 * 2
    assert found["b", "task"].holds.value == 9 * 256 * 5120 * 2


CPU = Path(__file__).parents[1] / "programs_cpu"


def on_cores(name, **consts):
    loaded = load_source(str(CPU / f"{name}.py"), None, consts)
    module, func = loaded.module, loaded.module.funcs[loaded.func]
    return price(module, func, module.target.load(), module_context(module), {}, "core").windows


@pytest.mark.parametrize("name", ["softmax", "layernorm_rows", "rmsnorm_rows", "gemm_avx2"])
def test_what_is_given_up_at_once_is_given_up_step_by_step(name, monkeypatch):
    """Answers do not change by telling before how much is visited at least."""
    given_up = []
    for most in (1, 20, 100, 300, 1000, 3000):
        monkeypatch.setattr(reuse, "MOST_VISITS", most)
        with monkeypatch.context() as patch:
            patch.setattr(reuse, "_least_visits", lambda *_: 0)
            slowly = list(map(str, on_cores(name)))
        assert list(map(str, on_cores(name))) == slowly
        given_up.append(any("tile visits" in w for w in slowly))
    assert True in given_up and False in given_up


def test_too_many_rows_are_given_up_at_once(monkeypatch):
    def visited(*_):
        raise AssertionError("tiles are looked at one by one")

    monkeypatch.setattr(reuse, "visitor", visited)
    found = on_cores("softmax", ROWS=1 << 20, COLS=4096)
    assert any("tile visits" in str(w.window) for w in found)
