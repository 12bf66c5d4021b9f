"""A product of bytes on Rill: both operands are packed by fours along k."""

from tilefoundry.dsl import *
from tilefoundry.target import AnyTarget

M, N, K = 32, 16, 64

load, store = T.rill.tile.Load(), T.rill.tile.StoreSum()
outer = T.rill.tile.OuterI8(dtype="i8")
FOURS_A = Layout(((M // 16, 16), (K // 4, 4)), ((K * 16, 4), (64, 1)))
FOURS_B = Layout(((K // 4, 4), N), ((4 * N, 1), 4))
LEFT = Layout((16, (4, 4)), (4, (64, 1)))
RIGHT = Layout(((4, 4), 16), ((64, 1), 4))


@module(
    entry="run",
    target=AnyTarget("rill.board"),
    topologies=(Topology("core", 2), Topology("lane", 8)),
)
class RillBytes:
    @func
    def run(a: Tensor[(M, K), "i8"], b: Tensor[(K, N), "i8"]) -> Tensor[(M, N), "i32"]:
        lhs = pack_a(a)
        rhs = pack_b(b)
        out = multiply(lhs, rhs)
        return out

    @func
    def pack_a(a: Tensor[(M, K), "i8"]) -> Tensor[(M, K), "i8", FOURS_A]:
        out = tf.empty(Tensor[(M, K), "i8", FOURS_A])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                out = tf.insert_slice(out, a[cores.core * 16:cores.core * 16 + 16, :], (cores.core * 16, 0))
        return out

    @func
    def pack_b(b: Tensor[(K, N), "i8"]) -> Tensor[(K, N), "i8", FOURS_B]:
        out = tf.empty(Tensor[(K, N), "i8", FOURS_B])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                out = tf.insert_slice(out, b[cores.core * 32:cores.core * 32 + 32, :], (cores.core * 32, 0))
        return out

    @func
    def multiply(a: Tensor[(M, K), "i8", FOURS_A], b: Tensor[(K, N), "i8", FOURS_B]) -> Tensor[(M, N), "i32"]:
        out = tf.empty(Tensor[(M, N), "i32"])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            m = cores.core * 16
            acc = tf.zeros(Tensor[(16, 16), "i32", "sum"])
            for k in tf.tile(K, 16):
                lhs = tf.schedule((a[m:m + 16, k], tf.empty(Tensor[(16, 16), "i8", LEFT, "strip"])), op=load)
                rhs = tf.schedule((b[k, :], tf.empty(Tensor[(16, 16), "i8", RIGHT, "strip"])), op=load)
                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=outer))
            out = tf.insert_slice(out, tf.schedule((acc, tf.empty(Tensor[(16, 16), "i32"])), op=store), (m, 0))
        return out
