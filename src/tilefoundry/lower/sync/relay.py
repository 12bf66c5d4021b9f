"""Asynchronous fills that other CTAs of a cluster must learn of.

A barrier counts the bytes that come to its own CTA, and no other CTA sees them arrive. So the
threads that are about to touch other CTAs' memory wait for the fill in their own first, in a
statement of ours that is empty otherwise; its end is what the other CTAs are told of. A fill
that is alone in its loop is waited for at once, as the next step fills the same place.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilefoundry.lower.sync.access import Access, Accesses
from tilefoundry.lower.sync.edges import RELAY, Edges, item_at
from tilefoundry.lower.sync.tree import Block, Node, Tree
from tilefoundry.tir.effects import PLAIN
from tilefoundry.tir.program import When, whole


def relay(tree: Tree, accesses: Accesses, edges: Edges) -> bool:
    """Puts those statements into ``tree`` and ``accesses``; False where none is needed."""
    late = {
        (b.node, b.store): b
        for level in edges.levels
        for edge in level.edges
        if edge.over and edge.source.fills
        for b in edge.target.accesses
        if b.over
    }
    for b in late.values():
        _put(tree, accesses, b, 0)
    alone = [b for b in _alone(accesses) if (b.node, b.store) not in late]
    for b in alone:
        _put(tree, accesses, b, 1)
    tree.number()
    return bool(late or alone)


def _alone(accesses: Accesses) -> Iterator[Access]:
    """Fills of several CTAs whose place nothing else in their loop touches."""
    for found in accesses.stores.values():
        for b in found:
            if b.fills and b.over and b.node.loops:
                loop = b.node.loops[-1]
                items = {item_at(a.node, loop) for a in found if loop in a.node.loops}
                if len(items) == 1:
                    yield b


def _put(tree: Tree, accesses: Accesses, b: Access, after: int) -> None:
    """A statement before the one of ``b``, or after it."""
    block = b.node.block
    node = Node(When(1, ()), block)
    node.body = Block(block.mesh, block.mask, node)
    block.nodes.insert(block.nodes.index(b.node) + after, node)
    view = whole(b.buffer, b.view.slot)
    made = Access(node, view, b.store, False, False, "none", "none", b.mask, RELAY)
    accesses.effects[node] = PLAIN
    accesses.of[node] = [made]
    accesses.stores[b.store].append(made)
