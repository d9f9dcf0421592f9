# SPDX-License-Identifier: Apache-2.0
"""Small rules of schedules, each by itself: sizes in bits, and who waits for room on which core."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.compiler.memory.allocation import Kept
from weft.hw.contract.arch import Arch
from weft.schedule import order_rules
from weft.schedule.model import WorkloadId
from weft.schedule.read import schedule_of
from weft.schedule.room import Room
from weft.tb.bench import mesh_files

BYTE_BITS = 8


def test_a_feature_map_of_the_older_dialect_has_eight_bits_an_element() -> None:
    """That dialect does not say how many: they are those of the box."""
    schedule = schedule_of(mesh_files.older())
    found = [ifmap for workload in schedule.workloads() for ifmap in workload.ifmaps]
    assert found and all(ifmap.size_bits == BYTE_BITS * ifmap.box.volume for ifmap in found)
    kept = [tensor for workload in schedule.workloads() for tensor in workload.buffer if tensor.kind == "ifmap"]
    assert kept and all(tensor.size_bits == BYTE_BITS * tensor.box.volume for tensor in kept)


def workload(core: int, number: int, *transfers: int) -> Any:
    return SimpleNamespace(id=WorkloadId(core, number), buffer=[SimpleNamespace(transfers=transfers)])


def test_a_core_waits_for_room_on_another_one_alone() -> None:
    """What comes to a core's second workload needs its first one to end, unless the core makes it itself."""
    first = {0: [workload(0, 0), workload(0, 1, 7)], 1: [workload(1, 0, 9), workload(1, 1, 7, 8, 9)]}
    sent = {transfer: [SimpleNamespace(id=WorkloadId(core, 0))] for transfer, core in ((7, 0), (8, 1), (9, 0))}
    found = list(order_rules._rooms(SimpleNamespace(cores=first, sent=sent)))  # type: ignore[arg-type]
    assert found == [(WorkloadId(0, 0), WorkloadId(1, 0))], "9 came before, 8 and the first 7 are the core's own"


def test_a_part_of_a_pinned_tensor_lies_behind_the_tiles_that_are_kept_before_it() -> None:
    """A core keeps channel tiles 2 to 4; a Var that begins at tile 1 has its third tile second among them."""
    arch = Arch.load("tiny")
    kept = Kept(first_tile=2, tiles=3, first_pixel=0, pixels=6)
    plan = SimpleNamespace(residents={"root": SimpleNamespace(base=100, kept=kept)})
    var = SimpleNamespace(root="root", first_tile=1, height=2, width=3, tile_pixels=6)
    lanes = arch.array_size
    box = SimpleNamespace(lower=(0, 2 * lanes), upper=(0, 3 * lanes - 1))
    span = Room(plan, arch).span(var, box, 0)  # type: ignore[arg-type]
    assert span == ((100 + 6) * arch.vector_bytes, 6 * arch.vector_bytes)
