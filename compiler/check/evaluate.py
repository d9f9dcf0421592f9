# SPDX-License-Identifier: Apache-2.0
"""Compute layers by numpy alone: in real numbers, and bit for bit in the machine's fixed point.

It is a second implementation that follows the layers' own meaning, one whole tensor after the other. It knows no tiles,
no order of partial sums and no instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import (
    Abs,
    Convolution,
    Core,
    Elementwise,
    Gate,
    LeakyRelu,
    Load,
    Lookup,
    Minimum,
    Multiply,
    Product,
    Save,
    Slopes,
    SteepSlopes,
    Translate,
)
from weft.compiler.layers.var import Var
from weft.compiler.lir import DRAM0, DRAM1, LOCAL, Address
from weft.compiler.memory.allocation import Allocation
from weft.compiler.memory.plan import MemoryPlan
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
        for layer in layers:
            value = self._core(layer.core, tensors)
            if layer.rounding is not None and layer.rounding.relu:
                value = np.maximum(value, 0)
            if layer.rounding is not None and layer.translation is not None:
                value = self._function(layer.translation, value)
            for add in layer.adds:
                other = tensors.read(add.input)
                value = value * other if isinstance(add, Multiply) else value + other
            if layer.lookup is not None:
                value = self._function(layer.lookup, value)
            if layer.elementwise is not None:
                value = self._elementwise(layer.elementwise, value)
            if layer.factors is not None:
                value = value * tensors.read(layer.factors)[:, :, :1]
            for save in layer.saves:
                self._save(layer, save, value, tensors)

    def _core(self, core: Core, tensors: Tensors) -> np.ndarray:
        """Return the result of a layer's core."""
        if isinstance(core, Load):
            return enlarged(tensors.read(core.input), core)
        if isinstance(core, Product):
            return convolve(tensors.read(core.input), as_weights(core, tensors), core)
        sums = convolve(tensors.read(core.input), self.constants[core.weights].astype(np.float64), core)
        return sums + self.constants[core.bias].astype(np.float64)[:, None, None]

    def _function(self, stage: Lookup | Translate, value: np.ndarray) -> np.ndarray:
        """Return the function of each number."""
        return function_of(stage, self.opset)(value.ravel()).reshape(value.shape)

    def _elementwise(self, stage: Elementwise, value: np.ndarray) -> np.ndarray:
        """Return the value after an elementwise stage."""
        match stage:
            case Minimum():
                return np.minimum(value, stage.value)
            case Abs():
                return np.abs(value)
            case Gate():
                return value * np.clip(value + stage.offset, 0, stage.limit)
            case LeakyRelu():
                return np.maximum(value, value * stage.slope)
            case Slopes():
                return np.where(value < 0, value * self.constants[stage.slopes].astype(np.float64), value)

    def _save(self, layer: Layer, save: Save, value: np.ndarray, tensors: Tensors) -> None:
        """Write one output of a layer; ``value`` is what its max pool and its saves get."""
        if layer.pool is not None and not save.before_pool:
            value = pool(value, layer.pool.window, layer.pool.size)
        if save.scale is not None:
            weights, bias = (self.constants[name].astype(np.float64).reshape(-1, 1, 1)
                             for name in (save.scale.weights, save.scale.bias))
            value = value * weights + bias
        if save.relu:
            value = np.maximum(value, 0)
        if layer.translation is not None and layer.rounding is None:
            value = self._function(layer.translation, value)
        tensors.write(save.var, value)


