"""Numbers as reports write them, and back: bytes in IEC units, times, counts.

``KB`` is 1024 bytes, as in the documents of the hardware that the reports are read beside.
"""

from __future__ import annotations

import re
from fractions import Fraction

BYTE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
TIME_UNITS = (("s", Fraction(1)), ("ms", Fraction(1, 10**3)), ("us", Fraction(1, 10**6)))
TIME_UNITS += (("ns", Fraction(1, 10**9)),)
QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<unit>[a-z]*)", re.I)


def bytes_text(count: int | float | Fraction) -> str:
    """``512B``, ``208.00KB``, ``2.05MB``: exact below 1 KB, else two decimals.

    The unit is the largest that leaves at least one of it after rounding.
    """
    exact = Fraction(count)
    if exact < 0:
        return "-" + bytes_text(-exact)
    if exact < 1024:
        return f"{_trimmed(exact)}B"
    for power, unit in enumerate(BYTE_UNITS):
        hundredths = _rounded(exact * 100 / 1024**power)
        if power and (hundredths < 102400 or unit == BYTE_UNITS[-1]):
            return f"{hundredths // 100}.{hundredths % 100:02d}{unit}"
    raise AssertionError("the last unit takes any count")


def time_text(seconds: int | float | Fraction) -> str:
    """``7.68us``, ``2.19ms``, ``1.50s``: two decimals of the largest unit that is at least one.

    Times below a nanosecond keep three significant digits.
    """
    exact = Fraction(seconds)
    if exact < 0:
        return "-" + time_text(-exact)
    if exact == 0:
        return "0s"
    for unit, size in TIME_UNITS:
        hundredths = _rounded(exact * 100 / size)
        if hundredths >= 100:
            return f"{hundredths // 100}.{hundredths % 100:02d}{unit}"
    return f"{float(exact * 10**9):.3g}ns"


def count_text(count: int) -> str:
    """A count, exact and without separators, so that it can be grepped and summed."""
    return str(count)


def parse_bytes(text: str) -> int:
    """Bytes of ``512``, ``512B``, ``208.00KB`` or ``208KiB``, rounded to a whole byte.

    Raises ``ValueError`` for anything else.
    """
    number, unit = _split(text)
    unit = unit.upper().replace("IB", "B") or "B"
    if unit not in BYTE_UNITS:
        raise ValueError(f"not a size in bytes: {text!r}")
    return _rounded(number * 1024 ** BYTE_UNITS.index(unit))


def parse_time(text: str) -> float:
    """Seconds of ``7.68us``, ``2.19ms``, ``1.50s`` or ``40ns``.

    Raises ``ValueError`` for anything else.
    """
    number, unit = _split(text)
    sizes = dict(TIME_UNITS)
    if unit not in sizes:
        raise ValueError(f"not a time with unit: {text!r}")
    return float(number * sizes[unit])


def _split(text: str) -> tuple[Fraction, str]:
    found = QUANTITY.fullmatch(text.strip())
    if not found:
        raise ValueError(f"not a number with unit: {text!r}")
    return Fraction(found["number"]), found["unit"]


def _rounded(exact: Fraction) -> int:
    """Nearest integer, halves up: what a reader expects of a printed figure."""
    return (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)


def _trimmed(exact: Fraction) -> str:
    return str(exact) if exact.denominator == 1 else f"{float(exact):.2f}"
