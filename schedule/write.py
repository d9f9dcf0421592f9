# SPDX-License-Identifier: Apache-2.0
"""A compiled network -> its schedule on the machine's cores, in today's dialect.

Local memory is the L2 buffer. A tensor that is pinned there has its own address. What streams through a layer's scratch
has a ring of it. The rings stand in the order input, weights, other inputs, outputs. As a rule a stream is larger than
its ring, and goes round. A tensor that every core which touches it has pinned goes from core to core; all others go
through DRAM.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.split import Cores
from weft.compiler.errors import refuse
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Convolution, Load
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.products import Products
from weft.hw.contract.arch import Arch
from weft.schedule import today
from weft.schedule.boxes import Box, hull
from weft.schedule.check import faults_of
from weft.schedule.dataflow import Arrival, Makers, Work, works_of
from weft.schedule.read import schedule_of
from weft.schedule.room import Room, Span
from weft.schedule.tiles import tiles_of
from weft.schedule.times import layer_cycles
from weft.support.outputs import Kind

SCHEDULE = Kind.of_head("a schedule that weft schedule wrote", r'\{\s*"-1": \{\s*"in": \[')
DRAM: Final = -1


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
    """A tensor of a core's buffer: the record but for what changes.

    Workloads ``first`` to ``last`` have it. ``readers``: those whose ifmap it is."""

    record: dict[str, Any]
    first: int
    last: int
    readers: tuple[int, ...] = ()

    def is_on(self, span: Span) -> bool:
        """Whether some of its bytes are of ``span``."""
        address, size = self.record["address"], self.record["size"]
        return bool(address < span[0] + span[1] and span[0] < address + size)


class Writer:
    """One network's schedule while it is made: workloads, blocks of DRAM, tensors of the buffers."""

    def __init__(self, products: Products) -> None:
        self.arch, self.lanes = products[Arch], products[Arch].array_size
        self.layers: tuple[Layer, ...] = products[Layers]
        split = products[Cores]
        plans = split.plan.cores if split.plan else (products[MemoryPlan],)
        resting = [split.plan.resting(core) if split.plan else () for core in range(len(plans))]
        self.rooms = [Room(plan, self.arch) for plan in plans]
        self.works = works_of([{number: shape for number, shape in enumerate(plan.shapes) if number not in rests}
                               for plan, rests in zip(plans, resting, strict=True)], self.layers, self.lanes)
        self.times = layer_cycles(split.codes or (products[MachineCode],), self.arch,
                                  [sorted({work.layer for work in works}) for works in self.works])
        self.makers = Makers(self.works, self.lanes)
        self.through_dram = self._through_dram()
        self.transfers = itertools.count()
        self.pieces: dict[tuple[int, int], dict[Box, today.Ofmap]] = {}
        self.into: dict[int, today.DramIn] = {}
        self.out: dict[int, today.DramOut] = {}
        self.blocks: dict[tuple[int, Var, tuple[int, ...]], today.Source] = {}
        self.entries: list[list[Entry]] = [[] for _ in self.works]
        self.ifmaps: dict[tuple[int, int], list[today.Ifmap]] = {}
        self.weights: dict[tuple[int, int], today.Weight] = {}
        everything = [work for works in self.works for work in works]
        for work in everything:
            self.pieces[_key(work)], self.ifmaps[_key(work)] = {}, []
            if work.output.root in self.through_dram:
                self._add_stored(work)
        for work in everything:
            self._add_weights(work)
            for var, box in work.reads:
                self._add_input(work, var, box)
        for work in everything:
            self._add_output(work)

    def values(self) -> dict[str, Any]:
        """Return the file's object."""
        made = {"-1": today.Dram(into=tuple(self.into.values()), out=tuple(self.out.values())),
                **{str(core): [self._workload(work) for work in works] for core, works in enumerate(self.works)},
                "buffersize": self.arch.local_depth * self.arch.vector_bytes, "top_batch_cut": 1,
                "xlen": len(self.works), "ylen": 1}
        values: dict[str, Any] = msgspec.to_builtins(made)
        return values

    def _through_dram(self) -> set[str]:
        """Return the roots that not every core which touches them has pinned."""
        return {var.root for room, works in zip(self.rooms, self.works, strict=True) for work in works
                for var in (work.output, *(var for var, _ in work.reads)) if var.root not in room.plan.residents}

    def _record(self, span: Span, box: Box, kind: str, sources: Sequence[today.Source]) -> dict[str, Any]:
        return {"address": span[0], "align": self.lanes, "bitwidth": self.arch.number.width, **_ends(box),
                "size": span[1], "type": kind, "source": tuple(sources),
                "transfer_id": tuple(source.transfer_id for source in sources)}

    # -- what workloads make -------------------------------------------------------------------------------------------
    def _add_stored(self, work: Work) -> None:
        """Add the block of DRAM that a result becomes."""
        piece = self._piece(work, work.box)
        self.pieces[_key(work)][work.box] = msgspec.structs.replace(
            piece, destination=(*piece.destination, today.DramDestination(core_id=DRAM)))
        self.into[piece.transfer_id] = today.DramIn(
            core_id=work.core, layer_name=work.output.name, **_ends(work.box), related_ofmap=(),
            transfer_id=piece.transfer_id, workload_id=work.number)

    def _add_output(self, work: Work) -> None:
        """Add room for a result, where it is not the room of an ifmap that it becomes."""
        var, last, room = work.output, work.number, self.rooms[work.core]
        span = room.span(var, work.box, work.layer)
        pinned = var.root in room.plan.residents
        if pinned:
            last = max(other.number for other in self.works[work.core] if other.output.root == var.root)
        if not (pinned and any(entry.first <= last and entry.last >= work.number and entry.is_on(span)
                               for entry in self.entries[work.core])):
            self.entries[work.core].append(Entry({**self._record(span, work.box, "ofmap", ()), "layer_name": var.name},
                                                 work.number, last))

    def _piece(self, work: Work, box: Box) -> today.Ofmap:
        """Return the piece of a workload's result with this box, a new one where there is none."""
        own = self.pieces[_key(work)]
        if box not in own:
            own[box] = today.Ofmap(bitwidth=self.arch.number.width, destination=(), **_ends(box),
                                   size=self.rooms[work.core].bytes_of(box), transfer_id=next(self.transfers))
        return own[box]

    # -- what workloads read -------------------------------------------------------------------------------------------
    def _add_weights(self, work: Work) -> None:
        """Add the block of DRAM that holds a convolution's weights, and their room in the buffer."""
        core, room = self.layers[work.layer].core, self.rooms[work.core]
        if not isinstance(core, Convolution):
            return
        shape = room.plan.shapes[work.layer]
        box = Box((work.box.lower[1], 0, 0, 0), (work.box.upper[1], core.input.channels // core.group - 1,
                                                 *(size - 1 for size in core.window.kernel)))
        size = (shape.weight_total + shape.scale_total) * self.arch.vector_bytes
        source = self._read(work, box, size, "weight", ())
        self.weights[_key(work)] = today.Weight(**_ends(box), size=size, transfer_id=(source.transfer_id,))
        ring = room.rings(work.layer).get("")
        if ring is not None:
            self.entries[work.core].append(Entry({**self._record((ring[0], size), box, "weight", (source,)),
                                                  "layer_name": work.output.name}, work.number, work.number))

    def _read(self, work: Work, box: Box, size: int, kind: Any, related: tuple[int, ...]) -> today.Source:
        """Return a new block that comes out of DRAM for a workload; the blocks that made it name it."""
        number = next(self.transfers)
        self.out[number] = today.DramOut(destination=(_reader(work),), **_ends(box), related_ifmap=related, size=size,
                                         transfer_id=number, type=kind)
        for other in related:
            written = self.into[other]
            self.into[other] = msgspec.structs.replace(written, related_ofmap=(*written.related_ofmap, number))
        return today.Source(core_id=DRAM, **_ends(box), size=size, transfer_id=number, type="DRAM")

    def _add_input(self, work: Work, var: Var, box: Box) -> None:
        """Add an ifmap of a workload, its room and where it comes from."""
        pinned = var.root in self.rooms[work.core].plan.residents
        entry = self._pinned(work, var) if pinned else self._streamed(work, var, box)
        entry.last, entry.readers = work.number, (*entry.readers, work.number)
        record = entry.record
        self.ifmaps[_key(work)].append(today.Ifmap(**{
            key: record[key] for key in ("align", "bitwidth", "lower", "size", "transfer_id", "upper")}))

    def _streamed(self, work: Work, var: Var, box: Box) -> Entry:
        """Return a new tensor that streams through a ring as one workload runs."""
        span, arrivals = self.rooms[work.core].span(var, box, work.layer), self.makers.arrivals(work.layer, var, box)
        source = self._read(work, box, span[1], "fmap", self._stored(arrivals))
        entry = Entry({**self._record(span, box, "ifmap", (source,)), "layer_name": work.output.name}, work.number,
                      work.number)
        self.entries[work.core].append(entry)
        return entry

    def _stored(self, arrivals: Iterable[Arrival]) -> tuple[int, ...]:
        """Return the blocks of DRAM that hold what arrives."""
        return tuple(self.pieces[_key(arrival.producer)][arrival.producer.box].transfer_id for arrival in arrivals)

    def _pinned(self, work: Work, var: Var) -> Entry:
        """Return a pinned tensor, which is one for all that read it on a core: it has what any of them reads.

        It has room from the first workload on that runs beside one that makes some of it, on whichever core."""
        works = self.works[work.core]
        box = hull(read for other in works for name, read in other.reads if name == var)
        arrivals = [*self.makers.arrivals(work.layer, var, box)]
        sources = (self._sent_again(work, var, box, arrivals) if var.root in self.through_dram else
                   tuple(self._from_core(work, arrival) for arrival in arrivals))
        record = self._record(self.rooms[work.core].span(var, box, work.layer), box, "ifmap", sources)
        entry = next((entry for entry in self.entries[work.core] if entry.record == record), None)
        if entry is None:
            begins = min((arrival.producer.layer for arrival in arrivals), default=work.layer)
            entry = Entry(record, next(other.number for other in works if other.layer >= begins), work.number)
            self.entries[work.core].append(entry)
        return entry

    def _sent_again(self, work: Work, var: Var, box: Box, arrivals: Sequence[Arrival]) -> tuple[today.Source]:
        """Return the block that comes out of DRAM for all workloads of a core that read the same of a pinned tensor."""
        related = self._stored(arrivals)
        key = work.core, var, related
        if key in self.blocks:
            block = self.out[self.blocks[key].transfer_id]
            self.out[block.transfer_id] = msgspec.structs.replace(
                block, destination=(*block.destination, _reader(work)))
        else:
            _, size = self.rooms[work.core].span(var, box, work.layer)
            self.blocks[key] = self._read(work, box, size, "fmap", related)
        return (self.blocks[key],)

    def _from_core(self, work: Work, arrival: Arrival) -> today.Source:
        """Return where a part of a pinned tensor comes from, and tell its producer who reads it."""
        producer = arrival.producer
        piece = self._piece(producer, arrival.sent)
        target = today.CoreDestination(core_id=work.core, workload_id=work.number)
        self.pieces[_key(producer)][arrival.sent] = msgspec.structs.replace(
            piece, destination=(*piece.destination, target))
        return today.Source(core_id=producer.core, layer_name=producer.output.name, **_ends(arrival.place),
                            size=piece.size, transfer_id=piece.transfer_id, type="core")

    # -- the records of workloads --------------------------------------------------------------------------------------
    def _workload(self, work: Work) -> today.Workload:
        layer, weight, room = self.layers[work.layer], self.weights.get(_key(work)), self.rooms[work.core]
        cycles = self.times[work.core][work.layer] if work.is_last else 0
        padding = _padding(layer, work)
        column = (self.lanes + 1) * self.arch.vector_bytes
        return today.Workload(
            buffer=tuple(self._tensor(number, entry, work.number) for number, entry in enumerate(
                self.entries[work.core]) if entry.first <= work.number <= entry.last),
            ifmap=tuple(self.ifmaps[_key(work)]), layer_name=work.output.name,
            layer_type="vp" if isinstance(layer.core, Load) else "pe", ofmap=tuple(self.pieces[_key(work)].values()),
            ofmap_size=room.bytes_of(work.box), ring_buffer_info=tuple(room.rings(work.layer).values()),
            tile_info=tiles_of(room.plan.shapes[work.layer], room.plan.plans[work.layer].tiling, work, cycles,
                               padding) if work.is_last else {},
            tile_padding_tblr=padding, time=cycles, **({} if weight is None else {"weight": weight}),
            wl0_buffer=() if weight is None else (today.WeightBuffer(
                address=0, align=self.lanes, bitwidth=self.arch.number.width, layer_name=work.output.name,
                size=column, source="CORE", tensor_order=None, transfer_id=weight.transfer_id),),
            workload=(work.box.lower, work.box.upper), workload_id=work.number)  # type: ignore[arg-type]

    def _tensor(self, number: int, entry: Entry, workload: int) -> today.Tensor:
        current: dict[str, Any] = {"cur_wl_ifmap": True} if workload in entry.readers else {}
        return today.Tensor(**entry.record, **current, newly_added=workload == entry.first, tensor_id=number,
                            tensor_order=number if entry.record["type"] != "ofmap" else None)


def _key(work: Work) -> tuple[int, int]:
    return work.core, work.number


def _reader(work: Work) -> today.Reader:
    return today.Reader(core_id=work.core, layer_name=work.output.name, workload_id=work.number)


def _ends(box: Box) -> dict[str, Any]:
    return {"lower": box.lower, "upper": box.upper}


def _padding(layer: Layer, work: Work) -> tuple[int, int, int, int]:
    """Return the padding above, below, left and right of a workload's input: the image's, at the image's ends."""
    pads, (_, _, *first), (_, _, *last) = layer.core.window.pads, *work.box
    ends = [at == size - 1 for at, size in zip(last, work.output.size, strict=True)]
    return (pads[0] * (first[0] == 0), pads[0] * ends[0], pads[1] * (first[1] == 0), pads[1] * ends[1])
