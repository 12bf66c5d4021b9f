"""How long it takes, interleaved with its rival, against the physical floor."""

from __future__ import annotations

from typing import Any

import click

from tilefoundry.cli.check import (
    SECONDS,
    Ordered,
    files_of,
    judged_of,
    kept,
    require_packages,
    weights_of,
)
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
from tilefoundry.diag import refuse
from tilefoundry.judge.stated import PARAMETERS
from tilefoundry.lang.source import read_source


@click.command(
    "measure",
    cls=Ordered,
    epilog=epilog(
        (
            "tilefoundry measure softmax.py --against torch --out output --fn rel_l2 --max 4e-3",
            "tilefoundry measure chain.py --against 'torch: (x * x + x) * x' --threads 2 --json",
            "tilefoundry measure twin.py:Twin --against other.py:Twin --dim ctx=512",
            "tilefoundry measure gemm.py --device cuda --against cublas --out output "
            "--fn rel_l2 --max 1e-2",
            "tilefoundry measure softmax.py --checked check.json --out output --fn rel_l2 "
            "--max 4e-3",
            "tilefoundry measure gemm.py --against numpy --target my.box --out output "
            "--fn rel_l2 --max 1e-5",
        ),
        {
            0: "measured",
            1: "results are wrong, or the figures cannot be believed",
            3: "the machine was too noisy; the device or the rival is not supported",
            4: "torch, the compiler or the processors are not there",
            5: "a process ran out of time",
        },
    ),
)
@source_argument
@out_argument("[REPORT]")
@click.option("--against", metavar="RIVAL",
              help="What to compare with: torch, torch.compile, cublas, numpy, an expression of "
                   "one over the parameters (torch: EXPRESSION), or another SOURCE.")  # fmt: skip
@click.option("--inputs", default="random", show_default=True, metavar="random|files:A,B",
              help="Where inputs are from; before each call all floats change.")  # fmt: skip
@click.option("--weights", metavar="random|ckpt:DIR", help="Where weights are from.")
@kept("--out", "OUTPUT", "The output that the next --fn judge, as for check. Without any, every "
                         "output must equal the reference's.")  # fmt: skip
@kept("--fn", "NAME", "A predicate on that output: " + " ".join(PARAMETERS) + ".")
@kept("--atol", "X", "Bound of the preceding allclose.")
@kept("--rtol", "X", "The other bound of the preceding allclose.")
@kept("--max", "X", "Bound of the preceding rel_l2, max_abs, max_rel or ulp.")
@kept("--min", "X", "Bound of the preceding cosine.")
@click.option("--reference", metavar="RIVAL",
              help="Hold results to this in place of the evaluated HIR, which is slow for large "
                   "scheduled programs: an expression or a SOURCE, as for --against."
              )  # fmt: skip
@click.option("--checked", metavar="REPORT",
              help="The --json report of the check of SOURCE: what is measured must be what was "
                   "checked, source by source and file by file.")  # fmt: skip
@click.option("--model", is_flag=True, hidden=True)
@click.option("--evaluated", is_flag=True,
              help="Time the evaluator on the HIR instead of the kernel.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="Processors that each side may use, and its threads.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda[:N]",
              help="Where both run.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1), default=3, show_default=True, metavar="N",
              help="Processes of each side, one after another.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1), default=15, show_default=True, metavar="N",
              help="Rounds in each process.")  # fmt: skip
@click.option("--target", default="", metavar="ID",
              help="Whose facts make the physical floor; by default the program's target."
              )  # fmt: skip
@dim_option
@const_option
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N",
              help="Seed of random tensors, to repeat a run; the report says that it was "
                   "stated.")  # fmt: skip
@click.option("--timeout", "seconds", type=click.FloatRange(0, min_open=True), default=SECONDS,
              show_default=True, metavar="SECONDS", help="Time of each process.")  # fmt: skip
@json_option
@click.pass_context
def command(
    context: click.Context,
    source: Source,
    out: str | None,
    against: str | None,
    inputs: str,
    weights: str | None,
    reference: str | None,
    checked: str | None,
    model: bool,
    evaluated: bool,
    threads: int,
    device: str,
    processes: int,
    runs: int,
    target: str,
    dims: dict[str, list[int]],
    consts: dict[str, object],
    seed: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """How long a computation takes.

    SOURCE is a runtime twin, or an HIR, whose kernel is built and timed. Its results, and the
    rival's, must meet the stated predicates on fresh inputs before they are timed and in
    timed calls; what is wrong is refused, not measured.

    Each side runs in several processes. In each round both take their turn, one at a time:
    one call on cold data, then a batch of calls on warm data. The report gives medians,
    quartiles and minima, the ratio of the rival's time to the candidate's round by round, and
    the time that the target's facts allow at least; a time below that is refused. See
    `tilefoundry spec measure`.
    """
    if not (device in ("cpu", "cuda") or device.removeprefix("cuda:").isdecimal()):
        raise click.UsageError(f"--device {device} is neither cpu nor cuda nor cuda:N")
    if model:
        refuse("measure-model", None)
    read_source(source.path)  # one that cannot be read is told at once
    require_packages()
    from tilefoundry.judge.begin import FIRST, Begun, measured

    with Begun(measured(threads), FIRST) as begun:  # what it starts takes longer than all here
        files, stated_weights = files_of(inputs), weights_of(weights)
        ordered = context.meta["ordered"]
        judged = judged_of(ordered) if ordered else []
        from tilefoundry.judge.measure.rival import stated

        rival: Any = None if against is None else stated(against)
        known: Any = None if reference is None else stated(reference)
        if target:
            from tilefoundry.targets.load import find_document, unknown

            if find_document(target) is None:
                unknown(target)
        from tilefoundry.judge.measure.request import Request
        from tilefoundry.judge.measure.session import measure

        asked = Request(
            source.path, source.selector, judged, rival, files, stated_weights, device, dims,
            consts, threads, processes, runs, seed, seconds, target, evaluated, known, checked,
        )  # fmt: skip
        report = measure(asked, begun)
    emit(report.record(), report.text(), as_json, out)
