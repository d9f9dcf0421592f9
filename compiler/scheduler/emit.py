# SPDX-License-Identifier: Apache-2.0
"""Emission: the steps of one layer as LIR, one after another; interleaving (``interleave.py``) overlaps them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from weft.compiler import lir
from weft.compiler.layers.hir import Abs, LeakyRelu, Load, Save, Var
from weft.compiler.layers.taps import Pass, Steps, lines, rows
from weft.compiler.lir import ACCUMULATORS, LOCAL, Address, Settings
from weft.compiler.memory.places import DramAddress, Resident
from weft.compiler.quantize.consts import OutputBlock, WeightTile
from weft.compiler.quantize.numbers import LayerQuantization
from weft.compiler.scheduler.load import Loader, Prepared, WeightSource
from weft.compiler.scheduler.moves import enlarge, move, transfer, whole
from weft.compiler.scheduler.pool import Buffer, Pool
from weft.compiler.scheduler.simd import emit_elementwise, emit_lookup, emit_multiply, emit_pool
from weft.compiler.scheduler.stages import TileStep, layer_steps
from weft.compiler.tiling.costs import finished_together
from weft.compiler.tiling.search import Plan
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Axis, Box, PairedWalk, View, groups, part_count, repeated, spans
from weft.hw.contract.register_table import tap_registers
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS
from weft.tmodel.window import Size

Operations = Iterator[lir.Operation]

PIECE_VECTORS = 64
"""The vectors, or a row if longer, by which a result is rounded within the layer.

