# SPDX-License-Identifier: Apache-2.0
"""Compute layers in bytes with scales by numpy alone, as ``evaluate.py`` does in fixed point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.check.evaluate import Tensors, convolve, enlarged, pool
from weft.compiler.layers.hir import (
    Add,
    Convolution,
    Layer,
    LayerOperation,
    Load,
    Lookup,
    MaxPool,
    Minimum,
    Relu,
    Round,
    Save,
    Scale,
    ScaleChannels,
    Translate,
)
from weft.compiler.quantize.numbers import LayerIntegers
from weft.compiler.quantize.scales import AffineParams, InputQuantization, LayerAffineParams, OutputQuantization
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import round_half_even, saturate
from weft.hw.contract.schemes import Int8
from weft.tmodel.scales import LOWEST

BYTE, WITH_BIAS = 8, 25
"""The bits of a scalar, and of an accumulator with its bias."""


class Scaled:
    """The evaluation of layers in bytes; a Temp holds accumulators [channels, height, width]."""

    def __init__(self, arch: Arch, scales: AffineParams, integers: Sequence[LayerIntegers]) -> None:
        assert isinstance(arch.scheme, Int8)
        self.width, self.numbers, self.scales, self.integers = arch.accumulator_bits, arch.scheme, scales, integers

    def run(self, layers: Sequence[Layer], tensors: Tensors) -> None:
        """Run all layers, in order, on ``tensors``, bit for bit as the machine does."""
        for layer, numbers, own in zip(layers, self.scales.layers, self.integers, strict=True):
            value, enters = np.zeros(0, np.int64), list(numbers.rescales)
            leaves = [*numbers.requantizations] if own.multipliers is None or own.bias is None else [
                leave._replace(multipliers=multipliers, biases=biases) for leave, multipliers, biases
                in zip(numbers.requantizations, own.multipliers, own.bias, strict=True)]
            for var in layer.outputs:  # the machine writes before it has read everything
                tensors.write(var, np.zeros(1, np.int64))
            positive, table = False, None
            for operation in layer.operations:
                if isinstance(operation, Save):
                    tensors.write(operation.output,
                                  _translated(self._requantize(value, leaves.pop(0), positive), table))
                    table = None
                elif isinstance(operation, Round):
                    scalars = _translated(self._requantize(value, leaves.pop(0), positive), table)
                    value, positive, table = self._rescale(scalars, enters.pop(0)), False, None
                elif isinstance(operation, Translate):
                    table = np.array(own.tables[0])
                elif isinstance(operation, Load):
                    value = self._rescale(enlarged(tensors.read(operation.input), operation), enters.pop(0))
                elif isinstance(operation, Add):
                    entered = self._rescale(tensors.read(operation.input), enters.pop(0))
                    value = np.asarray(saturate(value + entered, self.width))
                elif isinstance(operation, ScaleChannels):
                    multipliers, biases = self.numbers.scales(tensors.read(operation.factors)[:, 0].T)
                    leaves[0] = leaves[0]._replace(multipliers=multipliers, biases=biases)
                elif isinstance(operation, Relu):
                    positive = True
                elif isinstance(operation, Minimum | Scale):
                    pass  # the scale of what is saved ends there, the way out scales
                else:
                    value = self._compute(operation, value, tensors, numbers, own)

    def _rescale(self, scalars: np.ndarray, way: InputQuantization) -> np.ndarray:
        """Return bytes as accumulator values."""
        return np.asarray(saturate((scalars - way.zero) * way.factor, self.width))

    def _compute(self, operation: LayerOperation, value: np.ndarray, tensors: Tensors, numbers: LayerAffineParams,
                 own: LayerIntegers) -> np.ndarray:
        """Return the accumulators after an operation of the layer; ``value`` are the accumulators before it."""
        match operation:
            case Convolution():
                assert own.weights is not None
                activations = tensors.read(operation.input) - numbers.activation_zero_point
                sums = convolve(activations, own.weights, operation, own.group, BYTE + 1)
                return np.asarray(saturate(sums, self.width))
            case MaxPool():
                return pool(saturate(value, BYTE), operation.window, operation.size)
            case Lookup():
                keys, values = (np.array(table) for table in own.tables)
                return np.asarray(values[saturate(value, BYTE) - keys[0]])
        raise TypeError(f"no meaning for {operation}")

    @staticmethod
    def _requantize(value: np.ndarray, way: OutputQuantization, positive: bool) -> np.ndarray:
        """Return accumulator values as bytes; ``positive``: after a ReLU."""
        multipliers, biases = way.multipliers[:, None, None], way.biases[:, None, None]
        scaled = round_half_even(saturate(value + biases, WITH_BIAS) * multipliers, way.shift)
        scalars = np.asarray(saturate(scaled + way.zero, BYTE))
        return np.maximum(scalars, way.zero) if positive else scalars


def _translated(scalars: np.ndarray, table: np.ndarray | None) -> np.ndarray:
    """Return bytes looked up in an activation table, whose first entry is for the lowest byte."""
    return scalars if table is None else np.asarray(table[scalars - LOWEST])
