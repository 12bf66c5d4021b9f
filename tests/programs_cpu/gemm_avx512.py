"""GEMM in f32 by AVX-512: cores share the output as a grid; each packs a block of B that stays in
its second cache and one strip of A that stays in its first, and walks along the strip's rows.
Shows cache blocking, sums of later blocks begun from the output, and edges."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 130, 100, 70
MR, NR, KC, NC, AHEAD = 14, 32, 32, 64, 16
CM, CN, LANES = 1, 2, 16
CORES = CM * CN
STRIPS, BLOCKS, SPANS = ceildiv(M, MR), ceildiv(N, NC), ceildiv(K, KC)

fma = T.x86.avx512.FmaPs(dtype="f32")
PANELS = Layout((KC, (NC // NR, NR)), (NR, (KC * NR, 1)))
STRIP = Layout((MR, KC), (1, MR))


@module(
    entry="gemm",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class GemmAvx512:
    @func
    def gemm(a: Tensor[(M, K), "f32"], b: Tensor[(K, N), "f32"]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(STRIPS * MR, BLOCKS * NC), "f32"])
        tall = tf.pad(a, (0, SPANS * KC - K, 0, STRIPS * MR - M))
        wide = tf.pad(b, (0, BLOCKS * NC - N, 0, SPANS * KC - K))
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for block in range(cores.column, BLOCKS, CN):
                    j = block * NC
                    first = tf.reshard(wide[0:KC, j:j + NC], PANELS)
                    for s in range(cores.row, STRIPS, CM):
                        strip = tf.reshard(tall[s * MR:s * MR + MR, 0:KC], STRIP)
                        for n in range(0, NC, NR):
                            acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, NR // LANES, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, strip, first[:, n:n + NR]), op=T.tiled_mma(atom=fma), repeat=(MR, NR // LANES, KC), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, acc, (s * MR, j + n))
                    if SPANS > 1:
                        for k in range(KC, SPANS * KC, KC):
                            panels = tf.reshard(wide[k:k + KC, j:j + NC], PANELS)
                            for s in range(cores.row, STRIPS, CM):
                                strip = tf.reshard(tall[s * MR:s * MR + MR, k:k + KC], STRIP)
                                for n in range(0, NC, NR):
                                    acc = tf.reshard(out[s * MR:s * MR + MR, j + n:j + n + NR], (MR, NR // LANES, LANES @ t.lane), "rmem")
                                    acc = tf.schedule((acc, strip, panels[:, n:n + NR]), op=T.tiled_mma(atom=fma), repeat=(MR, NR // LANES, KC), order=(2, 0, 1), prefetch=AHEAD)
                                    out = tf.insert_slice(out, acc, (s * MR, j + n))
        return out[0:M, 0:N]
