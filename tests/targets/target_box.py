"""A small valid Device document that tests spoil."""

BOX = """\
[spec]
schema = "tilefoundry.cpu.device/v3"
kind = "device"
id = "acme.box"
name = "Acme Box, four cores"

[compatibility]
architectures = ["x86_64.avx2"]

[storages]
gmem = "dram"

[facts.processors.count]
value = 4
unit = "processor"
origin = "vendor"
source = "data sheet"

[facts.clock.boost]
value = 3.2e9
unit = "Hz"
origin = "measured"
source = "a loop of dependent additions"
conditions = "one core busy"
low = 3.1e9
high = 3.3e9

[facts.memory.dram.capacity]
unavailable = "sold in several sizes"

[facts.memory.dram.bandwidth]
value = 51.2e9
unit = "byte/s"
origin = "derived"
source = "data sheet"
explanation = "two channels x 8 B x 3.2e9 transfers/s"

[facts.memory]
l3.capacity.unavailable = "not published"
l2.capacity.unavailable = "not published"
l1.capacity.unavailable = "not published"
"""


def spoiled(old: str, new: str) -> str:
    """The document with the one occurrence of ``old`` replaced."""
    assert BOX.count(old) == 1, old
    return BOX.replace(old, new)
