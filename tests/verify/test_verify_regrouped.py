"""A tile in registers that is split over blocks and stored in another shape."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules import Kernel, copy

from tilefoundry.ir.dtype import BF16
from tilefoundry.ir.mesh import arrange
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.lower.views import _reshaped
from tilefoundry.tir.program import Buffer, View, fresh_vars, whole
from tilefoundry.verify import judge
from tilefoundry.verify.tiling import held_parts


def regrouped(buffer, shape):
    names = fresh_vars(shape)
    return View(buffer, shape, names, _reshaped(names, shape, buffer.shape))


FACTORS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def grouped(modes, cuts):
    """Neighbouring modes joined into axes at the places where ``cuts`` has no cut."""
    out = [modes[0]]
    for mode, cut in zip(modes[1:], cuts, strict=True):
        out = [*out, mode] if cut else [*out[:-1], out[-1] * mode]
    return tuple(out)


@given(st.data())
def test_parts_are_what_the_units_hold(data):
    modes = tuple(data.draw(FACTORS))
    cuts = st.lists(st.booleans(), min_size=len(modes) - 1, max_size=len(modes) - 1)
    held, shown = grouped(modes, data.draw(cuts)), grouped(modes, data.draw(cuts))
    taken = data.draw(st.lists(st.booleans(), min_size=len(modes), max_size=len(modes)))
    axes = [
        arrange("cta", (m,), (f"a{n}",))[0] if t else None
        for n, (m, t) in enumerate(zip(modes, taken, strict=True))
    ]
    buffer = Buffer("tile", held, BF16, "rmem", ShardLayout(modes, axes=tuple(axes)))
    parts = held_parts(regrouped(buffer, shown))
    # the coordinate of each element on each axis, in the flat order that all shapes share
    flat = np.indices(modes).reshape(len(modes), -1)
    index = np.indices(shown).reshape(len(shown), prod(shown))
    for n, axis in enumerate(axes):
        if axis is None or axis.extent == 1:
            continue
        mine = [p for p in parts if p.axis == axis]
        assert prod(p.extent for p in mine) == axis.extent
        for p in mine:
            assert (index[p.dim] // p.inner % p.extent == flat[n] // p.below % p.extent).all()


def stored(shown, modes, split, into):
    """A tile of 8 x 12, modes ``split`` over 4 blocks, stored through a view of ``shown``."""
    k = Kernel(128, 4)
    axis = k.grid.axes[0]
    layout = ShardLayout(modes, axes=tuple(axis if n == split else None for n in range(len(modes))))
    tile = Buffer("tile", (8, 12), BF16, "rmem", layout, mesh=k.inside)
    k.buffers.append(tile)
    out = k.gmem("out", into, "out")
    return k.func(copy(regrouped(tile, shown), View(out, shown, names := fresh_vars(shown),
                  _reshaped(names, shown, into))))  # fmt: skip


@pytest.mark.parametrize("modes, split", [((4, 2, 12), 0), ((2, 4, 12), 1), ((8, 3, 4), 2)])
@pytest.mark.parametrize("shown", [(96,), (2, 48), (2, 4, 12), (8, 3, 4), (4, 2, 3, 4)])
def test_each_block_stores_what_it_holds(shown, modes, split):
    found = judge(stored(shown, modes, split, shown))
    assert [str(f) for f in found] == []


def test_what_blocks_hold_alike_is_stored_by_all():
    k = Kernel(128, 4)
    tile = Buffer("tile", (8, 12), BF16, "rmem", ShardLayout((8, 12), axes=(None, None)),
                  mesh=k.inside)  # fmt: skip
    k.buffers.append(tile)
    out = k.gmem("out", (96,), "out")
    codes = {f.code for f in judge(k.func(copy(regrouped(tile, (96,)), whole(out))))}
    assert codes == {"device-overlap"}


PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import X86Target


@module(
    entry="run",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", 2), Topology("lane", 8)),
)
class Run:
    @func
    def run(x: Tensor[(4, 16), "f32"]) -> Tensor[RESULT, "f32"]:
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                held = tf.reshard(x, (HELD, 2, 8 @ t.lane), "rmem")
                return tf.reshard(tf.reshape(held + 1.0, RESULT), RESULT, "gmem")
"""


@pytest.mark.parametrize("held", ["2 @ cores.core, 2", "2, 2 @ cores.core"])
@pytest.mark.parametrize("result", ["(64,)", "(2, 2, 16)", "(2, 32)", "(4, 2, 8)"])
def test_a_tile_of_cores_is_reshaped_on_its_way_out(held, result, tmp_path):
    path = tmp_path / "run.py"
    path.write_text(PROGRAM.replace("RESULT", result).replace("HELD", held))
    finalize(load_source(str(path), None, {}))
