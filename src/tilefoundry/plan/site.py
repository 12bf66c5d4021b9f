"""Loops that can be planned: tiles from device memory, one product, one accumulator.

``for k: acc = acc + A[.., k] · B[k, ..]``, the operands read straight from device memory or
through copies, and after the loop a value made of the accumulator inserted into the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from tilefoundry.diag import Span
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import Block, Loop, Node, Scope, Stmt, nodes
from tilefoundry.ir.program import Func
from tilefoundry.ir.types import TensorType
from tilefoundry.plan.tiles import words_of
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.place import Window, window_of
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.target import Target


@dataclass(frozen=True)
class Load:
    """One operand: ``tile`` in device memory, the part ``window`` of a tensor, read by the
    slice ``node``; ``flipped`` if the product uses its transpose."""

    name: str
    node: Node
    tile: TensorType
    window: Window | None
    flipped: bool


@dataclass(frozen=True)
class Alive:
    """What a unit holds at a statement: ``bits`` for each element of its accumulator, and
    ``words`` of values that are not made of it."""

    bits: Fraction
    words: int


@dataclass(frozen=True)
class Result:
    """``value`` made of the accumulator's ``total``, inserted by ``insert``; ``copies`` between
    them. ``alive``: what registers hold of it at each statement until it is made."""

    total: Node
    value: Node
    insert: Node
    copies: tuple[Node, ...]
    alive: tuple[Alive, ...]

    @property
    def window(self) -> Window | None:
        """Where it goes, if the tile's axes are the tensor's."""
        whole = self.insert.tensor
        offsets = self.insert.attrs["offsets"]
        assert isinstance(offsets, tuple)
        if whole.rank != self.value.tensor.rank:
            return None
        return Window(whole, tuple(range(whole.rank)), offsets)


@dataclass(frozen=True)
class Site:
    """One loop: its operands, accumulator (``acc`` before the loop) and result. ``nest`` ends
    with the loop; ``scopes`` are those around it, ``mesh`` the units in force there."""

    func: Func
    loop: Loop
    nest: tuple[Loop, ...]
    scopes: tuple[Scope, ...]
    mesh: Mesh
    block: tuple[Stmt, ...]
    loads: tuple[Load, Load]
    product: Node
    acc: Node
    carried: str
    result: Result

    @property
    def extents(self) -> tuple[int, int, int]:
        """(m, n, k) of one step."""
        rows, columns = self.acc.tensor.shape
        tile = self.loads[0]
        depth = tile.tile.shape[0 if tile.flipped else 1]
        return int(rows), int(columns), int(depth)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Other:
    """A loop with loads and a product that is not of the form, and why."""

    loop: Loop
    why: str
    at: Span | None


def find(func: Func, target: Target) -> list[Site | Other]:
    """Every loop of ``func`` that loads tiles and multiplies them, in program order."""
    return [_Reader(func, target, *place).read() for place in _loops(func, target)]


Place = tuple[Loop, tuple[Loop, ...], tuple[Scope, ...], tuple[Stmt, ...]]


def _loops(func: Func, target: Target) -> Iterator[Place]:
    """Loops whose own statements hold a product of tiles that came from device memory."""
    stack: list[tuple[Block, tuple[Loop, ...], tuple[Scope, ...]]] = [(func.body, (), ())]
    while stack:
        block, nest, scopes = stack.pop()
        inner: list[tuple[Block, tuple[Loop, ...], tuple[Scope, ...]]] = []
        for stmt in block.stmts:
            if isinstance(stmt, Scope):
                inner.append((stmt.body, nest, (*scopes, stmt)))
            elif isinstance(stmt, Loop):
                inner.append((stmt.body, (*nest, stmt), scopes))
                if _multiplies(stmt, target):
                    yield stmt, (*nest, stmt), scopes, block.stmts
        stack += reversed(inner)


def _multiplies(loop: Loop, target: Target) -> bool:
    own = list(_own(loop.body))
    made = any(is_product(n) for n in own)
    far = target.default_storage
    return made and any(
        n.op.name == "slice" and isinstance(n.type, TensorType) and n.type.storage == far
        for n in own
    )


def _own(block: Block) -> Iterator[Node]:
    """Nodes of a block and its scopes, without those of inner loops."""
    for stmt in block.stmts:
        if isinstance(stmt, Node):
            yield stmt
        elif isinstance(stmt, Scope):
            yield from _own(stmt.body)


def instruction(node: Node) -> str:
    """The path of a scheduled node's instruction, empty for any other node."""
    return str(getattr(node.attrs["op"], "path", "")) if node.op.name == "schedule" else ""


def is_product(node: Node) -> bool:
    return node.op.name == "matmul" or instruction(node) == "tiled_mma"


def is_copy(node: Node) -> bool:
    """A move of a value without computing."""
    if node.op.name == "reshard":
        return True
    return isinstance(contract_at(instruction(node)), CopyInstr)


class _NotOfTheForm(Exception):
    def __init__(self, why: str, at: Span | None) -> None:
        super().__init__(why)
        self.why, self.at = why, at


