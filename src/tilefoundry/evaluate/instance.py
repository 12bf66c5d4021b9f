"""Module objects on torch tensors: functions evaluate, plain methods orchestrate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.evaluate.run import Evaluator
from tilefoundry.lang.decl import FuncDecl, ModuleList, declaration
from tilefoundry.lang.parse import parse_module


def build(cls: type, weights: Mapping[str, Any], device: str, path: str) -> Any:
    """An object of ``cls`` at ``path`` of the tree, with its children."""
    decl = declaration(cls)
    module = parse_module(cls)
    lead = f"{path}." if path else ""
    obj: Any = object.__new__(cls)
    own = {n: v for n, v in ((k.removeprefix(lead), v) for k, v in weights.items()) if "." not in n}
    if lead:
        own = {
            k.removeprefix(lead): v
            for k, v in weights.items()
            if k.startswith(lead) and "." not in k.removeprefix(lead)
        }
    evaluator = Evaluator(module, device)

    def call(func: FuncDecl, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        found = module.funcs[func.name]
        names = [p.name for p in found.params if p.name not in found.weights]
        for name in kwargs:
            if name not in names[len(args) :]:
                known = " ".join(names[len(args) :]) or "none"
                refuse("input-unknown", found.span, func=func.name, name=name, known=known)
        inputs = [*args, *(kwargs[n] for n in names[len(args) :] if n in kwargs)]
        out = evaluator.call(found, inputs, own)
        return out[0] if len(out) == 1 else out

    obj.__dict__["__tilefoundry_call__"] = call
    for name, child in decl.children.items():
        if isinstance(child, ModuleList):
            made: Any = [
                build(child.module, weights, device, f"{lead}{name}.{i}")
                for i in range(child.count)
            ]
        else:
            made = build(child, weights, device, lead + name)
        obj.__dict__[name] = made
    return obj
