"""Asynchronous fills that other CTAs of a cluster must learn of.

A barrier counts the bytes that come to its own CTA, and no other CTA sees them arrive. So the
threads that are about to touch other CTAs' memory wait for the fill in their own first, in a
statement of ours that is empty otherwise; its end is what the other CTAs are told of.
"""

from __future__ import annotations

from tilefoundry.lower.sync.access import Access, Accesses
from tilefoundry.lower.sync.edges import RELAY, Edges
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
        _put(tree, accesses, b)
    tree.number()
    return bool(late)


def _put(tree: Tree, accesses: Accesses, b: Access) -> None:
    block = b.node.block
    node = Node(When(1, ()), block)
    node.body = Block(block.mesh, block.mask, node)
    block.nodes.insert(block.nodes.index(b.node), node)
    view = whole(b.buffer, b.view.slot)
    made = Access(node, view, b.store, False, False, "none", "none", b.mask, RELAY)
    accesses.effects[node] = PLAIN
    accesses.of[node] = [made]
    accesses.stores[b.store].append(made)
