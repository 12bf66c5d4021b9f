"""Ordinary Python that must parse, and mean what it means; files of every kind; long programs."""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.ir.node import nodes
from tilefoundry.lang.load import load_source

HEAD = """\
from tilefoundry.dsl import *

SIZES = {"rows": 4, "columns": 8}
ROW = Tensor[(8,), "f32"]
FAST = True


@module(entry="f", topologies=(Topology("cta", 2), Topology("thread", 4)))
class Program:
    @func
    def f(x: Tensor[(4, 8), "f32"], y: Tensor[(4, 8), "f32"]):
"""
X = torch.arange(32.0).reshape(4, 8)
Y = X * 3.0 - 7.0


def load(text, tmp_path, newline="\n", encoding="utf-8"):
    path = tmp_path / "program.py"
    path.write_bytes(text.replace("\n", newline).encode(encoding))
    return load_source(str(path), None, {})


FORMS = {
    "docstring and comments": ('"""Adds."""\n# a comment\nreturn x + y  # another', X + Y),
    "tuple targets": ("(a, b), c = (x, y), x\nreturn a + b - c", Y),
    "starred target": ("first, *rest = (x, y, y)\nreturn first + rest[0] * len(rest)", X + 2 * Y),
    "chained targets": ("a = b = x + y\nreturn a * b", (X + Y) ** 2),
    "swap": ("x, y = y, x\nreturn x - y", Y - X),
    "augmented": ("x += y\nx *= 2\nreturn x", (X + Y) * 2),
    "keywords": ("return tf.add(rhs=x, lhs=y)", X + Y),
    "starred arguments": ("return tf.add(*[x, y])", X + Y),
    "double-starred arguments": ('return tf.add(**{"lhs": x, "rhs": y})', X + Y),
    "conditional expression": ('return x if FAST and SIZES["rows"] == 4 else y', X),
    "compile-time branch that returns": ("if FAST:\n    return x\nreturn y", X),
    "comprehension": ("parts = [x * n for n in range(3) if n]\nreturn parts[0] + parts[1]", 3 * X),
    "nested comprehension": (
        "terms = [x * (a + b) for a, b in [(1, 2), (3, 4)] for _ in range(2)]\n"
        "return tf.concat(*terms, axis=0)[0:4]",
        3 * X,
    ),
    "generator": ("a, b = (v * 2 for v in (x, y))\nreturn a + b", 2 * (X + Y)),
    "f-string": ("name = f\"{SIZES['rows']:>2}{4!r}\"\nreturn x * len(name)", 3 * X),
    "dict display": ('d = {**SIZES, "k": 2}\nreturn x * d["k"]', 2 * X),
    "unrolled loop": (
        "for k, v in zip((1, 2), (x, y)):\n    x = x + v * k\nreturn x",
        2 * X + 2 * Y,
    ),
    "enumerate": ("for k, v in enumerate((x, y)):\n    x = x + v * k\nreturn x", X + Y),
    "compile-time while": ("n = 3\nwhile n > 0:\n    x = x + y\n    n -= 1\nreturn x", X + 3 * Y),
    "assertion": ('assert x.shape == (4, 8), "shape"\nreturn x', X),
    "membership": ("return x if 4 in x.shape and 5 not in x.shape else y", X),
    "negative index": ("return x[-1] + x[-2, -8]", X[-1] + X[-2, -8]),
    "slices": ("return x[..., ::2][1:3, None]", X[..., ::2][1:3, None]),
    "starred index": ("at = (1, 2)\nreturn x[*at]", X[1, 2]),
    "type alias": ("return x + tf.zeros(ROW) + tf.zeros(type=ROW)", X),
    "annotation": ('z: Tensor[(4, 8), "f32"] = x\nreturn z', X),
    "several scopes in one with": (
        'with Mesh(("cta",), layout=(2,), names=("c",)) as A, '
        'Mesh(("thread",), layout=(4,), names=("t",)) as B2:\n'
        '    z = tf.reshard(x, (4 @ B2.t, 8 @ A.c), "smem")\n'
        "    z = tf.reshard(z * 2.0, (4, 8), 'gmem')\nreturn z",
        2 * X,
    ),
    "parenthesised with": (
        'with (\n    Mesh(("cta",), layout=(2,), names=("c",)) as A,\n):\n'
        "    z = x * 2.0\nreturn z",
        2 * X,
    ),
    "truth of bool tensors": (
        "return tf.where((x > 3.0) & ~(y > 9.0) | (x == 0.0), x, y)",
        torch.where((X > 3) & ~(Y > 9) | (X == 0), X, Y),
    ),
    "pass and ellipsis": ("pass\n...\nreturn x", X),
    "and, or give a value": (
        'n = 0 or SIZES["rows"] and 3\nm = None or 2\nreturn x[:n, :m]', X[:3, :2]
    ),
    "or that a value decides": ("return (x if FAST else y) * (2.0 or 1 // 0)", 2 * X),
    "or of a tensor at its end": ("z = None or x\nreturn z + (FAST and y)", X + Y),
    "a tensor is not None": (
        "return (x if x is not None else y) + (x if y != None else y)", 2 * X
    ),
    "None is no tensor": ("z = None\nreturn x if z is None and not (x == None) else y", X),
    "annotation in quotes": ("z: \"Tensor[(4, 8), 'f32']\" = x\nreturn z", X),
    "start before the first": ("return x[-9:2] + x[:2, -100:]", 2 * X[:2]),
    "end before the first": ("return x[:-9]", X[:-9]),
}


