"""Traffic and footprint: bytes counted by hand."""

MB = 1 << 20


def moved(case, storage, **dims):
    priced = case.priced(**dims)
    return {way: tuple(f.value for f in priced.moved(storage, way)) for way in ("read", "write")}


def test_unfused_chain_passes_over_memory_at_each_operation(case):
    # x*x reads x; a+x reads a, x; b*x reads b, x: 5 reads and 3 writes of 16 MiB.
    found = moved(case("chain_plain"), "gmem")
    assert found == {"read": (80 * MB, 80 * MB), "write": (48 * MB, 48 * MB)}


def test_placed_chain_reads_and_writes_once(case):
    found = moved(case("chain_two_cuts"), "gmem")
    assert found == {"read": (16 * MB, 16 * MB), "write": (16 * MB, 16 * MB)}


def test_grid_gemm_rereads(case):
    # Each of 4352 CTAs reads 80 tiles of A (16 KiB) and of B (32 KiB); logically, A once
    # per row of CTAs: 64 * 80 * 16 KiB = 80 MiB, B once per column: 68 * 80 * 32 KiB.
    found = moved(case("gemm_grid"), "gmem")
    assert found["read"] == (80 * MB + 170 * MB, 4352 * 80 * 48 * 1024)
    assert found["write"] == (272 * MB, 272 * MB)


def test_grid_gemm_footprint(case):
    priced = case("gemm_grid").priced()
    reads, writes = priced.compulsory
    assert {n: f.value for n, f in reads.items()} == {"a": 80 * MB, "b": 170 * MB}
    assert {n: f.value for n, f in writes.items()} == {"out": 272 * MB}


def test_matrix_instruction_fetches_by_repeat(case):
    # repeat (2, 1, 4): each k-step reads A (16 KiB) once and B (32 KiB) once per warpgroup;
    # the store reads the staged tile (64 KiB) once per task.
    found = moved(case("gemm_optimal"), "smem")
    steps = 4352 * 80
    assert found["read"][1] == steps * (16 + 2 * 32) * 1024 + 4352 * 64 * 1024
    assert found["write"][1] == steps * 48 * 1024 + 4352 * 64 * 1024


def test_loop_invariant_operand_is_read_at_each_step(program):
    body = """
    @func
    def f(x: Tensor[(64,), "f32"], w: Tensor[(64,), "f32"]):
        acc = x
        for i in range(10):
            acc = acc + w
        return acc
    """
    # 10 steps read acc and w (256 B each) and write acc
    found = moved(program(body), "gmem")
    assert found == {"read": (5120, 5120), "write": (2560, 2560)}


def test_replicated_readers_each_read(program):
    body = """
    @func
    def f(w: Tensor[(64,), "f32"]):
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                r = tf.reshard(w, storage="rmem")
                return tf.reshard(r, storage="gmem")
    """
    # 128 threads read 256 B; one copy is written back, whoever writes it
    found = moved(program(body, cta=4, thread=32), "gmem")
    assert found == {"read": (256, 128 * 256), "write": (256, 256)}


def test_an_operand_that_a_unit_needs_in_part_is_read_in_part(program):
    """rhs is shared and whole, its columns are not split; lhs rows are split over threads:
    each thread reads its 1 row of lhs and all of rhs."""
    body = """
    @func
    def f(a: Tensor[(32, 16), "f32"], b: Tensor[(16, 8), "f32"]):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                x = tf.reshard(a, (32 @ thread.t, 16), "rmem")
                y = tf.reshard(b, storage="smem")
                z = tf.matmul(x, y)
                return tf.reshard(z, (32 @ thread.t, 8), "gmem")
    """
    found = moved(program(body, cta=1, thread=32), "smem")
    # copied in once by all threads together; read whole (512 B) by each of the 32
    assert found == {"read": (512, 32 * 512), "write": (512, 512)}


