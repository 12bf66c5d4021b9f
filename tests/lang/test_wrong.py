"""Wrong programs, each refused with the code, at the line and in the words that its page shows.

``tests/cases/wrong/*.md`` hold them by family. A page may start with a head, a ``python head``
block that each program of the page continues, one level deeper than its last line. The refused
line carries ``# <-``; the ``text`` block below a program is its whole refusal.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilefoundry import diag
from tilefoundry.lang.load import load_source

FOLDER = Path(__file__).parents[1] / "cases" / "wrong"
HEAD = re.compile(r"^```python head\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CASE = re.compile(
    r"^## (?P<title>.+?)$.*?^```python\n(?P<text>.*?)^```\n+```text\n(?P<golden>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MARK = "# <-"


@dataclass(frozen=True)
class Case:
    page: Path
    title: str
    program: str
    golden: str


def _cases() -> list[Case]:
    out: list[Case] = []
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        head = HEAD.search(text)
        lead = head[1] if head else ""
        last = lead.rstrip("\n").rpartition("\n")[2]
        deeper = 4 if last.endswith(":") else 0
        indent = " " * (len(last) - len(last.lstrip()) + deeper)
        for found in CASE.finditer(text):
            program = lead + textwrap.indent(found["text"], indent)
            out.append(Case(page, found["title"], program, found["golden"]))
        assert text.count("\n## ") == len(CASE.findall(text)), f"{page.name}: a case is malformed"
    return out


CASES = _cases()


def _refusal(program: str) -> diag.Refusal:
    Path("wrong.py").write_text(program, encoding="utf-8")
    with pytest.raises(diag.Refusal) as caught:
        load_source("wrong.py", None, {})
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.page.stem}-{c.title}")
def test_wrong(case, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    refusal = _refusal(case.program)
    text = f"{refusal}\n"
    if request.config.getoption("--update-golden") and text != case.golden:
        page = case.page.read_text(encoding="utf-8")
        at = page.index("```text\n", page.index(f"\n## {case.title}\n")) + len("```text\n")
        case.page.write_text(page[:at] + text + page[page.index("```\n", at) :], encoding="utf-8")
    assert text == case.golden
    lines = [n for n, line in enumerate(case.program.splitlines(), 1) if line.endswith(MARK)]
    assert [d.span.line for d in refusal.diags if d.span] == lines


def test_titles_differ():
    titles = [(c.page, c.title) for c in CASES]
    assert len(set(titles)) == len(titles)


GOOD = """\
from tilefoundry.dsl import *

N = 8
M: int = 4


@module(entry="f")
class Child:
    @func
    def f(x: Tensor[(N,), "f32"]):
        return x * 2.0


@module(entry="g")
class Parent:
    child = Child
    layers = ModuleList(Child, 2)

    @func
    def g(x: Tensor[(N,), "f32"]):
        return x * 3.0
"""


@pytest.fixture
def good(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good.py").write_text(GOOD, encoding="utf-8")
    return "good.py"


@pytest.mark.parametrize(
    "selector, module, func",
    [
        (None, "Parent", "g"),
        ("Parent", "Parent", "g"),
        ("Child.f", "Child", "f"),
        ("Parent.child.f", "Child", "f"),
        ("Parent.layers.f", "Child", "f"),
    ],
)
def test_selects(good, selector, module, func):
    loaded = load_source(good, selector, {})
    assert (loaded.module.name, loaded.func) == (module, func)


@pytest.mark.parametrize(
    "selector, says, known",
    [
        ("", "there is no module called ", "Child Parent"),
        ("Nope", "there is no module called Nope", "Child Parent"),
        ("N", "there is no module called N", "Child Parent"),
        ("Parent.f", "there is no function called f", "g child. layers."),
        ("Parent.g.g", "there is no function called g.g", "g child. layers."),
        ("Parent.child", "there is no function called child", "g child. layers."),
        ("Parent.child.g", "there is no function called g", "f"),
        ("Child.", None, None),
    ],
)
def test_selector(good, selector, says, known):
    if says is None:
        assert load_source(good, selector, {}).func == "f"
        return
    with pytest.raises(diag.Refusal) as caught:
        load_source(good, selector, {})
    (found,) = caught.value.diags
    assert (found.code, found.says, found.exit) == ("selector-unknown", says, 1)
    assert found.expected == f"one of {known}"


def test_const_overrides(good):
    assert load_source(good, None, {"N": 16}).module.funcs["g"].params[0].tensor.shape == (16,)


def test_const_unknown(good):
    with pytest.raises(diag.Refusal) as caught:
        load_source(good, None, {"K": 3})
    (found,) = caught.value.diags
    assert (found.code, found.exit, found.span) == ("const-unknown", 1, None)
    assert found.says == "--const K=3: good.py defines no constant K"
    assert found.expected == "one of its constants: N=8, M=4"
    assert "choose one of them" in found.fix


def test_const_misspelt(good):
    Path("long.py").write_text("BLOCK_M = 8\n" + Path(good).read_text())
    with pytest.raises(diag.Refusal) as caught:
        load_source("long.py", None, {"BLOK_M": 3})
    assert caught.value.diags[0].fix == "--const BLOCK_M=3"


ONE = """
@module(entry="f")
class A:
    @func
    def f(x: Tensor[(4,), "f32"]):
        return x
