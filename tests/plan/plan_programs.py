"""Programs to plan for: the tutorial's, and small ones written in other ways."""

import re
from pathlib import Path

import tilefoundry

PAGE = Path(tilefoundry.__file__).parent / "tutorial" / "50-schedule.md"


def tutorial(name):
    """The program ``name`` of the tutorial's page on schedules."""
    text = PAGE.read_text(encoding="utf-8")
    return re.search(rf"```python file={name}\n(.*?)```", text, re.DOTALL)[1]


HEAD = """from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 256, 256, 256
BM, BN, BK = {tile}


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", (M // BM) * (N // BN)),),
)
class Small:
    @func
    def gemm(a: {a}, b: {b}) -> Tensor[(M, N), "{out}"]:
        out = tf.empty(Tensor[(M, N), "{out}"])
        with Mesh(("cta",), layout=(M // BM, N // BN), names=("bm", "bn")) as cta:
            m, n = cta.bm * BM, cta.bn * BN
            acc = tf.zeros(Tensor[(BM, BN), "f32", "rmem"])
            for k in tf.tile(K, BK):
                {body}
            {store}
        return out
"""
BODY = "acc += tf.matmul(a[m:m + BM, k], b[k, n:n + BN], out_dtype='f32')"
STORE = "out = tf.insert_slice(out, tf.cast(acc, '{out}'), (m, n))"


def small(dtype="bf16", tile="128, 128, 32", out="bf16", a="(M, K)", b="(K, N)", body=BODY,
          store=STORE):  # fmt: skip
    """One product of ``dtype`` in tiles, its loads written inside of the product."""
    return HEAD.format(
        tile=tile,
        a=f'Tensor[{a}, "{dtype}"]',
        b=f'Tensor[{b}, "{dtype}"]',
        out=out,
        body=body,
        store=store.format(out=out),
    )


SMALL = {
    "loads inside the product": small(),
    "half, tiles of one warpgroup": small("f16", "64, 64, 64", "f16"),
    "B stored as (N, K)": small(
        b="(N, K)",
        body="acc = tf.matmul(a[m:m + BM, k], b[n:n + BN, k], 'f32', b_layout='NK') + acc",
    ),
    "A stored as (K, M)": small(
        a="(K, M)",
        body="acc += tf.matmul(tf.transpose(a[k, m:m + BM], (1, 0)), b[k, n:n + BN], 'f32')",
    ),
    "fp8, both along k": small(
        "fp8e4m3",
        "64, 128, 64",
        b="(N, K)",
        body="acc += tf.matmul(a[m:m + BM, k], b[n:n + BN, k], b_layout='NK', out_dtype='f32')",
    ),
    "f32 out, nothing cast": small(out="f32", store="out = tf.insert_slice(out, acc, (m, n))"),
    "a step of a range": small(
        body="""where = k0 * BK
                rows = a[m:m + BM, where:where + BK]
                acc = acc + tf.matmul(rows, b[where:where + BK, n:n + BN], out_dtype="f32")"""
    ).replace("for k in tf.tile(K, BK)", "for k0 in range(0, K // BK)"),
    "a result named on its way, scaled": small(
        store="""half = acc * 0.5
            rounded = tf.cast(half, "bf16")
            # the result of this CTA
            out = tf.insert_slice(dst=out, update=rounded, offsets=(m, n))"""
    ),
}
