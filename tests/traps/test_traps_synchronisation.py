"""Traps 1 to 15 of synchronisation: each as a program that is lowered right or refused, and
as a kernel with the defect that the verifier and an execution both report.

Not expressible, so nothing to get wrong:
- 13, an arrival of another CTA's barrier: a barrier of TIR belongs to its CTA, and no storage
  of the language is shared by the CTAs of a cluster. What remains of the trap, a kernel that
  is right for clusters of one only, is tested.
- 14, a dependent launch: the launches of a program are steps that follow each other, and
  nothing says that one may start before the one before it has ended.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trapped import (
    families,
    issues,
    kernel,
    lowered,
    program,
    refused,
    right,
    seen,
    syncs,
)

from tilefoundry.ir.dtype import BF16, DTYPES
from tilefoundry.ir.expr import evaluate, symbols
from tilefoundry.lower.finalize import finalize
from tilefoundry.tir.program import Buffer, For, Sync, When, walk, whole, window
from tilefoundry.tir.rewrite import mapped, rebuild

sys.path += [str(Path(__file__).parents[1] / part) for part in ("verify", "tir")]
from faults import swap
from rules import Kernel, copy, loop, pipe, sync
from samples import gemm

RACES = {"race", "overwritten-slot"}
X = 'x: Tensor[(128, 32), "f32"]'
USE = 'Mesh(t[1:3, :], layout=(2, 32), names=("w", "l"))'
LOAD = """
with t[0, :] as load:
    ring = tf.empty(Tensor[(32, 32), "f32", "smem"], buffers=S)
    got = tf.schedule((x[{i} * 32:{i} * 32 + 32, :], ring), op=T.copy_async_tensor())
"""


def indented(text, depth):
    return "".join(" " * 4 * depth + line + "\n" for line in text.strip("\n").splitlines())


def summed(loops="for i in range(N):", tile="i", depth=1):
    """Tiles of x that a loader fetches and two other warps add up."""
    return f"""
out = tf.empty(Tensor[(32, 32), "f32"])
with {USE} as use:
    acc = tf.zeros(Tensor[(32, 32), "f32", (2 @ use.w, 16, 32 @ use.l), "rmem"])
{loops}
{indented(LOAD.format(i=tile), depth)}
{" " * 4 * depth}with {USE} as use:
{" " * 4 * depth}    acc = acc + tf.reshard(got, (2 @ use.w, 16, 32 @ use.l), "rmem")
with {USE} as use:
    out = tf.insert_slice(out, acc, (0, 0))