class Fixed:
    """The evaluation of layers in fixed point, in accumulators [channels, height, width]."""

    dtype: type = np.int64

    def __init__(self, arch: Arch, points: FixedPointParams, integers: Sequence[LayerIntegers]) -> None:
        self.arch, self.points, self.integers = arch, points, integers

    def run(self, layers: Sequence[Layer], tensors: Tensors) -> None:
        """Run all layers, in order, on ``tensors``, bit for bit as the machine does.

        If the order of sums matters it differs, because sums are rounded once here."""
        for layer, numbers, own in zip(layers, self.points.layers, self.integers, strict=True):
            for var in layer.outputs:  # the machine writes before it has read everything
                tensors.write(var, np.zeros(1, np.int64))
            value = self._core(layer.core, tensors, numbers, own)
            for add, shift in zip(layer.adds, numbers.add_shifts, strict=True):
                other = self._rescale(tensors.read(add.input), shift)
                value = (self._in_simd(value, numbers, partial(self._multiply, other, numbers.output_shift))
                         if isinstance(add, Multiply) else self._clip(value + other))
            if layer.lookup is not None:
                value = self._in_simd(value, numbers, partial(self._looked_up, own.tables))
            if layer.elementwise is not None and not on_output(layer, self.arch):
                value = self._in_simd(value, numbers, partial(self._elementwise, layer.elementwise, own))
            for save, shift, functions in zip(layer.saves, numbers.output_shifts,
                                              numbers.functions or ((),) * len(layer.saves), strict=True):
                if layer.pool is not None and not save.before_pool:  # the SIMD unit: out of the accumulators, in again
                    value = self._rescale(pool(self._requantize(value, shift), layer.pool.window, layer.pool.size),
                                          shift)
                result = np.maximum(value, 0) if save.relu else value
                tensors.write(save.var, self._saved(self._requantize(result, shift), dict(functions)))

    def _saved(self, scalars: np.ndarray, functions: Mapping[Register, int]) -> np.ndarray:
        """Return scalars with the functions on output whose registers are given: a slope below zero, a maximum."""
        slope = functions.get(Register.OUTPUT_SLOPE, 0)
        if slope:
            below = self.arch.number.saturate(round_half_even(scalars * slope, SLOPE_POINT))
            scalars = np.where(scalars < 0, below, scalars)
        return np.minimum(scalars, functions.get(Register.OUTPUT_MAXIMUM, self.arch.number.maximum))

    def _core(self, core: Core, tensors: Tensors, numbers: LayerFixedPointParams, own: LayerIntegers) -> np.ndarray:
        """Return the accumulators after a layer's core."""
        if isinstance(core, Load):
            return self._rescale(enlarged(tensors.read(core.input), core), numbers.core_shift)
        weights = as_weights(core, tensors) if isinstance(core, Product) else own.weights
        assert weights is not None
        bias = np.zeros(len(weights), np.int64) if own.bias is None else own.bias
        sums = convolve(tensors.read(core.input), weights, core, own.group, self.arch.number.width)
        return self._clip(self.arch.scheme.round_sums(sums) + self._rescale(bias, numbers.core_shift)[:, None, None])

    def _in_simd(self, value: np.ndarray, numbers: LayerFixedPointParams,
                 stage: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the accumulators after a stage of the SIMD unit: out of them as scalars, and in again."""
        return self._rescale(stage(self._requantize(value, numbers.output_shift)), numbers.input_shift)

    def _multiply(self, other: np.ndarray, shift: int, scalars: np.ndarray) -> np.ndarray:
        """Return scalars times accumulator values that leave the accumulators with ``shift``."""
        return np.asarray(self.arch.number.multiply(scalars, self._requantize(other, shift)))

    def _looked_up(self, tables: Sequence[Sequence[int]], scalars: np.ndarray) -> np.ndarray:
        """Return the function of scalars by lookup tables: the nearest key's value and slope."""
        number = self.arch.number
        distance, height, slope = alu.lookup(number, np.array(tables)[..., None], scalars[..., None])[:3]
        return np.asarray(number.saturate(number.multiply(distance, slope) + height))[..., 0]

    def _elementwise(self, stage: Elementwise, own: LayerIntegers, scalars: np.ndarray) -> np.ndarray:
        """Return scalars after an elementwise stage."""
        number, operands = self.arch.number, own.operands
        match stage:
            case Minimum():
                return np.minimum(scalars, operands[0])
            case Abs():
                return np.asarray(number.saturate(np.abs(scalars)))
            case Gate():
                offset, limit = operands
                return np.asarray(number.multiply(scalars, np.clip(number.saturate(scalars + offset), 0, limit)))
            case LeakyRelu():
                shrunk = number.multiply(number.multiply(scalars, operands[0]), operands[1])
                return np.maximum(scalars, shrunk)
            case Slopes():
                assert own.slopes is not None
                first, second = own.slopes[..., None, None]
                shrunk = number.multiply(scalars, first)
                if isinstance(stage, SteepSlopes):
                    return np.asarray(number.saturate(scalars + number.multiply(np.minimum(shrunk, 0), second)))
                return np.maximum(scalars, number.multiply(shrunk, second))

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
