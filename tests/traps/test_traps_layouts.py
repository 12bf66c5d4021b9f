"""Traps 16 to 25 of layouts, contracts and capacity: each as a program that is lowered right
or refused with its clause, and where a kernel can contain it, found in the kernel."""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from trapped import families, issues, kernel, lowered, program, refused, right, seen

from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import BF16, F32
from tilefoundry.ir.expr import LoopVar, evaluate
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.layout import Swizzle
from tilefoundry.lower.banks import Wavefronts, served, wavefronts
from tilefoundry.lower.finalize import finalize
from tilefoundry.tir.program import Buffer, Issue, View, fresh_vars, whole
from tilefoundry.tir.rewrite import rebuild
from tilefoundry.verify.accept import accept

sys.path += [str(Path(__file__).parents[1] / part) for part in ("verify", "tir")]
from faults import swap
from rules import Kernel, copy, sync
from samples import gemm

SW = {32: "Swizzle(1, 4, 3)", 64: "Swizzle(2, 4, 3)", 128: "Swizzle(3, 4, 3)"}
FOUR = 'Mesh(t[4:8, :], layout=(4, 8, 4), names=("w", "l8", "l4"))'


def atom(n):
    return (
        f'atom = T.cuda.sm90.Wgmma(n={n}, dtype="bf16", form=T.cuda.sm90.Form.SS, '
        "a_major=T.cuda.sm90.Major.K, b_major=T.cuda.sm90.Major.MN)"
    )


def product_of(folder, n, per, b, m=64, k=64, a=None, acc=None):
    """One product (m, k) times (k, n) by instructions of ``per`` columns."""
    a = a or f"Layout(({m}, {k})) | {SW[128]}"
    acc = acc or f"({m // 64}, 4 @ use.w, 2, 8 @ use.l8, {n // 8}, 4 @ use.l4, 2)"
    body = f"""
    out = tf.empty(Tensor[({m}, {n}), "f32"])
    with {FOUR} as use:
        a_place = tf.empty(Tensor[({m}, {k}), "bf16", {a}, "smem"])
        lhs = tf.schedule((a, a_place), op=T.copy())
        b_place = tf.empty(Tensor[({k}, {n}), "bf16", {b}, "smem"])
        rhs = tf.schedule((b, b_place), op=T.copy())
        acc = tf.zeros(Tensor[({m}, {n}), "f32", {acc}, "rmem"])
        acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=atom))
        out = tf.insert_slice(out, acc, (0, 0))
    return out
    """
    params = f'a: Tensor[({m}, {k}), "bf16"], b: Tensor[({k}, {n}), "bf16"]'
    return program(folder, params, body, consts=atom(per), thread=256)


def fix_of(call, *args):
    """The refusal's clause line and what it says to write instead."""
    with pytest.raises(Refusal) as caught:
        call(*args)
    (diag,) = caught.value.diags
    assert diag.code == "contract-unmet"
    return diag.fields["clause"], diag.fields["fix"]


# ---- 16: a fragment stored in another order than it is held


@pytest.mark.parametrize(
    "acc",
    [
        "(4 @ use.w, 1, 2, 8 @ use.l8, 8, 4 @ use.l4, 2)",  # the same, spelled otherwise
        "(1, 4 @ use.w, 8 @ use.l8, 2, 8, 4 @ use.l4, 2)",  # lanes over neighbouring rows
        "(1, 2, 4 @ use.w, 8 @ use.l8, 8, 4 @ use.l4, 2)",  # warps inside the halves
        "(1, 4 @ use.w, 2, 8 @ use.l8, 4 @ use.l4, 8, 2)",  # a lane's columns together
    ],
)
def test_trap_16_an_accumulator_in_another_order(tmp_path, acc):

    def run():
        return right(product_of(tmp_path, 64, 64, f"Layout((64, 64)) | {SW[128]}", acc=acc))

    if acc.startswith("(4"):
        run()
    else:
        clause, fix = fix_of(run)
        assert clause == "C" and "4 @ compute.w, 2, 8 @ compute.l8, 8, 4 @ compute.l4, 2" in fix


