"""What is known of a program without lowering it: the same answer, or none."""

from __future__ import annotations

import ast
import inspect
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from test_cpu_programs import FAST, loaded

from process import environment
from tilefoundry.build import build, cache, compiler, fingerprint, known
from tilefoundry.diag import Refusal, Span
from tilefoundry.emit import emit
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import Carried, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func, Module, Variant
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType
from tilefoundry.lang import encode
from tilefoundry.lang.decode import from_data
from tilefoundry.lang.encode import to_data
from tilefoundry.lang.load import Selected, load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.targets import load_target
from tilefoundry.targets.folder import user_folder

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = """\
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget, X86Target

N, SCALE = 64, 2.0


@module(entry="scaled", target=CpuTarget(), topologies=(Topology("core", 2), Topology("lane", 8)))
class Scaled:
    @func
    def scaled(x: Tensor[(N,), "f32"]) -> Tensor[(N,), "f32"]:
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                # by SCALE
                v = tf.reshard(x, ((2 @ cores.core, N // 16, 8 @ t.lane),), "rmem")
                return tf.reshard(v * SCALE, (N,), "gmem")
"""
TOO_LARGE = PROGRAM.replace("N, SCALE = 64", "N, SCALE = 4096").replace(
    "CpuTarget()", 'X86Target("x86_64.generic")'
)
"""For the registers of a core."""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of its own, and our own files as they were when the process began: in a checkout
    somebody may edit them while tests run."""
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path))
    monkeypatch.setattr(fingerprint, "ours", lambda: "ours")
    return tmp_path


def written(folder, text=PROGRAM, name="scaled.py", selector=None, **consts):
    (folder / name).write_text(text)
    return load_source(str(folder / name), selector, consts)


def key(found, options=(), model=False):
    made = known.key_of(found, options, model)
    assert made is not None
    return made


# ---- the answer


def test_the_second_is_told_and_the_same(home, monkeypatch):
    first = build(loaded("total", {}), FAST)
    monkeypatch.setattr("tilefoundry.lower.finalize.finalize", None)
    again = build(loaded("total", {}), FAST)
    assert (first.hit, again.hit) == (False, True)
    assert (first.library, first.kernels) == (again.library, again.kernels)
    for field in ("function", "target", "source", "peaks"):
        assert getattr(first, field) == getattr(again, field), field
    assert list(first.source.files) == list(again.source.files)  # the first is what is compiled


COMMAND = """
import sys
from tilefoundry.build import fingerprint
from tilefoundry.cli.main import main
fingerprint.ours = lambda: "ours"
try:
    main(sys.argv[1:])
except SystemExit as end:
    print(end.code, *sys.modules, file=sys.stderr)
