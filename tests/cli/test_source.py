"""SOURCE, --const and --dim: what they mean and what they refuse."""

import pytest

from tilefoundry.cli.source import Source, one_each, parse_consts, parse_dims, parse_source
from tilefoundry.diag import Refusal


@pytest.mark.parametrize(
    "text, path, selector",
    [
        ("kernel.py", "kernel.py", None),
        ("kernel.py:Placed", "kernel.py", "Placed"),
        ("a/b.c/kernel.py:Placed.chain", "a/b.c/kernel.py", "Placed.chain"),
        ("a:b/kernel.py:M", "a:b/kernel.py", "M"),
        ("dir.py/kernel.py:M.f", "dir.py/kernel.py", "M.f"),
        ("dir.py/kernel.py", "dir.py/kernel.py", None),
    ],
)
def test_sources(text, path, selector):
    source = parse_source(text)
    assert source == Source(path, selector)
    assert str(source) == text


@pytest.mark.parametrize(
    "text", ["", "kernel", "kernel.txt", "kernel.py:", "kernel.py:a..b", "kernel.py:1a", ":M"]
)
def test_malformed_sources(text):
    with pytest.raises(Refusal) as caught:
        parse_source(text)
    assert [d.code for d in caught.value.diags] == ["source-malformed"]
    assert caught.value.exit == 2


def test_consts():
    given = ("M=256", "N=0x10", "eps=1e-6", "kind=bf16", "flag=True", "path=a=b", "M=256")
    assert parse_consts(given) == {
        "M": 256,
        "N": 16,
        "eps": 1e-6,
        "kind": "bf16",
        "flag": True,
        "path": "a=b",
    }


def test_dims():
    assert parse_dims(("n=37",)) == {"n": [37]}
    assert parse_dims(("n=0,1,37", "m=2..5")) == {"n": [0, 1, 37], "m": [2, 3, 4, 5]}
    assert parse_dims(("n=0..64:16", "n=5,16")) == {"n": [0, 16, 32, 48, 64, 5]}


def test_one_each():
    assert one_each({"n": [3], "m": [4]}) == {"n": 3, "m": 4}


@pytest.mark.parametrize(
    "parse, given",
    [
        (parse_consts, ("M",)),
        (parse_consts, ("=3",)),
        (parse_consts, ("M=",)),
        (parse_consts, ("a-b=3",)),
        (parse_consts, ("M=1", "M=2")),
        (parse_dims, ("n=-1",)),
        (parse_dims, ("n=x",)),
        (parse_dims, ("n=5..2",)),
        (parse_dims, ("n=0..8:0",)),
        (parse_dims, ("n=0..1000000000000",)),
        (parse_dims, ("n=1,,2",)),
        (lambda given: one_each(parse_dims(given)), ("n=1,2",)),
    ],
)
def test_malformed_options(parse, given):
    with pytest.raises(Refusal) as caught:
        parse(given)
    assert [d.code for d in caught.value.diags] == ["option-malformed"]
    assert given[-1] in str(caught.value)


@pytest.mark.parametrize("kind", ["Exception", "BaseException", "SystemExit", "GeneratorExit"])
def test_a_file_that_raises_anything_is_the_authors(tmp_path, command, kind):
    (tmp_path / "raises.py").write_text(f"class Own({kind}): pass\nraise Own('no')\n")
    answer = command("analyze", "raises.py")
    assert answer.code == 1 and "Traceback" not in answer.stderr
    assert "raises.py:2: refused [source-failed]" in answer.stderr
