"""3 x 3 convolution (stride 1, padding 1, channels last) as GEMMs: for each of the nine places
of the kernel, pixels of a row by channels times channels by filters, added in registers. Each core
has a band of rows; the three that it needs are in a ring, framed by zeros."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
H, W, C, F = 10, 28, 16, 64
MR, NR, AHEAD = 14, 32, 8
CORES, LANES = 2, 16

fma = T.x86.avx512.FmaPs(dtype="f32")
PANELS = Layout((9, C, (F // NR, NR)), (C * NR, NR, (9 * C * NR, 1)))


@module(
    entry="run",
    target=X86Target(CPU),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Conv3x3:
    @func
    def run(x: Tensor[(H, W, C), "f32"], weight: ConstTensor[(9, C, F), "f32"]) -> Tensor[(H, W, F), "f32"]:
        panels = pack(weight)
        out = conv(x, panels)
        return out

    @func
    def pack(weight: Tensor[(9, C, F), "f32"]) -> Tensor[(9, C, F), "f32", PANELS]:
        out = tf.empty(Tensor[(9, C, F), "f32", PANELS])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for f in range(cores.core * NR, F, CORES * NR):
                    out = tf.insert_slice(out, weight[:, :, f:f + NR], (0, 0, f))
        return out

    @func
    def conv(x: Tensor[(H, W, C), "f32"], panels: Tensor[(9, C, F), "f32", PANELS]) -> Tensor[(H, W, F), "f32"]:
        out = tf.empty(Tensor[(H, W, F), "f32"])
        wide = tf.pad(x, (0, 0, 1, 1, 1, 1))
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                first = cores.core * H // CORES
                rows = tf.reshard(wide[first:first + 3, :, :], Layout((3, W + 2, C), ((W + 2) * C, C, 1)))
                for h in range(first, first + 2):
                    rows = tf.insert_slice(rows, wide[h:h + 1, :, :], (h % 3, 0, 0))
                for h in range(first, (cores.core + 1) * H // CORES):
                    rows = tf.insert_slice(rows, wide[h + 2:h + 3, :, :], ((h + 2) % 3, 0, 0))
                    for w in range(0, W, MR):
                        for f in range(0, F, NR):
                            acc = tf.zeros(Tensor[(MR, NR), "f32", (MR, 2, LANES @ t.lane), "rmem"])
                            for r in range(3):
                                for s in range(3):
                                    pixels = tf.reshape(rows[(h + r) % 3:(h + r) % 3 + 1, w + s:w + s + MR, :], (MR, C))
                                    taps = tf.reshape(panels[r * 3 + s:r * 3 + s + 1, :, f:f + NR], (C, NR))
                                    acc = tf.schedule((acc, pixels, taps), op=T.tiled_mma(atom=fma), repeat=(MR, 2, C), order=(2, 0, 1), prefetch=AHEAD)
                            out = tf.insert_slice(out, tf.reshape(acc, (1, MR, NR)), (h, w, f))
        return out
