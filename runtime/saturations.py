# SPDX-License-Identifier: Apache-2.0
"""Explain numbers that saturated: the compiler meant it, ``--ranges`` did, or calibration saw less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from weft.runtime.programs import Batch
from weft.tmodel.manifest import BY_RANGES, TModel


@dataclass(frozen=True)
class Saturated:
    """Counts of numbers ``beyond`` what calibration saw, in these ``images``, and beyond ``narrowed`` ranges."""

    beyond: int = 0
    narrowed: int = 0
    images: tuple[int, ...] = ()


def saturated(model: TModel, batch: Batch, groups: Sequence[Sequence[Mapping[int, int]]], first: int) -> Saturated:
    """Return a batch's saturations: those beyond calibration with their images, and those that ``--ranges`` caused.

    ``groups`` [groups, programs]: counts by instruction. ``first``: the number of the batch's first image."""
    beyond = narrowed = 0
    images = set()
    models = [model.of_core(core) for core in range(max(map(len, groups), default=0))]
    found = ((core, batch.place(group, core, instruction), count) for group, programs in enumerate(groups)
             for core, counts in enumerate(programs) for instruction, count in counts.items())
    for core, (image, number), count in found:
        why = _meant(models[core], number)
        if why is None:
            beyond += count
            images.add(first + image)
        elif why == BY_RANGES:
            narrowed += count
    return Saturated(beyond, narrowed, tuple(sorted(images)))


def _meant(model: TModel, instruction: int) -> object:
    """Return why results of an instruction's layer may saturate; None if they should not."""
    layers = model.instruction_layers
    if layers is None or not 0 <= instruction < len(layers) or not layers[instruction] < len(model.layers):
        return None
    return model.layers[layers[instruction]].get("saturates")


def narrowed(model: TModel) -> bool:
    """Tell whether a program was compiled with ranges narrower than those that calibration saw."""
    return any(row.get("saturates") == BY_RANGES for row in model.layers)


def together(found: Iterable[Saturated | None]) -> Saturated | None:
    """Return all counts as one; None if one of them was not counted."""
    total = Saturated()
    for each in found:
        if each is None:
            return None
        images = tuple(sorted({*total.images, *each.images}))
        total = Saturated(total.beyond + each.beyond, total.narrowed + each.narrowed, images)
    return total
