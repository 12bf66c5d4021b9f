"""GEMM with bf16 operands by Intel AMX: tiles of 16 x 16 sums, B packed by pairs along k.
Cores share the output as a grid; each packs a strip of A tile by tile, keeps it in its first
cache while panels of B pass, and adds blocks of k to the output through 2 x 2 tiles of sums."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 64, 128, 128
KC, NC = 64, 64
CM, CN = 1, 2
BM, BN, BK = 32, 32, 32
RM, RN = M // CM, N // CN

dot = T.x86.amx.TdpBf16Ps(dtype="bf16")
SUMS = Layout(((2, 16), (2, 16)), ((512, 16), (256, 1)))
LEFT = Layout(((2, 16), 32), ((512, 32), 1))
RIGHT = Layout(((16, 2), (2, 16)), ((32, 1), (512, 2)))
PAIRS = Layout(((K // 2, 2), (N // BN, BN)), ((2 * BN, 1), (K * BN, 2)))
STRIP = Layout(((2, 16), (KC // 32, 32)), ((512, 32), (1024, 1)))


@module(
    entry="run",
    target=X86Target("intel.xeon_amx"),
    topologies=(Topology("core", CM * CN), Topology("lane", 16)),
)
class GemmAmx:
    @func
    def run(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "f32"]:
        pairs = pack(b)
        out = gemm(a, pairs)
        return out

    @func
    def pack(b: Tensor[(K, N), "bf16"]) -> Tensor[(K, N), "bf16", PAIRS]:
        out = tf.empty(Tensor[(K, N), "bf16", PAIRS])
        with Mesh(("core",), layout=(CM * CN,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                for n in range(cores.core * BN, N, CM * CN * BN):
                    out = tf.insert_slice(out, b[:, n:n + BN], (0, n))
        return out

    @func
    def gemm(a: Tensor[(M, K), "bf16"], pairs: Tensor[(K, N), "bf16", PAIRS]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            for g in range(cores.column * RN, cores.column * RN + RN, NC):
                for m in range(cores.row * RM, cores.row * RM + RM, BM):
                    with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                        first = tf.reshard(a[m:m + BM, 0:KC], STRIP)
                    for n in range(g, g + NC, BN):
                        acc = tf.zeros(Tensor[(BM, BN), "f32", SUMS, "tmem"])
                        for k in tf.tile(KC, BK):
                            left = tf.schedule((first[:, k], tf.empty(Tensor[(BM, BK), "bf16", LEFT, "tmem"])), op=T.x86.amx.TileLoad())
                            right = tf.schedule((pairs[k, n:n + BN], tf.empty(Tensor[(BK, BN), "bf16", RIGHT, "tmem"])), op=T.x86.amx.TileLoad())
                            acc = tf.schedule((acc, left, right), op=T.tiled_mma(atom=dot), repeat=(2, 2, 1))
                        tile = tf.schedule((acc, tf.empty(Tensor[(BM, BN), "f32"])), op=T.x86.amx.TileStore())
                        out = tf.insert_slice(out, tile, (m, n))
                if K > KC:
                    for block in range(KC, K, KC):
                        for m in range(cores.row * RM, cores.row * RM + RM, BM):
                            with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                                strip = tf.reshard(a[m:m + BM, block:block + KC], STRIP)
                            for n in range(g, g + NC, BN):
                                acc = tf.schedule((out[m:m + BM, n:n + BN], tf.empty(Tensor[(BM, BN), "f32", SUMS, "tmem"])), op=T.x86.amx.TileLoad())
                                for k in tf.tile(KC, BK):
                                    left = tf.schedule((strip[:, k], tf.empty(Tensor[(BM, BK), "bf16", LEFT, "tmem"])), op=T.x86.amx.TileLoad())
                                    right = tf.schedule((pairs[block + k, n:n + BN], tf.empty(Tensor[(BK, BN), "bf16", RIGHT, "tmem"])), op=T.x86.amx.TileLoad())
                                    acc = tf.schedule((acc, left, right), op=T.tiled_mma(atom=dot), repeat=(2, 2, 1))
                                tile = tf.schedule((acc, tf.empty(Tensor[(BM, BN), "f32"])), op=T.x86.amx.TileStore())
                                out = tf.insert_slice(out, tile, (m, n))
        return out
