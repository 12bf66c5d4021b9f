"""Written uses in programs: what tf.schedule states is held to what follows from the tiles."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tilefoundry.check.candidates import sites, sites_text
from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source

LOAD = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 2), Topology("thread", 128)))
class M:
    @func
    def f(x: Tensor[(1024, {columns}), "bf16"]) -> Tensor[(2 * {rows}, 64), "bf16"]:
        out = tf.empty(Tensor[(2 * {rows}, 64), "bf16"])
        with Mesh(("cta",), layout=(2,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(128,), names=("t",)) as threads:
                dst = tf.empty(Tensor[({rows}, 64), "bf16", {layout}, "smem"])
                row = cta.c * {rows}
                tile = tf.schedule((x[row:row + {rows}, :64], dst), op=T.{op}(){more})
            out = tf.insert_slice(out, tf.reshard(tile, (({rows}, 64)), "gmem"), (row, 0))
        return out
"""

MMA = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

mma = T.cuda.sm80.Mma(dtype="f16")

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 1), Topology("thread", 128)))
class M:
    @func
    def f(x: Tensor[(64, 32), "f16"], w: Tensor[(32, 32), "f16"]) -> Tensor[(64, 32), "f32"]:
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=((2, 2, 4, 8), (64, 32, 1, 4)),
                      names=("wm", "wn", "l4", "l8")) as t:
                acc = tf.zeros(Tensor[(64, 32), "f32",
                               ({rows}, 2, 8 @ t.l8, {columns}, 4 @ t.l4, 2), "rmem"])
                lhs = tf.reshard(x, ({lhs}, 2, 8 @ t.l8, 2, 2, 4 @ t.l4, 2), "rmem")
                rhs = tf.reshard(w, (2, 2, 4 @ t.l4, 2, {columns}, 8 @ t.l8), "rmem")
                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=mma){more})
                return tf.reshard(acc, (64, 32), "gmem")
"""


@pytest.fixture
def loaded(tmp_path: Path):
    def load(template, **fields):
        path = tmp_path / "program.py"
        path.write_text(template.format(**fields), encoding="utf-8")
        return load_source(str(path), None, {}).module

    return load


def tile(rows=128, columns=256, layout="", op="copy_async_tensor", more=""):
    layout = layout or f"Layout(({rows}, 64)) | Swizzle(3, 4, 3)"
    fields = SimpleNamespace(rows=rows, columns=columns, layout=layout, op=op, more=more)
    return vars(fields)


@pytest.mark.parametrize(
    "use",
    [
        tile(),
        tile(more=", repeat=(1, 1)"),
        # 512 rows are two boxes of 256
        tile(rows=512, more=", repeat=(2, 1)"),
        tile(rows=512, more=", repeat=(2, 1), order=(1, 0)"),
        tile(op="copy_async"),
        tile(op="copy_async_bulk", layout="Layout((128, 64))", more=", repeat=(128, 1)"),
        tile(op="copy"),
    ],
)
def test_copies_that_agree(loaded, use):
    loaded(LOAD, **use)


@pytest.mark.parametrize(
    ("code", "use"),
    [
        ("schedule-repeat", tile(more=", repeat=(2, 1)")),
        ("schedule-repeat", tile(rows=512, more=", repeat=(1, 1)")),
        ("schedule-order", tile(rows=512, more=", order=(0, 0)")),
        ("schedule-order", tile(rows=512, more=", order=(0,)")),
        # the tile's own rows are 128 bytes; the parameter's are 260 bytes apart
        ("contract-unmet", tile(columns=130)),
        ("contract-unmet", tile(op="copy_async", columns=129)),
        ("contract-unmet", tile(layout="Layout((128, 64), (1, 128))")),
        ("contract-unmet", tile(op="copy_async_bulk")),
        ("contract-unmet", tile(op="ldmatrix")),
    ],
)
def test_copies_that_disagree(loaded, code, use):
    with pytest.raises(Refusal) as refused:
        loaded(LOAD, **use)
    assert [d.code for d in refused.value.diags] == [code]


ROWS = ("2 @ t.wm, 2", "2, 2 @ t.wm")
BLOCKED = {"rows": ROWS[0], "lhs": ROWS[0], "columns": "2 @ t.wn, 2"}
INTERLEAVED = {"rows": ROWS[1], "lhs": ROWS[1], "columns": "2, 2 @ t.wn"}


@pytest.mark.parametrize("form", [BLOCKED, INTERLEAVED, {**INTERLEAVED, "columns": "2 @ t.wn, 2"}])
@pytest.mark.parametrize("more", ["", ", repeat=(4, 4, 2)", ", repeat=(4, 4, 2), order=(2, 0, 1)"])
def test_warp_tiles_next_to_each_other_or_interleaved(loaded, form, more):
    loaded(MMA, **form, more=more)


@pytest.mark.parametrize(
    ("code", "form", "more"),
    [
        ("schedule-repeat", BLOCKED, ", repeat=(2, 2, 2)"),
        ("schedule-order", BLOCKED, ", order=(0, 1)"),
        # a warp that has other rows of the accumulator than of A
        ("contract-unmet", {**BLOCKED, "lhs": ROWS[1]}, ""),
        ("contract-unmet", {**BLOCKED, "lhs": "4"}, ""),
    ],
)
def test_warp_tiles_that_disagree(loaded, code, form, more):
    with pytest.raises(Refusal) as refused:
        loaded(MMA, **form, more=more)
    assert [d.code for d in refused.value.diags] == [code]


SLICES = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

wgmma = T.cuda.sm90.Wgmma(n=64, dtype="bf16")


@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 1), Topology("thread", 128)))
class M:
    @func
    def f(a: Tensor[(64, 128), "bf16"], b: Tensor[(128, 64), "bf16"]) -> Tensor[(64, 64), "f32"]:
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(4, 8, 4), names=("w", "i", "j")) as t:
                acc = tf.zeros(Tensor[(64, 64), "f32",
                               (4 @ t.w, 2, 8 @ t.i, 8, 4 @ t.j, 2), "rmem"])
                lhs = tf.reshard(a, {layout}, "smem")
                rhs = tf.reshard(b, Layout((128, 64)) | Swizzle(3, 4, 3), "smem")
                for k in tf.tile(128, {step}):
                    acc = tf.schedule((acc, lhs[:, k], rhs[k, :]), op=T.tiled_mma(atom=wgmma))
                return tf.reshard(acc, (64, 64), "gmem")
"""
PANELS = "Layout((64, (2, 64)), (64, (4096, 1))) | Swizzle(3, 4, 3)"


