"""Emission: the steps of one layer as LIR. Loads of the next step come before the present step's work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.compiler import lir
from weft.compiler.layers.hir import MatMul, Var
from weft.compiler.lir import Address, Space
from weft.compiler.memory.consts import OutputBlock, WeightTile
from weft.compiler.quantize.points import LayerPoints
from weft.compiler.scheduler.shape import LayerShape
from weft.compiler.scheduler.simd import emit_elementwise, emit_lookup, emit_multiply, emit_pool
from weft.compiler.scheduler.slots import Slots
from weft.compiler.scheduler.spans import Axis, Box, Span, View, between, groups, spans
from weft.compiler.scheduler.stages import Step, layer_steps
from weft.compiler.scheduler.tiling import Plan

Operations = Iterator[lir.Operation]


@dataclass(frozen=True)
class Prepared:
    """A step with its buffers: input, weights (where each output block's piece begins), residuals."""

    step: Step
    strip: View
    pieces: dict[int, int]
    residuals: tuple[View, ...]
    loads: tuple[lir.Operation, ...]


class LayerEmitter:
    """One layer. ``variables`` are bases in DRAM0, ``residents`` bases in local memory, by Var name."""

    def __init__(self, shape: LayerShape, plan: Plan, points: LayerPoints, variables: Mapping[str, int],
                 residents: Mapping[str, int]) -> None:
        self.shape, self.layer, self.arch, self.plan, self.points = shape, shape.layer, shape.arch, plan, points
        self.variables, self.residents = variables, residents
        need, tiling = plan.need, plan.tiling
        # The SIMD unit's constants leave local memory again, before anything else has to lie where they lay.
        apart = shape.consts.local_vectors + need.local_total <= shape.scratch
        base = shape.consts.local_vectors if apart else 0
        self.operand = 0
        self.strips = Slots(base, need.strip, tiling.buffers)
        base += tiling.buffers * need.strip
        self.weights = Slots(base, need.weights, tiling.weight_slots)
        base += tiling.weight_slots * need.weights
        self.stagings = Slots(base, need.staging, tiling.buffers)
        base += tiling.buffers * need.staging
        self.residuals = Slots(base, need.residual, tiling.buffers)
        self.accumulators = Slots(self.operand + shape.consts.operands, need.accumulators, tiling.buffers)

    # -- order -----------------------------------------------------------------------------------------------------
    def operations(self) -> Operations:
        """The layer from its first load to its last save."""
        yield from self._load_operand()
        steps = layer_steps(self.shape, self.plan.tiling)
        prepared = self._prepare(steps[0])
        yield from prepared.loads
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            early = following is not None and self._may_prefetch(step, following)
            upcoming = self._prepare(following) if following is not None and early else None
            if upcoming is not None:
                yield from upcoming.loads
            yield from self._compute(prepared)
            if following is not None and upcoming is None:
                upcoming = self._prepare(following)
                yield from upcoming.loads
            if upcoming is not None:
                prepared = upcoming

    def _may_prefetch(self, step: Step, following: Step) -> bool:
        """Whether the next step's loads leave what the present step still reads."""
        pairs = ((self.strips, lambda step: step.strip), (self.weights, self._weights_key),
                 (self.residuals, self._residual_key))
        return all(slots.keeps(key(step), key(following)) for slots, key in pairs)

    def _weights_key(self, step: Step) -> tuple[object, ...]:
        return step.region.tiles, step.inputs, step.taps

    def _residual_key(self, step: Step) -> tuple[object, ...]:
        return step.stage, step.core

    # -- loads -----------------------------------------------------------------------------------------------------
    def _load_operand(self) -> Operations:
        consts, local = self.shape.consts, Address(Space.LOCAL, 0)
        if consts.operands:
            yield lir.DataMove(True, local, Address(Space.CONSTS, consts.operand), consts.operands)
            yield lir.DataMove(False, local, Address(Space.ACCUMULATORS, self.operand), consts.operands,
                               self.points.leave_shift)
        for number in range(consts.tables):
            depth = self.arch.lut_depth
            yield lir.DataMove(True, local, Address(Space.CONSTS, consts.operand + number * depth), depth)
            yield lir.LoadLut(local, number, depth)

    def _prepare(self, step: Step) -> Prepared:
        loads: list[lir.Operation] = []
        strip = self._input(self.layer.core.input, step.strip, loads)
        pieces = {} if self.shape.loads else self._weight_pieces(step, loads)
        residuals = self._residuals(step, loads) if step.complete else ()
        return Prepared(step, strip, pieces, residuals, tuple(loads))

    def _whole(self, var: Var, base: int) -> View:
        box = Box((0, var.tiles(self.arch.array_size)), (0, var.height), (0, var.width))
        if var.part is None:
            return View(base, box)
        part = var.part
        return View(base + part.tile * part.pixels + part.offset, box, (part.pixels, part.pitch, part.step))

    def _input(self, var: Var, box: Box, loads: list[lir.Operation]) -> View:
        """Where a box of a Var lies in local memory, loaded if need be."""
        if var.root in self.residents:
            return self._whole(var, self.residents[var.root])
        base, fill = self.strips.take(box)
        view = View(base, box)
        if fill and box.vectors:
            loads += self._move(True, box, view, self._whole(var, self.variables[var.root]), Space.VARS)
        return view

    def _weight_pieces(self, step: Step, loads: list[lir.Operation]) -> dict[int, int]:
        base, fill = self.weights.take(self._weights_key(step))
        pieces: dict[int, int] = {}
        pending: tuple[int, int, int] | None = None  # local address, DRAM1 address and size of what joins so far
        for output in range(*step.region.tiles):
            start, end = self.shape.consts.blocks[output].piece(step.inputs, step.taps)
            pieces[output] = base
            far = self.shape.consts.base + start
            if pending and pending[1] + pending[2] == far:
                pending = (pending[0], pending[1], pending[2] + end - start)
            else:
                loads += self._weight_load(pending) if fill and pending else []
                pending = (base, far, end - start)
            base += end - start
        loads += self._weight_load(pending) if fill and pending else []
        return pieces

    def _weight_load(self, pending: tuple[int, int, int]) -> list[lir.Operation]:
        local, far, size = pending
        return [lir.DataMove(True, Address(Space.LOCAL, local), Address(Space.CONSTS, far), size)] if size else []

    def _residuals(self, step: Step, loads: list[lir.Operation]) -> tuple[View, ...]:
        views: list[View] = []
        core = step.core
        streamed = [add for add in self.layer.adds if add.input.root not in self.residents]
        base, fill = self.residuals.take(self._residual_key(step)) if streamed else (0, False)
        for add in self.layer.adds:
            if add.input.root in self.residents:
                views.append(self._whole(add.input, self.residents[add.input.root]))
                continue
            views.append(View(base, core))
            base += core.vectors
            if fill:
                whole = self._whole(add.input, self.variables[add.input.root])
                loads += self._move(True, core, views[-1], whole, Space.VARS)
        return tuple(views)

    def _move(self, to_local: bool, box: Box, local: View, far: View, space: Space, shift: int | None = None, *,
              accumulate: bool = False, relu: bool = False) -> Operations:
        corner = box.tiles[0], box.rows[0], box.columns[0]
        near_base, far_base = local.address(*corner), far.address(*corner)
        for span in spans(between(box, local, far), self.arch):
            yield lir.DataMove(to_local, Address(Space.LOCAL, near_base + span.near),
                               Address(space, far_base + span.far), span.size, shift, accumulate, relu,
                               span.near_stride, span.far_stride, span.rows, span.near_pitch, span.far_pitch)

    # -- work ------------------------------------------------------------------------------------------------------
    def _compute(self, prepared: Prepared) -> Operations:
        step = prepared.step
        core = step.core
        base, _ = self.accumulators.take(step.stage)
        result = View(base, core)
        if self.shape.loads:
            yield from self._move(False, core, prepared.strip, result, Space.ACCUMULATORS, self.points.core_shift)
        else:
            for output in range(*step.region.tiles):
                yield from self._mat_muls(prepared, output, result)
        if not step.complete:
            return
        second = View(base + self.plan.need.core, core)
        if self.layer.multiplies:
            yield from self._move(False, core, prepared.residuals[0], second, Space.ACCUMULATORS,
                                  self.points.add_shifts[0])
            yield from emit_multiply(result, second, self.points.leave_shift, self.arch)
        else:
            for view, shift in zip(prepared.residuals, self.points.add_shifts, strict=True):
                yield from self._move(False, core, view, result, Space.ACCUMULATORS, shift, accumulate=True)
        if self.layer.pool is not None:
            pooled = View(second.base, step.region)
            yield from emit_pool(self.layer.pool, result, pooled, self.points.leave_shift, self.arch,
                                 continues=not step.first)
            result = pooled
        if step.last:
            yield from self._finish(step, result)

    def _mat_muls(self, prepared: Prepared, output: int, result: View) -> Operations:
        step, block = prepared.step, self.shape.consts.blocks[output]
        tiles = block.chosen(step.inputs, step.taps)
        local = prepared.pieces[output] - block.piece(step.inputs, step.taps)[0]
        loaded = None  # offset of the tile in the weight column, when it has no bias there
        starts = block.starts(step.inputs, step.taps)
        if starts and not block.carries_bias:
            yield from self._spread_bias(block, local, output, result)
        for number, tile in enumerate(tiles):
            first = starts and block.carries_bias and number == 0
            walks = list(self._tap_spans(tile, prepared.strip, output, result))
            if walks and (first or loaded != tile.offset):
                yield lir.LoadWeight(Address(Space.LOCAL, local + tile.offset - first), tile.rows + first, not first)
                loaded = None if first else tile.offset
            for span in walks:
                yield lir.MatMul(Address(Space.LOCAL, span.near), Address(Space.ACCUMULATORS, span.far), span.size,
                                 self.points.core_shift, not first, span.near_stride, span.far_stride, span.rows,
                                 span.near_pitch, span.far_pitch)

    def _spread_bias(self, block: OutputBlock, local: int, output: int, result: View) -> Operations:
        """Start with the bias alone, where no tap reaches every pixel."""
        yield lir.LoadWeight(Address(Space.LOCAL, local + block.bias), 1)
        corner = result.address(output, result.box.rows[0], result.box.columns[0])
        # A size field need not count beyond the smaller of both memories.
        for low, high in groups(result.box.pixels, self.arch.local_depth):
            yield lir.MatMul(None, Address(Space.ACCUMULATORS, corner + low), high - low, self.points.core_shift)

    def _tap_spans(self, tile: WeightTile, strip: View, output: int, result: View) -> Iterator[Span]:
        """What one tap of the kernel walks over, padding left out: input in local memory, output in accumulators."""
        core, box = self.layer.core, result.box
        assert isinstance(core, MatMul)
        window, size = core.window, core.input.size
        rows, columns = (window.outputs(axis, tile.tap[axis], *span, size[axis])
                         for axis, span in enumerate((box.rows, box.columns)))
        if rows[0] == rows[1] or columns[0] == columns[1]:
            return
        row, column = (low * window.strides[axis] - window.pads[axis] + tile.tap[axis] * window.dilations[axis]
                       for axis, low in enumerate((rows[0], columns[0])))
        near = strip.address(tile.input_tile, row, column)
        far = result.address(output, rows[0], columns[0])
        axes = [Axis(rows[1] - rows[0], window.strides[0] * strip.pitch, result.pitch),
                Axis(columns[1] - columns[0], window.strides[1] * strip.step, 1)]
        for span in spans(axes, self.arch):
            yield span._replace(near=near + span.near, far=far + span.far)

    def _finish(self, step: Step, result: View) -> Operations:
        """What is left to do in the accumulators, then out."""
        shift = self.points.leave_shift
        if self.layer.lookup is not None:
            yield from emit_lookup(result, shift, self.arch)
        if self.layer.elementwise is not None:
            yield from emit_elementwise(self.layer.elementwise, self.operand, result, shift, self.arch)
        for (var, relu), leave in zip(self.layer.saves, self.points.leave_shifts, strict=True):
            yield from self._save(step, result, var, leave, relu)

    def _save(self, step: Step, result: View, var: Var, shift: int, relu: bool) -> Operations:
        """Out of the accumulators into local memory, and on to DRAM0 where the Var is not resident."""
        region, resident = step.region, var.root in self.residents
        if resident:
            view = self._whole(var, self.residents[var.root])
        else:
            view = View(self.stagings.take((step.stage, var.name))[0], region)
        yield from self._move(True, region, view, result, Space.ACCUMULATORS, shift, relu=relu)
        if not resident:
            yield from self._move(False, region, view, self._whole(var, self.variables[var.root]), Space.VARS)
