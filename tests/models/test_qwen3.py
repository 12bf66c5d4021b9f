"""The shipped Qwen3 against the transformers library's, on random weights.

Both implementations are compared with a float64 run of the library's own code, within the
bound that ``rounding`` derives; as they round at the same points, ours may not be off by
more than twice what the library's is (root mean square).
"""

import copy
from functools import cache

import pytest
import torch
from rounding import Rounded, Roundings, W, exact, factor
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3 import modeling_qwen3

from tilefoundry.cli.models import models
from tilefoundry.evaluate import checkpoint_names, evaluate, instantiate
from tilefoundry.judge.safetensors import checkpoint
from tilefoundry.lang.load import load_source
from tilefoundry.ops.base import torch_dtype

SOURCE = models()["qwen3"]
UNITS = {"f32": W, "bf16": 2.0**-8}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CONTEXTS = (0, 1, 37)
NEW = 3
INIT = 0.02  # initializer_range of the published configuration
SMALL = {"LAYERS": 2, "VOCAB": 4096}


def configuration(**changes):
    """Qwen/Qwen3-1.7B as published, with changes."""
    published = dict(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        tie_word_embeddings=True,
    )
    made = Qwen3Config(**{**published, **changes})
    made._attn_implementation = "eager"
    return made


def blank(make):
    """The module that ``make`` gives, without the library's own initialisation."""
    with torch.device("meta"):
        return make().to_empty(device="cpu")


def scatter(module):
    """Weights as at initialisation, the norms' around 1, so that none can be left out."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, INIT if parameter.dim() > 1 else 0.1)
            if parameter.dim() == 1:
                parameter += 1
    return module


class Wide:
    """torch, with float64 where the library's code names float32."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def in_float64(act):
    """``act`` run with every float32 of the library's Qwen3 code replaced by float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_qwen3, "torch", Wide())
        return act()


def beyond(found, right, bound):
    """The largest error as a multiple of the bound for these outputs."""
    lam = factor(sum(t.numel() for t in right))
    return max(
        ((f.double() - r).abs() / (lam * b.s).clamp(min=1e-300)).max().item()
        for f, r, b in zip(found, right, bound, strict=True)
    )


def excess(ours, theirs, right, bound):
    """How far ours are from agreement: above 1, they do not agree."""
    ratios = [
        ((mine.double() - exactly).norm() / (other.double() - exactly).norm()).item()
        for mine, other, exactly in zip(ours, theirs, right, strict=True)
    ]
    return max(beyond(ours, right, bound), max(ratios) / 2)


def judge(dtype, ours, theirs, right, bound):
    """Hold both to the bound, and ours to twice the library's own error."""
    for mine, other, exactly, derived in zip(ours, theirs, right, bound, strict=True):
        assert mine.dtype == other.dtype == DTYPES[dtype]
        assert mine.shape == other.shape == exactly.shape
        # the derivation is of the library's code: the same values where nothing rounds
        torch.testing.assert_close(derived.v, exactly, rtol=1e-10, atol=1e-12)
    assert beyond(theirs, right, bound) <= 1
    assert excess(ours, theirs, right, bound) <= 1


def loaded(path, dtype, selector=None, **consts):
    return load_source(str(path), selector, {"DTYPE": dtype, **consts})


