# SPDX-License-Identifier: Apache-2.0
"""Choose the quantization parameters of an INT8 machine's layers (``scales.py``), given a scale for every Var.

Weights have a scale for each output channel (``weight_scales.py``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Lookup, Save, Translate
from weft.compiler.layers.var import Var
from weft.compiler.lowering.functions import value_table
from weft.compiler.passes.quantization import Quantization
from weft.compiler.quantize.points import added_on_average, taps_seen
from weft.compiler.quantize.ranges import Calibration, Range
from weft.compiler.quantize.scales import (
    MOST_STEPS,
    MOST_WEIGHT,
    AffineParams,
    InputQuantization,
    LayerAffineParams,
    OutputQuantization,
    rounded_weights,
    unchanged_bytes,
    with_activation_tables,
)
from weft.compiler.quantize.tables import function_of
from weft.compiler.quantize.var_scales import STEPS, var_scales
from weft.compiler.quantize.weight_scales import (
    MOST_BIAS,
    MOST_SUM,
    beyond_one,
    rounded_again,
    single_precision_scales,
    weight_scales,
)
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import round_half_even
from weft.hw.contract.schemes.int8 import MULTIPLIER_WIDTH, most_output_shift
from weft.tmodel.scales import HIGHEST, LOWEST, TensorScale

MOST_SHIFT = 42
"""The finest step, as a power of two, of a factor on load."""

NEIGHBOURS = np.array([[0], [-1], [1]])
"""Offsets from the nearest bias that are tried, as one may round a half to the other byte."""


class Limits(NamedTuple):
    """The limits of a machine: ``room``, the magnitude of a sum at most; ``multiplier_width``, bits of a multiplier."""

    room: int
    multiplier_width: int


def choose_scales(layers: Sequence[Layer], graph: Graph, calibration: Calibration, quantization: Quantization,
                  arch: Arch) -> AffineParams:
    """Return the parameters of all tensors and layers of an INT8 machine.

    Every Var keeps the scale that ``quantization`` has for it; others get one from the range that ``calibration`` saw.
    ``arch``: the machine, for its accumulators, multipliers and activation tables."""
    limits = Limits(min(MOST_SUM, 1 << arch.accumulator_bits - 1), arch.multiplier_width)
    scales = var_scales(layers, graph.constants, calibration.ranges, quantization.tensors)
    tables = {layer.output.name: _table(layer.name, layer.function, calibration.ranges[layer.function.source],
                                        scales[layer.argument.root], scales[layer.value.root], graph.opset)
              for layer in layers if layer.function is not None}
    means = {} if quantization.tensors else calibration.means
    most = MOST_STEPS if quantization.tensors else MOST_WEIGHT
    made = tuple(_layer_scales(layer, graph.constants, scales, means, most, limits) for layer in layers)
    if quantization.tensors:
        made = tuple(_with_loss(layer, own, graph.constants) for layer, own in zip(layers, made, strict=True))
    if arch.activation_tables:
        made = with_activation_tables(layers, made, tables, arch.activation_tables)
    return AffineParams(scales, made, tables)


# -- layers ------------------------------------------------------------------------------------------------------------
def _layer_scales(layer: Layer, constants: Mapping[str, np.ndarray], scales: Mapping[str, TensorScale],
                  means: Mapping[str, np.ndarray], most: int, limits: Limits) -> LayerAffineParams:
    """Return the parameters of one layer.

    ``means`` of the tensors that convolutions read: what rounding the weights adds to a channel on average is taken off
    its bias. Weights may have up to ``most`` steps, ``limits`` are the machine's."""
    channels, rounding = layer.output.channels, layer.rounding
    if not isinstance(layer.core, Convolution):
        enters, leaves = _behind_bytes(layer, [var.root for var in layer.inputs], constants, scales, limits)
        return LayerAffineParams(0, np.ones(channels), enters, leaves)
    made = scales[layer.first.root]
    zero, own, first = _of_convolution(layer.core, constants, scales, means, made, most, limits)
    if rounding is None:
        assert len(layer.outputs) == 1
        return LayerAffineParams(zero, own, (), (first,))
    entering = [rounding.tensor.root, *(add.input.root for add in layer.adds)]
    enters, leaves = _behind_bytes(layer, entering, constants, scales, limits)
    return LayerAffineParams(zero, own, enters, (first, *leaves), rounded=True)


