"""A scale and a zero point for every Var, from ranges and from what the file says.

Vars that copy each other's bytes are a group, which has one scale; one that negates another's has the same steps. What
LoadScale reads has the steps of what it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from weft.tmodel.scales import HIGHEST, LOWEST, FactorScale, TensorScale

from weft.compiler.layers.hir import Convolution, Layer, Load, Minimum, Relu
from weft.compiler.quantize.calibrate import Range
from weft.compiler.quantize.scales import MOST_STEPS

STEPS = MOST_STEPS
"""The largest difference of two bytes."""


def tensor_scale(low: float, high: float, limit: float = math.inf) -> TensorScale:
    """The scale that holds low..high and 0; where that is nothing, one that goes no further than ``limit``."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / STEPS))
    if not scale > np.finfo(np.float32).tiny:
        return TensorScale(1.0, HIGHEST - int(min(limit, HIGHEST)))
    return TensorScale(scale, int(np.clip(np.rint(LOWEST - low / scale), LOWEST, HIGHEST)))


def var_scales(layers: Sequence[Layer], constants: Mapping[str, np.ndarray], ranges: Mapping[str, Range],
               given: Mapping[str, TensorScale]) -> dict[str, TensorScale]:
    """By root of a Var. ``given``: scales of the network's file, by tensor."""
    groups = _Groups(layers, ranges, given)
    for source, target, must in _copied(layers, constants):
        if must or groups.fit(source, target):
            groups.join(source, target)
    scales = groups.scales()
    for layer in layers:
        if layer.factors is not None:
            maker = next(other for other in layers if layer.factors.name in {var.name for var in other.outputs})
            scales[layer.factors.root] = FactorScale.of(scales[maker.argument.root].scale)
    alone = groups.alone()
    for layer in layers:  # in order, for one may read what another made
        if layer.first.name in alone and _only(layer, constants, -1, Relu):
            read, positive = scales[layer.core.input.root], isinstance(layer.operations[1], Relu)
            scales[layer.first.name] = read._replace(zero=LOWEST) if positive else read.mirrored
    return scales


class _Groups:
    """Roots of Vars that share a scale, by the first of each group. ``limits``: where results of a root end."""

    def __init__(self, layers: Sequence[Layer], ranges: Mapping[str, Range], given: Mapping[str, TensorScale]) -> None:
        held = [var for layer in layers for var in layer.vars]
        self._ranges = ranges
        self._leader = {var.root: var.root for var in held}
        self._members = {root: [root] for root in self._leader}
        self._given: dict[str, TensorScale] = {}
        for var in held:
            if var.name in given:
                self._given.setdefault(var.root, given[var.name])
        self._limits = {layer.output.root: operation.value for layer in layers for operation in layer.operations
                        if isinstance(operation, Minimum)}

    def join(self, source: str, target: str) -> None:
        """Makes the groups of two roots one, but where the file gives them two scales."""
        first, second = self._leader[source], self._leader[target]
        fixed = {self._given[entry] for entry in (first, second) if entry in self._given}
        if first == second or len(fixed) == 2:
            return
        self._leader |= dict.fromkeys(self._members[second], first)
        self._members[first] += self._members.pop(second)
        self._given |= dict.fromkeys((first, second), fixed.pop()) if fixed else {}

    def fit(self, source: str, target: str) -> bool:
        """Whether the scale that both groups would have is not too narrow for either, and ends where results are
        limited."""
        leaders = self._leader[source], self._leader[target]
        names = [name for leader in dict.fromkeys(leaders) for name in self._members[leader]]
        fixed = [self._given[leader] for leader in leaders if leader in self._given]
        both = fixed[0] if fixed else self._of_ranges(names)
        others = [name for leader in leaders if leader not in self._given for name in self._members[leader]]
        return (all(both.holds(self._ranges[name].low, self._ranges[name].high) for name in others)
                and all(both.high <= self._limits[name] + both.step for name in names if name in self._limits))

    def scales(self) -> dict[str, TensorScale]:
        """Of every root."""
        return {name: self._given.get(leader, own)
                for leader, names in self._members.items() for own in [self._of_ranges(names)] for name in names}

    def alone(self) -> set[str]:
        """Roots that share their scale with no other and that the file has none for."""
        return {leader for leader, names in self._members.items() if names == [leader] and leader not in self._given}

    def _of_ranges(self, names: Sequence[str]) -> TensorScale:
        return tensor_scale(min(self._ranges[name].low for name in names),
                            max(self._ranges[name].high for name in names),
                            min(self._limits.get(name, math.inf) for name in names))


def _copied(layers: Sequence[Layer], constants: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, bool]]:
    """Pairs of Vars of which the second has no other numbers than the first, and whether it must have its scale:
    maxima, which come before what may. Those of a function that is not saved have the scale that its table has."""
    plain = [layer for layer in layers if isinstance(layer.core, Load) and len(layer.operations) == 2]
    copies = [layer for layer in layers if _only(layer, constants, 1)]
    for layer in layers:
        if layer.pool is not None:
            pooled = layer.outputs[0] if layer.lookup else layer.loaded
            yield pooled.root, layer.output.root, True
    for layer in (*plain, *copies):
        yield layer.core.input.root, layer.first.root, False


def _only(layer: Layer, constants: Mapping[str, np.ndarray], factor: int, *then: type) -> bool:
    """Whether each result of its core is one of its inputs times ``factor``; ``then`` may follow."""
    last = layer.translation or layer.rounding or layer.operations[-1]
    between = layer.operations[1:layer.operations.index(last)]
    if not isinstance(layer.core, Convolution) or not all(isinstance(entry, then) for entry in between):
        return False
    weights = constants[layer.core.weights].reshape(len(constants[layer.core.weights]), -1)
    return bool(((weights != 0).sum(1) == 1).all() and (weights.sum(1) == factor).all()
                and not constants[layer.core.bias].any())