class Case:
    """One decoder layer of the published shape in one dtype: inputs and answers."""

    def __init__(self, dtype):
        torch.manual_seed(20)
        self.dtype, self.config = dtype, configuration()
        layer = blank(lambda: modeling_qwen3.Qwen3DecoderLayer(self.config, 0))
        self.layer = scatter(layer).to(DTYPES[dtype])
        self.weights = self.layer.state_dict()
        self.wide = copy.deepcopy(self.layer).double()
        self.rotary = modeling_qwen3.Qwen3RotaryEmbedding(self.config)

    @cache  # noqa: B019
    def answers(self, ctx_len):
        """(inputs, the library's outputs, the exact ones, the derivation's)."""
        torch.manual_seed(ctx_len)
        x = torch.randn(1, NEW, self.config.hidden_size) * INIT  # as the embedding gives
        kept = torch.randn(2, 1, self.config.num_key_value_heads, ctx_len, self.config.head_dim)
        cos, sin = self.rotary(x, torch.arange(ctx_len, ctx_len + NEW)[None])
        inputs = [t.to(DTYPES[self.dtype]) for t in (x, cos[0], sin[0], *kept)]
        right = in_float64(lambda: self.run(self.wide, *(t.double() for t in inputs)))
        x, cos, sin, *kept = map(exact, inputs)
        bound = Roundings(UNITS[self.dtype]).layer(self.config, self.weights, x, cos, sin, kept)
        return inputs, self.run(self.layer, *inputs), right, bound

    def run(self, layer, x, cos, sin, k_cache, v_cache):
        kept = DynamicCache()
        kept.update(k_cache, v_cache, 0)
        ctx_len, lowest = k_cache.shape[2], torch.finfo(x.dtype).min
        ahead = torch.ones(NEW, ctx_len + NEW).triu(ctx_len + 1).bool()
        mask = torch.zeros(1, 1, *ahead.shape, dtype=x.dtype).masked_fill(ahead, lowest)
        with torch.no_grad():
            out = layer(
                x, attention_mask=mask, position_embeddings=(cos[None], sin[None]), cache=kept
            )
        return out, kept.layers[0].keys, kept.layers[0].values

    def ours(self, path, inputs, **consts):
        found = loaded(path, self.dtype, "Layer", **consts)
        names = checkpoint_names(found.module)
        weights = {own: self.weights[name] for own, name in names.items()}
        return evaluate(found.module, "decode", inputs, weights)


@pytest.fixture(scope="module", params=UNITS)
def case(request):
    return Case(request.param)


@pytest.mark.parametrize("ctx_len", CONTEXTS)
def test_the_decoder_layer(case, ctx_len):
    inputs, theirs, right, bound = case.answers(ctx_len)
    judge(case.dtype, case.ours(SOURCE.path, inputs), theirs, right, bound)