"""
LOWERING = ("lower", "verify", "tir", "analyze", "plan", "interpret", "evaluate", "judge")


def test_the_command_tells_it_without_lowering(tmp_path):
    """What the first process answers, the second does, by parsing alone."""
    written(tmp_path)
    answers, modules = [], []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, "build", "scaled.py"], cwd=tmp_path,
            env=environment(TILEFOUNDRY_HOME=str(tmp_path)), capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        code, *loaded_modules = done.stderr.split()
        assert code == "0", done.stderr
        answers.append(done.stdout.splitlines())
        modules.append({*loaded_modules})
    (first, *rest), (again, *others) = answers
    assert "cache=miss" in first and "cache=hit" in again and rest == others
    assert {f"tilefoundry.{name}" for name in ("lower", "verify", "tir")} <= modules[0]
    heavy = {"torch", "numpy", "importlib.metadata", *(f"tilefoundry.{n}" for n in LOWERING)}
    assert not heavy & modules[1]
    assert not [m for m in modules[1] if m.startswith("tilefoundry.emit.c")]


def test_told_data_is_emitted_as_the_program_is(home):
    """A process that judges builds what another one parsed: by the same key, to the same source."""
    found = loaded("softmax", {})
    again = Selected("elsewhere", from_data(json.loads(json.dumps(to_data(found.module)))),
                     found.func)  # fmt: skip
    assert key(found) == key(again)
    assert emit(finalize(found)[0]) == emit(finalize(again)[0])


TOLD_IN = {"module": (Module, "m"), "func": (Func, "f"), "node": (Node, "n")}
IMPLIED = {
    "DType": {"bits", "kind", "torch"},  # one of a closed list
    "OpenDim": {"multiple", "uid"},  # nobody states one; the same name and range is the same
    "Coord": {"lo", "hi", "multiple", "uid"},  # of the axis
    "LoopVar": {"uid"},  # counts in the order of the loops
}
"""Fields that follow from those that are told."""


def test_nothing_of_a_program_is_left_out():
    """Each field of what a program consists of is read where it is told as data."""
    tree = ast.parse(inspect.getsource(encode))
    methods = {x.name: x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)}

    def read(part, name):
        return {
            x.attr for x in ast.walk(part)
            if isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == name
        }  # fmt: skip

    told = {kind: read(methods[name], by) for name, (kind, by) in TOLD_IN.items()}
    told |= {Variant: read(methods["func"], "v"), Carried: read(methods["stmt"], "c")}
    for method, by in (("stmt", "s"), ("_fields", "x")):
        for case in ast.walk(methods[method]):
            if isinstance(case, ast.match_case):
                for x in ast.walk(case.pattern):
                    if isinstance(x, ast.MatchClass):
                        kind = eval(ast.unparse(x.cls), vars(encode))
                        told[kind] = told.get(kind, set()) | read(ast.Module(case.body, []), by)
    missing = {
        kind.__name__: left
        for kind in told
        if is_dataclass(kind) and (left := {f.name for f in fields(kind)} - told[kind])
    }
    assert missing == IMPLIED
    assert {Loop, Scope, Return, Mesh, ShardLayout, TensorType, Span} <= set(told)


# ---- what decides it


def test_all_of_the_program_decides(home):
    found = written(home)
    base = key(found)
    assert key(written(home)) == base
    others = [
        key(written(home, PROGRAM.replace("SCALE = 64, 2.0", "SCALE = 64, 3.0"))),
        key(written(home, N=128)),
        key(written(home, PROGRAM.replace("v * SCALE", "SCALE * v"))),
        key(written(home, PROGRAM.replace("# by SCALE", "# by two"))),  # a line may be quoted
        key(written(home, PROGRAM.replace("v = ", "w = ").replace("v * ", "w * "))),
        key(written(home, PROGRAM.replace("class Scaled", "\nclass Scaled"))),
        key(written(home, PROGRAM.replace("CpuTarget()", 'X86Target("x86_64.generic")'))),
        key(written(home, name="other.py")),
        key(written(home), ("-O2",)),
        key(written(home), ("-O2", "-g")),
        key(written(home), model=True),
    ]
    two = PROGRAM + PROGRAM.partition("    @func\n")[2].replace("scaled", "again").join(
        ["    @func\n", ""]
    )
    others += [key(written(home, two, selector=f"Scaled.{f}")) for f in ("scaled", "again")]
    assert len({base, *others}) == 1 + len(others)


def test_facts_of_the_target_decide(home):
    """A number, of the user's own document, as it was when the program was parsed."""
    (home / "targets").mkdir()
    own = home / "targets" / "acme.box.toml"
    shipped = Path(known.__file__).parents[1] / "targets/cpu/facts/cpu.generic.toml"
    text = shipped.read_text().replace('id = "cpu.generic"', 'id = "acme.box"')
    mine = PROGRAM.replace("CpuTarget()", 'CpuTarget("acme.box")')
    keys = []
    for megabytes in (1, 2):
        stated = f'value = {megabytes << 20}\nunit = "byte"\norigin = "vendor"\nsource = "a page"'
        head, there, tail = text.partition("[facts.memory.dram.capacity]\n")
        own.write_text(head + there + stated + tail.partition("\n")[1] + tail.partition("\n")[2])
        keys.append(key(written(home, mine)))
    assert keys[0] != keys[1]
    device = load_target("acme.box").device
    told = repr(device)
    for fact in [*device.facts.values(), *device.architecture.facts.values()]:
        assert repr(fact) in told


