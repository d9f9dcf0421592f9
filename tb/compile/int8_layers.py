"""Layers of bytes in plain numpy, one after another: what a program of them must leave. Exact integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.layers.hir import Add, Convolution, Layer, Load, Lookup, MaxPool, Var
from weft.compiler.quantize.scales import Enter, LayerScales, Scales
from weft.hw.contract.numbers import Int8
from weft.hw.contract.numbers.base import Entering, Leaving
from weft.hw.contract.numerics import DataType
from weft.runtime.scales import LOWEST, TensorScale

NUMBERS = Int8(DataType(8, 0), 32)
LANES = 8
"""Channels of a tile, where tensors lie in each other."""


class Memory:
    """``bytes_of`` roots: [channels with room to whole tiles, pixels]."""

    def __init__(self, scales: Mapping[str, TensorScale], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.roots: dict[str, np.ndarray] = {}
        for name, scale in scales.items():
            _, channels, height, width = shapes[name]
            self.roots[name] = np.full((-(-channels // LANES) * LANES, height * width), scale.zero, np.int64)

    def _place(self, var: Var) -> tuple[slice, np.ndarray]:
        tile, offset, pitch, step = ((0, 0, var.width, 1) if var.part is None
                                     else (var.part.tile, var.part.offset, var.part.pitch, var.part.step))
        pixels = offset + pitch * np.arange(var.height)[:, None] + step * np.arange(var.width)
        return slice(tile * LANES, tile * LANES + var.channels), pixels.ravel()

    def read(self, var: Var) -> np.ndarray:
        channels, pixels = self._place(var)
        return self.roots[var.root][channels][:, pixels].reshape(var.channels, var.height, var.width)

    def write(self, var: Var, value: np.ndarray) -> None:
        channels, pixels = self._place(var)
        self.roots[var.root][channels, pixels] = value.reshape(var.channels, -1)


def run_layer(layer: Layer, numbers: LayerScales, scales: Scales, constants: Mapping[str, np.ndarray],
              memory: Memory) -> None:
    """Reads and writes ``memory``."""
    accumulators = _core(layer, numbers, constants, memory)
    enters = iter(numbers.enters[1:])
    for operation in layer.operations[1:]:
        if isinstance(operation, Add):
            accumulators = NUMBERS.accumulate(accumulators, _entered(memory.read(operation.input), next(enters)))
        elif isinstance(operation, MaxPool):
            accumulators = _pooled(accumulators, operation)
        elif isinstance(operation, Lookup):
            accumulators = np.array(scales.tables[layer.output.name])[accumulators - LOWEST]
    vectors = NUMBERS.scale_vectors(numbers.multipliers, numbers.biases)
    for save, zero in zip(layer.saves, numbers.leave_zeros, strict=True):
        leaving = Leaving(numbers.shift, zero, vectors)
        made = NUMBERS.move_out(np.moveaxis(accumulators, 0, -1), leaving, save.relu)
        memory.write(save.var, np.moveaxis(made, -1, 0))


def _core(layer: Layer, numbers: LayerScales, constants: Mapping[str, np.ndarray], memory: Memory) -> np.ndarray:
    core = layer.core
    value = memory.read(core.input)
    if isinstance(core, Convolution):
        weights = numbers.weights(constants[core.weights])
        return NUMBERS.store(_convolved(core, value - numbers.activation_zero, weights))
    assert isinstance(core, Load)
    entered = _entered(value, numbers.enters[0])
    return entered.repeat(core.factors[0], 1).repeat(core.factors[1], 2)


def _entered(value: np.ndarray, enter: Enter) -> np.ndarray:
    return np.asarray(NUMBERS.move_in(value, Entering(zero=enter.zero, factor=enter.factor)))


def _taps(window: object, axis: int, tap: int, made: int, read: int) -> tuple[slice, slice]:
    """Outputs that see a pixel through a tap, and those pixels."""
    stride, pad, dilation = window.strides[axis], window.pads[axis], window.dilations[axis]  # type: ignore[attr-defined]
    places = np.arange(made) * stride - pad + tap * dilation
    inside = np.flatnonzero((places >= 0) & (places < read))
    if not len(inside):
        return slice(0, 0), slice(0, 0)
    first, last = int(inside[0]), int(inside[-1])
    return slice(first, last + 1), slice(int(places[first]), int(places[last]) + 1, stride)


def _convolved(core: Convolution, value: np.ndarray, weights: np.ndarray) -> np.ndarray:
    outputs, per_group = weights.shape[:2]
    sums = np.zeros((outputs, *core.size), np.float64)  # exact below 2**53
    for row in range(weights.shape[2]):
        for column in range(weights.shape[3]):
            there, here = zip(*(_taps(core.window, axis, tap, core.size[axis], core.input.size[axis])
                                for axis, tap in enumerate((row, column))), strict=True)
            pixels = value[:, here[0], here[1]].astype(np.float64)
            factors = weights[:, :, row, column].astype(np.float64).reshape(core.group, -1, per_group)
            made = factors @ pixels.reshape(core.group, per_group, -1)
            sums[:, there[0], there[1]] += made.reshape(outputs, *pixels.shape[1:])
    return sums.astype(np.int64)


def _pooled(value: np.ndarray, pool: MaxPool) -> np.ndarray:
    made = np.full((len(value), *pool.size), LOWEST, np.int64)
    for row in range(pool.window.kernel[0]):
        for column in range(pool.window.kernel[1]):
            there, here = zip(*(_taps(pool.window, axis, tap, pool.size[axis], value.shape[1 + axis])
                                for axis, tap in enumerate((row, column))), strict=True)
            where = (slice(None), *there)
            made[where] = np.maximum(made[where], value[:, here[0], here[1]])
    return made


def run_layers(layers: Sequence[Layer], scales: Scales, constants: Mapping[str, np.ndarray], memory: Memory) -> None:
    for layer, numbers in zip(layers, scales.layers, strict=True):
        run_layer(layer, numbers, scales, constants, memory)
