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


class Followed(NamedTuple):
    """``shares`` by layer number: the boxes [cores] that a schedule says.

    ``merged``: layers of the schedule that are computed within another one; ``rounded``: boxes whose channels were
    moved to the next channel tile."""

    shares: dict[int, tuple[Box | None, ...]]
    merged: tuple[str, ...]
    rounded: int


def follow(layers: Sequence[Layer], assigned: Sequence[AssignedLayer], arch: Arch) -> Followed:
    """Return the shares of all layers that a schedule has. Layers of ours that it has not are left out.

    A layer of the schedule is known by its name, that of a node or of what the layer saves. What no name finds is taken
    in its order, by the shape of the output. Raise CompileError for a layer with weights that none of ours is, and for
    boxes that a core cannot compute as one."""
    found = _by_name(layers, assigned)
    _by_shape(layers, assigned, found)
    for entry in assigned:
        if entry.weighted and entry not in found.values() and not _is_within(entry, layers):
            raise refuse(f"schedule, layer {entry.name!r}", f"an ofmap of {list(entry.size)}",
                         "the name or the shape of a layer of the network", WAY_OUT)
    shares, rounded = {}, 0
    for number, entry in found.items():
        boxes, moved = _boxes(entry, layers[number], arch)
        shares[number], rounded = boxes, rounded + moved
    taken = {entry.name for entry in found.values()}
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


def _by_name(layers: Sequence[Layer], assigned: Sequence[AssignedLayer]) -> dict[int, AssignedLayer]:
    """Return the layers of the schedule by the numbers of ours that have a name in common, and the output's shape."""
    found: dict[int, AssignedLayer] = {}
    for number, layer in enumerate(layers):
        alike = [entry for entry in assigned if entry.name in _names(layer) and entry.size == _size(layer)]
        alike = [entry for entry in alike if entry not in found.values()]
        if alike:
            found[number] = next((entry for entry in alike if entry.name == layer.output.name), alike[0])
    return found


def _by_shape(layers: Sequence[Layer], assigned: Sequence[AssignedLayer], found: dict[int, AssignedLayer]) -> None:
    """Add those that no name finds: of each shape the next of the schedule, with weights if ours has some."""
    named = {name for layer in layers for name in _names(layer)}
    left = [entry for entry in assigned if entry not in found.values() and entry.name not in named]
    for number, layer in enumerate(layers):
        if number in found:
            continue
        entry = next((entry for entry in left if entry.size == _size(layer)
                      and (entry.weighted or not layer.macs or layer.pool is not None)), None)
        if entry is not None:
            found[number] = entry
            left.remove(entry)


def _boxes(entry: AssignedLayer, layer: Layer, arch: Arch) -> tuple[tuple[Box | None, ...], int]:
    """Return the boxes [cores] of a layer of the schedule, and how many had their channels moved."""
    whole = whole_box(layer, arch)
    cores: list[list[Box]] = [[] for _ in range(arch.cores)]
    rounded = 0
    for core, channels, rows, columns in entry.boxes:
        if core >= arch.cores:
            raise _refused(entry, core, "a core of a larger mesh", f"cores 0..{arch.cores - 1}")
        tiles = _tile(channels[0], whole, layer, arch), _tile(channels[1], whole, layer, arch)
        rounded += any(end % arch.array_size and end != layer.output.channels for end in channels)
        if tiles[0] < tiles[1]:
            cores[core].append(Box(tiles, rows, columns))
    found = tuple(_joined(entry, core, boxes) for core, boxes in enumerate(cores))
    if sum(box.vectors for box in found if box is not None) != whole.vectors:
        raise _refused(entry, 0, "boxes that are not the whole ofmap", f"boxes of all of {list(entry.size)}")
    return found, rounded


def _tile(channel: int, whole: Box, layer: Layer, arch: Arch) -> int:
    """Return the channel tile nearest to a cut before ``channel``."""
    return whole.tiles[1] if channel == layer.output.channels else (channel + arch.array_size // 2) // arch.array_size


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
