# SPDX-License-Identifier: Apache-2.0
"""Compute layers by numpy alone: in real numbers, and bit for bit in the machine's fixed point.

It is a second implementation that follows the layers' own meaning, one whole tensor after the other. It knows no tiles,
no order of partial sums and no instructions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import (
    Abs,
    Add,
    Convolution,
    Gate,
    Layer,
    LayerOperation,
    LeakyRelu,
    Load,
    Lookup,
    MaxPool,
    Minimum,
    Multiply,
    Product,
    Relu,
    Round,
    Save,
    Scale,
    ScaleChannels,
    Translate,
    Var,
)
from weft.compiler.lir import DRAM0, DRAM1, LOCAL, Address
from weft.compiler.memory.layout import MemoryPlan
from weft.compiler.memory.places import Allocation
from weft.compiler.quantize.numbers import LayerIntegers
from weft.compiler.quantize.points import FixedPointParams, LayerFixedPointParams, on_output
from weft.compiler.quantize.tables import function_of
from weft.golden import alu
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import integer_dtype, round_half_even
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes.fixed_point import SLOPE_POINT
from weft.tmodel.window import Window


# -- tensors -----------------------------------------------------------------------------------------------------------
class Tensors:
    """Vars in memory, [tiles, pixels, lanes] each.

    With a ``layout`` they lie at its addresses, so that what overlaps there overlaps here."""

    def __init__(self, graph: Graph, arch: Arch, dtype: type, layout: MemoryPlan | None = None) -> None:
        self.graph, self.lanes, self.dtype, self.layout = graph, arch.array_size, dtype, layout
        self.roots: dict[str, list[np.ndarray]] = {}
        self.memories: dict[str, np.ndarray] = {}
        if layout is not None:
            self.memories = {memory: self._memory(places) for memory, places in (
                (DRAM0, layout.dram0), (DRAM1, layout.dram1), (LOCAL, layout.local))}

    def _memory(self, places: Mapping[str, Allocation]) -> np.ndarray:
        """Return an empty memory, deep enough for these allocations."""
        return np.zeros((max((place.base + place.size for place in places.values()), default=0), self.lanes),
                        self.dtype)

    def _root(self, name: str) -> list[np.ndarray]:
        """Return [pixels, lanes] of each channel tile of a Var, as views of its place."""
        if name not in self.roots:
            _, channels, height, width = self.graph.shapes[name]
            tiles, pixels = -(-channels // self.lanes), height * width
            self.roots[name] = ([*np.zeros((tiles, pixels, self.lanes), self.dtype)] if self.layout is None else
                                [self._placed(self.layout, name, tile, pixels) for tile in range(tiles)])
        return self.roots[name]

    def _placed(self, layout: MemoryPlan, name: str, tile: int, pixels: int) -> np.ndarray:
        """Return [pixels, lanes] of a channel tile where the layout puts it."""
        memory, base = (Address(LOCAL, layout.local[name].base + tile * pixels) if name in layout.local else
                       layout.homes[name].address(tile, pixels))
        return self.memories[memory][base:base + pixels]

    def _walk(self, var: Var) -> tuple[slice, np.ndarray]:
        """Return the channel tiles of a Var in its root, and the root's pixel for each (y, x)."""
        part = var.part
        tile, offset, pitch, step = (part.tile, part.offset, part.pitch, part.step) if part else (0, 0, var.width, 1)
        pixels = offset + pitch * np.arange(var.height)[:, None] + step * np.arange(var.width)
        return slice(tile, tile + var.tiles(self.lanes)), pixels

    def read(self, var: Var) -> np.ndarray:
        """Return a Var as [channels, height, width]."""
        tiles, pixels = self._walk(var)
        found = np.stack(self._root(var.root)[tiles])[:, pixels].transpose(0, 3, 1, 2)
        return found.reshape(-1, *var.size)[:var.channels]

    def write(self, var: Var, values: np.ndarray) -> None:
        """Write values [channels, height, width] or one for all; lanes beyond the last channel become zero."""
        tiles, pixels = self._walk(var)
        full: np.ndarray = np.zeros((var.tiles(self.lanes) * self.lanes, *var.size), self.dtype)
        full[:var.channels] = values
        for tile, part in zip(self._root(var.root)[tiles], full.reshape(-1, self.lanes, *var.size), strict=True):
            tile[pixels] = part.transpose(1, 2, 0)


