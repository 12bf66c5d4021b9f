"""Names of what a kernel speaks of: symbols, slots of shared memory, tensor maps, registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.diag import Span, refuse
from tilefoundry.emit.alike import held_alike
from tilefoundry.emit.writer import Writer
from tilefoundry.ir.expr import Dim, Sym, floordiv
from tilefoundry.ir.mesh import Coord
from tilefoundry.targets.cuda.emit.held import Domain, count, domain, moving, numeric, register
from tilefoundry.targets.cuda.emit.index import At
from tilefoundry.targets.cuda.emit.scopes import Turns
from tilefoundry.targets.cuda.emit.text import cuda_dim, enclosed, per_word
from tilefoundry.targets.cuda.instr.tma import TensorMap
from tilefoundry.tir.program import Buffer, Issue, View


@dataclass(frozen=True)
class MapUse:
    """A tensor map that a kernel takes: the parameter it describes and its plan."""

    name: str
    buffer: Buffer
    plan: TensorMap


class Places:
    """What a kernel's names stand for while it is written."""

    out: Writer
    names: dict[object, str]
    maps: dict[object, MapUse]
    said: dict[Dim, str]
    turns: Turns
    now: Issue | None

    def declare(self, buffer: Buffer) -> None:
        """Gives a buffer a name, and an array where a thread holds it."""
        raise NotImplementedError

    def form(self, stmt: object, what: str, why: str, fix: str) -> None:
        """Refuses a form that there are no words for."""
        span: Span | None = getattr(stmt, "span", None)
        refuse("emit-form", span or self.out.span, what=what, why=why, fix=fix)

    # Names and places

    def symbol(self, sym: Sym) -> str:
        key: object = sym.axis if isinstance(sym, Coord) else sym
        return self.names[key]

    def dim(self, x: Dim) -> str:
        return self.said.get(x) or cuda_dim(self.turns.replaced(x), self.symbol)

    def shared(self, buffer: Buffer, slot: Dim, memory: str = "smem") -> str:
        """Where a slot of a buffer starts in a CTA's shared memory, as a pointer."""
        self.declare(buffer)
        return f"{memory} + {self.slot_offset(buffer, slot)}"

    def address(self, buffer: Buffer, slot: Dim) -> str:
        """The same as an address of shared memory."""
        self.declare(buffer)
        return f"shared + {self.slot_offset(buffer, slot)}"

    def slot_offset(self, buffer: Buffer, slot: Dim) -> str:
        """Bytes from the start of shared memory to a slot."""
        places = buffer.offsets
        if isinstance(slot, int) or len(places) == 1:
            return str(places[slot if isinstance(slot, int) else 0])
        step = places[1] - places[0]
        assert all(p == places[0] + n * step for n, p in enumerate(places)), buffer
        first = f"{places[0]} + " if places[0] else ""
        return f"{first}{_product(self.dim(slot))} * {step}"

    def map_of(self, buffer: Buffer, plan: TensorMap) -> str:
        """The name of the tensor map with this plan."""
        key = (buffer, plan.maps, plan.swizzle, plan.bits)
        if key not in self.maps:
            stem = f"{self.names[buffer]}_map"
            taken = sum(m.buffer is buffer for m in self.maps.values())
            name = self.out.name(stem if not taken else f"{stem}_{taken + 1}")
            self.maps[key] = MapUse(name, buffer, plan)
        return self.maps[key].name

    def held(self, view: View) -> Domain:
        """The elements of a view in registers that a thread holds."""
        self.declare(view.buffer)
        found = domain(view)
        if isinstance(found, str):
            self.form(None, f"{view}", found, "cut registers at multiples of what each unit holds")
            raise AssertionError
        return found

    def registers(self, view: View, over: Domain) -> list[int]:
        """The registers of ``view`` that hold the elements of ``over``."""
        place, buffer = numeric(view), view.buffer
        out = [register(buffer, place(at)) for at in over.at]
        for q in {0, over.size // 2, over.size - 1}:
            far = tuple(a + b for a, b in zip(over.at[q], over.last, strict=True))
            if register(buffer, place(far)) != out[q]:
                self.form(None, f"{view}", "threads hold its elements in different registers",
                          held_alike(self.now, view))  # fmt: skip
        return out

    def word(self, view: View, at: At, numbers: list[int]) -> str:
        """The words that hold the registers ``numbers``, one each turn."""
        per = per_word(view.dtype)
        text = at.of([n // per for n in numbers])
        moves = moving(view)
        if moves is not None:
            assert not isinstance(moves, str), moves
            sym, by = moves
            if by % per:
                self.form(None, f"{view}", f"a step of {sym} is a part of a register",
                          f"let it take a multiple of {per} elements of each unit")  # fmt: skip
            turn = floordiv(sym.expr(), sym.multiple) * (by // per)
            text = f"{self.dim(turn)} + {text}"
        if view.buffer.slots > 1:
            size = -(-count(view.buffer) // per)
            text = f"{_product(self.dim(view.slot))} * {size} + {text}"
        return f"{self.names[view.buffer]}[{text}]"


def _product(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() or enclosed(text) else f"({text})"
