"""One rule a test: what is derived for a few statements, as text, and the verifier accepts it."""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.lower.allocate import place_barriers
from tilefoundry.lower.sync import synchronise
from tilefoundry.tir.program import Issue, When, whole, window
from tilefoundry.tir.rewrite import rebuild
from tilefoundry.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from samples import gemm
from tiny import Tiny, given, lines, loop, move, op, result, shared

TINY = Tiny()
A, B = given("a"), given("b")


def derived(text, barriers, *body, tiny=TINY, func=None):
    """The statements of ``body`` with synchronisation are ``text``, their barriers
    ``barriers``: name → (slots, count)."""
    made = place_barriers(synchronise(func or tiny.kernel(*body)))
    assert "\n".join(lines(made)) == textwrap.dedent(text).strip()
    assert {b.name: (b.slots, b.count) for b in made.barriers} == barriers
    ours = [f for f in verify(made) if f.code.startswith("sync") and f"to {OUT}" not in str(f)]
    assert not ours


OUT = "o"
"""Written again and again here, which the verifier rightly calls a race on its own."""


def held(name, first, last):
    return TINY.held(name, first, last)


def test_nothing_for_registers_and_device_memory():
    one, two = held("one", 0, 4), held("two", 0, 4)
    derived("""
        threads 0..127
          copy a one
          unary one two
          copy two o
    """, {}, TINY.on(0, 4, move("copy", A, one), op("exp", one, two),
                     move("copy", two, result(OUT))))  # fmt: skip


def test_nothing_for_a_thread_that_reads_what_it_wrote():
    tile, one, two = shared("s"), held("one", 0, 4), held("two", 0, 4)
    derived("""
        for i
          threads 0..127
            copy one s
            copy s two
    """, {}, loop("i", 5, TINY.on(0, 4, move("copy", one, tile),
                                  move("copy", tile, two))))  # fmt: skip


def test_a_barrier_of_the_role_for_other_threads():
    # the copy deals elements by its own rule; 128 threads, so not barrier 0
    tile, one = shared("s"), held("one", 0, 4)
    derived("""
        for i
          threads 0..127
            barrier threads 128 id 1
            copy a s
            barrier threads 128 id 1
            copy s one
    """, {}, loop("i", 5, TINY.on(0, 4, move("copy", A, tile),
                                  move("copy", tile, one))))  # fmt: skip


def test_a_ring_needs_one_barrier_of_two():
    # the barrier of each iteration orders the slot's next fill too
    tile, one = shared("s", 2), held("one", 0, 4)
    derived("""
        for i
          threads 0..127
            copy a s
            barrier threads 128 id 1
            copy s one
    """, {}, loop("i", 5, lambda i: TINY.on(0, 4, move("copy", A, tile, i % 2),
                                            move("copy", tile, one, i % 2))))  # fmt: skip


def test_a_warp_synchronises_itself():
    tile, one = shared("s"), held("one", 2, 3)
    derived("""
        threads 64..95
          copy a s
          warp
          copy s one
    """, {}, TINY.on(2, 3, move("copy", A, tile), move("copy", tile, one)))  # fmt: skip


def test_matrix_stores_exchange_within_warps():
    tile, one, two = shared("s"), held("one", 0, 4), held("two", 0, 4)
    derived("""
        threads 0..127
          stmatrix one s
          warp
          copy s two
    """, {}, TINY.on(0, 4, move("stmatrix", one, tile), move("copy", tile, two)))  # fmt: skip


def test_a_barrier_stands_before_the_loop_that_needs_it_once():
    tile, one = shared("s"), held("one", 0, 4)
    derived("""
        threads 0..127
          copy a s
          barrier threads 128 id 1
          for i
            copy s one
    """, {}, TINY.on(0, 4, move("copy", A, tile),
                     loop("i", 5, move("copy", tile, one))))  # fmt: skip


def test_overlapping_participants_meet_in_the_scope_around_them():
    tile, one = shared("s"), held("one", 2, 4)
    derived("""
        for i
          barrier threads 256 id 0
          copy a s
          barrier threads 256 id 0
          threads 64..127
            copy s one
    """, {}, loop("i", 5, move("copy", A, tile),
                  TINY.on(2, 4, move("copy", tile, one))))  # fmt: skip


