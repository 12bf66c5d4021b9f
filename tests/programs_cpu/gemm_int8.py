"""GEMM of unsigned by signed bytes into 32-bit integers by AVX-512 VNNI: four neighbours along
k in 32 bits. Each core packs a block of B to panels, which stays in its second cache, and reads A
where it lies. Exact, so that any order of the sums gives the same result."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
M, N, K = 56, 128, 64
MR, NR, NC, AHEAD = 6, 64, 64, 8
CM, CN, LANES = 1, 2, 16
STRIPS, REST, VECTORS = M // MR, M % MR, NR // LANES

dot = T.tiled_mma(atom=T.x86.avx512.DpBusd(dtype="u8"))
PANELS = Layout(((K // 4, 4), (NC // NR, NR)), ((4 * NR, 1), (K * NR, 4)))


@module(
    entry="gemm",
    target=X86Target(CPU),
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
                    for s in range(cores.row, STRIPS, CM):
                        for n in range(0, NC, NR):
                            acc = tf.zeros(Tensor[(MR, NR), "i32", (MR, VECTORS, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, a[s * MR:s * MR + MR, :], panels[:, n:n + NR]), op=dot, repeat=(MR, VECTORS, K // 4), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, acc, (s * MR, j + n))
                    if REST:
                        for n in range(cores.row * NR, NC, CM * NR):
                            acc = tf.zeros(Tensor[(REST, NR), "i32", (REST, VECTORS, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, a[M - REST:M, :], panels[:, n:n + NR]), op=dot, repeat=(REST, VECTORS, K // 4), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, acc, (M - REST, j + n))
        return out