def test_a_whole_operand_meets_a_split_one(program):
    """x is split over 4 CTAs, s is whole in device memory and broadcast along columns:
    each CTA reads its quarter of s."""
    body = """
    @func
    def f(x: Tensor[(64, 8), "f32"], s: Tensor[(64, 1), "f32"]):
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            v = tf.reshard(x, (64 @ cta.c, 8), "rmem")
            u = v * s
            return tf.reshard(u, (64 @ cta.c, 8), "gmem")
    """
    priced = program(body, cta=4).priced()
    (read,) = [m for m in priced.traffic.moves if m.value.name == "s"]
    assert (read.part, read.executed.value) == (64, 256)  # 16 rows of 4 B; all of s once


def test_calls_move_at_each_call(program):
    body = """
    @func
    def f(x: Tensor[(16,), "f32"]):
        return g(g(x))

    @func
    def g(x: Tensor[(16,), "f32"]):
        return tf.exp(x)
    """
    assert moved(program(body), "gmem") == {"read": (128, 128), "write": (128, 128)}


def test_an_update_made_elsewhere_is_written(program):
    """The tile lives in registers and is written into out, 4 tiles of 64 B."""
    body = """
    @func
    def f(x: Tensor[(64,), "f32"]):
        out = tf.empty(Tensor[(64,), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            v = tf.reshard(x[cta.c * 16:cta.c * 16 + 16], storage="rmem")
            out = tf.insert_slice(out, v, (cta.c * 16,))
        return out
    """
    found = moved(program(body, cta=4), "gmem")
    assert found == {"read": (256, 256), "write": (256, 256)}


def test_open_extents(program):
    made = program(
        """
        @func
        def f(x: Tensor[(N, 64), "f32"]):
            return tf.exp(x)
        """,
        before='N = DimVar("N", 1, 4096)\n',
    )
    assert str(moved(made, "gmem")["read"][1]) == "256 * N"
    assert moved(made, "gmem", N=3)["read"][1] == 768


def test_an_indexed_operand_is_read_where_the_indices_point(program):
    """5 rows of 64 B of a table of 1000, and 5 indices of 8 B."""
    made = program(
        """
        @func
        def f(table: Tensor[(1000, 16), "f32"], index: Tensor[(5,), "i64"]):
            return tf.index_select(table, index, dim=0)
        """
    )
    assert moved(made, "gmem")["read"][1] == 5 * 64 + 5 * 8
    reads, _ = made.priced().compulsory
    assert (reads["table"].value, reads["table"].precision) == (64, "lower_bound")


CACHE = """
@func
def f(cache: Tensor[(1, 1000, 16), "f32"], new: Tensor[(1, 2, 16), "f32"]):
    out = tf.cache_update(cache, new, 10, 2)
    return {result}
"""


def test_an_update_writes_its_part(program):
    """2 rows of 64 B; the old cache is not read later, so nothing else moves."""
    found = moved(program(CACHE.format(result="out")), "gmem")
    assert found == {"read": (128, 128), "write": (128, 128)}


def test_an_update_of_a_value_that_lives_on_copies_it(program):
    """The old cache is returned too: 1000 rows are read and written, 2 of new read."""
    found = moved(program(CACHE.format(result="out, cache")), "gmem")
    assert found == {"read": (64128, 64128), "write": (64000, 64000)}


FILL = """
@func
def f(x: Tensor[(64,), "f32"]):
    out = tf.zeros(Tensor[(64,), "f32"])
    with Mesh(("cta",), layout=({units},), names=("c",)) as cta:
        v = tf.reshard(x[cta.c * 16:cta.c * 16 + 16], storage="rmem")
        out = tf.insert_slice(out, v, (cta.c * 16,))
    return out
"""


def test_a_fill_that_is_overwritten_whole_is_not_written(program):
    # 4 CTAs write 16 of 64 elements each: all of them; 3 CTAs leave 16 as filled
    assert moved(program(FILL.format(units=4), cta=4), "gmem")["write"] == (256, 256)
    assert moved(program(FILL.format(units=3), cta=3), "gmem")["write"] == (448, 448)