def test_cp_async_in_its_own_role():
    tile, one = shared("s"), held("one", 0, 4)
    derived("""
        threads 0..127
          copy_async a s
          async_commit
          async_wait 0
          barrier threads 128 id 1
          copy s one
    """, {}, TINY.on(0, 4, move("copy_async", A, tile), move("copy", tile, one)))  # fmt: skip


def test_cp_async_groups_are_counted():
    # when the first tile is read, one later group may still be in flight
    one, two = shared("s"), shared("t")
    x, y = held("x", 0, 4), held("y", 0, 4)
    derived("""
        threads 0..127
          copy_async a s
          async_commit
          unary x y
          copy_async b t
          async_commit
          async_wait 1
          barrier threads 128 id 1
          copy s x
          async_wait 0
          barrier threads 128 id 1
          copy t y
    """, {}, TINY.on(0, 4, move("copy_async", A, one), op("exp", x, y),
                     move("copy_async", B, two), move("copy", one, x),
                     move("copy", two, y)))  # fmt: skip


def test_cp_async_tells_another_role_itself():
    tile, one = shared("s", 3), held("one", 4, 8)
    derived("""
        for i
          threads 0..127
            wait s_empty[(i % 3)] parity (((i // 3) + 1) % 2)
            copy_async a s
            async_arrive s_full[(i % 3)]
          threads 128..255
            wait s_full[(i % 3)] parity ((i // 3) % 2)
            copy s one
            warp
            arrive s_empty[(i % 3)] every 32
    """, {"s_full": (3, 128), "s_empty": (3, 4)},
        loop("i", 9, lambda i: (TINY.on(0, 4, move("copy_async", A, tile, i % 3)),
                                TINY.on(4, 8, move("copy", tile, one, i % 3)))))  # fmt: skip


def test_readers_of_several_roles_are_counted_together():
    tile, one, two = shared("s"), held("one", 1, 3), held("two", 3, 7)
    derived("""
        for i
          threads 0..31
            wait s_empty parity ((i + 1) % 2)
            expect s_full bytes 4096
            copy_async_tensor a s
          threads 32..95
            wait s_full parity (i % 2)
            copy s one
            fence_proxy
            warp
            arrive s_empty every 32
          threads 96..223
            wait s_full parity (i % 2)
            copy s two
            fence_proxy
            warp
            arrive s_empty every 32
    """, {"s_full": (1, 1), "s_empty": (1, 6)},
        loop("i", 9, TINY.on(0, 1, move("copy_async_tensor", A, tile)),
             TINY.on(1, 3, move("copy", tile, one)),
             TINY.on(3, 7, move("copy", tile, two))))  # fmt: skip


def test_fills_with_one_reader_share_a_barrier_and_others_do_not():
    # s and t are read by one product of operands, u by another statement
    s, t, u = shared("s"), shared("t"), shared("u")
    x, y = held("x", 4, 8), held("y", 4, 8)
    both = Issue("binary", (whole(s), whole(t)), (whole(x),), {"op": "add", "kind": "add"})
    fills = [move("copy_async_tensor", A, b) for b in (s, t, u)]
    derived("""
        threads 0..31
          expect s_full bytes 8192
          copy_async_tensor a s
          copy_async_tensor a t
          expect u_full bytes 4096
          copy_async_tensor a u
        threads 128..255
          wait s_full parity 0
          binary s t x
          wait u_full parity 0
          copy u y
    """, {"s_full": (1, 1), "u_full": (1, 1)},
        TINY.on(0, 1, *fills), TINY.on(4, 8, both, move("copy", u, y)))  # fmt: skip


