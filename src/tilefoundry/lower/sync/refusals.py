"""What no barrier can order: registers of another role, device memory read back."""

from __future__ import annotations

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.lower.sync.access import same_place
from tilefoundry.lower.sync.meetings import Meetings
from tilefoundry.lower.sync.tree import Node, Tree, leaves
from tilefoundry.lower.views import apart
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Buffer, For, Issue, View
from tilefoundry.tir.versions import stale_reads


def refuse_unordered(tree: Tree) -> None:
    """Refuses ``sync-registers-cross-roles``, ``sync-device-memory``, ``sync-part-of-grid``, and
    what :meth:`Meetings.refuse` does."""
    target = tree.func.target
    meetings = Meetings(tree)
    meetings.refuse()
    private = {n for n, s in target.storages.items() if s.level == target.levels[-1]}
    written: dict[Buffer, list[tuple[Node, View]]] = {}
    read: dict[Buffer, list[tuple[Node, View]]] = {}
    for node in leaves(tree):
        issue = node.stmt
        assert isinstance(issue, Issue)
        for view in issue.writes:
            written.setdefault(view.buffer, []).append((node, view))
        for view in issue.reads:
            if isinstance(view, View):
                read.setdefault(view.buffer, []).append((node, view))
    for buffer, readers in read.items():
        writers = written.get(buffer, [])
        if not writers:
            continue
        if buffer.storage in private:
            _registers(buffer, writers, readers)
        elif target.storages[buffer.storage].level is None:
            _device(tree, meetings, writers, readers)
        else:
            _same_blocks(tree, writers, readers)
    for buffer, writers in written.items():
        if buffer.role == "work" and not tree.lockstep:
            _rewritten(writers)
    for issue, buffer in stale_reads(tree.func):
        refuse("sync-registers-cross-roles", issue.span, name=buffer.name)


def _registers(
    buffer: Buffer, writers: list[tuple[Node, View]], readers: list[tuple[Node, View]]
) -> None:
    made = 0
    for node, _ in writers:
        made |= node.mask
    for node, _ in readers:
        if node.mask & ~made:
            issue = node.stmt
            assert isinstance(issue, Issue)
            refuse("sync-registers-cross-roles", issue.span, name=buffer.name)


def _device(
    tree: Tree, meetings: Meetings, writers: list[tuple[Node, View]],
    readers: list[tuple[Node, View]],
) -> None:  # fmt: skip
    for node, view in readers:
        for other, made in writers:
            # a core's accesses are in its program's order: only other cores' matter
            own = _outer(tree, other, made) <= _outer(tree, node, view)
            if own if tree.lockstep else _own(other, made, node, view):
                continue
            if not _later(other) and meetings.between(other, made, node, view):
                continue
            issue = node.stmt
            assert isinstance(issue, Issue)
            refuse("sync-device-memory", issue.span, name=view.buffer.name)


def _rewritten(writers: list[tuple[Node, View]]) -> None:
    """An update of what other threads wrote: device memory of the kernel's own has no barrier."""
    for n, (node, view) in enumerate(writers):
        for other, made in writers[:n]:
            if other is not node and not _own(other, made, node, view) and not apart(made, view):
                assert isinstance(node.stmt, Issue)
                refuse("sync-device-memory", node.stmt.span, name=view.buffer.name)


def _same_blocks(
    tree: Tree, writers: list[tuple[Node, View]], readers: list[tuple[Node, View]]
) -> None:
    """What some CTAs skip must not be waited for by them."""
    levels = tuple(tree.func.target.levels)[:-1]
    sizes = {t.level: t.size for t in tree.func.topologies}

    def blocks(node: Node) -> object:
        mesh = node.block.mesh
        found = (mesh.units(x) if mesh.at(x) else range(sizes.get(x, 1)) for x in levels)
        return tuple(tuple(sorted(x)) for x in found)

    expected = blocks(writers[0][0])
    for node, view in (*writers, *readers):
        if blocks(node) != expected:
            issue = node.stmt
            assert isinstance(issue, Issue)
            refuse("sync-part-of-grid", issue.span, name=view.buffer.name)


def _later(node: Node) -> bool:
    """Its write ends only when it is waited for."""
    assert isinstance(node.stmt, Issue)
    return effects(node.stmt).completion != "none"


def _outer(tree: Tree, node: Node, view: View) -> set[Axis]:
    """Axes of cores (CTAs) on which it depends what of a buffer one of them touches."""
    moved = {s for x in (*view.index, view.slot) for s in symbols(x)}
    for around in reversed(node.loops):
        loop = around.stmt
        if isinstance(loop, For) and loop.var in moved:
            moved |= {s for x in (loop.start, loop.step) for s in symbols(x)}
    axes = {s.axis for s in moved if isinstance(s, Coord) and s.axis is not None}
    assert isinstance(node.stmt, Issue)
    for other in (*node.stmt.reads, *node.stmt.writes):
        if isinstance(other, View) and other is not view:
            axes |= {d.axis for d in other.buffer.type.digits}
    return {a for a in axes if a.level != tree.level and a.extent > 1}


def _own(writer: Node, made: View, reader: Node, view: View) -> bool:
    """Each thread reads back what it wrote itself."""
    one, two = writer.stmt, reader.stmt
    assert isinstance(one, Issue) and isinstance(two, Issue)
    if writer.mask != reader.mask or _later(writer) or _later(reader):
        return False
    if writer is reader:
        return same_place(made, view)
    return same_place(made, view) and _holder(one, made) == _holder(two, view)


def _holder(issue: Issue, view: View) -> object:
    """Which thread has which element, as the register side of a copy says."""
    other = [v for v in (*issue.reads, *issue.writes) if isinstance(v, View) and v is not view]
    if len(other) != 1 or other[0].buffer.layout is None or not other[0].is_whole:
        return issue  # equal to nothing else
    return other[0].buffer.layout, other[0].shape