def test_python_the_machine_and_our_files_decide(home, monkeypatch):
    found = written(home)
    keys = [key(found)]
    for place, name, value in (
        (sys, "version", "4.0"),
        (fingerprint, "ours", lambda: "another"),
        (compiler, "processor", lambda: "another"),
        (compiler, "compiler", lambda: ("/bin/sh", "another version")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            keys.append(key(found))
    for name in compiler.READS:
        with monkeypatch.context() as patch:
            patch.setenv(name, "/somewhere")
            keys.append(key(found))
    assert len({*keys}) == len(keys)


@pytest.mark.parametrize("change", ["version", "file", "variable"])
def test_the_compiler_decides_in_both_keys(home, monkeypatch, change):
    """Another version, or another file that says the same, or other options of its own."""
    script = home / "mycc"

    def ask(says, length):
        script.write_text(f"#!/bin/sh\necho {says}\n" + "#" * length)
        script.chmod(0o755)
        compiler.compiler.cache_clear()
        return key(found), cache.key_of(compiler.stated(*compiler.compiler(), compiler.READS))

    monkeypatch.setenv("CC", str(script))
    found = written(home)
    try:
        first = ask("one", 1)
        if change == "variable":
            monkeypatch.setenv("CPATH", "/somewhere")
        second = ask("two" if change == "version" else "one", 2 if change == "file" else 1)
    finally:
        compiler.compiler.cache_clear()
    assert first[0] != second[0] and first[1] != second[1]


# ---- files of code


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of a package, older than the process that asks."""
    monkeypatch.setattr(fingerprint, "BEGAN", time.time() + 60)
    made = tmp_path / "code"
    shutil.copytree(EXAMPLES / "rill", made / "rill")
    (made / "page.md").write_text("words")
    (made / "rill" / "__pycache__").mkdir()
    return made


def test_every_byte_of_a_file_counts(folder):
    digest = fingerprint.of_files(str(folder))
    assert fingerprint.of_files(str(folder)) == digest
    seen = {digest}
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".md"]
    for path in files:
        state, text = path.stat(), path.read_bytes()
        path.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))  # as long, and as old
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        seen.add(fingerprint.of_files(str(folder)))
        path.write_bytes(text)
    moved = folder / "rill" / "moved.py"
    (folder / "rill" / "schema.py").rename(moved)
    seen.add(fingerprint.of_files(str(folder)))
    moved.unlink()
    seen.add(fingerprint.of_files(str(folder)))
    assert len(seen) == 3 + len(files) > 10


def test_pages_and_bytecode_do_not_count(folder):
    digest = fingerprint.of_files(str(folder))
    (folder / "page.md").write_text("other words")
    (folder / "rill" / "__pycache__" / "schema.cpython-311.pyc").write_bytes(b"")
    assert fingerprint.of_files(str(folder)) == digest


def test_a_file_edited_since_the_process_began_is_not_told(folder, monkeypatch):
    """What was imported before the edit is executed still."""
    monkeypatch.setattr(fingerprint, "BEGAN", time.time())
    (folder / "rill" / "schema.py").touch()
    with pytest.raises(fingerprint.Untold):
        fingerprint.of_files(str(folder))
    os.utime(folder / "rill" / "schema.py", (0, 0))  # as if it were old
    with pytest.raises(fingerprint.Untold):
        fingerprint.of_files(str(folder))


def test_a_module_whose_file_is_gone_is_not_told(folder, monkeypatch):
    spec = type("Module", (), {"__file__": str(folder / "rill" / "gone.py")})
    monkeypatch.setitem(sys.modules, "gone_module", spec)
    with pytest.raises(fingerprint.Untold):
        fingerprint.of_files(str(folder))


def test_what_is_no_file_is_not_told(folder):
    (folder / "link").symlink_to(folder / "rill", target_is_directory=True)
    with pytest.raises(fingerprint.Untold):
        fingerprint.of_files(str(folder))
    (folder / "link").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(fingerprint.Untold):
        fingerprint.of_files(str(folder))


def test_a_family_that_imports_from_elsewhere_is_not_told(folder):
    family = user_folder(folder / "rill")
    assert fingerprint.of_family(family)
    for line in (
        "import numpy", "from mine.own import x", "def f():\n    import a.b as c",
        "from ... import shared", "from ...shared import x", "import importlib.util",
        "from importlib import import_module", "x = __import__('num' + 'py')",
    ):  # fmt: skip
        (folder / "rill" / "instr" / "more.py").write_text(line + "\n")
        with pytest.raises(fingerprint.Untold):
            fingerprint.of_family(family)
    (folder / "rill" / "instr" / "more.py").write_text(
        "import math\nfrom . import tile\nfrom ..schema import FAMILY\n"
    )
    assert fingerprint.of_family(family)


def test_files_of_an_added_family_decide(home, folder, monkeypatch):
    """Those of the target's, of an instruction's, and what its compiler is."""
    (home / "targets").mkdir()
    shutil.copytree(folder / "rill", home / "targets" / "rill")
    shutil.copy(EXAMPLES / "rill_gemm.py", home)
    found = load_source(str(home / "rill_gemm.py"), None, {})
    keys = [key(found)]
    for path in ("emit/program.py", "instr/vector.py", "rt/rill.h", "facts/rill.board.toml"):
        with (home / "targets" / "rill" / path).open("a") as file:
            file.write("\n")
        keys.append(key(found))
    assert len({*keys}) == len(keys)
    (home / "targets" / "rill" / "host" / "compiler.py").write_text("def compiler(): pass\n")
    assert known.key_of(found, (), False) is None  # it does not say what it is


# ---- entries


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A program, and a cache in which it is."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEFOUNDRY_HOME", str(folder))
        patch.setattr(fingerprint, "ours", lambda: "ours")
        found = written(folder)
        build(found, FAST)
    return found, folder / "cache"


@pytest.fixture
def kept(home, once):
    """A program whose entry is there: its key's file."""
    found, filled = once
    shutil.copytree(filled, home / "cache")
    path = home / "cache" / "known" / key(found, FAST)
    assert path.is_file() and known.find(path.name)
    return found, path


def _half(path):
    path.write_bytes(path.read_bytes()[:1000])


def _turned(path):
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])