def test_a_tile_of_the_outer_loop_is_waited_for_and_given_back_there():
    tile, one = shared("q"), held("one", 4, 8)
    derived("""
        for task
          threads 0..31
            wait q_empty parity ((task + 1) % 2)
            expect q_full bytes 4096
            copy_async_tensor a q
          threads 128..255
            wait q_full parity (task % 2)
          for k
            threads 128..255
              copy q one
          threads 128..255
            fence_proxy
            warp
            arrive q_empty every 32
    """, {"q_full": (1, 1), "q_empty": (1, 4)},
        loop("task", 3, TINY.on(0, 1, move("copy_async_tensor", A, tile)),
             loop("k", 5, TINY.on(4, 8, move("copy", tile, one)))))  # fmt: skip


def test_a_fill_in_pieces_expects_all_of_them():
    tile, one = shared("s", shape=(32, 96)), TINY.held("one", 4, 8, (32, 96))
    source = given("wide", (32, 96))

    def fill(i):
        part, place = (window(whole(x), (0, 32 * i), (32, 32)) for x in (source, tile))
        return TINY.on(0, 1, move("copy_async_tensor", part, place))

    derived("""
        threads 0..31
          expect s_full bytes 12288
        for i
          threads 0..31
            copy_async_tensor wide s
        threads 128..255
          wait s_full parity 0
          copy s one
    """, {"s_full": (1, 1)},
        loop("i", 3, fill), TINY.on(4, 8, move("copy", tile, one)))  # fmt: skip


def test_the_engine_reads_what_threads_wrote_behind_a_fence():
    tile, one = shared("s"), held("one", 0, 4)
    derived("""
        for i
          threads 0..127
            bulk_wait 0 read
            barrier threads 128 id 1
            copy one s
            fence_proxy
            barrier threads 128 id 1
            copy_async_tensor s o
            bulk_commit
        threads 0..127
          bulk_wait 0
    """, {}, loop("i", 5, TINY.on(0, 4, move("copy", one, tile),
                                  move("copy_async_tensor", tile, result(OUT)))))  # fmt: skip


def test_the_fence_stands_before_the_first_barrier():
    # the threads read the tile before the engine does: one barrier is enough
    tile, two = shared("s"), held("two", 0, 4)
    derived("""
        threads 0..127
          copy a s
          fence_proxy
          barrier threads 128 id 1
          copy s two
          copy_async_tensor s o
          bulk_commit
          bulk_wait 0
    """, {}, TINY.on(0, 4, move("copy", A, tile), move("copy", tile, two),
                     move("copy_async_tensor", tile, result(OUT))))  # fmt: skip


def test_one_thread_issues_for_a_role_of_several_warps():
    # the other warps do not wait: a phase could come twice before they look
    tile, one = shared("s"), held("one", 4, 8)
    derived("""
        for i
          threads 0..127
            threads 0..31
              wait s_empty parity ((i + 1) % 2)
            expect s_full bytes 4096
            copy_async_tensor a s
          threads 128..255
            wait s_full parity (i % 2)
            copy s one
            fence_proxy
            warp
            arrive s_empty every 32
    """, {"s_full": (1, 1), "s_empty": (1, 4)},
        loop("i", 9, TINY.on(0, 4, move("copy_async_tensor", A, tile)),
             TINY.on(4, 8, move("copy", tile, one))))  # fmt: skip


def test_a_fill_that_does_not_always_happen():
    tile, one = shared("s", 2), held("one", 4, 8)

    def body(k):
        fill = TINY.on(0, 1, move("copy_async_tensor", A, tile, k % 2))
        return When(k - 3, (fill, TINY.on(4, 8, move("copy", tile, one, k % 2))))

    derived("""
        for k
          threads 0..31
            wait s_empty[(k % 2)] parity (((k // 2) + 1) % 2)
            when k - 3
              expect s_full[(k % 2)] bytes 4096
              copy_async_tensor a s
            when -k + 4
              expect s_full[(k % 2)]
          threads 128..255
            wait s_full[(k % 2)] parity ((k // 2) % 2)
            when k - 3
              copy s one
            fence_proxy
            warp
            arrive s_empty[(k % 2)] every 32
    """, {"s_full": (2, 1), "s_empty": (2, 4)}, loop("k", 9, body))  # fmt: skip


