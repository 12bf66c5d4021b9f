"""Softmax over rows of any length, each core its part of the rows one by one. A row is read from memory
once: in BLOCKS blocks, each lane keeps the maximum of its elements of a block, and while a block
is read, the powers of the block before it, which the first cache still holds where there are
several, are taken against its lanes' own maxima. What is kept of a row is its powers, each in the
place of the one that it follows, which is meanwhile scaled and stored past the caches: memory is
read and written all the time. When a row ends, a factor of each lane and block turns its powers
into results. What comes a row later is asked for from memory, what comes four chunks later into the
first cache. What is stored past the caches is stored last: a load behind it at the same place of a
page would wait for it; for the same reason powers lie at other places of a page than what is read
soon after (of tensors that begin with a page, whose rows are pages), and a page apart from those of
another core, whose prefetchers would ask for them. Chunks of VECS vectors go through STREAMS parts
of a row side by side, so that each has a prefetcher of its own. The first steps store what is
stored anew later. Powers are those of 2, of an element times log2(e) less the maximum times the
same, rounded once; what rounding that product itself adds is taken off by the factor. Maxima pass
over NaN, whose power makes the sum NaN and with it the row. What is beyond a row is minus
infinity."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 37, 300, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
SIZE = 4 if DTYPE == "f32" else 2
STREAMS = max(1, min(4, COLS * SIZE // 4096))  # parts of a page or more: two in one page disturb each other
CHUNK = LANES * VECS
BLOCKS = max(1, min(4 if LANES > 8 else 1, COLS // (STREAMS * CHUNK)))  # three vectors each, as registers hold
SPAN = ceildiv(COLS, STREAMS * BLOCKS * CHUNK) * CHUNK  # of a block, in each stream
PART = BLOCKS * SPAN
WIDE = STREAMS * PART
PAGE = 1024  # f32 elements of 4 KiB
NEXT = SPAN % PAGE  # where in a page the next block is read, from where this one is
FREE, LEFT = (0, NEXT) if NEXT > PAGE // 2 else (NEXT, PAGE - NEXT)
LEAD, APART = FREE + LEFT // 3 // 64 * 64, PART + LEFT // 6 // 64 * 64
KEPT = (ceildiv(LEAD + STREAMS * APART, PAGE) + 1) * PAGE
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD, NEAR = COLS, 4 * CHUNK
ASKED = (AHEAD, NEAR) if NEAR else AHEAD
STEPS = ceildiv(ROWS, CORES)
LEAST, LEAST_FINITE, LOG2E = float("-inf"), -3.4028234663852886e38, 1.4426950408889634
FAR = 2.0**30  # from here on, elements that differ do so by 64 and more: 2^-64 is 0 beside 1, as e^-64


@module(
    entry="softmax",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Softmax:
    @func
    def softmax(x: Tensor[(ROWS, COLS), DTYPE]) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS, 0, CORES * STEPS - ROWS), LEAST)
        out = tf.empty(Tensor[(CORES * STEPS, WIDE), DTYPE])
        powers = tf.empty(Tensor[(CORES, KEPT), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for stream in range(STREAMS):
                    for c in tf.tile(PART, CHUNK):
                        none = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                        powers = tf.insert_slice(powers, none, (cores.core, LEAD + stream * APART + c.start))
                factors = tf.zeros(Tensor[(BLOCKS, LANES), "f32", (BLOCKS, LANES @ t.lane), "rmem"])
                most = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                first = cores.core * STEPS
                for step in range(STEPS + 2):
                    done = first + max(step - 2, 0)
                    this = first + max(min(step - 1, STEPS - 1), 0)
                    peaks = tf.zeros(Tensor[(BLOCKS, LANES), "f32", (BLOCKS, LANES @ t.lane), "rmem"])
                    sums = peaks + 0.0
                    for block in tuple(range(BLOCKS)):
                        rate = tf.where(tf.abs(most) < FAR, tf.full_like(most, LOG2E), 1.0)
                        low = most * -rate
                        peaks = tf.insert_slice(peaks, most, (block, 0))
                        total = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                        peak = total + LEAST
                        after = this if block + 1 < BLOCKS else first + min(step, STEPS - 1)
                        for c in tf.tile(SPAN, CHUNK):
                            for stream in tuple(range(STREAMS)):
                                at = stream * PART + block * SPAN + c.start
                                keep = LEAD + stream * APART + block * SPAN + c.start
                                old = tf.reshard(powers[cores.core:cores.core + 1, keep:keep + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                                scaled = tf.reshape(old, (1, VECS, LANES)) * factors[block:block + 1]
                                v = tf.reshard(padded[this:this + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                                away = tf.fma(tf.reshape(tf.cast(v, "f32"), (1, VECS, LANES)), rate, low)
                                power = tf.exp2(away)
                                powers = tf.insert_slice(powers, tf.reshape(power, (1, CHUNK)), (cores.core, keep))
                                total = total + tf.reduce(power, (1,), kind="sum")
                                to = stream * PART + (block + 1) % BLOCKS * SPAN + c.start
                                place = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                                w = tf.schedule((padded[after:after + 1, to:to + CHUNK], place), op=T.x86.LoadAhead(), prefetch=ASKED)
                                wide = tf.reshape(tf.cast(w, "f32"), (1, VECS, LANES))
                                for k in tuple(range(VECS)):
                                    peak = tf.fmax(peak, wide[:, k])
                                made = tf.schedule((tf.cast(tf.reshape(scaled, (1, CHUNK)), DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                                out = tf.insert_slice(out, made, (done, at))
                        sums = tf.insert_slice(sums, total, (block, 0))
                        most = tf.maximum(peak, LEAST_FINITE)
                    top = tf.reshard(tf.reduce(peaks, (0, 1), True, "max"), (1, 1))
                    rates = tf.where(tf.abs(peaks) < FAR, tf.full_like(peaks, LOG2E), 1.0)
                    excess = tf.fma(peaks, rates, peaks * -rates)  # of the powers, as the products are rounded
                    shares = tf.exp2(tf.fma(peaks - top, LOG2E, -excess))
                    whole = tf.reshard(tf.reduce(sums * shares, (0, 1), True, "sum"), (1, 1))
                    factors = shares * (1.0 / whole)
        return out[:ROWS, :COLS]
