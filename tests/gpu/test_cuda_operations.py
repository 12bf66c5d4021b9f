"""Every elementwise operation on a device, by element type, against the evaluator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tilefoundry.build import build, callable_of
from tilefoundry.evaluate import evaluate
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.ops.base import torch_dtype

sys.path.insert(0, str(Path(__file__).parents[1] / "build"))
import test_operations as operations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]


def program(dtype, forms, folder):
    """The CPU tests' program, its lanes being threads."""
    text = Path(operations.program(dtype, forms, folder).module.span.file).read_text()
    for old, new in (("CpuTarget()", 'CudaTarget("nvidia.h200_sxm")'), ("CpuTarget", "CudaTarget"),
                     ('"core"', '"cta"'), ('"lane"', '"thread"')):  # fmt: skip
        text = text.replace(old, new)
    path = folder / "each_cuda.py"
    path.write_text(text)
    return operations.load_source(str(path), None, {})


@pytest.mark.parametrize("dtype", operations.CASES)
def test_operations_are_the_evaluators(dtype, tmp_path):
    forms = operations.CASES[dtype]
    loaded = program(dtype, forms.values(), tmp_path)
    kind = torch_dtype(DTYPES[dtype])
    given = operations.values(kind, kind.is_floating_point)
    outs = callable_of(build(loaded))(*(x.cuda() for x in given))
    wanted = evaluate(loaded.module, "f", list(given), {}, "cpu")
    wrong = []
    for name, out, want in zip(forms, outs, wanted, strict=True):
        out = out.cpu()
        if torch.equal(out, want):
            continue
        units = 16 if out.dtype is torch.float32 else 4 if dtype == "f64" else 1
        slack = units * torch.finfo(out.dtype).eps if out.dtype.is_floating_point else 0
        off = (out.double() - want.double()).abs()
        near = (off <= slack * want.double().abs().clamp(min=2**-10)).all()
        exact = name in operations.EXACT - {"div", "mod", "floor_div"} or name.startswith("cmp")
        if exact or not near:
            wrong.append((name, out, want))
    assert not wrong
