"""Whether two computations agree, by the predicates that you state."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import (
    Source,
    const_option,
    dim_option,
    json_option,
    out_argument,
    source_argument,
)
from tilefoundry.diag import ACCEPTED, REFUSED, refuse
from tilefoundry.judge.stated import PARAMETERS, Predicate

if TYPE_CHECKING:
    from tilefoundry.judge.request import FileInput, Judged

ORDERED = ("--out", "--fn", "--atol", "--rtol", "--max", "--min")
SECONDS = 300
"""Wall time of each process unless --timeout gives another."""


class Ordered(click.Command):
    """Keeps the order of ``--out``, ``--fn`` and bounds: each belongs to what stands before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        written: list[tuple[str, str]] = []
        for at, word in enumerate(args):
            name, equals, value = word.partition("=")
            if name in ORDERED and (equals or at + 1 < len(args)):
                written.append((name, value if equals else args[at + 1]))
        ctx.meta["ordered"] = written
        return super().parse_args(ctx, args)


def kept(name: str, metavar: str, help: str) -> Any:
    """An option whose values are taken in order by :class:`Ordered`."""
    return click.option(
        name, f"kept_{name[2:]}", metavar=metavar, help=help, multiple=True, expose_value=False
    )


@click.command(
    "check",
    cls=Ordered,
    epilog=epilog(
        (
            "tilefoundry check chain.py:Placed.chain --inputs files:x.pt --expected expected.pt "
            "--out output --fn equal",
            "tilefoundry check twin.py:Twin --inputs random --out output --fn rel_l2 --max 2e-3 "
            "--fn max_abs --max 0.05",
            "tilefoundry check gemm.py --lowered --const M=256 --const N=256 --inputs random "
            "--out output --fn rel_l2 --max 1e-2",
            "tilefoundry check softmax.py --built --inputs random --out output --fn rel_l2 "
            "--max 4e-3",
            "tilefoundry check twin.py:Twin --inputs random --dim ctx=1,37 --weights ckpt:model "
            "--out 'output[0]' --fn ulp --max 1 --out 'output[1]' --fn equal",
        ),
        {
            0: "they agree",
            1: "they disagree, or the check was refused",
            3: "undecided: the evaluator does not cover the program",
            4: "torch or the device is not there",
            5: "a process ran out of time",
        },
    ),
)
@source_argument
@out_argument("[REPORT]")
@click.option("--inputs", required=True, metavar="random|files:A,B",
              help="Where inputs are from: drawn anew, or files in the order of the parameters "
                   "(or NAME=FILE): .pt, .safetensors, .npy.")  # fmt: skip
@click.option("--weights", metavar="random|ckpt:DIR", help="Where weights are from.")
@click.option("--expected", multiple=True, metavar="FILE[,FILE]",
              help="What the outputs must be, one file each. Without it a twin is compared with "
                   "its HIR; the HIR itself needs it.")  # fmt: skip
@click.option("--lowered", is_flag=True,
              help="The candidate is SOURCE itself, lowered to TIR and executed unit by unit; "
                   "every access is held to the derived synchronisation.")  # fmt: skip
@click.option("--built", is_flag=True,
              help="The candidate is the kernel that `build` makes of SOURCE, run here on --device."
              )  # fmt: skip
@click.option("--model", is_flag=True,
              help="With --built: matrix instructions by their models in portable C, so that the "
                   "kernel runs on a machine that lacks them.")  # fmt: skip
@click.option("--no-libraries", "libraries", flag_value=False, default=True,
              help="A twin may not compute by calling libraries: the kernel is to be its own."
              )  # fmt: skip
@click.option("--views", is_flag=True,
              help="Inputs are also views: not aligned, with gaps between rows and elements, "
                   "transposed.")  # fmt: skip
@click.option("--only-dims", "only", is_flag=True,
              help="No extents but those of --dim: none next to them.")  # fmt: skip
@click.option("--reference-report", "verified", metavar="REPORT",
              help="The --json report of the check of the HIR itself against --expected."
              )  # fmt: skip
@kept("--out", "OUTPUT", "The output that the next --fn judge: output, output[i] or '*'.")
@kept("--fn", "NAME", "A predicate on that output: " + " ".join(PARAMETERS) + ".")
@kept("--atol", "X", "Bound of the preceding allclose: |got - expected| <= atol + rtol*|expected|")
@kept("--rtol", "X", "The other bound of the preceding allclose.")
@kept("--max", "X", "Bound of the preceding rel_l2, max_abs, max_rel or ulp.")
@kept("--min", "X", "Bound of the preceding cosine.")
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda[:N]",
              help="Where both computations run.")  # fmt: skip
