# SPDX-License-Identifier: Apache-2.0
"""Compute layers in bytes with scales by numpy alone, as ``evaluate.py`` does in fixed point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.check.evaluate import Tensors, convolve, enlarged, pool
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Load, Product
from weft.compiler.quantize.numbers import LayerIntegers
from weft.compiler.quantize.scales import AffineParams, InputQuantization, LayerAffineParams, OutputQuantization
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import round_half_even, saturate
from weft.hw.contract.schemes import Int8
from weft.tmodel.scales import LOWEST

BYTE, WITH_BIAS = 8, 25
"""The bits of a scalar, and of an accumulator with its bias."""


class Scaled:
    """The evaluation of layers in bytes, in accumulators [channels, height, width]."""

    def __init__(self, arch: Arch, scales: AffineParams, integers: Sequence[LayerIntegers]) -> None:
        assert isinstance(arch.scheme, Int8)
        self.width, self.numbers, self.scales, self.integers = arch.accumulator_bits, arch.scheme, scales, integers

    def run(self, layers: Sequence[Layer], tensors: Tensors) -> None:
        """Run all layers, in order, on ``tensors``, bit for bit as the machine does."""
        for layer, numbers, own in zip(layers, self.scales.layers, self.integers, strict=True):
            for var in layer.outputs:  # the machine writes before it has read everything
                tensors.write(var, np.zeros(1, np.int64))
            self._run(layer, numbers, own, tensors)

    def _run(self, layer: Layer, numbers: LayerAffineParams, own: LayerIntegers, tensors: Tensors) -> None:
        """Run one layer."""
        rescales, requantizations = iter(numbers.rescales), iter(self._requantizations(layer, numbers, own, tensors))
        table = None if layer.translation is None else np.array(own.tables[0])
        if isinstance(layer.core, Load):
            value = self._rescale(enlarged(tensors.read(layer.core.input), layer.core), next(rescales))
        else:
            value = self._sums(layer.core, tensors, numbers, own)
        if layer.rounding is not None:
            scalars = self._requantize(value, next(requantizations), layer.rounding.relu)
            value, table = self._rescale(_translated(scalars, table), next(rescales)), None
        for add in layer.adds:
            value = np.asarray(saturate(value + self._rescale(tensors.read(add.input), next(rescales)), self.width))
        if layer.lookup is not None:
            keys, values = (np.array(entries) for entries in own.tables)
            value = np.asarray(values[saturate(value, BYTE) - keys[0]])
        for save in layer.saves:
            if layer.pool is not None and not save.before_pool:
                value = pool(saturate(value, BYTE), layer.pool.window, layer.pool.size)
            tensors.write(save.var, _translated(self._requantize(value, next(requantizations), save.relu), table))

    def _requantizations(self, layer: Layer, numbers: LayerAffineParams, own: LayerIntegers,
                         tensors: Tensors) -> list[OutputQuantization]:
        """Return the requantization of the rounding, if any, and of each save, with multipliers as they are stored."""
        if layer.factors is not None:
            multipliers, biases = self.numbers.scales(tensors.read(layer.factors)[:, 0].T)
            return [numbers.requantizations[0]._replace(multipliers=multipliers, biases=biases)]
        if own.multipliers is None or own.bias is None:
            return [*numbers.requantizations]
        return [way._replace(multipliers=multipliers, biases=biases) for way, multipliers, biases
                in zip(numbers.requantizations, own.multipliers, own.bias, strict=True)]

    def _rescale(self, scalars: np.ndarray, way: InputQuantization) -> np.ndarray:
        """Return bytes as accumulator values."""
        return np.asarray(saturate((scalars - way.zero) * way.factor, self.width))

    def _sums(self, core: Convolution | Product, tensors: Tensors, numbers: LayerAffineParams,
              own: LayerIntegers) -> np.ndarray:
        """Return the accumulators after a convolution."""
        assert own.weights is not None
        activations = tensors.read(core.input) - numbers.activation_zero_point
        return np.asarray(saturate(convolve(activations, own.weights, core, own.group, BYTE + 1), self.width))

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
