"""Synchronisation of the sample GEMM, statement by statement as the protocol has it."""

import sys
from pathlib import Path

import pytest

from tilefoundry.ir.expr import evaluate
from tilefoundry.lower.sync import synchronise
from tilefoundry.tir.program import For, Issue, Sync, When, With

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from samples import gemm

FIELDS = ("every", "bytes", "id", "threads", "pending", "read", "count")


def facts(body, names):
    """The program's shape: scopes by their threads, statements by what they say."""
    out = []
    for stmt in body:
        match stmt:
            case With() if stmt.binding == "setup":  # who is elected there is so in any scope
                out += facts(stmt.body, names)
            case With():
                out.append((tuple(stmt.mesh.units("thread")), facts(stmt.body, names)))
            case For():
                out.append(("for", stmt.var, facts(stmt.body, names)))
            case When():
                out.append(("when", str(stmt.test), facts(stmt.body, names)))
            case Issue():
                barrier = stmt.attrs.get("barrier")
                where = barrier and (names[barrier], str(stmt.attrs["slot"]))
                out.append((stmt.instr, [w.buffer.name for w in stmt.writes], where))
            case Sync():
                said = {k: getattr(stmt, k) for k in FIELDS if getattr(stmt, k)}
                barrier = stmt.barrier and (names[stmt.barrier], str(stmt.slot), str(stmt.parity))
                out.append((stmt.kind, barrier, said))
    return out


def shape(func, order):
    """Barriers by what they are for, in the order of their declaration."""
    names = dict(zip(func.barriers, order, strict=True))
    return [(names[b], b.slots, b.count) for b in func.barriers], facts(func.body, names)


KINDS = ("full", "empty", "staged full", "staged empty")


@pytest.mark.parametrize("storer", ["loader", "own"])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_protocol_of_the_gemm(storer, stages, groups):
    # samples.gemm(synced=True) is the protocol written out by hand
    given = {"storer": storer, "stages": stages, "groups": groups, "k_steps": 5}
    made = shape(synchronise(gemm(synced=False, **given)), KINDS)
    wanted = shape(gemm(synced=True, **given), KINDS)
    assert made[0] == wanted[0]
    assert _named(made[1]) == _named(wanted[1])


def _named(body):
    # loop variables of two programs are different symbols of one name
    return [
        tuple(_named(x) if isinstance(x, list) and x and isinstance(x[0], tuple) else str(x)
              for x in part)
        for part in body
    ]  # fmt: skip


def test_slots_by_hand():
    """Tile 3 of a CTA (task 1 + 3 · 2), k = 128 of steps of 64: count 3 · 5 + 2 = 17, slot
    17 % 3 = 2, fifth use (17 // 3 = 5) of it, so phase parity 1 and the free one 0."""
    func = synchronise(gemm(synced=False, k_steps=5))
    full, empty = func.barriers[:2]
    found = {}
    symbols = {"persistent": 1, "task": 7, "k": 128}

    class Values(dict):
        def __missing__(self, key):
            return symbols[key.name]

    def visit(body):
        for stmt in body:
            if isinstance(stmt, (With, For, When)):
                visit(stmt.body)
            elif isinstance(stmt, Sync) and stmt.barrier in (full, empty) and stmt.kind != "init":
                at = evaluate(stmt.slot, Values()), evaluate(stmt.parity, Values())
                found.setdefault((stmt.kind, stmt.barrier is full), []).append(at)

    visit(func.body)
    assert found == {
        ("wait", False): [(2, 0)],
        ("expect", True): [(2, 0)],
        ("wait", True): [(2, 1)],
        ("arrive", False): [(1, 0), (1, 0)],  # the step before; the last of the tile is 19 % 3
    }


def test_one_slot_is_given_back_in_its_own_iteration():
    func = synchronise(gemm(synced=False, stages=1))
    kinds = [(s.kind, s.pending) for s in _syncs(func.body) if s.kind == "wgmma_wait"]
    assert kinds == [("wgmma_wait", 0)]
    assert not any(isinstance(s, When) for s in _all(func.body))


@pytest.mark.parametrize(("tiles", "steps", "stages", "barriers"), [
    ((1, 1), 2, 3, 2),  # never more than two loads: no slot comes back
    ((1, 1), 3, 3, 2),
    ((1, 1), 4, 3, 3),
    ((2, 1), 2, 3, 4),  # two tiles: the staged one comes back too
])  # fmt: skip
def test_slots_that_are_never_filled_twice_are_not_given_back(tiles, steps, stages, barriers):
    func = synchronise(gemm(tiles, steps, ctas=1, stages=stages, synced=False))
    assert len(func.barriers) == barriers


def _all(body):
    for stmt in body:
        yield stmt
        if isinstance(stmt, (With, For, When)):
            yield from _all(stmt.body)


def _syncs(body):
    return [s for s in _all(body) if isinstance(s, Sync)]


def test_every_wait_says_what_it_is_for():
    func = synchronise(gemm(synced=False))
    named = ("wait", "arrive", "expect", "wgmma_wait", "bulk_wait", "barrier", "warp")
    assert all(s.why for s in _syncs(func.body) if s.kind in named)
