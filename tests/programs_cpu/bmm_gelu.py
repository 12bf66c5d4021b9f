"""Batched GEMM with bias and GELU in f32: weights packed once to panels, the sums finished in
registers before they are stored."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

B, M, N, K = 3, 28, 96, 48
MR, NR = 7, 32
CORES, LANES = 2, 16
TASKS = B * (M // MR)

fma = T.x86.avx512.FmaPs(dtype="f32")
PANELS = Layout((K, (N // NR, NR)), (NR, (K * NR, 1)))


@module(
    entry="run",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class BmmGelu:
    @func
    def run(x: Tensor[(B, M, K), "f32"], weight: ConstTensor[(K, N), "f32"], bias: ConstTensor[(N,), "f32"]) -> Tensor[(B, M, N), "f32"]:
        panels = pack(weight)
        out = layer(x, panels, bias)
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
    def layer(x: Tensor[(B, M, K), "f32"], panels: Tensor[(K, N), "f32", PANELS], bias: Tensor[(N,), "f32"]) -> Tensor[(B, M, N), "f32"]:
        out = tf.empty(Tensor[(B, M, N), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for task in range(cores.core, TASKS, CORES):
                    b = task // (M // MR)
                    m = task % (M // MR) * MR
                    strip = tf.reshard(tf.reshape(x[b:b + 1, m:m + MR, :], (MR, K)), Layout((MR, K), (1, MR)))
                    for n in range(0, N, NR):
                        acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, 2, LANES @ t.lane), "rmem"])
                        acc = tf.schedule((acc, strip, panels[:, n:n + NR]), op=T.tiled_mma(atom=fma), repeat=(MR, 2, K), order=(2, 0, 1))
                        shift = tf.reshard(bias[n:n + NR], (2, LANES @ t.lane), "rmem")
                        out = tf.insert_slice(out, tf.reshape(tf.gelu(acc + shift), (1, MR, NR)), (b, m, n))
        return out
