"""Where tiles lie: windows of buffers, read from TIR views and from a program's slices."""

from __future__ import annotations

from itertools import product

import pytest

from tilefoundry.ir.dtype import BF16
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.node import nodes
from tilefoundry.ir.spec import layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.load import load_source
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.targets.contract.place import Place, Window, panels, place, window_of
from tilefoundry.targets.cuda.instr.tma import TensorMap, tensor_map
from tilefoundry.tir.program import Buffer, fresh_vars, whole, window


def typed(shape, layout=None, storage="smem"):
    return TensorType(shape, BF16, layout and layout_from(layout), storage)


def test_a_view_of_tir_is_a_window():
    step = LoopVar("k", 0, 4096, 64).expr()
    a = Buffer("a", (8192, 5120), BF16, "gmem", role="in")
    view = window(whole(a), (128, step), (128, 64))
    found = Window.at(a.type, view.vars, view.shape, view.index)
    assert found == Window(a.type, (0, 1), (128, step), (1, 1))
    tile = place(typed((128, 64), Layout((128, 64)) | Swizzle(3, 4, 3)))
    plan = tensor_map(tile, found)
    assert isinstance(plan, TensorMap)
    assert plan.coordinates(found.starts) == (step, 128)


def test_transposes_indices_and_steps_of_views():
    a = Buffer("a", (7, 64, 96), BF16, "gmem")
    row, column = fresh_vars((96, 64))
    found = Window.at(a.type, (row, column), (96, 64), (3, column.expr(), row.expr()))
    assert found is not None and found.axes == (None, 1, 0)
    found = Window.at(a.type, (row,), (48,), (0, 5, 2 * row.expr()))
    assert found is not None and (found.axes, found.steps) == ((None, None, 0), (1, 1, 2))
    # a diagonal, and a variable that is nowhere, are no box
    assert Window.at(a.type, (row, column), (96, 64), (0, row.expr(), row.expr())) is None
    assert Window.at(a.type, (row, column), (96, 64), (0, 0, row.expr() + column.expr())) is None


SLICES = """
from tilefoundry.dsl import *

@module(entry="f")
class M:
    @func
    def f(x: Tensor[(7, 128, 256), "bf16"]):
        one = x[3, 64:128, :]
        two = one[8:16, 32:96]
        three = tf.transpose(two, (1, 0))
        return three
"""


def test_slices_of_slices_are_windows_of_the_parameter(tmp_path):
    path = tmp_path / "slices.py"
    path.write_text(SLICES, encoding="utf-8")
    body = load_source(str(path), None, {}).module.funcs["f"].body
    by_name = {n.name: n for n in nodes(body) if n.name}
    assert window_of(by_name["one"]) == Window(
        TensorType((7, 128, 256), BF16), (None, 0, 1), (3, 64, 0), (1, 1, 1)
    )
    assert window_of(by_name["two"]).starts == (3, 72, 32)
    assert window_of(by_name["three"]) is None


@pytest.mark.parametrize(
    ("layout", "shape", "starts"),
    [
        (Layout((64, 128)), (16, 32), (8, 4)),
        (Layout((64, (2, 64)), (64, (4096, 1))) | Swizzle(3, 4, 3), (16, 64), (16, 64)),
        (Layout((64, (2, 64)), (64, (4096, 1))) | Swizzle(3, 4, 3), (16, 16), (16, 80)),
        (Layout((64, (2, 64)), (64, (4096, 1))), (64, 128), (0, 0)),
        (Layout(((4, 16), 128), ((16, 1), 64)), (8, 64), (24, 64)),
    ],
)
def test_a_window_lies_where_its_buffer_does(layout, shape, starts):
    """Byte by byte, the swizzle taken on the address in the buffer."""
    parent = typed((64, 128), layout)
    found = place(typed(shape), Window(parent, (0, 1), starts))
    assert isinstance(found, Place), found
    buffer = place(parent)
    for crd in product(*map(range, shape)):
        at = tuple(s + c for s, c in zip(starts, crd, strict=True))
        assert found.byte(crd) == buffer.byte(at)
    assert found.byte((0,) * 2) % 16 == 0 or found.align < 16


def test_a_window_across_blocks_has_no_strides():
    parent = typed((64, 128), Layout((64, (2, 64)), (64, (4096, 1))))
    assert isinstance(place(typed((64, 64)), Window(parent, (0, 1), (0, 32))), str)
    assert isinstance(place(typed((64, 96)), Window(parent, (0, 1), (0, 0))), str)


@pytest.mark.parametrize("shape", [(64, 64), (128, 256), (16, 8), (8, 48), (256, 32)])
@pytest.mark.parametrize("fast", [0, 1])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_panels_are_injective_and_as_wide_as_their_swizzle(shape, fast, bits):
    made = eval(panels(shape, bits, fast), {"Layout": Layout, "Swizzle": Swizzle})
    swizzle = getattr(made, "swizzle", None)
    made = made if swizzle else made + 0
    at = {made.byte_address(c, bits): c for c in product(*map(range, shape))}
    assert len(at) == shape[0] * shape[1]
    if swizzle:  # neighbours along the fast axis stay inside one span
        step = (1, 0) if fast == 0 else (0, 1)
        width = swizzle.span * 8 // bits
        span = {made.byte_address((i * step[0], i * step[1]), bits) // swizzle.span
                for i in range(width)}  # fmt: skip
        assert len(span) == 1
