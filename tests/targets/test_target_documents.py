"""Wrong documents are refused with code, line and key; none loads silently."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from target_box import BOX, spoiled

from tilefoundry.diag import Refusal
from tilefoundry.targets import Device
from tilefoundry.targets.document import read_document
from tilefoundry.targets.load import (
    SHIPPED,
    architecture_of,
    family_of,
    load_architecture,
)


def read(text):
    return read_document(text, "box.toml", family_of, architecture_of)


def refusals(text):
    with pytest.raises(Refusal) as caught:
        read(text)
    return caught.value.diags


SM90 = (SHIPPED / "cuda/facts/nvidia.sm90.toml").read_text(encoding="utf-8")


def stating(path):
    """The device with a further fact, which starts at line 13."""
    fact = f'[facts.{path}]\nunavailable = "none"\n\n[facts.processors.count]'
    return spoiled("[facts.processors.count]", fact)


def without(path):
    """The architecture without one of its facts."""
    return re.sub(rf"\[facts\.{re.escape(path)}\]\n(.+\n)+", "", SM90)


# Code, line (0: any), part of "found" or of what is said; the document that is wrong.
WRONG = [
    ("target-syntax", 15, "Invalid value", "\n" + spoiled("value = 4\n", "value = four\n")),
    ("target-syntax", 1, "nested too deeply", "a = " + "[" * 5000),
    ("target-missing", 1, "spec is missing", "a = 1\n"),
    (
        "target-missing",
        1,
        "spec.schema is missing",
        spoiled('schema = "tilefoundry.cpu.device/v3"\n', ""),
    ),
    ("target-schema", 2, "device/v2", spoiled("/v3", "/v2")),
    ("target-schema", 2, "tilefoundry.tpu.device/v3", spoiled("cpu.device", "tpu.device")),
    ("target-schema", 2, "cpu.architecture", spoiled("cpu.device/", "cpu.architecture/")),
    ("target-value", 3, "gadget", spoiled('kind = "device"', 'kind = "gadget"')),
    ("target-id", 4, "../box", spoiled("acme.box", "../box")),
    ("target-id", 4, "box", spoiled("acme.box", "box")),
    ("target-value", 5, '""', spoiled('"Acme Box, four cores"', '""')),
    ("target-value", 5, "7", spoiled('"Acme Box, four cores"', "7")),
    ("target-key", 6, "spec.maker", spoiled('four cores"\n', 'four cores"\nmaker = "Acme"\n')),
    ("target-key", 43, "topology", BOX + '\n[topology]\nlevels = ["core"]\n'),
    ("target-architecture", 8, "there is none", spoiled("x86_64.avx2", "x86_64.none")),
    ("target-architecture", 8, "family cuda", spoiled("x86_64.avx2", "nvidia.sm90")),
    ("target-architecture", 8, "there is none", spoiled("x86_64.avx2", "cpu.generic")),
    ("target-value", 8, "a list of names", spoiled('["x86_64.avx2"]', "[]")),
    (
        "target-missing",
        7,
        "compatibility.architectures",
        spoiled('architectures = ["x86_64.avx2"]\n', ""),
    ),
    ("target-missing", 10, "storages.gmem is missing", spoiled('gmem = "dram"\n', "")),
    ("target-value", 11, "hbm", spoiled('gmem = "dram"', 'gmem = "hbm"')),
    ("target-key", 12, "storages.smem", spoiled('gmem = "dram"\n', 'gmem = "dram"\nsmem = "l1"\n')),
    ("target-missing", 13, "facts.processors.count.value", spoiled("value = 4\n", "")),
    ("target-missing", 13, "facts.processors.count.unit", spoiled('unit = "processor"\n', "")),
    (
        "target-missing",
        31,
        "facts.memory.dram.bandwidth.source",
        spoiled('source = "data sheet"\nexplanation', "explanation"),
    ),
    ("target-value", 14, "true", spoiled("value = 4\n", "value = true\n")),
    ("target-value", 14, "4.5", spoiled("value = 4\n", "value = 4.5\n")),
    ("target-value", 14, "-4", spoiled("value = 4\n", "value = -4\n")),
    ("target-value", 14, '"4"', spoiled("value = 4\n", 'value = "4"\n')),
    ("target-value", 20, "nan", spoiled("value = 3.2e9", "value = nan")),
    ("target-value", 20, "inf", spoiled("value = 3.2e9", "value = inf")),
    ("target-value", 25, "low 3250000000.0", spoiled("low = 3.1e9", "low = 3.25e9")),
    ("target-missing", 19, "facts.clock.boost.low", spoiled("low = 3.1e9\n", "")),
    (
        "target-missing",
        19,
        "facts.clock.boost.conditions",
        spoiled('conditions = "one core busy"\n', ""),
    ),
    ("target-unit", 21, "MHz", spoiled('"Hz"', '"MHz"')),
    ("target-origin", 22, "guessed", spoiled('"measured"', '"guessed"')),
    (
        "target-unexplained",
        31,
        "is derived",
        spoiled('explanation = "two channels x 8 B x 3.2e9 transfers/s"\n', ""),
    ),
    (
        "target-key",
        30,
        "facts.memory.dram.capacity.value",
        spoiled('sizes"\n', 'sizes"\nvalue = 3\n'),
    ),
    ("target-value", 29, '""', spoiled("sold in several sizes", "")),
    ("target-fact-unread", 42, "dram.bandwith", BOX + 'dram.bandwith.unavailable = "none"\n'),
    ("target-fact-unread", 13, "memory.hbm", stating("memory.hbm.capacity")),
    ("target-fact-unread", 13, "rate.fma.f32", stating("rate.fma.f32")),
    ("target-fact-unread", 13, "facts.clock.base", stating('"clock.base"')),
    (
        "target-missing",
        38,
        "facts.memory.l2.capacity",
        spoiled('l2.capacity.unavailable = "not published"\n', ""),
    ),
    (
        "target-value",
        40,
        "a table of a fact",
        spoiled('l2.capacity.unavailable = "not published"', "l2.capacity = 524288"),
    ),
    # Architecture documents
    (
        "target-value",
        15,
        "core",
        SM90.replace('processor_level = "cta"', 'processor_level = "core"'),
    ),
    (
        "target-missing",
        10,
        "topology.levels",
        SM90.replace('levels = ["gpu", "cluster", "cta", "thread"]\n', ""),
    ),
    ("target-value", 12, "grid", SM90.replace('optional = ["cluster"]', 'optional = ["grid"]')),
    ("target-value", 0, "tape", SM90.replace('memory = "shared"', 'memory = "tape"')),
    ("target-value", 0, "everybody", SM90.replace('scope = "device"', 'scope = "everybody"')),
    ("target-missing", 0, "storages.smem.memory", SM90.replace('memory = "shared"\n', "")),
    ("target-missing", 0, "facts.resident.thread", without("resident.thread")),
    ("target-missing", 0, "facts.units.thread.per.cta", without("units.thread.per.cta")),
    (
        "target-fact-unread",
        0,
        "facts.processors.count",
        SM90 + '\n[facts.processors.count]\nunavailable = "x"\n',
    ),
]


@pytest.mark.parametrize(("code", "line", "words", "text"), WRONG)
def test_wrong_document(code, line, words, text):
    found = refusals(text)
    assert code in {diag.code for diag in found}, "\n".join(d.text() for d in found)
    mine = [diag for diag in found if diag.code == code and words in diag.text()]
    assert mine, "\n".join(d.text() for d in found)
    for diag in mine:
        assert diag.span.file == "box.toml"
        assert diag.fix
        assert not line or diag.span.line == line


def test_the_document_itself_is_right():
    box = read(BOX)
    assert isinstance(box, Device)
    assert box.facts["clock.boost"].low == 3.1e9
    assert box.facts["memory.dram.capacity"].unavailable == "sold in several sizes"


def test_independent_faults_are_collected_in_order_of_line():
    text = BOX.replace("value = 4\n", "value = 0\n").replace('"Hz"', '"MHz"')
    found = refusals(text.replace('"derived"', '"guessed"'))
    assert [(d.code, d.span.line) for d in found] == [
        ("target-value", 14),
        ("target-unit", 21),
        ("target-origin", 34),
    ]


def test_a_refusal_reads_well():
    (diag,) = refusals(spoiled('"Hz"', '"MHz"'))
    assert diag.text() == (
        "box.toml:21: refused [target-unit] facts.clock.boost.unit is not the unit of this fact\n"
        "  expected: Hz\n"
        "  found:    MHz\n"
        '  fix:      convert the value and write `unit = "Hz"`'
    )


# ---- no mutation of a shipped document's facts loads silently

TEXTS = {p.stem: p.read_text(encoding="utf-8") for p in sorted(SHIPPED.glob("*/facts/*.toml"))}
ASSIGNED = re.compile(r"(\w+) = (.+)")
BAD_VALUES = ("true", '"4"', "-1", "0", "nan", "-inf", "[4]", "{ a = 1 }", "2026-01-01")


def spots(text):
    """Indices of the lines of facts and spec that state a key, with their tables."""
    table = ""
    for at, line in enumerate(text.splitlines()):
        if line.startswith("["):
            table = line.strip("[]")
        elif ASSIGNED.fullmatch(line) and (table == "spec" or table.startswith("facts.")):
            yield at, table


@st.composite
def mutations(draw):
    text = TEXTS[draw(st.sampled_from(sorted(TEXTS)))]
    lines = text.splitlines()
    at, table = draw(st.sampled_from(list(spots(text))))
    key, value = ASSIGNED.fullmatch(lines[at]).groups()
    ways = ["rename", "empty"]
    block = "\n".join(lines[max(at - 8, 0) : at + 1])
    measured = 'origin = "measured"' in block[block.rfind("\n[") :]
    explained = key == "explanation"
    if key not in ("conditions", "explanation") or (key == "conditions" and measured) or explained:
        ways.append("delete")
    if key in ("value", "low", "high"):
        ways.append("bad value")
    if key in ("unit", "origin", "schema", "kind"):
        ways.append("other word")
    if table.startswith("facts.") and not table.startswith("facts.achieved"):
        ways.append("other path")
    way = draw(st.sampled_from(ways))
    if way == "rename":
        lines[at] = f"{key}x = {value}"
    elif way == "empty":
        lines[at] = f'{key} = " "'
    elif way == "delete":
        del lines[at]
    elif way == "bad value":
        lines[at] = f"{key} = {draw(st.sampled_from(BAD_VALUES))}"
    elif way == "other word":
        lines[at] = f"{key} = {value[:-1]}s" + '"'
    else:
        lines[lines.index(f"[{table}]")] = f"[{table}x]"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["of_2x", "of_0", "of_02", "of_", "2", "of_-2"])
def test_groups_of_processors_are_named_by_a_number(name):
    text = TEXTS["nvidia.h200_sxm"]
    assert "[facts.processors.grouped.cluster.of_2]" in text
    text = text.replace("grouped.cluster.of_2]", f"grouped.cluster.{name}]")
    assert [d.code for d in refusals(text)] == ["target-fact-unread"]


@settings(max_examples=300, deadline=None)
@given(mutations())
def test_a_mutated_document_is_refused(text):
    for diag in refusals(text):
        assert diag.code.startswith("target-")
        assert diag.text()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_text_is_read_or_refused(data):
    """Characters removed, doubled or replaced anywhere: no other exception, ever."""
    text = data.draw(st.sampled_from([BOX, SM90]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(st.sampled_from(["", text[at] * 2, '"', "[", "=", "\n", "\0", "é", "."]))
        text = text[:at] + new + text[at + 1 :]
    try:
        read(text)
    except Refusal as refusal:
        assert str(refusal)


def test_units_hold_across_documents():
    """A path has one unit wherever it is stated."""
    units = {}
    for id in ("nvidia.sm90", "cpu.plain", "x86_64.avx2", "x86_64.amx", "apple.amx2"):
        for path, fact in load_architecture(id).facts.items():
            assert units.setdefault(path, fact.unit) == fact.unit