def _of_convolution(core: Convolution, constants: Mapping[str, np.ndarray], scales: Mapping[str, TensorScale],
                    means: Mapping[str, np.ndarray], out: TensorScale, most: int,
                    limits: Limits) -> tuple[int, np.ndarray, OutputQuantization]:
    """Return a convolution's activation zero point, the scales of its weights, and its requantization to ``out``."""
    weights, bias = constants[core.weights].astype(np.float64), constants[core.bias].astype(np.float64)
    source, flat = scales[core.input.root], weights.reshape(len(weights), -1)
    # A channel without weights is one byte everywhere: where it is nearly a half, rounding it twice would move it.
    bias = np.where(flat.any(1), bias, np.rint(bias.astype(np.float32) / np.float32(out.scale)) * out.scale)
    own = weight_scales(flat, bias, source.scale, out.scale, most, limits.room)
    wide = limits.multiplier_width > MULTIPLIER_WIDTH
    if wide:
        own = single_precision_scales(constants[core.weights].reshape(len(weights), -1), own)
    if core.input.name in means:
        errors = rounded_weights(weights, own) * own[:, None, None, None] - weights
        bias = bias - added_on_average(errors * taps_seen(core), core.group, means[core.input.name])
    counts = np.count_nonzero(flat, axis=1)
    if counts.max() == 1 and (wide or counts.min() == 1):
        own, leaving = _of_one_weight(flat.sum(1), bias, own, source, out, limits.multiplier_width)
    else:
        leaving = _requantization_with_bias(own, bias, source, out, limits.multiplier_width)
    return source.zero, own, OutputQuantization(*leaving, out.zero)


def _behind_bytes(layer: Layer, entering: Sequence[str], constants: Mapping[str, np.ndarray],
                  scales: Mapping[str, TensorScale],
                  limits: Limits) -> tuple[tuple[InputQuantization, ...], tuple[OutputQuantization, ...]]:
    """Return how the Vars ``entering`` are rescaled on load, and how their sum is requantized for each output.

    Max pools, and tables on loaded bytes, leave bytes unchanged; but a pool alone goes from scale to scale."""
    if layer.factors is not None:
        return _by_channel(layer, layer.factors, scales, limits.room)
    if layer.only_pools:
        return (InputQuantization(0, 1),), (
            _rescaled(layer, scales[layer.loaded.root], scales[layer.output.root], limits.multiplier_width),)
    alone = layer.translation is not None and not isinstance(layer.core, Convolution)
    if layer.pool is not None or layer.lookup is not None or alone:
        return (InputQuantization(0, 1),), tuple(unchanged_bytes(layer.output.channels) for _ in layer.saves)
    held = [scales[root] for root in entering]
    offsets = [np.abs(bias / weights).max() for weights, bias in (_scaling(save, constants) for save in layer.saves)]
    factors, step = _factors([entry.scale for entry in held], max(offsets), limits.room)
    enters = tuple(InputQuantization(entry.zero, factor) for entry, factor in zip(held, factors, strict=True))
    return enters, tuple(_requantization_of_sum(save, constants, step, scales[save.var.root], limits.multiplier_width)
                         for save in layer.saves)


def _rescaled(layer: Layer, source: TensorScale, out: TensorScale, bits: int) -> OutputQuantization:
    """Return the requantization of a layer's bytes at scale ``source`` to scale ``out``.

    ``bits``: of a multiplier."""
    channels = layer.output.channels
    if source == out:
        return unchanged_bytes(channels)
    return OutputQuantization(*_requantization(np.full(channels, source.scale / out.scale), bits),
                              np.full(channels, -source.zero), out.zero)


