"""What the matrix instructions share: which block of a tile a repeat is, and the registers of
an operand in the instruction's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.targets.contract.legality import Fit
from tilefoundry.targets.contract.pattern import FragmentPattern, MmaAtom, value_of
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.cuda.emit.held import digits_of, moving, numeric, register
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.text import per_word
from tilefoundry.tir.plans import plan_of
from tilefoundry.tir.program import Issue, View


@dataclass(frozen=True)
class Blocks:
    """Blocks of ``size`` along one axis of a tile: the first of each repeat of the unit at
    0, and what the coordinate on each mesh axis adds."""

    first: tuple[int, ...]
    steps: tuple[tuple[Axis, int], ...]


def blocks(view: View, dim: int, size: int) -> Blocks:
    """The blocks along axis ``dim`` of a fragment that a unit works on, in order."""
    split = [d for d in digits_of(view.buffer) if d.dim == dim and int(d.inner) >= size]  # type: ignore[arg-type]
    found = [
        n for n in range(0, view.shape[dim], size)
        if all(n // int(d.inner) % d.axis.extent == 0 for d in split)  # type: ignore[arg-type]
    ]  # fmt: skip
    steps = tuple((d.axis, int(d.inner) // size) for d in split)  # type: ignore[arg-type]
    return Blocks(tuple(n // size for n in found), steps)


class Product:
    """One issue of a matrix instruction: contract, fit, operands."""

    def __init__(self, k: Kernel, issue: Issue, mesh: Mesh) -> None:
        self.k, self.issue = k, issue
        atom = issue.attrs["atom"]
        contract = contract_at(atom.path)
        assert isinstance(contract, MmaAtom)
        self.contract = contract
        acc, lhs, rhs = issue.reads
        assert isinstance(acc, View) and isinstance(lhs, View) and isinstance(rhs, View)
        self.acc, self.lhs, self.rhs = acc, lhs, rhs
        for view in (acc, lhs, rhs):
            k.declare(view.buffer)
        found = plan_of(issue, mesh)
        if not isinstance(found, Fit):
            k.form(issue, f"{issue.instr} on {acc}", f"no plan fits it ({found})",
                   "take whole tiles as operands")  # fmt: skip
            raise AssertionError
        self.fit = found
        given = {n: _plain(v) for n, v in dict(atom.params).items()}
        self.env: Mapping[str, Any] = contract.completed({**given, **found.parameters},
                                                         lhs.dtype.bits)  # fmt: skip
        self.atom = found.atom
        self.rows = blocks(acc, 0, self.atom[0])
        self.columns = blocks(acc, 1, self.atom[1])

    def repeats(self) -> Iterator[tuple[int, int, int]]:
        """(m, n, k) blocks of the unit at 0, nested as ``order`` says, the first outermost."""
        depth = range(self.lhs.shape[1] // self.atom[2])
        along = (self.rows.first, self.columns.first, tuple(depth))
        order = tuple(self.issue.attrs["order"])
        for turn in product(*(along[axis] for axis in order)):
            at = dict(zip(order, turn, strict=True))
            yield at[0], at[1], at[2]

    def words(self, view: View, name: str, block: tuple[int, int]) -> list[int]:
        """The words of a fragment's block in the instruction's order of registers."""
        pattern = self.contract.operand(name, self.env)
        fragment = next(a for a in pattern.arrangements if isinstance(a, FragmentPattern))
        rows, columns = (value_of(x, self.env) for x in pattern.shape)
        if moving(view) is not None:
            self.k.form(self.issue, f"{view}", "an instruction's registers have fixed numbers",
                        "write the loop over its tiles as `for n in (0, 1)`")  # fmt: skip
        place, per = numeric(view), per_word(view.dtype)
        corner = (0,) * len(self.contract.execution_mesh.shape)
        out: list[int] = []
        for n in range(0, fragment.count(self.env), per):
            at = fragment.element(corner, n, self.env)
            crd = block[0] * rows + at[0], block[1] * columns + at[1]
            number = register(view.buffer, place(crd))
            assert number % per == 0, (view, number)
            out.append(number // per)
        return out


def _plain(value: Any) -> Any:
    text = str(value.name if hasattr(value, "bits") else value)
    return int(text) if text.isdigit() else text.split(".")[-1]
