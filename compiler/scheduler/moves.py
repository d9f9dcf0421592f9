"""Copies between local memory and the others, as the fewest moves."""

from __future__ import annotations

from collections.abc import Iterator

from weft.compiler import lir
from weft.compiler.layers.hir import Var
from weft.compiler.lir import Address, Space
from weft.compiler.tiling.spans import Box, View, between, spans
from weft.hw.contract.arch import Arch


def whole(var: Var, base: int, arch: Arch) -> View:
    """All of a Var whose root lies at ``base``."""
    box = Box((0, var.tiles(arch.array_size)), (0, var.height), (0, var.width))
    if var.part is None:
        return View(base, box)
    part = var.part
    return View(base + part.tile * part.pixels + part.offset, box, (part.pixels, part.pitch, part.step))


def move(to_local: bool, box: Box, local: View, far: View, space: Space, arch: Arch, shift: int | None = None, *,
         accumulate: bool = False, relu: bool = False) -> Iterator[lir.DataMove]:
    """``box`` between two views that both hold it; ``shift`` enters or leaves accumulators."""
    corner = box.tiles[0], box.rows[0], box.columns[0]
    near_base, far_base = local.address(*corner), far.address(*corner)
    for span in spans(between(box, local, far), arch):
        yield lir.DataMove(to_local, Address(Space.LOCAL, near_base + span.near), Address(space, far_base + span.far),
                           span.size, shift, accumulate, relu, span.near_stride, span.far_stride, span.rows,
                           span.near_pitch, span.far_pitch)
