# SPDX-License-Identifier: Apache-2.0
"""Check the memory plan: every object fits its memory, live objects do not overlap, and used Vars have a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.compiler.errors import Fault
from weft.compiler.layers.hir import Layer
from weft.compiler.memory.allocation import Allocation


def verify_allocations(places: Iterable[Allocation], depth: int, memory: str) -> None:
    """Raise Fault if an allocation exceeds the memory or two live allocations share a vector."""
    known: list[Allocation] = []
    for place in places:
        if place.base < 0 or place.base + place.size > depth:
            raise Fault(f"{memory}: {place} lies outside 0..{depth - 1}")
        clash = next((other for other in known if other.overlaps(place)), None)
        if clash is not None:
            raise Fault(f"{memory}: {place} overlaps {clash}")
        known.append(place)


def verify_live_ranges(layers: Sequence[Layer], places: Mapping[str, Allocation]) -> None:
    """Raise Fault if a layer uses a Var that has no allocation then.

    ``places``: the allocations in DRAM0 and local memory, by name."""
    for number, layer in enumerate(layers):
        for var in (*layer.inputs, *layer.outputs):
            place = places.get(var.root)
            if place is None or not place.meets(number, number):
                raise Fault(f"layer {number}, {layer.name}: {var.root!r} has no place while it runs, but {place}")
