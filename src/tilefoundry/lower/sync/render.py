"""The tree as statements again: gates spelled out, groups closed, setup and end added."""

from __future__ import annotations

from dataclasses import replace

from tilefoundry.diag import refuse
from tilefoundry.lower.sync.access import Accesses
from tilefoundry.lower.sync.handoff import Handoffs
from tilefoundry.lower.sync.order import Order, gates
from tilefoundry.lower.sync.tree import Block, Gate, Node, Signal, Tree, count
from tilefoundry.tir.program import (
    Advance,
    For,
    Issue,
    PrimFunc,
    Stmt,
    Sync,
    When,
    With,
    reach,
)

REACHED = "no CTA reaches the shared memory of another any more"
NAMED = 16
"""Named barriers of a CTA (PTX ISA, bar): 0 to 15."""


def render(tree: Tree, accesses: Accesses, handoffs: Handoffs, order: Order) -> PrimFunc:
    """The kernel of ``tree`` with its barriers and counters declared."""
    return _Writer(tree, accesses, handoffs, order).run()


class _Writer:
    def __init__(self, tree: Tree, accesses: Accesses, handoffs: Handoffs, order: Order) -> None:
        self.tree = tree
        self.accesses = accesses
        self.handoffs = handoffs
        self.order = order
        self.coupled = any(a.over for found in accesses.of.values() for a in found)
        self.ids = self._named()
        self.start = self._start()

    def run(self) -> PrimFunc:
        func, made = self.tree.func, self.handoffs.edges.counts.made
        counters = tuple(dict.fromkeys((*func.counters, *made.values())))
        body = self._body(self.tree.root)
        barriers = (*func.barriers, *self.handoffs.barriers)
        return replace(func, body=body, barriers=barriers, counters=counters)

    def _named(self) -> dict[int, int]:
        """Ids of named barriers by participants: 0 for the whole CTA."""
        ids = {self.tree.all: 0}
        for _, gate in gates(self.tree):
            for mask in sorted(gate.barriers):
                ids.setdefault(mask, len(ids))
        for node in self.tree.walk():
            if isinstance(node.stmt, Signal) and node.stmt.role:
                ids.setdefault(node.mask, len(ids))
        if len(ids) > NAMED:
            refuse("sync-named-barriers", self.tree.func.span, roles=len(ids) - 1)
        return ids

    def _start(self) -> Block:
        """The block that all threads execute once."""
        block = self.tree.root
        while len(block.nodes) == 1:
            body = block.nodes[0].body
            if not isinstance(block.nodes[0].stmt, With) or body is None:
                break
            if body.mask != self.tree.all or (self.coupled and not self._whole_cluster(body)):
                break
            block = body
        return block

    def _whole_cluster(self, block: Block) -> bool:
        """Every CTA of a cluster executes the block."""
        sizes = {t.level: t.size for t in self.tree.func.topologies}
        levels = self.tree.func.target.levels
        inside = levels[levels.index("cluster") + 1 : levels.index(self.tree.level)]
        return all(
            not block.mesh.at(x) or len(set(block.mesh.units(x))) == sizes.get(x, 1)
            for x in inside
        )  # fmt: skip

    # Statements

    def _body(self, block: Block) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        fresh: set[Stmt] = set()

        def add(stmt: Stmt, made: bool) -> None:
            before = out[-1] if out else None
            same = isinstance(stmt, With) and isinstance(before, With) and before.mesh == stmt.mesh
            if same and (made or before in fresh):
                assert isinstance(before, With) and isinstance(stmt, With)
                kept = stmt if before in fresh else before
                joined = replace(kept, body=(*before.body, *stmt.body))
                out[-1] = joined
                if made and before in fresh:
                    fresh.add(joined)
                return
            out.append(stmt)
            if made:
                fresh.add(stmt)

        if block is self.start:
            out += self._setup()
        halves = self._halves(block) if block is self.start and self.coupled else None
        for at, node in enumerate(block.nodes):
            if node is halves:
                add(Sync("cluster_arrive", why=REACHED), True)
            if node.gate is not None:
                for stmt in self._gate(node.gate, block):
                    add(stmt, True)
            before = block.nodes[at - 1] if at else None
            for stmt in self._node(node, before):
                add(stmt, node.anchor is not None)
        if block is self.start:
            for stmt in self._end(block, halves is not None):
                add(stmt, True)
        if block.owner in self.handoffs.edges.counts.made:
            out.append(Advance(self.handoffs.edges.counts.made[block.owner]))
        return tuple(out)

    def _node(self, node: Node, before: Node | None) -> list[Stmt]:
        stmt = node.stmt
        if isinstance(stmt, Signal):
            out: list[Stmt] = [Sync("fence_proxy", why=stmt.arrive.why)] if stmt.fence else []
            why = stmt.arrive.why
            out += [Sync("warp", why=why)] if stmt.warp else []
            if stmt.role:
                mask = node.mask
                out.append(Sync("barrier", id=self.ids[mask], threads=count(mask), why=why))
            return [*out, stmt.arrive]
        if isinstance(stmt, Issue):
            return self._issue(node, stmt, before)
        if isinstance(stmt, Sync):
            spare = stmt.kind == "wgmma_wait" and node not in self.order.needed
            return [] if spare else [stmt]
        if isinstance(stmt, (With, For, When)):
            assert node.body is not None
            body = self._body(node.body)
            return [replace(stmt, body=body)] if body else []
        return [stmt]

    def _issue(self, node: Node, issue: Issue, before: Node | None) -> list[Stmt]:
        effect = self.accesses.effects[node]
        if node in self.handoffs.attrs:
            issue = replace(issue, attrs={**issue.attrs, **self.handoffs.attrs[node]})
        if effect.completion == "wgmma":
            follows = before is not None and node.gate is None and before in self.accesses.effects
            chained = follows and self.accesses.effects[before].completion == "wgmma"  # type: ignore[index]
            fence: list[Stmt] = [] if chained else [Sync("wgmma_fence")]
            return [*fence, issue, Sync("wgmma_commit")]
        if effect.completion in ("async", "bulk") and self.order.closes(node):
            return [issue, Sync(f"{effect.completion}_commit")]
        return [issue]

    # Gates

    def _gate(self, gate: Gate, block: Block) -> list[Stmt]:
        why = "; ".join(dict.fromkeys(gate.why))
        out: list[Stmt] = []

        def put(mask: int, *stmts: Stmt) -> None:
            out.extend(stmts if mask == block.mask else [self._scoped(mask, block, stmts)])

        for (engine, mask), pending in sorted(gate.waits.items()):
            read = engine == "bulk"
            put(mask, Sync(f"{engine}_wait", pending=pending, read=read, why=why))
        for mask in sorted(gate.fences):
            put(mask, Sync("fence_proxy", why=why))
        for mask in sorted(gate.warps):
            put(mask, Sync("warp", why=why))
        for mask in sorted(gate.barriers):
            put(mask, Sync("barrier", id=self.ids[mask], threads=count(mask), why=why))
        return out

    def _scoped(self, mask: int, block: Block, stmts: tuple[Stmt, ...]) -> With:
        made = self.tree.scope(mask, block).stmt
        assert isinstance(made, With)
        return replace(made, body=stmts)

    # Start and end

    def _setup(self) -> list[Stmt]:
        barriers = self.handoffs.barriers
        if not barriers:
            return []
        init: list[Stmt] = [Sync("init", barrier=b, count=b.count) for b in barriers]
        init.append(Sync("fence_init"))
        why = "barriers initialised"
        if self.coupled:
            return [*init, Sync("cluster", why=why)]
        return [*init, Sync("barrier", id=0, threads=self.tree.threads, why=why)]

    def _halves(self, block: Block) -> Node | None:
        """The statement before which all arrive at the last barrier of the cluster: the first plain
        store of results behind all that reaches the shared memory of another CTA. A barrier behind
        it would wait for the store, one further ahead for what was sent to the others just now.
        None: there is none."""
        at = self._cut(block)
        return block.nodes[at] if at < len(block.nodes) else None

    def _cut(self, block: Block) -> int:
        """Statements of ``block`` before that one; the scope around it becomes two."""
        nodes = block.nodes
        inside = [(node, *self.tree.walk(node.body)) if node.body else (node,) for node in nodes]
        last = max(n for n, found in enumerate(inside) if any(map(self._reaches, found)))
        scope, body = nodes[last], nodes[last].body
        if isinstance(scope.stmt, With) and body is not None:
            at = self._cut(body)
            if at < len(body.nodes):
                rest = Node(scope.stmt, block, at=scope.at)
                rest.body = Block(body.mesh, body.mask, rest, body.nodes[at:])
                for child in rest.body.nodes:
                    child.block = rest.body
                body.nodes = body.nodes[:at]
                nodes.insert(last + 1, rest)
                return last + 1
        later = range(last + 1, len(nodes))
        return next((n for n in later if any(map(self._stores, inside[n]))), len(nodes))

    def _reaches(self, node: Node) -> bool:
        stmt = node.stmt.arrive if isinstance(node.stmt, Signal) else node.stmt
        return bool(reach(stmt)) or any(a.over for a in self.accesses.of.get(node, ()))

    def _stores(self, node: Node) -> bool:
        """Threads themselves store to device memory."""
        effect = self.accesses.effects.get(node)
        if effect is None or effect.completion == "bulk" or not isinstance(node.stmt, Issue):
            return False
        return any(v.storage == self.tree.func.target.default_storage for v in node.stmt.writes)

    def _end(self, block: Block, halves: bool) -> list[Stmt]:
        """Nothing is in flight when the kernel ends."""
        stored = dict.fromkeys(
            a.node.mask
            for found in self.accesses.stores.values()
            for a in found
            if a.engine == "bulk"
        )
        out: list[Stmt] = []
        if self.coupled and not halves and (stored or self.order.ends):
            out.append(Sync("cluster_arrive", why=REACHED))
            halves = True
        for mask in stored:
            wait = Sync("bulk_wait", pending=0, why="stores complete")
            out.append(wait if mask == block.mask else self._scoped(mask, block, (wait,)))
        for engine, mask in sorted(self.order.ends):
            wait = Sync(f"{engine}_wait", pending=0, why="nothing left in flight")
            out.append(wait if mask == block.mask else self._scoped(mask, block, (wait,)))
        if self.coupled:
            out.append(Sync("cluster_wait" if halves else "cluster", why=REACHED))
        return out
