# SPDX-License-Identifier: Apache-2.0
"""A schedule -> what the compiler takes of it: core and box of each workload, layer by layer."""

from __future__ import annotations

from weft.compiler.cores import AssignedLayer, Span
from weft.schedule.boxes import Box, hull
from weft.schedule.model import Schedule
from weft.support.errors import WeftError, explain

WITH_WEIGHTS = ("pe", "conv2d", "fc")
"""Kinds of workloads that may have weights."""


def assigned_layers(schedule: Schedule, cores: int) -> tuple[AssignedLayer, ...]:
    """Return the layers of a schedule, in the order of their first workloads.

    Raise WeftError for a mesh of more than ``cores`` and for a batch of several images."""
    if schedule.xlen * schedule.ylen > cores:
        raise WeftError(explain("schedule", f"a mesh of {schedule.xlen} x {schedule.ylen}", f"at most {cores} cores",
                                f"take a machine with more (--set cores={schedule.xlen * schedule.ylen}), or a "
                                "schedule of a smaller mesh"))
    found = []
    for name, workloads in schedule.layers.items():
        whole = hull(workload.box for workload in workloads)
        if whole.sizes[0] != 1:
            raise WeftError(explain(f"schedule, layer {name!r}", f"a batch of {whole.sizes[0]}", "one image",
                                    "schedule a batch of 1"))
        boxes = tuple((place_of(schedule, workload.id.core), *spans_of(workload.box)) for workload in workloads)
        _, channels, rows, columns = whole.upper
        first = min((workload.id.number, workload.id.core) for workload in workloads)
        found.append((first, AssignedLayer(name, (channels + 1, rows + 1, columns + 1), any(
            workload.kind in WITH_WEIGHTS and workload.weight is not None for workload in workloads), boxes)))
    return tuple(layer for _, layer in sorted(found, key=lambda entry: entry[0]))


def place_of(schedule: Schedule, core: int) -> int:
    """Return the number of the machine's core that stands for ``core`` of a schedule.

    It is the place in the schedule's mesh of xlen x ylen cores, row by row from 0 on. Numbers of the older dialect also
    count the columns of DRAM beside the mesh, which are left out here."""
    if schedule.dialect == "today":
        return core
    row, column = divmod(core - 1, schedule.xlen + 2)
    return row * schedule.xlen + column


def spans_of(box: Box) -> tuple[Span, Span, Span]:
    """Return the half-open ranges of channels, rows and columns of ``box``, whose own ranges include their ends."""
    channels, rows, columns = ((low, high + 1) for low, high in zip(box.lower[1:], box.upper[1:], strict=True))
    return channels, rows, columns
