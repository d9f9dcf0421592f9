# SPDX-License-Identifier: Apache-2.0
"""The scheme of bytes with scales, ``data_type`` = ``INT8``: sums are exact, and moves out multiply.

A scalar means (scalar - zero point) x scale. The scale is nowhere in the machine: a value that leaves the accumulators
is multiplied, lane by lane, by the ratio of scales."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from weft.hw.contract.instructions import Opcode
from weft.hw.contract.numerics import (
    DataType,
    Integers,
    bits_to_count,
    maximum,
    multiply_exact,
    round_half_even,
    saturate,
)
from weft.hw.contract.registers import Register, RegisterSpec
from weft.hw.contract.schemes.base import InputRescale, OutputRescale, Scheme, SchemeKind
from weft.support.errors import ArchError

ACCUMULATOR_WIDTHS = range(24, 33)
ACTIVATION_WIDTH = 9
"""Bits of an activation minus its zero point."""
LARGEST_WEIGHT = 127
"""Magnitude of a weight at most: -128 counts as -127, so that two products fit one DSP block."""
SCALED_WIDTH = 25
"""Bits to which an accumulator with its bias saturates before it is multiplied: the wide port of a DSP block."""
MULTIPLIER_WIDTH = 17
"""Bits of a factor, unsigned: with a sign 18, the narrow port of a DSP block.

So wide are the multipliers that rescale inputs, and the parts of those that requantize."""
MULTIPLIER_WIDTHS = range(MULTIPLIER_WIDTH, 25)
"""Bits that a multiplier of requantization may have; single precision has 24."""
BIAS_WIDTH = 32
MULTIPLIER_BYTES = 3
BIAS_BYTES = BIAS_WIDTH // 8
SCALE_VECTORS = MULTIPLIER_BYTES + BIAS_BYTES
"""The vectors of a LoadScale: the bytes of a lane are its multiplier and its bias, little-endian.

The multiplier's bits above those of the machine (``multiplier_width``) count for nothing."""
SCALE_LATENCY = 7
"""The cycles in which a row of accumulators with its bias is multiplied and rounded off.

They are the sum, its saturation, the multiplier's two registers, the two steps of rounding, and the scalar before
its zero point is added."""
TABLE_ENTRIES = 256
"""The vectors of a LoadActivationTable: entry i is the result for the byte i - 128, lane by lane."""

NO_LOSS = 16
"""Steps beyond the range of a byte that a value may reach without counting as cut.

Rounding may bring values that calibration saw at the end of the range so far."""


def most_output_shift(multiplier_width: int) -> int:
    """Return the largest OUTPUT_SHIFT of a machine by the bits of its multipliers: it rounds every product to 0."""
    return SCALED_WIDTH + multiplier_width


