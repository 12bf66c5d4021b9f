"""``target probe``: from the program's lines and the system's files to a valid document."""

import os
import subprocess
from dataclasses import replace

import pytest

from tilefoundry.build import compiler
from tilefoundry.build.machine import features
from tilefoundry.diag import Refusal
from tilefoundry.targets.cpu.host import probe
from tilefoundry.targets.cpu.host.probe import Cache, Machine, Probe, Sample
from tilefoundry.targets.document import read_document
from tilefoundry.targets.load import architecture_of, family_of
from tilefoundry.targets.target import Target

KB, MB = 1 << 10, 1 << 20
LINES = """\
clock core 1 3.9e9
clock core 1 4e9
clock core 1 3.5e9
clock core 2 3.8e9
fma f32 1 1e11
fma f32 2 1.9e11
fma f64 2 1e11
dot bf16 2 3e11
tile bf16 2 9e11
read dram 1 2e10
read dram 2 1.8e10
copy dram 2 2.2e10
move dram 2 2.5e10
read l1 2 9e11
copy l1 2 8e11
move l1 2 7e11
a line of another program
"""


def machine(**caches):
    found = {int(name[1:]): cache for name, cache in caches.items()}
    return Machine('Acme "Nine" 3\\4', (4, 5), found, 1 << 34, "x86_64.avx2")


@pytest.fixture
def measured():
    here = machine(l1=Cache(1, 32 * KB, 64, 1), l2=Cache(2, MB, 64, 1))
    return Probe(here, probe.samples(LINES), "cc 12.2", 3, "2026-11-30")


def test_samples(measured):
    first = measured.samples[0]
    assert first == Sample("clock", "core", 1, (3.9e9, 4e9, 3.5e9))
    assert (first.best, first.low, first.unit) == (4e9, 3.7e9, "Hz")
    assert measured.most(("dot", "tile"), "bf16").best == 9e11
    assert measured.most(("read", "copy", "move"), "dram").kind == "move"
    assert measured.most(("read",), "dram").threads == 1
    assert measured.most(("read",), "l3") is None


def test_the_document_is_valid_and_says_how_it_was_measured(measured):
    text = probe.document("my.box", measured)
    device = read_document(text, "box.toml", family_of, architecture_of)
    facts = Target(device)
    assert device.name == 'Acme "Nine" 3\\4, 2 processors'
    assert facts.clock().value == facts.fact("clock.boost").value == 4e9
    assert (facts.fact("clock.boost").low, facts.fact("clock.boost").high) == (3.7e9, 4e9)
    assert facts.fact("clock.sustained").value == 3.8e9
    assert facts.bandwidth("gmem").value == facts.copy_bandwidth("gmem").value == 2.5e10
    assert facts.bandwidth("l1").value == 9e11 and facts.copy_bandwidth("l1").value == 8e11
    assert facts.flops_rate("vector", "f32").value == 1.9e11
    assert facts.flops_rate("matrix", "bf16").value == 9e11
    assert facts.processor.count.value == 2
    assert "larger" in facts.fact("memory.l2.bandwidth").unavailable
    assert not facts.fact("memory.l3.capacity").known
    for fact in device.facts.values():
        assert not fact.known or (fact.origin, "2026-11-30" in fact.conditions) == (
            "measured",
            True,
        )


def test_a_figure_that_is_missing_is_unavailable(measured):
    bare = replace(measured, samples=())
    device = read_document(probe.document("my.box", bare), "b", family_of, architecture_of)
    assert not device.facts["clock.boost"].known
    assert not device.facts["memory.dram.bandwidth"].known
    assert device.facts["memory.dram.capacity"].value == 1 << 34


