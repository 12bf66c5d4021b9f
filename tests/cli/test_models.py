"""models: the shipped file as it is, and its constants as they were published."""

import json
from pathlib import Path

import tilefoundry

SHIPPED = Path(tilefoundry.__file__).parent / "models" / "qwen3.py"

# config.json of Qwen/Qwen3-1.7B, by its own keys
PUBLISHED = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-06,
    "torch_dtype": "bfloat16",
}
OURS = {
    "hidden_size": "HIDDEN",
    "intermediate_size": "INTERMEDIATE",
    "num_hidden_layers": "LAYERS",
    "num_attention_heads": "HEADS",
    "num_key_value_heads": "KV_HEADS",
    "head_dim": "HEAD_DIM",
    "vocab_size": "VOCAB",
    "max_position_embeddings": "POSITIONS",
    "rope_theta": "ROPE_THETA",
    "rms_norm_eps": "EPS",
}


def test_the_source_on_stdout_and_in_a_file(command, tmp_path):
    text = SHIPPED.read_text(encoding="utf-8")
    assert command("models", "qwen3").stdout == text
    answer = command("models", "qwen3", "mine.py")
    assert (answer.code, answer.stdout, answer.stderr) == (0, "", "")
    assert (tmp_path / "mine.py").read_text(encoding="utf-8") == text


def test_the_published_configuration(command):
    record = json.loads(command("models", "qwen3", "--json").stdout)
    found = record["constants"]
    assert {key: found[name] for key, name in OURS.items()} == {
        key: value for key, value in PUBLISHED.items() if key in OURS
    }
    assert (found["DTYPE"], PUBLISHED["torch_dtype"]) == ("bf16", "bfloat16")
    assert record["source"] == SHIPPED.read_text(encoding="utf-8")
    assert record["path"] == str(SHIPPED)


def test_each_model_says_where_it_comes_from(command):
    records = json.loads(command("models", "--json").stdout)["models"]
    assert [record["name"] for record in records] == ["qwen3"]
    assert all(record["what"] and record["configuration"] for record in records)
