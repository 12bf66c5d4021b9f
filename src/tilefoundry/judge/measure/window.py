"""The child's side of inputs that are renewed: bits of one memory, flipped by others.

Without numpy, which a child that only checks may have to do without.
"""

from __future__ import annotations

from typing import Any

BLOCK = 1 << 14
"""Elements after which a mask begins again."""


class Window:
    """The elements of one input, and what they are renewed from: bits that lie twice as long in
    ``base``, flipped by a ``mask``, if there is one. All are tensors of one kind of integers."""

    def __init__(self, target: Any, base: Any, mask: Any) -> None:
        self.tensors = target, base, mask
        self.count = target.numel()
        self._whole = self.count // BLOCK * BLOCK

    def arrays(self) -> Window:
        """The same over numpy, whose functions no mode of torch sees."""
        made = Window(*self.tensors)
        made.tensors = tuple(None if t is None else t.numpy() for t in self.tensors)
        return made

    def renew(self, xor: Any, at: int, mask: int) -> None:
        """Write the window at the offset ``at``; ``xor`` is numpy's function."""
        target, base, masks = self.tensors
        window, whole = base[at : at + self.count], self._whole
        if masks is None:
            target[...] = window
            return
        if whole:
            blocks = window[:whole].reshape(-1, BLOCK)
            xor(blocks, masks[mask : mask + BLOCK], out=target[:whole].reshape(-1, BLOCK))
        if rest := self.count - whole:
            xor(window[whole:], masks[mask : mask + rest], out=target[whole:])

    def addresses(self, at: int, mask: int) -> tuple[int, ...]:
        """The same as addresses on a device: of the elements, the window and the mask (0 for
        none), how many elements there are, of how many bytes, and of the mask."""
        target, base, masks = self.tensors
        item = target.element_size()
        flips = 0 if masks is None else masks.data_ptr() + mask * item
        return target.data_ptr(), base.data_ptr() + at * item, flips, self.count, item, BLOCK