@pytest.mark.parametrize(
    ("caches", "wanted"),
    [
        # within its cache, and at least twice the one before
        ({"l1": Cache(1, 32 * KB, 64, 1), "l2": Cache(2, MB, 64, 1)},
         {"l1": 16 * KB, "l2": MB // 2}),
        ({"l1": Cache(1, 32 * KB, 64, 1), "l2": Cache(2, 96 * KB, 64, 1)},
         {"l1": 16 * KB, "l2": 64 * KB}),
        # a share of 1 MB of the last cache is no larger than what lies before it
        ({"l2": Cache(2, MB, 64, 1), "l3": Cache(3, 2 * MB, 64, 2)}, {"l2": MB // 2}),
        ({"l3": Cache(3, 512 * MB, 64, 2)}, {"l3": 128 * MB}),
        ({}, {}),
    ],
)  # fmt: skip
def test_sizes(caches, wanted):
    found = probe.sizes(machine(**caches))
    dram = found.pop("dram")
    assert found == wanted
    last = max((c.capacity for c in caches.values()), default=0)
    assert dram == max(128 * MB, 2 * last)  # of each of two threads: four times the last cache


def test_caches_as_the_system_lists_them(tmp_path):
    rows = [("Data", 1, "48K", "0"), ("Instruction", 1, "32K", "0"), ("Unified", 3, "32M", "0-1,4")]
    for n, values in enumerate(rows):
        index = tmp_path / "cpu0" / "cache" / f"index{n}"
        index.mkdir(parents=True)
        names = ("type", "level", "size", "shared_cpu_list")
        for name, value in zip(names, values, strict=True):
            (index / name).write_text(f"{value}\n")
        (index / "coherency_line_size").write_text("64\n")
    assert probe.caches(0, tmp_path) == {
        1: Cache(1, 48 * KB, 64, 1),
        3: Cache(3, 32 * MB, 64, 3),
    }
    assert probe.caches(1, tmp_path) == {}


@pytest.fixture
def compilers(tmp_path, monkeypatch):
    """``cc`` is a script, and the cache is empty."""
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path / "home"))

    def use(body):
        script = tmp_path / "cc"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        monkeypatch.setenv("CC", str(script))
        compiler.compiler.cache_clear()

    yield use
    compiler.compiler.cache_clear()


def refused():
    with pytest.raises(Refusal) as caught:
        probe.probe(1)
    return [d.code for d in caught.value.diags]


MADE = 'case "$*" in *--version*) echo cc 1;; *) printf "#!/bin/sh\\n%s\\n" "{}" > tf_probe;'
MADE += " chmod +x tf_probe;; esac"


def test_the_program_measures_what_this_processor_has():
    """Every figure of the real program, with memories of two sizes that fit its caches."""
    path, version = compiler.compiler()
    made = probe._compiled(path, version)
    words = ["0", "1", "l1", "1", str(16 * KB), "dram", "0", str(MB)]
    done = subprocess.run([str(made), *words], capture_output=True, text=True, check=True)
    found = {(s.kind, s.name): s.best for s in probe.samples(done.stdout)}
    assert len(found) == len(done.stdout.splitlines())
    kinds = {("clock", "core"), ("fma", "f32"), ("fma", "f64")}
    kinds |= {(k, m) for m in ("l1", "dram") for k in ("read", "copy", "move")}
    assert kinds | {("pages", "dram")} <= found.keys() and ("pages", "l1") not in found
    has = features() or set()
    for kind, name, feature in [
        ("stream", "dram", "sse2"), ("dot", "bf16", "avx512_bf16"), ("dot", "i8", "avx512_vnni"),
        ("tile", "bf16", "amx_bf16"), ("tile", "i8", "amx_int8"),
    ]:  # fmt: skip
        assert (kind, name) not in found or feature in has, (kind, name)
    assert (("stream", "dram") in found) == ("sse2" in has) and ("stream", "l1") not in found
    # no processor multiplies or moves slower than this, or faster
    assert 1e8 < found["clock", "core"] < 1e10 and all(1e7 < v < 1e15 for v in found.values())


def test_the_best_copy_is_the_bandwidth_and_says_which(measured):
    more = probe.samples("stream dram 2 4e10\npages dram 2 3e10\n")
    text = probe.document("my.box", replace(measured, samples=(*measured.samples, *more)))
    facts = Target(read_document(text, "box.toml", family_of, architecture_of))
    assert facts.bandwidth("gmem").value == facts.copy_bandwidth("gmem").value == 4e10
    assert "past the caches" in facts.fact("memory.dram.copy_bandwidth").conditions


def test_a_program_that_fails(compilers):
    compilers(MADE.format("exit 3"))
    assert refused() == ["probe-failed"]


def test_a_program_whose_lines_are_read(compilers):
    compilers(MADE.format("echo clock core 1 2e9; echo fma f32 1 7e9"))
    found = probe.probe(1)
    assert [s.name for s in found.samples] == ["core", "f32"]
    assert found.machine.cpus and found.compiler == "cc 1"


def test_a_compiler_that_fails(compilers):
    compilers('case "$*" in *--version*) echo cc 1;; *) echo "error: no" >&2; exit 1;; esac')
    assert refused() == ["build-compile"]


def test_no_compiler(compilers, monkeypatch):
    monkeypatch.setenv("CC", os.devnull)
    compiler.compiler.cache_clear()
    assert refused() == ["build-compiler"]
