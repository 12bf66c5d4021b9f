"""From verified TIR to something to call: source, compiler, cache, library.

``build`` answers from what is known (``known``) where all that decides the answer is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilefoundry.diag import Refusal

if TYPE_CHECKING:  # the judge asks for the cache's place alone, before anything else
    from tilefoundry.build.cache import Entry
    from tilefoundry.emit import Source
    from tilefoundry.lang.load import Selected
    from tilefoundry.tir.program import Program


@dataclass(frozen=True)
class Built:
    """A program's source and its compiled library in the cache; ``hit``: it was there.

    ``function`` is the module's and its entry's name, ``target`` the id of a Device document,
    ``peaks`` are, by kernel, what the memory analysis says of the storages that it fills."""

    function: str
    target: str
    source: Source
    entry: Entry
    peaks: Mapping[str, list[str]]

    @property
    def library(self) -> Path:
        return self.entry.library

    @property
    def hit(self) -> bool:
        return self.entry.hit

    @property
    def kernels(self) -> tuple[dict[str, object], ...]:
        """Of each kernel the emitter's facts, and what the compiler says it takes."""
        found = host(self.source.family, "compiler").resources(self.entry)
        return tuple({**facts, **found.get(facts["kernel"], {})} for facts in self.source.kernels)


MODEL = "-DTF_MODEL"
"""Instructions as their models in portable C, whatever the machine can do."""


def build(loaded: Selected, options: tuple[str, ...] = (), model: bool = False) -> Built:
    """The function of ``loaded``, lowered, verified, emitted and compiled.

    ``options`` are the compiler's, behind ours (``("-O2",)`` compiles faster). With ``model``
    matrix instructions are computed by their models, so that the program runs on a machine
    that lacks them. A finding of the memory analysis, such as a tile that registers cannot
    hold, refuses the build.
    """
    from tilefoundry.build import known

    key = known.key_of(loaded, options, model)
    found = known.find(key) if key else None
    if found is not None:
        return found
    from tilefoundry.lower.finalize import finalize

    program, findings = finalize(loaded)
    if findings:
        raise Refusal(*findings)
    built = build_program(program, options, model)
    if key and key == known.key_of(loaded, options, model):  # nothing changed meanwhile
        known.keep(key, built)
    return built


def build_program(program: Program, options: tuple[str, ...] = (), model: bool = False) -> Built:
    """Verified TIR, emitted and compiled."""
    from tilefoundry.emit import emit

    source = emit(program)
    if model:
        source = replace(source, flags=("-march=native", MODEL))
    if options:
        source = replace(source, flags=(*source.flags, *options))
    entry = host(source.family, "compiler").compiled(source)
    target = next(iter(program.kernels.values())).target
    peaks = {
        name: [note for note in kernel.notes if note.startswith("peak ")]
        for name, kernel in program.kernels.items()
    }
    return Built(f"{program.name}.{program.entry}", target.id, source, entry, peaks)


def host(family: str, part: str) -> ModuleType:
    """The module that compiles (``compiler``), calls (``call``) or exports (``export``)
    programs of a family, or knows what this machine lacks (``machine``): its own, or the one
    for C libraries."""
    from tilefoundry.targets.folder import find_folder

    folder = find_folder(family)
    own = folder.module(f"host.{part}") if folder else None
    return own or import_module(f"tilefoundry.build.{part}")


def callable_of(built: Built) -> Any:
    """A compiled program as a callable on its inputs."""
    return host(built.source.family, "call").Compiled(built)


__all__ = ["MODEL", "Built", "build", "build_program", "callable_of", "host"]