return out
"""


def both(func, finds, reports):
    """The verifier and an execution report the defect, each in a family that fits."""
    assert families(func) & set(finds), families(func)
    kinds = seen(func)
    assert kinds & set(reports), kinds


# ---- 1: a shared tile rewritten while it is read


@pytest.mark.parametrize("slots", [1, 2])
def test_trap_1_rewritten_while_another_role_reads(tmp_path, slots):
    made = kernel(right(program(tmp_path, X, summed(), consts=f"N, S = 4, {slots}")))
    (empty,) = (b for b in made.barriers if b.name.endswith("empty"))
    assert (empty.slots, empty.count) == (slots, 2)  # both reading warps give a slot back
    both(pipe(slots, 6, release=False), {"sync-race"}, RACES | {"barrier-misuse"})


def test_trap_1_rewritten_by_the_role_that_reads(tmp_path):
    body = f"""
    out = tf.empty(Tensor[(128, 32), "f32"])
    with {USE} as use:
        for i in range(4):
            rows = tf.reshard(x[i * 32:i * 32 + 32, :], (2 @ use.w, 16, 32 @ use.l), "rmem")
            tile = tf.reshard(rows, storage="smem")
            turned = tf.reshard(tile, (32 @ use.l, 2 @ use.w, 16), "rmem")
            out = tf.insert_slice(out, turned, (i * 32, 0))
    return out
    """
    made = kernel(right(program(tmp_path, X, body)))
    meetings = [s for s in syncs(made, "barrier") if s.id]
    assert len(meetings) == 2 and {s.threads for s in meetings} == {64}

    def defect(*back):
        k = Kernel(128)
        src = k.gmem("src", (64, 64))
        one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
        two = k.rmem("two", (64, 64), "across")
        meet = sync("barrier", id=1, threads=128)
        body = (copy(one, tile), meet, copy(tile, two), *back)
        return k.func(copy(src, one), loop("i", 5, lambda i: body))

    both(defect(), {"sync-race"}, RACES)
    fine = defect(sync("barrier", id=1, threads=128))
    assert families(fine) == seen(fine) == set()


# ---- 2: trip counts of 0, 1, and fewer than the stages


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4])
def test_trap_2_short_loops(tmp_path, trips):
    right(program(tmp_path, X, summed(), consts=f"N, S = {trips}, 3"))


@pytest.mark.parametrize("trips", [0, 1, 2])
def test_trap_2_a_consumer_that_expects_a_full_pipeline(trips):
    """It drains three stages whatever was filled."""

    def defect(filled):
        k = Kernel(128)
        src, ring = k.gmem("src", (32, 96)), k.smem("ring", (32, 32), 3)
        held = Buffer("held", (32, 32), BF16, "rmem", mesh=k.inside)
        k.buffers.append(held)
        full = k.barrier("full", 1, 3)

        def fill(i):
            part = window(whole(src), (0, 32 * i), (32, 32))
            load = copy(part, whole(ring, i), "copy_async_tensor", barrier=full, slot=i)
            return sync("expect", barrier=full, slot=i, bytes=2048), load

        def drain(i):
            return sync("wait", barrier=full, slot=i), copy(whole(ring, i), held)

        return k.func(*k.setup(), k.lanes(1, loop("i", filled, fill)),
                      k.on(1, 4, loop("j", 3, drain)))  # fmt: skip

    both(defect(trips), {"sync-deadlock"}, {"deadlock"})
    assert families(defect(3)) == seen(defect(3)) == set()


MET = """
out = tf.empty(Tensor[(5, 32), "f32"])
for i in range({bounds}):
    held = tf.reshard(x[0:4, :], (2 @ {axis}, 2, 32 @ t.lane), "rmem")
    total = tf.reshard(tf.reduce(held, (0,), True), (1, 32 @ t.lane), "rmem")
    out = tf.insert_slice(out, total, (i, 0))
