"""What a build refuses, and with which words."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from test_cpu_programs import FAST, PROGRAMS, loaded

from tilefoundry.build import build, build_program, compiler, machine
from tilefoundry.build.call import Compiled
from tilefoundry.build.export import export
from tilefoundry.diag import Refusal
from tilefoundry.emit import emit, registry
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.targets.folder import find_folder


def refused(code, call):
    with pytest.raises(Refusal) as caught:
        call()
    (diag,) = caught.value.diags
    assert diag.code == code
    return diag


def test_a_family_without_emitter(monkeypatch):
    monkeypatch.setattr("tilefoundry.emit.find_folder", lambda family: None)
    diag = refused("emit-target", lambda: emit(lower(loaded("chain", {}).module)))
    assert diag.fields["family"] == "cpu"


def test_an_instruction_without_emission(monkeypatch):
    known = {k: v for k, v in registry.emitters(find_folder("cpu")).items() if k != "binary"}
    monkeypatch.setattr(registry, "emitters", lambda folder: known)
    diag = refused("emit-instruction", lambda: emit(lower(loaded("chain", {}).module)))
    assert diag.fields["name"] == "T.binary"
    assert diag.span is not None and diag.span.line == 28


LAID_OUT = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

COLUMNS = Layout((8, 8), (1, 8))


@module(entry="run", target=CpuTarget(), topologies=(Topology("core", 1), Topology("lane", 8)))
class LaidOut:
    @func
    def run(x: Tensor[(8, 8), "f32", GIVEN]) -> Tensor[(8, 8), "f32", MADE]:
        out = tf.empty(Tensor[(8, 8), "f32", MADE])
        with Mesh(("core",), layout=(1,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                out = tf.insert_slice(out, x[0:8, 0:8], (0, 0))
        return out
"""


@pytest.mark.parametrize("given, made", [("COLUMNS", "None"), ("None", "COLUMNS")])
def test_what_callers_give_and_take_is_row_major(tmp_path, given, made):
    text = LAID_OUT.replace("GIVEN", given).replace("MADE", made).replace(", None]", "]")
    (tmp_path / "laid.py").write_text(text)
    module = load_source(str(tmp_path / "laid.py"), None, {}).module
    diag = refused("emit-form", lambda: emit(lower(module)))
    assert "row-major" in diag.fields["why"]


def test_what_registers_cannot_hold_is_refused():
    refused("capacity-exceeded", lambda: build(loaded("chain", {"VECS": 32})))


def test_tiles_that_die_before_others_live_have_places_of_their_own():
    """Rings of 6 x 32 KiB and terms of 64 KiB: 192 KiB are alive at once, 256 KiB are placed."""
    path = "examples/gpu/splitk_cluster.py"
    given = load_source(path, None, {"STAGES": 6})
    diag = refused("capacity-exceeded", lambda: build(given))
    assert diag.fields["needs"].startswith("256.") and "room:64.00KB" in diag.fields["values"]


@pytest.fixture
def fresh():
    compiler.compiler.cache_clear()
    yield
    compiler.compiler.cache_clear()


def test_without_a_compiler(monkeypatch, fresh):
    monkeypatch.setenv("CC", "no-such-compiler")
    diag = refused("build-compiler", lambda: build(loaded("chain", {}), FAST))
    assert diag.fields["wanted"] == "no-such-compiler"


def test_a_compiler_that_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path))
    diag = refused("build-compile", lambda: build(loaded("chain", {}), ("-no-such-option",)))
    assert "no-such-option" in " ".join(diag.notes)


def test_a_machine_that_lacks_a_capability(monkeypatch):
    monkeypatch.setattr(machine, "features", lambda: frozenset(["x86_64", "avx"]))
    built = build(loaded("chain", {}), FAST)
    diag = refused("build-machine", lambda: Compiled(built))
    assert diag.fields["lacks"] == "avx2 fma f16c"


