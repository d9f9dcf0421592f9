# SPDX-License-Identifier: Apache-2.0
"""Rules about transfers: both ends, equal ranges, every element of an ifmap once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from weft.schedule.boxes import Box, fault_of_cover
from weft.schedule.faults import Fault
from weft.schedule.model import DRAM, Delivery, DramRead, DramWrite, Piece, Schedule, Target, Workload, WorkloadId

AT_DRAM = WorkloadId(DRAM, 0)
"""The place of a fault in DRAM's own list."""


def transfers_begin_once(schedule: Schedule) -> Iterator[Fault]:
    """No two pieces or blocks of DRAM begin one transfer, and no two blocks end one."""
    begun = Counter(piece.transfer for workload in schedule.workloads() for piece in workload.pieces)
    begun.update(block.transfer for block in schedule.reads)
    for transfer, count in begun.items():
        if count > 1:
            owner = schedule.sent.get(transfer)
            yield Fault("transfer ids", f"{count} places that send it", "one: an id is one transfer's",
                        owner[0].id if owner else AT_DRAM, transfer=transfer, key="transfer_id")
    for transfer, count in Counter(block.transfer for block in schedule.writes).items():
        if count > 1:
            yield Fault("transfer ids", f"{count} blocks that go into DRAM by it", "one", AT_DRAM, transfer=transfer,
                        key="transfer_id")


# -- from a core -------------------------------------------------------------------------------------------------------
def pieces_are_sent(schedule: Schedule) -> Iterator[Fault]:
    """Pieces lie in their workload's box, go somewhere, and whoever gets one asks for it."""
    for workload in schedule.workloads():
        if not workload.pieces:
            yield Fault("ofmap", "no piece that goes anywhere", "a result that somebody reads", workload.id,
                        workload.layer, key="ofmap")
        for piece in workload.pieces:
            yield from _piece_faults(schedule, workload, piece)
        stored = [piece.box for piece in workload.pieces if any(target.workload is None for target in piece.targets)]
        wrong = fault_of_cover(stored, workload.box) if stored else None
        if wrong is not None:
            yield Fault("ofmap", f"element {list(wrong[0])} in {wrong[1]} pieces that go to DRAM",
                        f"each element of {workload.box} in one, or no piece at all", workload.id, workload.layer,
                        key="ofmap")


def _piece_faults(schedule: Schedule, workload: Workload, piece: Piece) -> Iterator[Fault]:
    if not piece.box.within(workload.box):
        yield Fault("ofmap", f"range {piece.box}", f"a part of the workload's box {workload.box}", workload.id,
                    workload.layer, piece.transfer, "ofmap")
    yield from _size_faults(schedule, piece.size_bits, piece.box, workload.id, piece.transfer)
    if not piece.targets or len({target.workload for target in piece.targets}) < len(piece.targets):
        yield Fault("destinations", "none" if not piece.targets else "one twice", "each destination once, at least one",
                    workload.id, workload.layer, piece.transfer, "destination")
    for target in piece.targets:
        if target.workload is not None:
            yield from _reader_faults(schedule, workload.id, piece.transfer, target, False)
    stored = next((target for target in piece.targets if target.workload is None), None)
    if stored is not None:
        yield from _stored_faults(schedule, workload, piece, stored)


def _size_faults(schedule: Schedule, bits: int, box: Box, where: WorkloadId, transfer: int) -> Iterator[Fault]:
    """Require that an element has eight bits, in today's dialect at least."""
    least = box.volume * 8
    if bits < least or (schedule.dialect == "older" and bits != least):
        yield Fault("sizes", f"{bits} bits", f"{least} bits for {box.volume} elements", where, transfer=transfer,
                    key="size")


def _reader_faults(schedule: Schedule, where: WorkloadId, transfer: int, target: Target,
                   is_weight: bool) -> Iterator[Fault]:
    """Whether the workload that a transfer goes to is there and lists it."""
    assert target.workload is not None
    reader = schedule.by_id.get(target.workload)
    if reader is None:
        yield Fault("destinations", f"{target.workload}, which is not there", "a workload of the file", where,
                    transfer=transfer, key="destination")
        return
    if Delivery(transfer, reader.id, is_weight) not in schedule.requests:
        yield Fault("destinations", f"{target.workload}, whose {'weight' if is_weight else 'ifmap'} does not list it",
                    "both ends of a transfer name it", where, transfer=transfer, key="destination")
    if target.layer is not None and target.layer != reader.layer:
        yield Fault("destinations", f"layer {target.layer}", f"{reader.layer}, the layer of {reader.id}", where,
                    transfer=transfer, key="layer_name")


