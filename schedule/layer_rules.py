# SPDX-License-Identifier: Apache-2.0
"""Rules about layers, workloads and tiles, each alone: mesh, numbers, boxes, weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.schedule.boxes import Box, fault_of_cover, hull
from weft.schedule.faults import Fault
from weft.schedule.model import Schedule, Workload, WorkloadId

WEIGHTED = ("conv2d", "fc")
"""Kinds of layers of the older dialect that have weights."""
LOOPS = frozenset("NKCHWRS")


def cores_are_of_the_mesh(schedule: Schedule) -> Iterator[Fault]:
    """Cores have the numbers of the mesh's places."""
    if schedule.dialect == "today":
        places = set(range(schedule.xlen * schedule.ylen))
    else:
        places = {y * (schedule.xlen + 2) + x + 1 for y in range(schedule.ylen) for x in range(schedule.xlen)}
    for core in schedule.cores:
        if core not in places:
            yield Fault("mesh", f"core {core}", f"a core of a mesh of {schedule.xlen} x {schedule.ylen}: "
                        f"{', '.join(map(str, sorted(places)[:16]))}", key=str(core))


def workloads_ascend(schedule: Schedule) -> Iterator[Fault]:
    """Workloads of a core have ascending numbers, in the older dialect different ones on all cores."""
    owner: dict[int, int] = {}
    for core, workloads in schedule.cores.items():
        before = -1
        for workload in workloads:
            number = workload.id.number
            if number <= before:
                yield Fault("workload order", f"workload {number} behind workload {before}",
                            "numbers that ascend on a core", workload.id, key="workload_id")
            elif schedule.dialect == "older" and owner.setdefault(number, core) != core:
                yield Fault("workload order", f"workload {number} on core {owner[number]} too",
                            "a number that no other core has", workload.id, key="workload_id")
            before = number


def boxes_make_up_layers(schedule: Schedule) -> Iterator[Fault]:
    """Require that the boxes of a layer's workloads hold each element of its ofmap once."""
    for layer, workloads in schedule.layers.items():
        whole = hull(workload.box for workload in workloads)
        wrong = fault_of_cover((workload.box for workload in workloads), Box((0, 0, 0, 0), whole.upper))
        if wrong is not None:
            point, count = wrong
            holders = [workload.id for workload in workloads if workload.box.holds(point)]
            yield Fault("layer boxes", f"element {list(point)} in {count} workloads{_names(holders)}",
                        f"each element of the ofmap of {list(Box((0, 0, 0, 0), whole.upper).sizes)} in one workload",
                        holders[-1] if holders else workloads[0].id, layer, key="workload")


def _names(holders: Sequence[WorkloadId]) -> str:
    return f" ({'; '.join(map(str, holders[:4]))})" if holders else ""


def layers_are_alike(schedule: Schedule) -> Iterator[Fault]:
    """All workloads of a layer are of one kind, with weights or without."""
    for layer, workloads in schedule.layers.items():
        first = workloads[0]
        for workload in workloads:
            if workload.kind != first.kind:
                yield Fault("layer kinds", f"{workload.kind}, and {first.kind} at {first.id}", "one kind for a layer",
                            workload.id, layer, key="layer_type")
            elif (workload.weight is None) != (first.weight is None):
                yield Fault("layer kinds", _weights(workload) + f", and {_weights(first)} at {first.id}",
                            "weights in all workloads of a layer, or in none", workload.id, layer, key="weight")
        if schedule.dialect == "older" and (first.weight is not None) != (first.kind in WEIGHTED):
            yield Fault("layer kinds", f"{first.kind} {_weights(first)}", f"weights for {' and '.join(WEIGHTED)} alone",
                        first.id, layer, key="weight")


def _weights(workload: Workload) -> str:
    return "with weights" if workload.weight else "without weights"


def weights_are_of_the_box(schedule: Schedule) -> Iterator[Fault]:
    """Weights are those of the workload's output channels.

    Today's description says [K, C, R, S] of their axes, and its example has [1, K, C, R x S]: a file keeps to one.
    """
    weighted = [(workload, workload.weight.box) for workload in schedule.workloads() if workload.weight]
    wrong = {axis: [pair for pair in weighted if _channels(pair[1], axis) != _channels(pair[0].box, 1)]
             for axis in (0, 1)}
    for workload, box in min(wrong.values(), key=len) if schedule.dialect == "today" else wrong[0]:
        yield Fault("weight channels", f"weights {box}", f"those of output channels {_channels(workload.box, 1)}",
                    workload.id, workload.layer, key="weight")


def _channels(box: Box, axis: int) -> list[int]:
    return [box.lower[axis], box.upper[axis]]


def ofmap_sizes_fit(schedule: Schedule) -> Iterator[Fault]:
    """Require that the size of an ofmap is that of its box: eight bits an element, in today's dialect at least that."""
    for workload in schedule.workloads():
        least = workload.box.volume * 8
        if workload.ofmap_bits < least or (schedule.dialect == "older" and workload.ofmap_bits != least):
            yield Fault("sizes", f"{workload.ofmap_bits} bits", f"{least} bits for {workload.box.volume} elements",
                        workload.id, workload.layer, key="ofmap_size")


def tiles_make_up_workloads(schedule: Schedule) -> Iterator[Fault]:
    """Tiles are of the workload's layer, hold each element of its box once, and walk each loop once."""
    for workload in schedule.workloads():
        for tile in workload.tiles:
            if tile.layer != workload.layer:
                yield Fault("tiles", f"layer {tile.layer}", f"the workload's layer {workload.layer}", workload.id,
                            key=f"tile_info.{tile.name}.layer_name")
            if len(set(tile.loop_order)) != len(tile.loop_order) or not set(tile.loop_order) <= LOOPS:
                yield Fault("tiles", tile.loop_order, f"different letters of {''.join(sorted(LOOPS))}", workload.id,
                            key=f"tile_info.{tile.name}.loop_order")
        wrong = fault_of_cover((tile.ofmap for tile in workload.tiles), workload.box) if workload.tiles else None
        if wrong is not None:
            point, count = wrong
            yield Fault("tiles", f"element {list(point)} in {count} tiles", f"each element of {workload.box} in one "
                        "tile", workload.id, workload.layer, key="tile_info")
