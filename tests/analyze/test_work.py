"""Compute cost: logical, executed and per unit, from hand arithmetic."""


def costs(case, **options):
    priced = case.priced(**options)
    return {
        ".".join(k): (c.logical.value, c.executed.value, c.per_unit.value, c.per_unit.precision)
        for k, c in priced.cost.items()
    }


def test_gemm_grid(case):
    # 2 * 8192 * 17408 * 5120 = 1460288880640; one CTA of 4352: / 4352 = 335544320.
    # acc + part: 8192 * 17408 * 80 steps = 11408506880; cast: 8192 * 17408 = 142606336.
    found = costs(case("gemm_grid"))
    assert found["matrix.bf16"] == (1460288880640, 1460288880640, 335544320, "exact")
    total = 11408506880 + 142606336
    assert found["float.f32"] == (total, total, total // 4352, "exact")


def test_gemm_persistent(case):
    # The busiest of 132 CTAs runs 33 tasks of 2 * 128 * 256 * 5120 = 335544320.
    found = costs(case("gemm_optimal"))
    assert found["matrix.bf16"] == (1460288880640, 1460288880640, 33 * 335544320, "exact")
    assert found["float.f32"][2] == 33 * 128 * 256  # one cast of the tile per task


def test_gemm_persistent_per_thread(case):
    # 256 of 384 threads share a CTA's products; the other 128 have none.
    found = costs(case("gemm_optimal"), level="thread")
    assert found["matrix.bf16"][2:] == (33 * 335544320 // 256, "exact")


def test_replication_counts(program):
    """Each of 4 CTAs and 32 threads holds a copy of w and squares it: 128 times 64."""
    found = costs(
        program(
            """
            @func
            def f(w: Tensor[(64,), "f32"]):
                with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
                    with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                        r = tf.reshard(w, storage="rmem")
                        s = r * r
                        return tf.reshard(s, storage="gmem")
            """,
            cta=4,
            thread=32,
        )
    )
    assert found == {"float.f32": (64, 64 * 128, 64 * 32, "exact")}


def test_a_split_divides_and_an_unsplit_axis_repeats(program):
    """x is split over 4 rows; 2 columns each do the same: 2 * 64 executed, 16 per CTA."""
    found = costs(
        program(
            """
            @func
            def f(x: Tensor[(64,), "f32"]):
                with Mesh(("cta",), layout=(4, 2), names=("r", "c")) as cta:
                    v = tf.reshard(x, (64 @ cta.r,), "rmem")
                    return tf.reshard(tf.exp(v), (64 @ cta.r,), "gmem")
            """,
            cta=8,
        )
    )
    assert found == {"special.f32": (64, 128, 16, "exact")}


def test_shared_memory_work_is_done_once_per_cta(program):
    """A reduction of a shared value is done once by the CTA's 32 threads together; their
    even share, 64 / 32 = 2 operations, is the least that the busiest thread does."""
    made = program(
        """
        @func
        def f(x: Tensor[(4, 64), "f32"]):
            with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
                with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                    s = tf.reshard(x, (4 @ cta.c, 64), "smem")
                    r = tf.reduce(s, (1,), True, "sum")
                    return tf.reshard(r, (4 @ cta.c, 1), "gmem")
        """,
        cta=4,
        thread=32,
    )
    assert costs(made) == {"float.f32": (256, 256, 64, "exact")}
    assert costs(made, level="thread") == {"float.f32": (256, 256, 2, "lower_bound")}


def test_a_split_contraction_is_divided(program):
    """K is split over 4 CTAs: each does a quarter of 2 * 8 * 16 * 64 = 16384; completing
    the partial sums adds 3 terms to each of the 8 * 16 results."""
    found = costs(
        program(
            """
            @func
            def f(a: Tensor[(8, 64), "f32"], b: Tensor[(64, 16), "f32"]):
                with Mesh(("cta",), layout=(4,), names=("k",)) as cta:
                    x = tf.reshard(a, (8, 64 @ cta.k), "rmem")
                    y = tf.reshard(b, (64 @ cta.k, 16), "rmem")
                    c = tf.matmul(x, y)
                    return tf.reshard(c, (8, 16), "gmem")
            """,
            cta=4,
        )
    )
    assert found["matrix.f32"] == (16384, 16384, 4096, "exact")
    assert found["float.f32"][0] == 3 * 8 * 16


def test_roles_do_not_add_up(program):
    """Two roles of one CTA: threads 0..31 do 64 exp, threads 32..63 do 2 * 64 products; the
    busiest thread does the larger of the two shares, not their sum."""
    made = program(
        """
        @func
        def f(x: Tensor[(64,), "f32"], y: Tensor[(128,), "f32"]):
            with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as threads:
                with threads[0, :] as one:
                    a = tf.reshard(x, (64 @ one.l,), "rmem")
                    p = tf.reshard(a * a, (64 @ one.l,), "gmem")
                with threads[1, :] as two:
                    b = tf.reshard(y, (128 @ two.l,), "rmem")
                    q = tf.reshard(b * b, (128 @ two.l,), "gmem")
            return p, q
        """,
        thread=64,
    )
    assert costs(made, level="thread") == {"float.f32": (192, 192, 4, "exact")}


def test_calls_are_counted_at_each_call(program):
    made = program(
        """
        @func
        def f(x: Tensor[(16,), "f32"]):
            y = g(x)
            for i in range(5):
                y = g(y)
            return y

        @func
        def g(x: Tensor[(16,), "f32"]):
            return tf.exp(x)
        """
    )
    assert costs(made)["special.f32"][:2] == (96, 96)  # 6 calls of 16


def test_triangle(program):
    """Causal blocks: 36 of the 64 (i, j) pairs, 2 * 8 * 8 * 16 = 2048 each."""
    body = """
    @func
    def f(q: Tensor[(64, 16), "f32"], k: Tensor[(64, 16), "f32"]):
        out = tf.empty(Tensor[(64, 8), "f32"])
        with Mesh(("cta",), layout=(4,), names=("p",)) as cta:
            for i in range(cta.p, 8, 4):
                acc = tf.zeros(Tensor[(8, 8), "f32", "rmem"])
                qi = tf.reshard(q[i * 8:i * 8 + 8, :], storage="smem")
                for j in range(0, i + 1):
                    kj = tf.reshard(k[j * 8:j * 8 + 8, :], storage="smem")
                    acc = acc + tf.matmul(qi, kj, b_layout="NK")
                out = tf.insert_slice(out, tf.reshard(acc, storage="gmem"), (i * 8, 0))
        return out
    """
    found = costs(program(body, cta=4))
    assert found["matrix.f32"] == (36 * 2048, 36 * 2048, 12 * 2048, "exact")
