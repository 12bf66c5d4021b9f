"""Twenty cases that must come out right, in order: one test for each number at least.

The post's GEMM is 8192 x 17408 x 5120 in bf16 with tiles of 128 x 256 x 64, 132 persistent
CTAs, ring slots in threes; figures are by hand from that.
"""

import sys
from collections import Counter
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from time import process_time

import pytest
from trapped import families, issues, kernel, lowered, program, right, seen, syncs

from tilefoundry.analyze.figure import Binding
from tilefoundry.analyze.function import price
from tilefoundry.analyze.report import analyze
from tilefoundry.analyze.tiles import sharing
from tilefoundry.analyze.trips import trips
from tilefoundry.check.candidates import fixes, sites
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Block, Loop
from tilefoundry.lang.load import load_source
from tilefoundry.lang.parse import module_context
from tilefoundry.layout import Swizzle
from tilefoundry.lower.finalize import finalize
from tilefoundry.plan.ask import ask
from tilefoundry.targets.contract.place import place
from tilefoundry.targets.cuda.instr import mma, wgmma
from tilefoundry.tir.equal import same
from tilefoundry.tir.parse import parse_program
from tilefoundry.tir.plans import participants, plan_of
from tilefoundry.tir.printer import print_program
from tilefoundry.tir.program import For, Issue, Sync, walk
from tilefoundry.verify import verify

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / part) for part in ("tir", "plan", "programs")]
import sizes  # noqa: E402
from faults import FAMILY, faults, swap  # noqa: E402
from plan_programs import tutorial  # noqa: E402

KB = 1024


@cache
def post():
    """The post's program, loaded and lowered."""
    loaded = load_source(sizes.path("gemm_optimal"), None, {})
    return loaded, lowered(loaded)


@cache
def small(case="gemm_optimal"):
    """A program at a size to execute."""
    return load_source(sizes.path(case), None, dict(sizes.INTERPRET[case]))


def plan(func, number):
    """The plan of the ``number``-th tensor copy."""
    found = [(s, m) for s, m in walk(func.body)
             if isinstance(s, Issue) and s.instr == "copy_async_tensor"]  # fmt: skip
    return plan_of(found[number][0], participants(found[number][1], func))


def priced(loaded):
    module = loaded.module
    func = module.funcs[loaded.func]
    return price(module, func, module.target.load(), module_context(module), {}, "cta")


def buffer(func, name):
    (found,) = [b for b in func.buffers if b.name == name]
    return found


X = 'x: Tensor[(128, 32), "f32"]'


def test_case_1_a_loop_carried_update_is_in_place(tmp_path):
    func = post()[1]
    (product_,) = issues(func, "tiled_mma")
    assert product_.reads[0].buffer is product_.writes[0].buffer
    assert [b.name for b in func.buffers if b.storage == "rmem"] == ["acc", "tile_out"]
    body = """
    out = tf.empty(Tensor[(32, 32), "f32"])
    acc = tf.zeros(Tensor[(32, 32), "f32", (32, 32 @ t.lane), "rmem"])
    for i in range(4):
        acc = acc + tf.reshard(x[i * 32:i * 32 + 32, :], (32, 32 @ t.lane), "rmem")
    return tf.insert_slice(out, acc, (0, 0))
    """
    made = kernel(right(program(tmp_path, X, body, thread=32), ("round-robin",)))
    (add,) = issues(made, "binary")
    assert add.reads[0].buffer is add.writes[0].buffer
    copies = [(c.reads[0].storage, c.writes[0].storage) for c in issues(made, "copy")]
    assert copies == [("gmem", "rmem"), ("rmem", "gmem")]


@pytest.mark.parametrize("start", ["empty", "zeros"])
def test_case_2_no_fill_of_the_whole_output(tmp_path, start):
    """Four CTAs write a quarter each: 128 * 32 * 4 bytes in all, charged and executed."""
    body = """
    row = cta.c * 32
    held = tf.reshard(x[row:row + 32, :], (32, 32 @ t.lane), "rmem")
    out = tf.insert_slice(out, held + 1.0, (row, 0))
    return out
    """
    before = f'out = tf.{start}(Tensor[(128, 32), "f32"])\n'
    loaded = program(tmp_path, X, body, thread=32, cta=4, before=before)
    made = kernel(right(loaded, ("round-robin",)))
    stores = [s for s in issues(made, "copy", "fill") if s.writes[0].storage == "gmem"]
    assert [s.instr for s in stores] == ["copy"]
    assert priced(loaded).moved("gmem", "write")[1].value == 128 * 32 * 4
    assert priced(post()[0]).moved("gmem", "write")[1].value == 8192 * 17408 * 2


