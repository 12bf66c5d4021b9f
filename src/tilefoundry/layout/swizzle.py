"""``Swizzle(B, M, S)``: an XOR permutation of byte addresses."""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.diag import refuse


@dataclass(frozen=True, slots=True)
class Swizzle:
    """``x ^ ((x & yyy) >> S)`` with ``yyy = (2**B - 1) << (M + max(0, S))``.

    Acts on the full byte address. ``B`` bits are XORed, the low ``M`` bits
    never change, the source lies ``S`` bits above its target (below it when
    ``S`` is negative). ``Swizzle(3, 4, 3)`` is the 128-byte swizzle: 16-byte
    chunks XORed with the 128-byte row number modulo 8.
    """

    B: int
    M: int
    S: int

    def __post_init__(self) -> None:
        whole = all(type(v) is int for v in (self.B, self.M, self.S))
        # S = 0 would clear the bits: not a permutation.
        if not whole or self.B < 0 or self.M < 0 or (self.B > 0 and self.S == 0):
            refuse("layout-swizzle", swizzle=self, nearest=f"Swizzle(3, 4, {self.S or 3})")

    @property
    def mask(self) -> int:
        """``yyy``: the bits that are read."""
        return ((1 << self.B) - 1) << (self.M + max(0, self.S))

    def __call__(self, address: int) -> int:
        """The byte address after the permutation."""
        return address ^ self._moved(address)

    def _moved(self, address: int) -> int:
        bits = address & self.mask
        return bits >> self.S if self.S >= 0 else bits << -self.S

    @property
    def is_involution(self) -> bool:
        """Whether applying it twice is the identity: sources and targets are disjoint."""
        return abs(self.S) >= self.B

    def inverse(self, address: int) -> int:
        """The byte address that this swizzle moves to ``address``."""
        found = address
        # Each round settles |S| more bits of the source.
        for _ in range(0 if self.B == 0 else -(-self.B // abs(self.S))):
            found = address ^ self._moved(found)
        return found

    @property
    def period(self) -> int:
        """Bytes after which the pattern repeats: ``f(x + period) = f(x) + period``."""
        return 1 << (self.B + self.M + abs(self.S)) if self.B else 1

    @property
    def span(self) -> int:
        """Bytes over which chunks are permuted: 128 for ``(3, 4, 3)``, 32 for ``(1, 4, 3)``."""
        return 1 << (self.B + self.M)

    def __repr__(self) -> str:
        return f"Swizzle({self.B}, {self.M}, {self.S})"