def test_cores_that_wait_without_threads():
    built = build(loaded("total", {}), FAST)
    kernel = Compiled(built)
    kernel._entry = lambda *given: 1  # what the entry answers where OpenMP gives too few
    diag = refused("build-threads", lambda: kernel(torch.zeros(5003)))
    assert diag.fields["cores"] == 2


def test_lines_lead_back_to_the_author():
    source = emit(lower(loaded("chain", {}).module))
    lines = source.files["chain.c"].splitlines()
    path = PROGRAMS / "chain.py"
    at = next(n for n, text in enumerate(lines) if "tf_load_part_f16" in text)
    told = next(x for x in reversed(lines[:at]) if x.startswith("#line"))
    _, number, file = told.split(" ", 2)
    author = path.read_text().splitlines()[int(number) - 1]
    assert file == f'"{path}"' and author.strip().startswith("v = tf.reshard(padded")


def test_the_same_program_is_the_same_source():
    one, two = (emit(lower(loaded("rmsnorm", {}).module)) for _ in range(2))
    assert one == two


def test_an_unknown_processor_is_not_judged(monkeypatch):
    monkeypatch.setattr(machine, "features", lambda: None)
    assert machine.missing(("avx512f",)) == ()


def test_two_kernels_pass_values_through_the_workspace(tmp_path):
    path = tmp_path / "two.py"
    path.write_text("""
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="both", target=CpuTarget(), topologies=(Topology("core", 2), Topology("lane", 4)))
class Two:
    @func
    def squares(x: Tensor[(16,), "f32"]) -> (Tensor[(16,), "f32"], Tensor[(16,), "f32"]):
        with Mesh(("core",), layout=(2,), names=("c",)) as cores:
            with Mesh(("lane",), layout=(4,), names=("l",)) as t:
                r = tf.reshard(x, (2 @ cores.c, 2, 4 @ t.l), "rmem")
                return tf.reshard(r * r, (16,), "gmem"), tf.reshard(-r, (16,), "gmem")

    @func
    def turned(x: Tensor[(16,), "f32"], y: Tensor[(16,), "f32"]) -> Tensor[(16,), "f32"]:
        with Mesh(("core",), layout=(2,), names=("c",)) as cores:
            with Mesh(("lane",), layout=(4,), names=("l",)) as t:
                a = tf.reshard(x, (2 @ cores.c, 2, 4 @ t.l), "rmem")
                b = tf.reshard(y, (2 @ cores.c, 2, 4 @ t.l), "rmem")
                return tf.reshard(a + b, (16,), "gmem")

    @func
    def both(x: Tensor[(16,), "f32"]) -> Tensor[(16,), "f32"]:
        a, b = squares(x)
        c, d = squares(a)
        return turned(c, b)
""")
    built = build_program(lower(load_source(str(path), None, {}).module), FAST)
    assert built.source.workspace == 4 * 64
    x = torch.randn(16)
    assert torch.equal(Compiled(built)(x), (x * x) * (x * x) - x)
    assert [k["kernel"] for k in built.source.kernels] == ["squares", "turned"]
    assert SimpleNamespace(**built.source.kernels[0]).cores == 2


def test_names_that_mean_something_in_c(tmp_path):
    path = tmp_path / "names.py"
    path.write_text("""
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget(), topologies=(Topology("core", 2), Topology("lane", 4)))
class Names:
    @func
    def f(double: Tensor[(8,), "f32"], work: Tensor[(8,), "f32"], é: Tensor[(8,), "f32"]):
        with Mesh(("core",), layout=(2,), names=("register",)) as cores:
            with Mesh(("lane",), layout=(4,), names=("exp",)) as lanes:
                tf_exp_f32 = tf.reshard(double, (2 @ cores.register, 4 @ lanes.exp), "rmem")
                NAN = tf.reshard(work, (2 @ cores.register, 4 @ lanes.exp), "rmem")
                _x = tf.reshard(é, (2 @ cores.register, 4 @ lanes.exp), "rmem")
                all = tf.exp(tf_exp_f32) + NAN * _x
                return tf.reshard(all, (8,), "gmem")
""")
    built = build(load_source(str(path), None, {}), FAST)
    x, y, z = torch.randn(3, 8)
    torch.testing.assert_close(Compiled(built)(x, y, z), torch.exp(x) + y * z)
    header = next(f for f in export(built, str(tmp_path / "out")) if f.name == "f.h")
    assert "const float *double_2, const float *work_2, const float *value" in header.read_text()


