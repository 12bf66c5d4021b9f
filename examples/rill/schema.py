"""Memories that documents of this family may name, and facts that only they state."""

from tilefoundry.targets.fact import Entry, Family

FAMILY = Family(
    "rill",
    memories=("dram", "cache", "register", "strip", "sum"),
    entries=(Entry("vector.width", "bit", required=True),),
)
