"""The sizes at which the programs of ``examples/gpu`` are run: constants to override, per program.

``EVALUATE`` has enough units and steps to meet every branch of a program and is judged
against float64; ``INTERPRET`` is for executions thread by thread: 1 to 4 CTAs, few steps.
A program of two sizes (a head dimension, say) has two entries: NAME and NAME@what.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Consts = Mapping[str, object]

EXAMPLES = Path(__file__).parents[2] / "examples" / "gpu"


def path(case: str) -> str:
    """The file of a case."""
    return str(EXAMPLES / f"{case.split('@')[0]}.py")


_GEMM: Consts = {"M": 256, "N": 512, "K": 192, "CTAS": 2, "GROUP": 2}
_FP8: Consts = {"DTYPE": "fp8e4m3", "B_ROWS": "n"}

EVALUATE: Mapping[str, Consts] = {
    "chain": {"ROWS": 512, "COLS": 512, "CTA_ROWS": 2, "CTA_COLS": 4},
    "softmax": {"ROWS": 40, "COLS": 512, "CTAS": 3},
    "softmax_cta": {"ROWS": 7, "COLS": 8192},
    "softmax_ring": {"ROWS": 14, "COLS": 4096, "CTAS": 3},
    "softmax_split": {"ROWS": 3, "COLS": 16384, "THREADS": 128},
    "rmsnorm": {"ROWS": 20, "COLS": 2048},
    "layernorm": {"ROWS": 20, "COLS": 2048},
    "row_sum": {"ROWS": 56, "COLS": 512, "CTAS": 3},
    "full_sum": {"COUNT": 65536, "CTAS": 4, "THREADS": 128},
    "softmax_cluster": {"ROWS": 5, "COLS": 8192, "CLUSTERS": 2, "CTAS": 4, "THREADS": 128},
    "transpose_smem": {"ROWS": 128, "COLS": 192},
    "transpose_swizzled": {"ROWS": 64, "COLS": 96},
    "gemm_optimal": {"M": 512, "N": 512, "K": 192, "CTAS": 3, "GROUP": 4},
    "gemm_own_storer": {"M": 512, "N": 512, "K": 192, "CTAS": 3, "GROUP": 4},
    "splitk_cluster": {"M": 256, "N": 256, "K": 1024, "SPLITS": 4},
    "gemm_ampere": {"M": 384, "N": 256, "K": 160, "CTAS": 4},
    "gemm_ampere_plain": {"M": 256, "N": 256, "K": 160},
    "gemm_rs": {"M": 192, "N": 512, "K": 384, "CTAS": 4},
    "gemm_rs@two": {"CONSUMERS": 2, "M": 256, "N": 512, "K": 384, "CTAS": 3},
    "rmsnorm_quant": {"TOKENS": 14, "HIDDEN": 1024, "CTAS": 3},
    "flash_attention": {"BATCH": 2, "Q_LEN": 256, "KV_LEN": 512, "Q_HEADS": 4, "KV_HEADS": 2},
    "flash_attention@d64": {
        "BATCH": 1,
        "Q_LEN": 256,
        "KV_LEN": 256,
        "Q_HEADS": 4,
        "KV_HEADS": 1,
        "D": 64,
    },
    "flash_attention_pipelined": {
        "BATCH": 1,
        "Q_LEN": 256,
        "KV_LEN": 512,
        "Q_HEADS": 4,
        "KV_HEADS": 2,
    },
    "gemm_halves": {"M": 512, "N": 1024, "K": 320, "CTAS": 3, "GROUP": 2},
    "gemm_halves@n": {"M": 512, "N": 512, "K": 192, "CTAS": 3, "GROUP": 2, "B_ROWS": "n"},
    "gemm_halves@pair": {"PAIR": 2, "M": 512, "N": 768, "K": 192, "CTAS": 4, "GROUP": 2},
    "gemm_halves@fp8": {"M": 512, "N": 512, "K": 384, "CTAS": 3, "GROUP": 2, **_FP8},
    "gemm_skinny": {"N": 384, "K": 832},
    "gemm_skinny@n": {
        "B_ROWS": "n",
        "M": 64,
        "N": 336,
        "K": 896,
        "BN": 112,
        "BK": 128,
        "STAGES": 4,
    },
    "gemm_batched": {"BATCH": 3, "M": 256, "N": 512, "K": 192, "CTAS": 5},
    "gemm_epilogue": {"M": 512, "N": 512, "K": 192, "CTAS": 3, "GROUP": 2},
    "splitk_two_kernels": {"M": 256, "N": 512, "K": 512, "SPLITS": 2},
    "splitk_two_kernels@n": {"B_ROWS": "n", "M": 64, "N": 512, "K": 768, "SPLITS": 3},
    "splitk_reshard": {"K": 1024, "SPLITS": 2, "COLS": 3},
    "gemv": {"N": 40, "K": 4096},
    "gemv_columns": {"N": 192, "K": 1792},
    "layernorm_long": {"ROWS": 5, "LENGTH": 24576, "CTAS": 2},
    "decode_attention": {"BATCH": 2, "KV_LEN": 512, "Q_HEADS": 8, "KV_HEADS": 2, "SPLITS": 4},
    "residual_rmsnorm": {},
    "residual_rmsnorm_plain": {"TOKENS": 7, "CTAS": 3},
}

INTERPRET: Mapping[str, Consts] = {
    "chain": {"ROWS": 64, "COLS": 128, "CTA_ROWS": 2, "CTA_COLS": 2},
    "softmax": {"ROWS": 8, "COLS": 512, "CTAS": 2, "WARPS": 2},
    "softmax_cta": {"ROWS": 3, "COLS": 1024, "THREADS": 64},
    "softmax_ring": {"ROWS": 9, "COLS": 512, "CTAS": 2, "THREADS": 64},
    "softmax_split": {"ROWS": 1, "COLS": 8192, "THREADS": 64},
    "rmsnorm": {"ROWS": 3, "COLS": 1024, "THREADS": 64},
    "layernorm": {"ROWS": 3, "COLS": 1024, "THREADS": 64},
    "row_sum": {"ROWS": 6, "COLS": 512, "CTAS": 2, "WARPS": 2},
    "full_sum": {"COUNT": 8192, "CTAS": 2, "THREADS": 64},
    "softmax_cluster": {"ROWS": 3, "COLS": 1024, "CLUSTERS": 2, "CTAS": 2, "THREADS": 64},
    "transpose_smem": {"ROWS": 64, "COLS": 128},
    "transpose_swizzled": {"ROWS": 32, "COLS": 64},
    "gemm_optimal": {**_GEMM, "N": 256, "CTAS": 1},
    "gemm_own_storer": {**_GEMM, "N": 256, "CTAS": 1},
    "splitk_cluster": {"M": 128, "N": 128, "K": 512, "SPLITS": 2},
    "gemm_ampere": {"M": 128, "N": 256, "K": 96, "CTAS": 1},
    "gemm_ampere_plain": {"M": 128, "N": 128, "K": 96},
    "gemm_rs": {"M": 64, "N": 512, "K": 384, "CTAS": 1},
    "gemm_rs@two": {"CONSUMERS": 2, "M": 128, "N": 256, "K": 384, "CTAS": 1},
    "rmsnorm_quant": {"TOKENS": 4, "HIDDEN": 512, "CTAS": 1, "WARPS": 2},
    "flash_attention": {"BATCH": 1, "Q_LEN": 128, "KV_LEN": 384, "Q_HEADS": 2, "KV_HEADS": 1},
    "flash_attention@d64": {
        "BATCH": 1,
        "Q_LEN": 256,
        "KV_LEN": 256,
        "Q_HEADS": 1,
        "KV_HEADS": 1,
        "D": 64,
    },
    "flash_attention_pipelined": {
        "BATCH": 1,
        "Q_LEN": 256,
        "KV_LEN": 384,
        "Q_HEADS": 1,
        "KV_HEADS": 1,
    },
    "gemm_halves": {**_GEMM, "N": 256, "CTAS": 1},
    "gemm_halves@n": {**_GEMM, "N": 256, "CTAS": 1, "B_ROWS": "n"},
    "gemm_halves@pair": {"PAIR": 2, "M": 256, "N": 512, "K": 128, "CTAS": 2, "GROUP": 1},
    "gemm_halves@fp8": {"M": 256, "N": 256, "K": 384, "CTAS": 1, "GROUP": 2, **_FP8},
    "gemm_skinny": {"N": 128, "K": 192, "STAGES": 2},
    "gemm_skinny@n": {"B_ROWS": "n", "M": 64, "N": 64, "K": 512, "BN": 32, "BK": 128, "STAGES": 3},
    "gemm_batched": {"BATCH": 2, "M": 128, "N": 256, "K": 192, "CTAS": 1},
    "gemm_epilogue": {"M": 256, "N": 256, "K": 192, "CTAS": 1, "GROUP": 2},
    "splitk_two_kernels": {"M": 128, "N": 128, "K": 384, "SPLITS": 2, "THREADS": 32},
    "splitk_two_kernels@n": {
        "B_ROWS": "n",
        "M": 64,
        "N": 128,
        "K": 384,
        "SPLITS": 2,
        "THREADS": 32,
    },
    "gemv": {"N": 4, "K": 1024, "WARPS": 2, "PER": 2},
    "gemv_columns": {"N": 64, "K": 320, "WARPS": 2, "BK": 64, "STAGES": 3},
    "splitk_reshard": {"K": 256, "SPLITS": 2, "COLS": 2, "WARPS": 4, "BK": 32},
    "layernorm_long": {"ROWS": 3, "LENGTH": 3072, "CTAS": 2, "THREADS": 64},
    "decode_attention": {
        "BATCH": 1,
        "KV_LEN": 128,
        "Q_HEADS": 4,
        "KV_HEADS": 2,
        "SPLITS": 2,
        "WARPS": 2,
    },
    "residual_rmsnorm": {"HIDDEN": 200, "THREADS": 64, "CTAS": 1},
    "residual_rmsnorm_plain": {"TOKENS": 3, "CTAS": 2, "HIDDEN": 768},
}