"""


@pytest.mark.parametrize(
    "old, new, bound",
    [
        ("4", 8, 8),
        ("4", "abc", None),
        ("4", 2.5, None),
        ("4", True, None),
        ("1e-5", 1, 1.0),
        ("1e-5", 0.5, 0.5),
        ("1e-5", "f16", None),
        ('"f32"', "f16", "f16"),
        ('"f32"', 16, None),
        ("True", False, False),
        ("True", 1, None),
        ("None", 3, 3),
        ("(4, 8)", 3, None),
        ("DimVar('n', 1, 8)", 3, None),
    ],
)
def test_const_of_another_type(old, new, bound, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = "from tilefoundry.dsl import *\n"
    Path("one.py").write_text(f"{head}V, W = {old}, 3\n\n{ONE}")
    if bound is not None:
        value = load_source("one.py", None, {"V": new}).python.V
        assert (value, type(value)) == (bound, type(bound))
        return
    with pytest.raises(diag.Refusal) as caught:
        load_source("one.py", None, {"V": new})
    (found,) = caught.value.diags
    assert (found.code, found.exit, str(found.span)) == ("const-type", 1, "one.py:2")
    assert found.says.startswith(f"--const V={new} ")
    assert found.expected.endswith(f"constants are V={old}, W=3")


@pytest.mark.parametrize(
    "name, content, why, fix",
    [
        ("smal.py", None, "there is no such file", "the nearest is small.py"),
        ("other.py", None, "there is no such file", "Python files in {here}: good.py small.py"),
        ("nofile.py", None, "there is no such file", "Python files in {here}: good.py small.py"),
        ("no/such.py", None, "there is no such file", "create the folder no, or correct the path"),
        ("folder.py", ..., "it is a folder", "name a file"),
        ("small.py/in.py", None, "small.py is a file, not a folder", "name small.py"),
        (
            "latin.py",
            "x = 1\n# é\n".encode("latin-1"),
            "byte 0xe9 on line 2 is not UTF-8",
            "save the file as UTF-8, or correct line 2",
        ),
        ("nul\0.py", None, "embedded null byte", "write the path without it"),
        ("l" * 300 + ".py", None, "file name too long", "name another file"),
    ],
)
def test_unreadable(good, name, content, why, fix):
    Path("small.py").write_text("x = 1\n")
    if content is ...:
        Path(name).mkdir()
    elif content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(diag.Refusal) as caught:
        load_source(name, None, {})
    (found,) = caught.value.diags
    assert (found.code, found.exit) == ("source-unreadable", diag.ENVIRONMENT)
    assert found.says == f"{name} cannot be read: {why}"
    assert fix.format(here=Path.cwd()) in found.fix


def test_a_link_that_leads_nowhere(good):
    Path("link.py").symlink_to("gone.py")
    with pytest.raises(diag.Refusal) as caught:
        load_source("link.py", None, {})
    assert caught.value.diags[0].fix.startswith("link.py is a link: make gone.py")


def test_unreadable_by_this_user(good, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", denied)  # root may read everything
    with pytest.raises(diag.Refusal) as caught:
        load_source(good, None, {})
    (found,) = caught.value.diags
    assert found.says == "good.py cannot be read: this user may not read it"
    assert found.fix.startswith("chmod +r good.py")
