"""Copies of CUDA: cp.async, bulk and tensor copies, and the matrix loads and stores.

PTX ISA, "Data Movement and Conversion Instructions". Which storages they move between, how
they complete and in which proxy; how their tiles must lie is not declared yet.
"""

from __future__ import annotations

from tilefoundry.targets.contract.unit import CopyInstr

LOAD, STORE = ("gmem", "smem"), ("smem", "gmem")
BULK = ("mbarrier bytes", "bulk group")

CONTRACTS = (
    CopyInstr(
        "copy_async_tensor", (LOAD, STORE), 21, "cp.async.bulk.tensor", BULK, "async",
        "PTX ISA, cp.async.bulk.tensor",
    ),
    CopyInstr(
        "copy_async_bulk", (LOAD, STORE), 22, "cp.async.bulk", BULK, "async",
        "PTX ISA, cp.async.bulk",
    ),
    CopyInstr(
        "copy_async", (LOAD,), 23, "cp.async", ("commit group",), "generic",
        "PTX ISA, cp.async",
    ),
    CopyInstr("ldmatrix", (("smem", "rmem"),), 24, "ldmatrix", source="PTX ISA, ldmatrix"),
    CopyInstr("stmatrix", (("rmem", "smem"),), 25, "stmatrix", source="PTX ISA, stmatrix"),
)  # fmt: skip