def test_a_counter_counts_what_no_expression_does():
    tile, one = shared("s"), held("one", 4, 8)
    inner = []

    def body(task):
        inner.append(loop("k", task + 1, TINY.on(0, 1, move("copy_async_tensor", A, tile)),
                          TINY.on(4, 8, move("copy", tile, one))))  # fmt: skip
        return inner[0]

    derived("""
        for task
          for k
            threads 0..31
              wait s_empty parity ((k_count + 1) % 2)
              expect s_full bytes 4096
              copy_async_tensor a s
            threads 128..255
              wait s_full parity (k_count % 2)
              copy s one
              fence_proxy
              warp
              arrive s_empty every 32
            advance k_count
    """, {"s_full": (1, 1), "s_empty": (1, 4)}, loop("task", 4, body))  # fmt: skip


@pytest.mark.parametrize("storer", ["loader", "own"])
def test_a_tile_over_the_ring_is_written_when_the_ring_is_idle(storer):
    """The staged tile lies over the ring: the next tile's loads wait for the store."""
    func = gemm(synced=False, groups=1, storer=storer, k_steps=5)
    _, rhs, staged = func.buffers[:3]
    func = rebuild(func, buffers={staged: replace(staged, offsets=(rhs.offsets[0],))})
    made = place_barriers(synchronise(func))
    assert [f for f in verify(made) if f.code.startswith(("sync", "smem"))] == []
    text = [line.strip() for line in lines(made)]
    if storer == "own":  # the loader waits for the storer once per tile
        assert text[:4] == ["for task", "threads 128..255", "fill acc", "threads 0..31"]
        assert text[4].startswith("wait ")
        assert text[5] == "for k"


def test_a_fill_that_nobody_reads_is_waited_for_by_its_own_role():
    tile = shared("s", 2)
    derived("""
        for i
          threads 0..31
            expect s_full bytes 4096
            copy_async_tensor a s
            wait s_full parity (i % 2)
    """, {"s_full": (1, 1)},
        loop("i", 9, lambda i: TINY.on(0, 1, move("copy_async_tensor", A, tile,
                                                  i % 2))))  # fmt: skip


def test_a_loop_that_never_runs_is_dropped():
    tile, one = shared("s"), held("one", 0, 4)
    derived("""
        threads 0..127
          copy a one
    """, {}, TINY.on(0, 4, move("copy", A, one)),
        loop("i", 0, TINY.on(4, 8, move("copy_async_tensor", A, tile))))  # fmt: skip


def program(name):
    source = Path(__file__).parents[2] / "examples" / "gpu" / f"{name}.py"
    (kernel,) = lower(load_source(str(source), None, {}).module).kernels.values()
    return [line.strip() for line in lines(kernel)]


def follows(text, *wanted):
    """The lines of ``wanted`` stand in ``text`` in this order, up to their slots."""
    at = iter(text)
    return all(any(line.startswith(w) for line in at) for w in wanted)


def test_two_products_in_flight_are_waited_for_where_each_is_used():
    """Scores and values are issued one after the other: the first use of the scores leaves
    one group in flight and gives the keys back, that of the sum gives the values back."""
    text = program("flash_attention_pipelined")
    loop_at = text.index("for back")
    assert follows(
        text[loop_at:],
        "wait k_ring_full", "wgmma_fence", "tiled_mma", "wgmma_commit",
        "wait v_ring_full", "wgmma_fence", "tiled_mma", "wgmma_commit",
        "wgmma_wait 1", "arrive k_ring_empty", "reduce zero",
        "wgmma_wait 0", "arrive v_ring_empty", "binary acc fade acc",
    )  # fmt: skip


def test_a_product_may_run_into_the_next_iteration():
    """The sum is next touched an iteration later: its values are given back there."""
    text = program("flash_attention")
    loop_at = text.index("for n")
    assert follows(
        text[loop_at:],
        "wait k_ring_full", "tiled_mma", "wgmma_commit", "wgmma_wait 0", "arrive k_ring_empty",
        "when n", "arrive v_ring_empty", "binary acc fade acc",
        "wait v_ring_full", "tiled_mma", "wgmma_commit",
        "wgmma_wait 0", "arrive v_ring_empty", "copy",
    )  # fmt: skip
