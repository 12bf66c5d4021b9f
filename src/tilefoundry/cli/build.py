"""The kernel: source, binary and the resources it uses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import Source, const_option, json_option, source_argument

if TYPE_CHECKING:
    from tilefoundry.build import Built


@click.command(
    "build",
    epilog=epilog(
        (
            "tilefoundry build softmax.py",
            "tilefoundry build softmax.py:Softmax.softmax -o out --const ROWS=512",
            "tilefoundry build gemm_amx.py --model",
        ),
        {
            0: "compiled, or in the cache already",
            1: "refused: it cannot be lowered or emitted, or does not fit the hardware",
            4: "no compiler, or the cache cannot be written",
        },
    ),
)
@source_argument
@click.option("-o", "--out", metavar="DIR", help="Also export the source, a header and a loader "
              "that need nothing of ours.")  # fmt: skip
@click.option("--model", is_flag=True, help="Matrix instructions by their models in portable C: "
              "the program runs on a machine that lacks them.")  # fmt: skip
@const_option
@json_option
def command(
    source: Source, out: str | None, model: bool, consts: dict[str, object], as_json: bool
) -> None:
    """Compile a scheduled program to a kernel.

    The program is lowered and verified as `schedule finalize` does it, written as source for
    its target, and compiled by the system's compiler. Results are kept by their content in
    $TILEFOUNDRY_HOME/cache (by default ~/.cache/tilefoundry): the same program is compiled
    once. What exceeds a capacity of the hardware is refused.

    The report names the library and its source, whose lines lead back to yours; for each
    kernel the cores, the lanes of a vector, the workspace, and the peaks of the memory
    analysis; for each argument its type. `-o DIR` writes the source as one reads it, with your
    lines as comments, a C header, and a loader in Python that needs torch alone.
    """
    from tilefoundry.build import build, host
    from tilefoundry.lang.load import load_source

    began = time.perf_counter()
    loaded = load_source(source.path, source.selector, consts)
    built = build(loaded, model=model)
    seconds = time.perf_counter() - began
    exported = None
    if out is not None:
        exported = [str(path) for path in host(built.source.family, "export").export(built, out)]
    compiler = host(built.source.family, "compiler").compiler()[1]
    record = _record(built, compiler, seconds, model)
    if exported is not None:
        record["exported"] = exported
    emit(record, _text(record), as_json)


def _record(built: Built, compiler: str, seconds: float, model: bool) -> dict[str, Any]:
    file = next(iter(built.source.files))
    return {
        "function": built.function,
        "target": built.target,
        "cache": "hit" if built.hit else "miss",
        "model": model,
        "seconds": round(seconds, 3),
        "compiler": compiler,
        "library": str(built.library),
        "source": str(built.entry.folder / file),
        "entry": built.source.entry,
        "workspace": built.source.workspace,
        "arguments": [
            {"name": a.name, "role": a.role, "dtype": str(a.dtype), "shape": list(a.shape)}
            for a in built.source.arguments
        ],
        "kernels": [
            {**facts, "peaks": built.peaks[str(facts["kernel"])]}
            for facts in built.kernels
        ],
    }


def _text(record: dict[str, Any]) -> str:
    head = ("function", "target", "cache", "seconds", "workspace")
    lines = ["# build " + " ".join(f"{name}={record[name]}" for name in head)]
    lines.append(f'compiler "{record["compiler"]}"')
    lines.append(f"library {record['library']}")
    lines.append(f"source {record['source']}")
    for kernel in record["kernels"]:
        words = [f"{k}={kernel[k]}" for k in kernel if k not in ("kernel", "peaks")]
        lines.append(" ".join(["kernel", f"name={kernel['kernel']}", *words]))
        lines += kernel["peaks"]
    for argument in record["arguments"]:
        shape = "x".join(map(str, argument["shape"])) or "1"
        lines.append(f"argument name={argument['name']} role={argument['role']} "
                     f"dtype={argument['dtype']} shape={shape}")  # fmt: skip
    lines += [f"exported {path}" for path in record.get("exported", ())]
    return "\n".join(lines)
