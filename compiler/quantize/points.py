"""Binary points: one for every Var, and per layer for weights, accumulators, and the shifts between them.

A scalar v at point p is the integer v * 2**p. Activations at px and weights at pw meet in the accumulators at
pa = px + pw; a bias or a residual at point q enters with shift pa - q; results leave with shift pa - py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler.layers.hir import Layer, LeakyRelu, MatMul
from weft.compiler.quantize.calibrate import Calibration
from weft.hw.arch import EVERY_STEP, Arch

HEADROOM = 1.25
"""Computed tensors get room for values this much beyond those seen in calibration."""

SUM_HEADROOM = 2.0
"""The accumulators get one bit beyond the largest partial sum seen."""


@dataclass(frozen=True)
class LayerPoints:
    """Points and shifts of one layer. ``core_shift`` is the enter shift of the bias row, or of a load core."""

    weights: int
    bias: int
    accumulators: int
    core_shift: int
    add_shifts: tuple[int, ...]
    leave_shift: int


@dataclass(frozen=True)
class Points:
    """``vars``: tensor -> point; ``layers``: in order."""

    vars: Mapping[str, int]
    layers: tuple[LayerPoints, ...]

    def text(self) -> str:
        lines = [f"var {name}: {point}" for name, point in self.vars.items()]
        return "\n".join(lines + [f"layer {number}: {layer}" for number, layer in enumerate(self.layers)]) + "\n"


def largest_point(magnitude: float, width: int) -> int:
    """The largest point at which ``magnitude`` fits a signed integer of ``width`` bits; 0 fits at width - 1."""
    if magnitude == 0:
        return width - 1
    return math.floor(math.log2(((1 << (width - 1)) - 1) / magnitude))


def choose_points(layers: Sequence[Layer], constants: Mapping[str, np.ndarray], calibration: Calibration, arch: Arch,
                  plain: bool) -> Points:
    """Points from ranges; with ``plain``, or on an ``every_step`` machine, the type's own point everywhere."""
    names = dict.fromkeys(var.name for layer in layers for var in (*layer.inputs, layer.output))
    if plain or arch.mac_rounding == EVERY_STEP:
        return _plain(layers, names, arch)
    return _Chooser(layers, constants, calibration, arch).run(names)


def _plain(layers: Sequence[Layer], names: Mapping[str, None], arch: Arch) -> Points:
    point = arch.number.point
    numbers = [LayerPoints(point, point, 2 * point, point, (point,) * len(layer.adds), point) for layer in layers]
    return Points(dict.fromkeys(names, point), tuple(numbers))


class _Chooser:
    """Starts from the point that each Var's range allows and lowers it where a layer's accumulators cannot follow."""

    def __init__(self, layers: Sequence[Layer], constants: Mapping[str, np.ndarray], calibration: Calibration,
                 arch: Arch) -> None:
        self.layers, self.constants, self.calibration = layers, constants, calibration
        self.width, self.accumulator_width = arch.number.width, arch.accumulator_bits
        self.points: dict[str, int] = {}

    def run(self, names: Mapping[str, None]) -> Points:
        computed = {layer.output.name for layer in self.layers}
        slopes = {layer.output.name: layer.elementwise.slope for layer in self.layers
                  if isinstance(layer.elementwise, LeakyRelu)}
        for name in names:
            seen = self.calibration.ranges[name]
            # The SIMD unit sees negative values before they shrink, at the output's point.
            magnitude = max(seen.high, -seen.low / slopes[name]) if name in slopes else seen.magnitude
            headroom = HEADROOM if name in computed else 1.0
            self.points[name] = largest_point(magnitude * headroom, self.width)
        while True:
            before = dict(self.points)
            numbers = tuple(self._layer(layer) for layer in self.layers)
            if self.points == before:
                return Points(self.points, numbers)

    def _layer(self, layer: Layer) -> LayerPoints:
        core = self._mat_mul if isinstance(layer.core, MatMul) else self._load
        weights, accumulators = core(layer)
        bias = accumulators
        if isinstance(layer.core, MatMul):
            magnitude = float(np.abs(self.constants[layer.core.bias]).max())
            bias = self._within(largest_point(magnitude, self.width), accumulators)
        for var in (*(add.input for add in layer.adds), layer.output):
            self.points[var.name] = self._within(self.points[var.name], accumulators)
        entering = bias if isinstance(layer.core, MatMul) else self.points[layer.core.input.name]
        return LayerPoints(weights, bias, accumulators, accumulators - entering,
                           tuple(accumulators - self.points[add.input.name] for add in layer.adds),
                           accumulators - self.points[layer.output.name])

    def _within(self, point: int, accumulators: int) -> int:
        """A point from which the accumulators' is reached by a shift left that their width allows."""
        return max(min(point, accumulators), accumulators - (self.accumulator_width - 1))

    def _added(self, layer: Layer) -> float:
        return sum(self.calibration.ranges[add.input.name].magnitude for add in layer.adds)

    def _mat_mul(self, layer: Layer) -> tuple[int, int]:
        core = layer.core
        assert isinstance(core, MatMul)
        weights = np.abs(self.constants[core.weights].astype(np.float64))
        activations = self.points[core.input.name]
        seen = (self.calibration.sums[core.weights] + self._added(layer)) * SUM_HEADROOM
        worst = (weights.reshape(len(weights), -1).sum(1) * 2.0 ** (self.width - 1 - activations)
                 + np.abs(self.constants[core.bias])).max() + self._added(layer) * SUM_HEADROOM
        limit = largest_point(min(seen, float(worst)), self.accumulator_width)
        point = min(largest_point(float(weights.max()), self.width), limit - activations)
        return point, activations + point

    def _load(self, layer: Layer) -> tuple[int, int]:
        names = [var.name for var in layer.inputs]
        total = sum(self.calibration.ranges[name].magnitude for name in names) * HEADROOM
        limit = largest_point(total, self.accumulator_width)
        accumulators = min(max(self.points[name] for name in names), limit)
        for name in names:
            self.points[name] = self._within(self.points[name], accumulators)
        return accumulators, accumulators
