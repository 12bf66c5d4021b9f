"""Residency: what is alive where, in bytes counted by hand."""

import pytest

KB = 1024


def peaks(case):
    return {p.storage.name: p for p in case.priced().peaks}


def names(peak):
    return [r.home.name for r in peak.held]


def test_chain_on_8_ctas(case):
    # 4096 / 8 * 2048 * 2 B = 2 MiB each; xr, a and b are alive at the addition.
    peak = peaks(case("chain_too_big"))["rmem"]
    assert [r.pooled for r in peak.held] == [2 << 20] * 3
    assert names(peak) == ["xr", "a", "b"]
    assert peak.amount.value == 6 << 20
    assert peak.in_place.value == 4 << 20  # b written over a


def test_chain_on_256_ctas_of_256_threads(case):
    # 512 * 64 * 2 B = 64 KiB per CTA and value; 128 elements = 256 B = 64 registers a thread.
    peak = peaks(case("chain_two_cuts"))["rmem"]
    assert [r.pooled for r in peak.held] == [64 * KB] * 3
    assert peak.amount.value == 192 * KB
    assert peak.in_place.value == 128 * KB
    assert peak.each.value == 768


def test_grid_gemm(case):
    # acc and part are 128 * 256 * 4 B = 128 KiB each; the new acc is written over the old.
    found = peaks(case("gemm_grid"))
    assert found["rmem"].amount.value == 256 * KB
    assert found["smem"].amount.value == 16 * KB + 32 * KB


def test_optimal_gemm(case):
    # Rings live through the task loop: 3 * 16 + 3 * 32 KiB; staged is 128 * 256 * 2 B.
    found = peaks(case("gemm_optimal"))
    assert found["smem"].amount.value == (48 + 96 + 64) * KB
    assert names(found["smem"]) == ["rhs_ring", "staged_dst", "lhs_ring"]
    # 128 KiB of accumulator over 256 threads; its conversion packs in place.
    assert found["rmem"].amount.value == 128 * KB
    assert found["rmem"].each.value == 512
    # Every tile is written straight into out.
    a, b, out = 8192 * 5120 * 2, 5120 * 17408 * 2, 8192 * 17408 * 2
    assert found["gmem"].amount.value == a + b + out


@pytest.mark.parametrize("stages, exit", [(3, 0), (5, 1)])
def test_ring_depth_against_shared_memory(program, stages, exit):
    # 48 KiB a stage: 144 KiB fits in 227 KiB, 240 KiB does not.
    body = f"""
    @func
    def f(a: Tensor[(128, 640), "bf16"], b: Tensor[(640, 256), "bf16"]):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("t",)) as threads:
                for k in tf.tile(640, 64):
                    ar = tf.empty(Tensor[(128, 64), "bf16", "smem"], buffers={stages})
                    at = tf.schedule((a[:, k], ar), op=T.copy_async_tensor())
                    br = tf.empty(Tensor[(64, 256), "bf16", "smem"], buffers={stages})
                    bt = tf.schedule((b[k, :], br), op=T.copy_async_tensor())
        return a
    """
    made = program(body, cta=1, thread=32)
    peak = peaks(made)["smem"]
    assert sorted(r.pooled for r in peak.held) == [stages * 16 * KB, stages * 32 * KB]
    report = made.report("memory")
    assert report.exit == exit
    assert [d.fields["needs"] for d in report.findings] == ["240.00KB"] * exit


@pytest.mark.parametrize(
    "layout, size",
    [
        ("((64, 64), (66, 1))", (63 * 66 + 64) * 2),  # the last row has no padding after it
        ("Layout((64, 64), (66, 1)) + 8", (8 + 63 * 66 + 64) * 2),
        ("Layout((64, 64)) | Swizzle(3, 4, 3)", 64 * 64 * 2),
        ("(64, 64)", 64 * 64 * 2),
    ],
)
def test_a_padded_tile_takes_its_gaps_too(program, layout, size):
    body = f"""
    @func
    def f(x: Tensor[(64, 64), "bf16"]):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            tile = tf.reshard(x, {layout}, "smem")
            return tf.reshard(tf.transpose(tile, (1, 0)), storage="gmem")
    """
    assert peaks(program(body, cta=1))["smem"].amount.value == size


