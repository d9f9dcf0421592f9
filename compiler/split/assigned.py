# SPDX-License-Identifier: Apache-2.0
"""Shares that an outside schedule chose: which of its layers are ours, and which boxes that gives each core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.compiler.cores import AssignedLayer
from weft.compiler.errors import CompileError, refuse
from weft.compiler.layers.hir import Layer
from weft.compiler.tiling.share import whole_box
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch

WAY_OUT = "give the schedule of just this network, or leave --schedule out"


class Match(NamedTuple):
    """A layer of the schedule that one of ours is, or has a part of: that from channel ``first`` on."""

    entry: AssignedLayer
    first: int = 0


class Followed(NamedTuple):
    """``shares`` by layer number: the boxes [cores] that a schedule says.

    ``merged``: layers of the schedule that are computed within another one; ``rounded``: boxes whose ends were moved to
    the nearest channel tile, or to the nearest of fewer pixels."""

    shares: dict[int, tuple[Box | None, ...]]
    merged: tuple[str, ...]
    rounded: int


def follow(layers: Sequence[Layer], assigned: Sequence[AssignedLayer], arch: Arch) -> Followed:
    """Return the shares of all layers that a schedule has. Layers of ours that it has not are left out.

    A layer of the schedule is known by its name, that of a node or of what the layer saves. One of ours may have a part
    of its channels, or fewer pixels: those that a pool leaves of them, or that somebody reads. What no name finds is
    taken in its order, by the shape of the output. Raise CompileError for a layer with weights that none of ours is,
    and for boxes that a core cannot compute as one."""
    found = _by_name(layers, assigned)
    _by_part(layers, assigned, found)
    _by_shape(layers, assigned, found)
    taken = {match.entry.name for match in found.values()}
    for entry in assigned:
        if entry.weighted and entry.name not in taken and not _is_within(entry, layers):
            raise refuse(f"schedule, layer {entry.name!r}", f"an ofmap of {list(entry.size)}",
                         "the name or the shape of a layer of the network", WAY_OUT)
    shares, rounded = {}, 0
    for number, match in found.items():
        boxes, moved = _boxes(match, layers[number], arch)
        shares[number], rounded = boxes, rounded + moved
    return Followed(shares, tuple(entry.name for entry in assigned if entry.name not in taken), rounded)


def _names(layer: Layer) -> set[str]:
    """Return the names by which a schedule may know a layer: nodes, and tensors that are made."""
    return {layer.name, *layer.name.split("+"), *(var.name for var in layer.made)}


def _size(layer: Layer) -> tuple[int, int, int]:
    """Return channels, rows and columns of a layer's output."""
    return layer.output.channels, *layer.output.size


def _is_within(entry: AssignedLayer, layers: Sequence[Layer]) -> bool:
    """Tell whether a layer of the schedule is a node within one of ours, or has the shape before one's pool."""
    return any(entry.name in _names(layer) or layer.pool is not None
               and entry.size == (layer.output.channels, *layer.core.size) for layer in layers)


def _by_name(layers: Sequence[Layer], assigned: Sequence[AssignedLayer]) -> dict[int, Match]:
    """Return the layers of the schedule by the numbers of ours that have a name in common, and the output's shape."""
    found: dict[int, Match] = {}
    for number, layer in enumerate(layers):
        alike = [entry for entry in assigned if entry.name in _names(layer) and entry.size == _size(layer)]
        alike = [entry for entry in alike if Match(entry) not in found.values()]
        if alike:
            found[number] = Match(next((entry for entry in alike if entry.name == layer.output.name), alike[0]))
    return found


