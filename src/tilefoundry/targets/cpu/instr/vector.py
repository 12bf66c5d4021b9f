"""Matrix products by vector registers: C[1, n] += A[1, k] · B[k, n], n one vector of sums.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: VFMADD231PS/PD (k = 1),
VDPBF16PS (k = 2 bf16 in each 32 bits), VPDPBUSD (k = 4 bytes in each 32 bits, unsigned by
signed, no saturation). B is a vector, a register or n · k contiguous elements of memory: k
fastest, as each lane takes its k neighbours. A is one lane's worth, broadcast to all of them
from memory or held whole by each. Memory operands need no more than an element's alignment.
"""

from __future__ import annotations

from tilefoundry.targets.contract import (
    FragmentPattern,
    MeshPattern,
    MmaAtom,
    OneOf,
    ParamDef,
    SharedPattern,
    SwitchPattern,
    TensorPattern,
)
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.sums import FMA, Sums

SDM = "Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2"
MEMORY, REGISTERS = "gmem", "rmem"
NARROW, WIDE = 16, 32
"""Vector registers of a core: VEX encodings name 16, EVEX 32."""


def lanes(n: int) -> MeshPattern:
    """The lanes of one vector register."""
    return MeshPattern("lane", (n,), (1,), align=n)


def by_storage(name: str, memory: TensorPattern, registers: TensorPattern) -> SwitchPattern:
    """Operand ``name`` in memory or in registers, as its parameter says."""
    return SwitchPattern(name, ((MEMORY, memory), (REGISTERS, registers)))


def atom(
    path: str,
    capability: str,
    n: int,
    k: int,
    dtypes: tuple[str, str, str],
    mnemonic: str,
    rank: int,
    sums: Sums = FMA,
) -> MmaAtom:
    """A vector instruction of ``n`` sums of ``k`` products each; ``dtypes`` of A, B and C."""
    a, b, c = dtypes
    held = (
        FragmentPattern((1, k), (1, 1), (None, None), (1,), 1),
        FragmentPattern((k, n), (1, k), (None, 0), (0,), 1),
        FragmentPattern((1, n), (1, 1), (None, 0), (0,), 1),
    )
    broadcast = SharedPattern(((1,), (k,)), ((0,), (1,)), (16,), why="k neighbours, broadcast")
    vector = SharedPattern(((k,), (n,)), ((1 if k > 1 else 0,), (k,)), (16,), why="one vector")
    return MmaAtom(
        path=path,
        capability=capability,
        execution_mesh=lanes(n),
        A=by_storage(
            "a",
            TensorPattern((1, k), a, MEMORY, (broadcast,)),
            TensorPattern((1, k), a, REGISTERS, (held[0],)),
        ),
        B=by_storage(
            "b",
            TensorPattern((k, n), b, MEMORY, (vector,)),
            TensorPattern((k, n), b, REGISTERS, (held[1],)),
        ),
        C=TensorPattern((1, n), c, REGISTERS, (held[2],)),
        parameters=(
            ParamDef("dtype", (OneOf("dtype", (a,)),)),
            ParamDef("a", (OneOf("a", (MEMORY, REGISTERS)),)),
            ParamDef("b", (OneOf("b", (MEMORY, REGISTERS)),)),
        ),
        rank=rank,
        sums=sums,
        source=f"{SDM}, {mnemonic}",
        resources=(
            f"{WIDE if capability.startswith('avx512') else NARROW} vector registers of one core: "
            f"one for each {n} sums, one for each vector of B, one to broadcast A where it is "
            "no operand of the instruction",
        ),
        c=CText(CALLS[dtypes]),
    )


F32, F64 = ("f32", "f32", "f32"), ("f64", "f64", "f64")
HIGH_FIRST = Sums(((1, 0),))
"""VDPBF16PS adds the product of the high halves first."""
FOUR = Sums(((0, 1, 2, 3),))
BF16, BYTES = ("bf16", "bf16", "f32"), ("u8", "i8", "i32")
CALLS = {F32: "tf_fma_f32", F64: "tf_fma_f64", BF16: "tf_dot_bf16", BYTES: "tf_dot_u8i8"}
"""Functions of C, by element types."""

CONTRACTS = (
    atom("x86.avx512.FmaPs", "avx512f", 16, 1, F32, "VFMADD231PS (EVEX.512)", 1),
    atom("x86.avx512.FmaPd", "avx512f", 8, 1, F64, "VFMADD231PD (EVEX.512)", 2),
    atom("x86.avx512.DpBf16Ps", "avx512_bf16", 16, 2, BF16, "VDPBF16PS (EVEX.512)", 3, HIGH_FIRST),
    atom("x86.avx512.DpBusd", "avx512_vnni", 16, 4, BYTES, "VPDPBUSD (EVEX.512)", 4, FOUR),
    atom("x86.avx2.FmaPs", "fma", 8, 1, F32, "VFMADD231PS (VEX.256)", 5),
    atom("x86.avx2.FmaPd", "fma", 4, 1, F64, "VFMADD231PD (VEX.256)", 6),
    atom("x86.avx_vnni.DpBusd", "avx_vnni", 8, 4, BYTES, "VPDPBUSD (VEX.256)", 7, FOUR),
)
