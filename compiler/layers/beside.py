# SPDX-License-Identifier: Apache-2.0
"""Layers beside others: one that the array has nothing to do for runs together with an independent one on the array.

Such layers load tensors into the accumulators, where the SIMD unit works on them: pools, products of two tensors,
lookup tables. On fixed-point machines long sums and copies of pixels count too. Here is which layer goes beside which;
the order of layers is changed for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Gate, LeakyRelu, Load, Lookup, Minimum, Multiply, Slopes, SteepSlopes
from weft.compiler.layers.var import Var
from weft.hw.contract.arch import Arch

SIMD_INSTRUCTIONS = {Multiply: 2, Lookup: 3, Minimum: 1, LeakyRelu: 3, Gate: 4, Slopes: 3, SteepSlopes: 4}
"""Instructions that the SIMD unit runs for each vector of a result, besides a pool's."""

LONG = 1000
"""The cycles from which a layer is long: it runs beside another even without work for the SIMD unit, and layers on the
array run earlier for it."""

LEAST = 6000
"""The cycles of the SIMD unit from which a layer runs in stripes with those before it (``memory/stripes.py``).

Shorter ones gain less than further loads of weights cost."""

REACH = 16
"""The number of layers behind a long one that are looked at for one that could run earlier."""


def simd_instructions(layer: Layer) -> int:
    """Return the instructions that the SIMD unit runs for each vector of a layer's output, one a cycle."""
    stages = (*layer.adds, layer.lookup, layer.elementwise)
    pooled = layer.pool.operations if layer.pool else 0
    return sum(SIMD_INSTRUCTIONS.get(type(stage), 0) for stage in stages) + pooled


def simd_cycles(layer: Layer, lanes: int) -> int:
    """Return the cycles of the SIMD unit for a layer."""
    return simd_instructions(layer) * layer.output.vectors(lanes)


def _busy_cycles(layer: Layer, lanes: int) -> int:
    """Return the cycles of a layer that loads tensors: of the SIMD unit, or of the moves into the accumulators."""
    return max(simd_cycles(layer, lanes), (1 + len(layer.adds)) * layer.output.vectors(lanes))


def beside(layers: Sequence[Layer], arch: Arch) -> dict[int, int]:
    """Return number -> the number of the layer on the array that it may run together with.

    Such layers stand right behind that layer, one or more, and run one after another."""
    found: dict[int, int] = {}
    for number in range(1, len(layers)):
        leader = found.get(number - 1, number - 1)
        if (_on_array(layers[leader]) and _beside_array(layers[number], arch)
                and not _meet(layers[leader], layers[number])):
            found[number] = leader
    return found


def arranged(layers: Layers, arch: Arch) -> Layers:
    """Return the layers with each that may run beside another right behind it: one that keeps the array busy longest.

    What runs beside a layer already counts against it. The last layers come first, so that room is made for those that
    they read from. Where there is no such layer on the array, one from further behind may come before."""
    order = _Order(layers)
    _move_copies(order, layers, arch)
    left = {layer.output.name: layer.macs / arch.array_size**2 for layer in layers}

    def longest(others: Sequence[Layer]) -> Layer | None:
        return max(others, key=lambda other: left[other.output.name], default=None)

    for layer in reversed(layers):
        if not _beside_array(layer, arch):
            continue
        partner = longest([other for other in order.between(layer) if _on_array(other) and not _meet(other, layer)])
        if partner is None and (partner := longest(_later(order, layer, arch))) is not None:
            order.move(partner, order.places[id(layer)])
        if partner is not None:
            place, now = order.places[id(partner)] + 1, order.places[id(layer)]
            order.move(layer, place - (now < place))
            left[partner.output.name] -= _busy_cycles(layer, arch.array_size)
    return Layers(order.layers)


