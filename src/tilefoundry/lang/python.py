"""Python at compile time: ordinary operations on constants, and what is outside the language."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import Any, NoReturn

from tilefoundry.diag import Refusal, Span, refuse
from tilefoundry.ir.expr import Expr
from tilefoundry.ir.node import Node
from tilefoundry.lang.forms import Window
from tilefoundry.lang.frame import Frame

MOST_UNROLLED = 10_000
"""Steps of a compile-time loop; more is a run-time loop written wrongly."""

Evaluate = Callable[[Frame, ast.expr], Any]

CONSTRUCTS: dict[str, str] = {
    "NamedExpr": "an assignment inside an expression (:=)",
    "Lambda": "a lambda",
    "FunctionDef": "a function inside a function",
    "AsyncFunctionDef": "an async function",
    "ClassDef": "a class inside a function",
    "Try": "try",
    "TryStar": "try",
    "Match": "match",
    "Raise": "raise",
    "Delete": "del",
    "Global": "global",
    "Nonlocal": "nonlocal",
    "Import": "import",
    "ImportFrom": "import",
    "Break": "break",
    "Continue": "continue",
    "Yield": "yield",
    "YieldFrom": "yield",
    "Await": "await",
    "AsyncFor": "async for",
    "AsyncWith": "async with",
    "SetComp": "a set comprehension",
    "DictComp": "a dict comprehension",
    "Starred": "a star here",
}
"""Python's constructs outside the language, as an author calls them."""

FUNCTION = "write it as a function of the module, with @func, and call that; or its operations here"
PARAMETER = "take the value as a parameter, or return it"
FIXES: dict[str, str] = {
    CONSTRUCTS["NamedExpr"]: "assign it on a line of its own",
    CONSTRUCTS["Lambda"]: FUNCTION,
    CONSTRUCTS["FunctionDef"]: FUNCTION,
    CONSTRUCTS["AsyncFunctionDef"]: FUNCTION,
    "try": "leave it out: nothing raises while a program runs, all is refused before",
    "raise": "write assert, which is decided before the program runs",
    "match": "write if and elif on compile-time values",
    "del": "leave it out: a value lives as long as it is read",
    "global": PARAMETER,
    "nonlocal": PARAMETER,
    "break": "end the loop by its range, as in range(stop), or by the items that it goes over",
    "continue": "put the rest of the body under a compile-time if, or go over fewer items",
    "yield": "return the values as a tuple",
    "else of a for": "put it behind the loop",
    "else of a while": "put it behind the loop",
    "a declaration without a value": "give it a value, or leave it out",
    "nesting this deep": "give parts of it names, each on a line of its own",
}
"""What to write in the place of a construct, where it is not the same for all."""


OPERATORS = {
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "not_": "not",
    "invert": "~",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "format": "a format",
}
"""Functions of Python's operators as they are written."""


def construct(node: ast.AST) -> str:
    """What the author would call a syntax node."""
    name = type(node).__name__
    return CONSTRUCTS.get(name, name)


def outside(span: Span, what: str) -> NoReturn:
    """Refuse a construct of Python that the language has not."""
    fix = FIXES.get(what, "write it in plain statements, or compute it at module level")
    refuse("syntax-unsupported", span, what=what, fix=fix)


def compute(frame: Frame, node: ast.AST, python: Callable[..., Any], *args: Any) -> Any:
    """A Python operation on compile-time values; its failure is the author's."""
    try:
        return python(*args)
    except Refusal as refusal:
        raise placed(refusal, frame.span(node)) from None
    except (Exception, SystemExit) as error:  # the author's own objects: any failure is theirs
        divided = isinstance(error, ZeroDivisionError)
        if not divided and any(isinstance(a, Expr) for a in args):
            name = getattr(python, "__name__", "this")
            what = OPERATORS.get(name, name)
            shown = " and ".join(spell(a) for a in args)
            refuse("index-operation", frame.span(node), what=what, args=shown)
        refuse("constant-failed", frame.span(node), why=f"{type(error).__name__}: {error}")


def placed(refusal: Refusal, span: Span) -> Refusal:
    """The refusal, at ``span`` where it says no place of its own."""
    return Refusal(*(d if d.span else replace(d, span=span) for d in refusal.diags))


def spell(value: object) -> str:
    """A value in a message: a tensor by its type, anything else as Python shows it."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    text = repr(value.type if isinstance(value, Node) else value)
    if " at 0x" in text:  # an address says nothing, and differs from run to run
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def several(frame: Frame, node: ast.AST, value: Any) -> Sequence[Any]:
    """The items of a compile-time sequence; refuses what has none, or too many."""
    if isinstance(value, (Node, Expr, Window)) or not isinstance(value, Iterable):
        refuse("loop-iterable", frame.span(node), found=spell(value))
    items = compute(frame, node, lambda: list(islice(value, MOST_UNROLLED + 1)))
    if len(items) > MOST_UNROLLED:
        refuse("loop-unrolled", frame.span(node), most=MOST_UNROLLED)
    return items


def spread(frame: Frame, items: Sequence[ast.expr], evaluate: Evaluate) -> list[Any]:
    """Items of a display or positional arguments, ``*more`` among them."""
    out: list[Any] = []
    for item in items:
        if isinstance(item, ast.Starred):
            out += several(frame, item, evaluate(frame, item.value))
        else:
            out.append(evaluate(frame, item))
    return out
