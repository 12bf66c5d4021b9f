"""What no synchronisation orders is refused, each with its own code."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.ir.mesh import enter, narrow
from tilefoundry.lower.sync import synchronise
from tilefoundry.tir.program import With

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from samples import LEVELS
from tiny import F32, Buffer, Tiny, given, loop, move, op, result, shared


def code(func):
    with pytest.raises(Refusal) as caught:
        synchronise(func)
    (diag,) = caught.value.diags
    assert diag.text()
    return diag.code


def test_registers_cross_roles():
    tiny = Tiny()
    made, other = tiny.held("made", 0, 4), tiny.held("other", 4, 8)
    func = tiny.kernel(
        tiny.on(0, 4, move("copy", given("a"), made)), tiny.on(4, 8, op("exp", made, other))
    )
    assert code(func) == "sync-registers-cross-roles"


def test_registers_cross_roles_in_a_loop():
    tiny = Tiny()
    made, other = tiny.held("made", 0, 4), tiny.held("other", 4, 8)
    func = tiny.kernel(
        loop("i", 3, tiny.on(4, 8, op("exp", made, other)),
             tiny.on(0, 4, move("copy", given("a"), made)))
    )  # fmt: skip
    assert code(func) == "sync-registers-cross-roles"


def test_registers_narrowed_within_a_role_are_its_own():
    tiny = Tiny()
    made, other = tiny.held("made", 0, 4), tiny.held("other", 0, 4)
    synchronise(tiny.kernel(
        tiny.on(0, 4, move("copy", given("a"), made)), tiny.on(0, 2, op("exp", made, other))
    ))  # fmt: skip


def scratch():
    return Buffer("w", (32, 32), F32, "gmem", role="work")


def test_device_memory_read_back():
    tiny, work = Tiny(), scratch()
    one, two = tiny.held("one", 0, 4), tiny.held("two", 4, 8)
    func = tiny.kernel(
        tiny.on(0, 4, move("copy", given("a"), one), move("copy", one, work)),
        tiny.on(4, 8, move("copy", work, two), move("copy", two, result("o"))),
    )
    assert code(func) == "sync-device-memory"


def test_device_memory_that_each_thread_reads_back_itself():
    tiny, work = Tiny(), scratch()
    one, two = tiny.held("one", 0, 4), tiny.held("two", 0, 4)
    func = tiny.kernel(
        tiny.on(0, 4, move("copy", given("a"), one), move("copy", one, work),
                move("copy", work, two), move("copy", two, result("o")))
    )  # fmt: skip
    assert synchronise(func).barriers == ()


def test_device_memory_that_an_engine_wrote():
    tiny, work, tile = Tiny(), scratch(), shared("s")
    one, two = tiny.held("one", 0, 4), tiny.held("two", 0, 4)
    func = tiny.kernel(
        tiny.on(0, 4, move("copy", given("a"), one), move("copy", one, tile),
                move("copy_async_tensor", tile, work), move("copy", work, two),
                move("copy", two, result("o")))
    )  # fmt: skip
    assert code(func) == "sync-device-memory"


def test_fill_read_at_two_levels():
    tiny, tile = Tiny(), shared("s")
    one = tiny.held("one", 4, 8)
    read = tiny.on(4, 8, move("copy", tile, one), move("copy", one, result("o")))
    again = tiny.on(4, 8, move("copy", tile, one), move("copy", one, result("p")))
    load = tiny.on(0, 1, move("copy_async_tensor", given("a"), tile))
    other = tiny.held("other", 2, 3)
    outside = tiny.on(2, 3, move("copy", tile, other), move("copy", other, result("q")))
    func = tiny.kernel(loop("i", 3, load, read), outside)
    assert code(func) == "sync-fill-levels"
    # the same role knows it from its reads inside
    synchronise(tiny.kernel(loop("i", 3, load, read), again))


def test_loop_uneven():
    tiny, tile = Tiny(64), shared("s")
    warp, one = tiny.block.coordinate("warp"), tiny.held("one", 0, 2)
    func = tiny.kernel(loop("i", warp + 2, move("copy", given("a"), tile), move("copy", tile, one)))
    assert code(func) == "sync-loop-uneven"


def test_partial_warps():
    tiny, tile = Tiny(64), shared("s")
    part = tiny.on(0, 2, lanes=slice(0, 16)).mesh
    one = Buffer("one", (32, 32), F32, "rmem", mesh=part)
    func = tiny.kernel(
        tiny.on(0, 2, move("copy", given("a"), tile), move("copy", tile, one), lanes=slice(0, 16))
    )
    assert code(func) == "sync-partial-warps"


def test_named_barriers():
    tiny = Tiny(1024)
    body = []
    for n in range(16):  # sixteen pairs of warps, each with a tile of its own
        tile, one = shared(f"s{n}"), tiny.held(f"r{n}", 2 * n, 2 * n + 2)
        copies = (
            move("copy", given(f"a{n}"), tile),
            move("copy", tile, one),
            move("copy", one, result(f"o{n}")),
        )
        body.append(tiny.on(2 * n, 2 * n + 2, *copies))
    synchronise(tiny.kernel(*body[:15]))
    assert code(tiny.kernel(*body)) == "sync-named-barriers"


def test_part_of_the_grid():
    tiny, tile = Tiny(ctas=2), shared("s")
    one = tiny.held("one", 0, 4)
    write = tiny.on(0, 4, move("copy", given("a"), tile))
    read = tiny.on(0, 4, move("copy", tile, one), move("copy", one, result("o")))
    grid = narrow(tiny.grid, (slice(0, 1),))

    def part(*body):
        inside = enter(grid, tiny.block, LEVELS)
        moved = tuple(replace(b, mesh=enter(inside, b.own, LEVELS)) for b in body)
        block = With(tiny.block, inside, "threads", moved)
        return With(grid, grid, "cta", (block,))

    func = tiny.kernel(write, read)
    (outer,) = func.body
    (block,) = outer.body
    every, alone = block.body
    first = replace(outer, body=(replace(block, body=(every,)),))
    assert code(replace(func, body=(first, part(alone)))) == "sync-part-of-grid"
    synchronise(replace(func, body=(part(every, alone),)))
