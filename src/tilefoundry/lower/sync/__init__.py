"""Synchronisation of a kernel, derived from what its statements do to shared memory.

Disjoint roles talk through mbarriers (``edges``, ``handoff``), threads of one role through
the barriers of that role (``order``); ``render`` writes the statements.
"""

from __future__ import annotations

from tilefoundry.lower.sync.access import Accesses
from tilefoundry.lower.sync.edges import Counts, Edges
from tilefoundry.lower.sync.handoff import Handoffs
from tilefoundry.lower.sync.order import Order
from tilefoundry.lower.sync.refusals import refuse_unordered
from tilefoundry.lower.sync.relay import relay
from tilefoundry.lower.sync.render import render
from tilefoundry.lower.sync.tree import Tree, distribute
from tilefoundry.tir.program import PrimFunc


def synchronise(func: PrimFunc) -> PrimFunc:
    """``func``, which has no synchronisation, with all that its accesses need.

    Barriers are declared, not placed. Refuses values that cross roles in registers, and
    device memory that is written and read again without an order between.
    """
    tree = Tree(func)
    distribute(tree, tree.root)
    tree.number()
    refuse_unordered(tree)
    accesses = Accesses(tree)
    counts = Counts(tree)
    edges = Edges(tree, accesses, counts)
    if relay(tree, accesses, edges):
        counts = Counts(tree)
        edges = Edges(tree, accesses, counts)
    handoffs = Handoffs(tree, accesses, edges)
    handoffs.run()
    order = Order(tree, accesses, edges, handoffs.asked)
    order.run()
    return render(tree, accesses, handoffs, order)


__all__ = ["synchronise"]
