"""What prefetch says of a product's right operand is asked for as far ahead as it says, and in
the compiled loop step by step; where the sums go is asked for meanwhile."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from tilefoundry.build.compiler import OPTIONS, compiler
from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

PROGRAM = Path(__file__).parents[1] / "programs_cpu" / "gemm_avx512.py"


@pytest.mark.parametrize("ahead", [1, 16])
def test_each_vector_is_asked_for_once_and_as_far_ahead_as_said(ahead):
    source = emit(finalize(load_source(str(PROGRAM), None, {"AHEAD": ahead}))[0])
    text = source.files["gemm.c"]
    asked = re.findall(r"__builtin_prefetch\(((?:first|panels) .*)\);", text)
    loaded = re.findall(r"= tf_load_f32\(((?:first|panels) .*)\);", text)
    assert len(asked) == len(loaded) == 16  # four vectors in each of four loops
    for later, now in zip(asked, loaded, strict=True):
        assert offset(later) - offset(now) == ahead * 64  # a step is a panel's row of 64


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 assembly")
def test_a_step_asks_for_its_own_vectors_only(tmp_path):
    """A core has about a dozen requests under way: those of eight steps at once would wait."""
    source = emit(finalize(load_source(str(PROGRAM), None, {}))[0])
    for name, text in source.files.items():
        (tmp_path / name).write_text(text)
    options = [x for x in OPTIONS if x != "-shared"]
    said = [compiler()[0], *options, *source.flags, "-S", "-o", "gemm.s", "gemm.c"]
    subprocess.run(said, cwd=tmp_path, check=True)
    text = (tmp_path / "gemm.s").read_text()
    seen = re.findall(r"^\t(vfmadd|prefetch)", text, re.M)
    word = "".join("f" if x == "vfmadd" else "p" for x in seen)
    assert word.count("p") >= 4 * 4 * 8  # four vectors, four loops, eight steps written out
    assert "ppppp" not in word


@pytest.mark.parametrize("depth", [384, 259])
def test_each_line_that_sums_are_stored_to_is_asked_for_once_while_they_are_made(depth):
    source = emit(
        finalize(load_source(str(PROGRAM), None, {"KC": depth, "K": 2 * depth, "N": 128}))[0]
    )
    text = source.files["gemm.c"]
    tables = list(re.finditer(r"const void \*const (into\w*)\[(\d+)\] = \{(.*)\};", text))
    assert tables
    for table in tables:
        name, count, lines = table[1], int(table[2]), table[3].split(", ")
        stored = re.findall(r"tf_store_f32\((out .*?), ", text[table.end() :])[:count]
        assert lines == stored and len(set(lines)) == count
        turns = re.search(r"for \(long (\w+) = 0; \1 < (\d+); \1\+\+\)", text[table.end() :])
        assert turns and int(turns[2]) == depth // 16
        every = re.findall(rf"__builtin_prefetch\({name}\[(.*?)\], 1\);", text)
        places = [eval(p, {turns[1]: t}) for t in range(int(turns[2])) for p in every]
        assert sorted(p for p in places if p < count) == list(range(count))
        assert len(places) == count or f"< {count}) __builtin_prefetch({name}[" in text


def test_none_is_asked_for_where_sums_and_operands_take_all_registers():
    """14 rows of two vectors, two of B and one of A are 31 of 32: some would go to memory."""
    sizes = {"M": 28, "N": 64, "K": 512, "KC": 512, "MR": 14, "NR": 32}
    source = emit(finalize(load_source(str(PROGRAM), None, sizes))[0])
    assert "void *const into" not in source.files["gemm.c"]
    least = emit(finalize(load_source(str(PROGRAM), None, {**sizes, "MR": 13, "M": 26}))[0])
    assert "void *const into" in least.files["gemm.c"]


def offset(place: str) -> int:
    """The sum of the constant terms."""
    return sum(int(n) for n in re.findall(r" \+ (\d+)(?= \+|$)", place))
