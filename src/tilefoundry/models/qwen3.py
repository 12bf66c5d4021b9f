"""Qwen3, a dense decoder: token ids and cached keys and values to next-token logits.

Configuration: Qwen/Qwen3-1.7B config.json, huggingface.co/Qwen/Qwen3-1.7B

How to read this file. The constants are the published configuration; each can be given
another value on the command line (--const LAYERS=2, --const DTYPE=f32). ctx_len and seq are
open extents: tokens already in the cache, and new tokens; an empty cache is ctx_len = 0.
A function marked @func is the program: values are immutable, a ConstTensor is a weight
that is bound by its name, and each operation rounds once, to its result's dtype, where
the eager implementation of the transformers library rounds too. Layer.decode is one
decoder layer. Qwen3 holds the layers and what is around them; its forward is plain Python
that says in which order the functions run. weight_names gives the names in a published
checkpoint, of weights and of children, relative to the module that states them.

    tilefoundry analyze qwen3.py:Layer.decode --roofline --dim ctx_len=4096 --dim seq=1
    tilefoundry check twin.py:FastLayer --const DTYPE=f32 --weights random --inputs random
        --dim ctx_len=0,1,37 --dim seq=1 --out '*' --fn rel_l2 --max 1e-5

(twin.py: a class FastLayer that implements Layer in any way; `tilefoundry tutorial`.)
"""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

HIDDEN = 2048
INTERMEDIATE = 6144
LAYERS = 28
HEADS = 16  # of queries
KV_HEADS = 8  # of keys and values: each serves HEADS // KV_HEADS heads of queries
HEAD_DIM = 128
VOCAB = 151936
POSITIONS = 40960
ROPE_THETA = 1000000.0
EPS = 1e-6
DTYPE = "bf16"
BATCH = 1

GROUP = HEADS // KV_HEADS
HALF = HEAD_DIM // 2
SCALE = HEAD_DIM**-0.5
TARGET = CudaTarget("nvidia.h200_sxm")

ctx_len = DimVar("ctx_len", 0, POSITIONS)
seq = DimVar("seq", 1, POSITIONS)


@module(entry="decode", target=TARGET)
class Layer:
    """One decoder layer: attention over cache and new tokens, then a gated MLP."""

    weight_names = {
        "input_norm": "input_layernorm.weight",
        "q_proj": "self_attn.q_proj.weight",
        "k_proj": "self_attn.k_proj.weight",
        "v_proj": "self_attn.v_proj.weight",
        "q_norm": "self_attn.q_norm.weight",
        "k_norm": "self_attn.k_norm.weight",
        "o_proj": "self_attn.o_proj.weight",
        "post_norm": "post_attention_layernorm.weight",
        "gate_proj": "mlp.gate_proj.weight",
        "up_proj": "mlp.up_proj.weight",
        "down_proj": "mlp.down_proj.weight",
    }

    @func
    def decode(
        x: Tensor[(BATCH, seq, HIDDEN), DTYPE],
        cos: Tensor[(seq, HEAD_DIM), DTYPE],
        sin: Tensor[(seq, HEAD_DIM), DTYPE],
        k_cache: Tensor[(BATCH, KV_HEADS, ctx_len, HEAD_DIM), DTYPE],
        v_cache: Tensor[(BATCH, KV_HEADS, ctx_len, HEAD_DIM), DTYPE],
        input_norm: ConstTensor[(HIDDEN,), DTYPE],
        q_proj: ConstTensor[(HEADS * HEAD_DIM, HIDDEN), DTYPE],
        k_proj: ConstTensor[(KV_HEADS * HEAD_DIM, HIDDEN), DTYPE],
        v_proj: ConstTensor[(KV_HEADS * HEAD_DIM, HIDDEN), DTYPE],
        q_norm: ConstTensor[(HEAD_DIM,), DTYPE],
        k_norm: ConstTensor[(HEAD_DIM,), DTYPE],
        o_proj: ConstTensor[(HIDDEN, HEADS * HEAD_DIM), DTYPE],
        post_norm: ConstTensor[(HIDDEN,), DTYPE],
        gate_proj: ConstTensor[(INTERMEDIATE, HIDDEN), DTYPE],
        up_proj: ConstTensor[(INTERMEDIATE, HIDDEN), DTYPE],
        down_proj: ConstTensor[(HIDDEN, INTERMEDIATE), DTYPE],
    ):
        # Queries, keys and values of the new tokens; a norm rounds before it is weighed.
        h = tf.rms_norm(x, eps=EPS) * input_norm
        q = tf.reshape(tf.matmul(h, q_proj, b_layout="NK"), (BATCH, seq, HEADS, HEAD_DIM))
        k = tf.reshape(tf.matmul(h, k_proj, b_layout="NK"), (BATCH, seq, KV_HEADS, HEAD_DIM))
        v = tf.reshape(tf.matmul(h, v_proj, b_layout="NK"), (BATCH, seq, KV_HEADS, HEAD_DIM))
        q = tf.transpose(tf.rms_norm(q, eps=EPS) * q_norm, (0, 2, 1, 3))
        k = tf.transpose(tf.rms_norm(k, eps=EPS) * k_norm, (0, 2, 1, 3))
        v = tf.transpose(v, (0, 2, 1, 3))

        # Rotary positions: both products are rounded before they are added.
        q_turned = tf.concat(-q[..., HALF:], q[..., :HALF], axis=-1)
        k_turned = tf.concat(-k[..., HALF:], k[..., :HALF], axis=-1)
        q = q * cos + q_turned * sin
        k = k * cos + k_turned * sin

        # The cache with the new tokens at its end.
        keys = tf.concat(k_cache, k, axis=2)
        values = tf.concat(v_cache, v, axis=2)

        # Causal attention: new token i stands at position ctx_len + i.
        q = tf.reshape(q, (BATCH, KV_HEADS, GROUP, seq, HEAD_DIM))
        scores = tf.matmul(q, keys[:, :, None], b_layout="NK")
        scores = tf.cast(tf.cast(scores, "f32") * SCALE, DTYPE)
        q_at = tf.arange(Tensor[(seq,), "i32"], start=ctx_len)
        k_at = tf.arange(Tensor[(ctx_len + seq,), "i32"])
        scores = tf.where(k_at <= q_at[:, None], scores, float("-inf"))
        attended = tf.matmul(tf.softmax(scores, axis=-1), values[:, :, None])
        attended = tf.reshape(attended, (BATCH, HEADS, seq, HEAD_DIM))
        attended = tf.reshape(tf.transpose(attended, (0, 2, 1, 3)), (BATCH, seq, HEADS * HEAD_DIM))
        x = x + tf.matmul(attended, o_proj, b_layout="NK")

        # Gated MLP.
        h = tf.rms_norm(x, eps=EPS) * post_norm
        gate = tf.silu(tf.matmul(h, gate_proj, b_layout="NK"))
        up = tf.matmul(h, up_proj, b_layout="NK")
        x = x + tf.matmul(gate * up, down_proj, b_layout="NK")
        return x, keys, values


