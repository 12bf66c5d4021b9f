"""A kernel's statements as a tree that synchronisation is put into.

Each block knows its participants as a bit mask of thread ids; a node knows its block, so
that a statement's loops, and the lowest block that holds two statements, are found upwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tilefoundry.ir.expr import bounds
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.lower.rings import trips
from tilefoundry.targets.contract.unit import THREAD
from tilefoundry.tir.program import Advance, For, Issue, PrimFunc, Stmt, Sync, When, With

WARP, GROUP = 32, 128
"""Threads of a warp and of a warpgroup."""


@dataclass(eq=False)
class Signal:
    """What a role does before it tells others that its accesses are done: the ``accesses``
    complete, fenced for the asynchronous proxy (``fence``), gathered in each warp
    (``warp``) or among all its threads (``role``), then ``arrive``."""

    accesses: tuple[object, ...]
    arrive: Sync
    fence: bool = False
    warp: bool = False
    role: bool = False


Content: TypeAlias = Stmt | Signal


@dataclass(eq=False)
class Gate:
    """Synchronisation inside a role that stands before a statement: per mask of threads,
    how many groups of each kind may stay in flight, and which masks fence and meet."""

    waits: dict[tuple[str, int], int] = field(default_factory=lambda: dict[tuple[str, int], int]())
    fences: set[int] = field(default_factory=lambda: set[int]())
    warps: set[int] = field(default_factory=lambda: set[int]())
    barriers: set[int] = field(default_factory=lambda: set[int]())
    why: list[str] = field(default_factory=lambda: list[str]())


@dataclass(eq=False)
class Block:
    """Statements executed by the threads of ``mask``."""

    mesh: Mesh
    mask: int
    owner: Node | None = None
    nodes: list[Node] = field(default_factory=lambda: list[Node]())


@dataclass(eq=False)
class Node:
    """One statement in its block; ``body`` is the block of a With, For or When."""

    stmt: Content
    block: Block
    body: Block | None = None
    gate: Gate | None = None
    anchor: tuple[Node, str] | None = None
    """Of a statement of ours: the one it was put ``before`` or ``after``."""
    at: int = 0
    """Place in program order before anything was inserted."""

    @property
    def mask(self) -> int:
        return self.block.mask

    def above(self) -> Iterator[Node]:
        """The statements around this one, innermost first."""
        node = self.block.owner
        while node is not None:
            yield node
            node = node.block.owner

    @property
    def loop(self) -> bool:
        return isinstance(self.stmt, For)

    @property
    def loops(self) -> tuple[Node, ...]:
        """The loops around this one, outermost first."""
        return tuple(n for n in reversed(list(self.above())) if isinstance(n.stmt, For))


class Tree:
    """The statements of ``func``."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.level = func.target.levels[-1]
        self.lockstep = self.level != THREAD
        """Units of the innermost level are lanes of one thread of execution."""
        sizes = dict((t.level, t.size) for t in func.topologies)
        self.threads = 1 if self.lockstep else sizes.get(self.level, 1)
        self.masks: dict[Mesh, int] = {}
        self.scopes: dict[int, With] = {}
        self.root = Block(Mesh(), self.mask(Mesh()))
        self._fill(self.root, func.body)

    def mask(self, mesh: Mesh) -> int:
        """The threads of ``mesh`` as bits; all of the CTA where it arranges none."""
        if self.lockstep:
            return 1
        if mesh not in self.masks:
            found = mesh.units(self.level) if mesh.at(self.level) else range(self.threads)
            self.masks[mesh] = sum(1 << u for u in found)
        return self.masks[mesh]

    @property
    def all(self) -> int:
        return self.root.mask

    def _fill(self, block: Block, body: Iterable[Stmt]) -> None:
        for stmt in body:
            if isinstance(stmt, For) and bounds(trips(stmt))[1] <= 0:
                continue  # never runs
            node = Node(stmt, block)
            block.nodes.append(node)
            if isinstance(stmt, With):
                node.body = Block(stmt.mesh, self.mask(stmt.mesh), node)
                self.scopes.setdefault(node.body.mask, stmt)
            elif isinstance(stmt, (For, When)):
                node.body = Block(block.mesh, block.mask, node)
            if node.body is not None:
                self._fill(node.body, stmt.body)  # type: ignore[union-attr]

    def walk(self, block: Block | None = None) -> Iterator[Node]:
        for node in (block or self.root).nodes:
            yield node
            if node.body is not None:
                yield from self.walk(node.body)

    def number(self) -> None:
        """Places in program order, after the tree was rearranged."""
        for n, node in enumerate(self.walk()):
            node.at = n

    def issuers(self, node: Node) -> int:
        """The threads that matter to what one thread issues for all participants of
        ``node``: its warp. The others may run ahead or behind."""
        mesh = node.block.mesh
        units = mesh.units(self.level) if mesh.at(self.level) else range(self.threads)
        first = units[0]
        warp = ((1 << WARP) - 1) << first // WARP * WARP
        if not node.mask & ~warp:
            return node.mask
        mask = warp if first % WARP == 0 and warp & ~node.mask == 0 else 1 << first
        self.declare(mask, mesh, "issuer")
        return mask

    def declare(self, mask: int, around: Mesh, binding: str = "scope") -> bool:
        """A scope for the threads of ``mask`` inside ``around``; False where there is none and
        they do not follow each other."""
        if mask in self.scopes:
            return True
        first = (mask & -mask).bit_length() - 1
        if mask != ((1 << count(mask)) - 1) << first:
            return False
        own = Mesh((Axis(self.level, "lane", count(mask), 1, first),), around.sizes)
        outer = tuple(a for a in around.axes if a.level != self.level)
        inside = Mesh((*outer, *own.axes), around.sizes)
        self.masks[inside] = mask
        self.scopes[mask] = With(own, inside, binding, ())
        return True

    # Insertion

    def scope(self, mask: int, block: Block) -> Node:
        """A new, empty scope of the threads of ``mask`` for ``block``."""
        like = self.scopes[mask]
        binding = like.source.partition("[")[0]
        around = {like.binding} if not like.source else {binding}
        names: set[str] = set()
        owner = block.owner
        while owner is not None:
            if isinstance(owner.stmt, With):
                names.add(owner.stmt.binding)
            owner = owner.block.owner
        source = like.source if like.source and around <= names else ""
        outer = tuple(a for a in block.mesh.axes if a.level != self.level)
        mesh = Mesh((*outer, *like.mesh.at(self.level)), like.mesh.sizes)
        node = Node(replace(like, mesh=mesh, body=(), source=source), block)
        node.body = Block(mesh, mask, node)
        return node

    def before(self, node: Node, mask: int, *content: Content, first: bool = False) -> None:
        """``content``, executed by ``mask``, directly before ``node``, or (``first``) before
        what was put there already."""
        self._insert(node, "before", mask, content, first)

    def after(self, node: Node, mask: int, *content: Content) -> None:
        """``content``, executed by ``mask``, behind ``node`` and what was put there before."""
        self._insert(node, "after", mask, content)

    def _insert(
        self,
        node: Node,
        side: str,
        mask: int,
        content: tuple[Content, ...],
        first: bool = False,
    ) -> None:
        block, anchor = node.block, (node, side)
        at = block.nodes.index(node)
        if side == "after":
            at += 1
            while at < len(block.nodes) and block.nodes[at].anchor == anchor:
                at += 1
        while first and at and block.nodes[at - 1].anchor == anchor:
            at -= 1
        if block.mask != mask:
            mine = [n for n in block.nodes if n.anchor == anchor]
            scope = next((n for n in mine if n.body is not None and n.body.mask == mask), None)
            if scope is None:
                scope = self.scope(mask, block)
                scope.anchor = anchor
                block.nodes.insert(at, scope)
            assert scope.body is not None
            block, at = scope.body, 0 if first else len(scope.body.nodes)
        for stmt in content:
            made = self.made(stmt, block)
            made.anchor = anchor
            block.nodes.insert(at, made)
            at += 1

    def made(self, stmt: Content, block: Block) -> Node:
        """A statement of ours as a node; a When brings its body."""
        node = Node(stmt, block)
        if isinstance(stmt, When):
            node.body = Block(block.mesh, block.mask, node)
            node.body.nodes = [self.made(s, node.body) for s in stmt.body]
        return node


