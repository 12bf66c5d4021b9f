"""The hardware known: list, show, measure, add and remove target documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit, unwritable, write_whole
from tilefoundry.cli.source import json_option, out_argument
from tilefoundry.diag import Refusal, refuse

if TYPE_CHECKING:
    from tilefoundry.targets import Architecture, Device, Fact, Target
    from tilefoundry.targets.load import Found


HOME = "set TILEFOUNDRY_HOME to a folder that can be written"


@click.group(
    "target",
    no_args_is_help=False,
    epilog=epilog(
        ("tilefoundry target list", "tilefoundry target show nvidia.h200_sxm"),
        {1: "a document is refused, or none has that id"},
    ),
)
def command() -> None:
    """The hardware known: list, show, measure, add and remove target documents.

    A Device document states the figures of one piece of hardware, an Architecture
    document what all of its kind share. `tilefoundry spec targets` says what they hold.
    """


@command.command(
    "list",
    epilog=epilog(
        ("tilefoundry target list", "tilefoundry target list -"),
    ),
)
@out_argument()
@json_option
def list_command(out: str | None, as_json: bool) -> None:
    """Every document that can be asked for: id, kind, family, whose it is, name."""
    from tilefoundry.targets.load import documents

    rows = [_row(found) for found in documents()]
    widths = [max(len(row[key]) for row in rows) for key in ("id", "kind", "family", "place")]
    lines = [
        "  ".join([*(v.ljust(w) for v, w in zip(row.values(), widths, strict=False)), row["name"]])
        for row in rows
    ]
    emit({"documents": rows}, "\n".join(lines), as_json, out)


def _row(found: Found) -> dict[str, str]:
    from tilefoundry.targets.load import load_document

    try:
        document = load_document(found.id)
    except Refusal as refusal:
        # One bad document of the user's may not hide the others.
        codes = " ".join(dict.fromkeys(diag.code for diag in refusal.diags))
        return _cells(found, "-", "-", f"refused: {codes}")
    return _cells(found, _kind(document), document.family, document.name)


def _cells(found: Found, kind: str, family: str, name: str) -> dict[str, str]:
    return {"id": found.id, "kind": kind, "family": family, "place": found.place, "name": name}


def _kind(document: Architecture | Device) -> str:
    from tilefoundry.targets import Device

    return "device" if isinstance(document, Device) else "architecture"


@command.command(
    "show",
    epilog=epilog(
        (
            "tilefoundry target show nvidia.h200_sxm",
            "tilefoundry target show nvidia.sm90 sm90.txt",
        )
    ),
)
@click.argument("id", metavar="ID")
@out_argument()
@json_option
def show_command(id: str, out: str | None, as_json: bool) -> None:
    """Every fact of a document, with its value, unit, origin, source and conditions.

    A device is shown with the facts of its architecture; each fact names the document
    that states it. A fact that nobody knows is shown as unavailable, with the reason.
    """
    from tilefoundry.targets import Device, load_target
    from tilefoundry.targets.load import load_document

    document = load_document(id)
    if isinstance(document, Device):
        record, lines = _target(load_target(id))
    else:
        record, lines = _architecture(document)
    emit(record, "\n".join(lines), as_json, out)


def _target(target: Target) -> tuple[dict[str, object], list[str]]:
    record, lines = _architecture(target.device.architecture)
    head = {"id": target.id, "kind": "device", "family": target.family, "name": target.name}
    record |= head | {
        "architecture": target.architecture,
        "storages": [_storage(s.name, s.level, s.pool, s.memory) for s in target.storages.values()],
        "facts": [fact.record() for fact in target.facts()],
    }
    lines = [
        _line("# target", head | {"architecture": target.architecture}),
        *(line for line in lines if line.startswith(("# levels", "# capabilities"))),
        *(_line("# storage", storage) for storage in _dicts(record["storages"])),
        *(line for line in lines if line.startswith("# cache")),
        *map(_fact, target.facts()),
    ]
    return record, lines


def _architecture(document: Architecture) -> tuple[dict[str, object], list[str]]:
    shape = document.shape
    head = {"id": document.id, "kind": "architecture", "family": document.family}
    facts = [document.facts[path] for path in sorted(document.facts)]
    record: dict[str, object] = {
        **head,
        "name": document.name,
        "levels": list(shape.levels),
        "optional_levels": list(shape.optional),
        "processor": shape.processor,
        "processor_level": shape.processor_level,
        "capabilities": list(document.capabilities),
        "storages": [_storage(s.name, s.level, s.pool, s.memory) for s in shape.storages],
        "caches": [{"name": name, "scope": scope} for name, scope in shape.caches.items()],
        "facts": [fact.record() for fact in facts],
    }
    levels = [f"{n} (optional)" if n in shape.optional else n for n in shape.levels]
    lines = [
        _line("# target", head | {"name": document.name}),
        f"# levels {' > '.join(levels)}; {shape.processor_level} runs on: {shape.processor}",
        f"# capabilities {' '.join(document.capabilities)}",
        *(_line("# storage", storage) for storage in _dicts(record["storages"])),
        *(_line("# cache", cache) for cache in _dicts(record["caches"])),
        *map(_fact, facts),
    ]
    return record, lines


def _dicts(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _storage(
    name: str, level: str | None, pool: str | None, memory: str | None
) -> dict[str, object]:
    return {"name": name, "level": level, "pool": pool, "memory": memory}


def _fact(fact: Fact) -> str:
    record = fact.record()
    return _line(f"fact {record.pop('path')}", record)


def _line(start: str, fields: Mapping[str, object]) -> str:
    """``start key=value ...``; words with a space are quoted, an absent value is ``-``."""
    return " ".join([start, *(f"{key}={_word(value)}" for key, value in fields.items())])


def _word(value: object) -> str:
    if value is None:
        return "-"
    text = str(value)
    plain = text.isprintable() and not any(c in text for c in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


@command.command(
    "add",
    epilog=epilog(
        (
            "tilefoundry target add box.toml",
            "tilefoundry target add box.toml --replace",
            "tilefoundry target add hardware/rill",
        ),
        {1: "the document or the folder is refused; nothing was written"},
    ),
)
@click.argument("file", metavar="FILE|DIR")
@click.option("--replace", is_flag=True, help="Replace your own of the same name.")
@json_option
def add_command(file: str, replace: bool, as_json: bool) -> None:
    """Check a document, or the folder of a new hardware, and keep it in your own folder.

    The folder is $TILEFOUNDRY_HOME/targets (by default ~/.tilefoundry/targets). A
    document is copied there and read only where its id is named: adding one changes no other
    answer. DIR holds a family that is not ours: facts, instructions, emission (`tilefoundry
    tutorial hardware`). It is linked, so that it can be edited where it lies; its code is
    executed where a device of it is named.
    """
    if Path(file).is_dir():
        _add_family(Path(file), replace, as_json)
        return
    from tilefoundry.targets.load import read_file

    text, document = read_file(file)
    path, replaced = _keep(document.id, text, replace)
    record = {
        "id": document.id,
        "kind": _kind(document),
        "family": document.family,
        "replaced": replaced,
        "path": str(path),
    }
    verb = "replaced" if replaced else "added"
    text = f"{verb} {document.id} ({_kind(document)}, family {document.family})\n  file: {path}"
    emit(record, text, as_json)


def _add_family(path: Path, replace: bool, as_json: bool) -> None:
    from tilefoundry.emit.registry import emitters
    from tilefoundry.targets.added import checked, link

    folder, documents, contracts = checked(path)
    written = len(emitters(folder))
    try:
        place, replaced = link(folder, replace)
    except OSError as error:
        unwritable(path, error, HOME)
    record = {
        "family": folder.name,
        "documents": [document.id for document in documents],
        "instructions": [contract.path for contract in contracts],
        "emitters": written,
        "replaced": replaced,
        "path": str(place),
        "folder": str(folder.path),
    }
    verb = "replaced" if replaced else "added"
    lines = [
        f"{verb} family {folder.name}",
        *(f"  {_kind(document)} {document.id}" for document in documents),
        f"  instructions: {' '.join(f'T.{c.path}' for c in contracts) or 'none of its own'}",
        f"  folder: {folder.path}",
    ]
    emit(record, "\n".join(lines), as_json)


def _hold_free(id: str, replace: bool) -> bool:
    """Refuse an id that is not the user's to write; whether a document of theirs has it."""
    from tilefoundry.targets.load import find_document

    found = find_document(id)
    if found and found.place != "user":
        refuse("target-taken", id=id, place=found.place)
    if found and not replace:
        refuse("target-exists", id=id)
    return found is not None