@module(entry="forward", target=TARGET)
class Qwen3:
    """The whole model; the embedding is also the weight of the logits (tied)."""

    weight_names = {
        "embed_tokens": "model.embed_tokens.weight",
        "layers": "model.layers",
        "norm": "model.norm.weight",
    }
    layers = ModuleList(Layer, LAYERS)

    @func
    def embed(
        tokens: Tensor[(BATCH, seq), "i64"],
        embed_tokens: ConstTensor[(VOCAB, HIDDEN), DTYPE],
    ):
        return tf.index_select(embed_tokens, tokens, dim=0)

    @func
    def rotary(positions: Tensor[(seq,), "i64"]):
        """cos and sin of position times frequency, the frequencies twice in a row."""
        power = tf.arange(Tensor[(HALF,), "f32"], step=2) / HEAD_DIM
        frequency = 1.0 / ROPE_THETA**power
        angle = tf.cast(positions, "f32")[:, None] * frequency
        angle = tf.concat(angle, angle, axis=-1)
        return tf.cast(tf.cos(angle), DTYPE), tf.cast(tf.sin(angle), DTYPE)

    @func
    def logits(
        x: Tensor[(BATCH, seq, HIDDEN), DTYPE],
        norm: ConstTensor[(HIDDEN,), DTYPE],
        embed_tokens: ConstTensor[(VOCAB, HIDDEN), DTYPE],
    ):
        """Scores of the token after the last one."""
        last = tf.rms_norm(x[:, seq - 1], eps=EPS) * norm
        return tf.matmul(last, embed_tokens, b_layout="NK")

    def forward(self, tokens, positions, cache):
        """Next-token logits, and the cache with the new tokens.

        tokens (BATCH, seq) at positions (seq,); cache: keys and values of each layer, each
        (BATCH, KV_HEADS, ctx_len, HEAD_DIM).
        """
        x = self.embed(tokens)
        cos, sin = self.rotary(positions)
        grown = []
        for layer, (k_cache, v_cache) in zip(self.layers, cache, strict=True):
            x, keys, values = layer.decode(x, cos, sin, k_cache, v_cache)
            grown.append((keys, values))
        return self.logits(x), grown