return out
"""


@pytest.mark.parametrize("axis", ["cta.c", "t.warp"])
def test_trap_2_units_that_meet_unequally_often(tmp_path, axis):
    """Steps 0, 2, 4 against 1, 3: the third sum is never complete."""
    even = program(tmp_path, X, MET.format(bounds="0, 5", axis=axis), thread=64, cta=2)
    func = kernel(right(even))
    (mesh,) = {mesh for stmt, mesh in walk(func.body) if isinstance(stmt, For)}
    binding, name = axis.split(".")
    start = mesh.coordinate(name, binding)

    def uneven(stmt):
        return (replace(stmt, start=start, step=2) if isinstance(stmt, For) else stmt,)

    wrong = replace(func, body=mapped(func.body, uneven))
    both(wrong, {"sync-deadlock"}, {"deadlock"})
    body = MET.format(bounds=f"{axis}, 5, 2", axis=axis)
    loaded = program(tmp_path, X, body, thread=64, cta=2)
    assert refused(finalize, loaded)[0] == "sync-loop-uneven"


@pytest.mark.parametrize(("ctas", "fits"), [(264, True), (265, False)])
def test_trap_2_blocks_that_meet_must_run_at_once(tmp_path, ctas, fits):
    """Two blocks of 1024 threads on each of 132 SMs: the 265th starts when one has ended."""
    body = f"""
    out = tf.empty(Tensor[(1, 32), "f32"])
    held = tf.reshard(x, ({ctas} @ cta.c, 32 @ t.lane), "rmem")
    total = tf.reshard(tf.reduce(held, (0,), True), (1, 32 @ t.lane), "rmem")
    return tf.insert_slice(out, total, (0, 0))
    """
    x = f'x: Tensor[({ctas}, 32), "f32"]'
    found = families(lowered(program(tmp_path, x, body, thread=1024, cta=ctas)))
    assert found == (set() if fits else {"sync-deadlock"})


# ---- 3: a parity from the loop index


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_trap_3_a_barrier_advances_on_its_own(tmp_path, slots):
    """6 fills in loops of 0, 1, 2 and 3 steps: neither index says how often a slot was used."""
    text = summed("for i in range(4):\n    for j in range(i):", "j", 2)
    made = kernel(right(program(tmp_path, X, text, consts=f"S = {slots}")))
    assert len(made.counters) == 1


@pytest.mark.parametrize("parity", [lambda i: i % 2, lambda i: 0], ids=["index", "constant"])
def test_trap_3_a_parity_from_the_index(parity):
    both(pipe(2, 6, parity=parity), {"sync-barrier", "sync-deadlock", "sync-race"},
         RACES | {"deadlock", "barrier-misuse", "uninitialised"})  # fmt: skip


def test_trap_3_steps_that_are_skipped():
    skip = pipe(1, 12, guard=lambda i, stmts: (When(i % 3, stmts),))
    both(skip, {"sync-barrier", "sync-deadlock", "sync-race"},
         RACES | {"deadlock", "barrier-misuse"})  # fmt: skip


# ---- 4: a barrier over other threads than those that come


def test_trap_4_part_of_a_warp(tmp_path):
    body = """
    out = tf.empty(Tensor[(32, 32), "f32"])
    with Mesh(t[0:1, :16], layout=(16,), names=("l",)) as use:
        rows = tf.reshard(x[0:32, :], (32, 16 @ use.l, 2), "rmem")
        turned = tf.reshard(tf.reshard(rows, storage="smem"), (16 @ use.l, 2, 32), "rmem")
        out = tf.insert_slice(out, turned, (0, 0))
    return out
    """
    code, text = refused(finalize, program(tmp_path, X, body))
    assert code in ("sync-partial-warps", "tir-unverified") and "32" in text


@pytest.mark.parametrize(
    ("threads", "reports"),
    [
        (120, {"barrier-misuse"}),  # PTX ISA: a multiple of the warp size
        (96, RACES | {"barrier-misuse", "deadlock"}),
        (160, {"deadlock"}),
    ],
)
def test_trap_4_counts_of_threads(threads, reports):
    k = Kernel(128)
    src = k.gmem("src", (64, 64))
    one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
    two = k.rmem("two", (64, 64), "across")
    meet = sync("barrier", id=1, threads=threads)
    both(k.func(copy(src, one), copy(one, tile), meet, copy(tile, two)),
         {"sync-barrier", "sync-deadlock"}, reports)  # fmt: skip


# ---- 5: two producers of one value

TWO = """
out = tf.empty(Tensor[(64, 32), "f32"])
for i in range(3):
    with t[0, :] as load:
        tile = tf.empty(Tensor[(64, 32), "f32", "smem"])
        place = tf.empty(Tensor[(32, 32), "f32", "smem"])
        top = tf.schedule((x[i * 32:i * 32 + 32, :], place), op=T.copy_async_tensor())
        tile = tf.insert_slice(tile, top, (0, 0))
    with Mesh(t[1:2, :], layout=(32,), names=("l",)) as one:
        held = tf.reshard(y[i * 32:i * 32 + 32, :], (32, 32 @ one.l), "rmem")
        tile = tf.insert_slice(tile, tf.reshard(held, storage="smem"), (32, 0))
    with Mesh(t[2:3, :], layout=(32,), names=("l",)) as use:
        out = tf.insert_slice(out, tf.reshard(tile, (64, 32 @ use.l), "rmem"), (0, 0))
