"""GEMM with bf16 operands by AVX-512's dot product: two neighbours along k in 32 bits.
Each core packs a block of B by pairs to panels of 32 columns, which stays in its second cache,
and one strip of A by pairs at a time, which stays in its first."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 56, 128, 64
MR, NR, NC = 14, 32, 64
CM, CN, LANES = 1, 2, 16

dot = T.x86.avx512.DpBf16Ps(dtype="bf16")
PANELS = Layout(((K // 2, 2), (NC // NR, NR)), ((2 * NR, 1), (K * NR, 2)))
STRIP = Layout((MR, (K // 2, 2)), (2, (2 * MR, 1)))


@module(
    entry="gemm",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CM * CN), Topology("lane", LANES)),
)
class GemmBf16:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for j in range(cores.column * NC, N, CN * NC):
                    panels = tf.reshard(b[:, j:j + NC], PANELS)
                    for m in range(cores.row * MR, M, CM * MR):
                        strip = tf.reshard(a[m:m + MR, :], STRIP)
                        for n in range(0, NC, NR):
                            acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, 2, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, strip, panels[:, n:n + NR]), op=T.tiled_mma(atom=dot), repeat=(MR, 2, K // 2), order=(2, 0, 1))
                            out = tf.insert_slice(out, tf.cast(acc, "bf16"), (m, j + n))
        return out
