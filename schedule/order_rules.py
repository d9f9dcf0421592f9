# SPDX-License-Identifier: Apache-2.0
"""Rules about the order of workloads: each comes to its turn."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

from weft.schedule.faults import Fault
from weft.schedule.model import Schedule, WorkloadId

Event = WorkloadId | int
"""A workload has ended, or a block of DRAM is there, by its transfer."""


def nobody_waits_for_ever(schedule: Schedule) -> Iterator[Fault]:
    """No workload waits, by way of others, for itself.

    A workload waits for the one before it on its core and for those that make what it reads, through DRAM too. Where it
    sends to another core, it ends when there is room: when the workload before the first snapshot that has the transfer
    has ended there.
    """
    waits: dict[Event, set[Event]] = {workload.id: set() for workload in schedule.workloads()}
    waits.update((block.transfer, set(schedule.producers[block.transfer])) for block in schedule.reads)
    for workloads in schedule.cores.values():
        for before, workload in zip(workloads, workloads[1:], strict=False):
            waits[workload.id].add(before.id)
    for workload in schedule.workloads():
        for transfer in workload.listed(False):
            sender = schedule.sent.get(transfer)
            waits[workload.id].add(sender[0].id if sender else transfer)
    for producer, keeper in _rooms(schedule):
        waits[producer].add(keeper)
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError as error:
        circle = [event for event in reversed(error.args[1]) if isinstance(event, WorkloadId)]
        yield Fault("deadlock", " waits for ".join(f"({workload})" for workload in circle[:8]),
                    "an order of workloads in which each comes to its turn", circle[0], key="workload_id")


def _rooms(schedule: Schedule) -> Iterator[tuple[WorkloadId, WorkloadId]]:
    """Yield who sends to another core, and the workload there that must have ended before there is room."""
    for core, workloads in schedule.cores.items():
        seen: set[int] = set()
        for index, workload in enumerate(workloads):
            new = {transfer for tensor in workload.buffer for transfer in tensor.transfers} - seen
            seen |= new
            for transfer in new & schedule.sent.keys() if index else ():
                producer = schedule.sent[transfer][0].id
                if producer.core != core:
                    yield producer, workloads[index - 1].id


def own_results_are_kept(schedule: Schedule) -> Iterator[Fault]:
    """Require that what a core makes for itself has room as it is made.

    As an ofmap, or as the ifmap that it becomes."""
    for workload in schedule.workloads():
        kept = {transfer for tensor in workload.buffer for transfer in tensor.transfers}
        has_room = any(tensor.kind == "ofmap" and tensor.layer in (None, workload.layer) and schedule.dialect == "today"
                       for tensor in workload.buffer)
        for piece in workload.pieces:
            own = any(target.workload is not None and target.workload.core == workload.id.core
                      for target in piece.targets)
            if own and piece.transfer not in kept and not has_room:
                yield Fault("room", "no room in the buffer for what this core reads again", "the tensor in the "
                            "snapshot", workload.id, workload.layer, piece.transfer, "buffer")


def orders_are_one_tensors(schedule: Schedule) -> Iterator[Fault]:
    """Require that a tensor has one number and one place in the queue to DRAM, in all snapshots of its core."""
    for workloads in schedule.cores.values():
        known: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        for workload in workloads:
            for tensor in workload.buffer:
                if tensor.tensor_id is None:
                    continue
                now = tensor.order, tensor.transfers
                before = known.setdefault(tensor.tensor_id, now)
                if before != now:
                    yield Fault("tensor ids", f"tensor {tensor.tensor_id} with order {now[0]} and transfers "
                                f"{list(now[1])}", f"order {before[0]} and transfers {list(before[1])}, as before",
                                workload.id, tensor.layer, tensor.transfer, "tensor_id")
