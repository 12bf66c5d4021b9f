"""mma.sync: a function for each type, its operands the words of fragments.

PTX ISA, "Warp Level Matrix Instructions: mma".
"""

from __future__ import annotations

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.cuda.emit.index import At, each
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.products import Product
from tilefoundry.targets.cuda.emit.text import per_word, word_type
from tilefoundry.tir.program import Issue

TYPES = {"fp8e4m3": "e4m3", "fp8e5m2": "e5m2", "i8": "s8", "i32": "s32"}
LETTER = {"float": "f", "int": "r", "uint32_t": "r"}


def emit_mma(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One instruction for each repeat."""
    p = Product(k, issue, mesh)
    repeats = list(p.repeats())
    acc = [p.words(p.acc, "C", (m, n)) for m, n, _ in repeats]
    lhs = [p.words(p.lhs, "A", (m, d)) for m, _, d in repeats]
    rhs = [p.words(p.rhs, "B", (d, n)) for _, n, d in repeats]
    function = _function(k, p, len(acc[0]), len(lhs[0]), len(rhs[0]))
    operands = ((p.acc, acc, False), (p.lhs, lhs, True), (p.rhs, rhs, True))

    def body(at: At) -> None:
        words: list[str] = []
        for view, table, read in operands:
            name = k.names[view.buffer]
            for i in range(len(table[0])):
                text = f"{name}[{at.of([row[i] for row in table])}]"
                words.append(f"tf_word({text})" if read and per_word(view.dtype) == 1 else text)
        k.out.line(f"{function}({', '.join(words)});")

    each(k.out, len(repeats), body)


def _function(k: Kernel, p: Product, acc: int, lhs: int, rhs: int) -> str:
    m, n, depth = p.atom
    kind = str(p.env["dtype"])
    operand = TYPES.get(kind, kind)
    into = TYPES.get(p.acc.dtype.name, p.acc.dtype.name)
    name = f"mma_m{m}n{n}k{depth}_{into}_{operand}"
    if name in k.functions:
        return name
    word = word_type(p.acc.dtype)
    given = [f"{word} &d{i}" for i in range(acc)]
    given += [f"uint32_t a{i}" for i in range(lhs)] + [f"uint32_t b{i}" for i in range(rhs)]

    def listed(first: int, count: int) -> str:
        return "{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}"

    d, a, b = listed(0, acc), listed(acc, lhs), listed(acc + lhs, rhs)
    outs = ", ".join(f'"+{LETTER[word]}"(d{i})' for i in range(acc))
    ins = ", ".join([f'"r"(a{i})' for i in range(lhs)] + [f'"r"(b{i})' for i in range(rhs)])
    k.functions[name] = (
        f"TF void {name}({', '.join(given)}) {{",
        f'    asm volatile("mma.sync.aligned.m{m}n{n}k{depth}.row.col."',
        f'                 "{into}.{operand}.{operand}.{into} "',
        f'                 "{d}, {a}, {b}, {d};"',
        f"                 : {outs} : {ins});",
        "}",
    )
    return name


EMITTERS = {"cuda.sm80.Mma": emit_mma, "cuda.sm89.Mma": emit_mma}
