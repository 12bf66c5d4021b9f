"""Everything an author imports: ``from tilefoundry.dsl import *``."""

from __future__ import annotations

from typing import Any

from tilefoundry.ir.expr import ceildiv
from tilefoundry.ir.mesh import Topology
from tilefoundry.ir.shard import B, P, S
from tilefoundry.lang.decl import ModuleList, RangePattern, func, module, prim_func
from tilefoundry.lang.forms import (
    BinaryKind,
    ConstTensor,
    InstrPath,
    OpRef,
    Ops,
    ReduceKind,
    Tensor,
    UnaryKind,
)
from tilefoundry.lang.forms import MeshForm as Mesh
from tilefoundry.lang.forms import open_dim as DimVar
from tilefoundry.lang.record import shard_record as ShardLayout
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

tf: Any = Ops()
T: Any = InstrPath()
shape_of = OpRef("shape_of")

__all__ = [
    "B",
    "BinaryKind",
    "ComposedLayout",
    "ConstTensor",
    "DimVar",
    "Layout",
    "Mesh",
    "ModuleList",
    "P",
    "RangePattern",
    "ReduceKind",
    "S",
    "ShardLayout",
    "Swizzle",
    "T",
    "Tensor",
    "Topology",
    "UnaryKind",
    "ceildiv",
    "func",
    "module",
    "prim_func",
    "shape_of",
    "tf",
]