def test_case_3_synchronisation_is_complete():
    """The post's kernel is accepted, and without any one statement that matters refused."""
    assert verify(post()[1]) == ()
    func = lowered(small())
    tried = 0
    for fault in faults(func):
        if fault.kind.startswith("drop"):
            found = families(fault.func)
            assert found & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {found}"
            tried += 1
    assert tried >= 15
    right(small(), ("lagging-engines", "random"), exact=False)


@pytest.mark.parametrize("kind", ["wgmma", "store"])
def test_case_4_a_buffer_is_reused_when_its_access_is_complete(kind):
    """Slots are given back behind the wait for the group that reads them, the staged tile
    behind the wait for its store's reads; without, both the verifier and an execution see it."""
    func = lowered(small("gemm_own_storer"))
    order = [s for s, _ in walk(func.body) if isinstance(s, Sync)]
    name = "wgmma_wait" if kind == "wgmma" else "bulk_wait"
    barrier = "lhs_ring_empty" if kind == "wgmma" else "staged_dst_empty"
    for stmt in order:
        if stmt.kind == "arrive" and stmt.barrier.name == barrier:
            before = order[order.index(stmt) - 1]
            assert before.kind == name
            moved = swap(func, before)
            assert families(moved) & {"sync-race", "sync-proxy", "sync-registers"}
            assert seen(moved, ("lagging-engines",))


