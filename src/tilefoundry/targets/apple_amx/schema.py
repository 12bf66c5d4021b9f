"""Facts that only Apple AMX documents have."""

from tilefoundry.targets.fact import Entry, Family

FAMILY = Family(
    "apple_amx",
    memories=("dram", "l2", "l1", "l2_efficiency", "l1_efficiency", "register", "x", "y", "z"),
    entries=(
        Entry("amx.count", "amx", kinds=("device",), required=True),
        Entry("amx.peak.f32", "flop/s", "real", kinds=("device",)),
        Entry("amx.peak.f16", "flop/s", "real", kinds=("device",)),
        Entry("processors.performance", "processor", kinds=("device",), required=True),
        Entry("processors.efficiency", "processor", kinds=("device",), required=True),
        Entry("limits.row", "byte", required=True),
        Entry("limits.x_rows", "row", required=True),
        Entry("limits.y_rows", "row", required=True),
        Entry("limits.z_rows", "row", required=True),
        Entry("limits.move", "byte", required=True),
        Entry("limits.move_pair", "byte", required=True),
        Entry("limits.pair_alignment", "byte", required=True),
        Entry("limits.outer_product.f16", "element", required=True),
    ),
)
