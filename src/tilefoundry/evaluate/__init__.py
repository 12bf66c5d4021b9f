"""The evaluator: what a program means, on torch tensors.

Units execute in lock-step: a statement takes effect for all units before the next one.
Only values that depend on a unit's coordinates are kept per unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.program import Module


def evaluate(
    module: Module,
    func: str,
    inputs: Sequence[Any],
    weights: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> tuple[Any, ...]:
    """The results of ``func`` on ``inputs`` (parameter order, weights left out).

    Open extents are bound from the inputs' shapes; refuses wrong shapes, dtypes,
    missing weights, reads and writes out of range, and writes of different units that
    disagree.
    """
    from tilefoundry.evaluate.run import Evaluator

    if func not in module.funcs:
        known = " ".join(module.funcs) or "none"
        refuse("selector-unknown", module.span, what="function", name=func, known=known)
    return Evaluator(module, device).call(module.funcs[func], list(inputs), dict(weights or {}))


def weight_types(module: Module) -> dict[str, Any]:
    """Every weight of the module tree by full path name (``layers.0.q_proj``), each once.

    Refuses one name declared with two types.
    """
    out: dict[str, Any] = {}
    stack = [("", module)]
    while stack:
        path, inner = stack.pop(0)
        lead = f"{path}." if path else ""
        for func in inner.funcs.values():
            for param in func.params:
                if param.name not in func.weights:
                    continue
                name = lead + param.name
                if out.setdefault(name, param.type) != param.type:
                    refuse("weight-types", param.span, name=name, a=out[name], b=param.type)
        stack += [(lead + name, child) for name, child in inner.children.items()]
    return out


def checkpoint_names(module: Module) -> dict[str, str]:
    """The name in a checkpoint of every weight, by full path name.

    A module's ``weight_names`` maps its own weights and the attributes of its children
    (``layers.0`` keeps its index); what is not listed keeps its name.
    """
    out: dict[str, str] = {}
    stack = [("", "", module)]
    while stack:
        path, stored, inner = stack.pop(0)
        for func in inner.funcs.values():
            for name in sorted(func.weights):
                out[path + name] = stored + inner.weight_names.get(name, name)
        for name, child in inner.children.items():
            attribute, dot, index = name.partition(".")
            renamed = inner.weight_names.get(attribute, attribute)
            stack.append((f"{path}{name}.", f"{stored}{renamed}{dot}{index}.", child))
    return out


def instantiate(cls: type, weights: Mapping[str, Any], device: str = "cpu") -> Any:
    """An object of the module class whose functions and plain methods run on tensors.

    ``weights`` by full path name; children become objects of their own.
    """
    from tilefoundry.evaluate.instance import build

    return build(cls, weights, device, "")


__all__ = ["checkpoint_names", "evaluate", "instantiate", "weight_types"]