return out
"""


def test_trap_5_a_tile_filled_by_an_engine_and_by_threads(tmp_path):
    params = f'{X}, y: Tensor[(96, 32), "f32"]'
    right(program(tmp_path, params, TWO))


def test_trap_5_only_the_engines_barrier_is_waited_for():
    def defect(*tell, count):
        k = Kernel(128)
        src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
        more = k.gmem("more", (32, 64))
        held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
        k.buffers.append(held)
        full = k.barrier("full", count)
        parts = [window(whole(tile), (row, 0), (32, 64)) for row in (0, 32)]
        load = copy(window(whole(src), (0, 0), (32, 64)), parts[0], "copy_async_tensor",
                    barrier=full, slot=0)  # fmt: skip
        say = (replace(s, barrier=full) if s.kind == "arrive" else s for s in tell)
        return k.func(
            *k.setup(),
            k.lanes(1, sync("expect", barrier=full, bytes=4096), load),
            k.on(1, 2, copy(more, parts[1]), *say),
            k.on(2, 4, sync("wait", barrier=full), copy(tile, held)),
        )

    both(defect(count=1), {"sync-race"}, RACES | {"uninitialised"})
    fine = defect(sync("warp"), sync("arrive", every=32), count=2)
    assert families(fine) == seen(fine) == set()


# ---- 6, 11, 12: where barriers come from and where they lie

KERNEL = """
@func
def NAME(x: Tensor[(128, 32), "f32"]):
    out = tf.empty(Tensor[(128, 32), "f32"])
    with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
        with Mesh(("thread",), layout=(3, 32), names=("warp", "lane")) as t:
            for i in range(4):
                with t[0, :] as load:
                    ring = tf.empty(Tensor[(32, 32), "f32", "smem"], buffers=2)
                    got = tf.schedule((x[i * 32:i * 32 + 32, :], ring), op=T.copy_async_tensor())
                with Mesh(t[1:3, :], layout=(2, 32), names=("w", "l")) as use:
                    held = tf.reshard(got, (2 @ use.w, 16, 32 @ use.l), "rmem")
                    out = tf.insert_slice(out, held * 2.0, (i * 32, 0))
            return out
