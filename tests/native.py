"""The target with AVX-512 that programs of ours run natively on, on this machine."""

from __future__ import annotations

from tilefoundry.build.machine import missing
from tilefoundry.targets import load_target

WIDE = ("amd.epyc_avx512", "amd.epyc_zen4")
"""Of most instructions first; a Xeon with AVX-512 fits one of them, too."""
AVX512 = next((n for n in WIDE if not missing(load_target(n).capabilities)), WIDE[0])
"""The first of them that fits; the first of all where none does."""
