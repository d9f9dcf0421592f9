"""What every number scheme has to say."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from weft.support.errors import ArchError

from weft.hw.contract.instructions import Opcode
from weft.hw.contract.numerics import DataType, Integers, requantize, round_half_even, saturate
from weft.hw.contract.registers import Register, RegisterSpec


class SchemeKind(enum.Enum):
    """What the quantization parameters of a tensor are. Whoever has a variant for each kind has a table by it."""

    FIXED_POINT = "a binary point"
    AFFINE = "a scale and a zero point"


@dataclass(frozen=True)
class InputRescale:
    """How scalars are moved into the accumulators: what the Configure registers of the machine's kind say."""

    shift: int = 0
    zero: int = 0
    factor: int = 1


@dataclass(frozen=True, eq=False)
class OutputRescale:
    """How accumulators are moved out: what the Configure registers say and, on a machine with scales, the bytes of the
    last LoadScale, int64 [SCALE_VECTORS, lanes]; the ``table`` that bytes are looked up in, int64 [TABLE_ENTRIES,
    lanes], None for none."""

    shift: int = 0
    zero: int = 0
    scales: np.ndarray | None = None
    table: np.ndarray | None = None


@dataclass(frozen=True)
class Scheme(ABC):
    """The arithmetic of one machine: ``scalar`` in DRAM, local memory and SIMD registers, ``accumulator_width`` bits in
    the accumulators. Values are integers; arrays have the lanes last."""

    scalar: DataType
    accumulator_width: int

    name: ClassVar[str]
    """Value of the architecture's key ``mac_rounding``."""
    kind: ClassVar[SchemeKind]
    code: ClassVar[int]
    """What a driver reads in bit 24 of the control register DATA_TYPE."""
    requantize_latency: ClassVar[int]
    """Cycles from a row of the accumulators to its scalars, before any activation table."""
    parameter_loads: ClassVar[Mapping[Opcode, int]] = MappingProxyType({})
    """The instructions that load quantization parameters of each lane from local memory into the move-out unit ->
    vectors that each reads."""
    register_fields: ClassVar[Mapping[str, Mapping[str, Register]]]
    """Unit -> the fields of its operations that hold a Configure register: field -> register."""
    writes_first: ClassVar[str | None] = None
    """The unit whose writes local memory serves before all others; None where clients take turns."""
    largest_product: ClassVar[int | None] = None
    """Magnitude of a product of the array, where two of them may share a DSP block."""
    order_matters: ClassVar[bool]
    """Whether a sum of products depends on the order of its terms."""
    bias_cycles: ClassVar[int]
    """Cycles that a result of the systolic array takes besides the array's rows and columns, for its bias and the DSP
    block's registers."""

    @property
    def per_lane(self) -> bool:
        """Whether each lane has quantization parameters of its own, by which the move-out unit requantizes. Otherwise
        one requantizer serves all who read the accumulators."""
        return bool(self.parameter_loads)

    # -- what a machine may be -------------------------------------------------------------------------------------
    @staticmethod
    @abstractmethod
    def default_accumulator_width(scalar: DataType) -> int:
        """Bits of an accumulator where the architecture does not say."""

    def check(self) -> None:
        """Raises ArchError when the accumulators do not go with the scalars."""
        if self.accumulator_width <= self.scalar.point or self.accumulator_width < self.scalar.width:
            raise ArchError("accumulator_width", self.accumulator_width,
                            f"at least the data type's width {self.scalar.width}",
                            "leave accumulator_width out for twice the data type's width")

    @property
    def fixed_shift(self) -> int | None:
        """The only value that a program may give the input and output shifts, since all tensors have the scalar's
        binary point; None where programs choose."""
        return None

    @property
    def chooses_points(self) -> bool:
        """Whether programs choose a binary point for every tensor."""
        return self.kind is SchemeKind.FIXED_POINT and self.fixed_shift is None

    @abstractmethod
    def registers(self, activation_tables: int) -> dict[Register, RegisterSpec]:
        """Return the Configure registers of quantization parameters; ``activation_tables``: of the machine."""

    def bias_interval(self, lanes: int) -> int:
        """Return the cycles from a vector that enters the bias anew to the next one that may."""
        return 1

    # -- widths ----------------------------------------------------------------------------------------------------
    @property
    def activation_width(self) -> int:
        """Bits of an operand of a processing element."""
        return self.scalar.width

    @abstractmethod
    def row_sum_width(self, row: int) -> int:
        """Bits of a column's sum of products down to row ``row``, 0 the first: as many as they can need, and no more.

        A wider register would hold copies of its sign, and yosys 0.70 loses such copies when it packs the register into
        a DSP block.
        """

    @abstractmethod
    def partial_sum_width(self, lanes: int) -> int:
        """Bits of what leaves a column of ``lanes`` rows, its bias included."""

    # -- in and out of the accumulators ----------------------------------------------------------------------------
    @abstractmethod
    def rescale_input(self, scalars: Integers, shift: int) -> Integers:
        """Scalars -> accumulator values: shifted left, saturated."""

    def requantize(self, values: Integers, shift: int) -> Integers:
        """Accumulator values -> scalars: ``shift`` bits rounded off HALF_EVEN, saturated."""
        return requantize(values, shift, self.scalar.width)

    def is_cut(self, values: Integers, requantization: OutputRescale, relu: bool = False) -> np.ndarray:
        """Return which accumulator values lose by saturating as they leave; with ``relu`` none does from below."""
        rounded = round_half_even(values, requantization.shift)
        return np.asarray((rounded > self.scalar.maximum) | ((rounded < self.scalar.minimum) & (not relu)))

    def rescale_bias(self, bias: Integers, shift: int) -> Integers:
        """The bias row of the weights -> what a column's sum starts from."""
        return self.rescale_input(bias, shift)

    def activations(self, scalars: Integers, zero: int) -> Integers:
        """Scalars of local memory -> what the systolic array multiplies; ``zero`` their zero point."""
        return scalars

    def move_in(self, scalars: Integers, rescaling: InputRescale) -> Integers:
        """A DataMove into the accumulators: scalars -> accumulator values."""
        return self.rescale_input(scalars, rescaling.shift)

    def move_out(self, values: Integers, requantization: OutputRescale, relu: bool) -> Integers:
        """A DataMove out of the accumulators: values [..., lanes] -> scalars; ``relu``: none below zero."""
        scalars = self.requantize(values, requantization.shift)
        return np.maximum(scalars, 0) if relu else scalars

    def store(self, values: Integers) -> Integers:
        """Sums or entered scalars as an accumulator holds them."""
        return saturate(values, self.accumulator_width)

    def accumulate(self, old: Integers, values: Integers) -> Integers:
        """Accumulators after ``values`` were added, with one saturation.

        Exact: int64 holds the sum of two numbers of 63 bits, and all that is wider is of Python ints.
        """
        return self.store(old + values)

    # -- sums of products ------------------------------------------------------------------------------------------
    @abstractmethod
    def mac(self, activations: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """What the systolic array gives, before :meth:`store`: bias first, then lane by lane.

        activations [n, rows], weights [rows, columns], bias [columns] already entered -> [n, columns].
        """

    @abstractmethod
    def add_product(self, partial_sum: int, weight: int, activation: int) -> int:
        """One processing element: one step of :meth:`mac`."""

    @abstractmethod
    def round_sums(self, sums: np.ndarray) -> np.ndarray:
        """Exact sums of products at the point where a bias is added to them: what :meth:`mac` gives without one, as
        long as the order of its steps does not matter."""
