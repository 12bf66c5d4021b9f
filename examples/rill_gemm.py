"""relu(A · B) on Rill, the invented hardware of this folder (`tilefoundry target add rill`): the
tile unit of each core multiplies, its vector unit finishes the rows."""

from tilefoundry.dsl import *
from tilefoundry.target import AnyTarget

M, N, K = 64, 48, 40
CORES, LANES, BK = 4, 8, 8

load, store = T.rill.tile.Load(), T.rill.tile.StoreSum()
outer = T.rill.tile.Outer(dtype="f32")
# A by blocks of 16 rows, each along k: what a strip loads is contiguous
BLOCKS = Layout(((M // 16, 16), K), ((K * 16, 1), 16))
LEFT = Layout((16, BK), (1, 16))


@module(
    entry="run",
    target=AnyTarget("rill.board"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class RillGemm:
    @func
    def run(a: Tensor[(M, K), "f32"], b: Tensor[(K, N), "f32"]) -> Tensor[(M, N), "f32"]:
        blocks = pack(a)
        sums = multiply(blocks, b)
        out = finish(sums)
        return out

    @func
    def pack(a: Tensor[(M, K), "f32"]) -> Tensor[(M, K), "f32", BLOCKS]:
        out = tf.empty(Tensor[(M, K), "f32", BLOCKS])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for m in range(cores.core * 16, M, CORES * 16):
                    out = tf.insert_slice(out, a[m:m + 16, :], (m, 0))
        return out

    @func
    def multiply(a: Tensor[(M, K), "f32", BLOCKS], b: Tensor[(K, N), "f32"]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            for m in range(cores.core * 16, M, CORES * 16):
                for n in range(0, N, 16):
                    acc = tf.zeros(Tensor[(16, 16), "f32", "sum"])
                    for k in tf.tile(K, BK):
                        lhs = tf.schedule((a[m:m + 16, k], tf.empty(Tensor[(16, BK), "f32", LEFT, "strip"])), op=load)
                        rhs = tf.schedule((b[k, n:n + 16], tf.empty(Tensor[(BK, 16), "f32", "strip"])), op=load)
                        acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=outer), repeat=(1, 1, BK // 4))
                    tile = tf.schedule((acc, tf.empty(Tensor[(16, 16), "f32"])), op=store)
                    out = tf.insert_slice(out, tile, (m, n))
        return out

    @func
    def finish(x: Tensor[(M, N), "f32"]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for m in range(cores.core, M, CORES):
                    row = tf.reshard(x[m:m + 1, :], (1, N // LANES, LANES @ t.lane), "rmem")
                    out = tf.insert_slice(out, tf.schedule((row,), op=T.rill.vector.Relu()), (m, 0))
        return out
