"""A hardware from outside: one folder; an instruction more: one file of it.

The folder is the example ``examples/rill``, copied; every command is asked through the command
line, in processes of their own.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest

from process import environment
from tilefoundry.targets.contract.registry import declared
from tilefoundry.targets.folder import SHIPPED, folders
from warm import Warm, captured

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGE = SHIPPED.parent

# bf16 by pairs along k, as the tile unit's f32 instruction has single elements
HALVES = '''
"""Products of bf16: 2 neighbours along k in each 32 bits of a strip."""

from dataclasses import replace

from tilefoundry.targets.contract import OneOf, ParamDef, TensorPattern
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.sums import Sums

from .tile import OUTER, across, down

CODE = """
static inline float rill_bf16(const rill_unit *u, int strip, int row, int n) {
    union { uint32_t bits; float value; } x = {0};
    uint16_t half;
    memcpy(&half, u->strip[strip][row] + 2 * n, 2);
    x.bits = (uint32_t)half << 16;
    return x.value;
}
static inline void rill_outer_bf16(rill_unit *u, int sum, int a, int b) {
    for (int k = 0; k < 8; k++)
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++) {
                float x, l = rill_bf16(u, a, k / 2, 2 * m + k % 2), r = rill_bf16(u, b, k / 2, 2 * n + k % 2);
                memcpy(&x, u->sum[sum][m] + 4 * n, 4);
                x = __builtin_fmaf(l, r, x);
                memcpy(u->sum[sum][m] + 4 * n, &x, 4);
            }
}
#define rill_outer_bf16(...) rill_outer_bf16(&rill, __VA_ARGS__)
"""
CONTRACTS = (
    replace(
        OUTER,
        path="rill.tile.OuterBf16",
        A=TensorPattern((16, 8), "bf16", "strip", (down(8, 2),)),
        B=TensorPattern((8, 16), "bf16", "strip", (across(8, 2),)),
        parameters=(ParamDef("dtype", (OneOf("dtype", ("bf16",)),)),),
        rank=2,
        sums=Sums((tuple(range(8)),)),
        c=CText("rill_outer_bf16", CODE),
    ),
)
'''  # noqa: E501
PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import AnyTarget

M, N, K, BK = 32, 16, 32, 16
LEFT = Layout(((M // 16, 16), (K // 2, 2)), ((K * 16, 2), (32, 1)))
RIGHT = Layout(((K // 2, 2), N), ((2 * N, 1), 2))
load, store = T.rill.tile.Load(), T.rill.tile.StoreSum()
outer = T.rill.tile.OuterBf16(dtype="bf16")


@module(entry="run", target=AnyTarget("rill.board"), topologies=(Topology("core", 2), Topology("lane", 8)))
class Halves:
    @func
    def run(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "f32"]:
        out = multiply(pack_a(a), pack_b(b))
        return out

    @func
    def pack_a(a: Tensor[(M, K), "bf16"]) -> Tensor[(M, K), "bf16", LEFT]:
        out = tf.empty(Tensor[(M, K), "bf16", LEFT])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores, Mesh(("lane",), layout=(8,), names=("lane",)) as t:
            out = tf.insert_slice(out, a[cores.core * 16:cores.core * 16 + 16, :], (cores.core * 16, 0))
        return out

    @func
    def pack_b(b: Tensor[(K, N), "bf16"]) -> Tensor[(K, N), "bf16", RIGHT]:
        out = tf.empty(Tensor[(K, N), "bf16", RIGHT])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores, Mesh(("lane",), layout=(8,), names=("lane",)) as t:
            out = tf.insert_slice(out, b[cores.core * 16:cores.core * 16 + 16, :], (cores.core * 16, 0))
        return out

    @func
    def multiply(a: Tensor[(M, K), "bf16", LEFT], b: Tensor[(K, N), "bf16", RIGHT]) -> Tensor[(M, N), "f32"]:
        out = tf.empty(Tensor[(M, N), "f32"])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            m = cores.core * 16
            acc = tf.zeros(Tensor[(16, 16), "f32", "sum"])
            for k in tf.tile(K, BK):
                lhs = tf.schedule((a[m:m + 16, k], tf.empty(Tensor[(16, BK), "bf16", ((16, (BK // 2, 2)), (2, (32, 1))), "strip"])), op=load)
                rhs = tf.schedule((b[k, :], tf.empty(Tensor[(BK, 16), "bf16", (((BK // 2, 2), 16), ((32, 1), 2)), "strip"])), op=load)
                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=outer))
            out = tf.insert_slice(out, tf.schedule((acc, tf.empty(Tensor[(16, 16), "f32"])), op=store), (m, 0))
        return out
"""  # noqa: E501


