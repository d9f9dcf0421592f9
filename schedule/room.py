# SPDX-License-Identifier: Apache-2.0
"""Where tensors lie in a core's local memory, which is its L2 buffer: addresses and sizes in bytes."""

from __future__ import annotations

from weft.compiler.layers.var import Var
from weft.compiler.memory.allocation import Kept
from weft.compiler.memory.plan import MemoryPlan
from weft.hw.contract.arch import Arch
from weft.schedule.boxes import Box

Span = tuple[int, int]
"""A first address and a size, in bytes."""


class Room:
    """The local memory of one core, by its memory ``plan``."""

    def __init__(self, plan: MemoryPlan, arch: Arch) -> None:
        self.plan, self.depth = plan, arch.local_depth
        self.lanes, self.vector_bytes = arch.array_size, arch.vector_bytes

    def bytes_of(self, box: Box) -> int:
        """Return what a box of a tensor takes where it lies densely; it begins with a channel tile."""
        _, channels, rows, columns = box.sizes
        return -(-channels // self.lanes) * rows * columns * self.vector_bytes

    def span(self, var: Var, box: Box, layer: int) -> Span:
        """Return where a box of a Var lies: pinned, or from the beginning of its ring of a layer's scratch."""
        if var.root not in self.plan.residents:
            return self.rings(layer)[var.name][0], self.bytes_of(box)
        place = self.plan.residents[var.root]
        kept = place.kept or Kept(0, 0, 0, var.tile_pixels)
        tiles = box.lower[1] // self.lanes, box.upper[1] // self.lanes + 1
        base = place.base + (var.first_tile + tiles[0] - kept.first_tile) * kept.pixels
        if var.height * var.width == var.tile_pixels:
            return base * self.vector_bytes, (tiles[1] - tiles[0]) * kept.pixels * self.vector_bytes
        offset = var.part.offset if var.part else 0
        return (base + max(offset - kept.first_pixel, 0)) * self.vector_bytes, self.bytes_of(box)

    def rings(self, layer: int) -> dict[str, Span]:
        """Return the rings of a layer's scratch by what streams through, and that of pinned tensors."""
        shape, plan = self.plan.shapes[layer], self.plan.plans[layer]
        own, tiling, need = shape.layer, plan.tiling, plan.need
        streamed = [var.name for var in {var.name: var for var in own.inputs[1:]}.values()
                    if var.root not in self.plan.residents and var.name != own.core.input.name]
        sizes = {own.core.input.name: need.input_tile * tiling.buffers, "": need.weights * tiling.weight_slots}
        sizes |= {name: (need.residual or need.scales or need.weights) * tiling.buffers // len(streamed)
                  for name in streamed}
        saves = [save.var.name for save in shape.streamed_outputs]
        sizes |= {name: need.output_buffer * tiling.buffers // len(saves) for name in saves}
        found, base = {}, 0
        for name, size in sizes.items():
            if size:
                found[name] = base * self.vector_bytes, size * self.vector_bytes
                base += size
        found["pinned"] = (shape.scratch * self.vector_bytes, (self.depth - shape.scratch) * self.vector_bytes)
        return {name: ring for name, ring in found.items() if ring[1]}
