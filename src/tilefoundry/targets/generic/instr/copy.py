"""The plain copy: each unit loads and stores what it is given, in the generic proxy."""

from __future__ import annotations

from tilefoundry.targets.contract.unit import CopyInstr

CONTRACTS = (CopyInstr("copy", (), 20),)
