"""What a check is asked: the program, its inputs and weights, what agreement means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tilefoundry.diag import refuse
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.stated import Predicate


@dataclass(frozen=True)
class FileInput:
    """One file of ``--inputs files:``, by name or (None) by its place."""

    name: str | None
    path: str


@dataclass(frozen=True)
class Judged:
    """``--out SELECTOR`` with the predicates that follow it."""

    selector: str
    predicates: tuple[Predicate, ...]


@dataclass(frozen=True)
class Request:
    """One check. ``files`` None: random inputs. ``weights``: None, ``random`` or a folder.

    ``dims`` lists the values of open extents; every combination is checked. ``seconds``
    bounds each process.
    """

    path: str
    selector: str | None
    outs: Sequence[Judged]
    files: Sequence[FileInput] | None = None
    weights: str | None = None
    expected: Sequence[str] = ()
    device: str = "cpu"
    dims: Mapping[str, Sequence[int]] | None = None
    consts: Mapping[str, object] | None = None
    seed: int | None = None
    seconds: float = 300
    lowered: bool = False
    """The candidate is the HIR's own lowering, interpreted; the reference is the HIR."""
    built: bool = False
    """The candidate is the HIR's own kernel, compiled; the reference is the HIR."""
    libraries: bool = True
    """Whether a twin may compute by calling libraries."""
    views: bool = False
    """Inputs are also views that are neither contiguous nor aligned."""
    only: bool = False
    """No extents but those of ``dims``."""
    verified: str | None = None
    """The report of a check of the reference itself, against the published model."""
    model: bool = False
    """Matrix instructions of a ``built`` kernel are computed by their models in portable C."""

    def record(self) -> dict[str, object]:
        """What was asked, such that :meth:`read` makes the same request."""
        return {
            "path": self.path,
            "selector": self.selector,
            "outs": [[o.selector, [[p.fn, dict(p.bounds)] for p in o.predicates]]
                     for o in self.outs],
            "files": None if self.files is None else [[f.name, f.path] for f in self.files],
            "weights": self.weights,
            "expected": list(self.expected),
            "device": self.device,
            "dims": {name: list(values) for name, values in (self.dims or {}).items()},
            "consts": dict(self.consts or {}),
            "seconds": self.seconds,
            "lowered": self.lowered,
            "built": self.built,
            "libraries": self.libraries,
            "views": self.views,
            "only": self.only,
            "verified": self.verified,
            "model": self.model,
        }  # fmt: skip

    @classmethod
    def read(cls, record: Mapping[str, Any], seed: int) -> Request:
        """The request of a record; KeyError, TypeError or ValueError where it is none."""
        given = read_named(record)
        return cls(seed=seed, **given)

    @property
    def source(self) -> str:
        return self.path if self.selector is None else f"{self.path}:{self.selector}"


def read_named(record: Mapping[str, Any]) -> dict[str, Any]:
    """``record`` with its outputs and files as requests hold them; KeyError, TypeError or
    ValueError where they are none."""
    outs = [Judged(str(s), tuple(Predicate(str(fn), dict(b)) for fn, b in fns))
            for s, fns in record["outs"]]  # fmt: skip
    files = record["files"]
    if files is not None:
        files = [FileInput(name, str(path)) for name, path in files]
    return {**record, "outs": outs, "files": files}


def judged_outputs(
    outs: Sequence[Judged], signature: Signature
) -> dict[str, tuple[Predicate, ...]]:
    """The predicates of each output; refuses unknown outputs and outputs without any."""
    names = [output.name for output in signature.outputs]
    found: dict[str, tuple[Predicate, ...]] = {name: () for name in names}
    for out in outs:
        if out.selector in ("*", "output"):
            chosen = names
        elif out.selector in names:
            chosen = [out.selector]
        elif out.selector == "output[0]" and names == ["output"]:
            chosen = names
        else:
            known = " ".join(names)
            refuse("check-output-unknown", None, text=out.selector, function=signature.name,
                   known=known)  # fmt: skip
        for name in chosen:
            found[name] += out.predicates
    for name, predicates in found.items():
        if not predicates:
            stated = " ".join(n for n, p in found.items() if p) or "none"
            refuse("check-output-unjudged", None, output=name, stated=stated)
    return found


def named_files(files: Sequence[FileInput], signature: Signature) -> dict[str, str]:
    """The file of each parameter; refuses a wrong number, an unknown or a repeated name."""
    names = [declared.name for declared in signature.inputs]
    for file in files:
        if file.name is not None and file.name not in names:
            _unknown_input(file.name, names, signature)
    open = [name for name in names if name not in {file.name for file in files}]
    placed: dict[str, str] = {}
    for file in files:
        name = file.name if file.name is not None else (open.pop(0) if open else None)
        if name not in names or name in placed:
            break
        placed[name] = file.path
    if len(placed) != len(names) or len(files) != len(names):
        given = " ".join(f"{f.name}={f.path}" if f.name else f.path for f in files) or "none"
        refuse("check-input-count", None, function=signature.name,
               expected=", ".join(names) or "no inputs", found=len(files), given=given)  # fmt: skip
    return placed


def _unknown_input(name: str, names: Sequence[str], signature: Signature) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(name, names, 1, 0.4)
    if name in signature.needed:
        fix = f"{name} is a weight: give it by --weights"
    else:
        fix = f"write {near[0]}=FILE" if near else "use the names of the function's parameters"
    known = " ".join(names) or "none"
    refuse("check-input-unknown", None, function=signature.name, name=name, known=known, fix=fix)
