"""Softmax over rows that one CTA could not hold: the CTAs of a cluster share a row.
Shows reductions that cross CTAs through distributed shared memory; what is needed twice is computed
twice, so that three CTAs fit on a processor, and loads of one fill the time in which others meet."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 1024, 131072
CLUSTERS, CTAS, THREADS, VEC = 128, 8, 256, 8
PER = COLS // (CTAS * THREADS * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", CLUSTERS), Topology("cta", CTAS), Topology("thread", THREADS)),
)
class SoftmaxCluster:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("cluster",), layout=(CLUSTERS,), names=("group",)) as cluster:
            with Mesh(("cta",), layout=(CTAS,), names=("part",)) as cta:
                with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                    for row in range(cluster.group, ROWS, CLUSTERS):
                        held = tf.reshard(x[row:row + 1, :], (1, CTAS @ cta.part, PER, THREADS @ t.lane, VEC), "rmem")
                        most = tf.reshard(tf.reduce(held, (1,), True, "max"), (1, 1))
                        power = tf.exp(tf.cast(held, "f32") - tf.cast(most, "f32"))
                        total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (1, 1))
                        share = tf.exp(tf.cast(held, "f32") - (tf.cast(most, "f32") + tf.log(total)))
                        out = tf.insert_slice(out, tf.cast(share, "bf16"), (row, 0))
        return out
