"""Loading an author's file: executed once, its modules declared, then parsed."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilefoundry.diag import Refusal, Span, refuse
from tilefoundry.ir.program import Module
from tilefoundry.lang.constants import GIVEN, giver, overridden
from tilefoundry.lang.decl import ModuleDecl, declaration, is_module
from tilefoundry.lang.parse import parse_module
from tilefoundry.lang.source import SourceFile, read_source, remember, too_deep


@dataclass(frozen=True, eq=False)
class Selected:
    """A parsed module, the file that declares it, and one of its functions (empty if none is
    named and the module's entry is none of several)."""

    file: str
    module: Module
    func: str
    is_twin: bool = False
    """Whether the file selects a runtime twin of the module."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded(Selected):
    """What SOURCE names: the executed file and the selected class with its module.

    ``module`` is the parsed module (for a runtime twin, of the module it implements).
    """

    text: str
    python: types.ModuleType
    cls: type


def load_source(
    path: str, selector: str | None, consts: Mapping[str, object], text: str | None = None
) -> Loaded:
    """Execute ``path`` and parse what ``selector`` names: ``Module``, ``Module.func``, or,
    when None, the file's only module (the last of several).

    ``consts`` override module-level constants; ``text`` stands in for the file's. Refuses an
    unreadable or failing file, an unknown constant or selector, and what parsing refuses.
    """
    python, text = execute(path, consts, text)
    cls, func = _select(path, python, selector)
    twin = _twin_of(cls)
    module = parse_module(twin or cls)
    if not func:
        only = next(iter(module.funcs)) if len(module.funcs) == 1 else ""
        func = module.entry if module.entry in module.funcs else only
    return Loaded(path, module, func, twin is not None, text=text, python=python, cls=cls)


def execute(
    path: str, consts: Mapping[str, object], text: str | None = None
) -> tuple[types.ModuleType, str]:
    """Run the file as a module of its own; returns it with its text.

    What it prints goes to stderr: stdout belongs to the command's answer.
    """
    file = read_source(path) if text is None else remember(path, text)
    code = _compiled(file, consts)
    name = f"tilefoundry_source_{len(_executed)}_{Path(path).stem}"
    python = types.ModuleType(name)
    python.__file__ = path
    sys.modules[name] = python
    _executed.append(name)
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    if consts:
        vars(python)[GIVEN] = giver(file, consts)
    try:
        with redirect_stdout(sys.stderr):
            exec(code, vars(python))
    except Refusal as refusal:
        where = _where(path, refusal)
        raise Refusal(*(d if d.span else replace(d, span=where) for d in refusal.diags)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the author's own code: any failure is theirs
        refuse("source-failed", _where(path, error), why=f"{type(error).__name__}: {error}")
    finally:
        vars(python).pop(GIVEN, None)
        with suppress(ValueError):  # the file may have changed the path itself
            sys.path.remove(folder)
    return python, file.text


_executed: list[str] = []


def _where(path: str, error: BaseException) -> Span:
    line = 1
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return Span(path, line)


def _compiled(file: SourceFile, consts: Mapping[str, object]) -> types.CodeType:
    """The file's code; from its text, which may nest deeper than a tree can be converted."""
    tree = overridden(file, consts) if consts else file.tree
    try:
        return compile(tree if consts else file.text, file.path, "exec", dont_inherit=True)
    except SyntaxError as error:  # what only the compiler sees, such as a stray return
        span = Span(file.path, error.lineno or 1, (error.offset or 1) - 1)
        refuse("source-syntax", span, why=error.msg, fix="correct the syntax at this line")
    except (RecursionError, MemoryError):
        too_deep(file.path)


def _twin_of(cls: type) -> type | None:
    """The module class that a runtime twin implements, None for a module."""
    return cls.__dict__.get("__tilefoundry_implements__")


def _select(path: str, python: types.ModuleType, selector: str | None) -> tuple[type, str]:
    known: dict[str, type] = {
        n: v
        for n, v in vars(python).items()
        if isinstance(v, type) and (is_module(v) or _twin_of(v) is not None)
    }
    own = {n: v for n, v in known.items() if v.__module__ == python.__name__}
    span = Span(path, 1)
    if not known:
        refuse("module-missing", span, file=path)
    if selector is None:
        roots = _roots(own or known)
        return list(roots.values())[-1], ""
    name, _, func = selector.partition(".")
    if name not in known:
        refuse("selector-unknown", span, what="module", name=name, known=" ".join(known))
    cls = known[name]
    decl = declaration(_twin_of(cls) or cls)
    while func:
        head, _, rest = func.partition(".")
        if head in decl.funcs and not rest:
            return cls, head
        child = decl.children.get(head)
        if child is None or not rest:
            refuse("selector-unknown", span, what="function", name=func, known=_members(decl))
        cls = child if isinstance(child, type) else child.module
        decl, func = declaration(cls), rest
    return cls, ""


def _members(decl: ModuleDecl) -> str:
    return " ".join([*decl.funcs, *(f"{c}." for c in decl.children)]) or "none"


def _roots(known: Mapping[str, type]) -> Mapping[str, type]:
    """Modules that are nobody's child; all of them if that leaves none."""
    inner: set[Any] = set()
    for cls in known.values():
        decl = declaration(_twin_of(cls) or cls)
        for child in decl.children.values():
            inner.add(child if isinstance(child, type) else child.module)
    roots = {n: c for n, c in known.items() if c not in inner}
    return roots or known