class Shell:
    """The commands, with a home and a folder of their own."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder = folder
        self.warm = warm
        self.env = environment(TILEFOUNDRY_HOME=str(folder / "home"))

    def ask(self, line: str, code: int = 0) -> str:
        said, complained, ended = captured(self.warm, line.split(), self.folder, self.env)
        assert ended == code, f"{line}\n{said}{complained}"
        return said if code == 0 else complained


@pytest.fixture(scope="module")
def shell(tmp_path_factory, warm):
    folder = tmp_path_factory.mktemp("added")
    shutil.copytree(EXAMPLES / "rill", folder / "rill")
    shutil.copy(EXAMPLES / "rill_gemm.py", folder / "gemm.py")
    (folder / "halves.py").write_text(PROGRAM)
    (folder / "rill" / "instr" / "bytes.py").unlink()  # that is the tutorial's addition
    made = Shell(folder, warm)
    assert "T.rill.tile.Outer " in made.ask("target add rill")
    return made


JUDGED = "--inputs random --out output --fn rel_l2 --max 1e-6"


def test_documents_of_the_folder(shell):
    listed = json.loads(shell.ask("target list --json"))["documents"]
    mine = {row["id"]: row for row in listed if row["family"] == "rill"}
    assert set(mine) == {"rill.board", "rill.r1"} and mine["rill.r1"]["place"] == "family"
    shown = json.loads(shell.ask("target show rill.board --json"))
    facts = {fact["path"]: fact.get("value") for fact in shown["facts"]}
    assert facts["memory.strip.capacity"] == 2048 and facts["rate.matrix.f32"] == 512
    assert "target-not-yours" in shell.ask("target remove rill.board", 1)
    assert "target-exists" in shell.ask("target add rill", 1)


def test_its_contracts_are_stated(shell):
    assert "T.rill.tile.Outer" in shell.ask("schedule facts --target rill.board").split()
    text = shell.ask("schedule facts T.rill.tile.Outer --target rill.board")
    assert "strip" in text and "Mesh(('core',)" in text
    assert "f32 in rmem" in shell.ask("schedule facts T.rill.vector.Relu --target rill.board")


def test_its_program_is_priced_lowered_and_built(shell):
    report = json.loads(shell.ask("analyze gemm.py --compute-cost --memory --roofline --json"))
    assert report["target"] == "rill.board"
    text = shell.ask("schedule finalize gemm.py")
    assert "T.tiled_mma" in text and 'AnyTarget("rill.board")' in text
    assert "kernel name=multiply" in shell.ask("build gemm.py -o out")
    source = (shell.folder / "out" / "run.c").read_text()
    assert source.count("static inline void rill_outer(") == 1 and "rill_outer(0, 0, 2);" in source
    shell.ask("build gemm.py --model")


@pytest.mark.parametrize("how", ["--built", "--lowered"])
def test_its_program_is_right(shell, how):
    assert "verdict=agrees" in shell.ask(f"check gemm.py {how} {JUDGED}")


def test_its_program_is_measured(shell):
    line = f"measure gemm.py --against numpy:np.maximum(a@b,0) {JUDGED} --runs 2 --processes 1"
    assert "rill.board" in shell.ask(line.replace("--inputs random ", ""))


GUARD = """
import sys
if {"tilefoundry.judge.check", "tilefoundry.judge.measure.session"} & {*sys.modules}:
    raise SystemExit("in the process that judges")
