"""What a copy reads and writes of split values: the layout of shared storage says who wrote
what; a reader takes what its part of the result needs. All numbers by hand."""

import pytest

THREADS = """
@func
def f(x: Tensor[(8, 32), "f32"]):
    with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
        with Mesh(("thread",), layout=(8, 32), names=("w", "l")) as t:
            a = tf.reshard(x, (8 @ t.w, 32 @ t.l), "rmem")
            s = tf.reshard(a, {source}, "smem")
            r = tf.reshard(s, {result}, "{storage}")
            return tf.reshard(r, (8, 32), "gmem")
"""
CTAS = """
@func
def f(x: Tensor[(8, 32), "f32"]):
    with Mesh(("cta",), layout=(8,), names=("c",)) as cta:
        a = tf.reshard(x, (8 @ cta.c, 32), "rmem")
        s = tf.reshard(a, {source}, "{via}")
        r = tf.reshard(s, {result}, "rmem")
        return tf.reshard(r + r, (8 @ cta.c, 32), "gmem")
"""


def moves(case, name, way):
    (found,) = [m for m in case.priced().traffic.moves if (m.value.name, m.way) == (name, way)]
    return found.part, found.logical.value, found.executed.value


SPLITS = ["(8, 32)", "(8 @ t.w, 32)", "(8, 32 @ t.l)", "(8 @ t.w, 32 @ t.l)"]
READ = {  # by the split of the result: its part; all 256 threads read theirs (1 KiB is whole)
    "(8, 32)": (1024, 256 * 1024),
    "(8 @ t.w, 32)": (128, 256 * 128),
    "(8, 32 @ t.l)": (32, 256 * 32),
    "(8 @ t.w, 32 @ t.l)": (4, 256 * 4),
}


@pytest.mark.parametrize("source", SPLITS)
@pytest.mark.parametrize("result", SPLITS)
def test_a_read_of_shared_storage_is_what_the_result_needs(program, source, result):
    made = program(THREADS.format(source=source, result=result, storage="rmem"), cta=1, thread=256)
    part, executed = READ[result]
    assert moves(made, "s", "read") == (part, 1024, executed)


@pytest.mark.parametrize("source", SPLITS)
@pytest.mark.parametrize("result", SPLITS)
def test_a_copy_between_shared_storages_is_made_once(program, source, result):
    # 1 KiB in all, whoever moves what: the units divide it or one stands for all of them
    made = program(THREADS.format(source=source, result=result, storage="gmem"), cta=1, thread=256)
    assert moves(made, "s", "read")[1:] == (1024, 1024)
    assert moves(made, "r", "write")[1:] == (1024, 1024)


@pytest.mark.parametrize("source", ["(8, 32)", "(8 @ cta.c, 32)", "(8, 32 @ cta.c)"])
def test_device_memory_is_read_whole_by_each_cta(program, source):
    made = program(CTAS.format(source=source, via="gmem", result="(8, 32)"), cta=8)
    assert moves(made, "s", "read") == (1024, 1024, 8 * 1024)
    (row,) = [
        fact
        for _, fact in made.facts("memory")
        if fact.get("buffer") == "s" and fact["time"] == "none"
    ]
    assert (row["tiles"], row["shared"], row["holds"]) == (1, "8", 1024)


def test_device_memory_is_read_in_columns_that_others_wrote(program):
    # rows are written by one CTA each; each reads 4 columns of all rows: 128 B
    body = """
    @func
    def f(x: Tensor[(8, 32), "f32"]):
        with Mesh(("cta",), layout=(8,), names=("c",)) as cta:
            a = tf.reshard(x, (8 @ cta.c, 32), "rmem")
            s = tf.reshard(a, (8 @ cta.c, 32), "gmem")
            r = tf.reshard(s, (8, 32 @ cta.c), "rmem")
            return tf.reshard(r + r, (8, 32 @ cta.c), "gmem")
    """
    made = program(body, cta=8)
    assert moves(made, "s", "read") == (128, 1024, 1024)
    assert moves(made, "s", "write") == (128, 1024, 1024)


def test_a_storage_of_ones_own_is_read_in_ones_own_part(program):
    # shared memory is a CTA's: it reads the row that it holds, whatever the result is
    made = program(CTAS.format(source="(8 @ cta.c, 32)", via="smem", result="(8, 32)"), cta=8)
    assert moves(made, "s", "read")[0] == 128


@pytest.mark.parametrize("layout", ["", "(512, 1024), ", "(512 @ cta.row, 1024), "])
def test_a_unit_writes_what_it_holds(program, layout):
    # 512 * 1024 * 4 B = 2 MiB over 128 CTAs of 256 threads: 64 B each
    body = f"""
    @func
    def f(x: Tensor[(512, 1024), "f32"]):
        with Mesh(("cta",), layout=(128,), names=("row",)) as cta:
            with Mesh(("thread",), layout=(256,), names=("col",)) as t:
                r = tf.reshard(x, (512 @ cta.row, 1024 @ t.col), "rmem")
                o = tf.reshard(r, {layout}storage="gmem")
                return o
    """
    made = program(body, cta=128, thread=256)
    assert moves(made, "o", "write") == (64, 2 << 20, 2 << 20)
    footprint = made.priced().compulsory[1]
    assert [f.value for f in footprint.values()] == [2 << 20]


def test_a_copy_that_every_unit_holds_is_written_once(program):
    body = """
    @func
    def f(x: Tensor[(64,), "f32"]):
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("t",)) as t:
                r = tf.reshard(x, storage="rmem")
                o = tf.reshard(r, storage="gmem")
                return o
    """
    assert moves(program(body, cta=4, thread=32), "o", "write") == (256, 256, 256)


def test_completing_terms_is_a_lower_bound(program):
    # 256 threads hold a term of each of a CTA's 4 rows; 4 sums of 4 B are written at least
    body = """
    @func
    def f(x: Tensor[(512, 1024), "f32"]):
        with Mesh(("cta",), layout=(128,), names=("row",)) as cta:
            with Mesh(("thread",), layout=(256,), names=("col",)) as t:
                r = tf.reshard(x, (512 @ cta.row, 1024 @ t.col), "rmem")
                s = tf.reshard(tf.reduce(r, (1,)), (512 @ cta.row,), "smem")
                o = tf.reshard(s, (512 @ cta.row,), "gmem")
                return o
    """
    made = program(body, cta=128, thread=256)
    (line,) = [fact for _, fact in made.facts("memory")
               if fact["family"] == "write" and fact["value"] == "s"]  # fmt: skip
    assert (line["part"], line["executed"], line["precision"]) == (16, 2048, "lower_bound")
    (head,) = [x for x in made.head("traffic", "memory") if x["storage"] == "smem"]
    assert head["precision"] == "lower_bound"
    # reading the sums and writing them out is what it is
    (read,) = [m for m in made.priced().traffic.moves if (m.value.name, m.way) == ("s", "read")]
    assert read.executed.precision == "exact"
