"""The program that cheats and honest twins claim to implement, and how one is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from judge.shared import Bench
from tilefoundry.diag import Refusal
from tilefoundry.judge.check import check
from tilefoundry.judge.request import FileInput, Judged, Request
from tilefoundry.judge.stated import Predicate

PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

N = DimVar("n", 1, 64)


@module(entry="f", target=CpuTarget("x86_64.generic"))
class Program:
    @func
    def f(x: Tensor[(N, 8), "f32"], y: Tensor[(N, 8), "f32"]):
        return x * y + x

    @func
    def two(x: Tensor[(N, 8), "f32"]):
        return x + x, tf.reduce(x, axes=(1,), keepdim=False, kind="max")

    @func
    def weighted(x: Tensor[(N, 8), "f32"], w: ConstTensor[(8, 4), "f32"]):
        return tf.matmul(x, w)

    @func
    def picked(table: Tensor[(50, 8), "f32"], at: Tensor[(N,), "i64"]):
        return tf.index_select(table, at, 0)

    @func
    def product(a: Tensor[(32, 64), "f32"], b: Tensor[(64, 32), "f32"]):
        return tf.matmul(a, b)

    @func
    def best(x: Tensor[(16, 8), "f32"]):
        return tf.argmax(x, axis=1)

    @func
    def halves(x: Tensor[(16, 8), "f32"]):
        return x + x, tf.slice(x + x, (0, 0), (8, 8))
"""
HONEST = {
    "f": ("x, y", "return x * y + x"),
    "two": ("x", "return x + x, x.amax(1)"),
    "weighted": ("x, w", "return x @ w"),
    "picked": ("table, at", "return table[at]"),
    "product": ("a, b", "return a @ b"),
    "best": ("x", "return x.argmax(1)"),
    "halves": ("x", "return x + x, (x + x)[:8].clone()"),
}
HEAD = """
import ctypes, gc, glob, os, subprocess, sys, tempfile, threading, time

import torch
from program import Program

from tilefoundry.runtime import runtime_func, runtime_module
"""
EQUAL = (Predicate("equal"),)
CLOSE = (Predicate("rel_l2", {"max": 1e-5}), Predicate("max_abs", {"max": 1e-4}))
AGREES, DISAGREES, DIED = "agrees", "disagrees", "check-candidate-died"


@dataclass(frozen=True)
class Twin:
    """A twin and what the judge must say of it.

    ``body`` is that of the function ``func``, ``head`` stands before the class, ``init`` is the
    body of its ``__init__``, ``mark`` what ``runtime_func`` declares. ``alone``: it may harm the
    process it is in, so that no other twin may share it.
    """

    name: str
    body: str
    verdict: str | tuple[str, ...]
    func: str = "f"
    head: str = ""
    init: str = ""
    mark: str = ""
    predicates: Sequence[Predicate] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    alone: bool = False

    @property
    def verdicts(self) -> tuple[str, ...]:
        return (self.verdict,) if isinstance(self.verdict, str) else self.verdict

    @property
    def honest(self) -> bool:
        return self.verdicts == (AGREES,)

    def write(self, folder: Path) -> Path:
        """The twin's file, beside the program that it implements."""
        lines = [HEAD, self.head, "", "@runtime_module(Program)", "class Twin:"]
        if self.init:
            lines += ["    def __init__(self):", *_indented(self.init), ""]
        for name, (takes, body) in HONEST.items():
            mine = name == self.func
            lines += [f"    @runtime_func{f'({self.mark})' if mine and self.mark else ''}",
                      f"    def {name}(self, {takes}):",
                      *_indented(self.body if mine else body), ""]  # fmt: skip
        path = folder / f"{self.name}.py"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    def request(self, folder: Path) -> Request:
        """The check of this twin, on random inputs unless it says otherwise."""
        path = self.write(folder)
        given = dict(self.options)
        files = given.pop("files", None)
        if files is not None:
            given["files"] = [FileInput(None, str(folder / f)) for f in files]
        if "expected" in given:
            given["expected"] = [str(folder / f) for f in given["expected"]]
        elif files is None and self.func in ("f", "two", "weighted", "picked"):
            given.setdefault("dims", {"n": [64 if self.func == "picked" else 16]})
        if self.func == "weighted":
            given.setdefault("weights", "random")
        usual = CLOSE if self.func in ("weighted", "product") else EQUAL
        outs = [Judged("*", tuple(self.predicates or usual))]
        given.setdefault("seconds", 120.0)
        return Request(str(path), f"Twin.{self.func}", outs, **given)


def _indented(body: str) -> list[str]:
    return [f"        {line}" for line in body.strip("\n").splitlines()]


def write_program(folder: Path) -> None:
    """The program, and files of inputs with what it makes of them."""
    import torch

    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    torch.manual_seed(0)
    x, y = torch.randn(16, 8), torch.randn(16, 8)
    for name, value in (("x", x), ("y", y), ("expected", x * y + x), ("copy", x * y + x)):
        torch.save(value, folder / f"{name}.pt")


def judged(twin: Twin, folder: Path, bench: Bench | None = None) -> str:
    """The verdict on a twin, or the code by which it is refused; in processes of its own where
    there is no bench, or the twin may harm it."""
    request = twin.request(folder)
    try:
        report = check(request) if bench is None or twin.alone else bench.check(request)
    except Refusal as refusal:
        return refusal.diags[0].code
    return AGREES if report.agrees else DISAGREES
