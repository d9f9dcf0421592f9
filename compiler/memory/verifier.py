"""Checks the memory map: nothing lies outside a memory, no two objects that live at the same time overlap, and what a
layer uses has a place while it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.compiler.errors import Fault
from weft.compiler.layers.hir import Layer
from weft.compiler.memory.places import Allocation


def verify_allocations(places: Iterable[Allocation], depth: int, memory: str) -> None:
    """Raises Fault when a place leaves the memory or two live places share a vector."""
    known: list[Allocation] = []
    for place in places:
        if place.base < 0 or place.base + place.size > depth:
            raise Fault(f"{memory}: {place} lies outside 0..{depth - 1}")
        clash = next((other for other in known if other.overlaps(place)), None)
        if clash is not None:
            raise Fault(f"{memory}: {place} overlaps {clash}")
        known.append(place)


def verify_live_ranges(layers: Sequence[Layer], places: Mapping[str, Allocation]) -> None:
    """Raises Fault when a layer uses a Var that has no place then. ``places``: those in DRAM0 and local memory."""
    for number, layer in enumerate(layers):
        for var in (*layer.inputs, *layer.outputs):
            place = places.get(var.root)
            if place is None or not place.meets(number, number):
                raise Fault(f"layer {number}, {layer.name}: {var.root!r} has no place while it runs, but {place}")
