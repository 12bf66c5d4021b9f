"""Copies and fills between registers and memory, in the widest accesses that layouts allow."""

from __future__ import annotations

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.cuda.emit import matrix, pieces
from tilefoundry.targets.cuda.emit.cluster import memory_of
from tilefoundry.targets.cuda.emit.held import Domain, count
from tilefoundry.targets.cuda.emit.index import At, each
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.memory import Access
from tilefoundry.targets.cuda.emit.operands import Constant, Registers, Turns, assign
from tilefoundry.targets.cuda.emit.text import (
    from_word,
    per_word,
    stored_type,
    to_memory,
    to_word,
    wide,
    word_type,
)
from tilefoundry.targets.cuda.instr.matrix import MatrixPlan
from tilefoundry.tir.plans import side
from tilefoundry.tir.program import Issue, Scalar, View


def emit_copy(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    if not issue.reads:
        return  # a fill that leaves what is there
    source, write = issue.reads[0], issue.writes[0]
    if isinstance(source, Scalar):
        _fill(k, issue, source, write, mesh)
    elif source.storage == "rmem" and write.storage == "rmem":
        _between_registers(k, source, write)
    elif write.storage == "rmem":
        _load(k, source, write, memory_of(k, issue))
    elif source.storage == "rmem":
        plan = _matrix_store(source, write, mesh)
        if plan is not None:
            matrix.move(k, plan, source, write, mesh, load=False)
        else:
            _store(k, source, write)
    else:
        pieces.copy(k, issue, source, write, mesh)


def _between_registers(k: Kernel, source: View, write: View) -> None:
    over = k.held(write)
    from_ = Registers(k, source, over)

    def compute(at: At, turns: Turns) -> tuple[str, str]:
        return from_.wide(at, turns), wide(source.dtype)

    def packed(at: At, lanes: list[Turns]) -> str | None:
        found = from_.words(lanes)
        same = source.dtype is write.dtype and found is not None
        return k.word(source, at, found) if same and found is not None else None

    assign(k, write, over, compute, packed, from_.per)  # type: ignore[arg-type]


def _fill(k: Kernel, issue: Issue, source: Scalar, write: View, mesh: Mesh) -> None:
    if write.storage != "rmem":
        pieces.fill(k, issue, source, write, mesh)
        return
    over = k.held(write)
    value = Constant(k, source)
    held = count(write.buffer)
    per = per_word(write.dtype)
    if over.registers == tuple(range(held)) and write.buffer.slots == 1:
        word = to_word(write.dtype, wide(source.dtype), [value.text] * per)
        name, kind = k.names[write.buffer], word_type(write.dtype)
        word = word if kind == "float" else f"({kind}){word}"
        k.out.line(f"tf_fill<{-(-held // per)}>({name}, {word});")
        return
    assign(k, write, over, lambda at, turns: (value.text, wide(source.dtype)))


def _load(k: Kernel, source: View, write: View, memory: str) -> None:
    over = k.held(write)
    access = Access(k, source, over, memory=memory)
    dtype = write.dtype
    per = per_word(dtype)
    width = (
        access.width(over.registers, per) if source.dtype is dtype and dtype.kind != "bool" else 0
    )
    if width < 4 or dtype.bits > 32:
        _load_elements(k, source, write, over, access)
        return
    run = width * 8 // dtype.bits
    turns = list(range(0, over.size, run))

    def body(at: At) -> None:
        to = k.word(write, at, [over.registers[q] for q in turns])
        call = f"tf_load<{width}>(&{to}, {access.pointer(at, turns)});"
        test = access.inside(at, turns)
        if test:
            word = access.filled() if per == 1 else to_word(
                dtype, wide(dtype), [_number(source)] * per
            )  # fmt: skip
            call = (
                f"if ({test}) {call} else tf_fill<{width // 4}>(&{to}, ({word_type(dtype)}){word});"
            )
        k.out.line(call)

    each(k.out, len(turns), body)


def _number(view: View) -> str:
    from tilefoundry.targets.cuda.emit.text import number

    return number(view.fill or 0, view.dtype)


def _load_elements(k: Kernel, source: View, write: View, over: Domain, access: Access) -> None:
    """One element at a time; those of a word are joined."""
    dtype, per = write.dtype, per_word(write.dtype)

    def compute(at: At, turns: Turns) -> tuple[str, str]:
        return access.wide(at, turns), wide(source.dtype)

    def packed(at: At, lanes: list[Turns]) -> str | None:
        if per == 1 or source.dtype is not dtype:
            return None
        return f"tf_join({', '.join(f'{access.value(at, turns)}' for turns in lanes)})"

    assign(k, write, over, compute, packed)  # type: ignore[arg-type]


def _store(k: Kernel, source: View, write: View) -> None:
    over = k.held(source)
    access = Access(k, write, over, write=True)
    dtype, per = source.dtype, per_word(source.dtype)
    same = write.dtype is dtype and dtype.kind != "bool"
    width = access.width(over.registers, per) if same else 0
    if width < 4 or dtype.bits > 32:
        _store_elements(k, source, write, over, access)
        return
    run = width * 8 // dtype.bits
    turns = list(range(0, over.size, run))

    def body(at: At) -> None:
        words = k.word(source, at, [over.registers[q] for q in turns])
        test = access.inside(at, turns)
        guard = f"if ({test}) " if test else ""
        k.out.line(f"{guard}tf_store<{width}>({access.pointer(at, turns)}, &{words});")

    each(k.out, len(turns), body)


def _store_elements(k: Kernel, source: View, write: View, over: Domain, access: Access) -> None:
    dtype, per = source.dtype, per_word(source.dtype)
    lanes = [[q for q in range(over.size) if over.registers[q] % per == j] for j in range(per)]
    name = stored_type(write.dtype)
    for lane, turns in enumerate(lanes):
        if not turns:
            continue

        def body(at: At, lane: int = lane, turns: list[int] = turns) -> None:
            word = k.word(source, at, [over.registers[q] for q in turns])
            if per > 1 and write.dtype is dtype:
                text = f"({name})tf_part<{dtype.bits}, {lane}>({word})"
            else:
                text = to_memory(write.dtype, wide(dtype), from_word(dtype, word, lane))
            test = access.inside(at, turns)
            guard = f"if ({test}) " if test else ""
            k.out.line(f"{guard}*({name} *)({access.pointer(at, turns)}) = {text};")

        each(k.out, len(turns), body)


def _matrix_store(source: View, write: View, mesh: Mesh) -> MatrixPlan | None:
    """stmatrix where the fragment and shared memory lie as it wants them."""
    if write.storage != "smem" or source.dtype is not write.dtype or source.dtype.bits != 16:
        return None
    near, far = side(source), side(write)
    if isinstance(near, Unmet) or isinstance(far, Unmet) or near.window is not None:
        return None
    contract = contract_at("stmatrix")
    assert isinstance(contract, CopyInstr)
    found = contract.judge("thread", mesh, near, far)
    return found if isinstance(found, MatrixPlan) else None


EMITTERS = {"copy": emit_copy, "fill": emit_copy}
