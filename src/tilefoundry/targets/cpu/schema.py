"""Facts that only CPU documents have."""

from tilefoundry.targets.fact import Entry, Family

FAMILY = Family(
    "cpu",
    memories=("dram", "l3", "l2", "l1", "register", "tile"),
    entries=(
        Entry("vector.width", "bit", required=True),
        Entry("tile.count", "tile"),
        Entry("tile.rows", "row"),
        Entry("tile.row_width", "byte"),
    ),
)
