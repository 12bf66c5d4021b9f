"""A measurement carried out again: what must be the same, and how far times may differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilefoundry.judge.measure.report import NOISY
from tilefoundry.quantity import time_text

Hold = Callable[..., None]
SAME = ("function", "candidate", "against", "device", "threads", "reference", "predicates")
"""What a report says that must be so again."""


def hold_measured(hold: Hold, reported: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Tell ``hold`` (what, reported, found, whether it counts) what is compared.

    Hashes of sources, inputs, weights, and of a kernel's artefacts must be equal, as must what
    the floor counts. Times lie within the quartiles of both, what the clocks leave room for, and
    a tenth: the ratio to the rival where there is one, else the times themselves; where either
    report calls itself too noisy, and the times of each side beside a ratio, they are told only.
    """
    for key in SAME:
        hold(key, reported[key], found[key])
    for key in ("sources", "weights"):
        for name in sorted({*reported[key], *found[key]}):
            hold(f"{key} {name}", reported[key].get(name), found[key].get(name))
    for name in sorted({*reported["artefacts"], *found["artefacts"]}):
        was, now = reported["artefacts"].get(name), found["artefacts"].get(name)
        hold(f"artefact {name}", was, now, reported["candidate"] == "kernel")
    for name in sorted({*reported["versions"], *found["versions"]}):
        hold(f"versions {name}", reported["versions"].get(name), found["versions"].get(name), False)
    for data in sorted({*reported["floor"], *found["floor"]}):
        was, now = (_bounds(report["floor"].get(data, {})) for report in (reported, found))
        hold(f"floor {data}", was, now)
    tensors = [{f"{t['name']} {t['origin']}": t["sha256"] for t in report["tensors"]}
               for report in (reported, found)]  # fmt: skip
    for name in sorted({*tensors[0], *tensors[1]}):
        hold(f"input {name}", tensors[0].get(name), tensors[1].get(name))
    _hold_times(hold, reported, found)


def _bounds(floor: Mapping[str, Any]) -> list[str]:
    return sorted(f"{b['resource']}={b['amount']}" for b in floor.get("bounds", ()))


def _hold_times(hold: Hold, reported: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    noisy = {*reported["noise"], *found["noise"]}
    rival = bool(reported["ratio"])
    for data, was in reported["ratio"].items():
        now = found["ratio"].get(data, {"median": 0.0, "low": 0.0, "high": 0.0})
        far = _apart(was, now, 0.0)
        hold(f"ratio {data}", *_told(was, now, far, "{:.3f}".format), data not in noisy)
    for before, after in zip(reported["sides"], found["sides"], strict=True):
        for data, was in before["data"].items():
            now = after["data"][data]
            room = max(_room(side, data) for side in (before, after))
            far = _apart(was, now, room)
            counts = not rival and data not in noisy
            hold(f"time {before['who']} {data}", *_told(was, now, far, time_text), counts)


def _room(side: Mapping[str, Any], data: str) -> float:
    """Seconds a call that the clocks leave open."""
    clocks = side["clocks"][data]
    calls = max(1.0, float(clocks["calls"]))
    return float(clocks["room"]) / calls


def _apart(was: Mapping[str, float], now: Mapping[str, float], room: float) -> bool:
    """Whether quartiles lie apart by more than the room and a part of the larger median."""
    gap = max(was["low"] - now["high"], now["low"] - was["high"])
    return gap > room + NOISY * max(was["median"], now["median"])


def _told(
    was: Mapping[str, float], now: Mapping[str, float], far: bool, spell: Callable[[float], str]
) -> tuple[str, str]:
    """Two medians as they are told: the same word where they may be the same."""
    if not far:
        return "within noise", "within noise"
    return spell(was["median"]), spell(now["median"])
