"""doctor: one line a finding, the machine's own values masked."""

import compileall
import json
import re

NAMES = [
    "python",
    "torch",
    "C compiler",
    "processor",
    "vector units",
    "nvcc",
    "NVIDIA driver",
]


def test_lines(command):
    answer = command("doctor", TILEFOUNDRY_HOME="nowhere")
    assert (answer.code, answer.stderr) == (0, "")
    lines = [re.fullmatch(r"(.+?) {2,}(yes|no) +(.+)", s) for s in answer.stdout.splitlines()]
    assert all(lines)
    assert [line[1] for line in lines if not line[1].startswith("target ")] == NAMES
    targets = [line for line in lines if line[1].startswith("target ")]
    assert "target nvidia.h200_sxm" in [line[1] for line in targets]
    assert {(line[2], line[3]) for line in targets} == {("yes", "shipped")}


def test_json(command):
    answer = command("doctor", "--json", TILEFOUNDRY_HOME="nowhere")
    record = json.loads(answer.stdout)
    assert (record["ok"], record["exit"]) == (True, 0)
    assert [f["name"] for f in record["findings"]][: len(NAMES)] == NAMES
    assert {*record["findings"][0]} == {"name", "there", "found", "serves"}


def test_absent_compiler_and_torch(command):
    answer = command("doctor", PATH="/nonexistent", CC="no-such-cc", TILEFOUNDRY_HOME="nowhere")
    assert re.search(r"^C compiler +no +none of no-such-cc on PATH", answer.stdout, re.MULTILINE)
    assert answer.code == 0


def test_an_invalid_document_is_found(command, tmp_path):
    folder = tmp_path / "home" / "targets"
    folder.mkdir(parents=True)
    (folder / "mine.broken.toml").write_text("kind = 3\n")
    answer = command("doctor", TILEFOUNDRY_HOME=str(tmp_path / "home"))
    assert re.search(r"^target mine\.broken +no +\[target-", answer.stdout, re.MULTILINE)
    assert answer.code == 4


def test_a_torch_that_python_compiles_in_each_process_is_told(cold, tmp_path):
    folder = tmp_path / "torch"
    (tmp_path / "torch-9.9.dist-info").mkdir()
    (tmp_path / "torch-9.9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    path = {"PYTHONPATH": str(tmp_path), "TILEFOUNDRY_HOME": "nowhere"}
    (line,) = [x for x in cold("doctor", **path).stdout.splitlines() if x.startswith("torch ")]
    assert "9.9, without bytecode" in line and f"python -m compileall -q {folder}" in line
    compileall.compile_dir(folder, quiet=1)
    (line,) = [x for x in cold("doctor", **path).stdout.splitlines() if x.startswith("torch ")]
    assert "9.9" in line and "bytecode" not in line
