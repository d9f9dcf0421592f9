# SPDX-License-Identifier: Apache-2.0
"""Rules about buffers: what a workload needs is there, comes from whom it says, fits, and overlaps nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from weft.schedule.boxes import Box, fault_of_cover
from weft.schedule.faults import Fault
from weft.schedule.model import DRAM, Ifmap, Schedule, Source, Tensor, Workload

KIB_BITS = 8192
OVERLAYS = ("element_wise",)
"""Kinds of layers of the older dialect whose ifmap is several tensors on each other."""


def ifmaps_are_delivered(schedule: Schedule) -> Iterator[Fault]:
    """Each element of a workload's ifmap comes once into the buffer, by the transfers that the workload lists."""
    for workload in schedule.workloads():
        current = [tensor for tensor in workload.buffer if tensor.kind == "ifmap"
                   and (tensor.is_current or tensor.reader == workload.id)]
        if len(current) != len(workload.ifmaps):
            yield Fault("ifmap", f"{len(current)} tensors in the buffer for {len(workload.ifmaps)} ifmaps",
                        "one for each", workload.id, workload.layer, key="buffer")
            continue
        left = list(current)
        for ifmap in workload.ifmaps:
            tensor = next((entry for entry in left if entry.box == ifmap.box
                           and sorted(entry.transfers) == sorted(ifmap.transfers)), None)
            if tensor is None:
                yield Fault("ifmap", f"no tensor of range {ifmap.box} with transfers {list(ifmap.transfers)}",
                            "one in the buffer", workload.id, workload.layer, ifmap.transfer, "ifmap")
                continue
            left.remove(tensor)
            yield from _delivery_faults(workload, tensor)


