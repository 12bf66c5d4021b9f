"""Batched GEMM with bias and GELU in f32: weights packed once to panels, of which a block stays in
the second cache; sums that begin with the bias, finished in registers before they are stored."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
B, M, N, K = 3, 28, 96, 48
MR, NR, BLOCK, AHEAD = 14, 32, 96, 8
CORES, LANES = 2, 16
VECTORS = NR // LANES
ROWS = tuple(range(MR))
TASKS = B * (M // MR)

fma = T.tiled_mma(atom=T.x86.avx512.FmaPs(dtype="f32"))
PANELS = Layout((K, (N // NR, NR)), (NR, (K * NR, 1)))


@module(
    entry="run",
    target=X86Target(CPU),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class BmmGelu:
    @func
    def run(x: Tensor[(B, M, K), "f32"], weight: ConstTensor[(K, N), "f32"], bias: ConstTensor[(N,), "f32"]) -> Tensor[(B, M, N), "f32"]:
        panels = pack(weight)
        start = spread(bias)
        out = layer(x, panels, start)
        return out

    @func
    def pack(weight: Tensor[(K, N), "f32"]) -> Tensor[(K, N), "f32", PANELS]:
        out = tf.empty(Tensor[(K, N), "f32", PANELS])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for n in range(cores.core * NR, N, CORES * NR):
                    out = tf.insert_slice(out, weight[:, n:n + NR], (0, n))
        return out

    @func
    def spread(bias: Tensor[(N,), "f32"]) -> Tensor[(MR, N), "f32"]:
        out = tf.empty(Tensor[(MR, N), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for r in range(cores.core, MR, CORES):
                    out = tf.insert_slice(out, tf.reshape(bias, (1, N)), (r, 0))
        return out

    @func
    def layer(x: Tensor[(B, M, K), "f32"], panels: Tensor[(K, N), "f32", PANELS], start: Tensor[(MR, N), "f32"]) -> Tensor[(B, M, N), "f32"]:
        out = tf.empty(Tensor[(B, M, N), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for j in range(0, N, BLOCK):
                    for task in range(cores.core, TASKS, CORES):
                        b = task // (M // MR)
                        m = task % (M // MR) * MR
                        strip = tf.reshape(x[b:b + 1, m:m + MR, :], (MR, K))
                        for n in range(j, j + BLOCK, NR):
                            acc = tf.reshard(start[:, n:n + NR], (MR, VECTORS, LANES @ t.lane), "rmem")
                            acc = tf.schedule((acc, strip, panels[:, n:n + NR]), op=fma, repeat=(MR, VECTORS, K), order=(2, 0, 1), prefetch=AHEAD)
                            for r in ROWS:
                                out = tf.insert_slice(out, tf.reshape(tf.gelu(acc[r:r + 1]), (1, 1, NR)), (b, m + r, n))
        return out