def test_replicated_registers_count_per_thread(program):
    """64 f32 = 256 B, a copy in each of 32 threads: 8 KiB per CTA."""
    made = program(
        """
        @func
        def f(w: Tensor[(64,), "f32"]):
            with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
                with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                    r = tf.reshard(w, storage="rmem")
                    return tf.reshard(r, storage="gmem")
        """,
        cta=4,
        thread=32,
    )
    peak = peaks(made)["rmem"]
    assert (peak.amount.value, peak.each.value) == (32 * 256, 256)


def test_too_many_registers_for_one_thread(program):
    """A thread may hold 255 registers = 1020 B; 256 f32 are 1024 B, though a CTA of 32
    such threads holds only 32 KiB of its 256."""
    made = program(
        """
        @func
        def f(x: Tensor[(32, 256), "f32"]):
            with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                    r = tf.reshard(x, (32 @ thread.t, 256), "rmem")
                    return tf.reshard(r, (32 @ thread.t, 256), "gmem")
        """,
        cta=1,
        thread=32,
    )
    report = made.report("memory")
    assert report.exit == 1
    (diag,) = report.findings
    assert (diag.fields["unit"], diag.fields["needs"]) == ("thread", "1.00KB")


def test_roles_have_their_own_registers(program):
    """Threads 0..31 hold 16 B each, threads 32..63 hold 512 B: the fullest thread has 512,
    the CTA 32 * 528 = 16896."""
    made = program(
        """
        @func
        def f(x: Tensor[(128,), "f32"], y: Tensor[(4096,), "f32"]):
            with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as threads:
                    with threads[0, :] as one:
                        a = tf.reshard(x, (128 @ one.l,), "rmem")
                    with threads[1, :] as two:
                        b = tf.reshard(y, (4096 @ two.l,), "rmem")
                        q = tf.reshard(b, (4096 @ two.l,), "gmem")
                    with threads[0, :] as one:
                        p = tf.reshard(a, (128 @ one.l,), "gmem")
            return p, q
        """,
        cta=1,
        thread=64,
    )
    peak = peaks(made)["rmem"]
    assert (peak.amount.value, peak.each.value) == (32 * 528, 512)


def test_a_value_used_in_a_loop_lives_through_it(program):
    """w is read in each step, so it is alive with the values of the body: 3 * 64 * 4 B."""
    made = program(
        """
        @func
        def f(x: Tensor[(64,), "f32"], n: Tensor[(8, 64), "f32"]):
            with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                w = tf.reshard(x, storage="rmem")
                acc = tf.zeros(Tensor[(64,), "f32", "rmem"])
                for i in range(8):
                    acc = acc + w
                return tf.reshard(acc, storage="gmem")
        """,
        cta=1,
    )
    peak = peaks(made)["rmem"]
    assert peak.amount.value == 2 * 256  # the sum is written over acc
    assert names(peak) == ["w", "acc"]


def test_a_carried_value_that_is_still_needed_is_not_overwritten(program):
    """old and new are both alive after the step: three places, not two."""
    made = program(
        """
        @func
        def f(x: Tensor[(64,), "f32"]):
            with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                acc = tf.reshard(x, storage="rmem")
                for i in range(8):
                    new = tf.exp(acc)
                    d = new * acc
                    acc = new
                    keep = d
                return tf.reshard(acc, storage="gmem")
        """,
        cta=1,
    )
    assert peaks(made)["rmem"].amount.value == 3 * 256


def test_open_extents_stay_symbolic(program):
    made = program(
        """
        @func
        def f(x: Tensor[(N, 64), "f32"]):
            y = tf.exp(x)
            return y + x
        """,
        before='N = DimVar("N", 1, 4096)\n',
    )
    peak = peaks(made)["gmem"]
    assert str(peak.amount.value) == "768 * N"  # x, y and the sum: 3 * 256 B a row
    bound = {p.storage.name: p for p in made.priced(N=10).peaks}["gmem"]
    assert bound.amount.value == 7680


@pytest.mark.parametrize(
    "step, tiles",
    [
        ("a + 1.0", 2),  # x, and a written over itself
        ("tf.matmul(a, a)", 3),  # x, a, and the product beside it
        ("a + tf.transpose(a, (1, 0))", 3),  # element (i, j) is read after (j, i) is written
        ("tf.softmax(a, 0)", 3),
        ("tf.exp(a) + a", 3),  # x, a, exp(a); the sum over a
        ("tf.matmul(tf.exp(a), a)", 4),  # x, a, exp(a), and the product
    ],
)
def test_a_step_is_written_over_its_head_only_where_nothing_is_read_again(program, step, tiles):
    body = f"""
    @func
    def f(x: Tensor[(128, 128), "f32"]):
        a = tf.exp(x)
        for i in range(4):
            a = {step}
        return a
    """
    assert peaks(program(body))["gmem"].amount.value == tiles * 64 * KB


