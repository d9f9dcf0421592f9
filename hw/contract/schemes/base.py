# SPDX-License-Identifier: Apache-2.0
"""The interface of a number scheme."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from weft.hw.contract.instructions import Opcode
from weft.hw.contract.numerics import DataType, Integers, requantize, round_half_even, saturate
from weft.hw.contract.registers import Register, RegisterSpec
from weft.support.errors import ArchError


class SchemeKind(enum.Enum):
    """The kind of a scheme's quantization parameters. A room with a variant for each kind has a table by it."""

    FIXED_POINT = "a binary point"
    AFFINE = "a scale and a zero point"


@dataclass(frozen=True)
class InputRescale:
    """The settings of moves into the accumulators, as the Configure registers of the machine hold them."""

    shift: int = 0
    zero: int = 0
    factor: int = 1


@dataclass(frozen=True, eq=False)
class OutputRescale:
    """The settings of moves out of the accumulators, as Configure registers and loads set them.

    ``scales``: on a machine with scales, the bytes of the last LoadScale, int64 [SCALE_VECTORS, lanes]. ``table``: the
    activation table that bytes are looked up in, int64 [TABLE_ENTRIES, lanes], None for none. Of a ReLU: ``slope`` is
    the factor of scalars below zero in units of 2^-SLOPE_POINT, ``maximum`` its largest result, None for no limit."""

    shift: int = 0
    zero: int = 0
    scales: np.ndarray | None = None
    table: np.ndarray | None = None
    slope: int = 0
    maximum: int | None = None