"""


def test_trap_6_barriers_of_two_kernels(tmp_path):
    from trapped import HEAD, load_source, textwrap

    body = KERNEL.replace("NAME", "g") + KERNEL.replace("NAME", "h")
    body += '\n@func\ndef f(x: Tensor[(128, 32), "f32"]):\n    y = g(x)\n    return h(y)\n'
    levels = 'Topology("cta", 1), Topology("thread", 96)'
    path = tmp_path / "program.py"
    path.write_text(HEAD.format(consts="", levels=levels) + textwrap.indent(body, "    "))
    made = right(load_source(str(path), None, {}))
    for func in made.kernels.values():
        started = {s.barrier for s in syncs(func, "init")}
        used = {s.barrier for s in syncs(func, "wait", "arrive", "expect")}
        assert used == started == set(func.barriers) and used


@pytest.mark.parametrize("left_out", ["init", "fence_init", "barrier"])
def test_trap_6_and_11_used_before_it_is_initialised_for_all(left_out):
    """6: nobody initialises it here; 11: the initialisation is not released to the others."""
    func = pipe(2, 3)
    stmt = next(s for s in syncs(func, left_out) if s.id == 0)
    both(swap(func, stmt), {"sync-barrier"}, {"barrier-misuse"})


def test_trap_11_initialisation_comes_first(tmp_path):
    made = kernel(right(program(tmp_path, X, summed(), consts="N, S = 4, 2"), ()))
    order = [s.kind for s, _ in walk(made.body) if isinstance(s, Sync)]
    inits = order.count("init")
    assert inits == len(made.barriers)
    assert order[: inits + 2] == ["init"] * inits + ["fence_init", "barrier"]
    assert next(s for s in syncs(made, "barrier")).threads == 96


def extents(func):
    """Bytes of every buffer slot and barrier array in shared memory."""
    held = [
        (at, at + b.type.bits(b.shape) // 8)
        for b in func.buffers
        if b.storage == "smem"
        for at in b.offsets
    ]
    return held, [(b.offset, b.offset + 8 * b.slots) for b in func.barriers]


def test_trap_12_barriers_have_bytes_of_their_own(tmp_path):
    """The sums over warps take scratch besides the ring."""
    body = """
    out = tf.empty(Tensor[(4, 32), "f32"])
    for i in range(4):
        ring = tf.empty(Tensor[(32, 32), "f32", "smem"], buffers=2)
        tile = tf.schedule((x[i * 32:i * 32 + 32, :], ring), op=T.copy_async_tensor())
        held = tf.reshard(tile, (2 @ t.warp, 16, 32 @ t.lane), "rmem")
        total = tf.reshard(tf.reduce(held, (0,), True), (1, 32 @ t.lane))
        out = tf.insert_slice(out, total, (i, 0))
    return out
    """
    made = kernel(right(program(tmp_path, X, body, thread=64)))
    assert any(b.dtype == DTYPES["u8"] for b in made.buffers)
    buffers, barriers = extents(made)
    for at, end in barriers:
        assert at % 8 == 0 and end <= made.shared_bytes
        assert all(end <= a or b <= at for a, b in buffers)


@pytest.mark.parametrize("where", ["overlapped", "outside"])
def test_trap_12_barriers_in_the_bytes_of_others(where):
    func = pipe(2, 4)
    full, ring = func.barriers[0], func.buffers[0]
    at = ring.offsets[1] if where == "overlapped" else func.shared_bytes - 8
    both(rebuild(func, barriers={full: replace(full, offset=at)}), {"smem-plan"}, {"overlap"})


# ---- 7: a tensor copy without completion


def test_trap_7_every_load_completes_on_a_barrier(tmp_path):
    """Also where one role loads and reads."""
    body = """
    out = tf.empty(Tensor[(128, 32), "f32"])
    for i in range(4):
        place = tf.empty(Tensor[(32, 32), "f32", "smem"])
        tile = tf.schedule((x[i * 32:i * 32 + 32, :], place), op=T.copy_async_tensor())
        out = tf.insert_slice(out, tf.reshard(tile, (32 @ t.lane, 32), "rmem"), (i * 32, 0))
    return out
    """
    made = kernel(right(program(tmp_path, X, body, thread=32)))
    loads = issues(made, "copy_async_tensor")
    assert loads and all(load.attrs["barrier"] in made.barriers for load in loads)


def test_trap_7_a_load_without_a_barrier():
    func = pipe(2, 4)
    (load,) = issues(func, "copy_async_tensor")
    bare = replace(load, attrs={})
    both(swap(func, load, bare), {"sync-barrier"}, {"barrier-misuse", "bytes-mismatch"})


# ---- 8: a read and a later overwrite in the other order


def test_trap_8_a_tile_is_read_after_the_next_one_was_loaded(tmp_path):
    body = """
    out = tf.empty(Tensor[(128, 32), "f32"])
    before = tf.reshard(x[96:128, :], storage="smem")
    for i in range(4):
        tile = tf.reshard(x[i * 32:i * 32 + 32, :], storage="smem")
        old = tf.reshard(before, (32 @ t.lane, 32), "rmem")
        both = old - tf.reshard(tile, (32 @ t.lane, 32), "rmem")
        out = tf.insert_slice(out, both, (i * 32, 0))
        before = tile
    return out
    """
    right(program(tmp_path, X, body, thread=32))


def test_trap_8_an_update_between_two_reads(tmp_path):
    """Another role overwrites half of the tile after it was read, and before it is again."""
    body = """
    out = tf.empty(Tensor[(128, 32), "f32"])
    for i in range(4):
        with Mesh(t[0, :], layout=(32,), names=("l",)) as one:
            rows = tf.reshard(x[i * 32:i * 32 + 32, :], (32 @ one.l, 32), "rmem")
            tile = tf.reshard(rows, storage="smem")
        with Mesh(t[1, :], layout=(32,), names=("l",)) as two:
            early = tf.reshard(tile, (32, 32 @ two.l), "rmem")
        with Mesh(t[0, :], layout=(32,), names=("l",)) as one:
            more = tf.reshard(tf.reshard(x[0:16, :], (16, 32 @ one.l), "rmem"), storage="smem")
            tile = tf.insert_slice(tile, more, (0, 0))
        with Mesh(t[1, :], layout=(32,), names=("l",)) as two:
            late = tf.reshard(tile, (32, 32 @ two.l), "rmem")
            out = tf.insert_slice(out, early * 8.0 + late, (i * 32, 0))
    return out
    """
    right(program(tmp_path, X, body))


def test_trap_8_the_old_value_is_read_after_its_update(tmp_path):
    body = """
    out = tf.empty(Tensor[(32, 32), "f32"])
    tile = tf.reshard(x[0:32, :], storage="smem")
    new = tf.insert_slice(tile, tf.reshard(x[32:48, :], storage="smem"), (0, 0))
    both = tf.reshard(new, (32 @ t.lane, 32), "rmem") - tf.reshard(tile, (32 @ t.lane, 32), "rmem")
    return tf.insert_slice(out, both, (0, 0))
    """
    assert refused(finalize, program(tmp_path, X, body, thread=32))[0] == "lower-clobbered"


# ---- 9: a plain write, then an asynchronous access


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_trap_9_stored_by_an_engine(tmp_path, trips):
    """The loop's fence is not executed where it has no trips: what stands behind has its own."""
    body = f"""
    out = tf.empty(Tensor[(128, 32), "f32"])
    with {USE} as use:
        for i in range({trips}):
            held = tf.reshard(x[i * 32:i * 32 + 32, :], (2 @ use.w, 16, 32 @ use.l), "rmem")
            tile = tf.reshard(held, storage="smem")
            sent = tf.schedule((tile, tf.empty(Tensor[(32, 32), "f32"])), op=T.copy_async_tensor())
            out = tf.insert_slice(out, sent, (i * 32, 0))
        for i in range({trips}, 4):
            held = tf.reshard(x[i * 32:i * 32 + 32, :], (2 @ use.w, 16, 32 @ use.l), "rmem")
            tile = tf.reshard(held + 1.0, storage="smem")
            sent = tf.schedule((tile, tf.empty(Tensor[(32, 32), "f32"])), op=T.copy_async_tensor())
            out = tf.insert_slice(out, sent, (i * 32, 0))
    return out
    """
    made = kernel(right(program(tmp_path, X, body)))
    assert len(syncs(made, "fence_proxy")) == 2 - (trips == 0)