class _Reader:
    """Reads one loop; ``_no`` says what is not of the form."""

    def __init__(
        self,
        func: Func,
        target: Target,
        loop: Loop,
        nest: tuple[Loop, ...],
        scopes: tuple[Scope, ...],
        block: tuple[Stmt, ...],
    ) -> None:
        self.func, self.target, self.loop = func, target, loop
        self.nest, self.scopes, self.block = nest, scopes, block

    def read(self) -> Site | Other:
        try:
            return self._read()
        except _NotOfTheForm as no:
            return Other(self.loop, no.why, no.at)

    def _no(self, why: str, node: Node | None = None) -> _NotOfTheForm:
        return _NotOfTheForm(why, node.span if node is not None else self.loop.span)

    def _read(self) -> Site:
        if any(isinstance(s, Loop) for s in self.loop.body.stmts):
            raise self._no("it holds another loop")
        inside = list(nodes(self.loop.body))
        products = [n for n in inside if is_product(n)]
        if len(products) != 1:
            raise self._no(f"it has {len(products)} products, one can be planned", products[1])
        product = products[0]
        used: set[Node] = {product}
        lhs = self._load(product, 0, used)
        rhs = self._load(product, 1, used)
        carried = self._accumulated(product, used)
        strange = [n for n in inside if n not in used]
        if strange:
            why = f"tf.{strange[0].op.name} is neither a load, the product nor its sum"
            raise self._no(why, strange[0])
        acc = carried.init
        if acc.op.name != "zeros":
            raise self._no("its accumulator does not begin as tf.zeros", acc)
        if acc.tensor.rank != 2 or not all(isinstance(e, int) for e in acc.tensor.shape):
            raise self._no(f"its accumulator {acc.type} is not a matrix of known extents", acc)
        mesh = self.scopes[-1].mesh if self.scopes else Mesh()
        if not mesh.at(self.target.processor.level):
            raise self._no(f"no {self.target.processor.level} scope says who computes which tile")
        return Site(self.func, self.loop, self.nest, self.scopes, mesh, self.block, (lhs, rhs),
                    product, acc, carried.name, self._result(carried.result))  # fmt: skip

    def _load(self, product: Node, side: int, used: set[Node]) -> Load:
        """The operand's way back to device memory."""
        scheduled = product.op.name == "schedule"
        at = product.args[side + 1 if scheduled else side]
        word = ("a_layout", "b_layout")[side]
        flipped = not scheduled and product.attrs[word] in ("km", "nk")
        name = ""
        while True:
            used.add(at)
            if is_copy(at):
                name = at.name or name
                used.update(at.args[1:])
                at = at.args[0]
            elif at.op.name == "transpose":
                flipped = not flipped
                at = at.args[0]
            elif at.op.name == "slice" and at.tensor.storage == self.target.default_storage:
                break
            else:
                what = f"operand {side} is tf.{at.op.name}, not a tile of device memory"
                raise self._no(what, at if at.span else product)
        if at.tensor.rank != 2 or not all(isinstance(e, int) for e in at.tensor.shape):
            raise self._no(f"operand {side} is {at.type}, not a matrix of known extents", at)
        stem = at.args[0].name or ("lhs", "rhs")[side]
        return Load(name or f"{stem}_tile", at, at.tensor, window_of(at), flipped)

    def _accumulated(self, product: Node, used: set[Node]):
        for carried in self.loop.carried:
            step = carried.step
            if step is product and product.args[0] is carried.head:
                return carried
            if step.op.name == "add" and set(step.args) == {carried.head, product}:
                used.add(step)
                return carried
        raise self._no("its product is not summed into a value carried by the loop", product)

    def _result(self, total: Node) -> Result:
        """What is inserted after the loop, and the copies on its way."""
        after = self.block[self.block.index(self.loop) + 1 :]
        made: list[Node] = [n for n in nodes(Block(after)) if n.op.name == "insert_slice"]
        for insert in made:
            copies: list[Node] = []
            at = insert.args[1]
            while is_copy(at):
                copies += [at, *(a for a in at.args[1:] if a.op.name == "empty")]
                at = at.args[0]
            if _comes_from(at, total):
                return Result(total, at, insert, tuple(copies), self._alive(total, at))
        raise self._no("what it computes is not inserted into a result after it")

    def _alive(self, total: Node, value: Node) -> tuple[Alive, ...]:
        """Each value lives from its statement to the last that takes it."""
        own = self.target.levels[-1]
        needed, stack = {total, value}, [value]
        while stack:
            fresh = [a for a in stack.pop().args if a not in needed]
            needed.update(fresh)
            stack += fresh
        # a loop's result is no statement of its own: it is there when the loop is over
        order = [total, *(n for n in nodes(self.func.body) if n in needed and n is not total)]
        start = next((i for i, n in enumerate(order) if _comes_from(n, total) and i), len(order))
        order = [*order[1:start], total, *order[start:]]
        at = {n: i for i, n in enumerate(order)}
        last = {n: i for n, i in at.items()}
        for n, i in at.items():
            for a in n.args:
                if a in last:
                    last[a] = max(last[a], i)
        size = _elements(total)
        out: list[Alive] = []
        for i in range(at[total], len(order)):
            bits, words = Fraction(0), 0
            for n in order[: i + 1]:
                if last[n] < i or self._level(n) != own:
                    continue
                if n is total or _comes_from(n, total):
                    bits += Fraction(n.tensor.dtype.bits * _elements(n), size)
                else:
                    words += words_of(n.tensor)
            out.append(Alive(bits, words))
        return tuple(out)

    def _level(self, node: Node) -> str | None:
        if not isinstance(node.type, TensorType):
            return None
        storage = self.target.storages.get(node.type.storage)
        return storage.level if storage is not None else None


def _elements(node: Node) -> int:
    extents = node.tensor.shape
    return prod(e for e in extents if isinstance(e, int))


def _comes_from(node: Node, origin: Node) -> bool:
    stack: list[Node] = [node]
    seen: set[Node] = set()
    while stack:
        at = stack.pop()
        if at is origin:
            return True
        if at not in seen:
            seen.add(at)
            stack += at.args
    return False


def sites(funcs: Sequence[Func], target: Target) -> list[tuple[Func, Site | Other]]:
    """The loops of several functions."""
    return [(f, s) for f in funcs for s in find(f, target)]
