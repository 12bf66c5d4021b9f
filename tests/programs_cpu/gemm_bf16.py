"""GEMM with bf16 operands by AVX-512's dot product: two neighbours along k in 32 bits.
B is packed by pairs to panels of 32 columns, A by pairs to strips of 14 rows."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 56, 96, 64
MR, NR, STRIPS = 14, 32, 2
CORES, LANES = 2, 16
MC = MR * STRIPS

dot = T.x86.avx512.DpBf16Ps(dtype="bf16")
PANELS = Layout(((K // 2, 2), (N // NR, NR)), ((2 * NR, 1), (K * NR, 2)))
STRIPED = Layout(((STRIPS, MR), (K // 2, 2)), ((MR * K, 2), (2 * MR, 1)))


@module(
    entry="run",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class GemmBf16:
    @func
    def run(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        panels = pack(b)
        out = gemm(a, panels)
        return out

    @func
    def pack(b: Tensor[(K, N), "bf16"]) -> Tensor[(K, N), "bf16", PANELS]:
        out = tf.empty(Tensor[(K, N), "bf16", PANELS])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for n in range(cores.core * NR, N, CORES * NR):
                    out = tf.insert_slice(out, b[:, n:n + NR], (0, n))
        return out

    @func
    def gemm(a: Tensor[(M, K), "bf16"], panels: Tensor[(K, N), "bf16", PANELS]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for m in range(cores.core * MC, M, CORES * MC):
                    strips = tf.reshard(a[m:m + MC, :], STRIPED)
                    for n in range(0, N, NR):
                        for s in range(0, MC, MR):
                            acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, 2, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, strips[s:s + MR, :], panels[:, n:n + NR]), op=T.tiled_mma(atom=dot), repeat=(MR, 2, K // 2), order=(2, 0, 1))
                            out = tf.insert_slice(out, tf.cast(acc, "bf16"), (m + s, n))
        return out
