"""Order inside roles: completion, proxy fences and barriers where a conflict first needs them.

The kernel is walked in program order with the accesses that a later one may still conflict
with. A loop is walked until nothing new is pending at its back edge, so that conflicts over
it are seen; a ring's accesses age by one with each iteration and conflict again after
``slots`` of them. What is found missing becomes a :class:`~tilefoundry.lower.sync.tree.Gate`
directly before the statement, or before the outermost loop around it that does not hold the
earlier access.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import bounds
from tilefoundry.lower.rings import trips
from tilefoundry.lower.sync.access import Access, Accesses, apart, handed, same_place
from tilefoundry.lower.sync.edges import Edges, even
from tilefoundry.lower.sync.parts import Parts
from tilefoundry.lower.sync.pending import Pending, State, gather, join, meet, retire
from tilefoundry.lower.sync.tree import (
    GROUP,
    WARP,
    Block,
    Gate,
    Node,
    Signal,
    Tree,
    common,
    count,
    one_part,
    whole_warps,
)
from tilefoundry.tir.program import For, Issue, Sync, When, With

GROUPED = ("wgmma", "async", "bulk")
"""Engines whose work is waited for by groups."""


class _Again(Exception):
    """A gate was put before statements that were already walked."""


class Order:
    """Puts gates before the statements of ``tree`` that need them."""

    def __init__(self, tree: Tree, accesses: Accesses, edges: Edges, asked: set[Access]) -> None:
        self.tree = tree
        self.accesses = accesses
        self.edges = edges
        self.parts = Parts(tree, accesses)
        self.committed = {
            n
            for n, effect in accesses.effects.items()
            if effect.completion == "bulk"
            or (effect.completion == "async" and not set(accesses.of[n]) <= asked)
        }
        """Copies whose groups are closed."""
        self.early: set[Access] = set()
        """Accesses fenced at the first barrier, as an asynchronous access follows later."""
        self.flying = {
            n
            for n, effect in accesses.effects.items()
            if effect.completion in ("wgmma", "async") and not set(accesses.of[n]) <= asked
        }
        """Issues whose end nothing but their own threads may wait for."""
        self.ends: set[tuple[str, int]] = set()
        """Engines that may still work when the kernel's last statement is done, by threads."""
        self.needed: set[Node] = set()
        """Waits of the protocol between roles that found something to wait for."""

    def run(self) -> None:
        while True:
            try:
                left = self._block(self.tree.root, {})
            except _Again:
                continue
            break
        for one in left.values():
            if one.open and one.access.engine != "bulk" and one.access.node in self.flying:
                self.ends.add((one.access.engine, one.access.node.mask))

    def _clear(self) -> None:
        for node in self.tree.walk():
            node.gate = None

    # The walk

    def _block(self, block: Block, state: State) -> State:
        for node in block.nodes:
            if node.gate is not None:
                self._pass(node.gate, state)
            stmt = node.stmt
            if isinstance(stmt, Issue):
                self._issue(node, state)
            elif isinstance(stmt, Signal):
                self._signal(node, stmt, state)
            elif isinstance(stmt, Sync):
                if stmt.kind == "wgmma_wait" and retire(state, "wgmma", node.mask, stmt.pending):
                    self.needed.add(node)
            elif isinstance(stmt, With):
                assert node.body is not None
                state = self._block(node.body, state)
            elif isinstance(stmt, When):
                assert node.body is not None
                state = join(state, self._block(node.body, dict(state)))
            elif isinstance(stmt, For):
                state = self._loop(node, stmt, state)
        return state

    def _loop(self, node: Node, stmt: For, entry: State) -> State:
        runs = trips(stmt)
        assert node.body is not None
        least, most = bounds(runs)
        at = entry
        while True:
            end = self._block(node.body, self._step(node, at))
            around = join(entry, end)
            if around == at or most <= 1:
                return end if least > 0 else around
            at = around

    def _step(self, loop: Node, state: State) -> State:
        """One iteration more: rings age, what the loop did before is of an earlier one."""
        out: State = {}
        for (access, age), one in state.items():
            ring, slots = self.edges.rings.get(access.store, (None, 1))
            if ring is loop and slots:
                age = (age + 1) % slots
            elif ring is loop:
                age = 1
            if loop not in one.surely and loop in access.node.loops:
                one = replace(one, crossed=one.crossed | {loop}, surely=one.surely | {loop})
            key = access, age
            out[key] = out[key].join(one) if key in out else one
        return out

    # Statements

    def _issue(self, node: Node, state: State) -> None:
        effect = self.accesses.effects[node]
        mine = self.parts.of(node)
        if not effect.collective:
            self._judge(mine, node, state)
        else:  # its units meet between what they give and what they take
            assert isinstance(node.stmt, Issue)
            within = gather if node.stmt.attrs["scope"] == "warp" else meet
            self._judge([a for a in mine if not a.write], node, state)
            within(state, node.mask)
            self._judge([a for a in mine if a.write], node, state)
        if effect.completion in GROUPED:
            for access in mine:
                self._record(access, state)
            if self.closes(node):
                self._close(state, effect.completion, mine)
        else:
            for access in mine:
                self._record(access, state)

    def _judge(self, mine: Sequence[Access], node: Node, state: State) -> None:
        for access in mine:
            for key in list(state):
                one = state.get(key)
                if one is not None and one.access.store == access.store and key[1] == 0:
                    self._check(one, access, node, state)

    def _record(self, access: Access, state: State) -> None:
        private = access.buffer.storage in self.accesses.private
        if access.fills or (private and access.engine != "wgmma"):
            return
        grouped = access.engine in GROUPED
        state[access, 0] = Pending(access, open=access.mask if grouped else 0)

    def closes(self, node: Node) -> bool:
        """A group ends with this copy: the next statement is not such a copy."""
        effect = self.accesses.effects[node]
        if effect.completion == "wgmma":
            return True
        nodes = node.block.nodes
        at = nodes.index(node) + 1
        if at < len(nodes) and nodes[at] in self.accesses.effects and not self._starts(nodes[at]):
            return False
        return any(n in self.committed for n in self._run(node))

    def _run(self, node: Node) -> list[Node]:
        """The copies of one kind that directly follow each other and end with ``node``."""
        nodes = node.block.nodes
        at = nodes.index(node)
        first = at
        while not self._starts(nodes[first]):
            first -= 1
        return nodes[first : at + 1]

    def _close(self, state: State, engine: str, mine: list[Access]) -> None:
        run, mask = set(mine), mine[0].mask if mine else 0
        if engine != "wgmma" and mine:
            run = {a for n in self._run(mine[0].node) for a in self.accesses.of[n]}
        for key, one in state.items():
            earlier = one.access not in run or key[1]
            same = one.access.engine == engine and not one.access.mask & ~mask
            if same and one.open and earlier:
                state[key] = replace(one, since=one.since + 1)

    def _starts(self, node: Node) -> bool:
        nodes = node.block.nodes
        at = nodes.index(node)
        if at == 0 or node.gate is not None:
            return True
        before = self.accesses.effects.get(nodes[at - 1])
        return before is None or before.completion != self.accesses.effects[node].completion

    def _signal(self, node: Node, signal: Signal, state: State) -> None:
        for (access, age), one in list(state.items()):
            if age or access.whole not in signal.accesses:
                continue
            if one.open & node.mask:
                gate, key = self._gate(node), self._wait_of(one)
                gate.waits[key] = min(one.since, gate.waits.get(key, one.since))
                gate.why.append(signal.arrive.why)
                self._commit(one)
                self._pass_waits(gate, state)
            if signal.fence and access.proxy == "generic" and access.mask & node.mask:
                found = state[access, age]
                state[access, age] = replace(found, fenced=True, ordered_async=0, told=True)

    @staticmethod
    def _wait_of(one: Pending) -> tuple[str, int]:
        bulk = one.access.engine == "bulk"  # the elected thread waits, whatever the scope
        return one.access.engine, one.access.node.mask if bulk else one.access.mask

    def _commit(self, one: Pending) -> None:
        node = one.access.node
        if one.access.engine == "async" and node not in self.committed:
            self.committed |= {
                n for n, e in self.accesses.effects.items() if e.completion == "async"
            }
            self._clear()
            raise _Again

    # One pair

    def _check(self, one: Pending, y: Access, node: Node, state: State) -> None:
        x = one.access
        if not (x.write or y.write) or not x.mask & y.mask:
            return
        if y.buffer.storage in self.accesses.private:
            if one.open & y.mask and not _chained(x, y):
                self._want(one, y, node, state, fence=False, meet="")
            return
        fresh = not any(n in one.crossed for n in y.node.loops)
        if apart(x, y, fresh):
            return
        fence = x.proxy == "generic" and y.proxy == "async"
        if self._known(one, y) and (not fence or one.told):
            return
        meet = self._meeting(one, y, fresh)
        met = one.ordered & y.mask == y.mask and count(x.mask) > 1
        if fence and not one.fenced and met and x not in self.early:
            self.early.add(x)
            self._clear()
            raise _Again
        if one.open or (fence and not one.fenced) or meet:
            self._want(one, y, node, state, fence and not one.fenced, meet)

    def _known(self, one: Pending, y: Access) -> bool:
        """The edges between roles order the two: for accesses of one iteration of the
        innermost loop around both, of different ones, or of either."""
        pair = one.access.whole, y.whole
        shared = [n for n in y.node.loops if n in one.access.node.loops]
        earlier = shared[-1] in one.crossed if shared else False
        surely = shared[-1] in one.surely if shared else False
        return (surely or pair in self.edges.forward) and (
            not earlier or pair in self.edges.backward
        )

    def _meeting(self, one: Pending, y: Access, fresh: bool) -> str:
        """Which barrier must stand between the two: none, ``warp`` or ``role``."""
        x = one.access
        if count(x.mask | y.mask) == 1:
            return ""
        if x.engine == "wgmma" and one_part(x.mask | y.mask, GROUP):
            return ""  # each thread waits for the work of its whole warpgroup
        effect, other = self.accesses.effects[x.node], self.accesses.effects[y.node]
        if effect.elected and other.elected and x.mask == y.mask:
            return ""
        seen = one.ordered_async if y.proxy == "async" else one.ordered
        if seen & y.mask == y.mask and not one.open:
            return ""
        near = handed(x.whole, y.whole, fresh)
        if near == "thread" or (near == "warp" and one.warped):
            return ""
        return near

    def _want(
        self, one: Pending, y: Access, node: Node, state: State, fence: bool, meet: str
    ) -> None:
        x = one.access
        block, child = common(x.node, node)
        mask = self._meeting_place(x, y, block) if meet else x.mask
        inside = mask | x.mask | (self._wait_of(one)[1] if one.open else 0)
        while (
            child is not node
            and isinstance(child.stmt, With)
            and child.body is not None
            and child.body.mask & inside == inside
        ):
            child = next(n for n in child.body.nodes if n is node or n in set(node.above()))
        # before the waits and arrivals that were put before the statement
        nodes = child.block.nodes
        child = next(n for n in nodes if n is child or n.anchor == (child, "before"))
        gate = self._gate(child)
        before = _text(gate)
        if one.open:
            self._commit(one)
            key = self._wait_of(one)
            gate.waits[key] = min(one.since, gate.waits.get(key, one.since))
            gate.why.append(f"{x.buffer.name} {'written' if x.write else 'read'}")
        if fence:
            gate.fences.add(x.mask)
        if meet:
            self._whole_warps(mask, x, y)
        if meet == "warp" or (meet and one_part(mask, WARP)):
            gate.warps.add(mask)
        elif meet:
            self._even(child)
            gate.barriers.add(mask)
        if meet or fence:
            what = ("written" if x.write else "read", "written" if y.write else "read")
            gate.why.append(f"{x.buffer.name} {what[0]}, then {y.buffer.name} {what[1]}")
        if child is not node or (self._copies(node) and before != _text(gate)):
            if before == _text(gate):
                raise AssertionError(f"a gate before {x.buffer.name} orders nothing")
            raise _Again
        self._pass(gate, state)

    def _meeting_place(self, x: Access, y: Access, around: Block) -> int:
        """The threads that meet: those of the wider of the two scopes, or of the scope around
        both."""
        both = x.scope | y.scope
        return both if both in (x.scope, y.scope) else around.mask

    def _copies(self, node: Node) -> bool:
        effect = self.accesses.effects.get(node)
        return effect is not None and effect.completion in ("async", "bulk")

    def _whole_warps(self, mask: int, x: Access, y: Access) -> None:
        """Threads of a part of a warp have no barrier of their own."""
        if not whole_warps(mask):
            issue = y.node.stmt
            span = issue.span if isinstance(issue, Issue) else None
            refuse("sync-partial-warps", span, name=x.buffer.name, threads=count(mask),
                   legal="whole warps of 32 threads, or threads of one warp")  # fmt: skip

    def _even(self, at: Node) -> None:
        for loop in at.loops:
            even(loop, self.tree.level)

    def _gate(self, at: Node) -> Gate:
        if at.gate is None:
            at.gate = Gate()
        return at.gate

    # What gates do

    def _pass(self, gate: Gate, state: State) -> None:
        self._pass_waits(gate, state)
        for one in state.values():
            x = one.access
            if x in self.early and not one.fenced and any(x.mask & ~m == 0 for m in gate.barriers):
                gate.fences.add(x.mask)
        for mask in gate.fences:
            for key, one in state.items():
                if one.access.mask & ~mask == 0 and not one.fenced and not one.open:
                    state[key] = replace(one, fenced=True, ordered_async=0)
        for mask in gate.warps:
            gather(state, mask)
        for mask in gate.barriers:
            meet(state, mask)

    def _pass_waits(self, gate: Gate, state: State) -> None:
        for (engine, mask), pending in gate.waits.items():
            retire(state, engine, mask, pending)


def _text(gate: Gate) -> tuple[object, ...]:
    return (tuple(sorted(gate.waits.items())), *(
        tuple(sorted(x)) for x in (gate.fences, gate.warps, gate.barriers)
    ))  # fmt: skip


def _chained(x: Access, y: Access) -> bool:
    """Two products into one accumulator, in order in the engine."""
    one, two = x.node.stmt, y.node.stmt
    assert isinstance(one, Issue) and isinstance(two, Issue)
    return (
        x.role == y.role == "acc"
        and y.engine == "wgmma"
        and one.attrs["atom"] == two.attrs["atom"]
        and same_place(x.view, y.view)
    )


def gates(tree: Tree) -> Iterator[tuple[Node, Gate]]:
    for node in tree.walk():
        if node.gate is not None:
            yield node, node.gate
