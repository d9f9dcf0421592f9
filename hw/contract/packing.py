# SPDX-License-Identifier: Apache-2.0
"""Packing of two products into one DSP block: weights of two neighbouring columns share the wide factor.

The other factor is the activation. A program's meaning does not depend on it."""

from __future__ import annotations

from dataclasses import dataclass

PAIR = 2
"""Products of a block, and columns that share it."""


@dataclass(frozen=True)
class Packing:
    """A packing: the wide factor of the DSP block ``block`` is ``high`` x 2^``distance`` + ``low``.

    ``high`` and ``low`` are the two weights, and ``block`` is its manufacturer's name. A cascade of blocks then holds
    the sum of the high weights' products times 2^distance, plus that of the low ones."""

    block: str
    distance: int

    def residue_bits(self, largest_sum: int) -> int:
        """Return how many low bits of the high sum must be known besides to tell the low sum apart.

        The low sum is at most ``largest_sum`` in magnitude. The block alone leaves it ``distance`` bits; each further
        bit that it needs is one of these."""
        return max(0, largest_sum.bit_length() + 1 - self.distance)


NO_PACKING = "none"
PACKINGS: dict[str, Packing | None] = {
    NO_PACKING: None, "DSP48E1": Packing("DSP48E1", 17), "DSP48E2": Packing("DSP48E2", 19)}
"""Values of ``dsp_packing``. The wide factor has 25 bits in 7 series and 27 in UltraScale: a weight of 8 on top."""
