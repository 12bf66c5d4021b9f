"""Rivals: a library's best expression of the same function, evaluated on whole tensors.

An expression is a Python expression over the function's parameter names. One that is not
given is derived: from the statements of a function without loops, or from the shapes of a
product. A derived rival is only a guess at what is the same; the judge holds its results to
the same predicates as the candidate's.
"""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.evaluate.bind import concrete
from tilefoundry.ir import expr as ix
from tilefoundry.ir.node import CALL, CONST, ITEM, Loop, Node, Return, Structural, walk
from tilefoundry.ir.program import Func, Module
from tilefoundry.ops.base import operands, torch_dtype
from tilefoundry.targets.instructions import meaning

LIBRARIES = ("torch", "torch.compile", "cublas", "numpy")
"""``cublas`` is torch's product of matrices on a CUDA device, and nothing else."""
STATEMENTS = "the function's statements, one call each"
UNITS = frozenset({"local", "insert_slice"})
"""Operations that only have a meaning for one unit, or that write a part."""
NUMPY: Mapping[str, str] = {
    **{n: n for n in ("exp", "exp2", "log", "log2", "sqrt", "square", "tanh", "sin", "cos")},
    **{n: n for n in ("ceil", "floor", "minimum", "maximum")},
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative",
    "abs": "absolute", "min": "minimum", "max": "maximum", "pow": "power", "where": "where",
}  # fmt: skip
"""Operations that are one function of numpy with the same rounding."""

Step = tuple[int, Callable[..., Any], tuple[int, ...]]


@dataclass(frozen=True)
class Stated:
    """``--against``: a library (with its expression, empty for a derived one) or a SOURCE."""

    library: str
    text: str

    @property
    def path(self) -> str:
        """The file of a SOURCE."""
        return self.text.partition(".py")[0] + ".py"

    @property
    def selector(self) -> str | None:
        return self.text.partition(".py")[2].removeprefix(":") or None

    def __str__(self) -> str:
        return f"{self.library}:{self.text}" if self.library and self.text else (
            self.library or self.text
        )  # fmt: skip


def stated(text: str) -> Stated:
    """A library, alone or as ``torch:EXPRESSION``, or a SOURCE."""
    library, colon, expression = text.partition(":")
    if library not in LIBRARIES:
        if ".py" not in text:
            near = difflib.get_close_matches(library, LIBRARIES, 1)
            did = f"; did you mean {near[0]}" if near else ""
            refuse(
                "measure-rival-form",
                None,
                text=text,
                why=f"neither one of {', '.join(LIBRARIES)} nor a file FILE.py{did}",
            )
        return Stated("", text)
    expression = expression.strip()
    if colon and not expression:
        refuse("measure-rival-form", None, text=text, why="nothing follows the colon")
    if expression:
        try:
            compile(expression, "--against", "eval")
        except SyntaxError as error:
            refuse("measure-rival-form", None, text=text, why=f"not an expression: {error.msg}")
    return Stated(library, expression)


def unknown_names(stated: Stated, parameters: Sequence[str]) -> list[str]:
    """Names in an expression that are neither parameters, nor the library, nor its own."""
    tree = ast.parse(stated.text, mode="eval")
    known = {name.replace(".", "_") for name in parameters} | {*dir(builtins)}
    known |= {"np", "numpy"} if stated.library == "numpy" else {"torch", "F"}
    known |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    known |= {node.id for node in used if not isinstance(node.ctx, ast.Load)}
    return [node.id for node in used if node.id not in known]


def expressions(module: Module, func: Func, library: str, dims: Mapping[str, int]) -> list[str]:
    """What may be the same function, the likeliest first; empty where nothing is known."""
    if library != "cublas" and _plan(func, library, dims) is not None:
        return [STATEMENTS]
    if not any(_is_product(n) for n in walk(func.body) if isinstance(n, Node)):
        return []
    return list(_products(func, library, dims))


def _is_product(node: Node) -> bool:
    if node.op.name == "schedule":
        return meaning(node.attrs["op"], node.span)[0] == "mma"
    return node.op.name == "matmul"


