"""GEMM with bf16 operands by AVX-512's dot product: two neighbours along k in 32 bits.
Each core packs a block of B by pairs to panels, which stays in its second cache, and reads A,
whose pairs are neighbours already, where it lies."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
M, N, K = 56, 128, 64
MR, NR, NC, AHEAD = 6, 64, 64, 8
CM, CN, LANES = 1, 2, 16
STRIPS, REST, VECTORS = M // MR, M % MR, NR // LANES

dot = T.tiled_mma(atom=T.x86.avx512.DpBf16Ps(dtype="bf16"))
PANELS = Layout(((K // 2, 2), (NC // NR, NR)), ((2 * NR, 1), (K * NR, 2)))


@module(
    entry="gemm",
    target=X86Target(CPU),
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
                    for s in range(cores.row, STRIPS, CM):
                        for n in range(0, NC, NR):
                            acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, VECTORS, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, a[s * MR:s * MR + MR, :], panels[:, n:n + NR]), op=dot, repeat=(MR, VECTORS, K // 2), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, tf.cast(acc, "bf16"), (s * MR, j + n))
                    if REST:
                        for n in range(cores.row * NR, NC, CM * NR):
                            acc = tf.zeros(Tensor[(REST, NR), "f32", (REST, VECTORS, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, a[M - REST:M, :], panels[:, n:n + NR]), op=dot, repeat=(REST, VECTORS, K // 2), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, tf.cast(acc, "bf16"), (M - REST, j + n))
        return out