def test_trap_16_in_a_kernel():
    """Warps inside the halves of 16 rows: another permutation than the instruction's."""
    func = gemm(tiles=(1, 1), k_steps=1, ctas=1, groups=1)
    acc, layout = func.buffers[3], func.buffers[3].layout
    axes = list(layout.axes)
    axes[1], axes[2] = axes[2], axes[1]
    modes = (layout.shape[0], 2, 4, *layout.shape[3:])
    wrong = replace(layout, shape=modes, stride=None, axes=tuple(axes))
    moved = rebuild(func, {acc: replace(acc, layout=wrong)})
    with pytest.raises(Refusal) as caught:
        accept(moved)
    assert caught.value.diags[0].fields["clause"] == "C"
    assert seen(moved) & {"not-held", "register-hazard"}
    accept(func)


@pytest.mark.parametrize("b_fragment", [False, True])
def test_trap_16_stmatrix_puts_each_element_where_it_belongs(tmp_path, b_fragment):
    """16 x 16 values that tell their place, through matrix stores and plain loads."""
    held = "(2, 8 @ use.l8, 2, 4 @ use.l4, 2)"
    if b_fragment:
        held = "(2, 4 @ use.l4, 2, 2, 8 @ use.l8)"
    body = f"""
    out = tf.empty(Tensor[(16, 16), "bf16"])
    with Mesh(t[0:1, :], layout=(8, 4), names=("l8", "l4")) as use:
        frag = tf.reshard(x, {held}, "rmem")
        place = tf.empty(Tensor[(16, 16), "bf16", Layout((16, 16)) | {SW[32]}, "smem"])
        tile = tf.schedule((frag, place), op=T.stmatrix())
        rows = tf.reshard(tile, (2, 8 @ use.l8, 4 @ use.l4, 4), "rmem")
        out = tf.insert_slice(out, rows, (0, 0))
    return out
    """
    right(program(tmp_path, 'x: Tensor[(16, 16), "bf16"]', body, thread=32))


def test_trap_16_stmatrix_of_rows_that_lanes_own(tmp_path):
    """A lane that holds a row is no fragment of 8 x 8 matrices."""
    body = """
    out = tf.empty(Tensor[(32, 32), "bf16"])
    rows = tf.reshard(x, (32 @ t.lane, 32), "rmem")
    tile = tf.schedule((rows, tf.empty(Tensor[(32, 32), "bf16", "smem"])), op=T.stmatrix())
    return tf.insert_slice(out, tf.reshard(tile, (32 @ t.lane, 32), "rmem"), (0, 0))
    """
    x = 'x: Tensor[(32, 32), "bf16"]'
    clause, _ = fix_of(lambda: finalize(program(tmp_path, x, body, thread=32)))
    assert clause == "fragment"


# ---- 17: a legal n that the swizzle's span does not divide


@pytest.mark.parametrize(
    ("n", "per", "layout", "fits"),
    [
        # 72 columns are 144 bytes: one span and an eighth
        (72, 72, f"Layout((64, 72)) | {SW[128]}", "Layout((64, (9, 8)), (8, (512, 1)))"),
        # panels of 64 bytes under the swizzle of 128
        (96, 96, f"Layout((64, (3, 32)), (32, (2048, 1))) | {SW[128]}",
         f"Layout((64, (3, 32)), (32, (2048, 1))) | {SW[64]}"),
        # the second instruction's 96 columns would start inside a panel of 64
        (192, 96, f"Layout((64, (3, 64)), (64, (4096, 1))) | {SW[128]}",
         f"Layout((64, (6, 32)), (32, (2048, 1))) | {SW[64]}"),
    ],
)  # fmt: skip
def test_trap_17_n_and_the_swizzle(tmp_path, n, per, layout, fits):
    clause, fix = fix_of(product_of, tmp_path, n, per, layout)
    assert (clause, fix) == ("B", fits)
    right(product_of(tmp_path, n, per, fits), ("round-robin",))


# ---- 18: a slice of a swizzled tile lies as the whole