def _products(func: Func, library: str, dims: Mapping[str, int]) -> Sequence[str]:
    """Products of the first two matrices that have the shape of the result."""
    found = {p.name: _shape(p.tensor.shape, func, dims) for p in func.params}
    types = {p.name: p.tensor.dtype for p in func.params}
    result = func.result
    shape = getattr(result, "shape", None)
    wide = [name for name, s in found.items() if len(s) >= 2]
    if len(wide) != 2 or shape is None:
        return []
    (a, b), (sa, sb), want = wide, (found[wide[0]], found[wide[1]]), _shape(shape, func, dims)
    made: list[str] = []
    spell = (("{}", "{}"), ("{}", "{}.mT"), ("{}.mT", "{}"), ("{}.mT", "{}.mT"))
    for left, right in spell:
        m, k = sa[-2:] if left == "{}" else sa[:-3:-1]
        k2, n = sb[-2:] if right == "{}" else sb[:-3:-1]
        if k == k2 and want[-2:] == (m, n):
            x, y = left.format(a), right.format(b)
            made += _spelled(library, x, y, types[a], getattr(result, "dtype", types[a]))
    return made


def _spelled(library: str, x: str, y: str, given: Any, out: Any) -> list[str]:
    if library == "numpy":
        return [f"np.matmul({x}, {y})"]
    if given == out:
        return [f"torch.matmul({x}, {y})"]
    if not given.is_float:
        return [f"torch._int_mm({x}, {y})"]
    wide = f".to(torch.{out.torch})"
    return [f"torch.matmul({x}{wide}, {y}{wide})", f"torch.matmul({x}, {y}){wide}"]


def _known(func: Func, dims: Mapping[str, int]) -> dict[ix.Sym, int]:
    return {o: dims[o.name] for o in func.opens if o.name in dims}


def _shape(shape: Sequence[Any], func: Func, dims: Mapping[str, int]) -> tuple[int, ...]:
    known = _known(func, dims)
    return tuple(concrete(tuple(shape), lambda e: ix.evaluate(e, known)))