class Int8(Scheme):
    """The scheme of bytes with scales, whose moves multiply.

    The SIMD unit works on bytes as they are. The bias row of the weights is ignored, since LoadScale brings the
    bias."""

    name, code = "int8", 0
    kind, order_matters = SchemeKind.AFFINE, False
    requantize_latency = SCALE_LATENCY
    parameter_loads = MappingProxyType({Opcode.LOAD_SCALE: SCALE_VECTORS})
    register_fields = {
        "mat_mul": {"activation_zero_point": Register.ACTIVATION_ZERO_POINT},
        "move_in": {"input_zero_point": Register.INPUT_ZERO_POINT, "input_multiplier": Register.INPUT_MULTIPLIER},
        "move_out": {"scale_shift": Register.OUTPUT_SHIFT, "output_zero_point": Register.OUTPUT_ZERO_POINT,
                     "activation_table": Register.ACTIVATION_TABLE},
    }
    writes_first = "move_out"
    """The writer that local memory serves first.

    The array makes as many bytes as a move-out takes, and a DRAM read at half its pace would slow it down. With
    other scalars that is worth 0.03 % at most."""
    bias_cycles = 1
    largest_product = LARGEST_WEIGHT * ((1 << ACTIVATION_WIDTH - 1) - 1)

    @staticmethod
    def default_accumulator_width(scalar: DataType) -> int:
        """Return the widest accumulator that the scheme allows."""
        return ACCUMULATOR_WIDTHS[-1]

    def check(self) -> None:
        """Raise ArchError if the accumulators' width is not one of ACCUMULATOR_WIDTHS."""
        if self.accumulator_width not in ACCUMULATOR_WIDTHS:
            raise ArchError("accumulator_width", self.accumulator_width,
                            f"{ACCUMULATOR_WIDTHS[0]}..{ACCUMULATOR_WIDTHS[-1]} with data_type {self.scalar.name}",
                            f"leave accumulator_width out for {ACCUMULATOR_WIDTHS[-1]}")

    def registers(self, activation_tables: int) -> dict[Register, RegisterSpec]:
        """Return the registers of zero points, multiplier, shift and activation table."""
        def zero(meaning: str) -> RegisterSpec:
            width = self.scalar.width
            return RegisterSpec(width, 0, (1 << width) - 1, meaning, signed=True)

        table = RegisterSpec(bits_to_count(activation_tables + 1), 0, activation_tables,
                             "DataMove out: the table that bytes are looked up in at the end, 0 for none")
        most = most_output_shift(self.multiplier_width)
        return {Register.OUTPUT_SHIFT: RegisterSpec(bits_to_count(most + 1), 0, most,
                                                   "DataMove out: bits rounded off the product"),
                Register.ACTIVATION_ZERO_POINT: zero("MatMul: subtracted from each activation"),
                Register.INPUT_ZERO_POINT: zero("DataMove into the accumulators: subtracted first"),
                Register.INPUT_MULTIPLIER: RegisterSpec.unsigned(MULTIPLIER_WIDTH, 1,
                                                             "DataMove into the accumulators: multiplied by then"),
                Register.OUTPUT_ZERO_POINT: zero("DataMove out: added last"),
                **({Register.ACTIVATION_TABLE: table} if activation_tables else {})}

    # -- widths ----------------------------------------------------------------------------------------------------
    @property
    def activation_width(self) -> int:
        """Bits of an activation minus its zero point."""
        return ACTIVATION_WIDTH

    def row_sum_width(self, row: int) -> int:
        """Return the bits of an exact sum of ``row`` + 1 products."""
        return ACTIVATION_WIDTH + LARGEST_WEIGHT.bit_length() + row.bit_length()

    def partial_sum_width(self, lanes: int) -> int:
        """Return the bits of an exact sum of ``lanes`` products; there is no bias in the array."""
        return self.row_sum_width(lanes - 1)

    # -- in and out of the accumulators ----------------------------------------------------------------------------
    def rescale_input(self, scalars: Integers, shift: int) -> Integers:
        """Return the scalars as they are: the SIMD unit's results enter the accumulators without a shift."""
        return scalars

    def requantize(self, values: Integers, shift: int) -> Integers:
        """Return accumulator values saturated to bytes, without a shift."""
        return saturate(values, self.scalar.width)

    def is_cut(self, values: Integers, requantization: OutputRescale, relu: bool = False) -> np.ndarray:
        """Return which accumulator values lose by saturating to a byte as they leave, bool of their shape.

        A sixteenth of the range (NO_LOSS) is no loss, since rounding brings values beyond the end of what calibration
        saw. Nor is anything below a zero point at the lowest byte, where a ReLU ends. Without scales, for the SIMD
        unit, none counts."""
        if requantization.scales is None:
            return np.zeros(np.shape(values), bool)
        scaled = self._scaled(values, requantization)
        below = (scaled < self.scalar.minimum - NO_LOSS) & (not relu and requantization.zero > self.scalar.minimum)
        return np.asarray((scaled > self.scalar.maximum + NO_LOSS) | below)

    def rescale_bias(self, bias: Integers, shift: int) -> Integers:
        """Return zeros: the bias row of the weights is ignored."""
        return bias * 0

    def activations(self, scalars: Integers, zero: int) -> Integers:
        """Return scalars minus their zero point."""
        return scalars - zero

    def move_in(self, scalars: Integers, rescaling: InputRescale) -> Integers:
        """Return scalars minus their zero point, times the factor, saturated."""
        return self.store((scalars - rescaling.zero) * rescaling.factor)

    def move_out(self, values: Integers, requantization: OutputRescale, relu: bool) -> Integers:
        """Return accumulator values as bytes: biased, multiplied, shifted, saturated, then looked up.

        With ``relu`` none is below the zero point. The activation table counts only if there is one."""
        scalars = saturate(self._scaled(values, requantization), self.scalar.width)
        scalars = np.maximum(scalars, requantization.zero) if relu else scalars
        if requantization.table is None:
            return scalars
        return requantization.table[scalars - self.scalar.minimum, np.arange(requantization.table.shape[1])]

    def _scaled(self, values: Integers, requantization: OutputRescale) -> Integers:
        """Return accumulator values as they leave, before they saturate to a byte."""
        assert requantization.scales is not None
        multipliers, biases = self.scales(requantization.scales)
        product = saturate(values + biases, SCALED_WIDTH) * multipliers
        return round_half_even(product, requantization.shift) + requantization.zero

    def scales(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return multipliers and biases [lanes] from the bytes of a LoadScale [SCALE_VECTORS, lanes], signed."""
        digits = 1 << 8 * np.arange(SCALE_VECTORS)
        multipliers = (vectors[:MULTIPLIER_BYTES] & 0xFF).T @ digits[:MULTIPLIER_BYTES]
        biases = (vectors[MULTIPLIER_BYTES:] & 0xFF).T @ digits[:BIAS_BYTES]
        negative = biases > maximum(BIAS_WIDTH)
        return multipliers & (1 << self.multiplier_width) - 1, biases - (negative.astype(np.int64) << BIAS_WIDTH)

    def scale_vectors(self, multipliers: np.ndarray, biases: np.ndarray) -> np.ndarray:
        """Return the vectors of a LoadScale, int64 [SCALE_VECTORS, lanes] of signed bytes.

        It is the inverse of :meth:`scales`; multipliers and biases are [lanes]."""
        digits = [np.asarray(values, np.int64) >> 8 * byte & 0xFF
                  for values, count in ((multipliers, MULTIPLIER_BYTES), (biases, BIAS_BYTES)) for byte in range(count)]
        return self.scalar.truncate(np.stack(digits))

    # -- sums of products ------------------------------------------------------------------------------------------
    def mac(self, activations: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return the exact sums of the systolic array plus ``bias``; a weight of -128 counts as -127."""
        return multiply_exact(activations, np.maximum(weights, -LARGEST_WEIGHT), ACTIVATION_WIDTH) + bias

    def add_product(self, partial_sum: int, weight: int, activation: int) -> int:
        """Return a partial sum with one exact product added; a weight of -128 counts as -127."""
        return partial_sum + max(weight, -LARGEST_WEIGHT) * activation

    def round_sums(self, sums: np.ndarray) -> np.ndarray:
        """Return the sums as they are."""
        return sums