def _by_part(layers: Sequence[Layer], assigned: Sequence[AssignedLayer], found: dict[int, Match]) -> None:
    """Add those of which ours have some pixels, or together the channels: a layer for each input of a joined pool."""
    for number, layer in enumerate(layers):
        if number in found:
            continue
        alike = [entry for entry in assigned if entry.name in _names(layer)]
        thinned = [Match(entry) for entry in alike if entry.size[0] == layer.output.channels
                   and entry.size[1] >= layer.output.height and entry.size[2] >= layer.output.width]
        parts = sorted((other.output for other in layers if other.output.root == layer.output.root),
                       key=lambda var: var.first_tile)
        before = sum(var.channels for var in parts[:parts.index(layer.output)])
        joined = [Match(entry, before) for entry in alike if entry.size[1:] == layer.output.size
                  and entry.size[0] == sum(var.channels for var in parts)]
        if thinned or joined:
            found[number] = [*thinned, *joined][0]


def _by_shape(layers: Sequence[Layer], assigned: Sequence[AssignedLayer], found: dict[int, Match]) -> None:
    """Add those that no name finds: of each shape the next of the schedule, with weights if ours has some."""
    named, taken = {name for layer in layers for name in _names(layer)}, {match.entry for match in found.values()}
    left = [entry for entry in assigned if entry not in taken and entry.name not in named]
    for number, layer in enumerate(layers):
        if number in found:
            continue
        entry = next((entry for entry in left if entry.size == _size(layer)
                      and (entry.weighted or not layer.macs or layer.pool is not None)), None)
        if entry is not None:
            found[number] = Match(entry)
            left.remove(entry)


def _boxes(match: Match, layer: Layer, arch: Arch) -> tuple[tuple[Box | None, ...], int]:
    """Return the boxes [cores] of a layer of the schedule, and how many had an end moved."""
    whole, entry = whole_box(layer, arch), match.entry
    cores: list[list[Box]] = [[] for _ in range(arch.cores)]
    rounded = 0
    for core, *spans in entry.boxes:
        if core >= arch.cores:
            raise _refused(entry, core, "a core of a larger mesh", f"cores 0..{arch.cores - 1}")
        channels = [min(max(end - match.first, 0), layer.output.channels) for end in spans[0]]
        tiles = [whole.tiles[1] if end == layer.output.channels else _nearest(end, arch.array_size) for end in channels]
        axes = [[(end * size, of) for end in span]
                for span, size, of in zip(spans[1:], layer.output.size, entry.size[1:], strict=True)]
        rows, columns = ((_nearest(*low), _nearest(*high)) for low, high in axes)
        box = Box((tiles[0], tiles[1]), rows, columns)
        if channels[0] < channels[1]:
            rounded += any(end % arch.array_size and end != layer.output.channels for end in channels) or any(
                end % of for axis in axes for end, of in axis)
        if box.vectors:
            cores[core].append(box)
    found = tuple(_joined(entry, core, boxes) for core, boxes in enumerate(cores))
    if sum(box.vectors for box in found if box is not None) != whole.vectors:
        raise _refused(entry, 0, "boxes that are not the whole ofmap", f"boxes of all of {list(entry.size)}")
    return found, rounded


def _nearest(position: int, unit: int) -> int:
    """Return how many units are nearest to a position."""
    return (position + unit // 2) // unit


def _joined(entry: AssignedLayer, core: int, boxes: Sequence[Box]) -> Box | None:
    """Return a core's boxes as one, None for none. Raise CompileError if they are no box together."""
    if not boxes:
        return None
    axes = [(min(low for low, _ in spans), max(high for _, high in spans)) for spans in (
        [box.tiles for box in boxes], [box.rows for box in boxes], [box.columns for box in boxes])]
    hull = Box(*axes)
    if hull.vectors != sum(box.vectors for box in boxes):
        raise _refused(entry, core, f"{len(boxes)} workloads that are no box together", "a box of the ofmap a core")
    return hull


def _refused(entry: AssignedLayer, core: int, found: str, allowed: str) -> CompileError:
    return refuse(f"schedule, core {core}, layer {entry.name!r}", found, allowed, WAY_OUT)