def test_an_export_replaces_only_exports(tmp_path):
    """``build -o .`` in the folder of the program, whose names its files may have."""
    built = build(loaded("chain", {}), FAST)
    library = next(f.name for f in export(built, str(tmp_path / "new")) if f.suffix == ".so")
    export(built, str(tmp_path / "new"))
    for name in ("chain.py", "chain.c", "chain.h", library):
        folder = tmp_path / f"with_{name}"
        folder.mkdir()
        (folder / name).write_bytes(b"the author's own")
        diag = refused("export-kept", lambda folder=folder: export(built, str(folder)))
        assert str(folder / name) in diag.says
        assert [(f.name, f.read_bytes()) for f in folder.iterdir()] == [(name, b"the author's own")]


def test_a_program_named_like_the_runtime_is_not_replaced(tmp_path):
    path = tmp_path / "tf_own.py"
    path.write_text("""
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="tf_own", target=CpuTarget(), topologies=(Topology("core", 2), Topology("lane", 4)))
class Own:
    @func
    def tf_own(x: Tensor[(8,), "f32"]):
        with Mesh(("core",), layout=(2,), names=("c",)) as cores:
            with Mesh(("lane",), layout=(4,), names=("l",)) as lanes:
                a = tf.reshard(x, (2 @ cores.c, 4 @ lanes.l), "rmem")
                return tf.reshard(a * a, (8,), "gmem")
""")
    before = path.read_bytes()
    built = build(load_source(str(path), None, {}), FAST)
    assert str(path) in refused("export-kept", lambda: export(built, str(tmp_path))).says
    assert path.read_bytes() == before
    export(built, str(tmp_path / "new"))
    (tmp_path / "new" / "tf_c.h").write_text("of another version")
    export(built, str(tmp_path / "new"))  # the runtime's own headers are replaced
    assert "TF_LANES" in (tmp_path / "new" / "tf_c.h").read_text()


def test_a_loader_of_parameters_called_as_its_own_words(tmp_path):
    path = tmp_path / "words.py"
    path.write_text("""
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

X = Tensor[(8,), "f32"]


@module(entry="os", target=CpuTarget(), topologies=(Topology("core", 2), Topology("lane", 4)))
class Words:
    @func
    def os(torch: X, work: X, start: X, threads: X, answer: X) -> X:
        with Mesh(("core",), layout=(2,), names=("c",)) as cores:
            with Mesh(("lane",), layout=(4,), names=("l",)) as lanes:
                a, b, c, d, e = (
                    tf.reshard(v, (2 @ cores.c, 4 @ lanes.l), "rmem")
                    for v in (torch, work, start, threads, answer)
                )
                return tf.reshard(a - b * c + d * e, (8,), "gmem")
""")
    export(build(load_source(str(path), None, {}), FAST), str(tmp_path / "out"))
    script = (
        "import torch, os as kernel\n"
        "a, b, c, d, e = torch.randint(-9, 9, (5, 8)).float()\n"
        "made = kernel.os_2(a, b, c, d, answer_2=e, threads=1)\n"
        "assert torch.equal(made, a - b * c + d * e)\n"
    ).replace("os as kernel", "importlib.util as u; s = u.spec_from_file_location('k', 'os.py'); "
              "kernel = u.module_from_spec(s); s.loader.exec_module(kernel)")  # fmt: skip
    subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path / "out", check=True)
