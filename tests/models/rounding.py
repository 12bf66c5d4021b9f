"""How far rounding can carry a Qwen3 decoder from its exact value, derived operation by operation.

The model. A value that is stored in a dtype of unit roundoff u (bf16: 2^-8, f32: 2^-24) is
off by at most u|v|; one computed in float32 on the way, by at most w|v|, w = 2^-24. Each of
these errors is bounded, and taken to have mean zero and to be independent of the others
(N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, SIAM J.
Sci. Comput. 41, 2019). A sum of errors c_i d_i with |d_i| <= a_i then exceeds
lambda sqrt(sum (c_i a_i)^2) with probability at most 2 exp(-lambda^2 / 2) (Hoeffding).
``Rounded`` carries the exact value and that root, the spread, to first order:

- store: spread^2 gains (u v)^2.
- contraction of k products: errors of different elements add in squares, each times its
  factor's square. Its k partial sums S_j are rounded by at most w|S_j| each. The factors
  are drawn with mean zero and independently, so S_j^2 is about the sum of the first j
  squared products: w^2 k sum (a_i b_i)^2 bounds what is expected of it, twice.
- the mean of n squares has terms of one sign, so its n partial sums are at most the whole:
  sqrt(n) w relatively; halved by the root, plus 3 for quotient, root and product.
- operands that may carry the same error (the two halves of a rotation, a residual and what
  was computed from it, a gate and its product) add their spreads, not the squares.
- softmax: p_j (d_j - sum p_l d_l) for errors d of the scores; its own are w |x_j - max| of
  the difference in the exponent, 2 for exp, sqrt(n) for the sum, 1 for the quotient.

Where both implementations round is the transformers library's eager code: the operations
below follow it. The exact values are compared with that code run in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

W = 2.0**-24
FAILS = 1e-9
"""Probability with which a right implementation may be refused."""


def factor(count):
    """lambda for ``count`` numbers that must all stay within it."""
    return math.sqrt(2 * math.log(2 * count / FAILS))


@dataclass
class Rounded:
    """Exact values in float64, and the spread of what is stored in their place."""

    v: torch.Tensor
    s: torch.Tensor

    def map(self, move):
        """Both moved alike: reshaped, transposed, sliced."""
        return Rounded(move(self.v), move(self.s))


def exact(v):
    v = v.double()
    return Rounded(v, torch.zeros_like(v))


def joined(a, b, dim):
    return Rounded(torch.cat((a.v, b.v), dim), torch.cat((a.s, b.s), dim))


class Roundings:
    """The decoder's operations for one dtype, of unit roundoff ``u``."""

    def __init__(self, u):
        self.u = u if u == W else u + W  # computed in float32, then stored

    def store(self, v, s):
        return Rounded(v, torch.sqrt(s**2 + (self.u * v) ** 2))

    def add(self, a, b):
        return self.store(a.v + b.v, a.s + b.s)

    def mul(self, a, b):
        return self.store(a.v * b.v, a.s * b.v.abs() + a.v.abs() * b.s + a.s * b.s)

    def contract(self, a, b):
        """a [.., m, k] times b [.., k, n]."""
        a2, b2, sa2, sb2 = (x.square() for x in (a.v, b.v, a.s, b.s))
        sums = W**2 * (a.v.shape[-1] + 1) * (a2 @ b2)
        spread = sums + a2 @ sb2 + sa2 @ b2 + sa2 @ sb2
        return self.store(a.v @ b.v, torch.sqrt(spread))

    def linear(self, x, weight):
        """x times the transpose of an exact weight [n, k]; the spread needs no float64."""
        sums = W**2 * (weight.shape[1] + 1) * x.v.square()
        spread = torch.nn.functional.linear((x.s.square() + sums).float(), weight.float().square())
        v = torch.nn.functional.linear(x.v, weight.double())
        return self.store(v, spread.double().sqrt())

    def norm(self, x, weight, eps):
        n = x.v.shape[-1]
        r = torch.rsqrt(x.v.square().mean(-1, keepdim=True) + eps)
        y = x.v * r
        scale = r**2 / n * (x.v * x.s).square().sum(-1, keepdim=True).sqrt()
        s = r * x.s + y.abs() * (scale + W * (math.sqrt(n) / 2 + 3))
        return self.mul(self.store(y, s), exact(weight))

    def rotate(self, x, cos, sin):
        half = x.v.shape[-1] // 2
        turned = Rounded(
            torch.cat((-x.v[..., half:], x.v[..., :half]), -1),
            torch.cat((x.s[..., half:], x.s[..., :half]), -1),
        )
        return self.add(self.mul(x, cos), self.mul(turned, sin))

    def rotary(self, config, tokens):
        """cos and sin at the first positions.

        An angle is position times the reciprocal of a power: the power is off by at most 2
        units in the last place (4 w), reciprocal and product by w each; cos and sin by 1 (2 w).
        """
        base, dim = config.rope_parameters["rope_theta"], config.head_dim
        frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.arange(tokens, dtype=torch.float64)[:, None] * frequency
        angle = torch.cat((angle, angle), -1)
        own = W * (6 * angle + 2)
        return self.store(angle.cos(), own), self.store(angle.sin(), own)

    def softmax(self, x):
        p = torch.softmax(x.v, -1)
        seen = p > 0
        below = torch.where(seen, x.v.max(-1, keepdim=True).values - x.v, 0)
        s = torch.where(seen, x.s, 0)
        own = W * (below + math.sqrt(p.shape[-1]) + 3)
        common = (p * s).square().sum(-1, keepdim=True).sqrt()
        return self.store(p, p * (s + common + own))

    def silu(self, x):
        gate = torch.sigmoid(x.v)
        y = x.v * gate
        slope = gate * (1 + x.v * (1 - gate))
        return self.store(y, slope.abs() * x.s + 4 * W * y.abs())

    def layer(self, config, weights, x, cos, sin, cache):
        """One decoder layer: (output, keys, values); ``weights`` by their checkpoint names."""
        eps, dim = config.rms_norm_eps, config.head_dim
        group = config.num_attention_heads // config.num_key_value_heads

        def heads(name):
            made = self.linear(h, weights[f"self_attn.{name}_proj.weight"])
            return made.map(lambda t: t.unflatten(-1, (-1, dim)))

        def normed(name):
            return self.norm(heads(name), weights[f"self_attn.{name}_norm.weight"], eps)

        h = self.norm(x, weights["input_layernorm.weight"], eps)
        q, k, v = (
            t.map(lambda t: t.transpose(1, 2)) for t in (normed("q"), normed("k"), heads("v"))
        )
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        keys, values = joined(cache[0], k, 2), joined(cache[1], v, 2)
        per_query = (t.map(lambda t: t.repeat_interleave(group, 1)) for t in (keys, values))
        k, v = per_query
        scores = self.contract(q, k.map(lambda t: t.transpose(2, 3)))
        scale = dim**-0.5
        scores = self.store(scores.v * scale, scale * (scores.s + W * scores.v.abs()))
        new, total = scores.v.shape[-2:]
        ahead = torch.ones(new, total).triu(total - new + 1).bool()
        scores = Rounded(scores.v.masked_fill(ahead, -math.inf), scores.s)
        attended = self.contract(self.softmax(scores), v)
        attended = attended.map(lambda t: t.transpose(1, 2).flatten(2))
        x = self.add(x, self.linear(attended, weights["self_attn.o_proj.weight"]))
        h = self.norm(x, weights["post_attention_layernorm.weight"], eps)
        gate = self.silu(self.linear(h, weights["mlp.gate_proj.weight"]))
        product = self.mul(gate, self.linear(h, weights["mlp.up_proj.weight"]))
        return self.add(x, self.linear(product, weights["mlp.down_proj.weight"])), keys, values
