"""Two products in one DSP block: the weights of two neighbouring columns share the wide factor, the activation is the
other one. What a program means does not depend on it."""

from __future__ import annotations

from dataclasses import dataclass

PAIR = 2
"""Products of a block, and columns that share it."""


@dataclass(frozen=True)
class Packing:
    """``high`` x 2^``distance`` + ``low`` is the wide factor of ``block``, a DSP block by its manufacturer's name.

    A cascade of blocks then holds the sum of the high weights' products times 2^distance, plus that of the low ones.
    """

    block: str
    distance: int

    def residue_bits(self, largest_sum: int) -> int:
        """How many low bits of the high sum have to be known besides, so that the low sum, at most ``largest_sum`` in
        magnitude, can be told apart: the block alone leaves it ``distance`` bits, each more is one of these."""
        return max(0, largest_sum.bit_length() + 1 - self.distance)


NO_PACKING = "none"
PACKINGS: dict[str, Packing | None] = {
    NO_PACKING: None, "DSP48E1": Packing("DSP48E1", 17), "DSP48E2": Packing("DSP48E2", 19)}
"""Values of ``dsp_packing``. The wide factor has 25 bits in 7 series and 27 in UltraScale: a weight of 8 on top."""
