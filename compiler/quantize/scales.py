# SPDX-License-Identifier: Apache-2.0
"""Affine parameters: the scales and zero points of an INT8 machine.

A Var holds bytes (``TensorScale``). A layer's accumulators hold whole numbers of a scale of their own for each channel.
They are requantized as ``round_half_even((accumulator + bias) * multiplier / 2**shift) + zero``, saturated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Minimum
from weft.compiler.lir import NO_SETTINGS, Settings
from weft.compiler.quantize.numbers import LayerIntegers, LayerQuantization, Numbers
from weft.hw.contract.arch import Arch
from weft.hw.contract.registers import Register
from weft.tmodel.scales import HIGHEST, LOWEST, TensorScale

MOST_WEIGHT = 127
"""The largest weight of the machine: weights are symmetric, -127..127, and their zero point is 0."""

MOST_STEPS = HIGHEST - LOWEST
"""The most steps of a quantised file's weight: a byte less its zero point.

What exceeds MOST_WEIGHT is added by a second weight of the same tap, and a third."""


class InputQuantization(NamedTuple):
    """The rescaling of a byte that is loaded into the accumulators: (byte - ``zero``) * ``factor``."""

    zero: int
    factor: int


class OutputQuantization(NamedTuple):
    """The requantization of accumulators to bytes.

    ``shift`` as OUTPUT_SHIFT. Of each channel: ``multipliers``, int64 of ``multiplier_width`` bits, and ``biases``,
    int64 that fit 32 signed bits. ``zero``: the zero point of the result."""

    shift: int
    multipliers: np.ndarray
    biases: np.ndarray
    zero: int

    @property
    def settings(self) -> Settings:
        """The values of the Configure registers for this requantization."""
        return Settings.of(output_shift=self.shift, output_zero_point=self.zero)

    def text(self) -> str:
        """Return the shift, zero point, multipliers and biases as text."""
        return (f"  leaves: shift {self.shift} zero {self.zero}\n    multipliers {self.multipliers.tolist()}\n"
                f"    biases {self.biases.tolist()}")


class RoundedAgain(NamedTuple):
    """Weights of a quantised file that the machine cannot hold exactly.

    ``inexact`` of the ``total`` weights in ``channels`` output channels; ``decibels``: their signal to the error."""

    inexact: int
    total: int
    channels: int
    decibels: float

    def text(self) -> str:
        """Return the warning for the user, with ways out."""
        return (f"{self.inexact} of {self.total} weights in {self.channels} output channels are rounded again, "
                f"{self.decibels:.1f} dB, for sums or biases in their steps do not fit the accumulators; quantise with "
                "ranges that such channels do not widen, or take an architecture of 16 bits (data_type FP16BP8)")


class Beyond(NamedTuple):
    """Weights of a quantised file that exceed the machine's range.

    ``number`` of them in ``channels`` output channels, of up to ``steps`` steps."""

    number: int
    channels: int
    steps: int

    def text(self) -> str:
        """Return the warning for the user, with a way out."""
        return (f"{self.number} weights in {self.channels} output channels have up to {self.steps} steps, the machine "
                f"has {MOST_WEIGHT}: exact, by further passes over their weight tiles; to save these, quantise weights "
                f"symmetrically in -{MOST_WEIGHT}..{MOST_WEIGHT} (onnxruntime: WeightSymmetric or reduce_range)")


@dataclass(frozen=True)
class LayerAffineParams:
    """The quantization parameters of one layer on an INT8 machine.

    ``activation_zero_point``: what MatMul subtracts from every activation. ``weight_scales``: real numbers, one for
    each output channel; all 1 without weights. ``rescales``: of a load core or of the rounded tensor, then of every
    Add, in order. ``requantizations``: of the rounded tensor if ``rounded``, then of every output. Max pools and
    lookups load and save bytes unchanged (:func:`unchanged_bytes`): factor 1, zero 0. ``again``: weights of a quantised
    file that are not exact; ``beyond``: weights that need further passes; None for nothing. ``activation_table``: the
    table of the first requantization, 0 for none, None on a machine without such tables. ``loads_table``: the layer
    loads it first."""

    activation_zero_point: int
    weight_scales: np.ndarray
    rescales: tuple[InputQuantization, ...]
    requantizations: tuple[OutputQuantization, ...]
    rounded: bool = False
    again: RoundedAgain | None = None
    beyond: Beyond | None = None
    activation_table: int | None = None
    loads_table: bool = False

    @property
    def registers(self) -> LayerQuantization:
        """The register values of the layer's operations."""
        enters = [Settings.of(input_zero_point=enter.zero, input_multiplier=enter.factor) for enter in self.rescales]
        leaves = [leave.settings for leave in self.requantizations]
        if self.activation_table is not None:
            leaves = [Settings((*way, (Register.ACTIVATION_TABLE, self.activation_table if number == 0 else 0)))
                      for number, way in enumerate(leaves)]
        saved = tuple(leaves[self.rounded:])
        return LayerQuantization(mat_mul=Settings.of(activation_zero_point=self.activation_zero_point),
                    core=enters[0] if enters else NO_SETTINGS, adds=tuple(enters[1:]), requantizations=saved,
                    simd=(NO_SETTINGS,) * len(saved), operand=NO_SETTINGS, rounding=leaves[0],
                    load_table=(self.activation_table or 0) * self.loads_table)

    def weights(self, values: np.ndarray) -> np.ndarray:
        """Return a layer's weights [out, ...], given as real numbers, as whole numbers of steps."""
        return rounded_weights(values, self.weight_scales)


