"""GEMM of unsigned by signed bytes into 32-bit integers by AVX-512 VNNI: four neighbours along
k in 32 bits. Each core packs a block of B to panels, which stays in its second cache, and one
strip of A at a time. Exact, so that any order of the sums gives the same result."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 56, 128, 64
MR, NR, NC = 14, 32, 64
CM, CN, LANES = 1, 2, 16

dot = T.x86.avx512.DpBusd(dtype="u8")
PANELS = Layout(((K // 4, 4), (NC // NR, NR)), ((4 * NR, 1), (K * NR, 4)))
STRIP = Layout((MR, (K // 4, 4)), (4, (4 * MR, 1)))


@module(
    entry="gemm",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CM * CN), Topology("lane", LANES)),
)
class GemmInt8:
    @func
    def gemm(a: Tensor[(M, K), "u8"], b: Tensor[(K, N), "i8"]) -> Tensor[(M, N), "i32"]:
        out = tf.empty(Tensor[(M, N), "i32"])
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for j in range(cores.column * NC, N, CN * NC):
                    panels = tf.reshard(b[:, j:j + NC], PANELS)
                    for m in range(cores.row * MR, M, CM * MR):
                        strip = tf.reshard(a[m:m + MR, :], STRIP)
                        for n in range(0, NC, NR):
                            acc = tf.zeros(Tensor[(MR, NR), "i32", (MR, 2, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, strip, panels[:, n:n + NR]), op=T.tiled_mma(atom=dot), repeat=(MR, 2, K // 4), order=(2, 0, 1))
                            out = tf.insert_slice(out, acc, (m, j + n))
        return out
