"""Copies between memories in pieces that threads take in turn: cp.async, plain copies, fills.

Piece p is for the participant of rank p modulo their number, so that neighbours touch
neighbouring memory.
"""

from __future__ import annotations

from tilefoundry.ir.expr import Dim, IterVar, bounds, floordiv, mod, multiple_of
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place, Window
from tilefoundry.targets.contract.runs import Pieces, shared_pieces
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.text import INT_MAX, bits_of, stored_type
from tilefoundry.tir.plans import plan_of, side
from tilefoundry.tir.program import Issue, Scalar, View

SIZES = (16, 8, 4, 2, 1)
UNROLL = 16
WORDS = {16: "uint4", 8: "uint2", 4: "uint32_t", 2: "uint16_t", 1: "uint8_t"}


def rank(k: Kernel, mesh: Mesh) -> tuple[str, int]:
    """A thread's number among the participants, and how many there are."""
    units = mesh.units("thread")
    first = units[0]
    if units == list(range(first, first + len(units))):
        return (f"(tid - {first})" if first else "tid"), len(units)
    text = "0"
    for axis in mesh.at("thread"):
        name = k.names[axis]
        text = name if text == "0" else f"({text}) * {axis.extent} + {name}"
    return f"({text})", len(units)


class Walk:
    """The pieces of a copy: a loop over a thread's share, and addresses in it."""

    def __init__(self, k: Kernel, plan: Pieces, mesh: Mesh) -> None:
        self.k, self.plan = k, plan
        self.piece = IterVar("piece", 0, plan.count - 1)
        self.digits: list[Dim] = []
        left = self.piece.expr()
        inner = 1
        for p in plan.outer:
            self.digits.append(mod(floordiv(left, inner), p.extent))
            inner *= p.extent
        self.name = k.names[self.piece] = k.out.name("piece")
        self.rank, self.units = rank(k, mesh)

    def loop(self):
        """The loop over a thread's pieces."""
        rounds = -(-self.plan.count // self.units)
        kind = "int" if self.plan.count + self.units <= INT_MAX else "int64_t"
        wider = "" if kind == "int" else f"({kind})"
        even = self.plan.count % self.units == 0
        self.k.out.line(f"#pragma unroll {min(rounds, UNROLL)}")
        if even:
            self.k.names[self.piece] = self.name
            turn = self.k.out.name("turn")
            head = f"for (int {turn} = 0; {turn} < {rounds}; {turn}++)"
            return self._named(
                head, f"const {kind} {self.name} = {self.rank} + {wider}{turn} * {self.units};"
            )
        head = (f"for ({kind} {self.name} = {self.rank}; {self.name} < {self.plan.count}; "
                f"{self.name} += {self.units})")  # fmt: skip
        return self._named(head, "")

    def _named(self, head: str, first: str):
        from contextlib import contextmanager

        @contextmanager
        def made():
            with self.k.out.block(head):
                if first:
                    self.k.out.line(first)
                yield

        return made()

    def linear(self, place: Place, which: int) -> Dim:
        """The piece's first element, in elements from the buffer's start."""
        out = place.base
        for digit, p in zip(self.digits, self.plan.outer, strict=True):
            out = out + digit * p.steps[which]
        return out

    def coordinate(self, window: Window, dim: int) -> Dim:
        """The piece's first coordinate along axis ``dim`` of the buffer."""
        out = window.starts[dim]
        for digit, p in zip(self.digits, self.plan.outer, strict=True):
            if window.along(p.axis) == dim:
                out = out + digit * p.inner
        return out

    def pointer(self, view: View, place: Place, which: int) -> str:
        """The piece's address; of 32 bits in shared memory."""
        k, size = self.k, max(1, view.dtype.bits // 8)
        at = self.linear(place, which)
        if view.storage != "smem":
            return f"{k.names[view.buffer]} + {k.dim(at)}"
        byte = k.dim(at * size)
        s = place.swizzle
        if s is not None and s.B:
            byte = f"tf_swizzle<{s.B}, {s.M}, {s.S}>({byte})"
        return f"{k.shared(view.buffer, view.slot)} + {byte}"

    def inside(self, view: View) -> str:
        """What must hold for the piece to be inside the buffer."""
        if view.fill is None:
            return ""
        found = side(view)
        window = None if isinstance(found, Unmet) else found.window
        if window is None:
            return ""
        tests: list[str] = []
        for dim, extent in enumerate(view.buffer.shape):
            at = self.coordinate(window, dim)
            lo, hi = bounds(at)
            axis = window.axes[dim]
            wide = max((p.extent * p.inner for p in self.plan.inner if p.axis == axis), default=1)
            if lo >= 0 and hi + wide <= extent:
                continue
            if wide > 1 and (extent % wide or multiple_of(at) % wide):
                self.k.form(None, f"{view}", "a piece lies across the edge of the tensor",
                            "let extents be multiples of 16 bytes")  # fmt: skip
            tests += [f"{self.k.dim(at)} >= 0"] if lo < 0 else []
            tests += [f"{self.k.dim(at)} < {extent}"] if hi + wide > extent else []
        return " && ".join(tests)


def _places(k: Kernel, *views: View) -> list[Place]:
    out: list[Place] = []
    for view in views:
        found = side(view)
        place = found if isinstance(found, Unmet) else found.place()
        if isinstance(place, Unmet):
            k.form(None, f"{view}", f"it is no {place.expected}", "copy it through registers")
            raise AssertionError
        out.append(place)
    return out


def emit_copy_async(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """cp.async of each thread's pieces."""
    source, write = issue.reads[0], issue.writes[0]
    assert isinstance(source, View)
    plan = plan_of(issue, mesh)
    assert isinstance(plan, Pieces), plan
    near, far = _places(k, source, write)
    walk = Walk(k, plan, mesh)
    with walk.loop():
        to = f"tf_shared({walk.pointer(write, far, 1)})"
        from_ = walk.pointer(source, near, 0)
        test = walk.inside(source)
        more = f", {test}" if test else ""
        k.out.line(f"tf_copy_async<{plan.size}>({to}, {from_}{more});")


def copy(k: Kernel, issue: Issue, source: View, write: View, mesh: Mesh) -> None:
    """A plain copy between memories."""
    near, far = _places(k, source, write)
    order = 0 if source.storage == "gmem" else 1
    units = len(mesh.units("thread"))
    plan = shared_pieces((near, far), order, SIZES, units)
    if plan is None or source.dtype is not write.dtype:
        k.form(issue, f"{source} to {write}", "their blocks straddle",
               "copy it through registers")  # fmt: skip
        raise AssertionError
    walk = Walk(k, plan, mesh)
    word = WORDS[plan.size]
    with walk.loop():
        text = f"*(const {word} *)({walk.pointer(source, near, 0)})"
        test = walk.inside(source)
        if test:
            zero = f"{word}()"
            if source.fill:
                if plan.elements > 1:
                    k.form(issue, f"{source}", "a piece of several elements is filled with zeros",
                           "fill with 0, or copy it through registers")  # fmt: skip
                zero = bits_of(source.fill, source.dtype)
            text = f"{test} ? {text} : {zero}"
        guard = walk.inside(write)
        k.out.line(f"{f'if ({guard}) ' if guard else ''}"
                   f"*({word} *)({walk.pointer(write, far, 1)}) = {text};")  # fmt: skip


def fill(k: Kernel, issue: Issue, source: Scalar, write: View, mesh: Mesh) -> None:
    """A number into memory, element by element."""
    (place,) = _places(k, write)
    plan = shared_pieces((place,), 0, (max(1, write.dtype.bits // 8),), len(mesh.units("thread")))
    assert plan is not None and not hasattr(source.value, "terms"), issue
    walk = Walk(k, plan, mesh)
    name = stored_type(write.dtype)
    with walk.loop():
        guard = walk.inside(write)
        into = f"*({name} *)({walk.pointer(write, place, 0)})"
        value = bits_of(source.value, write.dtype)  # type: ignore[arg-type]
        k.out.line(f"{f'if ({guard}) ' if guard else ''}{into} = {value};")


EMITTERS = {"copy_async": emit_copy_async}
