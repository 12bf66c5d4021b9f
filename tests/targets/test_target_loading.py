"""Finding documents by id: shipped, the user's own, a package's; the authors' records."""

import os
import subprocess
import sys

import pytest
from target_box import BOX, spoiled

from process import environment
from tilefoundry.diag import Refusal, Span
from tilefoundry.target import AmxTarget, AnyTarget, CpuTarget, CudaTarget, X86Target, record_of
from tilefoundry.targets import folder, load, load_architecture, load_target
from tilefoundry.targets.load import documents, find_document

SPAN = Span("chain.py", 7)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "targets"
    folder.mkdir(parents=True)
    return folder


def refused(code, call):
    with pytest.raises(Refusal) as caught:
        call()
    (diag,) = caught.value.diags
    assert diag.code == code
    return diag


def test_an_unknown_id_names_the_nearest():
    diag = refused("target-unknown", lambda: load_target("nvidia.h200", SPAN))
    assert diag.span == SPAN
    assert "nvidia.h200_sxm" in diag.fix
    for id in ("", ".", "../nvidia.sm90", "nvidia/sm90", "a\0.b", "x." + "y" * 5000, "NVIDIA.SM90"):
        refused("target-unknown", lambda id=id: load_target(id))


def test_an_architecture_is_not_a_device():
    refused("target-kind", lambda: load_target("nvidia.sm90"))
    refused("target-kind", lambda: load_architecture("nvidia.h200_sxm"))
    assert refused("target-kind", lambda: CudaTarget("nvidia.sm90").load(SPAN)).span == SPAN


def test_a_target_is_read_once():
    assert load_target("nvidia.h200_sxm") is load_target("nvidia.h200_sxm")


def test_a_fact_that_no_document_states():
    target = load_target("nvidia.h200_sxm")
    diag = refused("target-fact-absent", lambda: target.fact("memory.hbm.bandwith"))
    assert "memory.hbm.bandwidth" in diag.fix
    assert target.stated("memory.hbm.bandwith") is None


# ---- records


def test_records_are_values():
    assert CudaTarget("nvidia.h200_sxm") == CudaTarget("nvidia.h200_sxm")
    assert CudaTarget("a.b") != CpuTarget("a.b")
    assert len({X86Target(), X86Target("x86_64.generic"), CpuTarget()}) == 2
    assert repr(CudaTarget("nvidia.h200_sxm")) == 'CudaTarget("nvidia.h200_sxm")'
    assert CudaTarget("nvidia.h200_sxm").family == "cuda"


@pytest.mark.parametrize(
    "record",
    [
        CudaTarget("nvidia.h200_sxm"),
        CpuTarget(),
        CpuTarget("amd.epyc_avx2"),
        CpuTarget(id="intel.xeon_amx"),
        X86Target(),
        X86Target("intel.xeon_amx"),
        AmxTarget("apple.m2_pro"),
        AnyTarget("apple.m2_pro"),
    ],
)
def test_a_record_loads(record):
    assert record.load().id == record.id


@pytest.mark.parametrize(
    "record",
    [
        CudaTarget("intel.xeon_amx"),
        CpuTarget("nvidia.h200_sxm"),
        AmxTarget("intel.xeon_amx"),
        X86Target("apple.m2_pro"),
        X86Target("cpu.generic"),
    ],
)
def test_a_record_of_another_family(record):
    diag = refused("target-family", lambda: record.load(SPAN))
    assert diag.span == SPAN and record.id in diag.text()


