"""Which block touches what of device memory: windows, reshaped views, any other map."""

from time import process_time

import pytest
from rules import Kernel, copy, loop, sync

from tilefoundry.ir.dtype import BF16
from tilefoundry.ir.expr import floordiv, mod
from tilefoundry.tir.program import Buffer, Issue, Scalar, View, When, fresh_vars, whole, window
from tilefoundry.verify import judge, verify
from tilefoundry.verify.accept import accept


def through(buffer, shape, index, fill=None):
    names = fresh_vars(shape)
    return View(buffer, shape, names, tuple(index(*(v.expr() for v in names))), 0, fill)


def stored(ctas, extent, shape, index, around=lambda c, s: s, fill=None):
    """Every block stores a tile of ``shape`` through a view of the output."""
    k = Kernel(128, ctas)
    c = k.grid.coordinate("c", "cta")
    out = k.gmem("out", extent, "out")
    tile = Buffer("tile", shape, BF16, "rmem", mesh=k.inside)
    k.buffers.append(tile)
    view = through(out, shape, lambda *v: index(c, *v), fill)
    return k.func(*around(c, (copy(whole(tile), view),)))


def codes(func):
    found = judge(func)
    assert found.notes == ()
    return {f.code for f in found}


CUT = {"device-overlap"}
HOLE = {"device-unwritten"}


