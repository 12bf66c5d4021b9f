"""Every site without a chosen instruction, against every contract of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import Node, nodes
from tilefoundry.ir.program import Module
from tilefoundry.ir.types import TensorType
from tilefoundry.ops.base import operands, seen
from tilefoundry.targets.contract.copy import CopyInstr, Plan, Side, record
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.match import shared_layouts
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.place import window_of
from tilefoundry.targets.contract.registry import Contract, contracts
from tilefoundry.targets.contract.render import spelled
from tilefoundry.targets.contract.unit import UnitInstr

PLACED = ("slice", "insert_slice", "schedule", "empty", "local")
"""Not sites: views, the place of a value, and what already has an instruction."""


@dataclass(frozen=True)
class Candidate:
    """One instruction at one site: a fit (None for one without a tile) or what is unmet."""

    contract: Contract
    answer: Fit | Plan | Unmet | None

    @property
    def fits(self) -> bool:
        return not isinstance(self.answer, Unmet)


@dataclass(frozen=True)
class Site:
    """One operation without an instruction and what was tried for it."""

    func: str
    node: Node
    types: tuple[TensorType | None, ...]
    candidates: tuple[Candidate, ...]


def sites(module: Module, func: str) -> list[Site]:
    """Sites of one function (all functions if ``func`` is empty), in program order."""
    if module.target is None:
        refuse("candidates-no-target", module.span, module=module.name)
    target = module.target.load()
    known = contracts(target)
    declared = tuple((t.level, t.size) for t in module.topologies)
    chosen = [module.funcs[func]] if func else list(module.funcs.values())
    out: list[Site] = []
    for f in chosen:
        for node in nodes(f.body):
            if not hasattr(node.op, "params") or node.op.name in PLACED:
                continue
            mesh = Mesh(node.mesh.axes, declared)  # a fix names as many units as are declared
            site = _site(f.name, node, mesh, known, target.levels[-1])
            if site is not None:
                out.append(site)
    return out


def _site(
    func: str, node: Node, mesh: Mesh, known: Sequence[Contract], level: str
) -> Site | None:
    if not isinstance(node.type, TensorType):
        return None
    types = tuple(None if n is None else seen(n.tensor, node.mesh) for n in operands(node))
    tried: list[Candidate] = []
    for contract in known:
        if isinstance(contract, MmaAtom):
            if node.op.name == "matmul" and _planes(types):
                tried.append(Candidate(contract, _mma(contract, node, mesh, types)))
        elif isinstance(contract, CopyInstr):
            if node.op.name == "reshard" and types[0] and types[0].storage != node.type.storage:
                source = Side(types[0], window_of(operands(node)[0]))
                answer = contract.judge(level, mesh, source, Side(node.type))
                tried.append(Candidate(contract, answer))
        elif isinstance(contract, UnitInstr) and node.op.name in contract.ops:
            tried.append(Candidate(contract, contract.judge(level, mesh, types, node.type)))
    site = Site(func, node, types, tuple(tried))
    return site if tried or node.op.name == "matmul" else None


def _planes(types: Sequence[TensorType | None]) -> bool:
    """Whether the operands have two axes each, as tiles of matrix instructions have."""
    return all(t is not None and t.rank == 2 for t in types)


def _mma(
    atom: MmaAtom, node: Node, mesh: Mesh, types: Sequence[TensorType | None]
) -> Fit | Unmet:
    lhs, rhs = types
    assert lhs is not None and rhs is not None
    left, right = (window_of(n) for n in operands(node))
    return judge(atom, mesh, lhs, rhs, node.tensor, windows=(left, right))


def sites_text(found: Sequence[Site]) -> str:
    """One block a site: its operands, then a line or two for each instruction."""
    lines = [f"# candidates sites={len(found)} precision=exact"]
    for site in found:
        node = site.node
        line = node.span.line if node.span else 0
        names = [p.name for p in getattr(node.op, "params", ()) if not hasattr(p, "convert")]
        args = "  ".join(f"{n}={t}" for n, t in zip(names, site.types, strict=False) if t)
        unit = node.mesh.levels[-1] if node.mesh.levels else "device"
        name = node.name or "_"
        lines.append(f"  {name}:{line}  tf.{node.op.name}  per {unit}  {args}  result={node.type}")
        if not site.candidates:
            lines.append(f"    none        {_lacking(site)}")
        for candidate in site.candidates:
            lines += _candidate_lines(candidate)
        for c in site.candidates:
            lines += [f"    would fit   T.{c.contract.path}  {fix}" for fix in fixes(site, c)]
    return "\n".join(lines)


def _lacking(site: Site) -> str:
    """Why a product has no instruction to try."""
    if _planes(site.types):
        return ("the target has no matrix instruction: name one that has (`tilefoundry schedule "
                "facts` lists them), or write it as products and sums")  # fmt: skip
    return "matrix instructions take operands of two axes: loop over the others, as a[i] and b[i]"


def fixes(site: Site, candidate: Candidate) -> list[str]:
    """What would meet the clause that is not met, the best first: for an operand in shared
    memory every layout that its dtype, major and tile allow."""
    answer, atom = candidate.answer, candidate.contract
    if not isinstance(answer, Unmet) or not answer.fix:
        return []
    out = [answer.fix]
    operand = dict(zip("AB", site.types, strict=False)).get(answer.clause)
    if isinstance(atom, MmaAtom) and operand is not None and operand.storage == "smem":
        found = shared_layouts(atom, answer.clause, operand, answer.parameters)
        out += [text for text in found if text not in out]
    return out


def _candidate_lines(candidate: Candidate) -> list[str]:
    answer, path = candidate.answer, f"T.{candidate.contract.path}"
    if isinstance(answer, Unmet):
        lines = [f"    refused     {path}{_parameters(answer.parameters)}"]
        lines.append(
            f"                  {answer.clause}: {answer.got} does not match {answer.expected}"
        )
        return lines
    if answer is None:
        return [f"    fits        {path}"]
    if not isinstance(answer, Fit):
        return [f"    fits        {path}  {answer.text()}".rstrip()]
    return [
        f"    fits        {path}{_parameters(answer.parameters)}  repeat={answer.repeat} "
        f"bind={answer.bind}"
    ]


def _parameters(values: Any) -> str:
    words = [
        f"{k}={spelled(k, v).split('.')[-1] if isinstance(v, str) else v}"
        for k, v in values.items()
    ]
    return f"  {', '.join(words)}" if words else ""


def sites_record(found: Sequence[Site]) -> dict[str, Any]:
    """The same as a record."""
    return {
        "sites": [
            {
                "func": s.func,
                "name": s.node.name,
                "line": s.node.span.line if s.node.span else None,
                "op": f"tf.{s.node.op.name}",
                "result": str(s.node.type),
                "candidates": [_candidate_record(s, c) for c in s.candidates],
                "none": None if s.candidates else _lacking(s),
            }
            for s in found
        ]
    }


def _candidate_record(site: Site, candidate: Candidate) -> dict[str, Any]:
    answer = candidate.answer
    out: dict[str, Any] = {"instruction": f"T.{candidate.contract.path}", "fits": candidate.fits}
    if isinstance(answer, Unmet):
        out |= {
            "clause": answer.clause,
            "expected": answer.expected,
            "got": answer.got,
            "fix": answer.fix,
            "would_fit": fixes(site, candidate),
        }
    elif isinstance(answer, Fit):
        out |= {
            "parameters": dict(answer.parameters),
            "repeat": list(answer.repeat),
            "bind": list(answer.bind),
        }
    elif answer is not None:
        out |= record(answer)
    return out