def _stored_faults(schedule: Schedule, workload: Workload, piece: Piece, target: Target) -> Iterator[Fault]:
    """Whether DRAM has the block that a piece becomes, for the layer that it is said to be for."""
    block = schedule.written.get(piece.transfer)
    if block is None:
        yield Fault("DRAM", "no block that goes into DRAM by it", "one in -1.in", workload.id, workload.layer,
                    piece.transfer, "destination")
        return
    readers = {schedule.read[number].layer for number in block.related if number in schedule.read}
    if target.layer is not None and not (target.layer in readers if readers else target.layer not in schedule.layers):
        yield Fault("DRAM", f"layer {target.layer}", "a layer that reads it there" if readers else
                    "a name that is no layer's, for nobody reads it there", workload.id, workload.layer,
                    piece.transfer, "layer_name")


# -- DRAM --------------------------------------------------------------------------------------------------------------
def writes_are_pieces(schedule: Schedule) -> Iterator[Fault]:
    """Require that a block that goes into DRAM is the piece that the workload sends there, and its readers name it."""
    for block in schedule.writes:
        workload, piece = schedule.sent.get(block.transfer, (None, None))
        if workload is None or piece is None or all(target.workload is not None for target in piece.targets):
            yield Fault("DRAM", "no piece of an ofmap that goes to DRAM by it", f"one of {block.workload}", AT_DRAM,
                        transfer=block.transfer, key="in")
            continue
        if (workload.id, piece.box) != (block.workload, block.box):
            yield Fault("DRAM", f"{block.workload}, range {block.box}", f"{workload.id}, range {piece.box}", AT_DRAM,
                        transfer=block.transfer, key="in")
        if block.layer is not None and block.layer != workload.layer:
            yield Fault("DRAM", f"layer {block.layer}", f"{workload.layer}, the layer of {workload.id}", AT_DRAM,
                        transfer=block.transfer, key="layer_name")
        yield from _related_faults(schedule, block, "related_ofmap")


def _related_faults(schedule: Schedule, block: DramRead | DramWrite, key: str) -> Iterator[Fault]:
    """Blocks that go into DRAM and come out of it name each other."""
    if len(set(block.related)) < len(block.related):
        yield Fault("related blocks", f"{list(block.related)}", "each id once", AT_DRAM, transfer=block.transfer,
                    key=key)
    of_writes, of_reads = schedule.relations
    for number in block.related:
        pair, others = (((number, block.transfer), of_writes) if isinstance(block, DramRead)
                        else ((block.transfer, number), of_reads))
        if pair not in others:
            yield Fault("related blocks", f"transfer {number}, which does not name this one",
                        "blocks that name each other", AT_DRAM, transfer=block.transfer, key=key)


def reads_are_written(schedule: Schedule) -> Iterator[Fault]:
    """Require that what comes out of DRAM has readers, and was written once by the blocks that it names."""
    for block in schedule.reads:
        if not block.readers or len({reader.workload for reader in block.readers}) < len(block.readers):
            yield Fault("destinations", "one twice" if block.readers else "none", "each destination once, at least one",
                        AT_DRAM, transfer=block.transfer, key="destination")
        for reader in block.readers:
            yield from _reader_faults(schedule, AT_DRAM, block.transfer, reader, block.is_weight)
        if block.is_weight and block.related:
            yield Fault("related blocks", f"{list(block.related)}", "none for weights", AT_DRAM,
                        transfer=block.transfer, key="related_ifmap")
        elif not block.is_weight:
            yield from _size_faults(schedule, block.size_bits, block.box, AT_DRAM, block.transfer)
            yield from _related_faults(schedule, block, "related_ifmap")
            yield from _written_faults(schedule, block)