def _by_channel(layer: Layer, factors: Var, scales: Mapping[str, TensorScale],
                room: int) -> tuple[tuple[InputQuantization, ...], tuple[OutputQuantization, ...]]:
    """Return the rescaling and the requantization of a product with a computed number for each channel.

    The ratio of the scales is the factor on load, as large as the accumulators have room for. The multipliers come from
    the tensor ``factors``, so there are none here."""
    source, out = scales[layer.core.input.root], scales[layer.output.root]
    ratio, nothing = source.scale * scales[factors.root].scale / out.scale, np.zeros(0, np.int64)
    most = (room - 1) // STEPS
    shift = min(max(math.floor(math.log2(most / ratio)), 0), MOST_SHIFT)
    enter = InputQuantization(source.zero, min(max(round(ratio * 2.0 ** shift), 1), most))
    return (enter,), (OutputQuantization(shift, nothing, nothing, out.zero),)


def _requantization_of_sum(save: Save, constants: Mapping[str, np.ndarray], step: float,
                           out: TensorScale, bits: int) -> OutputQuantization:
    """Return how a sum in steps of ``step`` (a real number) is requantized to the saved tensor.

    ``bits``: of a multiplier."""
    weights, bias = (np.broadcast_to(values, save.var.channels) for values in _scaling(save, constants))
    if save.scale is None:
        return OutputQuantization(*_requantization(weights * step / out.scale, bits), np.zeros(len(bias), np.int64),
                                  out.zero)
    return OutputQuantization(*_requantization_with_bias(weights, bias, TensorScale(step, 0), out, bits), out.zero)


