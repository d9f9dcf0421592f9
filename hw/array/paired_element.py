# SPDX-License-Identifier: Apache-2.0
"""A processing element of two neighbouring columns, which compute both products in one DSP block."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.paired_multiplier import SUM_WIDTH, PairedMultiplier
from weft.hw.array.processing_element import ShadowWeight
from weft.hw.contract.arch import Arch
from weft.hw.contract.packing import PAIR
from weft.hw.parts.delay import delayed
from weft.hw.parts.ports import partial_sum_width


def paired_sums(arch: Arch) -> data.StructLayout:
    """Return the layout of the sums that go down a pair of columns.

    ``cascade``: both sums in one number, the second column's (high) times 2^distance plus the first column's (low).
    ``residue``: the lowest bits of the high sum, a cycle ahead."""
    return data.StructLayout({"cascade": SUM_WIDTH, "residue": arch.residue_bits})


class PairedElement(wiring.Component):
    """A :class:`ProcessingElement` for two columns; its cascade has the same latencies.

    ``link`` holds the weight of the first column in its low half and that of the second in its high half.
    ``partial_sum`` has the layout :func:`paired_sums`."""

    def __init__(self, arch: Arch, row: int) -> None:
        assert arch.packing is not None
        self._arch, self._packing = arch, arch.packing
        self._ends = {"first": row == 0, "last": row == arch.array_size - 1}
        width, factor = arch.number.width, arch.scheme.activation_width
        super().__init__({
            "activation_i": In(signed(factor)), "activation_o": Out(signed(factor)),
            "partial_sum_i": In(paired_sums(arch)), "partial_sum_o": Out(paired_sums(arch)),
            "shift": In(1), "swap": In(1),
            "link_i": In(signed(PAIR * width)), "link_o": Out(signed(PAIR * width)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: shadow weights, a paired multiplier, and the residue of the high sum."""
        m = Module()
        width, bits = self._arch.number.width, self._arch.residue_bits
        m.submodules.weights = weights = ShadowWeight(PAIR * width)
        m.submodules.paired_multiplier = block = PairedMultiplier(
            self._packing, width, self._arch.scheme.activation_width, **self._ends)
        activation = Signal.like(self.activation_i, reset_less=True)  # the block's own first register has it too
        lowest, residue = (Signal(bits, reset_less=True, name=name) for name in ("lowest", "residue"))
        m.d.sync += [activation.eq(self.activation_i),
                     residue.eq(with_low_product(self.partial_sum_i.residue, lowest, activation[:bits]))]
        with m.If(self.swap):
            m.d.sync += lowest.eq(weights.shadow[width:])
        if not self._ends["first"]:
            m.d.comb += block.sum_i.eq(self.partial_sum_i.cascade)
        m.d.comb += [
            self.activation_o.eq(activation), self.partial_sum_o.residue.eq(residue),
            self.partial_sum_o.cascade.eq(block.sum_o),
            block.activation.eq(self.activation_i), block.weights.eq(weights.shadow), block.take.eq(self.swap),
            weights.shift.eq(self.shift), weights.link_i.eq(self.link_i), self.link_o.eq(weights.link_o),
        ]
        return m


def with_low_product(total: Value, left: Value, right: Value) -> Value:
    """Return ``total`` + ``left`` x ``right``; of the sum, bits beyond those of ``total`` mean nothing.

    All three have as many bits. Three bits are written out, since yosys then finds a form that takes two look-up tables
    less an element than that of a sum and a product."""
    if len(total) != 3:
        return total + left * right
    lowest = left[0] & right[0]
    cross, other, carry = left[0] & right[1], left[1] & right[0], total[0] & lowest
    # Of the four bits of the middle place, whether half of them, rounded down, is odd.
    over = ((total[1] ^ cross) & (other ^ carry)) ^ (total[1] & cross) ^ (other & carry)
    products = (left[1] & right[1]) ^ (left[0] & right[2]) ^ over
    return Cat(total[0] ^ lowest, total[1] ^ cross ^ other ^ carry, total[2] ^ (left[2] & right[0]) ^ products)


def taken_apart(m: Module, arch: Arch, partial_sum: data.View, name: str) -> list[Signal]:
    """Return the sums (low, high) of both columns, a cycle after the last element's ``partial_sum``.

    The low sum stands in the lowest bits of the cascade. Above them stand the low sum's higher bits plus the high
    sum, so the residue of the high sum is subtracted to get the low sum. What remains of the cascade is the high
    sum."""
    assert arch.packing is not None
    distance, bits, total = arch.packing.distance, arch.residue_bits, partial_sum.cascade
    residue = delayed(m, partial_sum.residue, 1, name=f"residue_{name}")
    above = (total[distance:distance + bits] - residue)[:bits]
    low = Cat(total[:distance], above).as_signed()
    both = [Signal(signed(partial_sum_width(arch)), reset_less=True, name=f"{which}_{name}")
            for which in ("low", "high")]
    m.d.sync += [both[0].eq(low), both[1].eq(total[distance:] - (low >> distance))]
    return both