def test_trap_9_plainly_filled_operands_of_wgmma(tmp_path):
    made = kernel(right(wgmma(tmp_path, "T.copy()")))
    assert syncs(made, "fence_proxy")


@pytest.mark.parametrize("defect", ["none", "zero trips"])
def test_trap_9_no_fence(defect):
    if defect == "none":
        both(pipe(2, 6, fence=False), {"sync-proxy"}, RACES)
        return

    def stored(trips):
        k = Kernel(128)
        src, out = k.gmem("src", (64, 64)), k.gmem("out", (64, 64), "out")
        one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
        send = k.lanes(32, copy(tile, out, "copy_async_tensor"), sync("bulk_commit"),
                       sync("bulk_wait"))  # fmt: skip
        return k.func(
            copy(src, one), copy(one, tile), loop("i", trips, lambda i: (sync("fence_proxy"),)),
            sync("barrier", id=1, threads=128), send,
        )  # fmt: skip

    assert families(stored(1)) == seen(stored(1)) == set()
    both(stored(0), {"sync-proxy"}, RACES)


# ---- 10: a carried value that crosses roles


def test_trap_10_through_registers(tmp_path):
    """Warp 0 sums; the others hold the zeros from before, and are not to store those."""
    body = """
    out = tf.empty(Tensor[(32, 32), "f32"])
    acc = tf.zeros(Tensor[(32, 32), "f32", "rmem"])
    for i in range(3):
        with t[0, :] as one:
            acc = acc + tf.reshard(x[i * 32:i * 32 + 32, :], storage="rmem")
    with t[1, :] as two:
        return tf.insert_slice(out, acc, (0, 0))
    """
    body = body.replace("return tf", "out = tf") + "return out\n    "
    code, text = refused(finalize, program(tmp_path, X, body))
    assert code == "sync-registers-cross-roles" and "shared memory" in text
    # the role that carries it may store it
    right(program(tmp_path, X, body.replace("t[1, :] as two", "t[0, :] as two")))