def _of_another(path):
    text = path.read_text().partition("\n")[2]
    path.write_text(f"{known._digest('0' * 32, text)}\n{text}")


def _folder(path):
    path.unlink()
    path.mkdir()


def _without_library(path):
    shutil.rmtree(path.parents[1] / "build")


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "half": _half,
    "one bit": _turned,
    "no text": lambda path: path.write_bytes(b"\xff\xfe\n"),
    "another's": _of_another,
    "a folder": _folder,
    "gone": lambda path: path.unlink(),
    "no library": _without_library,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_none(kept, how):
    _, path = kept
    DAMAGE[how](path)
    assert known.find(path.name) is None


def _as_another_user(name, place, answer):
    os.setuid(65534)
    os.environ[cache.READ_ONLY] = place
    answer.put(known.find(name) is None)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_an_entry_that_this_user_may_not_read_is_none(once, mode):
    """Kept out at the folder, or at the file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copied = Path(folder) / "cache"
        shutil.copytree(once[1], copied)
        (path,) = (copied / "known").iterdir()
        path.chmod(0o600)
        path.parent.chmod(mode)
        context = multiprocessing.get_context("fork")
        answer = context.Queue()
        job = context.Process(target=_as_another_user, args=(path.name, str(copied), answer))
        job.start()
        assert answer.get(timeout=30)
        job.join()


def test_a_damaged_entry_is_made_again(kept):
    found, path = kept
    _half(path)
    assert build(found, FAST).hit  # the library is there
    assert known.find(path.name) is not None
    _without_library(path)
    assert not build(found, FAST).hit
    assert known.find(path.name) is not None


def test_what_a_killed_process_left_hinders_nobody(kept):
    found, path = kept
    aside = path.with_suffix(".0123456789abcdef.part")
    aside.write_text("half")
    os.utime(aside, (0, 0))
    path.unlink()
    build(found, FAST)
    assert known.find(path.name) is not None and not aside.exists()


def _again(name, built, home, answer):
    os.environ["TILEFOUNDRY_HOME"] = home
    for _ in range(20):
        known.keep(name, built)
        answer.put(known.find(name) is not None)


def test_many_processes_keep_one(kept):
    _, path = kept
    built = known.find(path.name)
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    given = (path.name, built, os.environ["TILEFOUNDRY_HOME"], answer)
    jobs = [context.Process(target=_again, args=given) for _ in range(4)]
    for job in jobs:
        job.start()
    assert all(answer.get(timeout=60) for _ in range(80))
    for job in jobs:
        job.join()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_cache_that_is_only_read_tells(kept, tmp_path, monkeypatch):
    found, path = kept
    monkeypatch.setenv(cache.READ_ONLY, str(cache.root()))
    monkeypatch.setenv("TILEFOUNDRY_CACHE", str(tmp_path / "own"))
    built = build(found, FAST)
    assert built.hit and built.library.is_relative_to(path.parents[1])
    assert not (tmp_path / "own").exists()


def test_a_cache_that_cannot_be_written_keeps_nothing(kept, monkeypatch):
    _, path = kept
    built = known.find(path.name)
    shutil.rmtree(path.parent)
    path.parent.write_text("a file")
    known.keep(path.name, built)
    assert known.find(path.name) is None


# ---- what is not kept


def test_a_refused_program_leaves_no_entry(home):
    found = written(home, TOO_LARGE)
    for _ in range(2):
        with pytest.raises(Refusal, match="capacity-exceeded"):
            build(found, FAST)
    assert not (home / "cache").exists()


def test_what_changed_meanwhile_is_not_kept(home, monkeypatch):
    states = iter(["before", "after"])
    monkeypatch.setattr(fingerprint, "ours", lambda: next(states))
    build(written(home), FAST)
    assert not (home / "cache" / "known").exists()


@pytest.mark.parametrize("what", ["a tuple", "an object"])
def test_a_source_that_would_come_back_otherwise_is_not_kept(home, kept, what):
    """A family may say things of its kernels in objects of its own."""
    _, path = kept
    built = known.find(path.name)
    value = (1, 2) if what == "a tuple" else object()
    built.source.kernels[0]["said"] = value
    path.unlink()
    known.keep(path.name, built)
    assert not path.exists()


def test_without_a_compiler_the_program_is_judged_first(home, monkeypatch):
    """The refusal of a program does not wait for a compiler."""
    monkeypatch.setenv("CC", "no-such-compiler")
    compiler.compiler.cache_clear()
    try:
        assert known.key_of(written(home), (), False) is None
        with pytest.raises(Refusal, match="capacity-exceeded"):
            build(written(home, TOO_LARGE))
    finally:
        compiler.compiler.cache_clear()


def test_the_process_may_be_older_than_an_edit(tmp_path):
    """Ours, as they are: told in a process that began after the last edit of any."""
    program = textwrap.dedent("""
        from tilefoundry.build import fingerprint
        try:
            print(fingerprint.ours())
            fingerprint.BEGAN = 0.0
            print(fingerprint.ours())
        except fingerprint.Untold:
            print("untold")
    """)
    done = subprocess.run([sys.executable, "-c", program], env=environment(), text=True,
                          capture_output=True, timeout=60)  # fmt: skip
    assert done.stdout.split()[-1] == "untold", done.stderr