@pytest.mark.parametrize("step", [16, 32, 64, 128])
def test_slices_of_shared_tiles(loaded, step):
    """A slice along k is a start offset in the tile's layout, not a layout of its own."""
    loaded(SLICES, layout=PANELS, step=step)


@pytest.mark.parametrize(
    ("layout", "step"), [("Layout((64, 128))", 64), (PANELS.replace("4096", "4104"), 64)]
)
def test_slices_of_tiles_that_do_not_fit(loaded, layout, step):
    with pytest.raises(Refusal) as refused:
        loaded(SLICES, layout=layout, step=step)
    assert [d.code for d in refused.value.diags] == ["contract-unmet"]


RESHARDS = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 1), Topology("thread", 32)))
class M:
    @func
    def f(x: Tensor[(64, 70), "bf16"]):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(8, 4), names=("l8", "l4")) as t:
                near = tf.reshard(x[:16, :16], Layout((16, 16), (24, 1)), "smem")
                held = tf.reshard(near, (2, 8 @ t.l8, 2, 4 @ t.l4, 2), "rmem")
                return tf.reshard(held, (16, 16), "gmem")
"""


def test_candidates_judge_copies(loaded):
    found = sites(loaded(RESHARDS.replace("{", "{{").replace("}", "}}")), "f")
    near, held, out = ({c.contract.path: c.answer for c in site.candidates} for site in found)
    text = sites_text(found)
    # rows of 70 elements are 140 bytes apart: TMA cannot, 4-byte pieces can
    assert near["copy_async_tensor"].clause == "stride"
    assert near["copy_async"].size == 4
    assert near["copy_async_bulk"].clause == "alignment"
    assert "fits        T.ldmatrix  form=x4 issues=1" in text
    assert held["ldmatrix"].trans is False
    assert out["copy"].write == 4
    assert out["stmatrix"].clause == "storage"
    # every refusal says what would fit
    refused = [a for site in (near, held, out) for a in site.values() if hasattr(a, "clause")]
    assert all(a.expected and a.got for a in refused)


PRODUCTS = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget, X86Target

@module(entry="f", target={target}, topologies=(Topology("core", 2), Topology("lane", 8)))
class M:
    @func
    def f(x: Tensor[(4, 64, 64), "f32"]):
        y = tf.matmul(x{index}, x{index})
        return y + 1.0
"""


@pytest.mark.parametrize(
    ("target", "index", "why"),
    [
        ("CpuTarget()", "[0]", "the target has no matrix instruction"),
        ('X86Target("x86_64.generic")', "", "take operands of two axes"),
        ('X86Target("x86_64.generic")', "[0]", None),
    ],
)
def test_a_product_without_an_instruction_is_a_site(loaded, target, index, why):
    product, plus = sites(loaded(PRODUCTS, target=target, index=index), "f")
    text = sites_text([product])
    assert (not product.candidates, why is not None and why in text) == (bool(why),) * 2
    (line,) = [x for x in sites_text([plus]).splitlines() if "would fit" in x]
    assert line.endswith('with Mesh(("lane",), layout=(8,), names=("u",)) as units:')