def test_trap_10_a_split_value_is_not_held_elsewhere(tmp_path):
    body = """
    out = tf.empty(Tensor[(32, 32), "f32"])
    with Mesh(t[0, :], layout=(32,), names=("l",)) as one:
        acc = tf.reshard(x[0:32, :], (32 @ one.l, 32), "rmem")
    with Mesh(t[1, :], layout=(32,), names=("l",)) as two:
        out = tf.insert_slice(out, acc + 1.0, (0, 0))
    return out
    """
    assert refused(program, tmp_path, X, body)[0] == "value-not-held"


def test_trap_10_in_a_kernel():
    def crossing(reader):
        k = Kernel(128)
        src, out = k.gmem("src", (64, 64)), k.gmem("out", (64, 64), "out")
        held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
        k.buffers.append(held)
        update = loop("i", 3, lambda i: (copy(src, held),))
        return k.func(copy(src, held), k.on(0, 1, update), k.on(reader, reader + 1,
                                                                copy(held, out)))  # fmt: skip

    assert families(crossing(0)) == set()
    assert families(crossing(1)) == {"sync-registers"}


# ---- 13: a kernel that is right for clusters of one only


@pytest.mark.parametrize("size", [1, 2])
def test_trap_13_clusters(tmp_path, size):
    made = kernel(right(program(tmp_path, X, summed(), consts="N, S = 4, 2", cluster=size)))
    assert not syncs(made, "cluster")  # each CTA has its own tiles and barriers


# ---- 15: every stage drained


ATOM = (
    'atom = T.cuda.sm90.Wgmma(n=64, dtype="bf16", form=T.cuda.sm90.Form.SS, '
    "a_major=T.cuda.sm90.Major.K, b_major=T.cuda.sm90.Major.MN)"
)
FOUR = 'Mesh(t[4:8, :], layout=(4, 8, 4), names=("w", "l8", "l4"))'
RING = 'Tensor[(64, 64), "bf16", Layout((64, 64)) | Swizzle(3, 4, 3), "smem"]'
ACC = '"f32", (4 @ use.w, 2, 8 @ use.l8, 8, 4 @ use.l4, 2), "rmem"'


def wgmma(folder, load, each=False, steps=4):
    """(64, 64 · steps) times (64 · steps, 64); ``each``: the product of a step is used in it."""
    zeros = f"tf.zeros(Tensor[(64, 64), {ACC}])"
    product = "tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=atom))"
    step = f"acc = {product}"
    if each:
        step = f"acc = {zeros}\n        total = total + {product}"
    loader = "t[0, :]" if "async" in load else FOUR
    name = "total" if each else "acc"
    body = f"""
out = tf.empty(Tensor[(64, 64), "f32"])
with {FOUR} as use:
    {name} = {zeros}
for k in tf.tile({64 * steps}, 64):
    with {loader} as load:
        a_ring = tf.empty({RING}, buffers=2)
        lhs = tf.schedule((a[:, k], a_ring), op={load})
        b_ring = tf.empty({RING}, buffers=2)
        rhs = tf.schedule((b[k, :], b_ring), op={load})
    with {FOUR} as use:
        {step}
with {FOUR} as use:
    out = tf.insert_slice(out, {name}, (0, 0))
return out
"""
    params = f'a: Tensor[(64, {64 * steps}), "bf16"], b: Tensor[({64 * steps}, 64), "bf16"]'
    return program(folder, params, body, consts=ATOM, thread=256)


