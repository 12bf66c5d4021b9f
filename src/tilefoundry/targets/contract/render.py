"""A contract as text and as a record: what ``schedule facts`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from tilefoundry.ir.shard import shape_text
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.derived import DerivedInstr, TiledInstr
from tilefoundry.targets.contract.pattern import (
    Case,
    FragmentPattern,
    MmaAtom,
    OperandPattern,
    ParamDef,
    SwitchPattern,
    TensorPattern,
)
from tilefoundry.targets.contract.registry import Contract
from tilefoundry.targets.contract.unit import SCOPES, UnitInstr, any_units

ENUMS = {"form": "Form", "a_major": "Major", "b_major": "Major"}
"""Parameters whose values are spelled as members, ``Form.SS``."""


def spelled(parameter: str, value: str) -> str:
    """A parameter's value as the author names it."""
    owner = ENUMS.get(parameter)
    return f"{owner}.{value}" if owner else value


def facts_text(atom: Contract, target: str, level: str) -> str:
    """The whole contract, in lines that can be grepped."""
    if not isinstance(atom, MmaAtom):
        return _plain_text(atom, target, level)
    lines = [
        f"T.{atom.path}",
        f"  target             {target}",
        f"  target capability  {atom.capability}",
        f"  execution mesh     {atom.execution_mesh.text()}",
        "                       predicates:",
    ]
    lines += [f"                         {p}" for p in atom.execution_mesh.predicates()]
    lines.append("  parameters")
    width = max(len(p.name) for p in atom.parameters)
    for param in atom.parameters:
        lines += _parameter(param, width)
    lines.append("  operands")
    for name in "CAB":
        lines += _operand(name, getattr(atom, name), (), atom)
    lines.append(f"  completion         {_completion(atom)}")
    if atom.sums is not None:
        lines.append(f"  sums               {atom.sums.text()}")
    if atom.lets:
        lines.append("  where              " + ", ".join(f"{n} = {v}" for n, v in atom.lets))
    lines += [f"  resource           {text}" for text in atom.resources]
    lines.append(f"  source             {atom.source}")
    return "\n".join(lines)


Plain: TypeAlias = UnitInstr | CopyInstr | DerivedInstr | TiledInstr


def _plain(atom: Plain, target: str, level: str) -> dict[str, Any]:
    """What there is to say of an instruction without a fixed tile, by label."""
    words: dict[str, Any] = {"target": target}
    if atom.capability:
        words["target capability"] = atom.capability
    if isinstance(atom, TiledInstr):
        words |= {"parameters": "atom: a matrix instruction with its parameters"}
        words |= {"operands": "(accumulator, lhs, rhs); the result is the accumulator's"}
        words["rules"] = list(TILES)
    elif isinstance(atom, DerivedInstr):
        words |= {"participants": atom.who, "orders": atom.orders}
        words |= {"rules": list(atom.rules)} if atom.rules else {}
        words["scheduled"] = "never: derived from what the program reads and writes"
    elif isinstance(atom, UnitInstr):
        words["execution mesh"] = any_units(level)
        words["implements"] = [f"tf.{op}" for op in atom.ops]
        words["operands"] = f"in {' or '.join(atom.storages)}, as the units hold them"
        if atom.dtypes:
            words["operands"] = f"{' or '.join(atom.dtypes)} {words['operands']}"
        if atom.combines:
            words["scopes"] = list(SCOPES)
            words["rules"] = list(COMBINING)
    else:
        words["execution mesh"] = any_units(level)
        words["moves"] = atom.moves_text()
        words |= {"rules": list(atom.rules)} if atom.rules else {}
        how = " or ".join(atom.completion).replace("none", "with the instruction")
        words["completion"] = f"{how}; {atom.proxy} proxy"
    if atom.source:
        words["source"] = atom.source
    return words


TILES = (
    "mesh, dtypes and operands as the atom's own contract says, for each of its repeats",
    "repeat over (m, n, k) = the tile's extents over the atom's = bind x serial",
    "bind: parts of different groups of units; serial: issued in turn, in `order`",
)
COMBINING = (
    "thread: no axis is combined; each unit reduces what it holds",
    "warp: axes that are bit fields of the lane's number (power-of-two extent and stride)",
    "cta: other axes of the CTA's threads, through scratch in shared memory",
    "cluster: axes of a cluster's CTAs, each reading the terms in all their shared memories",
    "grid: other axes of CTAs, through a workspace in device memory",
)


def _plain_text(atom: Plain, target: str, level: str) -> str:
    lines = [f"T.{atom.path}"]
    for label, value in _plain(atom, target, level).items():
        if label == "rules":
            lines.append("  rules")
            lines += [f"    {rule}" for rule in value]
            continue
        text = " ".join(value) if isinstance(value, list) else value
        lines.append(f"  {label:<17}  {text}")
    return "\n".join(lines)