def test_case_5_swizzled_tiles_are_aligned_to_1024():
    func = post()[1]
    tiles = [b for b in func.buffers if b.storage == "smem"]
    assert len(tiles) == 3 and all(b.layout.swizzle == Swizzle(3, 4, 3) for b in tiles)
    assert all(at % 1024 == 0 for b in tiles for at in b.offsets)
    taken = sorted((at, at + b.type.bits(b.shape) // 8) for b in tiles for at in b.offsets)
    assert all(a[1] <= b[0] for a, b in pairwise(taken))
    assert taken[-1][1] == 208 * KB


def test_case_6_the_swizzle_is_of_bytes():
    """128-byte rows: chunk c of row r lies at chunk c ^ (r % 8). Bits 7 to 9 of the byte
    address; of the element's index it would be bits 6 to 8 of another number."""
    where = place(buffer(post()[1], "lhs_ring").type)
    table = {(1, 0): 144, (1, 8): 128, (7, 0): 1008, (8, 0): 1024, (64, 0): 8192, (1, 16): 176}
    assert {at: where.byte(at) for at in table} == table
    for r, c in product(range(0, 128, 3), range(0, 64, 5)):
        assert where.byte((r, c)) == 128 * r + 16 * (c // 8 ^ r % 8) + 2 * (c % 8)


ACCUMULATOR = {
    (0, 0): (128, 0), (0, 1): (128, 1), (8, 0): (128, 2), (1, 0): (132, 0), (0, 2): (129, 0),
    (0, 8): (128, 4), (9, 3): (133, 3), (16, 0): (160, 0), (64, 0): (256, 0),
    (127, 255): (383, 127),
}  # fmt: skip
"""(row, column) -> (thread, register) of the post's accumulator (PTX ISA, wgmma, matrix D)."""


def test_case_7_registers_in_the_order_of_the_isa():
    acc = buffer(post()[1], "acc")
    digits = acc.layout.digits(acc.shape)
    env = wgmma.ATOM.completed({"n": 256}, 16)
    for (row, column), (thread, register) in ACCUMULATOR.items():
        at = (row, column)
        found = {d.axis.name: at[d.dim] // d.inner % d.axis.extent for d in digits}
        assert 128 + sum(found[d.axis.name] * d.axis.stride for d in digits) == thread
        unit = found["warp"], found["lane8"], found["lane4"]
        assert wgmma.C.element(unit, register, env) == (row % 64, column)
    # mma.sync m16n8k16: lane = 4 group + member
    env = mma.SM80.completed({}, 16)
    for pattern, at, lane, register in (
        (mma.C, (0, 1), 0, 1), (mma.C, (8, 0), 0, 2), (mma.C, (1, 0), 4, 0),
        (mma.B, (1, 0), 0, 1), (mma.B, (8, 0), 0, 2), (mma.B, (0, 1), 4, 0),
    ):  # fmt: skip
        assert pattern.element((lane % 4, lane // 4), register, env) == at


def test_case_8_sharing_of_tiles_is_counted():
    """The first wave is of tasks 0 to 131: row task % 16, column task // 16 % 68."""
    rows, columns = Counter(t % 16 for t in range(132)), Counter(t // 16 for t in range(132))
    found = priced(post()[0])
    for name, counts, size in (("a", rows, 16 * KB), ("b", columns, 32 * KB)):
        (access,) = [a for a in found.accesses if a.home.name == name and a.move.way == "read"]
        shared = sharing(found.program, access, 132)
        assert (shared.tiles, shared.least, shared.most) == (
            len(counts), min(counts.values()), max(counts.values()),
        )  # fmt: skip
        assert access.size == size
    assert (16 * 16 * KB, 9 * 32 * KB) == (256 * KB, 288 * KB)
    text = analyze(post()[0], ["memory"], {}, None).text()
    assert "256.00KB" in text and "288.00KB" in text


def test_case_9_predicted_time_depends_on_the_depth_of_the_ring(tmp_path):
    """One slot: the loads of 48 KiB, then the product. Three: the product alone. The SM moves
    128 bytes a clock of 1.98 GHz and multiplies at 989.5 / 132 Tflop/s."""
    path = tmp_path / "persistent.py"
    path.write_text(tutorial("persistent.py"), encoding="utf-8")
    (answer,) = ask(load_source(str(path), None, {}), {}, 1)
    found = {
        p.slots: float(p.bound.step)
        for p in answer.found.plans
        if p.compute.use.params.get("form") == "SS" and p.compute.consumers.grid == (2, 1)
        and p.moves[0].instr.path == "copy_async_tensor" and p.store == "loader"
        and p.roles == "producer apart"
    }  # fmt: skip
    multiply = 2 * 128 * 256 * 64 * 132 / 989.5e12
    assert found[3] == pytest.approx(multiply)
    assert found[1] == pytest.approx(multiply + 48 * KB / (128 * 1.98e9))


@pytest.mark.parametrize(("ctas", "waves", "tail"), [(264, 1, 264), (400, 2, 136), (529, 3, 1)])
def test_case_10_waves_with_two_ctas_on_a_processor(tmp_path, ctas, waves, tail):
    """2048 threads of an SM hold two CTAs of 1024: 264 at once on 132 SMs."""
    body = f"""
    held = tf.reshard(x, ({ctas} @ cta.c, 32 @ t.warp, 32 @ t.lane), "rmem")
    return tf.reshard(held + 1.0, ({ctas} @ cta.c, 32 @ t.warp, 32 @ t.lane), "gmem")
    """
    x = f'x: Tensor[({ctas}, 32, 32), "f32"]'
    made, _ = finalize(program(tmp_path, x, body, thread=1024, cta=ctas))
    (units,) = [n for n in kernel(made).notes if n.startswith("units")]
    for word in ("processors=132", "resident=2", f"waves={waves}", f"tail={tail}/264"):
        assert word in units.split(), units


def test_case_11_the_authors_order_is_kept():
    """Issues stand in the order of the lines that they come from, in the author's loops."""
    func = post()[1]
    found = [s for s, _ in walk(func.body) if isinstance(s, (Issue, For))]
    lines = [s.span.line for s in found]
    assert lines == sorted(lines)
    words = [s.instr if isinstance(s, Issue) else "for" for s in found]
    assert words == ["for", "fill", "for", "copy_async_tensor", "copy_async_tensor", "tiled_mma",
                     "cast", "copy", "copy_async_tensor"]  # fmt: skip


@pytest.mark.parametrize(
    "rows", ["2 @ use.wm, {n}, 2, 8 @ use.l8", "{n}, 2 @ use.wm, 2, 8 @ use.l8"]
)
def test_case_12_blocked_and_interleaved_warp_tiles(tmp_path, rows):
    """64 x 32 x 32 by 2 x 2 warps: their tiles of 16 rows together, or in turn."""
    held = '"rmem"'
    a_rows, c_rows = rows.format(n=2), rows.format(n=2)
    body = f"""
    out = tf.empty(Tensor[(64, 32), "f32"])
    with Mesh(t, layout=((2, 2, 4, 8), (64, 32, 1, 4)), names=("wm", "wn", "l4", "l8")) as use:
        place = tf.empty(Tensor[(64, 32), "bf16", Layout((64, 32)) | Swizzle(2, 4, 3), "smem"])
        lhs = tf.schedule((a, place), op=T.copy_async())
        other = tf.empty(Tensor[(32, 32), "bf16", Layout((32, 32)) | Swizzle(2, 4, 3), "smem"])
        rhs = tf.schedule((b, other), op=T.copy_async())
        a_to = tf.empty(Tensor[(64, 32), "bf16", ({a_rows}, 2, 2, 4 @ use.l4, 2), {held}])
        a_frag = tf.schedule((lhs, a_to), op=T.ldmatrix())
        b_to = tf.empty(Tensor[(32, 32), "bf16", (2, 2, 4 @ use.l4, 2, 2 @ use.wn, 2, 8 @ use.l8), {held}])
        b_frag = tf.schedule((rhs, b_to), op=T.ldmatrix())
        acc = tf.zeros(Tensor[(64, 32), "f32", ({c_rows}, 2 @ use.wn, 2, 4 @ use.l4, 2), {held}])
        acc = tf.schedule((acc, a_frag, b_frag), op=T.tiled_mma(atom=atom), repeat=(4, 4, 2))
        out = tf.insert_slice(out, acc, (0, 0))
    return out
    """  # noqa: E501
    made = right(program(tmp_path, 'a: Tensor[(64, 32), "bf16"], b: Tensor[(32, 32), "bf16"]', body,
                         thread=128, consts='atom = T.cuda.sm80.Mma(dtype="bf16")'))  # fmt: skip
    (product_,) = issues(kernel(made), "tiled_mma")
    assert product_.attrs["serial"] == (2, 2, 2)


def straight(folder, statement, count):
    body = f"""
    held = tf.reshard(x[0:32, :], (32, 32 @ t.lane), "rmem")
{(chr(10)).join(["    " + statement] * count)}
    return tf.reshard(held, (32, 32 @ t.lane), "gmem")
    """
    return program(folder, X, body, thread=32)


@pytest.mark.parametrize(
    ("statement", "count", "made"),
    [("held = tf.maximum(held, 1.0 - held)", 250, 500), ("held = held + 1.0", 1000, 1000)],
    ids=["13 a diamond of 500 nodes", "14 a chain of 1000"],
)
def test_cases_13_and_14_long_programs(tmp_path, statement, count, made):
    """Lowered, verified and executed without recursion on their depth, in linear time."""
    loaded = straight(tmp_path, statement, count)
    depth = sys.getrecursionlimit()
    start = process_time()
    sys.setrecursionlimit(400)
    try:
        program_, _ = finalize(loaded)
    finally:
        sys.setrecursionlimit(depth)
    assert process_time() - start < 5
    assert len(issues(kernel(program_), "binary", "unary")) == made
    right(loaded, ("round-robin",), made=program_)


@pytest.mark.parametrize(
    "start", [lambda p: p, lambda p: 131 - p, lambda p: (5 * p + 3) % 132], ids="abc"
)
def test_case_15_steps_of_a_strided_loop_add_up(start):
    """Starts that are each residue once: every task once, 4352; not 132 times the most
    that one has. Starts of one residue are counted as often as they are walked."""
    axis = Axis("cta", "p", 132, 1)
    p = Coord("p", 0, 131, axis=axis).expr()

    def total(first):
        loop = Loop(LoopVar("task", 0, 4351), first, 4352, 132, (), Block(()))
        return trips([loop], Binding({})).total([axis])

    assert total(start(p)) == 4352
    # each start twice: 66 residues of 132, 33 steps of those below 128
    assert total(p // 2) == sum(-(-(4352 - q // 2) // 132) for q in range(132)) == 132 * 33


def test_case_15_operations_of_the_post_are_exact():
    found = priced(post()[0]).cost["matrix", "bf16"].executed
    assert (found.value, found.precision) == (2 * 8192 * 17408 * 5120, "exact")


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_case_16_a_reduction_over_a_split_axis(tmp_path, kind):
    """Rows over two warps, columns over lanes: all sums cross both. 32 x 32 values to one."""
    body = f"""
    out = tf.empty(Tensor[(4, 1), "f32"])
    for i in range(4):
        held = tf.reshard(x[i * 32:i * 32 + 32, :], (2 @ t.warp, 16, 32 @ t.lane), "rmem")
        part = tf.reduce(held, (0, 1), True, "{kind}")
        whole = tf.reshard(part, (1, 1), "rmem")
        out = tf.insert_slice(out, whole, (i, 0))
    return out
    """
    loaded = program(tmp_path, X, body, thread=64)
    made = kernel(right(loaded))
    (combine,) = [i for i in issues(made, "reduce") if i.attrs["op"] == "combine"]
    assert combine.attrs["scope"] == "cta"
    assert sorted(a.name for a in combine.attrs["over"]) == ["lane", "warp"]
    # in each of 4 tiles 1024 values go into the threads' own results, 63 steps join those
    assert priced(loaded).cost["float", "f32"].logical.value == 4 * (1024 + 63)


def test_case_17_a_map_of_rank_4():
    """B's tile as groups of 64 columns and 16 rows, the strides of 17408 columns."""
    found = plan(post()[1], 1)
    assert found.dims == (64, 16, 272, 320)
    assert found.strides_bytes == (34816, 128, 557056)
    assert found.box == (64, 16, 4, 4)
    assert 17408 * 2 == 34816 and 64 * 2 == 128 and 16 * 34816 == 557056
    a = plan(post()[1], 0)
    assert (a.dims, a.strides_bytes, a.box) == ((5120, 8192), (10240,), (64, 128))


def test_case_18_a_tile_beyond_a_box_is_split(tmp_path):
    """512 rows of 64 columns: two boxes of 256 rows, 32 KiB apart in shared memory; one
    barrier expects the bytes of both."""
    body = """
    out = tf.empty(Tensor[(512, 64), "bf16"])
    place = tf.empty(Tensor[(512, 64), "bf16", Layout((512, 64)) | Swizzle(3, 4, 3), "smem"])
    tile = tf.schedule((x, place), op=T.copy_async_tensor())
    out = tf.insert_slice(out, tf.reshard(tile, (512, 32 @ t.lane, 2), "rmem"), (0, 0))
    return out
    """
    x = 'x: Tensor[(512, 64), "bf16"]'
    made = kernel(right(program(tmp_path, x, body, thread=32), ("lagging-engines",)))
    found = plan(made, 0)
    assert found.box == (64, 256)
    assert [(i.smem, i.coordinates) for i in found.issues] == [(0, (0, 0)), (32 * KB, (0, 256))]
    assert [s.bytes for s in syncs(made, "expect")] == [64 * KB]


def test_case_19_candidates_propose_the_accumulators_layout(tmp_path):
    """Two warpgroups, tile 128 x 256: the ISA's order over (group, warp, lane8, lane4). What
    is proposed is what the instruction then accepts."""
    text = """
    with Mesh(t[4:12, :], layout=(2, 4, 8, 4), names=("group", "warp", "lane8", "lane4")) as use:
        place = tf.empty(Tensor[(128, 64), "bf16", Layout((128, 64)) | Swizzle(3, 4, 3), "smem"])
        lhs = tf.schedule((a, place), op=T.copy())
        other = tf.empty(Tensor[(64, 256), "bf16", Layout((64, (4, 64)), (64, (4096, 1))) | Swizzle(3, 4, 3), "smem"])
        rhs = tf.schedule((b, other), op=T.copy())
        part = tf.matmul(lhs, rhs, out_dtype="f32")
        out = tf.reshard(part, storage="gmem")
    return out
    """  # noqa: E501
    params = 'a: Tensor[(128, 64), "bf16"], b: Tensor[(64, 256), "bf16"]'
    loaded = program(tmp_path, params, text, thread=384)
    (site,) = [s for s in sites(loaded.module, "f") if s.node.op.name == "matmul"]
    (found,) = [c for c in site.candidates if c.contract.path == "cuda.sm90.Wgmma"]
    assert found.answer.clause == "C"
    wanted = "(2 @ {0}.group, 4 @ {0}.warp, 2, 8 @ {0}.lane8, 32, 4 @ {0}.lane4, 2)"
    proposed = fixes(site, found)
    name = next(n for n in ("compute", "use", "units") if wanted.format(n) in proposed[0])
    layout = wanted.format(name).replace(f"{name}.", "use.")
    body = text.replace(
        'part = tf.matmul(lhs, rhs, out_dtype="f32")',
        f'acc = tf.zeros(Tensor[(128, 256), "f32", {layout}, "rmem"])\n'
        "        part = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=T.cuda.sm90.Wgmma("
        'n=256, dtype="bf16", form=T.cuda.sm90.Form.SS)))',
    )
    program(tmp_path, params, body, thread=384)


def test_case_20_a_program_of_128_issues_prints(tmp_path):
    """64 loads, 64 stores; what is printed reads back as the same program."""
    body = 'out = tf.empty(Tensor[(128, 32), "f32"])\n'
    for n in range(64):
        row = (n * 37) % 64 * 2
        body += f'v{n} = tf.reshard(x[{row}:{row + 2}, :], (2, 32 @ t.lane), "rmem")\n'
        body += f"out = tf.insert_slice(out, v{n}, ({2 * n}, 0))\n"
    made = right(program(tmp_path, X, body + "return out\n", thread=32), ("round-robin",))
    assert len(issues(kernel(made), "copy")) == 128
    text = print_program(made)
    assert text.count("T.copy(") == 128
    assert same(parse_program(text, "program.py"), made)
