"""The second post's projection on Apple's matrix coprocessor: weights packed to
[N / 64, K, 64], activations to [M / 32, K, 32], 8 workers over panels of 64 columns, and blocks
of 32 x 32 sums to which outer products along k are added in f32."""

from tilefoundry.dsl import *
from tilefoundry.target import AmxTarget

M, N, K = 64, 1088, 40
BK = 8
WORKERS = 8

fma = T.apple.amx.Fma16(dtype="f16", acc="f32")
PANELS = Layout((K, (N // 64, 64)), (64, (K * 64, 1)))
BLOCKS = Layout(((M // 32, 32), K), ((K * 32, 1), 32))
PAIRS = Layout((32, (16, 2)), (32, (1, 16)))


@module(
    entry="run",
    target=AmxTarget("apple.m2_pro"),
    topologies=(Topology("core", WORKERS), Topology("amx", 1)),
)
class Projection:
    @func
    def run(x: Tensor[(M, K), "f16"], weight: ConstTensor[(N, K), "f16"]) -> Tensor[(M, N), "f32"]:
        panels = prepare(weight)
        blocks = pack(x)
        out = project(blocks, panels)
        return out

    @func
    def prepare(weight: Tensor[(N, K), "f16"]) -> Tensor[(K, N), "f16", PANELS]:
        out = tf.empty(Tensor[(K, N), "f16", PANELS])
        with Mesh(("core",), layout=(WORKERS,), names=("worker",)) as cores:
            with Mesh(("amx",), layout=(1,), names=("unit",)) as amx:
                for n in range(cores.worker * 64, N, WORKERS * 64):
                    out = tf.insert_slice(out, tf.transpose(weight[n:n + 64, :], (1, 0)), (0, n))
        return out

    @func
    def pack(x: Tensor[(M, K), "f16"]) -> Tensor[(M, K), "f16", BLOCKS]:
        out = tf.empty(Tensor[(M, K), "f16", BLOCKS])
        with Mesh(("core",), layout=(WORKERS,), names=("worker",)) as cores:
            with Mesh(("amx",), layout=(1,), names=("unit",)) as amx:
                for m in range(cores.worker * 32, M, WORKERS * 32):
                    out = tf.insert_slice(out, x[m:m + 32, :], (m, 0))
        return out

    @func
    def project(blocks: Tensor[(M, K), "f16", BLOCKS], panels: Tensor[(K, N), "f16", PANELS]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(WORKERS,), names=("worker",)) as cores:
            with Mesh(("amx",), layout=(1,), names=("unit",)) as amx:
                for panel in range(cores.worker * 64, N, WORKERS * 64):
                    for half in range(0, 64, 32):
                        for m in range(0, M, 32):
                            acc = tf.zeros(Tensor[(32, 32), "f32", PAIRS, "amx_z"])
                            for k in tf.tile(K, BK):
                                y = tf.schedule((blocks[m:m + 32, k], tf.empty(Tensor[(32, BK), "f16", ((32, BK), (1, 32)), "amx_y"])), op=T.apple.amx.Ldy())
                                x = tf.schedule((panels[k, panel + half:panel + half + 32], tf.empty(Tensor[(BK, 32), "f16", "amx_x"])), op=T.apple.amx.Ldx())
                                acc = tf.schedule((acc, y, x), op=T.tiled_mma(atom=fma), repeat=(1, 1, BK))
                            tile = tf.schedule((acc, tf.empty(Tensor[(32, 32), "f32"])), op=T.apple.amx.Stzi())
                            out = tf.insert_slice(out, tile, (m, panel + half))
        return out