def with_activation_tables(layers: Sequence[Layer], made: Sequence[LayerAffineParams],
                           tables: Mapping[str, tuple[int, ...]],
                           count: int) -> tuple[LayerAffineParams, ...]:
    """Return the layers' parameters ``made``, each with the activation table of its first requantization.

    Layers with a Translate get one of ``count`` tables, others 0. A table that already holds the content is not loaded
    again; else the layer loads the one that was used least recently."""
    held: dict[tuple[int, ...], int] = {}  # by content, that needed least recently first
    found = []
    for layer, own in zip(layers, made, strict=True):
        table, loads = 0, False
        if layer.translation is not None:
            content = tables[layer.output.name]
            loads = content not in held
            if not loads:
                table = held.pop(content)
            elif len(held) < count:
                table = len(held) + 1
            else:
                table = held.pop(next(iter(held)))
            held[content] = table
        found.append(replace(own, activation_table=table, loads_table=loads))
    return tuple(found)


def unchanged_bytes(channels: int) -> OutputQuantization:
    """Return the requantization that leaves the bytes of ``channels`` channels unchanged."""
    return OutputQuantization(0, np.ones(channels, np.int64), np.zeros(channels, np.int64), 0)


def rounded_weights(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return weights [out, ...] as whole steps of ``scales`` [out], int64 in -255..255."""
    steps = values.astype(np.float64) / scales.reshape(-1, *(1,) * (values.ndim - 1))
    return np.clip(np.rint(steps), -MOST_STEPS, MOST_STEPS).astype(np.int64)


def weight_parts(weights: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays of the machine's weights whose sum is ``weights``: a single array if no weight exceeds 127."""
    while True:
        part = np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT)
        yield part
        weights = weights - part
        if not weights.any():
            return


@dataclass(frozen=True)
class AffineParams(Numbers):
    """The quantization parameters of a network on an INT8 machine.

    ``vars``: scale by root of a Var; ``layers``: in order. ``tables``: by the tensor that a function makes, its value
    for every byte from -128 to 127. ``limited``: Vars that keep the scale of the network's file, so that they may
    saturate."""

    vars: Mapping[str, TensorScale]
    layers: tuple[LayerAffineParams, ...]
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    limited: frozenset[str] = frozenset()
    measured: str = "scales"

    def check_limits(self, layers: Sequence[Layer]) -> None:
        """Raise CompileError if a layer's upper limit is not the end of its output's scale."""
        for layer in layers:
            if isinstance(layer.elementwise, Minimum):
                limit = layer.elementwise.value
                end, step = self.vars[layer.output.root].high, self.vars[layer.output.root].scale
                if end > limit + step:
                    raise refuse(f"node {layer.name!r}, upper limit {limit:g}", f"a scale that goes to {end:.6g}, for "
                                 "the result lies in one tensor with others", "a scale that ends at the limit",
                                 "choose an architecture with data_type FP16BP8, or put an operator between them")

    def tensor(self, root: str, arch: Arch) -> TensorScale:
        """Return the scale and zero point of the Var ``root``."""
        return self.vars[root]

    def reordered(self, order: Sequence[int], layers: Sequence[Layer], arch: Arch) -> AffineParams:
        """Return the same scales for the layers at the places ``order``, and who loads which activation table."""
        made = tuple(self.layers[number] for number in order)
        if arch.activation_tables:
            made = with_activation_tables(layers, made, self.tables, arch.activation_tables)
        return replace(self, layers=made)

    def registers(self, number: int) -> LayerQuantization:
        """Return the register values of the operations of layer ``number``."""
        return self.layers[number].registers

    def integers(self, number: int, layer: Layer, constants: Mapping[str, np.ndarray], arch: Arch) -> LayerIntegers:
        """Return the integer constants of layer ``number``, which is ``layer``."""
        own = self.layers[number]
        weights = own.weights(constants[layer.core.weights]) if isinstance(layer.core, Convolution) else None
        values = (self.tables[layer.output.name],) if layer.function else ()
        tables = (tuple(range(LOWEST, HIGHEST + 1)), *values) if layer.lookup else values
        if layer.factors is not None:
            return LayerIntegers(weights, None)
        return LayerIntegers(weights, np.stack([leave.biases for leave in own.requantizations]), layer.core.group,
                             tables=tables,
                             multipliers=np.stack([leave.multipliers for leave in own.requantizations]))

    def row(self, number: int, layer: Layer) -> dict[str, Any]:
        """Return the scales and shift of layer ``number`` for the compiler's report."""
        own, source, output = self.layers[number], self.vars[layer.core.input.root], self.vars[layer.output.root]
        return {"scales": {"input": list(source), "output": list(output)}, "shift": own.requantizations[-1].shift}

    def warnings(self, layers: Sequence[Layer]) -> list[str]:
        """Return a warning for each layer whose weights are inexact or exceed the machine's."""
        told = [(layer.name, own.again and own.again.text(), own.beyond and own.beyond.text())
                for layer, own in zip(layers, self.layers, strict=True)]
        return [f"layer {name}: {text}" for name, *texts in told for text in texts if text]

    def text(self) -> str:
        """Return all scales, zero points and requantizations as text."""
        lines = [f"var {name}: scale {entry.scale:.9g} zero {entry.zero}" for name, entry in self.vars.items()]
        for number, layer in enumerate(self.layers):
            rescales = " ".join(f"({entry.zero}, {entry.factor})" for entry in layer.rescales)
            lines.append(f"layer {number}: activation_zero_point {layer.activation_zero_point} "
                         f"rescales {rescales or 'none'}")
            lines += [leave.text() for leave in layer.requantizations]
        return "\n".join(lines) + "\n"