def pending(func):
    """Groups of wgmma that each wait inside a loop leaves in flight."""
    (steps,) = [s for s, _ in walk(func.body) if isinstance(s, For)]
    return [s.pending for s, _ in walk(steps.body) if getattr(s, "kind", "") == "wgmma_wait"]


def drains(made):
    return [n for n in kernel(made).notes if n.startswith("drain")]


def test_trap_15_a_group_stays_in_flight(tmp_path):
    made = right(wgmma(tmp_path, "T.copy_async_tensor()"))
    assert pending(kernel(made)) == [1] and drains(made) == []


def test_trap_15_a_drain_that_the_program_asks_for(tmp_path):
    """The product of a step is read in it: right, slower, and the head says so."""
    made = right(wgmma(tmp_path, "T.copy_async_tensor()", each=True))
    assert pending(kernel(made)) == [0]
    (note,) = drains(made)
    line = next(n for n, text in enumerate((tmp_path / "program.py").read_text().split("\n"), 1)
                if "for k in" in text)  # fmt: skip
    assert f"line={line} " in note and "in_flight=0" in note


def test_trap_15_draining_is_no_error():
    func = gemm(tiles=(1, 1), k_steps=4, ctas=1, groups=1)
    wait = next(s for s in syncs(func, "wgmma_wait") if s.pending == 1)
    assert families(swap(func, wait, replace(wait, pending=0))) == set()


# ---- too strict is a defect too


def test_legal_two_copies_expect_bytes_on_one_barrier():
    """They are one phase: two arrivals, the bytes of both."""
    k = Kernel(64)
    src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
    held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    full = k.barrier("full", 2)
    halves = []
    for row in (0, 32):
        far, near = (window(whole(b), (row, 0), (32, 64)) for b in (src, tile))
        halves += [sync("expect", barrier=full, bytes=4096),
                   copy(far, near, "copy_async_tensor", barrier=full, slot=0)]  # fmt: skip
    reader = k.on(1, 2, sync("wait", barrier=full), copy(tile, held))
    func = k.func(*k.setup(), k.lanes(1, *halves), reader)
    assert families(func) == seen(func) == set()


def test_legal_the_first_acquire_waits_for_the_preceding_phase():
    func = pipe(2, 5)
    first = syncs(func, "wait")[0]
    (turn,) = symbols(first.parity)
    # slots 0 and 1 pass on parity 1, which a fresh barrier's preceding phase has
    assert first.barrier.name == "empty"
    assert [evaluate(first.parity, {turn: n}) for n in range(6)] == [1, 1, 0, 0, 1, 1]
    assert families(func) == seen(func) == set()


def test_legal_cp_async_that_arrives_by_itself():
    """arrive.noinc: the pending count is of the threads that copy, each arrives once."""
    k = Kernel(128)
    src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
    held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    full = k.barrier("full", 64)
    writer = k.on(0, 2, copy(src, tile, "copy_async"), sync("async_arrive", barrier=full))
    reader = k.on(2, 4, sync("wait", barrier=full), copy(tile, held))
    func = k.func(*k.setup(), writer, reader)
    assert families(func) == seen(func) == set()


def test_legal_buffers_that_take_turns_in_the_same_bytes():
    k = Kernel(128)
    src = k.gmem("src", (64, 64))
    one, two = k.rmem("one", (64, 64)), k.rmem("two", (64, 64), "across")
    a = k.smem("a", (64, 64))
    b = k.smem("b", (64, 64), offsets=a.offsets)
    meet = sync("barrier", id=1, threads=128)
    func = k.func(copy(src, one), copy(one, a), meet, copy(a, two), meet, copy(one, b), meet,
                  copy(b, two))  # fmt: skip
    assert families(func) == seen(func) == set()