def _later(order: _Order, layer: Layer, arch: Arch) -> list[Layer]:
    """Return layers on the array behind a long ``layer`` that could run in its place, and need no more memory there.

    Nothing that they read is made later. What they are the last to read is no smaller than what they make. There are
    none for a layer that may run in stripes with the one before (``memory/stripes.py``): it works for the SIMD unit on
    one tensor."""
    place, found = order.places[id(layer)], []
    if _busy_cycles(layer, arch.array_size) < LONG or simd_cycles(layer, arch.array_size) and not layer.adds:
        return []
    for number, other in enumerate(order.layers[place + 1:place + 1 + REACH], place + 1):
        if _on_array(other) and other.macs and order.first_place(other) <= place:
            kept = {root for reader in order.layers[number + 1:] for root in _roots(reader.inputs)}
            freed = sum(_size(var) for var in dict.fromkeys(other.inputs) if var.root not in kept)
            if _size(other.output) <= freed:
                found.append(other)
    return found


def _size(var: Var) -> int:
    """Return the number of a Var's scalars."""
    return var.channels * var.height * var.width


def _move_copies(order: _Order, layers: Sequence[Layer], arch: Arch) -> None:
    """Move copies on the array that only pools read to where what they read allows it.

    So a pool finds layers on the array to run beside, though a copy puts its input together."""
    readers = defaultdict(list)
    for layer in layers:
        for root in _roots(layer.inputs):
            readers[root].append(layer)
    for layer in layers:
        reading = [reader for root in _roots(layer.outputs) for reader in readers[root]]
        if _on_array(layer) and not layer.macs and reading and all(reader.pool and _beside_array(reader, arch)
                                                                   for reader in reading):
            # Parts of its input may be made later.
            order.move(layer, min(order.first_place(layer), order.places[id(layer)]))


class _Order:
    """Layers in an order that changes, with the place of each by its identity.

    It knows which layers make and which touch each Var, so that no question asks all layers."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = [*layers]
        self.places = {id(layer): place for place, layer in enumerate(layers)}
        self.makers: dict[str, list[Layer]] = defaultdict(list)
        self.touching: dict[str, list[Layer]] = defaultdict(list)
        for layer in layers:
            made = _roots(layer.outputs)
            for root in made:
                self.makers[root].append(layer)
            for root in made | _roots(layer.inputs):
                self.touching[root].append(layer)

    def move(self, layer: Layer, place: int) -> None:
        """Move a layer to ``place``, counted without it."""
        now = self.places[id(layer)]
        self.layers.insert(place, self.layers.pop(now))
        for number in range(min(now, place), max(now, place) + 1):
            self.places[id(self.layers[number])] = number

    def first_place(self, layer: Layer) -> int:
        """Return the first place behind the layers that make what ``layer`` reads."""
        return max(self._others(self.makers, layer.inputs, layer), default=-1) + 1

    def between(self, layer: Layer) -> Sequence[Layer]:
        """Return the layers behind the last one that makes what ``layer`` reads, up to the first that reads its result.

        Layers that write the Var of its result count as readers."""
        end = min(self._others(self.touching, layer.outputs, layer), default=len(self.layers))
        return self.layers[self.first_place(layer):end]

    def _others(self, by_root: Mapping[str, Sequence[Layer]], variables: Sequence, layer: Layer) -> list[int]:
        """Return the places of other layers than ``layer`` that ``by_root`` names for these Vars."""
        return [self.places[id(other)] for root in _roots(variables) for other in by_root[root] if other is not layer]


def _roots(variables: Sequence) -> set[str]:
    """Return the names of the Vars that have the memory of ``variables``."""
    return {var.root for var in variables}


def _meet(first: Layer, second: Layer) -> bool:
    """Tell whether a layer writes what the other one reads or writes."""
    return bool(_roots(first.outputs) & (_roots(second.inputs) | _roots(second.outputs))
                or _roots(second.outputs) & _roots(first.inputs))


def _on_array(layer: Layer) -> bool:
    """Tell whether the array works for a layer."""
    return not isinstance(layer.core, Load)


def _beside_array(layer: Layer, arch: Arch) -> bool:
    """Tell whether a layer has work for the SIMD unit, or many moves, and none for the array.

    On INT8 machines only max pools count, which no other stage follows."""
    if _on_array(layer) or arch.scheme.per_lane and not layer.only_pools:
        return False
    return simd_cycles(layer, arch.array_size) > 0 or _busy_cycles(layer, arch.array_size) >= LONG
