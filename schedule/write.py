# SPDX-License-Identifier: Apache-2.0
"""A compiled network -> its schedule on one core, in today's dialect.

Local memory is the L2 buffer. A tensor that is pinned there has its own address. What streams through a layer's scratch
has a ring of it, in the order input, weights, other inputs, outputs; it is larger than its ring as a rule, and goes
round. Times are the estimator's: of each layer the cycles of its MatMuls with what they waited for, of the last one the
program's tail too, so that their sum is the program's cycles.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.compiler.errors import refuse
from weft.compiler.layers.hir import Convolution, Layer, Layers, Load, Var
from weft.compiler.memory.layout import MemoryPlan
from weft.compiler.products import Products
from weft.cycles.program import read_program
from weft.cycles.replay import estimate
from weft.cycles.waits import analyse
from weft.hw.contract.arch import Arch
from weft.schedule import today
from weft.schedule.boxes import Box
from weft.schedule.check import faults_of
from weft.schedule.dataflow import Work, arrivals, box_of, works_of
from weft.schedule.read import schedule_of
from weft.schedule.tiles import tiles_of
from weft.support.outputs import Kind

SCHEDULE = Kind.of_head("a schedule that weft schedule wrote", r'\{\s*"-1": \{\s*"in": \[')
CORE = 0


def schedule_text(products: Products) -> str:
    """Return the schedule of one of the machine's parts as the text of a file.

    Raises CompileError for a network whose tensors are no boxes: nothing is written that does not pass its own check.
    """
    values = Writer(products).values()
    faults = faults_of(schedule_of(values))
    if faults:
        raise refuse(f"layer {faults[0].layer!r}", f"a data flow that the format cannot tell ({faults[0].text()})",
                     "layers whose tensors are boxes, read as whole parts", "schedule the network up to there (--end)")
    return msgspec.json.format(msgspec.json.encode(values, order="sorted"), indent=1).decode() + "\n"


@dataclass
class Entry:
    """A tensor of the buffer: the record but for what changes, and the workloads ``first`` to ``last`` that have it.

    ``readers``: those whose ifmap it is."""

    record: dict[str, Any]
    first: int
    last: int
    readers: tuple[int, ...] = ()


class Writer:
    """One network's schedule while it is made: workloads, blocks of DRAM, tensors of the buffer."""

    def __init__(self, products: Products) -> None:
        self.arch, self.plan = products[Arch], products[MemoryPlan]
        self.lanes, self.vector_bytes = self.arch.array_size, self.arch.vector_bytes
        self.layers: tuple[Layer, ...] = products[Layers]
        self.works = works_of(self.layers, self.lanes)
        self.times = layer_cycles(products[MachineCode], self.arch, len(self.layers))
        self.transfers = itertools.count()
        self.pieces: list[dict[Box, today.Ofmap]] = [{} for _ in self.works]
        self.into: dict[int, today.DramIn] = {}
        self.out: list[today.DramOut] = []
        self.entries: list[Entry] = []
        self.ifmaps: list[list[today.Ifmap]] = [[] for _ in self.works]
        self.weights: dict[int, today.Weight] = {}
        for work in self.works:
            self._add_output(work)
        for work in self.works:
            self._add_weights(work)
            for var in work.inputs:
                self._add_input(work, var)

    def values(self) -> dict[str, Any]:
        """Return the file's object."""
        made = {"-1": today.Dram(into=tuple(self.into.values()), out=tuple(self.out)),
                str(CORE): [self._workload(work) for work in self.works],
                "buffersize": self.arch.local_depth * self.vector_bytes, "top_batch_cut": 1, "xlen": 1, "ylen": 1}
        values: dict[str, Any] = msgspec.to_builtins(made)
        return values

    # -- sizes and rings -----------------------------------------------------------------------------------------------
    def bytes_of(self, var: Var) -> int:
        """Return the bytes of a Var in memory."""
        return var.vectors(self.lanes) * self.vector_bytes

    def rings(self, layer: int) -> dict[str, tuple[int, int]]:
        """Return the rings of a layer's scratch by what streams through, and that of pinned tensors.

        A ring is (address, size) in bytes.
        """
        shape, plan = self.plan.shapes[layer], self.plan.plans[layer]
        own, tiling, need = shape.layer, plan.tiling, plan.need
        streamed = [var.name for var in {var.name: var for var in own.inputs[1:]}.values()
                    if var.root not in self.plan.residents and var.name != own.core.input.name]
        sizes = {own.core.input.name: need.strip * tiling.buffers, "": need.weights * tiling.weight_slots}
        sizes |= {name: (need.residual or need.scales or need.weights) * tiling.buffers // len(streamed)
                  for name in streamed}
        saves = [save.var.name for save in shape.streamed_outputs]
        sizes |= {name: need.staging * tiling.buffers // len(saves) for name in saves}
        found, base = {}, 0
        for name, size in sizes.items():
            if size:
                found[name] = base * self.vector_bytes, size * self.vector_bytes
                base += size
        found["pinned"] = (shape.scratch * self.vector_bytes, (self.arch.local_depth - shape.scratch)
                           * self.vector_bytes)
        return {name: ring for name, ring in found.items() if ring[1]}

    def address(self, var: Var, layer: int) -> int:
        """Return where a Var begins in local memory, in bytes: pinned, or in its ring of a layer's scratch."""
        if var.root in self.plan.residents:
            part = var.part
            within = part.tile * part.pixels + part.offset if part else 0
            return (self.plan.local[var.root].base + within) * self.vector_bytes
        return self.rings(layer)[var.name][0]

    def _record(self, var: Var, layer: int, kind: str, transfers: tuple[int, ...],
                sources: tuple[today.Source, ...]) -> dict[str, Any]:
        box = box_of(var)
        return {"address": self.address(var, layer), "align": self.lanes, "bitwidth": self.arch.number.width,
                **_ends(box), "size": self.bytes_of(var), "type": kind,
                "source": sources, "transfer_id": transfers}

    # -- what workloads make -------------------------------------------------------------------------------------------
    def _add_output(self, work: Work) -> None:
        """Room for a result; where it is not pinned, the block of DRAM that it becomes."""
        var, last = work.output, work.number
        if var.root in self.plan.residents:
            last = max(other.number for other in self.works if other.output.root == var.root)
        else:
            piece = self._piece(work, box_of(var))
            self.pieces[work.number][box_of(var)] = msgspec.structs.replace(
                piece, destination=(*piece.destination, today.DramDestination(core_id=-1)))
            self.into[piece.transfer_id] = today.DramIn(
                core_id=CORE, layer_name=var.name, **_ends(piece.box), related_ofmap=(),
                transfer_id=piece.transfer_id, workload_id=work.number)
        self.entries.append(Entry({**self._record(var, work.layer, "ofmap", (), ()), "layer_name": var.name},
                                  work.number, last))

    def _piece(self, work: Work, box: Box) -> today.Ofmap:
        """Return the piece of a workload's result with this box, a new one where there is none."""
        if box not in self.pieces[work.number]:
            tiles = -(-box.sizes[1] // self.lanes)
            self.pieces[work.number][box] = today.Ofmap(
                bitwidth=self.arch.number.width, destination=(), **_ends(box),
                size=tiles * box.sizes[2] * box.sizes[3] * self.vector_bytes, transfer_id=next(self.transfers))
        return self.pieces[work.number][box]

    # -- what workloads read -------------------------------------------------------------------------------------------
    def _add_weights(self, work: Work) -> None:
        """Add the block of DRAM that holds a convolution's weights, and their room in the buffer."""
        core, shape = self.layers[work.layer].core, self.plan.shapes[work.layer]
        if not isinstance(core, Convolution):
            return
        upper = (work.output.channels - 1, core.input.channels // core.group - 1, *(size - 1 for size in
                                                                                    core.window.kernel))
        size = (shape.weight_total + shape.scale_total) * self.vector_bytes
        block = self._read(work, Box((0, 0, 0, 0), upper), size, "weight", ())
        self.weights[work.number] = today.Weight(lower=block.lower, upper=block.upper, size=size,
                                                 transfer_id=(block.transfer_id,))
        ring = self.rings(work.layer).get("")
        if ring is None:
            return
        source = today.Source(core_id=-1, lower=block.lower, upper=block.upper, size=size,
                              transfer_id=block.transfer_id, type="DRAM")
        self.entries.append(Entry(
            {"address": ring[0], "align": self.lanes, "bitwidth": self.arch.number.width, "lower": block.lower,
             "upper": block.upper, "size": size, "type": "weight", "source": (source,), "layer_name": work.output.name,
             "transfer_id": (block.transfer_id,)}, work.number, work.number))

    def _read(self, work: Work, box: Box, size: int, kind: Any, related: tuple[int, ...]) -> today.DramOut:
        """Return a new block that comes out of DRAM for a workload; the blocks that made it name it."""
        block = today.DramOut(destination=(today.Reader(core_id=CORE, layer_name=work.output.name,
                                                        workload_id=work.number),),
                              **_ends(box), related_ifmap=related, size=size,
                              transfer_id=next(self.transfers), type=kind)
        self.out.append(block)
        for number in related:
            written = self.into[number]
            self.into[number] = msgspec.structs.replace(written, related_ofmap=(*written.related_ofmap,
                                                                                block.transfer_id))
        return block

    def _add_input(self, work: Work, var: Var) -> None:
        found = arrivals(self.works, work, var, self.lanes)
        if var.root in self.plan.residents:
            sources = tuple(self._from_core(work, arrival.producer, arrival.sent, arrival.place) for arrival in found)
            self._add_pinned(work, var, sources, max(arrival.producer for arrival in found))
        else:
            related = tuple(self.pieces[arrival.producer][box_of(self.works[arrival.producer].output)].transfer_id
                            for arrival in found)
            block = self._read(work, box_of(var), self.bytes_of(var), "fmap", related)
            sources = (today.Source(core_id=-1, lower=block.lower, upper=block.upper, size=block.size,
                                    transfer_id=block.transfer_id, type="DRAM"),)
            self.entries.append(Entry({**self._record(var, work.layer, "ifmap", (block.transfer_id,), sources),
                                       "layer_name": work.output.name}, work.number, work.number, (work.number,)))
        box = box_of(var)
        self.ifmaps[work.number].append(today.Ifmap(
            align=self.lanes, bitwidth=self.arch.number.width, **_ends(box),
            size=self.bytes_of(var), transfer_id=tuple(source.transfer_id for source in sources)))

    def _from_core(self, work: Work, producer: int, sent: Box, place: Box) -> today.Source:
        """Return where a part of a pinned tensor comes from, and tell its producer who reads it."""
        piece = self._piece(self.works[producer], sent)
        target = today.CoreDestination(core_id=CORE, workload_id=work.number)
        self.pieces[producer][sent] = msgspec.structs.replace(piece, destination=(*piece.destination, target))
        return today.Source(core_id=CORE, layer_name=self.works[producer].output.name, **_ends(place),
                            size=piece.size, transfer_id=piece.transfer_id, type="core")

    def _add_pinned(self, work: Work, var: Var, sources: tuple[today.Source, ...], made: int) -> None:
        """Add a pinned tensor, which is one tensor for all that read it."""
        record = self._record(var, work.layer, "ifmap", tuple(source.transfer_id for source in sources), sources)
        entry = next((entry for entry in self.entries if entry.record == record), None)
        if entry is None:
            first = max(other.number for other in self.works if other.output.root == var.root) + 1
            self.entries.append(Entry(record, min(first, made + 1), work.number, (work.number,)))
        else:
            entry.last, entry.readers = work.number, (*entry.readers, work.number)

    # -- the records of workloads --------------------------------------------------------------------------------------
    def _workload(self, work: Work) -> today.Workload:
        layer, weight = self.layers[work.layer], self.weights.get(work.number)
        window, size = layer.core.window, self.bytes_of(work.output)
        cycles = self.times[work.layer] if work.is_last else 0
        padding = (window.pads[0], window.pads[0], window.pads[1], window.pads[1])
        column = (self.lanes + 1) * self.vector_bytes
        return today.Workload(
            buffer=tuple(self._tensor(number, entry, work.number) for number, entry in enumerate(self.entries)
                         if entry.first <= work.number <= entry.last),
            ifmap=tuple(self.ifmaps[work.number]), layer_name=work.output.name,
            layer_type="vp" if isinstance(layer.core, Load) else "pe", ofmap=tuple(self.pieces[work.number].values()),
            ofmap_size=size, ring_buffer_info=tuple(self.rings(work.layer).values()),
            tile_info=tiles_of(self.plan.shapes[work.layer], self.plan.plans[work.layer].tiling, work.output,
                               cycles, padding) if work.is_last else {},
            tile_padding_tblr=padding, time=cycles, **({} if weight is None else {"weight": weight}),
            wl0_buffer=() if weight is None else (today.WeightBuffer(
                address=0, align=self.lanes, bitwidth=self.arch.number.width, layer_name=work.output.name,
                size=column, source="CORE", tensor_order=None, transfer_id=weight.transfer_id),),
            workload=_corners(box_of(work.output)), workload_id=work.number)

    def _tensor(self, number: int, entry: Entry, workload: int) -> today.Tensor:
        current: dict[str, Any] = {"cur_wl_ifmap": True} if workload in entry.readers else {}
        return today.Tensor(**entry.record, **current, newly_added=workload == entry.first, tensor_id=number,
                            tensor_order=number if entry.record["type"] != "ofmap" else None)


def _ends(box: Box) -> dict[str, Any]:
    return {"lower": box.lower, "upper": box.upper}


def _corners(box: Box) -> Any:
    return box.lower, box.upper


def layer_cycles(code: MachineCode, arch: Arch, layers: int) -> list[int]:
    """Return the cycles of each layer by the estimator; the program's tail counts to the last."""
    found = estimate(code.content, arch)
    program = read_program(code.content, arch)
    known = np.full(program.instructions, layers - 1, np.int64)
    known[:len(code.layers)] = code.layers[:program.instructions]
    waits = analyse(program, found.operations, found.cycles, known[program.work["instruction"]], arch)
    cycles = [int(waits.vectors[layer]) + int(waits.waits[layer].sum()) if layer < len(waits.vectors) else 0
              for layer in range(layers)]
    cycles[-1] += found.cycles - sum(cycles)
    return cycles