"""


@pytest.mark.parametrize(
    "line",
    [
        f"check gemm.py --built {JUDGED}",
        "measure gemm.py --out output --fn rel_l2 --max 1e-6 --target rill.board --runs 1 "
        "--processes 1",
    ],
    ids=["check", "measure"],
)
def test_its_code_is_not_in_the_process_that_judges(shell, line):
    schema = shell.folder / "rill" / "schema.py"
    text = schema.read_text()
    schema.write_text(text + GUARD)
    try:
        assert "rill.board" in shell.ask(line)
    finally:
        schema.write_text(text)


BROKEN = {
    "a strip that is not packed": ("BLOCKS = Layout(((M // 16, 16), K), ((K * 16, 1), 16))",
                                   "BLOCKS = Layout((M, K), (K, 1))", "pack it first"),
    "no core at work": (
        'with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:\n            for m',
        'with Mesh(("lane",), layout=(LANES,), names=("core",)) as cores:\n            for m',
        "mesh"),
    "another type": ('outer = T.rill.tile.Outer(dtype="f32")',
                     'outer = T.rill.tile.Outer(dtype="f16")', "f32"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_use_is_refused(shell, what):
    old, new, says = BROKEN[what]
    text = (shell.folder / "gemm.py").read_text()
    assert text.count(old) == 1
    (shell.folder / "broken.py").write_text(text.replace(old, new))
    told = shell.ask("analyze broken.py", 1)
    assert "refused [contract-unmet]" in told and says in told, told


def test_one_file_adds_an_instruction(shell):
    told = shell.ask("analyze halves.py", 1)
    assert "refused [instruction-unknown]" in told and "one of rill.tile.Outer " in told, told
    (shell.folder / "rill" / "instr" / "halves.py").write_text(HALVES)
    text = shell.ask("schedule facts T.rill.tile.OuterBf16 --target rill.board")
    assert "bf16" in text
    assert "OuterBf16" in shell.ask("schedule finalize halves.py")
    assert (
        "rill_outer_bf16(0, 0, 2);"
        in Path(re.search(r"^source (.*)$", shell.ask("build halves.py"), re.M)[1]).read_text()
    )
    for how in ("--built", "--lowered"):
        assert "verdict=agrees" in shell.ask(f"check halves.py {how} {JUDGED}")


def test_the_tutorials_have_the_files_of_the_examples():
    pages = ("65-amx.md", "70-hardware.md")
    text = "".join((PACKAGE / "tutorial" / page).read_text(encoding="utf-8") for page in pages)
    shown = dict(re.findall(r"(?ms)^```[a-z]+ file=(\S+)\n(.*?)^```$", text))
    shown["rill/instr/bytes.py"] = shown.pop("later.py")
    files = [p for p in (EXAMPLES / "rill").rglob("*") if p.suffix in (".py", ".toml", ".h")]
    files += [*EXAMPLES.glob("rill_*.py"), EXAMPLES / "projection_amx.py"]
    assert shown == {str(p.relative_to(EXAMPLES)): p.read_text() for p in files}


# What is refused of a folder


@pytest.fixture
def copy(shell, tmp_path, warm):
    shutil.copytree(shell.folder / "rill", tmp_path / "rill")
    return Shell(tmp_path, warm)


def test_a_file_that_fails_is_named_with_its_line(copy):
    (copy.folder / "rill" / "instr" / "extra.py").write_text("\n\nCONTRACTS = (no_such_name,)\n")
    told = copy.ask("target add rill", 1)
    assert re.search(r"instr/extra.py:3: refused \[target-code\].*no_such_name", told), told


@pytest.mark.parametrize("text, says", [
    ("CONTRACTS = [1]", "no tuple of contracts"),
    ("from .vector import CONTRACTS", "declared twice"),
    ("from dataclasses import replace\nfrom .tile import OUTER\n"
     "CONTRACTS = (replace(OUTER, path='x86.amx.Mine'),)", "does not begin with rill."),
])  # fmt: skip
def test_contracts_that_are_none_of_its_own(copy, text, says):
    (copy.folder / "rill" / "instr" / "wrong.py").write_text(text)
    told = copy.ask("target add rill", 1)
    assert "refused [target-code]" in told and says in told, told


def test_folders_that_are_no_family(copy):
    (copy.folder / "rill").rename(copy.folder / "cpu")
    assert "refused [target-taken]" in copy.ask("target add cpu", 1)
    (copy.folder / "cpu").rename(copy.folder / "Rill-1")
    assert "refused [target-code]" in copy.ask("target add Rill-1", 1)
    (copy.folder / "plain").mkdir()
    assert "it has no schema.py" in copy.ask("target add plain", 1)


def test_a_link_is_removed_and_the_folder_stays(copy):
    copy.ask("target add rill")
    copy.ask("target remove rill")
    assert (copy.folder / "rill" / "schema.py").is_file()
    assert "target-unknown" in copy.ask("target show rill.board", 1)


# What the package knows of hardware


def outside():
    """Files of the package that belong to no family."""
    names = [folder.name for folder in folders() if folder.place == "shipped"]
    inside = tuple(SHIPPED / name for name in names)
    return [p for p in PACKAGE.rglob("*.py") if not any(p.is_relative_to(i) for i in inside)]


def words(path):
    """The strings of a file that are no documentation."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    return {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }  # fmt: skip


def test_nothing_outside_a_family_imports_one():
    names = "|".join(folder.name for folder in folders() if folder.place == "shipped")
    found = [
        str(path.relative_to(PACKAGE)) for path in outside()
        if re.search(rf"tilefoundry\.targets\.({names})\b", path.read_text(encoding="utf-8"))
    ]  # fmt: skip
    assert found == []


def test_nothing_outside_a_family_names_its_instructions():
    shared = {c.path for c in declared("no such family")}
    own = {c.path for f in folders() if f.place == "shipped" for c in declared(f.name)} - shared
    derived = {c.path for f in folders() if f.place == "shipped" for c in declared(f.name)
               if c.meaning == "derived"}  # fmt: skip
    found = {str(p.relative_to(PACKAGE)): sorted(words(p) & (own - derived)) for p in outside()}
    assert {name: paths for name, paths in found.items() if paths} == {}
