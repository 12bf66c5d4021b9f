"""Elementwise functions of two tensors of any length, one chunk after the other, with an edge
that is masked: what a gated layer, a clipped value and a choice need."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE = 999, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 1
CHUNK = LANES * VECS
STEPS = ceildiv(N, CHUNK)


@module(
    entry="gated",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Activations:
    @func
    def gated(
        x: Tensor[(N,), DTYPE], y: Tensor[(N,), DTYPE]
    ) -> (Tensor[(N,), DTYPE], Tensor[(N,), DTYPE], Tensor[(N,), "bool"]):
        xs = tf.pad(x, (0, STEPS * CHUNK - N), 0.0)
        ys = tf.pad(y, (0, STEPS * CHUNK - N), 1.0)
        gate = tf.empty(Tensor[(STEPS * CHUNK,), DTYPE])
        kept = tf.empty(Tensor[(STEPS * CHUNK,), DTYPE])
        flags = tf.empty(Tensor[(STEPS * CHUNK,), "bool"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for step in range(cores.core, STEPS, CORES):
                    at = step * CHUNK
                    a = tf.reshard(xs[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                    b = tf.reshard(ys[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                    gate = tf.insert_slice(gate, tf.silu(a) * tf.gelu(b), (at,))
                    more = a > b
                    chosen = tf.where(more, tf.clamp(a, -0.5, 0.75), tf.tanh(b))
                    kept = tf.insert_slice(kept, chosen, (at,))
                    flags = tf.insert_slice(flags, more, (at,))
        return gate[:N], kept[:N], flags[:N]
