"""GEMM with bf16 operands by Intel AMX: 2 x 2 tiles of 16 x 16 sums in each core.
A is packed tile by tile and B by pairs along k, once; cores share the output as a grid, keep a
block of B in their second cache, and load tiles between products, as the statements say."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 64, 128, 128
KC, NC = 64, 64
CM, CN = 1, 2
CORES = CM * CN
RM, RN = M // CM, N // CN

dot = T.x86.amx.TdpBf16Ps(dtype="bf16")
load, store = T.x86.amx.TileLoad(), T.x86.amx.TileStore()
TILES = Layout(((M // 16, 16), (K // 32, 32)), ((K * 16, 32), (512, 1)))
PAIRS = Layout(((K // 2, 2), (N // 16, 16)), ((32, 1), (K * 16, 2)))
RIGHT = Layout(((16, 2), 16), ((32, 1), 2))


@module(
    entry="run",
    target=X86Target("intel.xeon_amx"),
    topologies=(Topology("core", CORES), Topology("lane", 16)),
)
class GemmAmx:
    @func
    def run(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "f32"]:
        tiles = pack_a(a)
        pairs = pack_b(b)
        out = gemm(tiles, pairs)
        return out

    @func
    def pack_a(a: Tensor[(M, K), "bf16"]) -> Tensor[(M, K), "bf16", TILES]:
        out = tf.empty(Tensor[(M, K), "bf16", TILES])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                for m in range(cores.core * 16, M, CORES * 16):
                    out = tf.insert_slice(out, a[m:m + 16, :], (m, 0))
        return out

    @func
    def pack_b(b: Tensor[(K, N), "bf16"]) -> Tensor[(K, N), "bf16", PAIRS]:
        out = tf.empty(Tensor[(K, N), "bf16", PAIRS])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                for n in range(cores.core * 16, N, CORES * 16):
                    out = tf.insert_slice(out, b[:, n:n + 16], (0, n))
        return out

    @func
    def gemm(a: Tensor[(M, K), "bf16", TILES], b: Tensor[(K, N), "bf16", PAIRS]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            for g in range(cores.column * RN, cores.column * RN + RN, NC):
                for m in range(cores.row * RM, cores.row * RM + RM, 32):
                    for n in range(g, g + NC, 32):
                        c00 = tf.zeros(Tensor[(16, 16), "f32", "tmem"])
                        c01 = tf.zeros(Tensor[(16, 16), "f32", "tmem"])
                        c10 = tf.zeros(Tensor[(16, 16), "f32", "tmem"])
                        c11 = tf.zeros(Tensor[(16, 16), "f32", "tmem"])
                        for k in tf.tile(KC, 32):
                            b0 = tf.schedule((b[k, n:n + 16], tf.empty(Tensor[(32, 16), "bf16", RIGHT, "tmem"])), op=load)
                            a0 = tf.schedule((a[m:m + 16, k], tf.empty(Tensor[(16, 32), "bf16", "tmem"])), op=load)
                            c00 = tf.schedule((c00, a0, b0), op=T.tiled_mma(atom=dot))
                            b1 = tf.schedule((b[k, n + 16:n + 32], tf.empty(Tensor[(32, 16), "bf16", RIGHT, "tmem"])), op=load)
                            a1 = tf.schedule((a[m + 16:m + 32, k], tf.empty(Tensor[(16, 32), "bf16", "tmem"])), op=load)
                            c01 = tf.schedule((c01, a0, b1), op=T.tiled_mma(atom=dot))
                            c10 = tf.schedule((c10, a1, b0), op=T.tiled_mma(atom=dot))
                            c11 = tf.schedule((c11, a1, b1), op=T.tiled_mma(atom=dot))
                        out = tf.insert_slice(out, tf.schedule((c00, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m, n))
                        out = tf.insert_slice(out, tf.schedule((c01, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m, n + 16))
                        out = tf.insert_slice(out, tf.schedule((c10, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m + 16, n))
                        out = tf.insert_slice(out, tf.schedule((c11, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m + 16, n + 16))
                if K > KC:
                    for block in range(KC, K, KC):
                        for m in range(cores.row * RM, cores.row * RM + RM, 32):
                            for n in range(g, g + NC, 32):
                                c00 = tf.schedule((out[m:m + 16, n:n + 16], tf.empty(Tensor[(16, 16), "f32", "tmem"])), op=load)
                                c01 = tf.schedule((out[m:m + 16, n + 16:n + 32], tf.empty(Tensor[(16, 16), "f32", "tmem"])), op=load)
                                c10 = tf.schedule((out[m + 16:m + 32, n:n + 16], tf.empty(Tensor[(16, 16), "f32", "tmem"])), op=load)
                                c11 = tf.schedule((out[m + 16:m + 32, n + 16:n + 32], tf.empty(Tensor[(16, 16), "f32", "tmem"])), op=load)
                                for i in range(block, block + KC, 32):
                                    b0 = tf.schedule((b[i:i + 32, n:n + 16], tf.empty(Tensor[(32, 16), "bf16", RIGHT, "tmem"])), op=load)
                                    a0 = tf.schedule((a[m:m + 16, i:i + 32], tf.empty(Tensor[(16, 32), "bf16", "tmem"])), op=load)
                                    c00 = tf.schedule((c00, a0, b0), op=T.tiled_mma(atom=dot))
                                    b1 = tf.schedule((b[i:i + 32, n + 16:n + 32], tf.empty(Tensor[(32, 16), "bf16", RIGHT, "tmem"])), op=load)
                                    a1 = tf.schedule((a[m + 16:m + 32, i:i + 32], tf.empty(Tensor[(16, 32), "bf16", "tmem"])), op=load)
                                    c01 = tf.schedule((c01, a0, b1), op=T.tiled_mma(atom=dot))
                                    c10 = tf.schedule((c10, a1, b0), op=T.tiled_mma(atom=dot))
                                    c11 = tf.schedule((c11, a1, b1), op=T.tiled_mma(atom=dot))
                                out = tf.insert_slice(out, tf.schedule((c00, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m, n))
                                out = tf.insert_slice(out, tf.schedule((c01, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m, n + 16))
                                out = tf.insert_slice(out, tf.schedule((c10, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m + 16, n))
                                out = tf.insert_slice(out, tf.schedule((c11, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m + 16, n + 16))
        return out
