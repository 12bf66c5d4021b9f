"""Barriers of the warpgroups that hand over, where others have nothing to do with it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilefoundry.interpret import run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.program import Sync, walk
from tilefoundry.verify import verify

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps", "programs")]
import torch
from faults import swap
from trapped import kernel

PROGRAM = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 1), Topology("thread", 384)),
)
class Program:
    @func
    def f(x: Tensor[(3, 192, 64), "bf16"]) -> Tensor[(3, 192, 64), "bf16"]:
        out = tf.empty(Tensor[(3, 192, 64), "bf16"])
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("g", "l")) as t:
                for n in range(3):
                    with Mesh(("thread",), layout=(3, 64, 2), names=("g", "row", "half")) as use:
                        held = tf.reshard(x[n, :, :], {held}, "rmem")
                        tile = tf.empty(Tensor[(192, 64), "bf16", Layout((192, 64)) | Swizzle(3, 4, 3), "smem"])
                        staged = tf.schedule((held * 2, tile), op=T.copy())
{stores}
        return out
"""  # noqa: E501
STORE = """\
                    with t[{group}, :32]:
                        part = tf.schedule((staged[{first}:{last}, :], tf.empty(Tensor[({rows}, 64), "bf16"])), op=T.copy_async_tensor())
                        out = tf.insert_slice(out, tf.reshape(part, (1, {rows}, 64)), (n, {first}, 0))
"""  # noqa: E501
BY_GROUP = "(3 @ use.g, 64 @ use.row, 2 @ use.half, 32)"
DEALT = "(64 @ use.row, 3 @ use.g, 2 @ use.half, 32)"
"""Rows held by a warpgroup: a run of 64; every third one."""


def loaded(folder, held, *cuts):
    bounds = list(zip((0, *cuts), (*cuts, 192), strict=True))
    stores = "".join(
        STORE.format(group=g, first=a, last=b, rows=b - a) for g, (a, b) in enumerate(bounds)
    )
    path = folder / "program.py"
    path.write_text(PROGRAM.format(held=held, stores=stores), encoding="utf-8")
    return load_source(str(path), None, {})


def barriers(func):
    """(first thread, threads) of the barriers inside the loop, in program order."""
    out = []
    for stmt, mesh in walk(func.body):
        if isinstance(stmt, Sync) and stmt.kind == "barrier" and stmt.id:
            units = mesh.units("thread")
            assert len(units) == stmt.threads
            out.append((min(units), stmt.threads))
    return out


@pytest.mark.parametrize(
    ("held", "cuts", "wanted"),
    [
        # each warp stores what its own warpgroup has written
        (BY_GROUP, (64, 128), [(0, 128), (128, 128), (256, 128)] * 2),
        # the first warp reads rows of two warpgroups: these meet, the third stays alone
        (BY_GROUP, (96, 128), [(0, 256), (256, 128)] * 2),
        # so do the second and the third: all meet
        (BY_GROUP, (96, 160), []),
        # every window has rows of all warpgroups
        (DEALT, (64, 128), []),
    ],
)
def test_who_meets(tmp_path, held, cuts, wanted):
    made = loaded(tmp_path, held, *cuts)
    program = lower(made.module, made.func or "")
    func = kernel(program)
    assert sorted(barriers(func)) == sorted(wanted)
    whole = [
        s for s, _ in walk(func.body) if isinstance(s, Sync) and s.kind == "barrier" and not s.id
    ]
    assert len(whole) == (0 if wanted else 2)
    assert not verify(func)
    x = torch.randn(3, 192, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = run_program(program, {"x": x})
    assert not found.reports and torch.equal(found.outputs[0], x * 2)


def test_a_missing_or_shared_barrier_is_caught(tmp_path):
    made = loaded(tmp_path, BY_GROUP, 64, 128)
    func = kernel(lower(made.module, made.func or ""))
    syncs = [s for s, _ in walk(func.body) if isinstance(s, Sync) and s.kind == "barrier" and s.id]
    for sync in syncs:
        gone = swap(func, sync, replace(sync, kind="warp", id=0, threads=0))
        assert {f.code for f in verify(gone)} & {"sync-race", "sync-proxy", "sync-barrier"}
        other = 1 if sync.id != 1 else 2
        same = swap(func, sync, replace(sync, id=other))
        assert {f.code for f in verify(same)} & {"sync-barrier", "sync-deadlock", "sync-race"}
