"""What a fact is a share of: some of the kernels of a device."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.model.arrays import Array


class HeldKernels(Struct, frozen=True):
    """Some of the kernels of a device: `bits`, a mask packed eight to a byte, over those whose times (ns)
    `length` holds."""

    bits: Array
    length: Array

    def share_in(self, other: HeldKernels) -> float:
        """Share of their time that is of the other ones as well; 0 if those are of another device."""
        if len(self.length) != len(other.length):
            return 0.0
        mine, both = (self._time(bits) for bits in (self.bits, self.bits & other.bits))
        return both / mine if mine else 0.0

    def _time(self, bits: Array) -> float:
        return float(self.length[np.unpackbits(bits, count=len(self.length)).astype(bool)].sum())
