"""wgmma.mma_async: one warpgroup, C[64, n] += A[64, k] · B[k, n], k = 32 bytes of operand.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions": register
fragments of D and A; canonical shared-memory layouts without swizzle and with spans of 32,
64 and 128 bytes; MN-major operands for 16-bit types only.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.targets.contract import (
    Between,
    Case,
    FragmentPattern,
    MeshPattern,
    MmaAtom,
    MultipleOf,
    OneOf,
    ParamDef,
    SharedPattern,
    SwitchPattern,
    TensorPattern,
    Variable,
)
from tilefoundry.targets.contract.legality import Fit
from tilefoundry.targets.contract.place import Place

n, k, e, r, s, W, bits = (Variable(name) for name in ("n", "k", "e", "r", "s", "W", "bits"))
c, lead = Variable("c"), Variable("l")
HALF = ("bf16", "f16")
OTHER = ("tf32", "fp8e4m3", "fp8e5m2")

# Core matrices are 8 rows of one span (W elements); l and s are the distances between them.
A_K_WIDE = SharedPattern(
    ((8, 8), (k,)), ((lead, W), (1,)), (128, 64), multiples=(("l", 8 * W),), major="K"
)
A_K_NARROW = SharedPattern(
    ((8, 8), (r, W)), ((lead, W), (s, 1)), (32, 16), multiples=(("l", 8 * W),), major="K"
)
A_MN = SharedPattern(
    ((r, W), (k // 8, 8)),
    ((lead, 1), (s, W)),
    (128, 64, 32, 16),
    multiples=(("l", 8 * W), ("s", 8 * W)),
    major="MN",
)
B_K_WIDE = SharedPattern(
    ((k,), (n // 8, 8)), ((1,), (lead, W)), (128, 64), multiples=(("l", 8 * W),), major="K"
)
B_K_NARROW = SharedPattern(
    ((r, W), (n // 8, 8)), ((s, 1), (lead, W)), (32, 16), multiples=(("l", 8 * W),), major="K"
)
B_MN = SharedPattern(
    ((k // 8, 8), (r, W)),
    ((s, W), (lead, 1)),
    (128, 64, 32, 16),
    multiples=(("l", 8 * W), ("s", 8 * W)),
    major="MN",
)

# row = 16 warp + 8 h + lane8, col = 8 c + 2 lane4 + e; registers: e fastest, then h, then c
C = FragmentPattern(
    (4, 2, 8, c, 4, 2), (16, 8, 1, 512, 128, 64), (0, None, 1, None, 2, None), (5, 1, 3), 3
)
# k = 4 e kh + e lane4 + (0..e); registers: element fastest, then h, then kh
A_REGISTERS = FragmentPattern(
    (4, 2, 8, 2, 4, e), (16, 8, 1, 256 * e, 64 * e, 64), (0, None, 1, None, 2, None), (5, 1, 3), 3
)

A_IN_REGISTERS = TensorPattern((64, k), "dtype", "rmem", (A_REGISTERS,))


def major(name: str) -> SwitchPattern:
    """Operand ``name`` in shared memory by its major."""
    wide, narrow, mn = (A_K_WIDE, A_K_NARROW, A_MN) if name == "a" else (B_K_WIDE, B_K_NARROW, B_MN)
    shape = (64, k) if name == "a" else (k, n)
    return SwitchPattern(
        f"{name}_major",
        (
            ("K", TensorPattern(shape, "dtype", "smem", (wide, narrow), align=16)),
            ("MN", TensorPattern(shape, "dtype", "smem", (mn,), align=16)),
        ),
    )


def majors(name: str, register_form: bool) -> ParamDef:
    """Which majors operand ``name`` may have: MN for 16-bit types from shared memory only."""
    forms = ((("form", ("SS",)), ("MN", "K")), (("form", ("RS",)), ("K",)))
    cases = tuple(
        Case((("dtype", (dtype,)), form), values)
        for dtype in HALF
        for form, values in forms
        if register_form
    ) or tuple(Case((("dtype", (dtype,)),), ("MN", "K")) for dtype in HALF)
    cases += tuple(Case((("dtype", (dtype,)),), ("K",)) for dtype in OTHER)
    return ParamDef(f"{name}_major", cases=cases, default="MN")


ATOM = MmaAtom(
    path="cuda.sm90.Wgmma",
    capability="wgmma.mma_async",
    execution_mesh=MeshPattern("thread", (4, 8, 4), (32, 4, 1), align=128),
    A=SwitchPattern(
        "form",
        (("SS", major("a")), ("RS", A_IN_REGISTERS)),
    ),
    B=major("b"),
    C=TensorPattern((64, n), "f32", "rmem", (C,)),
    parameters=(
        ParamDef("n", (Between(8, "n", 256), MultipleOf("n", 8))),
        ParamDef("dtype", (OneOf("dtype", (*HALF, *OTHER)),)),
        ParamDef("form", (OneOf("form", ("SS", "RS")),)),
        majors("a", register_form=True),
        majors("b", register_form=False),
    ),
    completion="wgmma",
    proxy="async",
    lets=(("k", 256 // bits), ("e", 32 // bits), ("c", n // 8)),
    source="PTX ISA, wgmma.mma_async",
)
CONTRACTS = (ATOM,)


# The matrix descriptor


SWIZZLE_MODE = {16: 0, 128: 1, 64: 2, 32: 3}
"""Swizzle span in bytes to the descriptor's mode (PTX ISA, matrix descriptor)."""