def sliced(folder, layout):
    params = 'a: Tensor[(64, 128), "bf16"], b: Tensor[(128, 64), "bf16"]'
    body = f"""
    out = tf.empty(Tensor[(64, 64), "f32"])
    with t[0, :] as load:
        a_place = tf.empty(Tensor[(64, 128), "bf16", {layout}, "smem"])
        lhs = tf.schedule((a, a_place), op=T.copy_async_tensor())
        b_place = tf.empty(Tensor[(128, 64), "bf16", Layout((128, 64)) | {SW[128]}, "smem"])
        rhs = tf.schedule((b, b_place), op=T.copy_async_tensor())
    with {FOUR} as use:
        acc = tf.zeros(Tensor[(64, 64), "f32", (4 @ use.w, 2, 8 @ use.l8, 8, 4 @ use.l4, 2), "rmem"])
        acc = tf.schedule((acc, lhs[:, 0:64], rhs[0:64, :]), op=T.tiled_mma(atom=atom))
        acc = tf.schedule((acc, lhs[:, 64:128], rhs[64:128, :]), op=T.tiled_mma(atom=atom))
        out = tf.insert_slice(out, acc, (0, 0))
    return out
    """  # noqa: E501
    return program(folder, params, body, consts=atom(64), thread=256)


def test_trap_18_panels_of_the_whole(tmp_path):
    right(sliced(tmp_path, f"Layout((64, (2, 64)), (64, (4096, 1))) | {SW[128]}"))


def test_trap_18_rows_of_two_spans_are_no_panels(tmp_path):
    """Rows of 256 bytes under the 128-byte swizzle: no slice of them is a tile of wgmma."""
    clause, _ = fix_of(sliced, tmp_path, f"Layout((64, 128)) | {SW[128]}")
    assert clause == "A"


def test_trap_18_a_window_inside_the_swizzle(tmp_path):
    """Each quarter of a swizzled tile is read through its own window."""
    body = f"""
    out = tf.empty(Tensor[(32, 64), "bf16"])
    place = tf.empty(Tensor[(32, 64), "bf16", Layout((32, 64)) | {SW[128]}, "smem"])
    tile = tf.schedule((x, place), op=T.copy_async_tensor())
    for q in range(4):
        part = tf.reshard(tile[:, q * 16:q * 16 + 16], (32 @ t.lane, 16), "rmem")
        out = tf.insert_slice(out, part, (0, 48 - q * 16))
    return out
    """
    right(program(tmp_path, 'x: Tensor[(32, 64), "bf16"]', body, thread=32))


# ---- 19: ldmatrix


@pytest.mark.parametrize(
    ("layout", "clause"),
    [
        ("Layout((16, 16), (24, 1))", None),  # 48 bytes apart: a multiple of 16
        ("Layout((16, 16), (1, 16))", None),  # columns: .trans
        ("Layout((16, 16), (17, 1))", "alignment"),  # 34 bytes apart
        ("Layout((16, 16), (32, 2))", "rows"),  # every other element
    ],
)
def test_trap_19_rows_of_ldmatrix(tmp_path, layout, clause):
    text = loaded_matrix("(16, 16)", layout, "tile")
    if clause is None:
        right(program(tmp_path, text[0], text[1], thread=32))
    else:
        assert fix_of(lambda: finalize(program(tmp_path, *text, thread=32)))[0] == clause


def loaded_matrix(shape, layout, window):
    body = f"""
    out = tf.empty(Tensor[(16, 16), "bf16"])
    with Mesh(t[0:1, :], layout=(8, 4), names=("l8", "l4")) as use:
        tile = tf.schedule((x, tf.empty(Tensor[{shape}, "bf16", {layout}, "smem"])), op=T.copy())
        held = tf.empty(Tensor[(16, 16), "bf16", (2, 8 @ use.l8, 2, 4 @ use.l4, 2), "rmem"])
        frag = tf.schedule(({window}, held), op=T.ldmatrix())
        out = tf.insert_slice(out, frag, (0, 0))
    return out
    """
    return f'x: Tensor[{shape}, "bf16"]', body


@pytest.mark.parametrize(("start", "clause"), [(0, None), (8, None), (4, "alignment")])
def test_trap_19_alignment_of_a_derived_pointer(tmp_path, start, clause):
    """A window that starts at 8 bytes of a row that was aligned."""
    text = loaded_matrix("(16, 32)", "Layout((16, 32))", f"tile[:, {start}:{start + 16}]")
    if clause is None:
        right(program(tmp_path, *text, thread=32))
    else:
        assert fix_of(lambda: finalize(program(tmp_path, *text, thread=32)))[0] == clause


# ---- 20: tensor copies


