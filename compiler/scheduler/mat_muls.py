# SPDX-License-Identifier: Apache-2.0
"""Emission of the LoadWeights and MatMuls of a layer's steps."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.compiler.layers.taps import Pass, Steps, lines, rows
from weft.compiler.lir import Settings
from weft.compiler.quantize.weights import OutputBlock, WeightTile
from weft.compiler.scheduler.load import Prepared
from weft.compiler.scheduler.rows import Emission, Emitted, MatMuls, Row
from weft.compiler.scheduler.stages import TileStep
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Axis, PairedWalk, View, groups, repeated, spans
from weft.hw.contract.register_table import tap_registers
from weft.hw.contract.registers import Register
from weft.tmodel.window import Size


class Streamed(NamedTuple):
    """The walk of one MatMul, and the values of its Configure registers."""

    walk: PairedWalk
    settings: Settings


Walks = dict[tuple[Size, int, int], list[Streamed]]
"""Weight tiles, by their taps, -> walks from base 0."""


class Template(NamedTuple):
    """The LoadWeights and MatMuls of an output channel tile in a step, wherever the step's views and weights lie.

    ``rows`` [operations, fields of ``Row``]; offsets of weights count from the bias. ``needs`` is what the array must
    hold for ``without``, the rows without the first LoadWeight: the offset of the weights, and whether with a bias. It
    is None if they cannot do without. If a row ``loads``, ``leaves`` is what the array holds afterwards, None for a
    bias alone."""

    rows: np.ndarray
    without: np.ndarray
    needs: tuple[int, bool] | None
    loads: bool
    leaves: tuple[int, bool] | None


class Corners(NamedTuple):
    """Two views that MatMuls join, ``source`` and ``result``; ``walks`` are those between views of these pixels."""

    source: View
    result: View
    walks: Walks


@dataclass(frozen=True)
class Drafts:
    """The things that an emitter works out once: templates, walks by the pixels of both sides, settings of MatMuls.

    Settings have their numbers in rows. An emitter of the same layer, with other tilings or places of tensors, may go
    on with them."""

    templates: dict[Hashable, Template] = field(default_factory=dict)
    walks: dict[Hashable, Walks] = field(default_factory=dict)
    settings: dict[Settings, int] = field(default_factory=dict)


class MatMulEmitter:
    """The emitter of the LoadWeights and MatMuls of one layer, whose core has weights.

    ``values``: the Configure registers of its MatMuls but for the taps'. ``preloads``: the accumulators hold residuals
    before the first MatMul, which then adds to them. ``drafts``: those of the layer, which grow."""

    def __init__(self, shape: LayerShape, values: Settings, preloads: bool, drafts: Drafts) -> None:
        self.shape, self.core, self.arch = shape, shape.layer.core, shape.arch
        self.values, self.preloads = values, preloads
        self.together = self._multiplied(0, 0)  # settings of MatMuls in which all lanes meet
        self.settings, self.walks, self.templates = drafts.settings, drafts.walks, drafts.templates
        self.alone = True  # no other layer loads weights into the array between two operations
        self.loaded: tuple[int, bool] | None = None  # what the array has: offset of weights, and whether with a bias

    def operations(self, prepared: Prepared, output: int, result: View) -> MatMuls:
        """Return a step's LoadWeights and MatMuls for one output channel tile."""
        step, block, source = prepared.step, self.shape.consts.blocks[output], prepared.input_tile
        bias = block.bias
        alike, first, end = self.shape.tiles.alike_blocks[output - self.shape.box.tiles[0]]
        inputs = max(step.inputs[0], first) - first, min(step.inputs[1], end) - first
        key = alike, inputs, step.taps, *_sides(source, result)
        found = self.templates.get(key)
        if found is None:
            found = self.templates[key] = self._template(prepared, output, result, first)
        rows = found.rows
        if not self.alone:
            self.loaded = None
        if found.needs is not None and self.loaded == (bias + found.needs[0], found.needs[1]):
            rows = found.without
        if found.loads:
            self.loaded = None if found.leaves is None else (bias + found.leaves[0], found.leaves[1])
        near = source.base + (first - source.box.tiles[0]) * source.tile_pitch
        far = result.base + (output - result.box.tiles[0]) * result.tile_pitch
        return MatMuls(rows, prepared.weights[output] + bias, near, far)

    def emission(self, emitted: Sequence[Emitted]) -> Emission:
        """Return what is emitted of the layer, with the rows of this emitter among it."""
        return Emission(emitted, [*self.settings])

    def _template(self, prepared: Prepared, output: int, result: View, first: int) -> Template:
        """Return the template of an output channel tile, whose input channel tiles are counted from ``first`` on."""
        step, block, source = prepared.step, self.shape.consts.blocks[output], prepared.input_tile
        corners = Corners(source, result, self.walks.setdefault(_sides(source, result), {}))
        starts = block.starts(step.inputs, step.taps)
        rows = [*self._spread_bias(block, result)] if starts and not block.carries_bias else []
        loaded: tuple[int, bool] | None = None
        needs, place = None, 0
        for setting, offset, alike in _runs(block, step, starts):
            streams = self._streams(alike, corners, first)
            content = offset - block.bias, setting and block.biased
            if streams and content != loaded:
                if loaded is None and not any(row.loads for row in rows):
                    needs, place = content, len(rows)
                rows.append(Row(True, True, content[0] - content[1], 0, alike[0].rows + content[1], not content[1]))
                loaded = content
            for walk, settings in streams:
                rows.append(Row(False, True, walk.near, walk.far, walk.size, self.preloads or not setting,
                                self.settings.setdefault(settings, len(self.settings)), *walk[3:]))
        made = np.array(rows, np.int64).reshape(-1, len(Row._fields))
        return Template(made, made if needs is None else np.delete(made, place, 0), needs, bool(made[:, 0].any()),
                        loaded)

    def _streams(self, alike: Sequence[WeightTile], corners: Corners, first: int) -> list[Streamed]:
        """Return the MatMuls of weight tiles that share their weights.

        Both sides count from where the channel tiles begin, input channel tile ``first`` and the output's own. Taps
        that continue each other are one walk."""
        pitch = corners.source.tile_pitch
        streams = [Streamed(walk._replace(near=(tile.input_tile - first) * pitch + walk.near), settings)
                   for tile in alike for walk, settings in self._tap_spans(tile, corners)]
        return streams if alike[0].taps or len(alike) == 1 else self._joined(stream.walk for stream in streams)

    def _joined(self, walks: Iterable[PairedWalk]) -> list[Streamed]:
        """Return walks in which all lanes meet, those that continue each other as one."""
        return [Streamed(walk, self.together) for walk in repeated(walks)]

    def _spread_bias(self, block: OutputBlock, result: View) -> Iterator[Row]:
        """Yield the rows that set all pixels to the bias, or to zero, before the first tap.

        They are needed if no tap reaches every pixel."""
        if block.biased:
            yield Row(True, True, 0, 0, 1, False)
        number = self.settings.setdefault(self.together, len(self.settings))
        # A size field need not count beyond the smaller of both memories.
        for low, high in groups(result.box.pixels, self.arch.local_depth):
            yield Row(False, False, 0, low, high - low, self.preloads, number)

    def _tap_spans(self, tile: WeightTile, corners: Corners) -> list[Streamed]:
        """Return the walks of a weight tile's MatMuls from base 0: input in local memory, output in accumulators.

        A weight tile is one tap of the kernel, or the taps of a depthwise pass."""
        key = tile.tap, tile.taps, tile.kernel_rows
        found = corners.walks.get(key)
        if found is None:
            both = corners.source._replace(base=0), corners.result._replace(base=0)
            found = corners.walks[key] = ([*self._pass_spans(Pass(*key), *both)] if tile.taps else
                                          self._joined(self._first_spans(tile.tap, *both)))
        return found

    def _first_spans(self, tap: Size, source: View, result: View) -> Iterator[PairedWalk]:
        """Yield the walks of a tap, from the first input channel tile to the first output channel tile.

        Pixels for which the tap falls into padding are left out."""
        core, box = self.core, result.box
        window, size = core.window, core.input.size
        rows, columns = (window.outputs(axis, tap[axis], *span, size[axis])
                         for axis, span in enumerate((box.rows, box.columns)))
        if rows[0] == rows[1] or columns[0] == columns[1]:
            return
        row, column = (low * window.strides[axis] - window.pads[axis] + tap[axis] * window.dilations[axis]
                       for axis, low in enumerate((rows[0], columns[0])))
        near = source.address(source.box.tiles[0], row, column)
        far = result.address(box.tiles[0], rows[0], columns[0])
        axes = [Axis(rows[1] - rows[0], window.strides[0] * source.pitch, result.pitch),
                Axis(columns[1] - columns[0], window.strides[1] * source.step, 1)]
        for span in spans(axes, self.arch):
            yield span._replace(near=near + span.near, far=far + span.far)

    def _pass_spans(self, part: Pass, source: View, result: View) -> Iterator[Streamed]:
        """Yield the walks of a depthwise pass for the first channel tile, each with its registers.

        There is one for each result that the step of others skips, and for each group of rows whose kernel rows meet
        the image alike. Beyond the ends of its rows a pass meets zeros."""
        core, box, taps = self.core, result.box, self.arch.row_taps
        window, steps = core.window, Steps.of(core.window)
        for met in lines(window, part, box.rows, core.input.size[0]):
            top = (met.low * window.strides[0] - window.pads[0]
                   + (part.tap[0] + met.rows[0]) * window.dilations[0])
            pitch = window.dilations[0] * source.pitch if len(met.rows) > 1 else 0
            for row in rows(window, part, box.columns, source.box.columns):
                walk = PairedWalk(source.address(source.box.tiles[0], top, row.near),
                                  result.address(box.tiles[0], met.low, row.far), row.size, steps.inputs * source.step,
                                  steps.results, met.high - met.low, window.strides[0] * source.pitch, result.pitch)
                yield Streamed(walk, self._multiplied(taps - part.taps + row.origin + 1, row.dropped, met.mask, pitch))

    def _multiplied(self, origin: int, dropped: int, kernel_rows: int = 1, pitch: int = 0) -> Settings:
        """Return the Configure registers of a MatMul; ``kernel_rows`` is a mask, as TAP_ROWS has it."""
        values = {Register.TAP_ORIGIN: origin, Register.TAP_DROPPED: dropped, Register.TAP_ROWS: kernel_rows,
                  Register.TAP_PITCH: pitch}
        taps = tuple((register, values[register]) for register in tap_registers(self.arch))
        return Settings((*self.values, *taps))


def _sides(source: View, result: View) -> tuple[Hashable, ...]:
    """Return what the walks between two views depend on, wherever these lie."""
    return result.box.rows, result.box.columns, result.walk, source.box.rows, source.box.columns, source.walk


def _runs(block: OutputBlock, step: TileStep, starts: bool) -> Iterator[tuple[bool, int, list[WeightTile]]]:
    """Yield the runs of a step's weight tiles that share their weights: the offset of these, and the tiles.

    Before them: whether they set the results, to which others add. ``starts``: the step begins with the bias."""
    tiles = block.chosen(step.inputs, step.taps)
    setting = [starts and block.carries_bias, *[False] * len(tiles)]
    for (offset, first), run in itertools.groupby(zip(tiles, setting, strict=False),
                                                  lambda entry: (entry[0].offset, entry[1])):
        yield first, offset, [tile for tile, _ in run]