def _scaling(save: Save, constants: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the factor and the addend of a saved tensor, in real numbers: each [channels] or [1]."""
    if save.scale is None:
        return np.ones(1), np.zeros(1)
    weights, bias = (constants[name].astype(np.float64).reshape(-1) for name in (save.scale.weights, save.scale.bias))
    return weights, bias


def _requantization(ratios: np.ndarray, bits: int) -> tuple[int, np.ndarray]:
    """Return (shift, multipliers) such that multipliers / 2**shift come nearest to ``ratios``.

    A ratio is the accumulator's step over the output's, for each channel. A multiplier has ``bits`` bits."""
    largest = float(ratios.max())
    shift = min(max(bits - 1 - math.floor(math.log2(largest)), 0), most_output_shift(bits))
    if round(largest * 2.0 ** shift) >= 1 << bits:
        shift = max(shift - 1, 0)
    multipliers = np.rint(ratios * 2.0 ** shift).astype(np.int64)
    return shift, np.minimum(multipliers, (1 << bits) - 1)


def _requantization_with_bias(own: np.ndarray, bias: np.ndarray, source: TensorScale,
                              out: TensorScale, bits: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return (shift, multipliers, biases) of a convolution whose weights have the scales ``own``.

    ``bits``: of a multiplier."""
    shift, multipliers = _requantization(source.scale * own / out.scale, bits)
    multipliers = np.maximum(multipliers, 1)
    # In steps of the rounded multiplier: a channel of small weights has few bits of it, and may have a large bias.
    biases = np.rint(bias / out.scale * 2.0 ** shift / multipliers).astype(np.int64)
    return shift, multipliers, np.clip(biases, -MOST_SUM, MOST_SUM)


def _of_one_weight(factors: np.ndarray, bias: np.ndarray, own: np.ndarray, source: TensorScale,
                   out: TensorScale, bits: int) -> tuple[np.ndarray, tuple[int, np.ndarray, np.ndarray]]:
    """Return the weight scales and requantization of a layer whose channels have one weight each, or none.

    Each channel is then a function of a byte, often with halves among its results (x + 3 in steps of 6 / 255). Finer
    weights and neighbouring biases are tried. Those win with which most bytes become what single precision makes of
    them; the real 0, which is read most often, counts first. ``bits``: of a multiplier."""
    _, first, channels = np.unique(np.stack([factors, bias, own]), axis=1, return_index=True, return_inverse=True)
    factors, bias, own = factors[first], bias[first], own[first]
    numbers = np.arange(LOWEST, HIGHEST + 1) - source.zero
    reals = numbers.astype(np.float32) * np.float32(source.scale) * factors[:, None].astype(np.float32)
    wanted = out.quantize(reals + bias[:, None].astype(np.float32)) - out.zero
    counts = np.where(numbers == 0, len(numbers), 1)

    def tried(scales: np.ndarray) -> tuple[np.ndarray, tuple[int, np.ndarray, np.ndarray], bool]:
        """Return how many bytes of each channel are off, and the requantization, and whether its biases fit."""
        shift, multipliers, nearest = _requantization_with_bias(scales, bias, source, out, bits)
        biases = nearest + NEIGHBOURS
        sums = np.rint(factors / scales).astype(np.int64)[:, None] * numbers + biases[..., None]
        made = np.clip(round_half_even(sums * multipliers[:, None], shift), LOWEST - out.zero, HIGHEST - out.zero)
        off = (made != wanted) @ counts
        leaving = shift, multipliers, biases[off.argmin(0), np.arange(len(first))]
        return off.min(0), leaving, bool(np.abs(biases).max() <= MOST_BIAS)

    best, fewest = (own, _requantization_with_bias(own, bias, source, out, bits)), len(factors) * counts.sum()
    least, mixed = np.full(len(first), np.inf), own
    for scales in (own, *(np.where(factors, np.abs(factors) / steps, own) for steps in range(1, MOST_WEIGHT + 1))):
        off, leaving, fits = tried(scales)
        if off.sum() < fewest and fits:
            best, fewest = (scales, leaving), off.sum()
        least, mixed = np.minimum(off, least), np.where(off <= least, scales, mixed)
        if not fewest:
            break
    if fewest and bits > MULTIPLIER_WIDTH:  # steps of their own cost channels bits of the multiplier
        off, leaving, fits = tried(mixed)
        best = (mixed, leaving) if off.sum() < fewest and fits else best
    scales, (shift, multipliers, biases) = best
    return scales[channels], (shift, multipliers[channels], biases[channels])


def _factors(scales: Sequence[float], offset: float = 0.0, room: int = MOST_SUM) -> tuple[list[int], float]:
    """Return a whole factor for each scale, and the real number of one step of their sum.

    Factors are as large as ``room`` allows when ``offset`` is added; among these, their ratios come nearest to the
    scales'."""
    if len(scales) == 1:
        return [1], scales[0]
    ratios = np.array(scales) / max(scales)
    most = max(2, int(room / (STEPS * len(scales) + offset / max(scales))))
    largest = 1 << (most.bit_length() - 1)
    candidates = np.arange(largest, largest // 2, -1)
    factors = np.rint(candidates[:, None] * ratios)
    errors = np.abs(factors / candidates[:, None] - ratios).max(1)
    best = int(errors.argmin())
    return factors[best].astype(int).tolist(), max(scales) / float(candidates[best])


# -- weights -----------------------------------------------------------------------------------------------------------
def _with_loss(layer: Layer, own: LayerAffineParams, constants: Mapping[str, np.ndarray]) -> LayerAffineParams:
    """Return a layer's parameters with a note of weights that are inexact or exceed the machine's."""
    if not isinstance(layer.core, Convolution):
        return own
    weights = constants[layer.core.weights].astype(np.float64)
    weights = weights.reshape(len(weights), -1)
    return dataclasses.replace(own, again=rounded_again(weights, own.weight_scales),
                               beyond=beyond_one(weights, own.weight_scales))


# -- functions ---------------------------------------------------------------------------------------------------------
def _table(layer: str, lookup: Lookup | Translate, seen: Range, source: TensorScale, output: TensorScale,
           opset: int) -> tuple[int, ...]:
    """Return 256 output bytes of the function ``lookup``, for the input bytes from -128 to 127 in this order.

    ``source`` and ``output`` are the scales of both tensors. An infinite value saturates. Where the function has no
    value, the argument is first moved into the domain that the operator has for the range ``seen`` in calibration. For
    Log this domain is the range itself. Raise CompileError, which names ``layer``, if a value is still no number."""
    arguments = source.dequantize(np.arange(LOWEST, HIGHEST + 1))
    function = function_of(lookup, opset)
    values = function(arguments)
    domain = value_table(lookup.function, dict(lookup.attributes)).domain
    if domain is not None:
        values = np.where(np.isnan(values), function(np.clip(arguments, *domain(seen.low, seen.high))), values)
    if np.isnan(values).any():
        raise refuse(f"node {layer!r}, a function by lookup table, range of its input",
                     f"{arguments.min():.6g}..{arguments.max():.6g}", "a range in which it is a number",
                     "calibrate with inputs that keep it there")
    return tuple(output.quantize(values).tolist())