def _keep(id: str, text: str, replace: bool) -> tuple[Path, bool]:
    """Write a checked document into the user's folder; whether one of its id was there."""
    from tilefoundry.targets.load import home

    replaced = _hold_free(id, replace)
    folder = home()
    if folder.parts[0] == "~":  # a user without a home folder
        refuse("output-unwritable", path=folder, reason="there is no home folder", fix=HOME)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        unwritable(folder, error, HOME)
    path = folder / f"{id}.toml"
    write_whole(str(path), text)
    return path, replaced


@command.command(
    "probe",
    epilog=epilog(
        (
            "tilefoundry target probe",
            "tilefoundry target probe --write my.box --replace",
        ),
        {4: "no compiler is found, or the program failed"},
    ),
)
@out_argument("[REPORT]")
@click.option("--write", "id", metavar="ID",
              help="Keep what was measured as the Device document ID of yours.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace your document of the same id.")
@click.option("--repetitions", type=click.IntRange(1, 1000), default=15, show_default=True,
              metavar="N", help="How often each figure is taken.")  # fmt: skip
@json_option
def probe_command(
    out: str | None, id: str | None, replace: bool, repetitions: int, as_json: bool
) -> None:
    """Measure this machine's CPU.

    A small program, compiled by the system's compiler for this processor, measures the clock
    under load, the bandwidth of memory and caches, and the rate of multiply-adds in each
    element type, on 1, 2, 4 ... all processors. Let nothing else run meanwhile.

    A program then names the document, AnyTarget("ID"), and `analyze` prices it by these facts;
    `measure --target ID` takes the physical floor from them.
    """
    from tilefoundry.targets.document import ID, LONGEST_ID, read_document
    from tilefoundry.targets.folder import shipped
    from tilefoundry.targets.load import architecture_of, family_of

    if id is not None:
        if not ID.fullmatch(id) or len(id) > LONGEST_ID:
            raise click.UsageError(f"--write {id} is no id: names joined by dots, as in my.box")
        _hold_free(id, replace)
    (prober,) = shipped("host.probe")
    found = prober.probe(repetitions)
    here = found.machine
    record: dict[str, object] = {
        "model": here.model,
        "architecture": here.architecture,
        "processors": len(here.cpus),
        "compiler": found.compiler,
        "date": found.date,
        "repetitions": repetitions,
        "samples": [sample.record() for sample in found.samples],
    }
    lines = [_line("# probe", {k: v for k, v in record.items() if k != "samples"})]
    for sample in found.samples:
        row = sample.record()
        shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
        lines.append(_line("probe", shown))
    if id is not None:
        text = prober.document(id, found)
        read_document(text, f"{id}.toml", family_of, architecture_of)
        path, replaced = _keep(id, text, replace)
        record |= {"id": id, "path": str(path), "replaced": replaced}
        lines.append(f"{'replaced' if replaced else 'added'} {id}\n  file: {path}")
    emit(record, "\n".join(lines), as_json, out)


@command.command(
    "remove",
    epilog=epilog(("tilefoundry target remove acme.box", "tilefoundry target remove rill")),
)
@click.argument("id", metavar="ID|FAMILY")
@json_option
def remove_command(id: str, as_json: bool) -> None:
    """Remove a document, or the link to a family's folder, that you added; shipped ones stay."""
    from tilefoundry.targets.folder import find_folder
    from tilefoundry.targets.load import find_document, unknown

    family = find_folder(id)
    if family is not None and family.place == "user":
        from tilefoundry.targets.added import unlink

        path = unlink(id)
        emit({"family": id, "path": str(path)}, f"removed family {id}\n  link: {path}", as_json)
        return
    found = find_document(id)
    if found is None:
        unknown(id)
    if found.place != "user":
        refuse("target-not-yours", id=id, place=found.place)
    try:
        found.path.unlink()
    except OSError as error:
        unwritable(found.path, error, HOME)
    emit({"id": id, "path": str(found.path)}, f"removed {id}\n  file: {found.path}", as_json)
