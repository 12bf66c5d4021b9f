"""Each operation for many units at once against each unit alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from op_cases import Case, bits, cases, types_of

from tilefoundry.diag import Refusal
from tilefoundry.evaluate.batch import batched
from tilefoundry.evaluate.stack import stacked
from tilefoundry.ir.types import TupleType
from tilefoundry.ops import find

UNITS = 3
PLACED = {"insert_slice", "local", "schedule", "slice"}
"""Operations whose attributes differ between units: tests/evaluate has them."""
SUMS = {"einsum", "matmul"}
"""Contractions: torch may add in another order for a stack than for one."""


@pytest.mark.parametrize(
    "case", [c for c in cases() if c.op.name not in PLACED], ids=lambda c: c.id
)
def test_units_at_once_are_units_alone(case: Case):
    call = case.call()
    type = case.op.infer(call)
    draws = [case.draw(seed) for seed in range(UNITS)]
    present = [n for n, t in enumerate(case.types) if t is not None]
    for pick in itertools.product([False, True], repeat=len(present)):
        held = [n in itertools.compress(present, pick) for n in range(len(case.types))]
        if not any(held):
            continue
        args = [
            stacked([d[n] for d in draws]) if held[n] else draws[0][n]
            for n in range(len(case.types))
        ]
        out = batched(case.op, args, held, call.attrs, type, UNITS)
        together = [stacked(o) for o in (out if isinstance(type, TupleType) else (out,))]
        for unit, drawn in enumerate(draws):
            own = [drawn[n] if held[n] else draws[0][n] for n in range(len(case.types))]
            for got, alone, made in zip(together, case.run(own), types_of(type), strict=True):
                assert (got[unit].shape, got.dtype) == (alone.shape, alone.dtype)
                if case.op.name in SUMS and made.dtype.is_float:
                    # both within the same bound of the exact value; drawn values are below 6
                    near = {"rtol": 2.0**-7 if made.dtype.bits <= 16 else 1e-5, "atol": 1e-3}
                    torch.testing.assert_close(got[unit].double(), alone.double(), **near)
                else:
                    np.testing.assert_array_equal(bits(got[unit]), bits(alone))


@pytest.mark.parametrize(
    ("name", "attrs", "first", "second", "code"),
    [
        ("floor_div", {}, [1, 2], [1, 0], "divide-by-zero"),
        ("gather", {"axis": 0}, [1, 2], [1, 5], "index-out-of-range"),
    ],
)
def test_what_one_unit_may_not_do_is_refused_for_all(name, attrs, first, second, code):
    from tilefoundry.ir.dtype import I32
    from tilefoundry.ir.types import TensorType

    op = find(name)
    assert op is not None
    x, y = torch.tensor([[4, 6], [8, 10]], dtype=torch.int32), torch.tensor([first, second])
    with pytest.raises(Refusal) as caught:
        batched(op, [x, y.int()], [True, True], attrs, TensorType((2,), I32), 2)
    assert [d.code for d in caught.value.diags] == [code]
