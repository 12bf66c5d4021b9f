"""wgmma.mma_async: a function for each shape, descriptors from the operands' layouts.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.products import Blocks, Product
from tilefoundry.targets.cuda.emit.text import per_word
from tilefoundry.targets.cuda.instr.wgmma import Descriptor, descriptor
from tilefoundry.tir.plans import side
from tilefoundry.tir.program import Issue, View

TYPES = {"fp8e4m3": "e4m3", "fp8e5m2": "e5m2"}


def emit_wgmma(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One instruction for each repeat."""
    p = Product(k, issue, mesh)
    out = k.out
    from_registers = p.lhs.storage == "rmem"
    ends: dict[str, tuple[str, Descriptor]] = {}
    for name, view, where in (("A", p.lhs, p.rows), ("B", p.rhs, p.columns)):
        if view.storage == "rmem":
            continue
        ends[name] = _descriptor(k, p, name, view, where)
    first_turn = _first_turn(k, issue)
    accumulators: dict[tuple[int, int], list[int]] = {}
    begun: set[tuple[int, int]] = set()
    for m, n, depth in p.repeats():
        if (m, n) not in accumulators:
            accumulators[m, n] = p.words(p.acc, "C", (m, n))
        numbers = accumulators[m, n]
        shape = tuple(x - numbers[0] for x in numbers)
        function = _function(k, p, shape, from_registers)
        first = f"{k.names[p.acc.buffer]} + {numbers[0]}" if numbers[0] else k.names[p.acc.buffer]
        if from_registers:
            words = p.words(p.lhs, "A", (m, depth))
            kind = "" if per_word(p.lhs.dtype) > 1 else "tf_word"
            a = ", ".join(f"{kind}({k.names[p.lhs.buffer]}[{w}])" if kind else
                          f"{k.names[p.lhs.buffer]}[{w}]" for w in words)  # fmt: skip
        else:
            a = _start(*ends["A"], m, depth)
        b = _start(*ends["B"], n, depth)
        adds = "1" if (m, n) in begun else first_turn
        begun.add((m, n))
        out.line(f"{function}({first}, {a}, {b}, {adds});")


def _first_turn(k: Kernel, issue: Issue) -> str:
    """Whether the first product into each block adds to it: 1, 0, or a test."""
    if issue.attrs.get("zero"):
        return "0"
    if issue not in k.zeros.products:
        return "1"
    loop = k.zeros.products[issue]
    return "0" if loop is None else f"{k.names[loop.var]} > {loop.start}"


def _descriptor(
    k: Kernel, p: Product, name: str, view: View, where: Blocks
) -> tuple[str, Descriptor]:
    """A variable with the descriptor of the unit's first block."""
    found = side(view)
    assert not isinstance(found, Unmet)
    place = found.place()
    assert not isinstance(place, Unmet)
    made = descriptor(p.fit, name, place)
    start = k.address(view.buffer, view.slot)
    if place.base != 0:
        start += f" + {k.dim(place.base * (place.bits // 8))}"
    for axis, step in where.steps:
        apart = made.mn_starts[step] - made.mn_starts[0]
        for n in range(axis.extent):
            assert made.mn_starts[n * step] == made.mn_starts[0] + n * apart, view
        start += f" + {k.names[axis]} * {apart}"
    variable = k.out.name(f"{name.lower()}_tile")
    k.out.line(f"const uint64_t {variable} = tf_descriptor({made.encode(0):#x}, {start});")
    return variable, made


def _start(variable: str, made: Descriptor, block: int, depth: int) -> str:
    """A repeat's descriptor: the start address moves in units of 16 bytes."""
    apart = made.start(block, depth)
    assert apart % 16 == 0 and apart >= 0
    return f"{variable} + {apart // 16}" if apart else variable


def _function(k: Kernel, p: Product, shape: tuple[int, ...], from_registers: bool) -> str:
    """The instruction as a function; ``shape``: where in the array its registers are."""
    env = p.env
    m, n, depth = p.atom
    kind = str(env["dtype"])
    word = TYPES.get(kind, kind)
    majors = [int(env[f"{x}_major"] == "MN") for x in "ab"]
    turned = "".join(
        f"_{x}t" for x, t in zip("ab", majors, strict=True)
        if t and not (x == "a" and from_registers)
    )  # fmt: skip
    name = f"wgmma_m{m}n{n}k{depth}_{word}{'_rs' if from_registers else ''}{turned}"
    order = 1
    while (name if order == 1 else f"{name}_{order}") in k.functions:
        known = name if order == 1 else f"{name}_{order}"
        if k.functions[known] == _text(known, p, word, shape, majors, from_registers):
            return known
        order += 1
    name = name if order == 1 else f"{name}_{order}"
    k.functions[name] = _text(name, p, word, shape, majors, from_registers)
    return name


def _text(
    name: str, p: Product, word: str, shape: tuple[int, ...], majors: list[int],
    from_registers: bool,
) -> tuple[str, ...]:  # fmt: skip
    m, n, depth = p.atom
    count = len(shape)
    at = count
    if from_registers:
        given, a = "uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3", "{" + ", ".join(
            f"%{at + i}" for i in range(4)
        ) + "}"  # fmt: skip
        inputs = [f'"r"(a{i})' for i in range(4)]
        at += 4
    else:
        given, a, inputs = "uint64_t a", f"%{at}", ['"l"(a)']
        at += 1
    b, adds = f"%{at}", f"%{at + 1}"
    inputs += ['"l"(b)', '"r"(adds)']
    turns = ""
    if word in ("bf16", "f16"):
        turns = f", {majors[1]}" if from_registers else f", {majors[0]}, {majors[1]}"
    lines = [f"TF void {name}(float *d, {given}, uint64_t b, int adds) {{",
             "    asm volatile(", '        "{\\n"', '        ".reg .pred p;\\n"',
             f'        "setp.ne.b32 p, {adds}, 0;\\n"',
             f'        "wgmma.mma_async.sync.aligned.m{m}n{n}k{depth}.f32.{word}.{word} "',
             '        "{"']  # fmt: skip
    for i in range(0, count, 16):
        row = ", ".join(f"%{j}" for j in range(i, min(i + 16, count)))
        lines.append(f'        "{row}{", " if i + 16 < count else ""}"')
    lines += [f'        "}}, {a}, {b}, p, 1, 1{turns};\\n"', '        "}"', "        : "]
    outs = [f'"+f"(d[{x}])' for x in shape]
    for i in range(0, count, 8):
        row = ", ".join(outs[i : i + 8])
        lines.append(f"          {row}{',' if i + 8 < count else ''}")
    lines += [f"        : {', '.join(inputs)});", "}"]
    return tuple(lines)


EMITTERS = {"cuda.sm90.Wgmma": emit_wgmma}