def _written_faults(schedule: Schedule, block: DramRead) -> Iterator[Fault]:
    writes = [schedule.written[number] for number in block.related if number in schedule.written]
    made = [write for write in writes if write.workload in schedule.by_id]
    if not made:
        return
    layers = dict.fromkeys(schedule.by_id[write.workload].layer for write in made)
    if schedule.dialect == "older" and len(layers) > 1:
        yield Fault("related blocks", f"blocks of layers {', '.join(layers)}", "blocks of one layer", AT_DRAM,
                    transfer=block.transfer, key="related_ifmap")
        return
    wrongs = [_wrong(block.box, places) for places in _places(schedule, block, made, list(layers))]
    if None not in wrongs:
        point, count = wrongs[0] or ((), 0)
        yield Fault("related blocks", f"element {list(point)} written {count} times by transfers {list(block.related)}",
                    f"each element of {block.box} once, and no block beside it", AT_DRAM, transfer=block.transfer,
                    key="related_ifmap")


def _wrong(whole: Box, places: Sequence[Box]) -> tuple[tuple[int, ...], int] | None:
    """Return the first element that is not written once, and how often it is.

    Or of a block that lies beside the whole its first element, and 0."""
    parts = list(map(whole.common, places))
    beside = next((place for place, part in zip(places, parts, strict=True) if part is None), None)
    return (beside.lower, 0) if beside else fault_of_cover(filter(None, parts), whole)


def _places(schedule: Schedule, block: DramRead, made: Sequence[DramWrite],
            layers: Sequence[str]) -> list[list[Box]]:
    """Return where written blocks may lie in a block that is read.

    As they are, or, in today's dialect, where the reader's ifmap joins the channels of several layers, moved by the
    channels of those before."""
    boxes = [write.box for write in made]
    if schedule.dialect == "older":
        return [boxes]
    before, offsets = 0, {}
    for layer in layers:
        offsets[layer] = before
        before += max(workload.box.upper[1] for workload in schedule.layers[layer]) + 1
    first = block.box.lower[1] - min(box.lower[1] for box in boxes)
    return [[box.shifted(offsets[schedule.by_id[write.workload].layer])
             for box, write in zip(boxes, made, strict=True)], [box.shifted(first) for box in boxes]]


# -- to a workload -----------------------------------------------------------------------------------------------------
def reads_are_sent(schedule: Schedule) -> Iterator[Fault]:
    """Every transfer that a workload lists is sent to it: weights out of DRAM, ifmaps from there or from a core."""
    for workload in schedule.workloads():
        for is_weight in (False, True):
            listed = workload.listed(is_weight)
            key = "weight" if is_weight else "ifmap"
            if is_weight and workload.weight and not listed:
                yield Fault("transfers", "no transfer", "a transfer that brings the weights", workload.id,
                            workload.layer, key=key)
            for transfer, count in Counter(listed).items():
                if count > 1:
                    yield Fault("transfers", f"listed {count} times", "each transfer once", workload.id, workload.layer,
                                transfer, key)
                if Delivery(transfer, workload.id, is_weight) not in schedule.sendings:
                    yield Fault("transfers", f"nobody who sends it to this workload as {key}",
                                "both ends of a transfer name it", workload.id, workload.layer, transfer, key)


def weights_are_what_is_read(schedule: Schedule) -> Iterator[Fault]:
    """Require that a block that brings a workload's weights alone has their range, and their size if it is told."""
    for workload in schedule.workloads():
        weight = workload.weight
        block = schedule.read.get(weight.transfers[0]) if weight and len(weight.transfers) == 1 else None
        if weight is None or block is None:
            continue
        if block.box != weight.box:
            yield Fault("weights", f"range {weight.box}", f"{block.box}, what DRAM sends", workload.id, workload.layer,
                        block.transfer, "weight")
        if weight.size_bits not in (None, block.size_bits):
            yield Fault("sizes", f"{weight.size_bits} bits", f"{block.size_bits} bits, what DRAM sends", workload.id,
                        workload.layer, block.transfer, "weight.size")


def last_producers_are_told(schedule: Schedule) -> Iterator[Fault]:
    """``max_workload_id`` is the highest workload that makes some of the ifmap, 0 where none does."""
    latest = {transfer: max(producer.number for producer in producers)
              for transfer, producers in schedule.producers.items() if producers}
    for workload in schedule.workloads():
        for ifmap in workload.ifmaps:
            made = [latest[transfer] for transfer in ifmap.transfers if transfer in latest]
            if ifmap.last_producer not in (None, max(made, default=0)):
                yield Fault("producers", str(ifmap.last_producer), f"{max(made, default=0)}, the last that makes some "
                            "of it", workload.id, workload.layer, key="ifmap.max_workload_id")