A piece is requantized and loaded back while the next one is requantized. It is short beside a tile and long beside the
cost of a move."""


class Pools(NamedTuple):
    """The free vectors of local memory and accumulators, handed on from layer to layer."""

    local: Pool
    accumulators: Pool


class Exchange(NamedTuple):
    """Boxes of pinned Vars that go from core to core by way of DRAM0 in a layer.

    ``imports`` are loaded before the steps that read them. ``exports``, by the name of a Var that the layer saves, are
    saved with the steps that make them."""

    imports: tuple[tuple[Var, Box], ...]
    exports: Mapping[str, tuple[Box, ...]]


class Streamed(NamedTuple):
    """The walk of one MatMul, and the values of its Configure registers."""

    walk: PairedWalk
    settings: Settings


Walks = dict[tuple[Size, int, int], list[Streamed]]
"""Weight tiles, by their taps, -> walks from base 0."""


class Corners(NamedTuple):
    """Two views that MatMuls join: input tile 0 would begin at ``near``, each ``pitch`` behind the one before.

    The output channel tile begins at ``far``; ``walks`` are those between views of these pixels."""

    strip: View
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


class LayerEmitter:
    """The emitter of one layer's LIR.

    ``homes`` has addresses in the DRAMs and ``residents`` places in local memory, by Var name; ``source`` is where
    Consts come from; ``exchange`` what goes from core to core."""

    def __init__(self, shape: LayerShape, plan: Plan, registers: LayerQuantization, homes: Mapping[str, DramAddress],
                 residents: Mapping[str, Resident], pools: Pools, source: WeightSource,
                 exchange: Exchange | None = None) -> None:
        self.shape, self.layer, self.arch, self.plan, self.registers = shape, shape.layer, shape.arch, plan, registers
        self.homes, self.residents, self.free = homes, residents, pools.accumulators
        self.exchange = exchange or Exchange((), {})
        self.imports = [*self.exchange.imports]
        self.loader = Loader(shape, plan, homes, residents, pools.local, source)
        self.together = self._multiplied(0, 0)  # settings of MatMuls in which all lanes meet
        self.operand = Buffer(pools.accumulators.base, shape.consts.operands)
        self.sloped = isinstance(self.layer.elementwise, LeakyRelu) and not shape.consts.operands  # on output
        self.result = Buffer(0, 0)
        self.loaded: tuple[int, bool] | None = None  # what the array has: offset of weights, and whether with a bias
        self.walks: dict[tuple[Size, ...], Walks] = {}  # by pixels of both sides
        self.runs: dict[tuple[int, tuple[int, int], tuple[int, int]], list[Run]] = {}  # by output, inputs, taps

    def operations(self) -> Operations:
        """Yield the layer's operations from its first load to its last save.

        At the end all that it took from the pools is given back."""
        self.free.hold(self.operand)
        yield from self.loader.operands(self.operand.base, self.registers)
        steps = layer_steps(self.shape, self.plan.tiling)
        for step, ending in zip(steps, self.loader.endings(steps), strict=True):
            prepared = self.loader.prepare(step)
            yield from self.loader.loads
            yield from self._imports(step)
            yield from self._compute(prepared)
            self.loader.release(ending)
        for var, box in self.imports:  # no step needs them, but a later layer may
            yield from self._transfer(True, box, var)
        self.free.release(self.operand)

    def _imports(self, step: TileStep) -> Operations:
        """Yield the loads of what a step is the first to need of pinned Vars that other cores have made.

        What other inputs need too is loaded before the first step."""
        later, roots = [], [var.root for var in self.layer.inputs]
        for var, box in self.imports:
            if roots.count(var.root) > 1 or var != self.layer.core.input or box.meeting(step.strip) is not None:
                yield from self._transfer(True, box, var)
            else:
                later.append((var, box))
        self.imports = later

    def tables(self) -> Operations:
        """Yield the loads of the layer's tables alone, which later layers may find loaded."""
        if self.layer.lookup is not None or self.registers.load_table:
            self.free.hold(self.operand)
            yield from self.loader.operands(self.operand.base, self.registers)
            self.free.release(self.operand)

    def _compute(self, prepared: Prepared) -> Operations:
        """Yield the operations that compute a step, a few output channel tiles at a time.

        Complete tiles are saved at once. With rounding they are saved after the next tiles' rounding, so that the
        requantizer need not wait until they are loaded back."""
        step = prepared.step
        if step.begins and step.first:
            taken = self.free.take(self.plan.need.accumulators)
            assert taken is not None  # nothing but the operand lies there between stages
            self.result = taken
        before: Operations = iter(())
        for tiles in groups(step.region.tiles[1], finished_together(step.core.pixels), step.region.tiles[0]):
            yield from self._make(prepared, tiles)
            if self.layer.rounding is None:
                yield from self._move_out(prepared, tiles)
                continue
            yield from before
            before = self._move_out(prepared, tiles)
        yield from before
        if step.complete and step.last:
            self.free.release(self.result)

    def _place(self, prepared: Prepared, tiles: tuple[int, int], box: Box, first: int) -> View:
        """Return where the pixels of ``box`` of some output channel tiles lie, from offset ``first`` on."""
        before = tiles[0] - prepared.step.region.tiles[0]
        return View(self.result.base + first + before * box.pixels, box.of(tiles))

    def _make(self, prepared: Prepared, tiles: tuple[int, int]) -> Operations:
        """Yield the core's computation for some output channel tiles, with residuals and rounding."""
        step = prepared.step
        result = self._place(prepared, tiles, step.core, 0)
        core = result.box
        if self.loader.preloads and step.begins:
            yield from self._add(prepared, result, core, overwrite=True)
        if self.shape.loads:
            yield from self._load(core, prepared.strip, result)
        else:
            for output in range(*tiles):
                yield from self._mat_muls(prepared, output, result)
        if not step.complete:
            return
        if self.layer.rounding is not None:
            yield from self._round(prepared, result)
        elif self.layer.multiplies:
            factor = self._place(prepared, tiles, step.core, self.plan.need.core)
            yield from move(False, core, prepared.residuals[0], factor, ACCUMULATORS, self.arch,
                            self.registers.adds[0])
            yield from emit_multiply(result, factor, self.registers.simd[0], self.arch)
        elif not self.loader.preloads:
            yield from self._add(prepared, result, core, overwrite=False)

    def _move_out(self, prepared: Prepared, tiles: tuple[int, int]) -> Operations:
        """Yield the SIMD unit's work on complete results, and their saves."""
        step = prepared.step
        if not step.complete:
            return
        result = self._place(prepared, tiles, step.core, 0)
        if self.layer.lookup is not None:
            for piece in by_pieces(result) if self.layer.rounding else [result]:
                yield from emit_lookup(piece, self.registers.simd[0], self.shape.consts.tables, self.arch)
        if self.layer.saves_before_pool:
            yield from self._finish(prepared, result, before_pool=True)
        if self.layer.pool is not None:
            pooled = self._place(prepared, tiles, step.region, self.plan.need.core)
            yield from emit_pool(self.layer.pool, result, pooled, self.registers.simd[-1], self.arch,
                                 continues=not step.first)
            result = pooled
        if step.last:
            yield from self._finish(prepared, result, before_pool=False)

    def _load(self, core: Box, strip: View, result: View) -> Operations:
        """Yield the moves of a load core from an input tile into the accumulators."""
        assert isinstance(self.layer.core, Load)
        if self.layer.core.factors == (1, 1):
            return move(False, core, strip, result, ACCUMULATORS, self.arch, self.registers.core)
        return enlarge(core, self.layer.core.factors, strip, result, self.arch, self.registers.core)

    def _add(self, prepared: Prepared, result: View, box: Box, *, overwrite: bool) -> Operations:
        """Yield the moves that add a ``box`` of the further inputs to the accumulators.

        With ``overwrite`` the first of them replaces what was there."""
        for number, (view, way) in enumerate(zip(prepared.residuals, self.registers.adds, strict=True)):
            yield from move(False, box, view, result, ACCUMULATORS, self.arch, way,
                            accumulate=number > 0 or not overwrite)

    def _round(self, prepared: Prepared, result: View) -> Operations:
        """Yield the moves that round a result: requantize it, load it back, and add the residuals.

        They go piece by piece, so that one is loaded while the next ones are requantized."""
        view = View(prepared.rounded, result.box)

        def move_out(box: Box) -> Operations:
            for piece in pieces(box):
                yield from move(True, piece, view, result, ACCUMULATORS, self.arch, self.registers.rounding,
                                relu=self.layer.first_relu)

        yield from self._scaled(prepared, result.box, 0, move_out)
        for piece in pieces(result.box):
            yield from move(False, piece, view, result, ACCUMULATORS, self.arch, self.registers.core)
            yield from self._add(prepared, result, piece, overwrite=False)

    def _mat_muls(self, prepared: Prepared, output: int, result: View) -> Operations:
        """Yield a step's LoadWeights and MatMuls for one output channel tile."""
        step, block = prepared.step, self.shape.consts.blocks[output]
        local = prepared.pieces[output] - block.piece(step.inputs, step.taps)[0]
        starts = block.starts(step.inputs, step.taps)
        if starts and not block.carries_bias:
            yield from self._spread_bias(block, local, output, result)
        corners = self._corners(prepared.strip, output, result)
        for first, offset, alike in self._runs(output, step.inputs, step.taps):
            near, far, streams = self._streams(alike, corners)
            biased = first and block.biased
            content = offset, biased
            if streams and content != self.loaded:
                yield lir.LoadWeight(Address(LOCAL, local + offset - biased), alike[0].rows + biased, not biased)
                self.loaded = content
            accumulates = self.loader.preloads or not first
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

    def _corners(self, strip: View, output: int, result: View) -> Corners:
        """Return where the channel tiles of the MatMuls between two views begin, and the walks between such views."""
        boxes = result.box.rows, result.box.columns, strip.box.rows, strip.box.columns
        return Corners(strip, result, strip.base - strip.box.tiles[0] * strip.tile_pitch, strip.tile_pitch,
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

    def _spread_bias(self, block: OutputBlock, local: int, output: int, result: View) -> Operations:
        """Yield the MatMuls that set all pixels to the bias, or to zero, before the first tap.

        They are needed if no tap reaches every pixel."""
        if block.biased:
            yield lir.LoadWeight(Address(LOCAL, local + block.bias), 1)
            self.loaded = None
        corner = result.address(output, result.box.rows[0], result.box.columns[0])
        # A size field need not count beyond the smaller of both memories.
        for low, high in groups(result.box.pixels, self.arch.local_depth):
            yield lir.MatMul(None, Address(ACCUMULATORS, corner + low), high - low, self.together,
                             self.loader.preloads)

    def _tap_spans(self, tile: WeightTile, corners: Corners) -> list[Streamed]:
        """Return the walks of a weight tile's MatMuls from base 0: input in local memory, output in accumulators.

        A weight tile is one tap of the kernel, or the taps of a depthwise pass."""
        key = tile.tap, tile.taps, tile.kernel_rows
        found = corners.walks.get(key)
        if found is None:
            both = replace(corners.strip, base=0), replace(corners.result, base=0)
            found = corners.walks[key] = ([*self._pass_spans(Pass(*key), *both)] if tile.taps else
                                          self._joined(self._first_spans(tile.tap, *both)))
        return found

    def _first_spans(self, tap: Size, strip: View, result: View) -> Iterator[PairedWalk]:
        """Yield the walks of a tap, from the first input channel tile to the first output channel tile.

        Pixels for which the tap falls into padding are left out."""
        core, box = self.layer.core, result.box
        window, size = core.window, core.input.size
        rows, columns = (window.outputs(axis, tap[axis], *span, size[axis])
                         for axis, span in enumerate((box.rows, box.columns)))
        if rows[0] == rows[1] or columns[0] == columns[1]:
            return
        row, column = (low * window.strides[axis] - window.pads[axis] + tap[axis] * window.dilations[axis]
                       for axis, low in enumerate((rows[0], columns[0])))
        near = strip.address(strip.box.tiles[0], row, column)
        far = result.address(box.tiles[0], rows[0], columns[0])
        axes = [Axis(rows[1] - rows[0], window.strides[0] * strip.pitch, result.pitch),
                Axis(columns[1] - columns[0], window.strides[1] * strip.step, 1)]
        for span in spans(axes, self.arch):
            yield span._replace(near=near + span.near, far=far + span.far)

    def _pass_spans(self, part: Pass, strip: View, result: View) -> Iterator[Streamed]:
        """Yield the walks of a depthwise pass for the first channel tile, each with its registers.

        There is one for each result that the step of others skips, and for each group of rows whose kernel rows meet
        the image alike. Beyond the ends of its rows a pass meets zeros."""
        core, box, taps = self.layer.core, result.box, self.arch.row_taps
        window, steps = core.window, Steps.of(core.window)
        for met in lines(window, part, box.rows, core.input.size[0]):
            top = (met.low * window.strides[0] - window.pads[0]
                   + (part.tap[0] + met.rows[0]) * window.dilations[0])
            pitch = window.dilations[0] * strip.pitch if len(met.rows) > 1 else 0
            for row in rows(window, part, box.columns, strip.box.columns):
                walk = PairedWalk(strip.address(strip.box.tiles[0], top, row.near),
                                  result.address(box.tiles[0], met.low, row.far), row.size, steps.inputs * strip.step,
                                  steps.results, met.high - met.low, window.strides[0] * strip.pitch, result.pitch)
                yield Streamed(walk, self._multiplied(taps - part.taps + row.origin + 1, row.dropped, met.mask, pitch))

    def _multiplied(self, origin: int, dropped: int, kernel_rows: int = 1, pitch: int = 0) -> Settings:
        """Return the Configure registers of a MatMul; ``kernel_rows`` is a mask, as TAP_ROWS has it."""
        values = {Register.TAP_ORIGIN: origin, Register.TAP_DROPPED: dropped, Register.TAP_ROWS: kernel_rows,
                  Register.TAP_PITCH: pitch}
        taps = tuple((register, values[register]) for register in tap_registers(self.arch))
        return Settings((*self.registers.mat_mul, *taps))

    def _finish(self, prepared: Prepared, result: View, *, before_pool: bool) -> Operations:
        """Yield the saves before or after the max pool.

        Before the first save comes the layer's elementwise operation, once, unless saves do it."""
        if (before_pool == self.layer.saves_before_pool and self.layer.elementwise is not None
                and (self.operand.size or isinstance(self.layer.elementwise, Abs))):
            yield from emit_elementwise(self.layer.elementwise, self.operand.base, result, self.registers.simd[0],
                                        self.arch)
        for number, save in enumerate(self.layer.saves):
            if save.before_pool == before_pool:
                yield from self._save(prepared, result, save, number)

    def _save(self, prepared: Prepared, result: View, save: Save, number: int) -> Operations:
        """Yield the moves that requantize a result into local memory and, unless it is pinned, on to DRAM."""
        var, rounds = save.var, self.layer.rounding is not None
        resident = var.root in self.residents
        view = whole(var, self.residents[var.root], self.arch) if resident else prepared.stagings[var.name]

        def move_out(box: Box) -> Operations:
            for piece in pieces(box) if rounds else [box]:
                yield from move(True, piece, view, result, ACCUMULATORS, self.arch,
                                self.registers.requantizations[number],
                                relu=save.relu or self.sloped)

        yield from self._scaled(prepared, result.box, rounds + number, move_out)
        if not resident:
            yield from transfer(False, result.box, view, var, self.homes[var.root], self.arch)
        for box in self.exchange.exports.get(var.name, ()):
            if (part := box.meeting(result.box)) is not None:
                yield from self._transfer(False, part, var)

    def _transfer(self, to_local: bool, box: Box, var: Var) -> Operations:
        """Yield the moves of a box of a pinned Var from or to its place in DRAM0."""
        view = whole(var, self.residents[var.root], self.arch)
        return transfer(to_local, box, view, var, self.homes[var.root], self.arch)

    @staticmethod
    def _scaled(prepared: Prepared, box: Box, way: int, move_out: Callable[[Box], Operations]) -> Operations:
        """Yield LoadScales and the moves of ``box`` that need them, for the layer's requantization number ``way``.

        Channel tiles that share their scales are moved together."""
        for scales, group in itertools.groupby(range(*box.tiles), prepared.scales.get):
            tiles = [*group]
            if scales is not None:
                yield lir.LoadScale(Address(LOCAL, scales + way * SCALE_VECTORS))
            yield from move_out(box.of((tiles[0], tiles[-1] + 1)))


def by_pieces(view: View) -> Iterator[View]:
    """Yield the pieces of a view, channel tile by channel tile."""
    for tile in range(*view.box.tiles):
        for box in pieces(view.box.of((tile, tile + 1))):
            yield View(view.address(tile, box.rows[0], box.columns[0]), box)


def pieces(box: Box) -> list[Box]:
    """Return a box cut between its rows, so that units can work on different pieces at the same time."""
    row = box.vectors // (box.rows[1] - box.rows[0])
    return [replace(box, rows=rows) for rows in groups(box.rows[1], part_count(PIECE_VECTORS, row), box.rows[0])]
