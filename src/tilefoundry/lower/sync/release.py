"""When a slot that matrix products read is given back.

Their reads end when their group is waited for. Where the accumulator is used, that wait stands
anyway, and the slot is given back there: in the same iteration, or in the next one, so that
the products run beside other work. Products that are only chained are waited for one
iteration later, while the next ones run. With one slot nothing is left to the next iteration:
the writer could never go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilefoundry.lower.sync.access import Access, Accesses
from tilefoundry.lower.sync.channel import FREE, Channel
from tilefoundry.lower.sync.edges import BACKWARD, Touch, item_at
from tilefoundry.lower.sync.tree import Node, Tree
from tilefoundry.tir.program import For, When


class Release:
    """Where ``touch`` gives back what it read: before ``use`` (None: right behind itself), in
    the next iteration if ``later``; ``groups`` products may then still be in flight."""

    def __init__(
        self,
        tree: Tree,
        accesses: Accesses,
        channel: Channel,
        touch: Touch,
        own: Sequence[Access],
    ) -> None:
        self.tree = tree
        self.accesses = accesses
        self.loop = channel.level.loop
        self.touch = touch
        self.use: Node | None = None
        self.later = False
        self.groups = 0
        products = [a.node for a in touch.accesses if a.engine == "wgmma"]
        waiting = any(d != BACKWARD for _, d in channel.waits)
        direct = all(n is touch.item for n in products) and len(products) == len(touch.accesses)
        if channel.kind == FREE and direct and not waiting:
            self._place(channel.level.slots, own)

    def _place(self, slots: int, own: Sequence[Access]) -> None:
        at = self.touch.item.at
        uses = self._uses()
        self.use = next((item_at(n, self.loop) for n in uses if n.at > at), None)
        products = self._products()
        if self.use is not None or slots < 2 or self.loop is None:
            return
        if any(a.engine != "wgmma" for a in own) or any(
            item_loop(n) is not self.loop for n in (*products, *(a.node for a in own))
        ):
            return
        self.later = True
        self.use = next((item_at(n, self.loop) for n in uses), None)
        until = self.use.at if self.use is not None else at + 1
        self.groups = sum(n.at > at or n.at < until for n in products)

    def _inside(self) -> list[Node]:
        body = self.loop.body if self.loop is not None else None
        return [n for n in self.tree.walk(body) if n in self.accesses.of]

    def _products(self) -> list[Node]:
        """Products of the same threads in an iteration; each is a group."""
        return [
            n
            for n in self._inside()
            if self.accesses.effects[n].completion == "wgmma" and n.mask & self.touch.mask
        ]

    def _uses(self) -> list[Node]:
        """Statements that must wait for the products of ``touch``: they touch the accumulator
        other than by chaining, or overwrite operands in registers."""
        made: set[object] = set()
        taken: set[object] = set()
        for a in (a for x in self.touch.accesses for a in self.accesses.of[x.node]):
            if a.buffer.storage in self.accesses.private:
                (made if a.write else taken).add(a.buffer)
        out: list[Node] = []
        for node in self._inside():
            for a in self.accesses.of[node]:
                used = a.buffer in made and not (a.engine == "wgmma" and a.role == "acc")
                spoilt = a.buffer in taken and a.write
                if (used or spoilt) and node.mask & self.touch.mask == self.touch.mask:
                    out.append(node)
                    break
        return out


def item_loop(node: Node) -> Node | None:
    """The innermost loop around ``node``, None if a test stands between."""
    for above in node.above():
        if isinstance(above.stmt, When):
            return None
        if isinstance(above.stmt, For):
            return above
    return None