def test_a_start_that_the_loop_reads_is_not_overwritten(program):
    # x, a, b, c of 64 KiB: b starts as a, and a is read at every step.
    body = """
    @func
    def f(x: Tensor[(128, 128), "f32"]):
        a = tf.exp(x)
        for i in range(4):
            b = a
            for j in range(2):
                c = b + a
                b = c * 2.0
            a = b
        return a
    """
    assert peaks(program(body))["gmem"].amount.value == 4 * 64 * KB


def test_scratch_of_a_scope_is_held_by_every_unit(program):
    # x, and what returns, of 64 KiB; s of 32 KiB for each of the 8 CTAs, not for their threads.
    body = """
    @func
    def f(x: Tensor[(128, 128), "f32"]):
        out = tf.empty(Tensor[(128, 128), "f32"])
        with Mesh(("cta",), layout=(8,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                s = tf.empty(Tensor[(64, 128), "f32"])
                for r in range(2):
                    v = tf.reshard(x[r:r + 1, :], (1, 32 @ thread.t, 4), "rmem")
                    s = tf.insert_slice(s, v, (r, 0))
                    w = tf.reshard(s[r:r + 1, :], (1, 32 @ thread.t, 4), "rmem")
                    out = tf.insert_slice(out, w, (r, 0))
        return out
    """
    made = program(body, cta=8, thread=32)
    assert peaks(made)["gmem"].amount.value == (64 + 64 + 8 * 32) * KB


CALLED = """
@func
def f(x: Tensor[(N, 256), "f32"]):
    a = tf.exp(x)
    for i in range(3):
        a = g(a)
    return a

@func
def g(x: Tensor[(N, 256), "f32"], w: ConstTensor[(256, 256), "f32"]):
    b = tf.exp(x)
    c = x * b
    return h(c + b)

@func
def h(x: Tensor[(N, 256), "f32"], w: ConstTensor[(256, 256), "f32"], v: ConstTensor[(256,), "f32"]):
    return tf.matmul(x, w) + v
"""


@pytest.mark.parametrize("rows", [1, 64])
def test_what_callees_hold_counts_in_the_caller(program, rows):
    # Rows of 1 KiB. f: x, a. g: b, c, their sum. Fullest there, or in h: the sum, the product,
    # its sum with v. w of 256 KiB is one weight, v takes 1 KiB.
    case = program(CALLED, before='N = DimVar("n", 1, 64)')
    peak = {p.storage.name: p for p in case.priced(n=rows).peaks}["gmem"]
    assert peak.amount.value == 5 * rows * KB + 257 * KB


def test_a_callee_that_does_not_fit_is_refused_in_the_caller(program):
    # 256 * 256 * 4 B = 256 KiB of 227 KiB in each CTA.
    body = """
    @func
    def f(x: Tensor[(256, 256), "f32"]):
        return g(x)

    @func
    def g(x: Tensor[(256, 256), "f32"]):
        with Mesh(("cta",), layout=(8,), names=("c",)) as cta:
            s = tf.reshard(x, (256, 256), "smem")
            e = tf.reshard(s, (256, 256), "gmem")
        return e
    """
    report = program(body, cta=8).report("memory")
    assert [d.code for d in report.findings] == ["capacity-exceeded"]
    assert report.findings[0].fields["needs"] == "256.00KB"


@pytest.mark.parametrize("families", [("memory",), ("compute-cost", "memory", "roofline")])
def test_values_without_elements_take_nothing(program, families):
    body = """
    @func
    def f(x: Tensor[(N, 0), "f32"], y: Tensor[(64, 0), "f32"]):
        out = tf.empty(Tensor[(64, 0), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            for i in range(cta.c, 61, 4):
                out = tf.insert_slice(out, tf.exp(y[i:i + 3, :]), (i, 0))
        return x + 1.0, out
    """
    case = program(body, cta=4, before='N = DimVar("n", 1, 64)')
    rows = case.head("footprint", *families)
    assert rows and {r.get("read", r.get("written")) for r in rows} == {0}