@dataclass(frozen=True)
class Scheme(ABC):
    """The arithmetic of one machine, in integers; arrays have the lanes last.

    ``scalar``: the type in DRAM, local memory and SIMD registers. ``accumulator_width``: bits of an accumulator.
    ``multiplier_width``: bits of the multipliers that requantize, 0 where lanes have none."""

    scalar: DataType
    accumulator_width: int
    multiplier_width: int = 0

    name: ClassVar[str]
    """Value of the architecture's key ``mac_rounding``."""
    meaning: ClassVar[str]
    """The text about this value of ``mac_rounding`` in the table of architecture keys; fixed-point schemes have one."""
    kind: ClassVar[SchemeKind]
    code: ClassVar[int]
    """Bits 31:24 of the control register DATA_TYPE, by which a driver tells the schemes of one data type apart."""
    requantize_latency: ClassVar[int]
    """Cycles from a row of the accumulators to its scalars, before any activation table."""
    parameter_loads: ClassVar[Mapping[Opcode, int]] = MappingProxyType({})
    """Opcodes that load each lane's quantization parameters into the move-out unit -> vectors read."""
    register_fields: ClassVar[Mapping[str, Mapping[str, Register]]]
    """Unit -> the fields of its operations that hold a Configure register: field -> register."""
    writes_first: ClassVar[str | None] = None
    """The unit whose writes local memory serves before all others; None where clients take turns."""
    largest_product: ClassVar[int | None] = None
    """Magnitude of a product of the array, where two of them may share a DSP block."""
    order_matters: ClassVar[bool]
    """Whether a sum of products depends on the order of its terms."""
    bias_cycles: ClassVar[int]
    """Cycles that a sum takes in the array besides its rows and columns: for bias and DSP registers."""

    @property
    def per_lane(self) -> bool:
        """Whether each lane has quantization parameters of its own, by which the move-out unit requantizes.

        Otherwise one requantizer serves all units that read the accumulators."""
        return bool(self.parameter_loads)

    # -- what a machine may be -------------------------------------------------------------------------------------
    @staticmethod
    @abstractmethod
    def default_accumulator_width(scalar: DataType) -> int:
        """Return the bits of an accumulator if the architecture does not say."""

    def check(self) -> None:
        """Raise ArchError if the accumulators are too narrow for the scalars."""
        if self.accumulator_width <= self.scalar.point or self.accumulator_width < self.scalar.width:
            raise ArchError("accumulator_width", self.accumulator_width,
                            f"at least the data type's width {self.scalar.width}",
                            "leave accumulator_width out for twice the data type's width")

    @property
    def fixed_shift(self) -> int | None:
        """The only value that a program may give the input and output shifts; None if programs choose.

        It is fixed if all tensors have the scalar's binary point."""
        return None

    @property
    def chooses_points(self) -> bool:
        """Whether programs choose a binary point for every tensor."""
        return self.kind is SchemeKind.FIXED_POINT and self.fixed_shift is None

    @abstractmethod
    def registers(self, activation_tables: int) -> dict[Register, RegisterSpec]:
        """Return the Configure registers of quantization parameters; ``activation_tables``: of the machine."""

    def bias_interval(self, lanes: int) -> int:
        """Return the cycles after a vector that uses a new bias, until another new bias may be used."""
        return 1

    # -- widths ----------------------------------------------------------------------------------------------------
    @property
    def activation_width(self) -> int:
        """Bits of an operand of a processing element."""
        return self.scalar.width

    @abstractmethod
    def row_sum_width(self, row: int) -> int:
        """Return the bits of a column's sum of products down to row ``row``, 0 the first.

        They are as many as the sum can need, and no more. A wider register would hold copies of its sign, and yosys
        0.70 loses such copies when it packs the register into a DSP block."""

    @abstractmethod
    def partial_sum_width(self, lanes: int) -> int:
        """Return the bits of the sum that leaves a column of ``lanes`` rows, its bias included."""

    # -- in and out of the accumulators ----------------------------------------------------------------------------
    @abstractmethod
    def rescale_input(self, scalars: Integers, shift: int) -> Integers:
        """Return scalars as accumulator values: shifted left, saturated."""

    def requantize(self, values: Integers, shift: int) -> Integers:
        """Return accumulator values as scalars: ``shift`` bits rounded off, ties to even, saturated."""
        return requantize(values, shift, self.scalar.width)

    def is_cut(self, values: Integers, requantization: OutputRescale, relu: bool = False) -> np.ndarray:
        """Return which accumulator values are changed by saturating as they leave, bool of their shape.

        With ``relu`` a value that the ReLU makes the same of, whether it saturates or not, does not count."""
        rounded = round_half_even(values, requantization.shift)
        above = not relu or requantization.maximum is None or requantization.maximum >= self.scalar.maximum
        below = not relu or requantization.slope != 0
        return np.asarray(((rounded > self.scalar.maximum) & above) | ((rounded < self.scalar.minimum) & below))

    def rescale_bias(self, bias: Integers, shift: int) -> Integers:
        """Return the bias row of the weights as the value that a column's sum starts from."""
        return self.rescale_input(bias, shift)

    def activations(self, scalars: Integers, zero: int) -> Integers:
        """Return scalars of local memory as the factors of the systolic array; ``zero`` is their zero point."""
        return scalars

    def move_in(self, scalars: Integers, rescaling: InputRescale) -> Integers:
        """Return the accumulator values that a DataMove into the accumulators makes of scalars."""
        return self.rescale_input(scalars, rescaling.shift)

    @abstractmethod
    def move_out(self, values: Integers, requantization: OutputRescale, relu: bool) -> Integers:
        """Return the scalars that a DataMove out of the accumulators makes of values [..., lanes].

        ``relu``: whether its ReLU applies."""

    def store(self, values: Integers) -> Integers:
        """Return sums or rescaled scalars as an accumulator holds them: saturated."""
        return saturate(values, self.accumulator_width)

    def accumulate(self, old: Integers, values: Integers) -> Integers:
        """Return the accumulators ``old`` with ``values`` added, saturated once.

        It is exact: int64 holds the sum of two numbers of 63 bits, and wider numbers are Python ints."""
        return self.store(old + values)

    # -- sums of products ------------------------------------------------------------------------------------------
    @abstractmethod
    def mac(self, activations: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return the sums of the systolic array before :meth:`store`: the bias first, then row by row.

        activations [n, rows], weights [rows, columns], bias [columns], already rescaled -> [n, columns]."""

    @abstractmethod
    def add_product(self, partial_sum: int, weight: int, activation: int) -> int:
        """Return a partial sum with one product added, as one processing element does: a step of :meth:`mac`."""

    @abstractmethod
    def round_sums(self, sums: np.ndarray) -> np.ndarray:
        """Return exact sums of products at the point of the bias: :meth:`mac` without a bias.

        It holds as long as the order of the steps does not matter."""