def test_a_record_reads_nothing_until_loaded():
    program = (
        "import sys; from tilefoundry.target import CudaTarget; t = CudaTarget('no.such');"
        "bad = {'tomllib', 'tilefoundry.targets.load', 'importlib.metadata', 'msgspec', 'torch',"
        " 'numpy'} & set(sys.modules); assert not bad, bad;"
        "CudaTarget('nvidia.h200_sxm').load();"
        "bad = {'importlib.metadata', 'msgspec', 'torch', 'numpy'} & set(sys.modules);"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert done.returncode == 0


# ---- the user's own


def test_a_user_document(home):
    (home / "acme.box.toml").write_text(BOX)
    assert find_document("acme.box").place == "user"
    assert X86Target("acme.box").load().processor.count.value == 4
    assert "acme.box" in [found.id for found in documents()]


def test_a_changed_document_is_read_again(home):
    path = home / "acme.box.toml"
    path.write_text(BOX)
    before = load_target("acme.box")
    path.write_text(spoiled("value = 4\n", "value = 48\n"))
    os.utime(path, ns=(1, 1))
    assert load_target("acme.box").processor.count.value == 48
    assert before.processor.count.value == 4


def test_a_changed_architecture_reaches_its_devices(home):
    avx2 = (load.SHIPPED / "cpu/facts/x86_64.avx2.toml").read_text()
    mine = avx2.replace('"x86_64.avx2"', '"acme.cores"')
    (home / "acme.cores.toml").write_text(mine)
    (home / "acme.box.toml").write_text(spoiled("x86_64.avx2", "acme.cores"))
    assert "fma" in load_target("acme.box").capabilities
    (home / "acme.cores.toml").write_text(mine.replace('    "fma",\n', ""))
    os.utime(home / "acme.cores.toml", ns=(1, 1))
    assert "fma" not in load_target("acme.box").capabilities
    (home / "acme.cores.toml").unlink()
    refused("target-architecture", lambda: load_target("acme.box"))


def test_a_file_under_another_name(home):
    (home / "acme.crate.toml").write_text(BOX)
    diag = refused("target-misfiled", lambda: load_target("acme.crate"))
    assert "acme.box" in diag.text()


def test_own_documents_change_nothing_else(home):
    sm90 = (load.SHIPPED / "cuda/facts/nvidia.sm90.toml").read_text()
    (home / "nvidia.sm90.toml").write_text(sm90.replace("232_448", "999_999"))
    (home / "acme.broken.toml").write_text("not TOML")
    (home / "acme.folder.toml").mkdir()
    load._read_once.cache_clear()
    assert load_target("nvidia.h200_sxm").storages["smem"].capacity.value == 232448
    refused("target-syntax", lambda: load_target("acme.broken"))
    refused("target-unreadable", lambda: load_target("acme.folder"))


def test_the_folder(monkeypatch, tmp_path):
    assert load.home() == tmp_path / "home" / "targets"
    monkeypatch.delenv("TILEFOUNDRY_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load.home() == tmp_path / ".tilefoundry" / "targets"


# ---- a package's


@pytest.fixture
def package(tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "acme_targets-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-targets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tilefoundry.targets]\nnpu = acme_npu\ngone = no_such_package.inner\n"
    )
    facts = site / "acme_npu" / "facts"
    facts.mkdir(parents=True)
    (site / "acme_npu" / "__init__.py").write_text("raise RuntimeError('imported too early')\n")
    (facts / "acme.npu.toml").write_text(BOX.replace('"acme.box"', '"acme.npu"'))
    monkeypatch.syspath_prepend(str(site))
    return site / "acme_npu"


def test_a_package_adds_documents(package):
    assert find_document("acme.npu").place == "package"
    assert load_target("acme.npu").processor.count.value == 4


def test_a_package_adds_a_family(package):
    (package / "__init__.py").write_text("")
    (package / "schema.py").write_text(
        "from tilefoundry.targets.fact import Entry, Family\n"
        "FAMILY = Family('npu', ('dram', 'l3', 'l2', 'l1', 'register', 'tile'),"
        " (Entry('vector.width', 'bit', required=True),))\n"
    )
    avx2 = (load.SHIPPED / "cpu/facts/x86_64.avx2.toml").read_text()
    family = avx2.replace("tilefoundry.cpu.", "tilefoundry.npu.")
    (package / "facts" / "acme.grid.toml").write_text(family.replace("x86_64.avx2", "acme.grid"))
    device = BOX.replace("cpu.device", "npu.device").replace("x86_64.avx2", "acme.grid")
    (package / "facts" / "acme.npu2.toml").write_text(device.replace("acme.box", "acme.npu2"))
    target = AnyTarget("acme.npu2").load()
    assert target.family == "npu"
    assert target.max_units("lane").value == 32


def test_packages_are_asked_last(package, monkeypatch, home):
    def fail():
        raise AssertionError("a package was consulted")

    (home / "acme.box.toml").write_text(BOX)
    monkeypatch.setattr(folder, "entry_points", fail)
    load_target("nvidia.h200_sxm")
    load_target("acme.box")
    with pytest.raises(AssertionError):
        load_target("acme.npu")


@pytest.mark.parametrize(
    ("id", "record"),
    [
        ("nvidia.h200_sxm", CudaTarget),
        ("cpu.generic", CpuTarget),
        ("x86_64.generic", X86Target),
        ("amd.epyc_avx512", X86Target),
        ("amd.epyc_zen4", X86Target),
        ("apple.m2_pro", AmxTarget),
    ],
)
def test_a_target_is_named_by_the_narrowest_record(id, record):
    named = record_of(load_target(id))
    assert named == record(id)
    assert named.load() is load_target(id)