def tensor_copy(folder, shape, tile, layout="", start=None):
    start = start or (0,) * len(tile)
    window = ", ".join(f"{s}:{s + e}" for s, e in zip(start, tile, strict=True))
    body = f"""
    out = tf.empty(Tensor[{tile}, "bf16"])
    place = tf.empty(Tensor[{tile}, "bf16"{layout and ", " + layout}, "smem"])
    tile = tf.schedule((x[{window}], place), op=T.copy_async_tensor())
    out = tf.insert_slice(out, tf.reshard(tile, storage="rmem"), {(0,) * len(tile)})
    return out
    """
    return program(folder, f'x: Tensor[{shape}, "bf16"]', body, thread=32)


@pytest.mark.parametrize(
    ("clause", "shape", "tile", "layout"),
    [
        (None, (64, 128), (16, 64), f"Layout((16, 64)) | {SW[128]}"),
        ("stride", (64, 65), (32, 64), ""),  # rows 130 bytes apart
        ("box", (64, 4), (64, 4), ""),  # 8 bytes
        ("box", (64, 256), (32, 32), f"Layout((32, 32)) | {SW[128]}"),  # 64 of a 128-byte span
        (None, (16, 256), (8, 128), f"Layout((8, 128)) | {SW[128]}"),  # two spans: two issues
        ("rank", (2, 2, 2, 2, 2, 8), (2, 2, 2, 2, 2, 8), ""),
        (None, (2, 2, 2, 2, 8), (2, 2, 2, 2, 8), ""),
        ("alignment", (64, 128), (8, 64), "(Layout((8, 64)) + 32) | " + SW[128]),
    ],
)
def test_trap_20_rules_of_tensor_maps(tmp_path, clause, shape, tile, layout):
    if clause is None:
        right(tensor_copy(tmp_path, shape, tile, layout), ("round-robin",))
    else:
        assert fix_of(tensor_copy, tmp_path, shape, tile, layout)[0] == clause


def test_trap_20_a_start_between_units_of_16_bytes(tmp_path):
    """Coordinates of a box are elements: any start is legal, and read right."""
    right(tensor_copy(tmp_path, (32, 128), (8, 64), f"Layout((8, 64)) | {SW[128]}", (3, 5)))


