# SPDX-License-Identifier: Apache-2.0
"""Emission of the LoadWeights and MatMuls of a layer's steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from weft.compiler import lir
from weft.compiler.layers.taps import Pass, Steps, lines, rows
from weft.compiler.lir import ACCUMULATORS, LOCAL, Address, Settings
from weft.compiler.quantize.weights import OutputBlock, WeightTile
from weft.compiler.scheduler.load import Prepared
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


class Corners(NamedTuple):
    """Two views that MatMuls join: input tile 0 would begin at ``near``, each ``pitch`` behind the one before.

    The output channel tile begins at ``far``; ``walks`` are those between views of these pixels."""

    source: View
    result: View
    near: int
    pitch: int
    far: int
    walks: Walks

    def near_of(self, tile: WeightTile) -> int:
        """Return where the input of a weight tile begins."""
        return self.near + tile.input_tile * self.pitch


class Run(NamedTuple):
    """Weight ``tiles`` in a row that share their weights, from vector ``offset`` of the block's on.

    ``first``: they set the results, and others add to them."""

    first: bool
    offset: int
    tiles: list[WeightTile]


class MatMulEmitter:
    """The emitter of the LoadWeights and MatMuls of one layer, whose core has weights.

    ``values``: the Configure registers of its MatMuls but for the taps'. ``preloads``: the accumulators hold residuals
    before the first MatMul, which then adds to them."""

    def __init__(self, shape: LayerShape, values: Settings, preloads: bool) -> None:
        self.shape, self.core, self.arch = shape, shape.layer.core, shape.arch
        self.values, self.preloads = values, preloads
        self.together = self._multiplied(0, 0)  # settings of MatMuls in which all lanes meet
        self.walks: dict[tuple[Size, ...], Walks] = {}  # by pixels of both sides
        self.loaded: tuple[int, bool] | None = None  # what the array has: offset of weights, and whether with a bias
        self.runs: dict[tuple[int, tuple[int, int], tuple[int, int]], list[Run]] = {}  # by output, inputs, taps

    def operations(self, prepared: Prepared, output: int, result: View) -> Iterator[lir.Operation]:
        """Yield a step's LoadWeights and MatMuls for one output channel tile."""
        step, block = prepared.step, self.shape.consts.blocks[output]
        local = prepared.pieces[output] - block.piece(step.inputs, step.taps)[0]
        starts = block.starts(step.inputs, step.taps)
        if starts and not block.carries_bias:
            yield from self._spread_bias(block, local, output, result)
        corners = self._corners(prepared.input_tile, output, result)
        for first, offset, alike in self._runs(output, step.inputs, step.taps):
            near, far, streams = self._streams(alike, corners)
            biased = first and block.biased
            content = offset, biased
            if streams and content != self.loaded:
                yield lir.LoadWeight(Address(LOCAL, local + offset - biased), alike[0].rows + biased, not biased)
                self.loaded = content
            accumulates = self.preloads or not first
            for walk, settings in streams:
                yield lir.MatMul(Address(LOCAL, near + walk.near), Address(ACCUMULATORS, far + walk.far), walk.size,
                                 settings, accumulates, walk.near_stride, walk.far_stride, walk.rows, walk.near_pitch,
                                 walk.far_pitch)

    def _runs(self, output: int, inputs: tuple[int, int], taps: tuple[int, int]) -> list[Run]:
        """Return the runs of weight tiles of an output channel tile for some input channel tiles and taps."""
        key = output, inputs, taps
        if key not in self.runs:
            block = self.shape.consts.blocks[output]
            tiles = block.chosen(inputs, taps)
            starting = [block.starts(inputs, taps) and block.carries_bias, *[False] * len(tiles)]
            self.runs[key] = [Run(first, offset, [tile for tile, _ in run]) for (offset, first), run in
                              itertools.groupby(zip(tiles, starting, strict=False),
                                                lambda entry: (entry[0].offset, entry[1]))]
        return self.runs[key]

    def _corners(self, source: View, output: int, result: View) -> Corners:
        """Return where the channel tiles of the MatMuls between two views begin, and the walks between such views."""
        boxes = result.box.rows, result.box.columns, source.box.rows, source.box.columns
        return Corners(source, result, source.base - source.box.tiles[0] * source.tile_pitch, source.tile_pitch,
                       result.base + (output - result.box.tiles[0]) * result.tile_pitch,
                       self.walks.setdefault(boxes, {}))

    def _streams(self, alike: Sequence[WeightTile], corners: Corners) -> tuple[int, int, list[Streamed]]:
        """Return the MatMuls of weight tiles that share their weights: bases in both memories, and walks from there.

        Taps that continue each other are one walk."""
        if len(alike) == 1:
            return corners.near_of(alike[0]), corners.far, self._tap_spans(alike[0], corners)
        streams = [Streamed(walk._replace(near=corners.near_of(tile) + walk.near, far=corners.far + walk.far), settings)
                   for tile in alike for walk, settings in self._tap_spans(tile, corners)]
        return 0, 0, streams if alike[0].taps else self._joined(stream.walk for stream in streams)

    def _joined(self, walks: Iterable[PairedWalk]) -> list[Streamed]:
        """Return walks in which all lanes meet, those that continue each other as one."""
        return [Streamed(walk, self.together) for walk in repeated(walks)]

    def _spread_bias(self, block: OutputBlock, local: int, output: int, result: View) -> Iterator[lir.Operation]:
        """Yield the MatMuls that set all pixels to the bias, or to zero, before the first tap.

        They are needed if no tap reaches every pixel."""
        if block.biased:
            yield lir.LoadWeight(Address(LOCAL, local + block.bias), 1)
            self.loaded = None
        corner = result.address(output, result.box.rows[0], result.box.columns[0])
        # A size field need not count beyond the smaller of both memories.
        for low, high in groups(result.box.pixels, self.arch.local_depth):
            yield lir.MatMul(None, Address(ACCUMULATORS, corner + low), high - low, self.together,
                             self.preloads)

    def _tap_spans(self, tile: WeightTile, corners: Corners) -> list[Streamed]:
        """Return the walks of a weight tile's MatMuls from base 0: input in local memory, output in accumulators.

        A weight tile is one tap of the kernel, or the taps of a depthwise pass."""
        key = tile.tap, tile.taps, tile.kernel_rows
        found = corners.walks.get(key)
        if found is None:
            both = replace(corners.source, base=0), replace(corners.result, base=0)
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