WRONG = {
    "sees one token less": ("k_at <= q_at", "k_at < q_at"),
    "sees what follows": ("k_at <= q_at[:, None]", "k_at <= q_at[:, None] + 1"),
    "turns the other way": (
        "tf.concat(-q[..., HALF:], q[..., :HALF], axis=-1)",
        "tf.concat(q[..., HALF:], -q[..., :HALF], axis=-1)",
    ),
    "serves other heads": (
        "q = tf.reshape(q, (BATCH, KV_HEADS, GROUP, seq, HEAD_DIM))",
        "q = tf.transpose(tf.reshape(q, (BATCH, GROUP, KV_HEADS, seq, HEAD_DIM)), (0, 2, 1, 3, 4))",
    ),
    "does not weigh queries": ("tf.rms_norm(q, eps=EPS) * q_norm", "tf.rms_norm(q, eps=EPS)"),
    "scales too little": ("* SCALE", "* (1.05 * SCALE)"),
    "gates without the exponential": ("tf.silu(", "tf.relu("),
    "forgets the residual": ("x = x + tf.matmul(gate", "x = tf.matmul(gate"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_bound_notices(case, wrong, tmp_path):
    old, new = WRONG[wrong]
    assert SOURCE.text.count(old) == 1
    path = tmp_path / "wrong.py"
    path.write_text(SOURCE.text.replace(old, new))
    inputs, theirs, right, bound = case.answers(37)
    found = case.ours(path, inputs)
    assert excess(found[:1], theirs[:1], right[:1], bound[:1]) > 1


def test_zeros_do_not_pass(case):
    _, _, right, bound = case.answers(37)
    for exactly, derived in zip(right, bound, strict=True):
        assert beyond([torch.zeros_like(exactly)], [exactly], [derived]) > 5


class Whole:
    """The library's model with two layers, and its answers as its cache grows to 37 tokens."""

    chunks = ((0, 1), (1, 37), (37, 38))  # contexts of 0, 1 and 37 tokens

    def __init__(self, dtype):
        torch.manual_seed(21)
        self.dtype = dtype
        self.config = configuration(num_hidden_layers=SMALL["LAYERS"], vocab_size=SMALL["VOCAB"])
        self.model = blank(lambda: Qwen3ForCausalLM(self.config))
        self.model.tie_weights()
        self.model = scatter(self.model).to(DTYPES[dtype])
        self.model.model.rotary_emb = modeling_qwen3.Qwen3RotaryEmbedding(self.config)
        self.tokens = torch.randint(0, SMALL["VOCAB"], (1, 38))

    def logits(self, model, chunks):
        """The logits after each token, in one tensor; the cache grows chunk by chunk."""
        kept = DynamicCache()
        out = []
        for first, last in chunks:
            with torch.no_grad():
                out.append(model(self.tokens[:, first:last], cache=kept, use_cache=True).logits)
        return self.judged(torch.cat(out, 1))

    def judged(self, logits):
        """The logits after each chunk."""
        return [logits[:, last - 1] for _, last in self.chunks]

    def right(self):
        """The library's answers in float64, its frequencies included."""

        def run():
            wide = copy.deepcopy(self.model).double()
            wide.model.rotary_emb = modeling_qwen3.Qwen3RotaryEmbedding(self.config)
            return self.logits(wide, [(0, 38)])

        return in_float64(run)

    def bound(self):
        rules, weights = Roundings(UNITS[self.dtype]), self.model.state_dict()
        empty = exact(torch.empty(1, self.config.num_key_value_heads, 0, self.config.head_dim))
        x = exact(weights["model.embed_tokens.weight"][self.tokens])
        cos, sin = rules.rotary(self.config, 38)
        for n in range(SMALL["LAYERS"]):
            lead = f"model.layers.{n}."
            own = {k.removeprefix(lead): v for k, v in weights.items() if k.startswith(lead)}
            x, _, _ = rules.layer(self.config, own, x, cos, sin, (empty, empty))
        x = rules.norm(x, weights["model.norm.weight"], self.config.rms_norm_eps)
        logits = rules.linear(x, weights["model.embed_tokens.weight"])
        values, spreads = self.judged(logits.v), self.judged(logits.s)
        return [Rounded(v, s) for v, s in zip(values, spreads, strict=True)]


@pytest.mark.parametrize("dtype", UNITS)
def test_next_token_logits_from_a_checkpoint(dtype, tmp_path):
    whole = Whole(dtype)
    whole.model.save_pretrained(tmp_path, max_shard_size="200MB")
    found = loaded(SOURCE.path, dtype, **SMALL)
    stored = checkpoint(str(tmp_path))
    weights = {name: read(stored[there]) for name, there in checkpoint_names(found.module).items()}
    assert {*checkpoint_names(found.module).values()} == {*stored}

    model = instantiate(found.cls, weights)
    kept = [(torch.empty(1, 8, 0, 128, dtype=DTYPES[dtype]),) * 2] * SMALL["LAYERS"]
    ours = []
    for first, last in whole.chunks:
        logits, kept = model.forward(whole.tokens[:, first:last], torch.arange(first, last), kept)
        ours.append(logits)
    right = whole.right()
    theirs = whole.logits(whole.model, whole.chunks)
    judge(dtype, ours, theirs, right, whole.bound())


def read(entry):
    """A checkpoint's tensor."""
    bits = torch.frombuffer(bytearray(entry.read().view), dtype=torch.uint8)
    return bits.view(torch_dtype(entry.dtype)).reshape(entry.shape)


def test_check_reads_a_published_folder(command, tmp_path):
    """The command finds the weights under their published names, the tied one too."""
    torch.manual_seed(22)
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}
    model = scatter(Qwen3ForCausalLM(configuration(**sizes)))
    model.save_pretrained(tmp_path / "folder")
    x = torch.randn(1, 5, 256)
    with torch.no_grad():
        logits = model.lm_head(model.model.norm(x))[:, -1]
    torch.save(x, tmp_path / "x.pt")
    torch.save(logits, tmp_path / "logits.pt")
    ours = dict(HIDDEN=256, HEADS=4, KV_HEADS=2, INTERMEDIATE=512, LAYERS=2, VOCAB=1000)
    consts = [f"--const={name}={value}" for name, value in {**ours, "DTYPE": "f32"}.items()]
    answer = command(
        *("check", f"{SOURCE.path}:Qwen3.logits", *consts, "--weights", "ckpt:folder"),
        *("--inputs", "files:x.pt", "--expected", "logits.pt"),
        *("--out", "output", "--fn", "rel_l2", "--max", "1e-5"),
    )
    assert answer.code == 0, answer.stderr
    assert answer.stdout.startswith("# check verdict=agrees ")
