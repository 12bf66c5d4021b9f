"""GEMM in f32 by AVX-512: cores share the output as a grid; each packs a block of B that stays in
its second cache (a small B is read where it lies) and walks along rows of A, read where they lie.
Shows cache blocking, sums of later blocks added to the output, a smaller tile for rows that are
left, and edges."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
M, N, K = 130, 100, 70
MR, NR, KC, NC, AHEAD = 6, 64, 32, 64, 8
PACKED = True
CM, CN, LANES = 1, 2, 16
CORES, VECTORS = CM * CN, NR // LANES
TALL = min(MR, M)
STRIPS, REST = M // TALL, M % TALL
ROWS, LEFT = tuple(range(TALL)), tuple(range(REST))
BLOCKS, SPANS = ceildiv(N, NC), ceildiv(K, KC)
KF = K - (SPANS - 1) * KC

fma = T.tiled_mma(atom=T.x86.avx512.FmaPs(dtype="f32"))


@module(
    entry="gemm",
    target=X86Target(CPU),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class GemmAvx512:
    @func
    def gemm(a: Tensor[(M, K), "f32"], b: Tensor[(K, N), "f32"]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, BLOCKS * NC), "f32"])
        wide = tf.pad(b, (0, BLOCKS * NC - N, 0, 0))
        with Mesh(("core",), layout=(CM, CN), names=("row", "column")) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for block in range(cores.column, BLOCKS, CN):
                    j = block * NC
                    if PACKED:
                        first = tf.reshard(wide[0:KF, j:j + NC], Layout((KF, (NC // NR, NR)), (NR, (KF * NR, 1))))
                    else:
                        first = b[0:KF, j:j + NC]
                    for s in range(cores.row, STRIPS, CM):
                        for n in range(0, NC, NR):
                            acc = tf.zeros(Tensor[(TALL, NR), "f32", (TALL, VECTORS, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, a[s * TALL:s * TALL + TALL, 0:KF], first[:, n:n + NR]), op=fma, repeat=(TALL, VECTORS, KF), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, acc, (s * TALL, j + n))
                    if REST:
                        for s in range(cores.row * NR, NC, CM * NR):
                            acc = tf.zeros(Tensor[(REST, NR), "f32", (REST, VECTORS, LANES @ t.lane), "rmem"])
                            acc = tf.schedule((acc, a[M - REST:M, 0:KF], first[:, s:s + NR]), op=fma, repeat=(REST, VECTORS, KF), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, acc, (M - REST, j + s))
                    if SPANS > 1:
                        for k in range(KF, K, KC):
                            panels = tf.reshard(wide[k:k + KC, j:j + NC], Layout((KC, (NC // NR, NR)), (NR, (KC * NR, 1))))
                            for s in range(cores.row, STRIPS, CM):
                                for n in range(0, NC, NR):
                                    acc = tf.zeros(Tensor[(TALL, NR), "f32", (TALL, VECTORS, LANES @ t.lane), "rmem"])
                                    acc = tf.schedule((acc, a[s * TALL:s * TALL + TALL, k:k + KC], panels[:, n:n + NR]), op=fma, repeat=(TALL, VECTORS, KC), order=(2, 0, 1), prefetch=AHEAD)
                                    for r in ROWS:
                                        sums = tf.reshard(out[s * TALL + r:s * TALL + r + 1, j + n:j + n + NR], (1, VECTORS, LANES @ t.lane), "rmem")
                                        out = tf.insert_slice(out, acc[r:r + 1] + sums, (s * TALL + r, j + n))
                            if REST:
                                for s in range(cores.row * NR, NC, CM * NR):
                                    acc = tf.zeros(Tensor[(REST, NR), "f32", (REST, VECTORS, LANES @ t.lane), "rmem"])
                                    acc = tf.schedule((acc, a[M - REST:M, k:k + KC], panels[:, s:s + NR]), op=fma, repeat=(REST, VECTORS, KC), order=(2, 0, 1), prefetch=AHEAD)
                                    for r in LEFT:
                                        sums = tf.reshard(out[M - REST + r:M - REST + r + 1, j + s:j + s + NR], (1, VECTORS, LANES @ t.lane), "rmem")
                                        out = tf.insert_slice(out, acc[r:r + 1] + sums, (M - REST + r, j + s))
        return out[:, 0:N]
