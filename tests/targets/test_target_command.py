"""``target list|show|add|remove``: transcripts, JSON, and a user folder never half written."""

import json
import os

import pytest
from target_box import BOX, spoiled


@pytest.fixture
def target(command, tmp_path):
    (tmp_path / "box.toml").write_text(BOX)
    home = tmp_path / "home"

    def run(*args):
        return command("target", *args, TILEFOUNDRY_HOME=str(home))

    run.folder = tmp_path
    run.kept = lambda: sorted(p.name for p in home.glob("targets/*"))
    return run


def test_add_show_remove(target):
    answer = target("add", "box.toml")
    assert answer.code == 0, answer
    assert answer.stdout.startswith("added acme.box (device, family cpu)\n  file: ")
    assert target.kept() == ["acme.box.toml"]
    assert (target.folder / "home/targets/acme.box.toml").read_text() == BOX

    lines = target("show", "acme.box").stdout.splitlines()
    assert lines[0] == (
        '# target id=acme.box kind=device family=cpu name="Acme Box, four cores"'
        " architecture=x86_64.avx2"
    )
    assert "# levels core > lane; core runs on: core" in lines
    assert "# storage name=gmem level=- pool=- memory=dram" in lines
    assert (
        "fact clock.boost value=3200000000.0 unit=Hz origin=measured"
        ' source="a loop of dependent additions" conditions="one core busy"'
        " low=3100000000.0 high=3300000000.0 document=acme.box"
    ) in lines
    assert (
        'fact memory.dram.capacity unit=byte unavailable="sold in several sizes" document=acme.box'
    ) in lines

    listed = target("list").stdout
    assert "acme.box         device        cpu        user     Acme Box, four cores" in listed

    assert target("remove", "acme.box").stdout.startswith("removed acme.box\n")
    assert target.kept() == []
    answer = target("show", "acme.box")
    assert answer.code == 1 and "refused [target-unknown]" in answer.stderr


def test_replace_only_when_told(target):
    assert target("add", "box.toml").code == 0
    (target.folder / "new.toml").write_text(spoiled("value = 4\n", "value = 8\n"))
    answer = target("add", "new.toml")
    assert answer.code == 1 and "refused [target-exists]" in answer.stderr
    assert (target.folder / "home/targets/acme.box.toml").read_text() == BOX
    assert target("add", "new.toml", "--replace").stdout.startswith("replaced acme.box")
    assert "value=8 unit=processor" in target("show", "acme.box").stdout


def test_a_refused_document_leaves_nothing(target):
    (target.folder / "bad.toml").write_text(spoiled('"Hz"', '"MHz"'))
    answer = target("add", "bad.toml")
    assert answer.code == 1
    assert answer.stderr.startswith("bad.toml:21: refused [target-unit] ")
    assert answer.stdout == "" and target.kept() == []


def test_a_shipped_id_is_taken_and_stays(target):
    (target.folder / "mine.toml").write_text(spoiled("acme.box", "nvidia.h200_sxm"))
    answer = target("add", "mine.toml", "--replace")
    assert answer.code == 1 and "refused [target-taken]" in answer.stderr
    answer = target("remove", "nvidia.h200_sxm")
    assert answer.code == 1 and "refused [target-not-yours]" in answer.stderr


def test_files_that_cannot_be_read(target):
    for name, content in (
        ("latin.toml", b"name = '\xe9'"),
        ("big", b"#" * 2**21),
    ):
        (target.folder / name).write_bytes(content)
        answer = target("add", name)
        assert answer.code == 2 and "refused [target-unreadable]" in answer.stderr, name
    assert target("add", "missing.toml").code == 2


def test_a_folder_that_cannot_be_written(target):
    (target.folder / "home").write_text("a file stands here")
    answer = target("add", "box.toml")
    assert answer.code == 4 and "refused [output-unwritable]" in answer.stderr


def test_one_broken_document_hides_no_other(target):
    os.makedirs(target.folder / "home/targets")
    (target.folder / "home/targets/acme.bad.toml").write_text("?")
    answer = target("list")
    assert answer.code == 0
    row = next(line for line in answer.stdout.splitlines() if line.startswith("acme.bad"))
    assert row.endswith("refused: target-syntax")
    assert "nvidia.h200_sxm" in answer.stdout


def test_json(target):
    added = json.loads(target("add", "box.toml", "--json").stdout)
    assert (added["id"], added["kind"], added["replaced"], added["ok"]) == (
        "acme.box",
        "device",
        False,
        True,
    )
    shown = json.loads(target("show", "nvidia.h200_sxm", "--json").stdout)
    facts = {fact["path"]: fact for fact in shown["facts"]}
    assert facts["memory.hbm.bandwidth"]["value"] == 4800000000000
    assert facts["latency.wgmma"]["unavailable"]
    assert shown["levels"] == ["gpu", "cluster", "cta", "thread"]
    assert shown["architecture"] == "nvidia.sm90"
    listed = json.loads(target("list", "--json").stdout)
    assert "acme.box" in [row["id"] for row in listed["documents"]]
    answer = target("remove", "no.such", "--json")
    assert answer.code == 1
    assert json.loads(answer.stdout)["diagnostics"][0]["code"] == "target-unknown"


def test_show_into_a_file(target):
    assert target("show", "nvidia.sm90", "sm90.txt").stdout == ""
    text = (target.folder / "sm90.txt").read_text()
    assert "fact memory.shared.capacity value=232448 unit=byte origin=vendor" in text


def test_show_and_list_do_not_change(target, golden):
    golden("list.txt", target("list").stdout)
    golden("epyc.txt", target("show", "amd.epyc_avx2").stdout)
