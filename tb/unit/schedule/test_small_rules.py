# SPDX-License-Identifier: Apache-2.0
"""Small rules of schedules, each by itself: sizes in bits, and who waits for room on which core."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.compiler.memory.allocation import Kept
from weft.hw.contract.arch import Arch
from weft.schedule import buffer_rules, layer_rules, order_rules, transfer_rules
from weft.schedule.boxes import Box
from weft.schedule.model import WorkloadId
from weft.schedule.read import schedule_of
from weft.schedule.records import Count, Record, converted
from weft.schedule.room import Room
from weft.support.errors import WeftError
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


class Inner(Record):
    size: Count


class Outer(Record):
    name: str
    parts: tuple[Inner, ...]


def test_a_message_names_the_keys_of_the_record_in_which_the_fault_lies() -> None:
    for values, said in (({"name": "a", "parts": [{"size": 1}, {"size": 2, "high": 3}]}, "allowed: keys size; "),
                         ({"name": "a", "parts": [], "high": 3}, "allowed: keys name, parts; ")):
        with pytest.raises(WeftError, match="an unknown key high; " + said):
            converted(values, Outer, "the file")


def channels(low: int, high: int) -> Box:
    return Box((0, low, 0, 0), (0, high, 3, 3))


def test_an_ifmap_joins_layers_behind_all_channels_of_those_before() -> None:
    """Layer a has 8 channels on two cores, so that b's first one is the ninth."""
    made = {1: ("a", channels(0, 3)), 2: ("a", channels(4, 7)), 3: ("b", channels(0, 1))}
    parts = {number: SimpleNamespace(layer=layer, box=box) for number, (layer, box) in made.items()}
    schedule: Any = SimpleNamespace(dialect="today", by_id=parts, layers={
        name: [part for part in parts.values() if part.layer == name] for name in "ab"})
    written: Any = [SimpleNamespace(workload=number, box=part.box) for number, part in parts.items()]
    block: Any = SimpleNamespace(box=channels(0, 9))
    joined, _ = transfer_rules._places(schedule, block, written, ["a", "b"])
    assert joined == [channels(0, 3), channels(4, 7), channels(8, 9)]


@pytest.mark.parametrize(("address", "size", "rings", "spans"), [
    (8, 8, [], [(8, 16)]), (8, 24, [], [(8, 32)]), (8, 33, [], []), (32, 1, [], []),
    (24, 8, [(8, 8), (16, 16)], [(24, 32)]), (24, 12, [(16, 16)], [(24, 32), (16, 20)]),
    (24, 17, [(16, 16)], [(16, 32)]), (4, 1, [(8, 8)], [])])
def test_a_tensor_takes_all_of_its_bytes(address: int, size: int, rings: list[tuple[int, int]],
                                         spans: list[tuple[int, int]]) -> None:
    """Of a buffer of 32: in one piece, round the end of its ring, the whole ring where it is larger, or nowhere."""
    tensor: Any = SimpleNamespace(address=address, size_bits=BYTE_BITS * size)
    assert buffer_rules._spans(tensor, rings, 32) == spans


def test_of_workloads_that_make_an_element_the_last_is_at_fault() -> None:
    parts = [SimpleNamespace(id=WorkloadId(core, 0), box=channels(0, 3)) for core in range(3)]
    schedule: Any = SimpleNamespace(layers={"a": parts})
    fault, = layer_rules.boxes_make_up_layers(schedule)
    assert fault.workload == WorkloadId(2, 0)
