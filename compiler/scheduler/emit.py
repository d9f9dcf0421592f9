# SPDX-License-Identifier: Apache-2.0
"""Emission: the steps of one layer as LIR, one after another; interleaving (``interleave.py``) overlaps them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from weft.compiler import lir
from weft.compiler.layers.stages import Abs, LeakyRelu, Load, Save
from weft.compiler.layers.var import Var
from weft.compiler.lir import ACCUMULATORS, LOCAL, Address
from weft.compiler.memory.allocation import DramAddress, Resident
from weft.compiler.quantize.numbers import LayerQuantization
from weft.compiler.scheduler.load import Loader, Prepared, WeightSource
from weft.compiler.scheduler.mat_muls import Drafts, MatMulEmitter
from weft.compiler.scheduler.moves import enlarge, move, transfer, whole
from weft.compiler.scheduler.pool import Buffer, Pool
from weft.compiler.scheduler.rows import Emitted
from weft.compiler.scheduler.simd import emit_elementwise, emit_lookup, emit_multiply, emit_pool
from weft.compiler.scheduler.stages import TileStep, layer_steps
from weft.compiler.tiling.costs import finished_together
from weft.compiler.tiling.search import Plan
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box, View, groups, part_count
from weft.hw.contract.schemes import SCALE_VECTORS

Operations = Iterator[Emitted]

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


class LayerEmitter:
    """The emitter of one layer's LIR.

    ``homes`` has addresses in the DRAMs and ``residents`` places in local memory, by Var name; ``source`` is where
    Consts come from; ``exchange`` what goes from core to core; ``drafts`` are those of the layer."""

    def __init__(self, shape: LayerShape, plan: Plan, registers: LayerQuantization, homes: Mapping[str, DramAddress],
                 residents: Mapping[str, Resident], pools: Pools, source: WeightSource,
                 exchange: Exchange | None = None, drafts: Drafts | None = None) -> None:
        self.shape, self.layer, self.arch, self.plan, self.registers = shape, shape.layer, shape.arch, plan, registers
        self.homes, self.residents, self.free = homes, residents, pools.accumulators
        self.exchange = exchange or Exchange((), {})
        self.imports = [*self.exchange.imports]
        self.loader = Loader(shape, plan, homes, residents, pools.local, source)
        self.mat_muls = MatMulEmitter(shape, registers.mat_mul, self.loader.preloads, drafts or Drafts())
        self.operand = Buffer(pools.accumulators.base, shape.consts.operands)
        self.sloped = isinstance(self.layer.elementwise, LeakyRelu) and not shape.consts.operands  # on output
        self.result = Buffer(0, 0)
        self.step = 0  # the number of the one that is emitted

    @cached_property
    def steps(self) -> list[TileStep]:
        """The steps of the layer, in order."""
        return layer_steps(self.shape, self.plan.tiling)

    def operations(self) -> Operations:
        """Yield the layer's operations from its first load to its last save.

        At the end all that it took from the pools is given back."""
        self.free.hold(self.operand)
        yield from self.loader.operands(self.operand.base, self.registers)
        needs = [self.loader.sizes(step) for step in self.steps]
        for number, (step, sizes, ending) in enumerate(zip(self.steps, needs, self.loader.endings(needs), strict=True)):
            self.step = number
            prepared = self.loader.prepare(step, sizes)
            yield from self.loader.loads
            if self.imports:
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
            if roots.count(var.root) > 1 or var != self.layer.core.input or box.meeting(step.input_tile) is not None:
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
            yield from self._load(core, prepared.input_tile, result)
        else:
            for output in range(*tiles):
                yield self.mat_muls.operations(prepared, output, result)
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

    def _load(self, core: Box, input_tile: View, result: View) -> Operations:
        """Yield the moves of a load core from an input tile into the accumulators."""
        assert isinstance(self.layer.core, Load)
        if self.layer.core.factors == (1, 1):
            return move(False, core, input_tile, result, ACCUMULATORS, self.arch, self.registers.core)
        return enlarge(core, self.layer.core.factors, input_tile, result, self.arch, self.registers.core)

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
        view = whole(var, self.residents[var.root], self.arch) if resident else prepared.output_buffers[var.name]

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

        Channel tiles that share their scales are moved together; on machines of fixed point none has any."""
        if not prepared.scales:
            yield from move_out(box)
            return
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
    return [box._replace(rows=rows) for rows in groups(box.rows[1], part_count(PIECE_VECTORS, row), box.rows[0])]