@pytest.mark.parametrize("swizzle", [None, Swizzle(1, 4, 3), Swizzle(2, 4, 3), Swizzle(3, 4, 3)])
def test_trap_20_alignment_in_shared_memory(swizzle):
    """128 bytes; 256, 512 and 1024 under the swizzles whose pattern has that period."""
    need = {None: 128, 1: 256, 2: 512, 3: 1024}[swizzle and swizzle.B]

    def made(offset):
        k = Kernel(128)
        src = k.gmem("src", (8, 64))
        width = 64 if swizzle is None else 16 << (swizzle.B - 1)
        layout = ShardLayout((8, (64 // width, width)), (width, (8 * width, 1)), (None,) * 3, (),
                             swizzle)  # fmt: skip
        held = Buffer("held", (8, 64), BF16, "rmem", mesh=k.inside)
        tile = Buffer("tile", (8, 64), BF16, "smem", layout, offsets=(offset,), align=need)
        k.buffers += [tile, held]
        k.at = 4096
        full = k.barrier("full", 1)
        return k.func(
            *k.setup(),
            k.lanes(1, sync("expect", barrier=full, bytes=1024),
                    copy(src, tile, "copy_async_tensor", barrier=full, slot=0)),
            k.on(1, 2, sync("wait", barrier=full), copy(tile, held)),
        )  # fmt: skip

    assert families(made(need)) == seen(made(need)) == set()
    assert "smem-plan" in families(made(need // 2))
    assert seen(made(need // 2)) == {"overlap"}


# ---- 21: a tile smaller than the instruction


def test_trap_21_tiles_below_the_footprint(tmp_path):
    clause, _ = fix_of(
        lambda: product_of(
            tmp_path, 64, 64, f"Layout((8, 64)) | {SW[128]}", k=8, a="Layout((64, 8))"
        )
    )
    assert clause == "shape"
    clause, _ = fix_of(
        lambda: product_of(
            tmp_path, 64, 64, f"Layout((64, 64)) | {SW[128]}", m=32,
            acc="(4 @ use.w, 8 @ use.l8, 8, 4 @ use.l4, 2)",
        )
    )  # fmt: skip
    assert clause == "shape"
    whole = product_of(
        tmp_path, 64, 64, f"Layout((16, 64)) | {SW[128]}", k=16,
        a=f"Layout((64, 16)) | {SW[32]}",
    )  # fmt: skip
    right(whole, ("round-robin",))


# ---- 22: a plan that overlaps what an engine still reads


def test_trap_22_tiles_that_an_engine_still_stores(tmp_path):
    """The second staged tile may lie over the first only once its store has read it."""
    body = """
    out = tf.empty(Tensor[(128, 32), "f32"])
    with Mesh(t[1:3, :], layout=(2, 32), names=("w", "l")) as use:
        for i in range(2):
            one = tf.reshard(x[i * 32:i * 32 + 32, :], (2 @ use.w, 16, 32 @ use.l), "rmem")
            first = tf.schedule((tf.reshard(one, storage="smem"), tf.empty(Tensor[(32, 32), "f32"])),
                                op=T.copy_async_tensor())
            out = tf.insert_slice(out, first, (i * 32, 0))
            second = tf.schedule((tf.reshard(one * 2.0, storage="smem"), tf.empty(Tensor[(32, 32), "f32"])),
                                 op=T.copy_async_tensor())
            out = tf.insert_slice(out, second, (i * 32 + 64, 0))
    return out
    """  # noqa: E501
    right(program(tmp_path, 'x: Tensor[(128, 32), "f32"]', body))


def test_trap_22_in_a_kernel():
    """The staged result over a slot of the ring, while loads of the next tile arrive there."""
    func = gemm(tiles=(2, 1), k_steps=4, ctas=1, groups=1, storer="own")
    _, rhs, staged, *_ = func.buffers
    over = rebuild(func, {staged: replace(staged, offsets=(rhs.offsets[0],))})
    assert families(over) & {"smem-plan", "sync-race", "sync-proxy"}
    assert seen(over) & {"race", "overwritten-slot"}


# ---- 23: bank conflicts


def warp(shape=(32,), names=("l",), count=1):
    return Mesh(arrange("thread", shape, names))


def access(layout, held, shape=(32, 32), dtype=F32, instr="copy", mesh=None, load=True):
    """Wavefronts of a copy between shared memory of ``layout`` and registers ``held``."""
    mesh = mesh or warp()
    near = Buffer("near", shape, dtype, "smem", layout, offsets=(0,))
    far = Buffer("far", shape, dtype, "rmem", held(mesh), mesh=mesh)
    ends = (near, far) if load else (far, near)
    return wavefronts(Issue(instr, (whole(ends[0]),), (whole(ends[1]),)), mesh)


def rows(mesh):
    """A lane has a row: in each turn the lanes go down a column."""
    return ShardLayout((32, 32), None, (mesh.axes[0], None))


def columns(mesh):
    """A lane has a column: in each turn the lanes go along a row."""
    return ShardLayout((32, 32), None, (None, mesh.axes[0]))


def plain(*shape, row=None, swizzle=None):
    return ShardLayout(shape, (row or shape[1], 1), (None,) * 2, (), swizzle)


@pytest.mark.parametrize("load", [True, False])
@pytest.mark.parametrize(
    ("layout", "held", "bytes", "worst", "ideal"),
    [
        (plain(32, 32, row=33), columns, 4, 1, 1),
        (plain(32, 32, row=33), rows, 4, 1, 1),  # padded by one: the banks follow each other
        # 136-byte rows, 8 bytes a turn: 34 t mod 32 = 2 t, a pair of banks for each of 16 lanes
        (plain(32, 32, row=34), rows, 8, 2, 2),
        (plain(32, 32), columns, 4, 1, 1),
        # whole rows: 16 bytes a turn, 8 lanes to a phase, all on the same four banks
        (plain(32, 32), rows, 16, 32, 4),
        # the 16-byte chunk XORed with the row: 8 rows on 8 chunks
        (plain(32, 32, swizzle=Swizzle(3, 4, 3)), rows, 16, 4, 4),
        # only two chunks take turns: four rows of each phase share one
        (plain(32, 32, swizzle=Swizzle(1, 4, 3)), rows, 16, 16, 4),
        (plain(32, 32, row=36), rows, 16, 4, 4),  # padded by 16 bytes
    ],
)
def test_trap_23_copies_of_a_warp(layout, held, bytes, worst, ideal, load):
    assert access(layout, held, load=load) == Wavefronts(bytes, worst, ideal)


def test_trap_23_a_column_of_single_elements():
    """Lane l reads element l of a column: 32 rows, one bank."""
    mesh = warp()
    near = Buffer("near", (32, 32), F32, "smem", plain(32, 32), offsets=(0,))
    far = Buffer("far", (32,), F32, "rmem", ShardLayout((32,), None, (mesh.axes[0],)), mesh=mesh)
    (v,) = fresh_vars((32,))
    for stride, worst in ((32, 32), (33, 1), (34, 2), (40, 8), (48, 16)):
        buffer = replace(near, layout=plain(32, 32, row=stride))
        view = View(buffer, (32,), (v,), (v.expr(), 5))
        found = wavefronts(Issue("copy", (view,), (whole(far),)), mesh)
        assert found == Wavefronts(4, worst, 1), stride


@pytest.mark.parametrize(
    ("row", "swizzled", "worst"),
    [(64, False, 32), (72, False, 4), (128, False, 32), (64, True, 4), (128, True, 8)],
)
def test_trap_23_matrix_rows(row, swizzled, worst):
    """ldmatrix takes 8 rows of 16 bytes at once: of 128-byte rows all on the same banks, apart
    under the swizzle or with 16 bytes between; of 256-byte rows bit 7 is the same in all, so
    that bits 8 and 9 give four places for 8 rows."""
    mesh = Mesh(arrange("thread", (8, 4), ("l8", "l4")))
    layout = plain(16, 64, row=row, swizzle=Swizzle(3, 4, 3) if swizzled else None)

    def fragment(m):
        return ShardLayout((2, 8, 8, 4, 2), None, (None, m.axes[0], None, m.axes[1], None))

    found = access(layout, fragment, (16, 64), BF16, "ldmatrix", mesh)
    assert found == Wavefronts(16, worst, 4)


@pytest.mark.parametrize(
    ("addresses", "bytes", "count"),
    [
        ([0] * 32, 4, 1),  # one word for all
        ([4 * n for n in range(32)], 4, 1),
        ([8 * n for n in range(32)], 4, 2),
        ([128 * n for n in range(32)], 4, 32),
        ([2 * n for n in range(32)], 2, 1),  # two lanes to a word
        ([8 * n for n in range(32)], 8, 2),  # 256 bytes
        ([16 * n for n in range(32)], 16, 4),  # 512 bytes
        ([32 * n for n in range(32)], 16, 8),  # every other 16 bytes: two rounds in each phase
    ],
)
def test_trap_23_wavefronts_by_hand(addresses, bytes, count):
    assert served(addresses, bytes) == count


def test_trap_23_the_head_says_it(tmp_path):
    """A tile turned by a warp: without padding each read is a column."""

    def banks(row):
        body = f"""
        out = tf.empty(Tensor[(32, 32), "f32"])
        held = tf.reshard(x, (32, 32 @ t.lane), "rmem")
        tile = tf.reshard(held, ((32, 32), ({row}, 1)), "smem")
        turned = tf.reshard(tf.transpose(tile, (1, 0)), (32, 32 @ t.lane), "rmem")
        return tf.insert_slice(out, turned, (0, 0))
        """
        made = right(program(tmp_path, 'x: Tensor[(32, 32), "f32"]', body, thread=32))
        return [n.split(" ", 2)[2] for n in kernel(made).notes if n.startswith("banks")]

    said = "instr=T.copy access={}B wavefronts={} ideal={}"
    # a lane's own column is a row of the tile: 16 bytes a turn where they are aligned
    assert banks(32) == [said.format(4, 1, 1), said.format(16, 32, 4)]
    assert banks(33) == [said.format(4, 1, 1), said.format(4, 1, 1)]
    assert banks(36) == [said.format(4, 1, 1), said.format(16, 4, 4)]


# ---- 24: quotients and remainders of extents that do not divide


def test_trap_24_indices_are_simplified_to_what_they_are():
    """(a j + b) // c % d and its relatives, over j of extents that nothing divides."""
    j = LoopVar("j", 0, 12)
    n = j.expr()
    for a, b, c, d in product((1, 2, 3, 6), (0, 1, 5), (2, 3, 4), (2, 3, 5)):
        for made, want in (
            ((a * n + b) // c % d, lambda v, a=a, b=b, c=c, d=d: (a * v + b) // c % d),
            ((a * n + b) % c * d + n, lambda v, a=a, b=b, c=c, d=d: (a * v + b) % c * d + v),
            ((c * (n // c) + n % c) % d, lambda v, d=d: v % d),
            ((n * c + a) % (c * d) // c, lambda v, a=a, c=c, d=d: (v * c + a) % (c * d) // c),
            ((n * c + n % c) // c, lambda v, c=c: (v * c + v % c) // c),
        ):
            assert [evaluate(made, {j: v}) for v in range(13)] == [want(v) for v in range(13)]


@pytest.mark.parametrize(
    ("row", "column"),
    [("j % 3", "j // 3 % 2"), ("(2 * j + 1) // 3 % 3", "j % 2"), ("j * 5 % 3", "(j + 1) // 4 % 2")],
)
def test_trap_24_windows_by_quotients(tmp_path, row, column):
    """7 steps over a 3 x 2 grid of tiles."""
    body = f"""
    out = tf.empty(Tensor[(56, 32), "f32"])
    for j in range(7):
        r = {row}
        c = {column}
        held = tf.reshard(x[r * 8:r * 8 + 8, c * 32:c * 32 + 32], (8, 32 @ t.lane), "rmem")
        out = tf.insert_slice(out, held, (j * 8, 0))
    return out
    """
    right(program(tmp_path, 'x: Tensor[(24, 64), "f32"]', body, thread=32), ("round-robin",))


# ---- 25: right sizes, wrong starts

COVER = """
out = tf.empty(Tensor[(128, 32), "f32"])
m = {start}
held = tf.reshard(x[m:m + 32, :], (32, 32 @ t.lane), "rmem")
out = tf.insert_slice(out, held, (m, 0))
return out
"""


@pytest.mark.parametrize(
    ("start", "wrong"),
    [
        ("cta.c * 32", set()),
        ("(cta.c * 3 + 1) % 4 * 32", set()),  # another order, still each once
        ("cta.c * 31", {"device-overlap"}),
        ("cta.c // 2 * 64", {"device-overlap", "device-unwritten"}),
        ("cta.c % 3 * 32", {"device-overlap", "device-unwritten"}),
    ],
)
def test_trap_25_windows_of_the_right_size_in_the_wrong_place(tmp_path, start, wrong):
    """Four CTAs write 32 rows each: the count is that of the output in every case."""
    loaded = program(tmp_path, 'x: Tensor[(128, 32), "f32"]', COVER.format(start=start),
                     thread=32, cta=4)  # fmt: skip
    if not wrong:
        right(loaded, ("round-robin",))
        return
    assert wrong <= families(lowered(loaded))
    assert refused(finalize, loaded)[0] == "tir-unverified"
    assert seen(lowered(loaded)) & {"race", "overwritten-slot", "uninitialised"}


def test_trap_25_a_store_that_is_moved_in_a_kernel():
    """The verifier and an execution see the tile that nobody writes."""
    func = gemm(tiles=(2, 1), k_steps=1, ctas=1, groups=1)
    store = next(i for i in issues(func, "copy_async_tensor") if i.writes[0].storage == "gmem")
    out = store.writes[0]
    shifted = replace(out, index=(out.index[0] % 64, out.index[1]))
    wrong = swap(func, store, replace(store, writes=(shifted,)))
    assert {"device-unwritten"} <= families(wrong)
    assert seen(wrong)


def test_trap_25_an_output_that_nobody_writes():
    k = Kernel(32)
    k.gmem("out", (64, 64), "out")
    src, held = k.gmem("src", (32, 32)), k.rmem("held", (32, 32))
    func = k.func(copy(src, held))
    assert families(func) == {"device-unwritten"} and seen(func) == {"uninitialised"}


def test_trap_25_a_sum_is_stored_as_it_is(tmp_path):
    """A carried tile that is inserted without a cast between is stored, not forgotten."""
    body = """
    out = tf.empty(Tensor[(64, 32), "f32"])
    acc = tf.zeros(Tensor[(32, 32), "f32", (32, 32 @ t.lane), "rmem"])
    for i in range(4):
        acc = acc + tf.reshard(x[i * 32:i * 32 + 32, :], (32, 32 @ t.lane), "rmem")
    out = tf.insert_slice(out, acc, (0, 0))
    out = tf.insert_slice(out, acc * 2.0, (32, 0))
    return out
    """
    right(program(tmp_path, 'x: Tensor[(128, 32), "f32"]', body, thread=32))


DIFFER = """
out = tf.empty(Tensor[(128, 32), "f32"])
with Mesh(t, layout=(4, 32), names=("w", "l")) as use:
    r = use.w * 32
    own = tf.reshard(x[r:r + 32, :], (32, 32 @ use.l), "rmem")
    {rest}
return out
"""


@pytest.mark.parametrize(
    ("rest", "wrong"),
    [
        ("out = tf.insert_slice(out, own, (r, 0))", None),
        ("out = tf.insert_slice(out, own, (96 - r, 0))", None),
        ("out = tf.insert_slice(out, own, (use.w // 2 * 64, 0))", "device-overlap"),
        ("out = tf.insert_slice(out, own, (use.w * 16, 0))", "device-overlap"),
        # one tile of the CTA for four values
        ("tile = tf.reshard(own, storage='smem')\n"
         "    out = tf.insert_slice(out, tf.reshard(tile, (32, 32 @ use.l), 'rmem'), (r, 0))",
         "sync-race"),
        ("tile = tf.reshard(x[r:r + 32, :], storage='smem')\n"
         "    out = tf.insert_slice(out, tf.reshard(tile, (32, 32 @ use.l), 'rmem'), (r, 0))",
         "sync-race"),
        # a part of it for each
        ("tile = tf.empty(Tensor[(128, 32), 'f32', 'smem'])\n"
         "    tile = tf.insert_slice(tile, own, (r, 0))\n"
         "    out = tf.insert_slice(out, tf.reshard(tile[96 - r:128 - r, :], (32, 32 @ use.l),"
         " 'rmem'), (r, 0))", None),
    ],
)  # fmt: skip
def test_trap_25_warps_with_values_of_their_own_store_apart(tmp_path, rest, wrong):
    """Each warp's tile depends on its coordinate; its layout says that all hold the same."""
    loaded = program(tmp_path, 'x: Tensor[(128, 32), "f32"]', DIFFER.format(rest=rest), thread=128)
    if wrong is None:
        right(loaded)
    else:
        assert wrong in families(lowered(loaded))
        assert refused(finalize, loaded)[0] == "tir-unverified"


@pytest.mark.parametrize(
    ("load", "axis", "wrong"),
    [
        ("T.copy_async_tensor()", "w", "tir-unverified"),  # the first fetches for all warps
        ("T.ldmatrix()", "w", "accepted"),  # each warp its own rows
        ("T.ldmatrix()", "l8", "unit-value-split"),  # a warp takes one tile, not one a lane
    ],
)
def test_trap_25_what_threads_carry_out_together_has_one_place(tmp_path, load, axis, wrong):
    source, place = "x", '"smem"'
    layout = ""
    if "matrix" in load:
        source, place = "tile", '"rmem"'
        layout = ", (2, 8 @ use.l8, 2, 4 @ use.l4, 2)"
    body = f"""
    out = tf.empty(Tensor[(128, 16), "bf16"])
    tile = tf.reshard(x, storage="smem")
    with Mesh(t, layout=(2, 8, 4), names=("w", "l8", "l4")) as use:
        r = use.{axis} * 16
        to = tf.empty(Tensor[(16, 16), "bf16"{layout}, {place}])
        part = tf.schedule(({source}[r:r + 16, :], to), op={load})
        held = tf.reshard(part, (2, 8 @ use.l8, 2, 4 @ use.l4, 2), "rmem")
        for i in range(4):
            out = tf.insert_slice(out, held, (i * 32 + use.w * 16, 0))
    return out
    """

    def made():
        return finalize(program(tmp_path, 'x: Tensor[(128, 16), "bf16"]', body, thread=64))

    code, text = refused(made)
    assert code == wrong
    if code == "accepted":
        right(program(tmp_path, 'x: Tensor[(128, 16), "bf16"]', body, thread=64), ("random",))
    elif code == "tir-unverified":
        assert "sync-participants" in text
