"""explain: all codes, and the nearest of one that there isn't."""

import json

from tilefoundry.diag import codes, page


def test_all_codes(command):
    listed = [line.split(maxsplit=1) for line in command("explain").stdout.splitlines()]
    assert listed == [[code, page(code).says] for code in codes()]
    record = json.loads(command("explain", "--json").stdout)
    assert [entry["code"] for entry in record["codes"]] == list(codes())


def test_a_code_nearly_named(command):
    answer = command("explain", "shard-indivisable")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.stderr.startswith(
        "refused [unknown-code] there is no diagnostic `shard-indivisable`\n"
    )
    assert "  fix:      nearest: shard-indivisible" in answer.stderr


def test_nothing_near_as_json(command):
    answer = command("explain", "0000", "--json")
    assert (answer.code, answer.stderr) == (2, "")
    (record,) = json.loads(answer.stdout)["diagnostics"]
    assert record["code"] == "unknown-code"
    assert record["fix"] == "nearest: none; `tilefoundry explain` lists all"


def test_a_page_into_a_file(command, tmp_path):
    whole = command("explain", "usage").stdout
    assert command("explain", "page.txt", "usage").code == 2  # the code comes first
    assert command("explain", "usage", "page.txt").stdout == ""
    assert (tmp_path / "page.txt").read_text() == whole
