"""GEMM of unsigned by signed bytes into 32-bit integers by AVX-512 VNNI: four neighbours along
k in 32 bits. Exact, so that any order of the sums gives the same result."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 56, 96, 64
MR, NR, STRIPS = 14, 32, 2
CORES, LANES = 2, 16
MC = MR * STRIPS

dot = T.x86.avx512.DpBusd(dtype="u8")
PANELS = Layout(((K // 4, 4), (N // NR, NR)), ((4 * NR, 1), (K * NR, 4)))
STRIPED = Layout(((STRIPS, MR), (K // 4, 4)), ((MR * K, 4), (4 * MR, 1)))


@module(
    entry="run",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class GemmInt8:
    @func
    def run(a: Tensor[(M, K), "u8"], b: Tensor[(K, N), "i8"]) -> Tensor[(M, N), "i32"]:
        panels = pack(b)
        out = gemm(a, panels)
        return out

    @func
    def pack(b: Tensor[(K, N), "i8"]) -> Tensor[(K, N), "i8", PANELS]:
        out = tf.empty(Tensor[(K, N), "i8", PANELS])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for n in range(cores.core * NR, N, CORES * NR):
                    out = tf.insert_slice(out, b[:, n:n + NR], (0, n))
        return out

    @func
    def gemm(a: Tensor[(M, K), "u8"], panels: Tensor[(K, N), "i8", PANELS]) -> Tensor[(M, N), "i32"]:
        out = tf.empty(Tensor[(M, N), "i32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for m in range(cores.core * MC, M, CORES * MC):
                    strips = tf.reshard(a[m:m + MC, :], STRIPED)
                    for n in range(0, N, NR):
                        for s in range(0, MC, MR):
                            acc = tf.zeros(Tensor[(MR, NR), "i32", (MR, 2, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, strips[s:s + MR, :], panels[:, n:n + NR]), op=T.tiled_mma(atom=dot), repeat=(MR, 2, K // 4), order=(2, 0, 1))
                            out = tf.insert_slice(out, acc, (m + s, n))
        return out