@dim_option
@const_option
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N",
              help="Seed of random tensors, to repeat a run; the report says that it was stated. "
                   "Without it a fresh one is drawn, which the report names."
              )  # fmt: skip
@click.option("--timeout", "seconds", type=click.FloatRange(0, min_open=True), default=SECONDS,
              show_default=True, metavar="SECONDS",
              help="Wall time of each process.")  # fmt: skip
@json_option
@click.pass_context
def command(
    context: click.Context,
    source: Source,
    out: str | None,
    inputs: str,
    weights: str | None,
    expected: tuple[str, ...],
    lowered: bool,
    built: bool,
    model: bool,
    libraries: bool,
    views: bool,
    only: bool,
    verified: str | None,
    device: str,
    dims: dict[str, list[int]],
    consts: dict[str, object],
    seed: int | None,
    seconds: float,
    as_json: bool,
) -> int:
    """Whether two computations agree.

    SOURCE is a runtime twin, compared with the HIR it implements, or an HIR, compared with
    the tensors of --expected, or with --lowered an HIR whose TIR, as `schedule finalize` makes
    it, is compared with the HIR itself: every thread and every asynchronous engine is executed
    under several orders, so choose small extents by --const. With --built the kernel that
    `build` makes of the HIR is compared with it, or with the tensors of --expected: the HIR of
    a large scheduled program takes long to evaluate.

    The candidate runs several times, in a process of its own that never sees what is expected:
    on inputs of several classes (ordinary, wide, integers, cancelling), at the same addresses
    with other contents and at other addresses with the same, and at extents next to those of
    --dim. Inputs from files come a second time with the elements of floats in another order,
    wherever the HIR can be evaluated. Every output needs at least one predicate; there is no
    default, and predicates that a trivial candidate (zeros, an input, the mean, the reference
    scaled by 1.01, shifted, its rows moved, wrong in one element, or computed from coarser
    inputs) would meet are refused whatever it does.

    A bound follows from the element types and the length n of the reductions. With unit
    roundoff u (2^-24 for f32, 2^-11 for f16, 2^-8 for bf16), two sums of n products that are
    accumulated in u_acc and rounded to u_out differ by about 2*(sqrt(n)*u_acc + u_out) of
    their size, and never by more than 2*(n*u_acc/(1 - n*u_acc) + u_out) of the sum of the
    products' magnitudes. Without a reduction, and with the same roundings, state equal.
    `tilefoundry.judge.bounds` computes them: typical(n, accumulate, output) for rel_l2,
    absolute(n, scale, accumulate, output) for atol and max_abs, where scale is the standard
    deviation of one product, that of its factors multiplied. `tilefoundry spec check` derives
    bounds of composites such as a layer norm.
    """
    if not (device in ("cpu", "cuda") or device.removeprefix("cuda:").isdecimal()):
        raise click.UsageError(f"--device {device} is neither cpu nor cuda nor cuda:N")
    if lowered and built:
        raise click.UsageError("--lowered and --built are two candidates: check each on its own")
    if lowered and (expected or device != "cpu"):
        raise click.UsageError("--lowered compares with the HIR, on the CPU: "
                               "leave out --expected and --device")  # fmt: skip
    if model and (not built or device != "cpu"):
        raise click.UsageError("--model is a way to build for the CPU: with --built, without "
                               "--device")  # fmt: skip
    require_packages()
    from tilefoundry.judge.begin import ASLEEP, Begun

    os.environ |= {**ASLEEP, **os.environ}  # numpy is not here yet
    with Begun() as begun:  # what it starts takes longer than all that is done meanwhile
        judged = judged_of(context.meta["ordered"])
        files, stated = files_of(inputs), weights_of(weights)
        paths = [path for words in expected for path in words.split(",")]
        from tilefoundry.judge.check import check
        from tilefoundry.judge.request import Request

        asked = Request(
            source.path, source.selector, judged, files, stated, paths, device, dims, consts,
            seed, seconds, lowered, built, libraries, views, only, verified, model,
        )  # fmt: skip
        report = check(asked, begun)
    exit = ACCEPTED if report.agrees else REFUSED
    emit(report.record(), report.text(), as_json, out, exit=exit)
    return exit