class Called:
    """A library's function in place of the program; ``weights`` by name are set before."""

    def __init__(self, function: Callable[..., Any], library: str, needed: Sequence[str]) -> None:
        self.function, self.library, self.needed = function, library, needed
        self.weights: Mapping[str, Any] = {}

    def __call__(self, *inputs: Any) -> Any:
        call, args = self.staged(inputs)
        found = call(*args)
        if isinstance(found, tuple | list):
            return tuple(self.tensors(x) for x in found)
        return self.tensors(found)

    def staged(self, tensors: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The function and its arguments in the library's own kind."""
        given = [*tensors, *(self.weights[name] for name in self.needed)]
        return self.function, [_array(t) for t in given] if self.library == "numpy" else given

    def tensors(self, found: Any) -> Any:
        if self.library != "numpy":
            return found
        import numpy
        import torch

        return torch.from_numpy(numpy.ascontiguousarray(found))


def _array(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except TypeError:
        refuse("measure-rival-form", None, text="numpy",
               why=f"numpy has no {str(tensor.dtype).removeprefix('torch.')}")  # fmt: skip


def subject(
    module: Module, func: Func, library: str, expression: str, dims: Mapping[str, int]
) -> Called:
    """What is called for ``expression``, or for the function's own statements."""
    needed = [p.name for p in func.params if p.name in func.weights]
    names = [p.name for p in func.params if p.name not in func.weights] + needed
    if expression == STATEMENTS:
        planned = _plan(func, library, dims)
        assert planned is not None
        return Called(_compiled(planned, library), library, needed)
    scope: dict[str, Any] = {}
    if library != "numpy":
        import torch

        scope |= {"torch": torch, "F": torch.nn.functional}
    else:
        import numpy

        scope |= {"np": numpy, "numpy": numpy}
    # a weight of a child module is written with _ for its dots
    heads = ", ".join(name.replace(".", "_") for name in names)
    function = eval(compile(f"lambda {heads}: {expression}", "--against", "eval"), scope)
    return Called(_compiled(function, library), library, needed)


def _compiled(function: Callable[..., Any], library: str) -> Callable[..., Any]:
    if library != "torch.compile":
        return function
    import torch

    return torch.compile(function, dynamic=False)


def _plan(func: Func, library: str, dims: Mapping[str, int]) -> Callable[..., Any] | None:
    """The function's statements on whole tensors; None where units or steps matter."""
    known = _known(func, dims)
    slots: dict[Node, int] = {p: n for n, p in enumerate(_ordered(func))}
    values: list[Any] = [None] * len(slots)
    steps: list[Step] = []
    returned: tuple[int, ...] = ()
    if func.variants:
        return None
    for stmt in walk(func.body):
        if isinstance(stmt, Loop):
            return None
        if isinstance(stmt, Return):
            returned = tuple(slots[v] for v in stmt.values)
        if not isinstance(stmt, Node):
            continue
        slots[stmt] = len(values)
        values.append(None)
        try:
            fixed = concrete({"attrs": dict(stmt.attrs), "type": stmt.type},
                             lambda e: ix.evaluate(e, known))  # fmt: skip
        except (KeyError, ValueError):  # depends on a unit's place
            return None
        if stmt.op is CONST:
            values[slots[stmt]] = _constant(fixed["attrs"]["value"], stmt, library)
            continue
        made = _function(stmt, fixed["attrs"], fixed["type"], library)
        if made is None:
            return None
        args = tuple(-1 if a is None else slots[a] for a in operands(stmt))
        steps.append((slots[stmt], made, args))
    count = len(_ordered(func))

    def run(*given: Any) -> Any:
        held = list(values)
        held[:count] = given
        held.append(None)  # place -1: an operand that is left out
        for out, function, args in steps:
            held[out] = function(*[held[a] for a in args])
        return held[returned[0]] if len(returned) == 1 else tuple(held[r] for r in returned)

    return run


def _ordered(func: Func) -> list[Node]:
    plain = [p for p in func.params if p.name not in func.weights]
    return plain + [p for p in func.params if p.name in func.weights]


def _constant(value: Any, node: Node, library: str) -> Any:
    import torch

    kind = torch.float64 if isinstance(value, float) else None
    made = torch.tensor(value, dtype=kind).to(torch_dtype(node.tensor.dtype))
    if library != "numpy":
        return made
    return None if made.dtype is torch.bfloat16 else made.numpy()[()]


def _function(node: Node, attrs: Any, type: Any, library: str) -> Callable[..., Any] | None:
    """One statement as a function of whole tensors."""
    name = node.op.name
    if node.op is ITEM:
        return lambda x, at=attrs["index"]: x[at]
    if node.op is CALL or isinstance(node.op, Structural) or name in UNITS:
        return None
    if name == "reshard":
        return lambda x: x
    if library == "numpy":
        return _numpy(name, attrs, type)
    if name in BEST and (made := BEST[name](attrs, node)) is not None:
        return made
    if name == "schedule":
        attrs = {**attrs, "meaning": meaning(attrs["op"], node.span)}
    op: Any = node.op
    return lambda *args: op.evaluate(list(args), attrs, type)


def _numpy(name: str, attrs: Any, type: Any) -> Callable[..., Any] | None:
    import numpy as np

    if name == "matmul" and attrs["out_dtype"] is None:
        left, right = attrs["a_layout"] == "km", attrs["b_layout"] == "nk"
        return lambda a, b: np.matmul(a.mT if left else a, b.mT if right else b)
    if name in ("reshape", "cast"):
        if name == "reshape":
            return lambda x: x.reshape(type.shape)
        kind = getattr(np, str(type.dtype.torch), None)
        return None if kind is None else lambda x: x.astype(kind)
    return getattr(np, NUMPY[name]) if name in NUMPY else None


def _torch_matmul(attrs: Any, node: Node) -> Callable[..., Any] | None:
    import torch

    if attrs["out_dtype"] not in (None, node.args[0].tensor.dtype) or any(
        not a.tensor.dtype.is_float or a.tensor.dtype.is_narrow for a in node.args
    ):
        return None
    left, right = attrs["a_layout"] == "km", attrs["b_layout"] == "nk"
    return lambda a, b: torch.matmul(a.mT if left else a, b.mT if right else b)


def _torch_softmax(attrs: Any, node: Node) -> Callable[..., Any] | None:
    import torch

    return lambda x, axis=attrs["axis"]: torch.softmax(x, axis)


def _torch_rms_norm(attrs: Any, node: Node) -> Callable[..., Any] | None:
    import torch

    x = node.args[0].tensor
    if any(a.tensor.dtype != x.dtype for a in node.args):
        return None
    norm = torch.nn.functional.rms_norm
    return lambda x, w=None, eps=attrs["eps"]: norm(x, x.shape[-1:], w, eps)


def _torch_once(name: str) -> Callable[[Any, Node], Callable[..., Any] | None]:
    """torch's function of a name, which rounds once; its definition here goes by way of f32."""

    def made(attrs: Any, node: Node) -> Callable[..., Any] | None:
        import torch

        kind = node.tensor.dtype
        if not kind.is_float or any(a.tensor.dtype != kind for a in node.args):
            return None
        return getattr(torch, name)

    return made


ONCE = ("add", "sub", "mul", "div", "neg", "abs", "maximum", "minimum")
BEST: Mapping[str, Callable[[Any, Node], Callable[..., Any] | None]] = {
    **{name: _torch_once(name) for name in ONCE},
    "matmul": _torch_matmul,
    "softmax": _torch_softmax,
    "rms_norm": _torch_rms_norm,
}
"""Operations that torch has a faster function for than their definition."""
