# SPDX-License-Identifier: Apache-2.0
"""The buffers that a step needs in local memory, and the loads that fill them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from weft.compiler import lir
from weft.compiler.layers.stages import Product
from weft.compiler.layers.var import Var
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address
from weft.compiler.memory.allocation import DramAddress, Resident
from weft.compiler.quantize.numbers import LayerQuantization
from weft.compiler.scheduler.buffers import Buffers, Key, kept
from weft.compiler.scheduler.moves import transfer, whole
from weft.compiler.scheduler.pool import Pool
from weft.compiler.scheduler.stages import TileStep
from weft.compiler.tiling.costs import finished_together
from weft.compiler.tiling.search import Plan
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box, View, groups
from weft.hw.contract.instructions import KEY_ENTRIES
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES

INPUT_TILE, WEIGHTS, SCALES = "input_tile", "weights", "scales"
RESIDUAL, OUTPUT_BUFFER, ROUNDED, OPERAND = "residual", "output_buffer", "rounded", "operand"
KEPT = INPUT_TILE, WEIGHTS, SCALES, ROUNDED
"""Kinds of buffers whose content may serve a later step too."""

LOAD_VECTORS = 64
"""The vectors up to which weights of several output channel tiles are loaded together.

Long loads use the bus well, short ones arrive early."""


class Prepared(NamedTuple):
    """A step with the places of its buffers.

    ``input_tile``: input. ``weights``: by output channel tile, where vector 0 of the layer's weights would lie beside
    the vectors that the step needs. ``scales``: base of what LoadScale
    reads by output channel tile. ``rounded``: base of the buffer in which results are rounded. ``residuals``: the
    further inputs. ``output_buffers``: outputs on their way to DRAM, by name."""

    step: TileStep
    input_tile: View
    weights: dict[int, int]
    scales: dict[int, int]
    rounded: int
    residuals: tuple[View, ...]
    output_buffers: dict[str, View]


@dataclass
class WeightSource:
    """The DRAM from which Consts are read: DRAM1, unless DRAM0 holds a ``copy`` of all of them.

    With a copy (``copy`` is its base), each load takes the DRAM that has read less so far. ``read``: vectors by DRAM,
    of one layer, or of several layers of ``few`` pixels: for these nearly all cycles are loads, which run far ahead of
    the array."""

    copy: int | None
    few: bool = False
    read: Counter[str] = field(default_factory=Counter)

    def of_layer(self, pixels: int, lanes: int) -> WeightSource:
        """Return the source of the next layer, which has a result of so many ``pixels``."""
        few = pixels < lanes
        return self if self.few and few else WeightSource(self.copy, few)

    def address(self, far: int, size: int) -> Address:
        """Return where to load ``size`` vectors of Consts from that lie at ``far`` in DRAM1; count them."""
        if self.copy is not None and self.read[DRAM0] + size <= self.read[DRAM1]:
            self.read[DRAM0] += size
            return Address(DRAM0, self.copy + far)
        self.read[DRAM1] += size
        return Address(DRAM1, far)


class Loader:
    """The loads of one layer.

    ``homes`` has addresses in the DRAMs and ``residents`` places in local memory, by Var name. ``pool`` is the free
    local memory, ``source`` where Consts come from."""

    def __init__(self, shape: LayerShape, plan: Plan, homes: Mapping[str, DramAddress],
                 residents: Mapping[str, Resident],
                 pool: Pool, source: WeightSource) -> None:
        self.source = source
        self.shape, self.layer, self.arch = shape, shape.layer, shape.arch
        self.tiling, self.largest_input_tile = plan.tiling, plan.need.input_tile
        self.homes, self.residents = homes, residents
        self.streamed = [add.input for add in self.layer.adds if add.input.root not in residents]
        self.buffers = Buffers(pool, two=self.tiling.buffers > 1, made=(ROUNDED,))
        self.pieces: dict[Hashable, list[tuple[int, int]]] = {}
        self.loads: list[lir.Operation] = []

    def operands(self, base: int, registers: LayerQuantization) -> Iterator[lir.Operation]:
        """Yield the loads of the layer's lookup tables, activation table, or SIMD constants.

        Constants go on to the accumulators, from ``base`` on."""
        consts = self.shape.consts
        key = Key(OPERAND, None)
        near = Address(LOCAL, self.buffers.claim({key: consts.local_vectors})[0][key])
        if consts.operands:
            yield lir.DataMove(True, near, Address(DRAM1, consts.operand), consts.operands)
            yield lir.DataMove(False, near, Address(ACCUMULATORS, base), consts.operands, registers.operand)
        if registers.load_table:
            yield lir.DataMove(True, near, Address(DRAM1, consts.operand), TABLE_ENTRIES)
            yield lir.LoadActivationTable(near, registers.load_table)
        if self.layer.lookup is not None:
            yield from self._tables(near, self.arch.lut_depth)
        self.buffers.release(key)

    def _tables(self, near: Address, depth: int) -> Iterator[lir.Operation]:
        """Yield the loads of the lookup tables, by way of ``near``.

        Those that the SIMD unit holds already are left out. The table of keys has the range of any other: behind its
        entries lie those of the table of values, with which it is moved if there is room for both. They come from
        DRAM1, for DRAM0 may be busy with the inputs of the layer before; those of layers of few pixels from either."""
        consts = self.shape.consts
        apart = consts.local_vectors > depth
        for number in consts.fresh:
            offset, size = consts.table_piece(number, depth)
            size = size if number else min(KEY_ENTRIES + depth, consts.local_vectors)
            table = Address(LOCAL, near.offset + (offset if apart else 0))
            if number != 1 or not apart or 0 not in consts.fresh:
                far = consts.operand + offset
                yield lir.DataMove(True, table, self.source.address(far, size) if self.source.few
                                   else Address(DRAM1, far), size)
            yield lir.LoadLut(table, number, depth)

    @cached_property
    def preloads(self) -> bool:
        """Whether residuals are loaded into the accumulators before the core's result is added to them.

        Then no residual has to be waited for at the end."""
        rounds = self.layer.rounding is not None
        return bool(self.layer.adds) and not (self.shape.loads or self.layer.multiplies or rounds)

    # -- buffers ---------------------------------------------------------------------------------------------------
    def endings(self, needs: Sequence[Mapping[Key, int]]) -> list[list[Key]]:
        """Return [steps]: the buffers to release after each step, as no later step would find their content.

        ``needs`` [steps]: the :meth:`sizes` of each."""
        found = [[key for key in own if key.kind not in KEPT] for own in needs]
        counts = self.tiling.buffers, self.tiling.weight_slots, self.tiling.buffers, 1
        for kind, count in zip(KEPT, counts, strict=True):
            used = [(number, key) for number, own in enumerate(needs) for key in own if key.kind == kind]
            for (number, key), stays in zip(used, kept([key for _, key in used], count), strict=True):
                if not stays:
                    found[number].append(key)
        return found

    def release(self, keys: list[Key]) -> None:
        """Release the buffers with these keys, which no later step reads."""
        for key in keys:
            self.buffers.release(key)

    def sizes(self, step: TileStep) -> dict[Key, int]:
        """Return the buffers that a step needs, with their sizes in vectors."""
        found = {}
        if self.layer.core.input.root not in self.residents:
            # As large as the largest where results are rounded, so that one finds room where another was.
            size = step.input_tile.vectors if self.layer.rounding is None else self.largest_input_tile
            found[Key(INPUT_TILE, step.input_tile)] = size
        if not (self.shape.loads or self.shape.weights_are_resident):
            pieces = tuple(dict.fromkeys(self._pieces(step)))
            found[Key(WEIGHTS, pieces)] = sum(end - start for start, end in pieces)
        if self.streamed and self._adds_in(step):
            found[Key(RESIDUAL, step)] = len(self.streamed) * step.core.vectors
        if step.complete and self.shape.consts.scales and not self.shape.factors_are_resident:
            start, end = self.shape.consts.scale_piece(step.region.tiles)
            found[Key(SCALES, (start, end))] = end - start
        if step.complete and self.layer.rounding is not None:
            size = step.core.pixels * min(finished_together(step.core.pixels), step.core.tiles[1] - step.core.tiles[0])
            found[Key(ROUNDED, size)] = size
        for name, box in self._staged(step).items():
            found[Key(OUTPUT_BUFFER, name)] = box.vectors
        return found

    def _staged(self, step: TileStep) -> dict[str, Box]:
        """Return the boxes that are written to DRAM after this step, by the output's name."""
        return {save.var.name: step.core if save.before_pool else step.region
                for save in self.shape.streamed_outputs if step.complete and (step.last or save.before_pool)}

    def _adds_in(self, step: TileStep) -> bool:
        """Tell whether the further inputs are loaded into the accumulators in this step."""
        return step.begins if self.preloads else step.complete

    def _pieces(self, step: TileStep) -> list[tuple[int, int]]:
        """Return the offsets [start, end) of the weights of each of the step's output channel tiles; cached."""
        key = step.region.tiles, step.inputs, step.taps
        if key not in self.pieces:
            self.pieces[key] = [block.piece(step.inputs, step.taps)
                                for block in self.shape.consts.blocks[slice(*step.region.tiles)]]
        return self.pieces[key]

    # -- loads -----------------------------------------------------------------------------------------------------
    def prepare(self, step: TileStep, sizes: Mapping[Key, int]) -> Prepared:
        """Claim the buffers of a step, of these :meth:`sizes`, and return their places.

        ``loads`` then has the moves that fill them."""
        bases, fresh = self.buffers.claim(sizes)
        self.loads = []
        places = {key.kind: (base, key in fresh) for key, base in bases.items()}
        return Prepared(step, self._input_tile(step, places.get(INPUT_TILE)),
                        self._weights_at(step, places.get(WEIGHTS)),
                        self._scales(step, places.get(SCALES)),
                        places.get(ROUNDED, (0, True))[0],
                        self._residuals(step, places.get(RESIDUAL)),
                        {name: View(bases[Key(OUTPUT_BUFFER, name)], box) for name, box in self._staged(step).items()})

    def _input_tile(self, step: TileStep, place: tuple[int, bool] | None) -> View:
        """Return the place of the step's input tile; add its loads."""
        return self._view(self.layer.core.input, step.input_tile, place)

    def _view(self, var: Var, box: Box, place: tuple[int, bool] | None) -> View:
        """Return where a box of a Var lies: in its buffer, after adding the loads, or pinned in local memory.

        ``place`` is the buffer's base and whether it must be filled; None for a pinned Var."""
        if place is None:
            return whole(var, self.residents[var.root], self.arch)
        view = View(place[0], box)
        if place[1] and box.vectors:
            self._load(var, box, view)
        return view

    def _load(self, var: Var, box: Box, view: View) -> None:
        """Add the moves that load a box of a Var from the DRAMs."""
        for load in transfer(True, box, view, var, self.homes[var.root], self.arch):
            self.source.read[load.far.memory] += load.size * load.rows
            self.loads.append(load)

    def _weights_at(self, step: TileStep, place: tuple[int, bool] | None) -> dict[int, int]:
        """Return ``weights`` of ``Prepared`` for a step; add the loads of its weights."""
        core, lanes = self.layer.core, self.arch.array_size
        if isinstance(core, Product):
            rows = step.inputs[0] * lanes, min(step.inputs[1] * lanes, core.weights.height)
            view = self._view(core.weights, Box(step.region.tiles, rows, (0, 1)), place)
            return {output: view.address(output, rows[0], 0) - start
                    for output, (start, _) in zip(range(*step.region.tiles), self._pieces(step), strict=True)}
        return self._weights(step, *place) if place else {}

    def _weights(self, step: TileStep, base: int, fill: bool) -> dict[int, int]:
        """Return ``weights`` of ``Prepared``; add the loads from DRAM into ``base`` on, small ones joined.

        If weights come from both DRAMs, loads are short and each takes the port that has moved less. So no step waits
        for one port while the other is idle."""
        places: dict[tuple[int, int], int] = {}
        joined: list[list[int]] = []  # local address, DRAM1 address and size of each load
        for start, end in dict.fromkeys(self._pieces(step)):
            places[start, end], far = base - start, self.shape.consts.base + start
            if not joined or joined[-1][1] + joined[-1][2] != far or joined[-1][2] >= LOAD_VECTORS:
                joined.append([base, far, 0])
            joined[-1][2] += end - start
            base += end - start
        most = self.arch.local_depth if self.source.copy is None else LOAD_VECTORS
        self.loads += [lir.DataMove(True, Address(LOCAL, near + low), self.source.address(far + low, high - low),
                                    high - low)
                       for near, far, size in joined if fill for low, high in groups(size, most)]
        return {output: places[piece] for output, piece in zip(range(*step.region.tiles), self._pieces(step),
                                                               strict=True)}

    def _scales(self, step: TileStep, place: tuple[int, bool] | None) -> dict[int, int]:
        """Return where the scales of each output channel tile lie; add their loads, from Consts or from a Var."""
        if self.layer.factors is not None and step.complete:
            view = self._view(self.layer.factors, Box(step.region.tiles, (0, 1), (0, SCALE_VECTORS)), place)
            return {output: view.address(output, 0, 0) for output in range(*step.region.tiles)}
        if place is None:
            return {}
        base, consts = place[0], self.shape.consts
        start, end = consts.scale_piece(step.region.tiles)
        if place[1]:
            self.loads.append(lir.DataMove(True, Address(LOCAL, base), self.source.address(
                consts.scale_base + start, end - start), end - start))
        return {output: base + consts.scales[output] - start for output in range(*step.region.tiles)}

    def _residuals(self, step: TileStep, place: tuple[int, bool] | None) -> tuple[View, ...]:
        """Return where the step's further inputs lie; add the loads of those that are not pinned."""
        if not self._adds_in(step):
            return ()
        base = place[0] if place else 0
        views = []
        for var in (add.input for add in self.layer.adds):
            if var.root in self.residents:
                views.append(whole(var, self.residents[var.root], self.arch))
                continue
            views.append(View(base, step.core))
            base += step.core.vectors
            self._load(var, step.core, views[-1])
        return tuple(views)