def common(a: Node, b: Node) -> tuple[Block, Node]:
    """The lowest block that holds both, and the statement of it that holds ``b``."""
    around: set[Block] = set()
    block: Block | None = a.block
    while block is not None:
        around.add(block)
        block = block.owner.block if block.owner is not None else None
    node = b
    while node.block not in around:
        assert node.block.owner is not None
        node = node.block.owner
    return node.block, node


def leaves(tree: Tree, block: Block | None = None) -> Iterator[Node]:
    """The issues, in program order."""
    return (n for n in tree.walk(block) if isinstance(n.stmt, Issue))


def count(mask: int) -> int:
    return mask.bit_count()


def whole_warps(mask: int) -> bool:
    """No warp is in ``mask`` with a part of its threads."""
    while mask:
        part = mask & ((1 << WARP) - 1)
        if part not in (0, (1 << WARP) - 1):
            return False
        mask >>= WARP
    return True


def one_part(mask: int, size: int) -> bool:
    """All threads of ``mask`` are of one aligned group of ``size``."""
    low = (mask & -mask).bit_length() - 1
    return mask.bit_length() - 1 < low // size * size + size


def within_parts(units: list[int], size: int) -> bool:
    """Each ``size`` consecutive units are one aligned group of that size."""
    parts = [units[n : n + size] for n in range(0, len(units), size)]
    return all(len(p) == size and max(p) - min(p) == size - 1 and min(p) % size == 0 for p in parts)


def distribute(tree: Tree, block: Block, whole: Iterable[Node] = ()) -> None:
    """Split each When that holds several roles, or a fill that completes on its own, so
    that a When holds statements of one role and stands in its scope."""
    from tilefoundry.lower.sync.access import completes_alone

    out: list[Node] = []
    for node in block.nodes:
        out += _split(tree, node, completes_alone)
    block.nodes = out
    for node in out:
        if node.body is not None:
            distribute(tree, node.body)


def _split(tree: Tree, node: Node, alone: object) -> list[Node]:
    body = node.body
    if not isinstance(node.stmt, When) or body is None:
        return [node]
    roles = {n.mask for n in leaves(tree, body)}
    split = len(roles) > 1 or any(alone(n) for n in leaves(tree, body))  # type: ignore[operator]
    if not split and roles <= {node.mask}:
        return [node]
    out: list[Node] = []
    for child in body.nodes:
        if isinstance(child.stmt, Advance):
            out.append(_wrap(node, [child], node.block))
        elif child.body is not None and (isinstance(child.stmt, (With, When)) or split):
            child.block = node.block
            child.body.nodes = [_wrap(node, child.body.nodes, child.body)]
            child.body.mesh = child.body.mesh if isinstance(child.stmt, With) else node.block.mesh
            out.append(child)
        else:
            out.append(_wrap(node, [child], node.block))
    return out


def _wrap(when: Node, nodes: list[Node], block: Block) -> Node:
    """A When with the test of ``when`` around ``nodes``, in ``block``."""
    made = Node(when.stmt, block, at=when.at)
    made.body = Block(block.mesh, block.mask, made)
    made.body.nodes = nodes
    for node in nodes:
        node.block = made.body
    return made
