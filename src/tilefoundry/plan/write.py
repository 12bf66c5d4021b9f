"""A plan as edits of the author's source."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tilefoundry.ir.node import Block, Node, nodes
from tilefoundry.plan.compute import Consumers, Use
from tilefoundry.plan.moves import Move
from tilefoundry.plan.search import CONSUMERS, DIRECT, LOADER, SAME, Plan
from tilefoundry.plan.site import Site
from tilefoundry.plan.source import Author, Edit, Unwritable
from tilefoundry.plan.tiles import Tile
from tilefoundry.targets.target import Target

STEP = "    "


class Writer:
    """Writes the plans of one site. ``binding`` is the consumers' scope."""

    def __init__(self, site: Site, target: Target) -> None:
        self.site, self.target = site, target
        self.author = Author(site)
        self.unit = target.levels[-1]
        self.small = min((int(f.value or 1) for f in target.groups.values()), default=1)
        self.binding = self.author.fresh("compute")
        self.threads, self._scope = self._around()

    def edits(self, plan: Plan, fragment_copy: str) -> tuple[Edit, ...]:
        """Every edit, in order of lines; ``fragment_copy`` is the instruction that fills
        fragments from shared memory. Raises :class:`Unwritable`."""
        return tuple(
            sorted(
                (
                    self._topologies(plan),
                    self._mesh(plan),
                    self._accumulator(plan),
                    self._body(plan, fragment_copy),
                    self._store(plan),
                ),
                key=lambda e: e.first,
            )
        )

    # ---- units

    def _around(self) -> tuple[str, tuple[ast.With, int] | None]:
        """The binding of the scope of all units, and where it is declared (None: nowhere)."""
        withs = self.author.scopes()
        found: tuple[ast.With, int] | None = None
        place: dict[int, int] = {}
        for scope in self.site.scopes:
            line = scope.span.line if scope.span else 0
            index = place[line] = place.get(line, -1) + 1
            if self.unit not in scope.own.levels:
                continue
            if scope.source or found is not None:
                raise Unwritable(f"the loop stands in a scope that narrows the {self.unit}s")
            if scope.own.levels != (self.unit,):
                raise Unwritable(f"one scope arranges {' and '.join(scope.own.levels)}")
            stmt = next((w for w in withs if w.lineno == line), None)
            if stmt is None:
                raise Unwritable("its scopes are not written around it")
            found = stmt, index
        if found is None:
            return self.author.fresh("threads"), None
        target = found[0].items[found[1]].optional_vars
        return (target.id if isinstance(target, ast.Name) else self.author.fresh("threads")), found

    def _topologies(self, plan: Plan) -> Edit:
        value = self.author.topologies()
        if not isinstance(value, (ast.Tuple, ast.List)):
            raise Unwritable("the module's topologies are not written as a tuple")
        items: list[str] = []
        for item in value.elts:
            word = item.args[0] if isinstance(item, ast.Call) and item.args else None
            if not (isinstance(word, ast.Constant) and word.value == self.unit):
                items.append(self.author.words(item))
        items.append(f'Topology("{self.unit}", {plan.units})')
        return self.author.replaced(value, f"({', '.join(items)})")

    def _mesh(self, plan: Plan) -> Edit:
        group = plan.compute.use.atom.execution_mesh.units
        word = "warp" if group == self.small else "warpgroup"
        shape = f"({plan.units // group}, {group})"
        mesh = f'Mesh(("{self.unit}",), layout={shape}, names=("{word}", "lane"))'
        if self._scope is not None:
            stmt, index = self._scope
            item = stmt.items[index]
            words = mesh if item.optional_vars is not None else f"{mesh} as {self.threads}"
            return self.author.replaced(item.context_expr, words)
        scopes = self.author.scopes()
        if not scopes:
            raise Unwritable("no scope is written around the loop")
        item = scopes[-1].items[-1]
        last = item.optional_vars or item.context_expr
        return self.author.replaced(last, f"{self.author.words(last)}, {mesh} as {self.threads}")

    def _consumers(self, plan: Plan) -> str:
        """The head of a consumers' scope."""
        held: Consumers = plan.compute.consumers
        group = plan.compute.use.atom.execution_mesh.units
        lead, count = plan.lead // group, plan.units // group
        part = f"{self.threads}[{lead}:{count}, :]" if lead else self.threads
        return f"with Mesh({part}, layout={held.layout}, names={held.names}) as {self.binding}:"

    def _warp(self, plan: Plan, number: int, stem: str) -> str:
        """The head of the scope of one small group in front of the consumers."""
        group = plan.compute.use.atom.execution_mesh.units
        if group == self.small:
            part = f"{number}, :"
        else:
            start = number * self.small
            part = f"0, {start or ''}:{start + self.small}"
        return f"with {self.threads}[{part}] as {self.author.fresh(stem)}:"

    # ---- accumulator

    def _accumulator(self, plan: Plan) -> Edit:
        author, acc = self.author, self.site.acc
        stmt = author.makes(acc)
        pad = author.indent(stmt)
        text = f"{self.site.carried} = tf.zeros({self._tensor(self._acc_shape(), plan.compute.C)})"
        lines = (pad + self._consumers(plan), pad + STEP + text)
        return Edit(stmt.lineno, stmt.end_lineno or stmt.lineno, lines)

    def _acc_shape(self) -> str:
        """The accumulator's shape as it is written."""
        call = self.author.call(self.site.acc)
        given = [*call.args, *(k.value for k in call.keywords)]
        if given and isinstance(given[0], ast.Subscript) and isinstance(given[0].slice, ast.Tuple):
            return self.author.words(given[0].slice.elts[0])
        return _tuple(self.site.acc.tensor.shape)

    def _tensor(self, shape: str, tile: Tile) -> str:
        far = tile.type.storage == self.target.default_storage
        place = "" if far else f', "{tile.type.storage}"'
        layout = f", {tile.text}" if tile.text else ""
        return f'Tensor[{shape}, "{tile.type.dtype}"{layout}{place}]'

    # ---- the loop

    def _body(self, plan: Plan, fragment_copy: str) -> Edit:
        author, loop = self.author, self.author.loop
        pad = " " * loop.body[0].col_offset
        inside = list(nodes(self.site.loop.body))
        lines: list[str] = []
        for stmt in loop.body:  # index arithmetic stays
            if not any(author.holds(stmt, n) for n in inside):
                lines += author.lines(stmt, pad)
        loads = [line for move in plan.moves for line in self._load(move, plan.slots)]
        products = self._product(plan, fragment_copy)
        if plan.roles == SAME:
            lines.append(pad + self._consumers(plan))
            lines += [pad + STEP + line for line in (*loads, *products)]
        else:
            lines.append(pad + self._warp(plan, 0, "loader"))
            lines += [pad + STEP + line for line in loads]
            lines.append(pad + self._consumers(plan))
            lines += [pad + STEP + line for line in products]
        last = loop.body[-1]
        return Edit(loop.body[0].lineno, last.end_lineno or last.lineno, tuple(lines))

    def _load(self, move: Move, slots: int) -> tuple[str, str]:
        load, author = move.load, self.author
        assert load.node.span is not None
        ring = author.fresh(f"{load.name}_ring")
        shape = f"({', '.join(author.extents(load.node))})"
        tile = author.words(load.node.span)
        return (
            f"{ring} = tf.empty({self._tensor(shape, move.ring)}, buffers={slots})",
            f"{load.name} = tf.schedule(({tile}, {ring}), op=T.{move.instr.path}())",
        )

    def _product(self, plan: Plan, fragment_copy: str) -> list[str]:
        use: Use = plan.compute.use
        lines: list[str] = []
        words: list[str] = []
        held = {"A": plan.compute.A, "B": plan.compute.B}
        for x, load in zip("AB", self.site.loads, strict=True):
            word = f"tf.transpose({load.name}, (1, 0))" if load.flipped else load.name
            tile = held[x]
            if tile is not None:
                shape = list(self.author.extents(load.node))
                shape = shape[::-1] if load.flipped else shape
                place = self.author.fresh(f"{load.name}_regs")
                made = self.author.fresh(f"{load.name}_frag")
                empty = self._tensor(f"({', '.join(shape)})", tile)
                lines.append(f"{place} = tf.empty({empty})")
                lines.append(f"{made} = tf.schedule(({word}, {place}), op=T.{fragment_copy}())")
                word = made
            words.append(word)
        acc = self.site.carried
        lines.append(
            f"{acc} = tf.schedule(({acc}, {', '.join(words)}), "
            f"op=T.tiled_mma(atom={use.text()}), repeat={plan.compute.fit.repeat})"
        )
        return lines

    # ---- the result

    def _store(self, plan: Plan) -> Edit:
        author, result = self.author, self.site.result
        last = author.makes(result.insert)
        ends = [s for s in author.after if author.holds(s, result.insert)]
        if not ends:
            raise Unwritable("the result is inserted in another block than the loop's")
        span = author.after[: author.after.index(ends[0]) + 1]
        pad = author.indent(author.loop)
        kept, value = self._kept(span)
        dst, offsets = self._insert()
        target = self._target(last)
        lines = [pad + self._consumers(plan)]
        inner = pad + STEP
        for stmt in kept:
            lines += author.lines(stmt, inner)
        if plan.store == DIRECT:
            lines.append(f"{inner}{target} = tf.insert_slice({dst}, {value}, {offsets})")
            return Edit(span[0].lineno, ends[0].end_lineno or 0, tuple(lines))
        assert plan.staging is not None and plan.store_by is not None
        shape = self._acc_shape()
        if not value.isidentifier():
            named = author.fresh(f"{self.site.carried}_out")
            lines.append(f"{inner}{named} = {value}")
            value = named
        place, staged = author.fresh("staged_dst"), author.fresh("staged")
        lines.append(f"{inner}{place} = tf.empty({self._tensor(shape, plan.staging)})")
        lines.append(f"{inner}{staged} = tf.schedule(({value}, {place}), op=T.copy())")
        if plan.store != CONSUMERS:
            lines.append(pad + self._warp(plan, 0 if plan.store == LOADER else 1, "storer"))
        out = author.fresh("stored")
        empty = f'tf.empty(Tensor[{shape}, "{plan.staging.type.dtype}"])'
        lines.append(
            f"{inner}{out} = tf.schedule(({staged}, {empty}), op=T.{plan.store_by.path}())"
        )
        lines.append(f"{inner}{target} = tf.insert_slice({dst}, {out}, {offsets})")
        return Edit(span[0].lineno, ends[0].end_lineno or 0, tuple(lines))

    def _kept(self, span: Sequence[ast.stmt]) -> tuple[list[ast.stmt], str]:
        """Statements between the loop and the insertion that stay, and the words of the value
        to store; scopes around them are taken away."""
        author, result = self.author, self.site.result
        way = {*result.copies, result.insert}
        made = list(nodes(Block(self.site.block)))
        kept: list[ast.stmt] = []
        value = ""
        for stmt in _flat(span):
            here: list[Node] = [n for n in made if author.holds(stmt, n)]
            if result.value in here and not _names(stmt, result.value):
                assert result.value.span is not None
                value = author.words(result.value.span)
            elif here and all(n in way for n in here):
                continue
            else:
                kept.append(stmt)
        return kept, value or result.value.name or self.site.carried

    def _insert(self) -> tuple[str, str]:
        """Destination and offsets of the insertion, as written."""
        call = self.author.call(self.site.result.insert)
        given = dict(zip(("dst", "update", "offsets"), call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        if not {"dst", "offsets"} <= given.keys():
            raise Unwritable("the insertion is not written as tf.insert_slice(dst, ..., offsets)")
        return self.author.words(given["dst"]), self.author.words(given["offsets"])

    def _target(self, stmt: ast.stmt) -> str:
        inner = next(s for s in _flat([stmt]) if self.author.holds(s, self.site.result.insert))
        if isinstance(inner, ast.Assign) and len(inner.targets) == 1:
            return self.author.words(inner.targets[0])
        raise Unwritable("the insertion's result has no name")


def _flat(stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements with those of scopes in their place."""
    out: list[ast.stmt] = []
    for stmt in stmts:
        out += _flat(stmt.body) if isinstance(stmt, ast.With) else [stmt]
    return out


def _names(stmt: ast.stmt, node: Node) -> bool:
    """Whether the statement gives ``node`` its name: it does nothing else."""
    if not isinstance(stmt, ast.Assign) or node.span is None:
        return False
    value, span = stmt.value, node.span
    return (value.lineno, value.col_offset) == (span.line, span.col) and (
        value.end_lineno,
        value.end_col_offset,
    ) == (span.end_line, span.end_col)


def _tuple(shape: Sequence[object]) -> str:
    return f"({', '.join(map(str, shape))})"
