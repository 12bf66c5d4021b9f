"""GEMM with operands of bf16 or of bytes by Intel AMX: 2 x 2 tiles of 16 x 16 sums in each core.
A is packed tile by tile and B by neighbours along k, once; cores share the output as a grid, keep
a block of B in their second cache, and load tiles between products, as the statements say."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "intel.xeon_amx"
DTYPE = "bf16"
M, N, K = 64, 128, 128
KC, NC, WIDE = 64, 64, 32
CM, CN = 1, 2
CORES = CM * CN
RM, RN = M // CM, N // CN

RIGHT, SUM, E = ("bf16", "f32", 2) if DTYPE == "bf16" else ("i8", "i32", 4)
KT = 16 * E
dot = T.x86.amx.TdpBf16Ps(dtype="bf16") if DTYPE == "bf16" else T.x86.amx.TdpBusd(dtype="u8")
load, store = T.x86.amx.TileLoad(), T.x86.amx.TileStore()
TILES = Layout(((M // 16, 16), (K // KT, KT)), ((K * 16, KT), (16 * KT, 1)))
WOVEN = Layout(((K // E, E), (N // 16, 16)), ((16 * E, 1), (K * 16, E)))
TILE = Layout(((16, E), 16), ((16 * E, 1), E))


@module(
    entry="run",
    target=X86Target(CPU),
    topologies=(Topology("core", CORES), Topology("lane", 16)),
)
class GemmAmx:
    @func
    def run(a: Tensor[(M, K), DTYPE], b: Tensor[(K, N), RIGHT]) -> Tensor[(M, N), SUM]:
        tiles = pack_a(a)
        woven = pack_b(b)
        out = gemm(tiles, woven)
        return out

    @func
    def pack_a(a: Tensor[(M, K), DTYPE]) -> Tensor[(M, K), DTYPE, TILES]:
        out = tf.empty(Tensor[(M, K), DTYPE, TILES])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                for m in range(cores.core * 16, M, CORES * 16):
                    out = tf.insert_slice(out, a[m:m + 16, :], (m, 0))
        return out

    @func
    def pack_b(b: Tensor[(K, N), RIGHT]) -> Tensor[(K, N), RIGHT, WOVEN]:
        out = tf.empty(Tensor[(K, N), RIGHT, WOVEN])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(16,), names=("lane",)) as t:
                for n in range(cores.core * WIDE, N, CORES * WIDE):
                    for k in range(0, K, E):
                        out = tf.insert_slice(out, b[k:k + E, n:n + WIDE], (k, n))
        return out

    @func
    def gemm(a: Tensor[(M, K), DTYPE, TILES], b: Tensor[(K, N), RIGHT, WOVEN]) -> Tensor[(M, N), SUM]:
        out = tf.empty(Tensor[(M, N), SUM])
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            for g in range(cores.column * RN, cores.column * RN + RN, NC):
                for m in range(cores.row * RM, cores.row * RM + RM, 32):
                    for n in range(g, g + NC, 32):
                        c00 = tf.zeros(Tensor[(16, 16), SUM, "tmem"])
                        c01 = tf.zeros(Tensor[(16, 16), SUM, "tmem"])
                        c10 = tf.zeros(Tensor[(16, 16), SUM, "tmem"])
                        c11 = tf.zeros(Tensor[(16, 16), SUM, "tmem"])
                        for k in tf.tile(KC, KT):
                            b0 = tf.schedule((b[k, n:n + 16], tf.empty(Tensor[(KT, 16), RIGHT, TILE, "tmem"])), op=load)
                            a0 = tf.schedule((a[m:m + 16, k], tf.empty(Tensor[(16, KT), DTYPE, "tmem"])), op=load)
                            c00 = tf.schedule((c00, a0, b0), op=T.tiled_mma(atom=dot))
                            b1 = tf.schedule((b[k, n + 16:n + 32], tf.empty(Tensor[(KT, 16), RIGHT, TILE, "tmem"])), op=load)
                            a1 = tf.schedule((a[m + 16:m + 32, k], tf.empty(Tensor[(16, KT), DTYPE, "tmem"])), op=load)
                            c01 = tf.schedule((c01, a0, b1), op=T.tiled_mma(atom=dot))
                            c10 = tf.schedule((c10, a1, b0), op=T.tiled_mma(atom=dot))
                            c11 = tf.schedule((c11, a1, b1), op=T.tiled_mma(atom=dot))
                        out = tf.insert_slice(out, tf.schedule((c00, tf.empty(Tensor[(16, 16), SUM])), op=store), (m, n))
                        out = tf.insert_slice(out, tf.schedule((c01, tf.empty(Tensor[(16, 16), SUM])), op=store), (m, n + 16))
                        out = tf.insert_slice(out, tf.schedule((c10, tf.empty(Tensor[(16, 16), SUM])), op=store), (m + 16, n))
                        out = tf.insert_slice(out, tf.schedule((c11, tf.empty(Tensor[(16, 16), SUM])), op=store), (m + 16, n + 16))
                if K > KC:
                    for block in range(KC, K, KC):
                        for m in range(cores.row * RM, cores.row * RM + RM, 32):
                            for n in range(g, g + NC, 32):
                                c00 = tf.schedule((out[m:m + 16, n:n + 16], tf.empty(Tensor[(16, 16), SUM, "tmem"])), op=load)
                                c01 = tf.schedule((out[m:m + 16, n + 16:n + 32], tf.empty(Tensor[(16, 16), SUM, "tmem"])), op=load)
                                c10 = tf.schedule((out[m + 16:m + 32, n:n + 16], tf.empty(Tensor[(16, 16), SUM, "tmem"])), op=load)
                                c11 = tf.schedule((out[m + 16:m + 32, n + 16:n + 32], tf.empty(Tensor[(16, 16), SUM, "tmem"])), op=load)
                                for i in range(block, block + KC, KT):
                                    b0 = tf.schedule((b[i:i + KT, n:n + 16], tf.empty(Tensor[(KT, 16), RIGHT, TILE, "tmem"])), op=load)
                                    a0 = tf.schedule((a[m:m + 16, i:i + KT], tf.empty(Tensor[(16, KT), DTYPE, "tmem"])), op=load)
                                    c00 = tf.schedule((c00, a0, b0), op=T.tiled_mma(atom=dot))
                                    b1 = tf.schedule((b[i:i + KT, n + 16:n + 32], tf.empty(Tensor[(KT, 16), RIGHT, TILE, "tmem"])), op=load)
                                    a1 = tf.schedule((a[m + 16:m + 32, i:i + KT], tf.empty(Tensor[(16, KT), DTYPE, "tmem"])), op=load)
                                    c01 = tf.schedule((c01, a0, b1), op=T.tiled_mma(atom=dot))
                                    c10 = tf.schedule((c10, a1, b0), op=T.tiled_mma(atom=dot))
                                    c11 = tf.schedule((c11, a1, b1), op=T.tiled_mma(atom=dot))
                                out = tf.insert_slice(out, tf.schedule((c00, tf.empty(Tensor[(16, 16), SUM])), op=store), (m, n))
                                out = tf.insert_slice(out, tf.schedule((c01, tf.empty(Tensor[(16, 16), SUM])), op=store), (m, n + 16))
                                out = tf.insert_slice(out, tf.schedule((c10, tf.empty(Tensor[(16, 16), SUM])), op=store), (m + 16, n))
                                out = tf.insert_slice(out, tf.schedule((c11, tf.empty(Tensor[(16, 16), SUM])), op=store), (m + 16, n + 16))
        return out