@dataclass(frozen=True)
class Descriptor:
    """How wgmma finds an operand in shared memory; all distances in bytes.

    ``lead`` and ``stride`` are the leading and stride dimension offsets, ``span`` the swizzle
    span (16: none). ``mn_starts`` and ``k_starts`` are what the start address of the atom's
    repeats adds to the buffer's start, along m (or n) and along k. The buffer starts at a
    multiple of 8 spans, so the base offset is 0.
    """

    span: int
    lead: int
    stride: int
    mn_starts: tuple[int, ...]
    k_starts: tuple[int, ...]

    def start(self, mn: int, k: int) -> int:
        """The start of repeat (mn, k)."""
        return self.mn_starts[mn] + self.k_starts[k]

    def encode(self, address: int) -> int:
        """The 64-bit descriptor of an atom that starts at shared-memory byte ``address``."""
        # offsets are stored without their low four bits, in fields of 14 bits
        fields = ((address, 0), (self.lead, 16), (self.stride, 32))
        word = SWIZZLE_MODE[self.span] << 62
        for value, at in fields:
            word |= (value >> 4 & 0x3FFF) << at
        return word


def descriptor(fit: Fit, name: str, tile: Place) -> Descriptor:
    """The descriptor of operand ``name`` (``A`` or ``B``) under ``fit``, lying as ``tile``."""
    solved, major_ = fit.arrangements[name], fit.parameters[f"{name.lower()}_major"]
    size = tile.bits // 8
    span = solved["W"] * size
    far, near = solved["l"] * size, solved.get("s", 0) * size
    # K-major: l between 8-row groups is the stride. MN-major: l between spans of MN is the
    # lead and s between 8-deep groups the stride, exchanged where there is no swizzle.
    as_is = major_ == "MN" and span > 16
    lead, stride = (far, near) if as_is else (near, far)
    m, n, k = fit.atom
    unit = m if name == "A" else n
    axes = (0, 1) if name == "A" else (1, 0)
    along = [
        tuple(_bytes(tile, axis, at) for at in range(0, tile.shape[axis], step))
        for axis, step in zip(axes, (unit, k), strict=True)
    ]
    return Descriptor(span, lead, stride, along[0], along[1])


def _bytes(tile: Place, axis: int, index: int) -> int:
    offset = tile.along(axis, index)
    assert isinstance(offset, int)
    return offset * tile.bits // 8