def _completion(atom: MmaAtom) -> str:
    if atom.completion == "none":
        return f"with the instruction; {atom.proxy} proxy"
    return f"{atom.completion} group: commit, then wait; operands in smem by the {atom.proxy} proxy"


def _parameter(param: ParamDef, width: int) -> Iterator[str]:
    lead = f"    {param.name:<{width}}  "
    blank = " " * len(lead)
    if not param.cases:
        yield f"{lead}any value"
        yield f"{blank}  predicates:"
        for predicate in param.predicates:
            yield f"{blank}    {_predicate(param, predicate)}"
        return
    conditions = [_condition(case) for case in param.cases]
    pad = max(map(len, conditions))
    for n, (case, words) in enumerate(zip(param.cases, conditions, strict=True)):
        domain = _domain(param, case)
        default = ""
        if n == 0 and param.default and len(case.values) > 1:
            default = f" (default {spelled(param.name, param.default)})"
        yield f"{lead if n == 0 else blank}{words:<{pad}}  {domain}{default}"


def _predicate(param: ParamDef, predicate: Any) -> str:
    values = getattr(predicate, "values", None)
    if values is None:
        return predicate.text()
    return f"{param.name} in {{{', '.join(spelled(param.name, v) for v in values)}}}"


def _condition(case: Case) -> str:
    return ", ".join(f"{name}={'|'.join(values)}" for name, values in case.when)


def _domain(param: ParamDef, case: Case) -> str:
    values = [spelled(param.name, v) for v in case.values]
    return values[0] if len(values) == 1 else f"{param.name} in {{{', '.join(values)}}}"


def _operand(
    name: str, pattern: OperandPattern, when: tuple[str, ...], atom: MmaAtom
) -> Iterator[str]:
    if isinstance(pattern, SwitchPattern):
        for value, inner in pattern.patterns:
            condition = f"{pattern.parameter}={spelled(pattern.parameter, value)}"
            yield from _operand(name, inner, (*when, condition), atom)
        return
    assert isinstance(pattern, TensorPattern)
    count = len(pattern.arrangements)
    plural = "arrangement" if count == 1 else "arrangements"
    condition = f" [{', '.join(when)}]" if when else ""
    yield (
        f"    {name}  shape={shape_text(pattern.shape)} dtype={pattern.dtype} "
        f"storage={pattern.storage}, held in {count} {plural}:{condition}"
    )
    for arrangement in pattern.arrangements:
        if isinstance(arrangement, FragmentPattern):
            yield f"         {arrangement.text(atom.execution_mesh.text())}"
            yield f"           registers, fastest first: modes {_order(arrangement.registers)}"
        elif arrangement.why:
            starts = f"; each atom at a multiple of {arrangement.block} bytes"
            yield f"         {arrangement.text()}"
            yield f"           {arrangement.why}{starts if arrangement.block > 1 else ''}"
        else:
            spans = ", ".join(map(str, arrangement.spans))
            yield f"         {arrangement.text()}  swizzle span {spans} bytes"
            rules = [f"{n} % ({unit}) == 0" for n, unit in arrangement.multiples]
            yield f"           W = span / element bytes, {', '.join(rules)}"


def _order(modes: Iterable[int]) -> str:
    return ", ".join(map(str, modes))


def facts_record(atom: Contract, target: str, level: str) -> dict[str, Any]:
    """The contract as a record; the text's lines stand in it too."""
    if not isinstance(atom, MmaAtom):
        plain = _plain(atom, target, level)
        return {
            "instruction": f"T.{atom.path}",
            **{k.replace(" ", "_"): v for k, v in plain.items()},
        }
    return {
        "instruction": f"T.{atom.path}",
        "target": target,
        "capability": atom.capability,
        "mesh": atom.execution_mesh.text(),
        "mesh_predicates": list(atom.execution_mesh.predicates()),
        "parameters": [
            {
                "name": p.name,
                "predicates": [_predicate(p, x) for x in p.predicates],
                "cases": [
                    {"when": _condition(c), "values": [spelled(p.name, v) for v in c.values]}
                    for c in p.cases
                ],
                "default": p.default and spelled(p.name, p.default),
            }
            for p in atom.parameters
        ],
        "operands": [
            line.strip() for name in "CAB" for line in _operand(name, getattr(atom, name), (), atom)
        ],
        "completion": atom.completion,
        "proxy": atom.proxy,
        **({"sums": atom.sums.text()} if atom.sums is not None else {}),
        **({"resources": list(atom.resources)} if atom.resources else {}),
        "source": atom.source,
    }