def require_packages() -> None:
    """Refuse an installation without what evaluation needs."""
    from importlib.util import find_spec

    for name in ("numpy", "torch"):
        if find_spec(name) is None:
            refuse("check-torch-absent", None, install="pip install 'tilefoundry[torch]'",
                   why=f"{name} is not installed")  # fmt: skip


def judged_of(ordered: Sequence[tuple[str, str]]) -> list[Judged]:
    """``--out``, ``--fn`` and bounds as written, each bound to what stands before it."""
    from tilefoundry.judge.request import Judged

    outs: list[tuple[str, list[tuple[str, dict[str, float]]]]] = []
    for option, text in ordered:
        if option == "--out":
            outs.append((text, []))
        elif not outs:
            judge = _spelled(text) if option == "--fn" and text in PARAMETERS else EXAMPLE
            _malformed(f"{option} {text} stands before any --out", f"--out output {judge}")
        elif option == "--fn":
            if text not in PARAMETERS:
                _unknown(text)
            outs[-1][1].append((text, {}))
        else:
            _take_bound(option, text, outs[-1][1])
    if not outs:
        _malformed("no --out: state for each output what agreement means",
                   f"--out output {EXAMPLE}")  # fmt: skip
    return [Judged(selector, tuple(_predicate(*fn) for fn in fns)) for selector, fns in outs]


def _take_bound(option: str, text: str, fns: list[tuple[str, dict[str, float]]]) -> None:
    if not fns:
        _malformed(f"{option} {text} stands before any --fn of its --out", EXAMPLE)
    fn, bounds = fns[-1]
    name = option[2:]
    if name not in PARAMETERS[fn]:
        takes = " ".join(f"--{b}" for b in PARAMETERS[fn]) or "no bounds"
        _malformed(f"--fn {fn} takes {takes}, not {option}", _spelled(fn))
    if name in bounds:
        _malformed(f"{option} is given twice for --fn {fn}", _spelled(fn))
    try:
        bounds[name] = float(text)
    except ValueError:
        _malformed(f"{option} {text} is not a number", _spelled(fn))
    if not math.isfinite(bounds[name]) or bounds[name] < 0:
        _malformed(f"{option} {text} is no bound: a finite number from 0 up", _spelled(fn))


def _predicate(fn: str, bounds: dict[str, float]) -> Predicate:
    for name in PARAMETERS[fn]:
        if name not in bounds:
            _malformed(f"--fn {fn} needs --{name}; there is no default", _spelled(fn))
    return Predicate(fn, bounds)


def _spelled(fn: str) -> str:
    """``--fn allclose --atol A --rtol R``: a predicate with all that it needs."""
    return " ".join([f"--fn {fn}", *(f"--{b} {b[0].upper()}" for b in PARAMETERS[fn])])


EXAMPLE = _spelled("allclose")
"""What is shown where nothing says which predicate was meant."""


def _malformed(message: str, write: str) -> NoReturn:
    fns = " ".join(PARAMETERS)
    refuse("check-predicate-form", None, message=message, fns=fns, write=write)


def _unknown(fn: str) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(fn.lower().replace("-", "_"), PARAMETERS, 1)
    write = _spelled(near[0]) if near else EXAMPLE
    refuse("check-fn-unknown", None, fn=fn, known=" ".join(PARAMETERS), write=write)


def files_of(text: str) -> list[FileInput] | None:
    """``random`` (None) or the files of ``files:A.pt,name=B.pt``."""
    from tilefoundry.judge.request import FileInput

    if text == "random":
        return None
    kind, _, listed = text.partition(":")
    if kind != "files" or not listed:
        raise click.UsageError(f"--inputs {text} is neither random nor files:A.pt,B.pt")
    found: list[FileInput] = []
    for word in listed.split(","):
        name, equals, path = word.partition("=")
        named = bool(equals) and name.isidentifier()
        found.append(FileInput(name if named else None, path if named else word))
    return found


def weights_of(text: str | None) -> str | None:
    """``random``, the folder of ``ckpt:DIR``, or None."""
    if text is None or text == "random":
        return text
    kind, _, folder = text.partition(":")
    if kind != "ckpt" or not folder:
        raise click.UsageError(f"--weights {text} is neither random nor ckpt:DIR")
    return folder
