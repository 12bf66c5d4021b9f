"""mma.sync: one warp, C[16, 8] += A[16, k] · B[k, 8], k = 32 bytes of operand.

PTX ISA, "Warp Level Matrix Fragments": lane = 4 · group + member; a register holds ``e``
neighbours along k; registers of A run k halves after row halves. 16-bit and tf32 operands,
8-bit integers with 32-bit sums (sm80), 8-bit floats (sm89). Sums of f16 operands may be f16.
"""

from __future__ import annotations

from tilefoundry.targets.contract import (
    Case,
    FragmentPattern,
    MeshPattern,
    MmaAtom,
    OneOf,
    ParamDef,
    TensorPattern,
    Variable,
)

e, k = Variable("e"), Variable("k")
WARP = MeshPattern("thread", (4, 8), (1, 4), align=32)
# axis 0 of the mesh is the member (lane % 4), axis 1 the group (lane // 4)
A = FragmentPattern(
    (2, 8, 2, 4, e), (8, 1, 64 * e, 16 * e, 16), (None, 1, None, 0, None), (4, 0, 2), 2
)
B = FragmentPattern((2, 4, e, 8), (4 * e, e, 1, 8 * e), (None, 0, None, 1), (2, 0), 3)
C = FragmentPattern((2, 8, 4, 2), (8, 1, 32, 16), (None, 1, 0, None), (3, 0), 2)


def mma(path: str, sums: dict[str, tuple[str, ...]], rank: int) -> MmaAtom:
    """An mma.sync of the operand dtypes of ``sums`` into the dtypes that each allows."""
    bits = Variable("bits")
    return MmaAtom(
        path=path,
        capability="mma.sync",
        execution_mesh=WARP,
        A=TensorPattern((16, k), "dtype", "rmem", (A,)),
        B=TensorPattern((k, 8), "dtype", "rmem", (B,)),
        C=TensorPattern((16, 8), "acc", "rmem", (C,)),
        parameters=(
            ParamDef("dtype", (OneOf("dtype", tuple(sums)),)),
            ParamDef(
                "acc",
                cases=tuple(Case((("dtype", (d,)),), values) for d, values in sums.items()),
                default="f32",
            ),
        ),
        lets=(("k", 256 // bits), ("e", 32 // bits)),
        rank=rank,
        source="PTX ISA, mma.sync",
    )


F32, I32 = ("f32",), ("i32",)
SM80 = mma(
    "cuda.sm80.Mma",
    {"f16": ("f32", "f16"), "bf16": F32, "tf32": F32, "i8": I32, "u8": I32},
    1,
)
SM89 = mma("cuda.sm89.Mma", {"fp8e4m3": F32, "fp8e5m2": F32}, 2)
CONTRACTS = (SM80, SM89)
