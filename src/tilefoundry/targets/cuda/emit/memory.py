"""What a thread reads and writes in shared and global memory: a pointer, and constant steps.

The address of a thread's first element is computed once; the others are a constant number of
elements away. Swizzled: where the thread's bits and the steps' do not meet, the swizzle of
their sum is the exclusive or of their swizzles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilefoundry.emit.address import address
from tilefoundry.ir.expr import Dim, Expr, bounds, multiple_of
from tilefoundry.layout import Swizzle
from tilefoundry.targets.cuda.emit.held import Domain, Place, moved, numeric
from tilefoundry.targets.cuda.emit.index import At
from tilefoundry.targets.cuda.emit.text import bits_of, from_memory, stored_type
from tilefoundry.tir.program import Buffer, View

if TYPE_CHECKING:
    from tilefoundry.targets.cuda.emit.kernel import Kernel

WIDTHS = (16, 8, 4, 2, 1)


def linear(buffer: Buffer, place: Place) -> int:
    """The element's number from the buffer's start, before a swizzle."""
    out = address(buffer, place)
    assert isinstance(out, int)
    return out


def bits_in(x: Dim) -> int:
    """A mask of the bits that values of ``x`` may have, ``x`` never being negative."""
    lo, hi = bounds(x)
    if lo < 0 or hi > 2**62:
        return -1
    terms = x.terms if isinstance(x, Expr) else (((), x),)
    mask, clash = 0, False
    for mono, coef in terms:
        part = Expr(((mono, coef),)) if mono else coef
        low, top = multiple_of(part), int(bounds(part)[1])
        if not top:
            continue
        mine = (1 << top.bit_length()) - (low & -low if low else 1)
        clash = clash or bool(mask & mine) or bounds(part)[0] < 0
        mask |= mine
    if clash:
        least = multiple_of(x)
        return (1 << int(hi).bit_length()) - (least & -least if least else 1)
    return mask


class Access:
    """The elements ``domain.at`` of ``view`` as one thread reaches them, in the shared memory
    that ``memory`` points to.

    Writes the thread's pointer when made.
    """

    def __init__(
        self, k: Kernel, view: View, domain: Domain, write: bool = False, memory: str = "smem"
    ) -> None:
        self.k, self.view, self.write, self.memory = k, view, write, memory
        self.domain = domain
        self.size = max(1, view.dtype.bits // 8)
        buffer = view.buffer
        place = numeric(view)
        flat = [linear(buffer, place(at)) for at in domain.at]
        first = moved(view, [b + a for b, a in zip(domain.base, domain.at[0], strict=True)])
        start = address(buffer, first)
        self.steps = [x - flat[0] for x in flat]
        self.start = start
        if not self._constant(start):
            k.form(None, f"{view}", "the steps between a thread's elements differ from thread "
                   "to thread", "distribute it along whole blocks of the layout")  # fmt: skip
        self.edges = self._edges(first)
        self._pointer()

    def _constant(self, start: Dim) -> bool:
        """The steps are those of every thread: shown for the turns that are powers of two."""
        domain = self.domain
        probes = {1 << n for n in range(domain.size.bit_length())} | {domain.size - 1}
        for q in sorted(p for p in probes if p < domain.size):
            at = [b + a for b, a in zip(domain.base, domain.at[q], strict=True)]
            if address(self.view.buffer, moved(self.view, at)) - start != self.steps[q]:
                return False
        return True

    def _edges(self, first: tuple[Dim, ...]) -> list[tuple[Dim, int, list[int]]]:
        """Coordinates that may be outside: of the first element, extent, steps to the others."""
        view = self.view
        if view.fill is None:
            return []
        place = numeric(view)
        places = [place(at) for at in self.domain.at]
        out: list[tuple[Dim, int, list[int]]] = []
        for dim, extent in enumerate(view.buffer.shape):
            steps = [p[dim] - places[0][dim] for p in places]
            lo, hi = bounds(first[dim])
            if lo + min(steps) < 0 or hi + max(steps) >= extent:
                out.append((first[dim], extent, steps))
        return out

    def _pointer(self) -> None:
        k, view = self.k, self.view
        buffer = view.buffer
        self.mode = "elements"
        layout = buffer.layout
        swizzle = layout.swizzle if layout is not None else None
        self.swizzle: Swizzle | None = swizzle if swizzle is not None and swizzle.B else None
        if buffer.storage != "smem":
            const = "" if self.write else "const "
            self.name = k.out.name(f"{k.names[buffer]}_at")
            text = f"{k.names[buffer]} + {k.dim(self.start)}" if self.start != 0 else (
                k.names[buffer]
            )  # fmt: skip
            k.out.line(f"{const}{stored_type(buffer.dtype)} *{self.name} = {text};")
            return
        self.mode = "bytes"
        offset = k.shared(buffer, view.slot, self.memory)
        self.name = k.out.name(f"{k.names[buffer]}_at")
        byte = self.start * self.size
        if self.swizzle is None:
            const = "" if self.memory == "smem" else "const "
            k.out.line(f"{const}char *{self.name} = {offset} + {k.dim(byte)};")
            return
        assert all(o % self.swizzle.period == 0 for o in buffer.offsets), buffer
        self.base = offset
        self.words = f"tf_swizzle<{self.swizzle.B}, {self.swizzle.M}, {self.swizzle.S}>"
        mask = bits_in(byte)
        steps = [s * self.size for s in self.steps]
        if mask >= 0 and all(s >= 0 and not s & mask for s in steps):
            self.mode = "xor"
            k.out.line(f"const int {self.name} = {self.words}({k.dim(byte)});")
        else:
            self.mode = "swizzle"
            k.out.line(f"const int {self.name} = {k.dim(byte)};")

    def pointer(self, at: At, turns: Sequence[int]) -> str:
        """The address of the elements numbered ``turns`` (one for each turn of the loop)."""
        steps = [self.steps[q] for q in turns]
        if self.mode == "elements":
            return _plus(self.name, at.of(steps))
        steps = [s * self.size for s in steps]
        if self.mode == "bytes":
            return _plus(self.name, at.of(steps))
        if self.mode == "xor":
            assert self.swizzle is not None
            text = at.of([self.swizzle(s) for s in steps])
            inside = self.name if text == "0" else f"({self.name} ^ ({text}))"
            return f"{self.base} + {inside}"
        return f"{self.base} + {self.words}({_plus(self.name, at.of(steps))})"

    def inside(self, at: At, turns: Sequence[int]) -> str:
        """What must hold for these elements to be inside the buffer; empty if they are."""
        tests: list[str] = []
        for first, extent, steps in self.edges:
            mine = [steps[q] for q in turns]
            lo, hi = bounds(first)
            text = _plus(self.k.dim(first), at.of(mine))
            if lo + min(mine) < 0:
                tests.append(f"{text} >= 0")
            if hi + max(mine) >= extent:
                tests.append(f"{text} < {extent}")
        return " && ".join(tests)

    def value(self, at: At, turns: Sequence[int]) -> str:
        """The stored elements, one each turn."""
        name = stored_type(self.view.dtype)
        text = f"*(const {name} *)({self.pointer(at, turns)})"
        test = self.inside(at, turns)
        return f"({test} ? {text} : ({name}){self.filled()})" if test else text

    def wide(self, at: At, turns: Sequence[int]) -> str:
        """The same, widened."""
        return from_memory(self.view.dtype, f"({self.value(at, turns)})")

    def filled(self) -> str:
        return bits_of(self.view.fill or 0, self.view.dtype)

    def width(self, registers: Sequence[int], per: int) -> int:
        """Bytes that a thread may move at once: runs of registers that are runs of memory."""
        count = len(registers)
        for size in WIDTHS:
            run = size // self.size
            if run < 1 or count % run or (run > 1 and run % per) or (run == 1 and per > 1):
                continue
            if self.swizzle is not None and size > 1 << self.swizzle.M:
                continue
            if multiple_of(self.start) * self.size % size or any(
                self.steps[q] * self.size % size
                or registers[q] % per
                or any(
                    self.steps[q + n] - self.steps[q] != n or registers[q + n] - registers[q] != n
                    for n in range(run)
                )
                for q in range(0, count, run)
            ):
                continue
            if all(self._alike(edge, run, count) for edge in self.edges):
                return size
        return 0

    def _alike(self, edge: tuple[Dim, int, list[int]], run: int, count: int) -> bool:
        """Elements of a run are all inside, or all outside."""
        first, extent, steps = edge
        for q in range(0, count, run):
            if any(steps[q + n] != steps[q] for n in range(run)):
                whole = multiple_of(first + steps[q]) % run == 0 and extent % run == 0
                if not whole:
                    return False
        return True


def _plus(name: str, text: str) -> str:
    return name if text == "0" else f"{name} + {text}"
