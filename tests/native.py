"""The target with AVX-512 for this machine, where one fits."""

from __future__ import annotations

from tilefoundry.build.machine import missing
from tilefoundry.targets import load_target

TARGETS = ("amd.epyc_avx512", "amd.epyc_zen4")
"""Of most instructions first; a Xeon with AMX has the first one's, too."""
AVX512 = next((n for n in TARGETS if not missing(load_target(n).capabilities)), TARGETS[0])
"""The first of them that fits; the first of all where none does."""