# -- layers ------------------------------------------------------------------------------------------------------------
class Real:
    """The evaluation of layers in double precision."""

    dtype: type = np.float64

    def __init__(self, constants: Mapping[str, np.ndarray], opset: int) -> None:
        self.constants, self.opset = constants, opset

    def run(self, layers: Sequence[Layer], tensors: Tensors) -> None:
        """Run all layers, in order, on ``tensors``."""
        for number, layer in enumerate(layers):
            value = np.zeros(0)
            for operation in layer.operations:
                value = self.step(number, operation, value, tensors)

    def step(self, number: int, operation: LayerOperation, value: np.ndarray, tensors: Tensors) -> np.ndarray:
        """Return the Temp after an operation of layer ``number``; ``value`` is the Temp before."""
        match operation:
            case Convolution():
                weights, bias = (self.constants[name].astype(np.float64)
                                 for name in (operation.weights, operation.bias))
                sums = convolve(tensors.read(operation.input), weights, operation)
                return sums + bias[:, None, None]
            case Product():
                return convolve(tensors.read(operation.input), as_weights(operation, tensors), operation)
            case Load():
                return enlarged(tensors.read(operation.input), operation)
            case Add():
                return value + tensors.read(operation.input)
            case Multiply():
                return value * tensors.read(operation.input)
            case Lookup() | Translate():
                function = function_of(operation, self.opset)
                return function(value.ravel()).reshape(value.shape)
            case MaxPool():
                return pool(value, operation.window, operation.size)
            case Minimum():
                return np.minimum(value, operation.value)
            case Abs():
                return np.abs(value)
            case Gate():
                return value * np.clip(value + operation.offset, 0, operation.limit)
            case LeakyRelu():
                return np.maximum(value, value * operation.slope)
            case Scale():
                weights, bias = (self.constants[name].astype(np.float64).reshape(-1, 1, 1)
                                 for name in (operation.weights, operation.bias))
                return value * weights + bias
            case ScaleChannels():
                return value * tensors.read(operation.factors)[:, :, :1]
            case Relu():
                return np.maximum(value, 0)
            case Round():
                return value
            case Save():
                tensors.write(operation.output, value)
        return value


class Fixed:
    """The evaluation of layers in fixed point; a Temp holds accumulators [channels, height, width]."""

    dtype: type = np.int64

    def __init__(self, arch: Arch, points: FixedPointParams, integers: Sequence[LayerIntegers]) -> None:
        self.arch, self.points, self.integers = arch, points, integers

    def run(self, layers: Sequence[Layer], tensors: Tensors) -> None:
        """Run all layers, in order, on ``tensors``, bit for bit as the machine does.

        If the order of sums matters it differs, because sums are rounded once here."""
        for layer, numbers, own in zip(layers, self.points.layers, self.integers, strict=True):
            value, shifts = np.zeros(0, np.int64), list(numbers.add_shifts)
            for var in layer.outputs:  # the machine writes before it has read everything
                tensors.write(var, np.zeros(1, np.int64))
            leaves, outputs = list(numbers.output_shifts), itertools.count()
            for operation in layer.operations:
                if isinstance(operation, Save):
                    functions = dict(numbers.functions[next(outputs)]) if numbers.functions else {}
                    tensors.write(operation.output, self._saved(self._requantize(value, leaves.pop(0)), functions))
                elif operation == layer.elementwise and on_output(layer, self.arch):
                    continue  # a save does it
                elif isinstance(operation, Convolution | Product | Load):
                    value = self._core(operation, tensors, numbers, own)
                elif isinstance(operation, Add):
                    value = self._clip(value + self._rescale(tensors.read(operation.input), shifts.pop(0)))
                elif isinstance(operation, Relu):
                    value = np.maximum(value, 0)
                else:  # the SIMD unit: out of the accumulators and in again
                    leave, enter = ((leaves[0], leaves[0]) if numbers.gate_shift is None else
                                    (numbers.output_shift, numbers.input_shift))
                    scalars = self._simd(operation, self._requantize(value, leave), tensors, numbers, own)
                    value = self._rescale(scalars, enter)

    def _saved(self, scalars: np.ndarray, functions: Mapping[Register, int]) -> np.ndarray:
        """Return scalars with the functions on output whose registers are given: a slope below zero, a maximum."""
        slope = functions.get(Register.OUTPUT_SLOPE, 0)
        if slope:
            below = self.arch.number.saturate(round_half_even(scalars * slope, SLOPE_POINT))
            scalars = np.where(scalars < 0, below, scalars)
        return np.minimum(scalars, functions.get(Register.OUTPUT_MAXIMUM, self.arch.number.maximum))

    def _core(self, core: Convolution | Product | Load, tensors: Tensors, numbers: LayerFixedPointParams,
              own: LayerIntegers) -> np.ndarray:
        """Return the accumulators after a layer's core."""
        if isinstance(core, Load):
            return self._rescale(enlarged(tensors.read(core.input), core), numbers.core_shift)
        weights = as_weights(core, tensors) if isinstance(core, Product) else own.weights
        assert weights is not None
        bias = np.zeros(len(weights), np.int64) if own.bias is None else own.bias
        sums = convolve(tensors.read(core.input), weights, core, own.group, self.arch.number.width)
        return self._clip(self.arch.scheme.round_sums(sums) + self._rescale(bias, numbers.core_shift)[:, None, None])

    def _simd(self, operation: LayerOperation, value: np.ndarray, tensors: Tensors, numbers: LayerFixedPointParams,
              own: LayerIntegers) -> np.ndarray:
        """Return the accumulators after an operation of the SIMD unit."""
        number = self.arch.number
        match operation:
            case Multiply():
                other = self._rescale(tensors.read(operation.input), numbers.add_shifts[0])
                return np.asarray(number.multiply(value, self._requantize(other, numbers.output_shift)))
            case MaxPool():
                return pool(value, operation.window, operation.size)
            case Minimum():
                return np.minimum(value, own.operands[0])
            case Abs():
                return np.asarray(number.saturate(np.abs(value)))
            case Gate():
                offset, limit = own.operands
                return np.asarray(number.multiply(value, np.clip(number.saturate(value + offset), 0, limit)))
            case LeakyRelu():
                shrunk = number.multiply(number.multiply(value, own.operands[0]), own.operands[1])
                return np.maximum(value, shrunk)
            case Lookup():
                distance, height, slope = alu.lookup(number, np.array(own.tables)[..., None], value[..., None])[:3]
                return np.asarray(number.saturate(number.multiply(distance, slope) + height))[..., 0]
        raise TypeError(f"no meaning for {operation}")

    def _clip(self, value: np.ndarray) -> np.ndarray:
        """Return values saturated to the accumulators' width."""
        return np.asarray(self.arch.scheme.store(value))

    def _rescale(self, scalars: np.ndarray, shift: int) -> np.ndarray:
        """Return scalars as accumulator values, shifted left."""
        return np.asarray(self.arch.scheme.rescale_input(scalars, shift))

    def _requantize(self, value: np.ndarray, shift: int) -> np.ndarray:
        """Return accumulator values as scalars, shifted right."""
        return np.asarray(self.arch.scheme.requantize(value, shift)).astype(np.int64)


