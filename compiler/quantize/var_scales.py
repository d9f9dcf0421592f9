# SPDX-License-Identifier: Apache-2.0
"""Choose a scale and a zero point for every Var, from ranges and from the network's file.

Vars that copy each other's bytes form a group with one scale; a Var that negates another one has the same steps. The
factors that LoadScale reads have the steps of the tensor that they are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Load, Minimum
from weft.compiler.quantize.ranges import Range
from weft.compiler.quantize.scales import MOST_STEPS
from weft.tmodel.scales import HIGHEST, LOWEST, FactorScale, TensorScale

STEPS = MOST_STEPS
"""The largest difference of two bytes."""

COARSEST = 2.0
"""The most by which a copy may widen the steps of what it copies, where the layer between can rescale instead."""


def tensor_scale(low: float, high: float, limit: float = math.inf) -> TensorScale:
    """Return the scale and zero point for low..high and 0; for an empty range one that ends at ``limit``."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / STEPS))
    if not scale > np.finfo(np.float32).tiny:
        return TensorScale(1.0, HIGHEST - int(min(limit, HIGHEST)))
    return TensorScale(scale, int(np.clip(np.rint(LOWEST - low / scale), LOWEST, HIGHEST)))


def var_scales(layers: Sequence[Layer], constants: Mapping[str, np.ndarray], ranges: Mapping[str, Range],
               given: Mapping[str, TensorScale]) -> dict[str, TensorScale]:
    """Return the scale of each root Var. ``given``: scales of the network's file, by tensor."""
    groups = _Groups(layers, ranges, given)
    for source, target, must in _copied(layers, constants):
        if must or groups.fit(source, target) and groups.near(source, target):
            groups.join(source, target)
    scales = groups.scales()
    for layer in layers:
        if layer.factors is not None:
            maker = next(other for other in layers if layer.factors.name in {var.name for var in other.outputs})
            scales[layer.factors.root] = FactorScale.of(scales[maker.argument.root].scale)
    alone = groups.alone()
    for layer in layers:  # in order, for one may read what another made
        if layer.first.name in alone and _only(layer, constants, -1, relu=True):
            read, positive = scales[layer.core.input.root], layer.first_relu
            scales[layer.first.name] = read._replace(zero=LOWEST) if positive else read.mirrored
    return scales


class _Groups:
    """Groups of root Vars that share a scale, by the first of each group. ``limits``: upper limits of root Vars."""

    def __init__(self, layers: Sequence[Layer], ranges: Mapping[str, Range], given: Mapping[str, TensorScale]) -> None:
        held = [var for layer in layers for var in layer.vars]
        self._ranges = ranges
        self._leader = {var.root: var.root for var in held}
        self._members = {root: [root] for root in self._leader}
        self._given: dict[str, TensorScale] = {}
        for var in held:
            if var.name in given:
                self._given.setdefault(var.root, given[var.name])
        self._limits = {layer.output.root: layer.elementwise.value for layer in layers
                        if isinstance(layer.elementwise, Minimum)}

    def join(self, source: str, target: str) -> None:
        """Merge the groups of two roots, unless the file gives them two different scales."""
        first, second = self._leader[source], self._leader[target]
        fixed = {self._given[entry] for entry in (first, second) if entry in self._given}
        if first == second or len(fixed) == 2:
            return
        self._leader |= dict.fromkeys(self._members[second], first)
        self._members[first] += self._members.pop(second)
        self._given |= dict.fromkeys((first, second), fixed.pop()) if fixed else {}

    def fit(self, source: str, target: str) -> bool:
        """Tell whether both groups could share a scale: wide enough for both, and ending at results' limits."""
        leaders = self._leader[source], self._leader[target]
        names = [name for leader in dict.fromkeys(leaders) for name in self._members[leader]]
        fixed = [self._given[leader] for leader in leaders if leader in self._given]
        both = fixed[0] if fixed else self._of_ranges(names)
        others = [name for leader in leaders if leader not in self._given for name in self._members[leader]]
        return (all(both.holds(self._ranges[name].low, self._ranges[name].high) for name in others)
                and all(both.high <= self._limits[name] + both.step for name in names if name in self._limits))

    def near(self, source: str, target: str) -> bool:
        """Tell whether one scale for both groups has steps as fine as each needs, or one that the file gives."""
        leaders = self._leader[source], self._leader[target]
        if any(leader in self._given for leader in leaders):
            return True
        both = self._of_ranges([name for leader in leaders for name in self._members[leader]])
        return all(both.scale <= COARSEST * self._of_ranges(self._members[leader]).scale for leader in leaders)

    def scales(self) -> dict[str, TensorScale]:
        """Return the scale of every root Var, by its name; a group of roots has one scale."""
        return {name: self._given.get(leader, own)
                for leader, names in self._members.items() for own in [self._of_ranges(names)] for name in names}

    def alone(self) -> set[str]:
        """Return the roots that share their scale with no other and have none in the file."""
        return {leader for leader, names in self._members.items() if names == [leader] and leader not in self._given}

    def _of_ranges(self, names: Sequence[str]) -> TensorScale:
        """Return the scale that holds the ranges of all tensors in ``names``."""
        return tensor_scale(min(self._ranges[name].low for name in names),
                            max(self._ranges[name].high for name in names),
                            min(self._limits.get(name, math.inf) for name in names))


def _copied(layers: Sequence[Layer], constants: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, bool]]:
    """Yield pairs of Vars whose second has only numbers of the first, and whether it must have the same scale.

    Max pools come first. The output of a pool must, unless its layer only pools what it loads: then it can rescale as
    it saves. For a function whose result is not saved the table decides the scale."""
    plain = [layer for layer in layers if isinstance(layer.core, Load) and layer.is_bare and not layer.first_relu]
    copies = [layer for layer in layers if _only(layer, constants, 1)]
    for layer in layers:
        if layer.pool is not None:
            pooled = layer.outputs[0] if layer.lookup else layer.loaded
            yield pooled.root, layer.output.root, not layer.only_pools
    for layer in (*plain, *copies):
        yield layer.core.input.root, layer.first.root, False


def _only(layer: Layer, constants: Mapping[str, np.ndarray], factor: int, *, relu: bool = False) -> bool:
    """Tell whether each result of a layer's core is one of its inputs times ``factor``, as it is first requantized.

    With ``relu`` a ReLU may be applied there."""
    direct = layer.translation is not None or layer.rounding is not None or layer.is_bare
    if not isinstance(layer.core, Convolution) or not direct or (layer.first_relu and not relu):
        return False
    weights = constants[layer.core.weights].reshape(len(constants[layer.core.weights]), -1)
    return bool(((weights != 0).sum(1) == 1).all() and (weights.sum(1) == factor).all()
                and not constants[layer.core.bias].any())
