"""Facts that only CUDA documents have: occupancy, asynchronous copies, barriers, WGMMA."""

from tilefoundry.targets.fact import Entry, Family

_LIMITS = (
    ("limits.named_barriers", "barrier"),
    ("limits.mbarrier.width", "byte"),
    ("limits.mbarrier.pending", "arrival"),
    ("limits.mbarrier.transaction", "byte"),
    ("limits.tensor_copy.rank", "dimension"),
    ("limits.tensor_copy.box", "element"),
    ("limits.tensor_copy.stride_multiple", "byte"),
    ("limits.tensor_copy.stride_end", "byte"),
    ("limits.tensor_copy.global_alignment", "byte"),
    ("limits.tensor_copy.shared_alignment", "byte"),
    ("limits.tensor_copy.swizzle_128_alignment", "byte"),
    ("limits.tensor_copy.inner_box.swizzle_32", "byte"),
    ("limits.tensor_copy.inner_box.swizzle_64", "byte"),
    ("limits.tensor_copy.inner_box.swizzle_128", "byte"),
    ("limits.wgmma.m", "element"),
    ("limits.wgmma.k", "byte"),
    ("limits.wgmma.n_multiple", "element"),
    ("limits.wgmma.n_max", "element"),
    ("limits.setmaxnreg.min", "register"),
    ("limits.setmaxnreg.max", "register"),
    ("limits.setmaxnreg.step", "register"),
)

_LATENCIES = ("launch", "wgmma", "tensor_copy", "mbarrier", "shuffle")

FAMILY = Family(
    "cuda",
    memories=("hbm", "gddr", "lpddr", "l2", "l1", "shared", "register"),
    entries=(
        # Occupancy needs these of every architecture; the common schema leaves them open.
        Entry("resident.thread", "thread", required=True),
        Entry("resident.warp", "warp", required=True),
        Entry("registers.count", "register", required=True),
        Entry("registers.width", "byte", required=True),
        Entry("registers.per_unit", "register", required=True),
        Entry("registers.granule", "register", required=True),
        Entry("memory.shared.processor_capacity", "byte", required=True),
        Entry("memory.shared.reserved", "byte", required=True),
        *(Entry(path, unit) for path, unit in _LIMITS),
        *(Entry(f"latency.{name}", "s", "real", ("device",)) for name in _LATENCIES),
        Entry("memory.shared.matrix_bandwidth", "byte/s", "real", ("device",)),
        Entry("memory.shared.tensor_copy_bandwidth", "byte/s", "real", ("device",)),
    ),
)