def enlarged(image: np.ndarray, load: Load) -> np.ndarray:
    """Return [channels, height, width] with each pixel repeated as a load does."""
    return image.repeat(load.factors[0], axis=1).repeat(load.factors[1], axis=2)


def as_weights(core: Product, tensors: Tensors) -> np.ndarray:
    """Return the second factor of a product as weights [out, in, 1, 1]."""
    return tensors.read(core.weights)[..., None]


def convolve(image: np.ndarray, weights: np.ndarray, core: Convolution | Product, group: int | None = None,
             width: int | None = None) -> np.ndarray:
    """Return [channels, height, width] convolved with weights [out, in / group, height, width].

    It is exact for integers of ``width`` bits."""
    group = core.group if group is None else group
    outputs, per_group = weights.shape[:2]
    bits = 0 if width is None else 2 * width - 1 + weights[0].size.bit_length()
    exact: type = np.float64 if bits <= 53 else integer_dtype(bits)
    sums: np.ndarray = np.zeros((outputs, *core.size), exact)
    for y, x in core.window.taps():
        rows, columns = (core.window.outputs(axis, tap, 0, core.size[axis], image.shape[axis + 1])
                         for axis, tap in enumerate((y, x)))
        taken = _walk(core.window, 0, y, rows), _walk(core.window, 1, x, columns)
        patch: np.ndarray = image[:group * per_group, taken[0][:, None], taken[1]].astype(exact)
        factors: np.ndarray = weights[:, :, y, x].astype(exact).reshape(group, -1, per_group)
        product = factors @ patch.reshape(group, per_group, -1)
        sums[:, slice(*rows), slice(*columns)] += product.reshape(outputs, len(taken[0]), len(taken[1]))
    return sums if width is None or exact is not np.float64 else sums.astype(np.int64)


def _walk(window: Window, axis: int, tap: int, outputs: tuple[int, int]) -> np.ndarray:
    """Return the input positions that a tap reads for a range of outputs."""
    return np.arange(*outputs) * window.strides[axis] - window.pads[axis] + tap * window.dilations[axis]


def pool(value: np.ndarray, window: Window, size: tuple[int, int]) -> np.ndarray:
    """Return the maximum of every window; padding is left out."""
    least = -np.inf if value.dtype.kind == "f" else np.iinfo(np.int64).min
    result = np.full((len(value), *size), least, value.dtype)
    for y, x in window.taps():
        rows, columns = (window.outputs(axis, tap, 0, size[axis], value.shape[axis + 1])
                         for axis, tap in enumerate((y, x)))
        taken = value[:, _walk(window, 0, y, rows)[:, None], _walk(window, 1, x, columns)]
        where = (slice(None), slice(*rows), slice(*columns))
        result[where] = np.maximum(result[where], taken)
    return result
