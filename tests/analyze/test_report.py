"""Reports: golden texts, one record for text and JSON, the author's lines, exit codes."""

import json
from pathlib import Path

import pytest

from tilefoundry.cli.output import plain

CASES = Path(__file__).parents[1] / "cases"
ALL = ("compute-cost", "memory", "roofline")


@pytest.mark.parametrize(
    "name",
    ["chain_too_big", "chain_two_cuts", "chain_plain", "gemm_grid", "gemm_optimal", "open_rows"],
)
def test_all_families(name, case, golden):
    report = case(name).report(*ALL)
    golden(f"{name}.txt", report.text() + f"[exit {report.exit}]\n")


@pytest.mark.parametrize("name", ["chain_two_cuts", "gemm_optimal", "open_rows"])
def test_types(name, case, golden):
    golden(f"{name}.types.txt", case(name).report().text())


@pytest.mark.parametrize("name", ["chain_two_cuts", "gemm_optimal"])
def test_the_authors_lines_are_unchanged(name, case):
    report = case(name).report(*ALL)
    shown = [line for line in report.text().splitlines() if not line.startswith("#")]
    source = Path(case(name).path).read_text(encoding="utf-8")
    assert "\n".join(shown) in source


def test_json_carries_what_the_text_says(case):
    report = case("gemm_grid").report(*ALL)
    record = json.loads(json.dumps(plain(report.record())))
    text = report.text()
    for line in record["head"]:
        for key, value in line.items():
            if isinstance(value, str) and key not in ("family", "reason"):
                assert value in text
    rows = record["listing"]
    assert [row["source"] for row in rows] == [
        line for line in text.splitlines() if not line.startswith("#")
    ]
    facts = sum(len(row["facts"]) for row in rows)
    assert facts == sum(line.startswith("#   ") for line in text.splitlines())
    peak = next(x for x in record["head"] if x["family"] == "peak" and x["storage"] == "rmem")
    assert peak["peak"] == 262144  # bytes, as a number


def test_the_order_is_stable(case):
    first = case("gemm_optimal").report(*ALL).text()
    assert all(case("gemm_optimal").report(*ALL).text() == first for _ in range(2))


def test_no_line_is_too_long_to_read(case):
    for name in ("gemm_optimal", "chain_two_cuts"):
        facts = [x for x in case(name).report(*ALL).text().splitlines() if x.startswith("#")]
        assert max(map(len, facts)) < 200


def test_too_big_is_refused_with_the_amounts(case):
    report = case("chain_too_big").report("memory")
    assert report.exit == 1
    (diag,) = report.findings
    assert diag.code == "capacity-exceeded"
    assert "256.00KB" in diag.text()
    assert "2.00MB" in diag.text()
    assert diag.span.line == 12


def test_topology_asks_for_one_level(case):
    report = case("gemm_optimal").report("compute-cost", "memory", topology="thread")
    lines = [line.record() for line in report.head]
    assert {x["storage"] for x in lines if x["family"] == "peak"} == {"rmem"}
    (matrix,) = [x for x in lines if x.get("kind") == "matrix.bf16"]
    assert (matrix["per_unit"], matrix["unit"]) == (33 * 335544320 // 256, "thread")


def test_command(command, case):
    """Cold: text to a file, refusal on stderr, exit code 1; JSON on stdout."""
    path = str(CASES / "chain_too_big.py")
    answer = command("analyze", f"{path}:Placed.chain", "report.txt", "--memory")
    assert (answer.code, answer.stdout) == (1, "")
    assert "refused [capacity-exceeded]" in answer.stderr
    answer = command("analyze", f"{path}:Placed.chain", "--memory", "--json")
    record = json.loads(answer.stdout)
    assert (answer.code, record["exit"], record["ok"]) == (1, 1, False)
    assert record["findings"][0]["code"] == "capacity-exceeded"
    assert answer.stderr == ""


@pytest.mark.parametrize(
    "args, code, word",
    [
        (("--performance",), 3, "analysis-performance"),
        (("--memory", "--topology", "lane"), 2, "analysis-level-unknown"),
        (("--memory", "--dim", "N=0"), 1, "analysis-dim-range"),
        (("--memory", "--dim", "Q=1"), 2, "analysis-dim-unknown"),
        (("--memory", "--dim", "N=1,2"), 2, "option-malformed"),
        (("--roofline",), 3, "undecided"),
        (("--roofline", "--dim", "N=64"), 0, ""),
        (("--compute-cost",), 0, ""),
        (("--compute-cost", "--const", "D=32"), 0, ""),
    ],
)
def test_answers_of_the_command(command, args, code, word):
    answer = command("analyze", str(CASES / "open_rows.py"), *args)
    assert answer.code == code, answer.stderr
    assert word in answer.stderr


def test_constants_reduce_the_size(command):
    path = str(CASES / "gemm_grid.py")
    answer = command("analyze", path, "--compute-cost", "--const", "M=256", "--const", "N=512")
    # 2 * 256 * 512 * 5120 = 1342177280
    assert "kind=matrix.bf16 logical=1342177280" in answer.stdout
