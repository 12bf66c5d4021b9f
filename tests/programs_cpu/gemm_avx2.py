"""GEMM in f32 by AVX2: register tiles of 6 x 16, A and B packed to panels, each core its rows.
Shows packing as a layout (k fastest inside a panel of B, m inside a panel of A)."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 96, 64, 64
BK = 32
MR, NR = 6, 16
CORES, LANES = 2, 8
ROWS = M // CORES

fma = T.x86.avx2.FmaPs(dtype="f32")


@module(
    entry="gemm",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class GemmAvx2:
    @func
    def gemm(a: Tensor[(M, K), "f32"], b: Tensor[(K, N), "f32"]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                row = cores.core * ROWS
                panels = tf.reshard(b, Layout((K, (N // NR, NR)), (NR, (K * NR, 1))))
                strips = tf.reshard(a[row:row + ROWS, :], Layout(((ROWS // MR, MR), K), ((K * MR, 1), MR)))
                for n in range(0, N, NR):
                    for m in range(0, ROWS, MR):
                        acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, 2, LANES @ t.lane), "rmem"])
                        for k in tf.tile(K, BK):
                            acc = tf.schedule(
                                (acc, strips[m:m + MR, k], panels[k, n:n + NR]),
                                op=T.tiled_mma(atom=fma),
                                repeat=(MR, 2, BK),
                                order=(2, 0, 1),
                            )
                        out = tf.insert_slice(out, acc, (row + m, n))
        return out
