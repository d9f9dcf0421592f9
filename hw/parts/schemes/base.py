# SPDX-License-Identifier: Apache-2.0
"""The circuits that the blocks ask of a number scheme."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from amaranth.hdl import Module, Value

from weft.hw.contract.arch import Arch


class Circuits(ABC):
    """Combinational pieces of one number scheme; registers between them are the caller's. Every value is signed."""

    name: ClassVar[str]
    """The name of the number scheme in ``hw/contract/schemes``."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch

    # -- into the accumulators -------------------------------------------------------------------------------------
    @abstractmethod
    def rescale(self, m: Module, request: Any) -> list[Value]:
        """Return the accumulator values of each lane of a request of an ``InputRescalerPort``.

        They come ACCUMULATE_DATA_LATENCY cycles after ``request``."""

    # -- and out ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def output_shifts(self, shift: Value, fine_shift: Value, from_shift: Value) -> tuple[Value, Value, Value]:
        """Return (shift, fine shift, from shift) for the two steps of requantizing, given those of the instruction."""

    def activation(self, scalar: Value, operation: Any) -> Value:
        """Return a scalar of local memory as it goes into the array.

        ``operation``: the fields of the MatMul's operation that hold registers."""
        return scalar

    def chosen_activation(self, scalar: Value, operation: Any) -> Value:
        """Return :meth:`activation` of a scalar that a multiplexer chooses, in a form that takes its tables in."""
        return self.activation(scalar, operation)

    def weight(self, scalar: Value) -> Value:
        """Return a weight as it goes into the array."""
        return scalar

    # -- the systolic array ----------------------------------------------------------------------------------------
    @abstractmethod
    def add_product(self, partial_sum: Value, product: Value, width: int) -> Value:
        """Return a processing element's sum, in ``width`` bits."""

    @abstractmethod
    def add_biases(self, m: Module, biases: list[Value], enter: Value, input_shift: Value,
                   columns: list[list[Any]]) -> list[Value]:
        """Return each column's result.

        ``columns``: each column's processing elements from top to bottom, with ``partial_sum_i`` of the first and
        ``partial_sum_o`` of the last. A column's bias is there a cycle after its first row's activation. ``enter``
        (from this vector on the bias is rescaled anew) and ``input_shift`` come with the first column's
        (:class:`SystolicArray`)."""