@pytest.mark.parametrize("name", FORMS)
def test_means_what_python_means(name, tmp_path):
    body, expected = FORMS[name]
    loaded = load(HEAD + textwrap.indent(body, " " * 8) + "\n", tmp_path)
    (out,) = evaluate(loaded.module, "f", [X, Y])
    assert torch.equal(out, expected)


PLAIN = HEAD + "        return x + y\n"


@pytest.mark.parametrize(
    "text, newline, encoding",
    [
        (PLAIN, "\r\n", "utf-8"),
        (PLAIN, "\r", "utf-8"),
        (PLAIN, "\n", "utf-8-sig"),
        (PLAIN.replace("    ", "\t"), "\n", "utf-8"),
        (PLAIN.rstrip("\n"), "\n", "utf-8"),
        (PLAIN.replace("@module", "\x0c\n# ﬁ – ∑ 𝔘\n@module"), "\n", "utf-8"),
        (PLAIN.replace("x", "größe").replace("return", "# ñ\n        return"), "\n", "utf-8"),
    ],
    ids=["CRLF", "CR", "BOM", "tabs", "no last newline", "form feed", "unicode names"],
)
def test_files_of_every_kind(text, newline, encoding, tmp_path):
    loaded = load(text, tmp_path, newline, encoding)
    (out,) = evaluate(loaded.module, "f", [X, Y])
    assert torch.equal(out, X + Y)
    (add,) = nodes(loaded.module.funcs["f"].body)
    assert "return" in loaded.text.split("\n")[add.span.line - 1]


def test_a_file_that_changed_is_read_again(tmp_path):
    first = load(PLAIN, tmp_path)
    second = load(PLAIN.replace("x + y", "x - y"), tmp_path)
    assert torch.equal(evaluate(second.module, "f", [X, Y])[0], X - Y)
    assert torch.equal(evaluate(first.module, "f", [X, Y])[0], X + Y)


def test_what_a_file_prints_goes_to_stderr(tmp_path, capsys):
    load(f'print("hello")\n{PLAIN}', tmp_path)
    assert capsys.readouterr() == ("", "hello\n")


def test_a_class_made_by_a_function(tmp_path):
    text = """\
    from tilefoundry.dsl import *


    def make(n, factor):
        @module(entry="f")
        class Made:
            @func
            def f(x: Tensor[(n,), "f32"]) -> Tensor[(n,), "f32"]:
                return x * factor

        return Made


    A = make(3, 2.0)
    B2 = make(5, 4.0)
    """
    path = tmp_path / "made.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    for name, n, factor in (("A", 3, 2.0), ("B2", 5, 4.0)):
        loaded = load_source(str(path), name, {})
        (out,) = evaluate(loaded.module, "f", [torch.ones(n)])
        assert torch.equal(out, torch.full((n,), factor))


def deep(open, close, depth):
    return f"        return {open * depth}x{close * depth}\n"


FUNCTIONS = "".join(
    f'    @func\n    def f{n}(x: Tensor[(4, 8), "f32"]):\n        return f{n + 1}(x)\n'
    for n in range(300)
)
LONG = {
    "1,000 statements": HEAD + "        x = x * 2.0\n" * 1000 + "        return x\n",
    "1,000 terms": HEAD + f"        return x{' + y' * 1000}\n",
    "diamonds of 500 nodes": HEAD + "        x = x + tf.exp(x)\n" * 250 + "        return x\n",
    "190 calls in each other": HEAD + deep("tf.exp(", ")", 190),
    "150 parentheses": HEAD + deep("(", ")", 150),
    "300 functions that call the next": HEAD.rpartition("    @func")[0].replace('"f"', '"f0"')
    + FUNCTIONS
    + '    @func\n    def f300(x: Tensor[(4, 8), "f32"]):\n        return x\n',
    "100 loops after each other": HEAD
    + "        for k in range(4):\n            x = x * y\n" * 100
    + "        return x\n",
    "15 loops in each other": HEAD
    + "".join(f"{' ' * (8 + 4 * n)}for k{n} in range(2):\n" for n in range(15))
    + f"{' ' * 68}x = x * y\n        return x\n",
}


@pytest.mark.parametrize("name", LONG)
def test_long_programs_take_work_in_proportion_to_their_length(name, tmp_path):
    """Counts Python calls, which a busy machine does not change; a quadratic step exceeds it."""
    load(PLAIN, tmp_path)  # first use of the operations
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        load(LONG[name], tmp_path)
    finally:
        sys.setprofile(None)
    assert calls < 300_000


@pytest.mark.parametrize(
    "text, code",
    [
        (HEAD + deep("(", ")", 250), "source-syntax"),
        (HEAD + deep("-", "", 100_000), "source-syntax"),
        (HEAD + f"        return x{' ** x' * 100_000}\n", "source-syntax"),
        (
            HEAD
            + "        if 0:\n            pass\n"
            + "        elif 0:\n            pass\n" * 900,
            "syntax-unsupported",
        ),
    ],
    ids=["parentheses", "signs", "powers", "branches"],
)
def test_nesting_without_end_is_refused(text, code, tmp_path):
    with pytest.raises(Refusal) as caught:
        load(text, tmp_path)
    assert [d.code for d in caught.value.diags] == [code]
