"""What programs were built to, by all that decides it: told without lowering them again.

An entry says of a program, as it was parsed, which source and which compiled library it has
(``cache``). It is one file that appears whole, begins with a digest of the rest, and is used only
while its library is there; without a sound one the program is built anew. Its key is made of

- the program as data, its function, the lines that its author wrote, options;
- the facts of its targets as they were read, and the files of families that are not ours;
- our own files, and Python;
- what the compiler is, and what it reads of this machine.

Where one of them cannot be told, there is no key, and the program is built.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import secrets
import sys
from collections.abc import Iterator
from dataclasses import replace

from tilefoundry.build import Built, cache, fingerprint, host
from tilefoundry.diag import Refusal
from tilefoundry.emit.source import Argument, Source
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.ir.program import Module
from tilefoundry.lang.encode import to_data
from tilefoundry.lang.load import Selected
from tilefoundry.lang.source import lines_of
from tilefoundry.targets import Target
from tilefoundry.targets.contract.registry import added_folder
from tilefoundry.targets.folder import find_folder


def key_of(loaded: Selected, options: tuple[str, ...], model: bool) -> str | None:
    """The key of a program; None where something that decides it cannot be told."""
    try:
        return cache.key_of(map(repr, _parts(loaded, options, model)))
    except (Refusal, fingerprint.Untold, OSError):  # building it says what is wrong
        return None


def _parts(loaded: Selected, options: tuple[str, ...], model: bool) -> Iterator[object]:
    rows = to_data(loaded.module)
    yield loaded.func, rows, options, model
    files = dict.fromkeys(row[1] for row in rows if row[0] == "Span")
    yield [(file, lines_of(file)) for file in files]
    targets = dict.fromkeys(_targets(loaded.module))
    yield [target.device for target in targets]
    paths = [row[1] for row in rows if row[0] == "Instr"]
    folders = [find_folder(target.family) for target in targets]
    folders += [added_folder(path) for path in dict.fromkeys(paths)]
    added = dict.fromkeys(f for f in folders if f and f.place != "shipped")
    yield [(f.name, fingerprint.of_family(f)) for f in added]
    yield fingerprint.ours()
    yield sys.version, sys.flags.optimize, platform.system(), platform.machine()
    yield [_compiler(target.family) for target in targets]


def _compiler(family: str) -> object:
    identity = getattr(host(family, "compiler"), "identity", None)
    if identity is None:
        raise fingerprint.Untold(f"the compiler of {family}")
    return identity()


def _targets(module: Module) -> Iterator[Target]:
    if module.target is not None:
        yield module.target.load()
    for child in module.children.values():
        yield from _targets(child)


def find(key: str) -> Built | None:
    """What is known under ``key``; None without an entry that is whole, and its library."""
    for place in cache.places():
        with contextlib.suppress(OSError, UnicodeError):
            said, _, text = (place / "known" / key).read_text(encoding="utf-8").partition("\n")
            if said == _digest(key, text):
                return _read(text)
    return None


def keep(key: str, built: Built) -> None:
    """Makes ``built`` what is known under ``key``. Nothing is kept of a source that would not
    come back as it is, as a family may say things in objects of its own, nor in a cache that
    cannot be written: the program is built already."""
    folder = cache.root() / "known"
    aside = folder / f"{key}.{secrets.token_hex(8)}.part"
    with contextlib.suppress(OSError, TypeError):
        text = _written(built)
        if _read(text) != replace(built, entry=replace(built.entry, hit=True)):
            return
        folder.mkdir(parents=True, exist_ok=True)
        cache.sweep(folder)
        try:
            aside.write_text(f"{_digest(key, text)}\n{text}", encoding="utf-8")
            os.replace(aside, folder / key)
        finally:
            aside.unlink(missing_ok=True)


def _written(built: Built) -> str:
    source = built.source
    plain = {name for name, text in source.readable.items() if source.files.get(name) == text}
    fields = {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}
    arguments = [[a.name, a.dtype.name, a.shape, a.role, a.align] for a in source.arguments]
    readable = {n: None if n in plain else text for n, text in source.readable.items()}
    return json.dumps({
        "function": built.function, "target": built.target, "peaks": built.peaks,
        "entry": [built.entry.key, built.library.name],
        "source": {**fields, "arguments": arguments, "readable": readable},
    })  # fmt: skip


def _read(text: str) -> Built | None:
    said = json.loads(text)
    entry, row = cache.find(*said["entry"]), said["source"]
    if entry is None:
        return None
    files = row["files"]
    readable = {n: files[n] if text is None else text for n, text in row["readable"].items()}
    arguments = tuple(
        Argument(name, DTYPES[dtype], tuple(shape), role, align)
        for name, dtype, shape, role, align in row["arguments"]
    )
    lists = {name: tuple(row[name]) for name in ("flags", "kernels", "launches")}
    source = Source(**{**row, **lists, "readable": readable, "arguments": arguments})
    return Built(said["function"], said["target"], source, entry, said["peaks"])


def _digest(key: str, text: str) -> str:
    return hashlib.blake2b(f"{key} {text}".encode(), digest_size=16).hexdigest()
