"""Quantities: the figures of the documents, rounding, and reading back."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilefoundry.quantity import BYTE_UNITS, bytes_text, parse_bytes, parse_time, time_text


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.00KB"),
        (212992, "208.00KB"),  # 208 * 1024
        (131072, "128.00KB"),
        (2 * 1024**2, "2.00MB"),
        (1048575, "1.00MB"),  # 1023.999 KB
        (1048570, "1023.99KB"),  # 1023.994...
        (150754820096, "140.40GB"),  # 140.4014...
        (-2048, "-2.00KB"),
        (Fraction(1, 2), "0.50B"),
    ],
)
def test_bytes(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0s"),
        (Fraction(768, 10**8), "7.68us"),
        (Fraction(219, 10**5), "2.19ms"),
        (1.5, "1.50s"),
        (Fraction(999996, 10**9), "1.00ms"),  # 999.996 us
        (Fraction(40, 10**9), "40.00ns"),
        (Fraction(1, 10**10), "0.1ns"),
        (90, "90.00s"),
    ],
)
def test_times(seconds, text):
    assert time_text(seconds) == text


@given(st.integers(0, 10**15))
@settings(max_examples=200)
def test_bytes_read_back_within_the_printed_decimals(count):
    text = bytes_text(count)
    unit = 1024 ** BYTE_UNITS.index(text.lstrip("0123456789."))
    assert abs(parse_bytes(text) - count) * 200 <= unit + 200


@pytest.mark.parametrize(
    "text, count", [("512", 512), ("512B", 512), ("208.00KB", 212992), ("2 MiB", 2097152)]
)
def test_read_bytes(text, count):
    assert parse_bytes(text) == count


def test_read_times():
    assert parse_time("7.68us") == pytest.approx(7.68e-6)
    assert parse_time("2s") == 2.0


@pytest.mark.parametrize("text", ["", "KB", "3XB", "-1KB", "1.2.3KB"])
def test_unreadable_bytes(text):
    with pytest.raises(ValueError):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "3", "3KB", "us"])
def test_unreadable_times(text):
    with pytest.raises(ValueError):
        parse_time(text)
