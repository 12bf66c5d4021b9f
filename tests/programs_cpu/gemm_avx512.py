"""GEMM in f32 by AVX-512: B packed once by all cores, A by each core block by block.
Shows cache blocking along k and m, sums of later blocks begun from the output, and edges."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

M, N, K = 130, 100, 70
MR, NR, KC, STRIPS = 14, 32, 32, 3
CORES, LANES = 2, 16
MC = MR * STRIPS
PANELS = ceildiv(N, NR)
BLOCKS = ceildiv(M, MC)
SPANS = ceildiv(K, KC)

fma = T.x86.avx512.FmaPs(dtype="f32")


@module(
    entry="run",
    target=X86Target("amd.epyc_avx512"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class GemmAvx512:
    @func
    def run(a: Tensor[(M, K), "f32"], b: Tensor[(K, N), "f32"]) -> Tensor[(M, N), "f32"]:
        panels = pack(b)
        out = gemm(a, panels)
        return out

    @func
    def pack(b: Tensor[(K, N), "f32"]) -> Tensor[(PANELS, SPANS * KC, NR), "f32"]:
        out = tf.empty(Tensor[(PANELS, SPANS * KC, NR), "f32"])
        wide = tf.pad(b, (0, PANELS * NR - N, 0, SPANS * KC - K))
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for n in range(cores.core, PANELS, CORES):
                    panel = tf.reshape(wide[:, n * NR:n * NR + NR], (1, SPANS * KC, NR))
                    out = tf.insert_slice(out, panel, (n, 0, 0))
        return out

    @func
    def gemm(a: Tensor[(M, K), "f32"], panels: Tensor[(PANELS, SPANS * KC, NR), "f32"]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(BLOCKS * MC, PANELS * NR), "f32"])
        tall = tf.pad(a, (0, SPANS * KC - K, 0, BLOCKS * MC - M))
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for block in range(cores.core, BLOCKS, CORES):
                    m = block * MC
                    first = tf.reshard(tall[m:m + MC, 0:KC], Layout(((STRIPS, MR), KC), ((KC * MR, 1), MR)))
                    for n in range(PANELS):
                        for s in range(0, MC, MR):
                            acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, NR // LANES, LANES @ t.lane), "rmem"])
                            right = tf.reshape(panels[n:n + 1, 0:KC, :], (KC, NR))
                            acc = tf.schedule((acc, first[s:s + MR, :], right), op=T.tiled_mma(atom=fma), repeat=(MR, NR // LANES, KC), order=(2, 0, 1))
                            out = tf.insert_slice(out, acc, (m + s, n * NR))
                    if SPANS > 1:
                        for k in range(KC, SPANS * KC, KC):
                            strips = tf.reshard(tall[m:m + MC, k:k + KC], Layout(((STRIPS, MR), KC), ((KC * MR, 1), MR)))
                            for n in range(PANELS):
                                for s in range(0, MC, MR):
                                    acc = tf.reshard(out[m + s:m + s + MR, n * NR:n * NR + NR], (MR, NR // LANES, LANES @ t.lane), "rmem")
                                    right = tf.reshape(panels[n:n + 1, k:k + KC, :], (KC, NR))
                                    acc = tf.schedule((acc, strips[s:s + MR, :], right), op=T.tiled_mma(atom=fma), repeat=(MR, NR // LANES, KC), order=(2, 0, 1))
                                    out = tf.insert_slice(out, acc, (m + s, n * NR))
        return out[0:M, 0:N]
