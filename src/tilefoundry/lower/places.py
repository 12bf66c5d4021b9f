"""In-place bufferisation: which view each value of a function is made in.

Results are parameters of the kernel. Going backwards from what is returned, an update of a
slice is made in the slice itself, an accumulator in its one place, a loop-carried value in
one place before, during and after its loop, where no version is read after a later one is
written (``lives``).
"""

from __future__ import annotations

from tilefoundry.check.rename import is_rename
from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.node import CARRY, CONST, PARAM, RESULT, Carried, Loop, Node, walk
from tilefoundry.ir.program import Func
from tilefoundry.lower.lives import Lives, is_kept, updated
from tilefoundry.lower.views import VIEWS, backward, fixed, is_single_term
from tilefoundry.ops.base import seen
from tilefoundry.tir.program import Buffer, View, whole, window


class Places:
    """``of`` maps a value to the view it is to be made in, where that is decided."""

    def __init__(self, func: Func, results: tuple[Buffer, ...], private: str) -> None:
        self.lives = Lives(func, private)
        self.of: dict[Node, View] = {}
        self.filled: list[Node] = []
        """Fills of results outside any scope: dropped, as every element is written later."""
        self.in_slice: set[Node] = set()
        """Updates of a slice whose new part is made in the slice itself: nothing is stored."""
        self._shared: dict[Carried, bool] = {}
        self._carried = {
            n: c
            for stmt in walk(func.body)
            if isinstance(stmt, Loop)
            for c in stmt.carried
            for n in (c.head, c.result)
        }
        for value, buffer in zip(func.returns.values, results, strict=True):
            if not self.put(value, whole(buffer)):
                refuse("lower-result", value.span or func.span, name=value.name or buffer.name)

    def put(self, node: Node, view: View) -> bool:
        """Make ``node`` in ``view``; False where its value already has another place."""
        if node in self.of:
            return self.of[node] is view
        if node.op in (PARAM, CONST) or node.op.name in ("item", "call"):
            return False
        if node.op in (CARRY, RESULT):
            return self._put_carried(self._carried[node], view)
        if self.aliases(node):
            return False
        same = is_rename(node) or is_kept(node)
        if (node.op.name in VIEWS or same) and node not in self.lives.copies:
            inner = view if same else backward(node, view)
            if inner is None or not self._alone(node.args[0]):
                return False
            if not self.put(node.args[0], inner):
                return False
            self.of[node] = view
            return True
        place = updated(node)
        if place is not None and not self.put(place, view):
            return False
        self.of[node] = view
        if node.op.name == "insert_slice":
            self._put_update(node, view)
        return True

    def aliases(self, node: Node) -> bool:
        """``node`` is a reduction that is what it reduces, as that lies."""
        single = is_single_term(node, self.lives.private)
        return single and node not in self.lives.copies

    def _put_update(self, node: Node, view: View) -> None:
        """The update is made in its slice, if it lives in the same storage and only there."""
        update = node.args[1]
        if update.tensor.storage != view.storage or not self._alone(update):
            return
        if not self.lives.untouched(node) or not self._in_force(node, update):
            return
        shape = fixed(update.tensor.shape, node.span)
        if self.put(update, window(view, node.attrs["offsets"], shape)):  # type: ignore[arg-type]
            self.in_slice.add(node)

    def _in_force(self, node: Node, update: Node) -> bool:
        """Where the update goes can be said where it is made, and each unit makes all of it."""
        offsets: tuple[Dim, ...] = node.attrs["offsets"]  # type: ignore[assignment]
        moved = {s for o in offsets for s in symbols(o)}
        axes = {s.axis for s in moved if isinstance(s, Coord)}
        for loop in reversed(self.lives.loops[node]):
            if loop.var in moved:
                moved |= {s for x in (loop.start, loop.step) for s in symbols(x)}
        units = {s.axis for s in moved if isinstance(s, Coord)}
        makers = self.lives.makers(update)
        parts = {d.axis for m in makers for a in m.args for d in seen(a.tensor, m.mesh).digits}
        return not parts & units and all(axes <= set(m.mesh.axes) for m in makers)

    def _put_carried(self, carried: Carried, view: View) -> bool:
        if not self.share(carried):
            return False
        self.of[carried.head] = self.of[carried.result] = view
        return self.put(carried.init, view) and self.put(carried.step, view)

    def settle(self, carried: Carried, view: View) -> None:
        """The carried value lives in ``view``, where its start already is."""
        self.of[carried.head] = self.of[carried.result] = view
        self.put(carried.step, view)

    def share(self, carried: Carried) -> bool:
        """Whether one place serves the carried value throughout."""
        if carried not in self._shared:
            self._shared[carried] = self.lives.shareable(carried)
        return self._shared[carried]

    def _alone(self, node: Node) -> bool:
        """The value is read once."""
        return len(self.lives.uses.get(node, ())) == 1
