"""Which instructions fit, why others do not, and what each demands."""

from __future__ import annotations

import click

from tilefoundry.cli.finalize import finalize
from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.plan import plan
from tilefoundry.cli.source import (
    Source,
    const_option,
    json_option,
    out_argument,
    source_argument,
)
from tilefoundry.diag import refuse


@click.group(
    "schedule",
    no_args_is_help=False,
    epilog=epilog(
        (
            "tilefoundry schedule candidates grid.py candidates.txt",
            "tilefoundry schedule facts T.cuda.sm90.Wgmma --target nvidia.h200_sxm",
            "tilefoundry schedule plan grid.py plans.txt",
            "tilefoundry schedule finalize optimal.py optimal_tir.py",
        ),
    ),
)
def command() -> None:
    """Which instructions fit, why others do not, and what each demands."""


@command.command(
    "facts",
    epilog=epilog(
        (
            "tilefoundry schedule facts",
            "tilefoundry schedule facts --target nvidia.h200_sxm",
            "tilefoundry schedule facts T.cuda.sm90.Wgmma --target nvidia.h200_sxm wgmma.txt",
        ),
    ),
)
@click.argument("instruction", required=False)
@click.option("--target", "target_id", metavar="ID", help="A known target; needed where several "
              "have the instruction.")  # fmt: skip
@out_argument()
@json_option
def facts(instruction: str | None, target_id: str | None, out: str | None, as_json: bool) -> None:
    """The whole contract of an instruction on a target: execution mesh, parameters with
    their domains, operands with their arrangements, completion.

    Without INSTRUCTION: the instructions that have a contract on the target. Without either:
    every instruction with the targets that have it.
    """
    from tilefoundry.targets.contract.registry import contracts, find_contract
    from tilefoundry.targets.contract.render import facts_record, facts_text
    from tilefoundry.targets.load import load_target

    if target_id is None:
        holders = _holders()
        if instruction is None:
            lines = [f"{name}  {' '.join(ids)}" for name, ids in holders.items()]
            emit({"instructions": holders}, "\n".join(lines), as_json, out)
            return
        target_id = _only_holder(f"T.{instruction.removeprefix('T.')}", holders)
    target = load_target(target_id)
    if instruction is None:
        found = contracts(target)
        text = "\n".join(f"T.{c.path}" for c in found)
        emit({"target": target.id, "instructions": text.split()}, text, as_json, out)
        return
    contract = find_contract(target, instruction.removeprefix("T."))
    level = target.levels[-1]
    record = facts_record(contract, target.id, level)
    emit(record, facts_text(contract, target.id, level), as_json, out)


def _holders() -> dict[str, list[str]]:
    """Every instruction with the ids of the shipped devices that have it."""
    from tilefoundry.targets import Device
    from tilefoundry.targets.contract.registry import contracts
    from tilefoundry.targets.load import documents, load_document, load_target

    out: dict[str, list[str]] = {}
    for found in documents():
        if found.place == "shipped" and isinstance(load_document(found.id), Device):
            for contract in contracts(load_target(found.id)):
                out.setdefault(f"T.{contract.path}", []).append(found.id)
    return dict(sorted(out.items()))


def _only_holder(name: str, holders: dict[str, list[str]]) -> str:
    """The one target that has an instruction; refuses where several or none do."""
    import difflib

    ids = holders.get(name, [])
    if not ids:
        near = difflib.get_close_matches(name, holders, 1, 0.0)[0]
        refuse("facts-unknown", None, name=name, near=near)
    if len(ids) > 1:
        refuse("facts-target", None, name=name, ids=" ".join(ids), first=ids[0])
    return ids[0]


@command.command(
    "candidates",
    epilog=epilog(
        (
            "tilefoundry schedule candidates grid.py",
            "tilefoundry schedule candidates grid.py:GEMM.gemm candidates.txt --const M=256",
        ),
    ),
)
@source_argument
@out_argument()
@const_option
@json_option
def candidates(source: Source, out: str | None, consts: dict[str, object], as_json: bool) -> None:
    """For each site without a chosen instruction: what fits, and for what does not the
    clause of its contract that is not met and what would meet it."""
    from tilefoundry.check.candidates import sites, sites_record, sites_text
    from tilefoundry.lang.load import load_source

    loaded = load_source(source.path, source.selector, consts)
    found = sites(loaded.module, loaded.func)
    emit(sites_record(found), sites_text(found), as_json, out)


command.add_command(finalize)
command.add_command(plan)