@pytest.mark.parametrize(
    ("ctas", "extent", "shape", "index", "wrong"),
    [
        # two axes of the tile are one of the buffer
        (4, (64, 12), (2, 8, 12), lambda c, i, j, k: (16 * c + 8 * i + j, k), set()),
        (4, (64, 12), (2, 8, 12), lambda c, i, j, k: (8 * c + 8 * i + j, k), CUT | HOLE),
        (3, (64, 12), (2, 8, 12), lambda c, i, j, k: (16 * c + 8 * i + j, k), HOLE),
        # one axis of the tile is two of the buffer
        (4, (32, 12), (96,), lambda c, i: (8 * c + i // 12, i % 12), set()),
        (4, (32, 12), (96,), lambda c, i: (8 * mod(c, 2) + i // 12, i % 12), CUT | HOLE),
        (4, (33, 12), (96,), lambda c, i: (8 * c + i // 12, i % 12), HOLE),
        # transposed
        (4, (12, 32), (8, 12), lambda c, i, j: (j, 8 * c + i), set()),
        (4, (12, 32), (8, 12), lambda c, i, j: (j, i), CUT | HOLE),
        # rows turned by their number: neither a box nor digits
        (4, (32, 12), (8, 12), lambda c, i, j: (8 * c + i, mod(i + j, 12)), set()),
        (4, (32, 12), (8, 12), lambda c, i, j: (4 * c + i, mod(i + j, 12)), CUT | HOLE),
        (4, (32, 12), (8, 11), lambda c, i, j: (8 * c + i, mod(i + j, 12)), HOLE),
        # interleaved: block c has every fourth row
        (4, (32, 12), (8, 12), lambda c, i, j: (4 * i + c, j), set()),
        (4, (32, 12), (8, 12), lambda c, i, j: (3 * i + c, j), CUT | HOLE),
    ],
)
def test_views_that_are_no_windows(ctas, extent, shape, index, wrong):
    found = codes(stored(ctas, extent, shape, index))
    # the count of what is written is an upper bound where blocks overlap
    assert found == wrong or (found == CUT and wrong == CUT | HOLE)


@pytest.mark.parametrize("ctas", [2, 5])
def test_what_lies_outside_is_not_written(ctas):
    # 5 blocks of 8 rows on 34; of 2 the first 16 rows
    rows = 34 if ctas == 5 else 17
    func = stored(ctas, (rows, 12), (2, 4, 12), lambda c, i, j, k: (8 * c + 4 * i + j, k), fill=0)
    assert codes(func) == (set() if ctas == 5 else HOLE)


@pytest.mark.parametrize(
    ("around", "wrong"),
    [
        (lambda c, s: (When(1 - c, s),), HOLE),  # one block, that writes its own rows alone
        (lambda c, s: (When(4 - c, s),), set()),
        (lambda c, s: (When(1 - c, (When(c, s),)),), HOLE),
        (lambda c, s: (loop("i", 0, lambda i: s),), HOLE),
        (lambda c, s: (loop("i", 2, lambda i: s),), set()),
    ],
)
def test_what_is_not_executed_writes_nothing(around, wrong):
    func = stored(4, (32, 12), (8, 12), lambda c, i, j: (8 * c + i, j), around)
    assert codes(func) == wrong


def updated(owner, ctas=128, between=()):
    """Each thread of each block writes 16 rows of a work buffer one by one, then reads those
    of block ``owner(c)``: more windows in all than are looked at, for 128 blocks."""
    k = Kernel(128, ctas)
    c, warp, lane = (k.inside.coordinate(*x) for x in
                     (("c", "cta"), ("warp", "thread"), ("lane", "thread")))  # fmt: skip
    work = k.gmem("work", (ctas * 16 * 128, 8), "work")
    tile = Buffer("tile", (1, 8), BF16, "rmem", mesh=k.inside)
    k.buffers.append(tile)

    def at(c, i):
        return window(whole(work), (16 * 128 * c + 128 * i + 32 * warp + lane, 0), (1, 8))

    write = loop("i", 16, lambda i: (copy(whole(tile), at(c, i)),))
    meet = sync("barrier", id=1, threads=128)
    read = loop("j", 16, lambda j: (copy(at(owner(c), j), whole(tile)),))
    fill = Issue("fill", (Scalar(0.0, BF16),), (whole(tile),))
    return k.func(fill, write, meet, *(sync(x) for x in between), read)


def test_blocks_that_keep_to_their_own_are_proven_of_any_number():
    found = judge(updated(lambda c: c))
    assert not list(found) and found.notes == ()


def test_what_cannot_be_decided_is_said_and_refuses_nothing():
    func = updated(lambda c: mod(c + 1, 128))
    found = judge(func)
    (note,) = found.notes
    assert "undecided" in note and "buffer=work" in note
    assert verify(func) == () and accept(func) == (note,)
    # few enough to look at
    few = judge(updated(lambda c: mod(c + 1, 4), 4))
    assert {f.code for f in few} == {"device-overlap"} and few.notes == ()
    met = judge(updated(lambda c: mod(c + 1, 4), 4, between=("grid",)))
    assert not list(met) and met.notes == ()


def test_a_map_of_many_elements_is_not_decided():
    func = stored(4, (1200, 120), (300, 120), lambda c, i, j: (300 * c + i, mod(i + j, 120)))
    found = judge(func)
    assert not list(found) and len(found.notes) == 1


@pytest.mark.parametrize(
    ("columns", "index", "wrong"),
    [
        (130, lambda i: mod(i, 130), set()),
        (129, lambda i: mod(i, 130), {"view-bounds"}),  # 129, neither at an end nor in the middle
        (22, lambda i: floordiv(i, 12), set()),
        (21, lambda i: floordiv(i, 12), {"view-bounds"}),
    ],
)
def test_the_greatest_index_of_a_long_axis(columns, index, wrong):
    k = Kernel(128)
    src = k.gmem("src", (1, columns))
    tile = Buffer("tile", (256,), BF16, "rmem", mesh=k.inside)
    k.buffers.append(tile)
    assert codes(k.func(copy(through(src, (256,), lambda i: (0, index(i))), whole(tile)))) == wrong


def test_more_kinds_of_blocks_than_are_run_are_said():
    # each block makes another number of steps
    def program(ctas):
        k = Kernel(128, ctas)
        c = k.grid.coordinate("c", "cta")
        tile = Buffer("tile", (8, 8), BF16, "rmem", mesh=k.inside)
        k.buffers.append(tile)
        src = k.gmem("src", (8, 8))
        return judge(k.func(loop("i", c + 1, lambda i: (copy(src, whole(tile)),))))

    assert not list(program(16)) and program(16).notes == ()
    (note,) = program(17).notes
    assert note.startswith("undecided blocks=1 ")


def test_a_kernel_of_too_many_places_is_refused_in_time():
    # every step writes a row of its own: nothing is cut, and each is compared with all others
    k = Kernel(128)
    work = k.gmem("work", (100_000, 8), "work")
    tile = k.rmem("tile", (4, 32))

    def step(i):
        row = window(whole(work), (i, 0), (1, 8))
        part = window(whole(tile), (0, 0), (1, 8))
        return copy(part, row), copy(row, part)

    start = process_time()
    found = {f.code for f in verify(k.func(copy(tile, tile), loop("i", 100_000, step)))}
    assert "sync-undecided" in found and process_time() - start < 10
