"""The launches of a call as a graph that the driver has ready, so that one start does for all.

CUDA Driver API, graph management: parameters that a node is given later are those of later starts.
An H200's driver (580.159) takes 1.5 microseconds for a start, whatever the graph holds, and 0.3 for
the parameters of a node, where a launch takes 3; kernels of two starts don't overlap, so that a
program of one kernel is launched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tilefoundry.diag import Refusal
from tilefoundry.targets.cuda.emit.launches import LaunchPlan
from tilefoundry.targets.cuda.host import driver


class Node(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [("function", ctypes.c_void_p), ("grid", ctypes.c_uint32 * 3),
                ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
                ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p),
                ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p)]  # fmt: skip


class Edge(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = [("port", ctypes.c_uint8), ("to", ctypes.c_uint8), ("kind", ctypes.c_uint8),
                ("reserved", ctypes.c_uint8 * 5)]  # fmt: skip


PROGRAMMATIC = 1
"""CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC"""


class Graph:
    """One thread's launches on one stream, in their order: a graph runs once at a time."""

    def __init__(
        self, plans: Sequence[LaunchPlan], functions: Sequence[int], parameters: Sequence[int]
    ) -> None:
        """``parameters``: of each launch the address of the array that a launch takes."""
        self._lib = lib = driver.library()
        self._graph, self._ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.nodes = (ctypes.c_void_p * len(plans))()
        driver.check(lib.cuGraphCreate(ctypes.byref(self._graph), 0), "cuGraphCreate")
        for n, plan in enumerate(plans):
            self._add(n, plan, functions[n], parameters[n])
        status = lib.cuGraphInstantiateWithFlags(
            ctypes.byref(self._ready), self._graph, ctypes.c_uint64(0)
        )
        driver.check(status, "cuGraphInstantiate")

    @property
    def ready(self) -> int:
        """The CUgraphExec."""
        return self._ready.value or 0

    def _add(self, n: int, plan: LaunchPlan, function: int, parameters: int) -> None:
        lib, node = self._lib, ctypes.c_void_p()
        grid, block = (plan.grid, 1, 1), (plan.threads, 1, 1)
        made = Node(function, grid, block, plan.shared_bytes, parameters)
        status = lib.cuGraphAddKernelNode_v2(
            ctypes.byref(node), self._graph, None, ctypes.c_size_t(0), ctypes.byref(made)
        )
        driver.check(status, f"a node for {plan.kernel}")
        for a in driver.attributes(plan):
            if a.id != driver.OVERLAPS:
                status = lib.cuGraphKernelNodeSetAttribute(node, a.id, ctypes.byref(a.value))
                driver.check(status, f"attribute {a.id} of {plan.kernel}")
        self.nodes[n] = node
        if n:
            edge = Edge(PROGRAMMATIC, 0, PROGRAMMATIC) if plan.overlaps else Edge()
            before = ctypes.c_void_p(self.nodes[n - 1])
            status = lib.cuGraphAddDependencies_v2(
                self._graph, ctypes.byref(before), ctypes.byref(node), ctypes.byref(edge),
                ctypes.c_size_t(1),
            )  # fmt: skip
            driver.check(status, f"what {plan.kernel} waits for")

    def __del__(self) -> None:
        if self._ready:
            self._lib.cuGraphExecDestroy(self._ready)
        if self._graph:
            self._lib.cuGraphDestroy(self._graph)


def graph(
    plans: Sequence[LaunchPlan], functions: Sequence[int], parameters: Sequence[int]
) -> Graph | None:
    """None where launches are as well one by one, or the driver knows no such graphs."""
    if len(plans) < 2:
        return None
    try:
        return Graph(plans, functions, parameters)
    except (AttributeError, Refusal):  # before CUDA 12.3; what a graph cannot hold
        return None
