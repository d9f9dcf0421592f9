"""What numbers that saturated on the machine mean: the compiler meant it, ``--ranges`` did, or calibration saw less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.tmodel.manifest import TModel

from weft.runtime.programs import Batch

ON_PURPOSE, BY_RANGES = "on purpose", "by ranges"
"""What the row of a layer says of results that saturate: nothing that reads them tells them apart, or a quantised file
says so; or they are beyond the range that ``--ranges`` left of what calibration saw."""


@dataclass(frozen=True)
class Saturated:
    """Numbers ``beyond`` what calibration saw, in these ``images``; and beyond ranges that were ``narrowed``."""

    beyond: int = 0
    narrowed: int = 0
    images: tuple[int, ...] = ()


def saturated(model: TModel, batch: Batch, counts: Mapping[int, int], first: int) -> Saturated:
    """Return what the ``counts`` by instruction of a batch's program mean; ``first`` is the number of its first
    image."""
    beyond = narrowed = 0
    images = set()
    for instruction, count in counts.items():
        image, number = batch.place(instruction)
        why = _meant(model, number)
        if why is None:
            beyond += count
            images.add(first + image)
        elif why == BY_RANGES:
            narrowed += count
    return Saturated(beyond, narrowed, tuple(sorted(images)))


def _meant(model: TModel, instruction: int) -> object:
    """Why results of the layer of an instruction may saturate; None where they should not."""
    layers = model.instruction_layers
    if layers is None or not 0 <= instruction < len(layers) or not layers[instruction] < len(model.layers):
        return None
    return model.layers[layers[instruction]].get("saturates")


def narrowed(model: TModel) -> bool:
    """Whether a program was compiled with ranges narrower than those that calibration saw."""
    return any(row.get("saturates") == BY_RANGES for row in model.layers)


def together(found: Iterable[Saturated | None]) -> Saturated | None:
    """Return all of them as one; None where one was not counted."""
    total = Saturated()
    for each in found:
        if each is None:
            return None
        images = tuple(sorted({*total.images, *each.images}))
        total = Saturated(total.beyond + each.beyond, total.narrowed + each.narrowed, images)
    return total