def _delivery_faults(workload: Workload, tensor: Tensor) -> Iterator[Fault]:
    times = 1
    if workload.kind in OVERLAYS:
        times = max(1, sum(source.place.volume for source in tensor.sources) // tensor.box.volume)
    wrong = fault_of_cover((source.place for source in tensor.sources), tensor.box, times)
    if wrong is not None:
        point, count = wrong
        holders = [source.transfer for source in tensor.sources if source.place.holds(point)]
        yield Fault("ifmap", f"element {list(point)} delivered {count} times (transfers {holders[:8]})",
                    f"each element of {tensor.box} {'once' if times == 1 else f'{times} times'}", workload.id,
                    workload.layer, holders[-1] if holders else tensor.transfer, "source")


def weights_are_there(schedule: Schedule) -> Iterator[Fault]:
    """Require that a workload's weights are in its buffer as it starts, or come straight into WL0."""
    for workload in schedule.workloads():
        if workload.weight is None:
            continue
        transfers = set(workload.weight.transfers)
        kept = [tensor for tensor in workload.buffer if tensor.kind == "weight"
                and transfers & set(tensor.transfers)]
        direct = [place for place in workload.weight_buffer if transfers & set(place.transfers)]
        if not kept and not direct:
            yield Fault("weights", "no weights in the buffer for this workload", "those that it lists", workload.id,
                        workload.layer, workload.weight.transfers[0] if transfers else None, "buffer")
        for tensor in kept:
            if tensor.box != workload.weight.box and len(transfers) == 1:
                yield Fault("weights", f"range {tensor.box} in the buffer", f"{workload.weight.box}, the workload's",
                            workload.id, workload.layer, workload.weight.transfers[0], "buffer")


def sources_are_senders(schedule: Schedule) -> Iterator[Fault]:
    """Require that a tensor's sources are its transfers, each from the core, layer and range that send it."""
    for workload in schedule.workloads():
        for tensor in workload.buffer:
            if tensor.kind == "ofmap":
                continue
            named = [source.transfer for source in tensor.sources]
            if sorted(named) != sorted(tensor.transfers):
                yield Fault("sources", f"sources {named} and transfers {list(tensor.transfers)}", "the same ones",
                            workload.id, tensor.layer, tensor.transfer, "source")
            for source in tensor.sources:
                yield from _source_faults(schedule, workload, tensor, source)


def _source_faults(schedule: Schedule, workload: Workload, tensor: Tensor, source: Source) -> Iterator[Fault]:
    sender, piece = schedule.sent.get(source.transfer, (None, None))
    block = schedule.read.get(source.transfer)
    core, sent = (sender.id.core, piece.box) if sender and piece else (DRAM, block.box if block else None)
    if sent is None or core != source.core:
        yield Fault("sources", f"from {_core(source.core)}", "a transfer of the file" if sent is None else _core(core),
                    workload.id, tensor.layer, source.transfer, "source")
        return
    if not _same_range(source, sent, schedule.dialect == "today" and core != DRAM):
        yield Fault("sources", f"range {source.box or source.place}", f"{sent}, what {_core(core)} sends", workload.id,
                    tensor.layer, source.transfer, "source")
    bits = piece.size_bits if piece else block.size_bits if block else 0
    if source.size_bits != bits and (schedule.dialect == "older" or core == DRAM):
        yield Fault("sizes", f"{source.size_bits} bits", f"{bits} bits, what {_core(core)} sends", workload.id,
                    tensor.layer, source.transfer, "size")
    layers = schedule.sources.get(source.transfer, frozenset())
    if source.layer is not None and not (source.layer in layers if layers else source.layer not in schedule.layers):
        yield Fault("sources", f"layer {source.layer}", ", ".join(sorted(layers)) or "a name that is no layer's",
                    workload.id, tensor.layer, source.transfer, "layer_name")


def _same_range(source: Source, sent: Box, may_shift: bool) -> bool:
    """Whether a source has the range that is sent; in a tensor that joins several, its channels may be others."""
    if source.box is not None:
        return source.box == sent
    place = source.place
    return place == sent or (may_shift and place.sizes == sent.sizes and place.shifted(
        sent.lower[1] - place.lower[1]) == sent)


def _core(core: int) -> str:
    return "DRAM" if core == DRAM else f"core {core}"


# -- room --------------------------------------------------------------------------------------------------------------
def blocks_fit_sizes(schedule: Schedule) -> Iterator[Fault]:
    """Where there are no addresses, a tensor's block is its size in KiB; an ofmap on its way takes what it likes."""
    for workload in schedule.workloads():
        for tensor in workload.buffer:
            needed = -(-tensor.size_bits // KIB_BITS)
            if tensor.block_kib is not None and tensor.kind != "ofmap" and tensor.block_kib != needed:
                yield Fault("room", f"{tensor.block_kib} KiB", f"{needed} KiB for {tensor.size_bits} bits", workload.id,
                            tensor.layer, tensor.transfer, "block")


def ofmaps_have_room(schedule: Schedule) -> Iterator[Fault]:
    """Room for an ofmap is of the workload's own one; in the older dialect it is there for all that goes to DRAM."""
    for workload in schedule.workloads():
        rooms = [tensor for tensor in workload.buffer if tensor.kind == "ofmap" and tensor.layer == workload.layer]
        stored = any(target.workload is None for piece in workload.pieces for target in piece.targets)
        if schedule.dialect == "older" and (len(rooms) > 1 or (stored and not rooms)):
            yield Fault("room", f"{len(rooms)} rooms for the ofmap", "one where it goes to DRAM", workload.id,
                        workload.layer, key="buffer")
        for tensor in rooms if schedule.dialect == "older" else ():
            if (tensor.box, tensor.size_bits) != (workload.box, workload.ofmap_bits):
                yield Fault("room", f"range {tensor.box} of {tensor.size_bits} bits", f"{workload.box} of "
                            f"{workload.ofmap_bits} bits, the workload's ofmap", workload.id, workload.layer,
                            key="buffer")


def tensors_do_not_overlap(schedule: Schedule) -> Iterator[Fault]:
    """Tensors with addresses lie in the buffer, within one ring, on top of no other."""
    if schedule.buffer_bytes is None:
        return
    for workload in schedule.workloads():
        rings = sorted(workload.rings)
        for (base, size), (following, _) in pairwise([*rings, (schedule.buffer_bytes, 0)]):
            if base + size > following:
                yield Fault("room", f"a ring of {size} bytes at {base}", f"an end at {following} bytes or before",
                            workload.id, key="ring_buffer_info")
        spans = [(span, tensor) for tensor in workload.buffer for span in _spans(tensor, rings, schedule.buffer_bytes)]
        for tensor in workload.buffer:
            if not _spans(tensor, rings, schedule.buffer_bytes):
                yield Fault("room", f"{tensor.size_bits // 8} bytes at {tensor.address}",
                            f"a beginning within a ring, or bytes within a buffer of {schedule.buffer_bytes} bytes",
                            workload.id, tensor.layer, tensor.transfer, "address")
        yield from _overlaps(workload, spans)


def _spans(tensor: Tensor, rings: Sequence[tuple[int, int]], depth: int) -> list[tuple[int, int]]:
    """Return the bytes (from, to) that a tensor takes.

    Two spans where it goes round the end of its ring, the ring where it is larger and streams through it, none where
    it does not fit."""
    address, size = tensor.address or 0, tensor.size_bits // 8
    base, length = next((ring for ring in reversed(rings) if ring[0] <= address), (0, 0 if rings else depth))
    end = address + size
    if address >= base + length or (size > length and not rings):
        return []
    if size > length:
        return [(base, base + length)]
    return [(address, end)] if end <= base + length else [(address, base + length), (base, end - length)]


def _overlaps(workload: Workload, spans: Sequence[tuple[tuple[int, int], Tensor]]) -> Iterator[Fault]:
    ordered = sorted(spans, key=lambda entry: entry[0])
    last: tuple[tuple[int, int], Tensor] | None = None
    for span, tensor in ordered:
        if last is not None and span[0] < last[0][1]:
            yield Fault("overlap", f"bytes {list(span)} on bytes {list(last[0])} of transfers "
                        f"{list(last[1].transfers)}", "bytes of its own", workload.id, tensor.layer,
                        tensor.transfer, "address")
        if last is None or span[1] > last[0][1]:
            last = span, tensor


def sizes_hold_elements(schedule: Schedule) -> Iterator[Fault]:
    """Require that a tensor with a width of its elements has bytes for all of them, its channels aligned."""
    if schedule.dialect == "older":
        return
    for workload in schedule.workloads():
        maps: list[Ifmap | Tensor] = [*workload.ifmaps, *(entry for entry in workload.buffer if entry.kind != "weight")]
        for tensor in maps:
            batch, channels, rows, columns = tensor.box.sizes
            least = batch * -(-channels // tensor.align) * tensor.align * rows * columns * tensor.bitwidth
            if tensor.size_bits < least:
                yield Fault("sizes", f"{tensor.size_bits // 8} bytes", f"at least {-(-least // 8)} bytes for "
                            f"{tensor.box} of {tensor.bitwidth} bits, channels aligned to {tensor.align}", workload.id,
                            workload.layer, tensor.transfer, "size")


def weight_places_do_not_overlap(schedule: Schedule) -> Iterator[Fault]:
    """Weights in WL0 have bytes of their own, and come by transfers of weights."""
    for workload in schedule.workloads():
        ordered = sorted(workload.weight_buffer, key=lambda place: (place.address, place.size))
        for place, following in zip(ordered, ordered[1:], strict=False):
            if place.address + place.size > following.address:
                yield Fault("overlap", f"bytes from {following.address} on those of transfers {list(place.transfers)}",
                            "bytes of its own", workload.id, following.layer, following.transfer,
                            "wl0_buffer")
        for place in ordered:
            for transfer in place.transfers:
                block = schedule.read.get(transfer)
                if block is None or not block.is_weight:
                    yield Fault("weights", "a transfer that brings no weights", "one of -1.out of type weight",
                                workload.id, place.layer, transfer, "wl0_buffer")


# -- over time ---------------------------------------------------------------------------------------------------------
def tensors_stay(schedule: Schedule) -> Iterator[Fault]:
    """Require that a tensor that no DRAM can bring again stays in the buffer, where it is, until its reader has run."""
    for core, workloads in schedule.cores.items():
        last: dict[object, tuple[int, Tensor]] = {}
        for index, workload in enumerate(workloads):
            counts = Counter(tensor.key for tensor in workload.buffer)
            for tensor in workload.buffer:
                if counts[tensor.key] > 1:
                    yield Fault("snapshots", f"{counts[tensor.key]} times in the buffer", "once", workload.id,
                                tensor.layer, tensor.transfer, "buffer")
                before = last.get(tensor.key)
                yield from _stay_faults(workload, tensor, before, index)
                yield from _reader_faults(schedule, core, workload, tensor)
            last.update((tensor.key, (index, tensor)) for tensor in workload.buffer)


def _stay_faults(workload: Workload, tensor: Tensor, before: tuple[int, Tensor] | None,
                 index: int) -> Iterator[Fault]:
    was_there = before is not None and before[0] == index - 1
    transfer = tensor.transfer
    if before is not None and not was_there and any(source.core != DRAM for source in tensor.sources):
        yield Fault("snapshots", "back in the buffer, from which it was gone", "a tensor that stays until it is read",
                    workload.id, tensor.layer, transfer, "buffer")
    if was_there and before is not None and before[1].address != tensor.address:
        yield Fault("snapshots", f"address {tensor.address}", f"{before[1].address}, where it was before", workload.id,
                    tensor.layer, transfer, "address")
    if tensor.is_new is not None and tensor.is_new == was_there:
        yield Fault("snapshots", str(tensor.is_new).lower(), "true for a tensor that was not in the snapshot before, "
                    "else false", workload.id, tensor.layer, transfer, "newly_added")


def _reader_faults(schedule: Schedule, core: int, workload: Workload, tensor: Tensor) -> Iterator[Fault]:
    """Require that an ifmap in the buffer is for a workload that has still to run, and has its range."""
    if tensor.reader is None:
        return
    reader = schedule.by_id.get(tensor.reader)
    if reader is None or reader.id < workload.id:
        yield Fault("snapshots", f"an ifmap for {tensor.reader}", f"one for a workload of core {core} that has "
                    "still to run", workload.id, tensor.layer, tensor.transfer, "workload_id")
    elif tensor.layer != reader.layer or all(ifmap.box != tensor.box for ifmap in reader.ifmaps):
        yield Fault("snapshots", f"layer {tensor.layer}, range {tensor.box}",
                    f"{reader.layer}, range {reader.ifmaps[0].box}, the ifmap of {reader.id}", workload.id,
                    tensor.layer, tensor.transfer, "buffer")
