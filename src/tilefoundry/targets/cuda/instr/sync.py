"""Synchronisation of CUDA: mbarriers, fences, groups of asynchronous work, barriers.

PTX ISA, "Parallel Synchronization and Communication Instructions", "Asynchronous Copy",
"wgmma", "setmaxnreg". All are derived from a program's dataflow.
"""

from __future__ import annotations

from tilefoundry.targets.contract.derived import DerivedInstr

MBARRIER = "PTX ISA, mbarrier"
ELECTED, EACH = "one elected participant", "each participant"
MOST_ARRIVALS = (1 << 20) - 1
"""Pending count and transaction count of an mbarrier (PTX ISA, mbarrier object)."""
NAMED = 16
"""Named barriers of a CTA; 0 is that of the whole CTA."""
REGISTERS = (24, 256, 8)
"""setmaxnreg: least, most, and unit of its register count."""

CONTRACTS = (
    DerivedInstr("mbarrier_init", "init", 40, ELECTED, "sets the arrivals that end each phase",
              ("8 bytes of shared memory, aligned to 8", f"1 <= count <= {MOST_ARRIVALS}"),
              "mbarrier", MBARRIER),
    DerivedInstr("fence_mbarrier_init", "fence_init", 41, ELECTED,
              "initialised mbarriers before their use by other threads and engines",
              ("a barrier of the CTA (or cluster) follows",), "mbarrier", MBARRIER),
    DerivedInstr("mbarrier_wait", "wait", 42, EACH,
              "all that was released into the phase before all after the wait",
              ("the phase of the given parity has completed; on a fresh barrier parity 1 passes",),
              "mbarrier", MBARRIER),
    DerivedInstr("mbarrier_arrive", "arrive", 43, "the first of each `every` participants",
              "what the arriving thread did before, released into the phase", (),
              "mbarrier", MBARRIER),
    DerivedInstr("mbarrier_expect", "expect", 44, ELECTED,
              "an arrival that also expects bytes of asynchronous copies",
              ("bytes equal what the copies of the phase transfer, clipped parts included",
               f"at most {MOST_ARRIVALS} bytes in one phase"), "mbarrier", MBARRIER),
    DerivedInstr("mbarrier_async_arrive", "async_arrive", 45, EACH,
              "an arrival once the participant's earlier cp.async completed",
              ("cp.async.mbarrier.arrive.noinc: counted in the barrier's arrivals",),
              "cp.async", "PTX ISA, cp.async.mbarrier.arrive"),
    DerivedInstr("barrier", "barrier", 46, EACH,
              "all shared and global accesses of the participants before those after it",
              (f"0 <= id < {NAMED}, 0 for the whole CTA",
               "threads a multiple of 32, every warp of them whole"),
              None, "PTX ISA, barrier.sync"),
    DerivedInstr("barrier_arrive", "barrier_arrive", 47, EACH,
              "accesses before it, before those of the threads that wait on the same id",
              (f"0 <= id < {NAMED}", "threads a multiple of 32"), None, "PTX ISA, barrier.arrive"),
    DerivedInstr("sync_warp", "warp", 48, EACH, "accesses of the warp's participants", (),
              None, "CUDA C++ Programming Guide, __syncwarp"),
    DerivedInstr("sync_cluster", "cluster", 49, "every thread of the cluster",
              "all accesses of the cluster's threads, its shared memories included", (),
              "cluster", "PTX ISA, barrier.cluster"),
    DerivedInstr("sync_cluster_arrive", "cluster_arrive", 60, "every thread of the cluster",
              "accesses before it, before what follows the other threads' waits",
              ("sync_cluster_wait follows before any other barrier of the cluster",),
              "cluster", "PTX ISA, barrier.cluster"),
    DerivedInstr("sync_cluster_wait", "cluster_wait", 61, "every thread of the cluster",
              "accesses of the cluster's threads before their arrivals, before those after it",
              ("each thread has arrived once since its last wait",),
              "cluster", "PTX ISA, barrier.cluster"),
    DerivedInstr("sync_grid", "grid", 50, "every thread of the grid",
              "all accesses to global memory",
              ("every CTA is resident at once", "a counter in global memory"),
              None, "CUDA C++ Programming Guide, cooperative groups"),
    DerivedInstr("fence_proxy_async", "fence_proxy", 51, EACH,
              "the participant's generic accesses to shared memory before later ones of the "
              "async proxy", (), "cp.async.bulk", "PTX ISA, fence.proxy.async"),
    DerivedInstr("wgmma_fence", "wgmma_fence", 52, "each warp of the warpgroup",
              "register accesses before the next wgmma",
              ("before the first wgmma and whenever its registers were touched",),
              "wgmma.mma_async", "PTX ISA, wgmma.fence"),
    DerivedInstr("wgmma_commit", "wgmma_commit", 53, "each warp of the warpgroup",
              "closes the group of the wgmmas issued since the last", (),
              "wgmma.mma_async", "PTX ISA, wgmma.commit_group"),
    DerivedInstr("wgmma_wait", "wgmma_wait", 54, "each warp of the warpgroup",
              "all but the latest `pending` groups are complete: results and operands are free",
              ("0 <= pending <= 7",), "wgmma.mma_async", "PTX ISA, wgmma.wait_group"),
    DerivedInstr("bulk_commit", "bulk_commit", 55, ELECTED,
              "closes the group of bulk stores issued since the last", (),
              "cp.async.bulk", "PTX ISA, cp.async.bulk.commit_group"),
    DerivedInstr("bulk_wait", "bulk_wait", 56, ELECTED,
              "all but the latest `pending` groups are complete; with `read`, have read their "
              "source", (), "cp.async.bulk", "PTX ISA, cp.async.bulk.wait_group"),
    DerivedInstr("async_commit", "async_commit", 57, EACH,
              "closes the participant's group of cp.async", (),
              "cp.async", "PTX ISA, cp.async.commit_group"),
    DerivedInstr("async_wait", "async_wait", 58, EACH,
              "all but the participant's latest `pending` groups are complete", (),
              "cp.async", "PTX ISA, cp.async.wait_group"),
    DerivedInstr("set_registers", "registers", 59, "each warp of the warpgroup",
              "the participant has `count` registers from here",
              (f"{REGISTERS[0]} <= count <= {REGISTERS[1]}, count % {REGISTERS[2]} == 0",
               "every warp of the warpgroup executes the same one",
               "over all roles, threads x count at most the registers of the launch"),
              "setmaxnreg", "PTX ISA, setmaxnreg"),
)  # fmt: skip
