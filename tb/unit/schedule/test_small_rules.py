# SPDX-License-Identifier: Apache-2.0
"""Small rules of schedules, each by itself: sizes in bits, and who waits for room on which core."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from weft.compiler.errors import CompileError
from weft.compiler.memory.allocation import Kept
from weft.hw.contract.arch import Arch
from weft.schedule import buffer_rules, layer_rules, order_rules, transfer_rules
from weft.schedule.boxes import Box
from weft.schedule.dataflow import place_in_root
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


@pytest.mark.parametrize(("offset", "width", "step", "place"), [
    (0, 5, 1, (0, 0)), (12, 3, 1, (2, 2)), (12, 4, 1, None), (14, 1, 1, (2, 4)), (14, 2, 1, None), (0, 2, 2, None)])
def test_a_part_is_a_box_where_its_rows_end_with_those_of_the_whole(offset: int, width: int, step: int,
                                                                    place: tuple[int, int] | None) -> None:
    """The whole has rows of 5 pixels; the part begins at channel tile 3 of 4 lanes."""
    part = SimpleNamespace(root="whole", tile=3, offset=offset, pitch=5, step=step)
    var: Any = SimpleNamespace(name="part", width=width, part=part)
    box = Box((0, 0, 0, 0), (0, 3, 1, width - 1))
    if place is None:
        with pytest.raises(CompileError, match="with others between them"):
            place_in_root(var, box, 4)
    else:
        row, column = place
        assert place_in_root(var, box, 4) == Box((0, 12, row, column), (0, 15, row + 1, column + width - 1))


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


@pytest.mark.parametrize(("whole", "halves", "told"), [(1, 0, None), (2, 0, None), (3, 0, None), (0, 1, "once"),
                                                       (1, 1, "once"), (2, 1, "2 times")])
def test_each_operand_of_a_sum_is_delivered_as_a_whole(whole: int, halves: int, told: str | None) -> None:
    """A sum may have one operand, the other being a constant."""
    box = channels(0, 3)
    sources = [SimpleNamespace(place=each, transfer=1) for each in [box] * whole + [channels(0, 1)] * halves]
    part: Any = SimpleNamespace(kind="element_wise", id=WorkloadId(0, 0), layer="sum")
    tensor: Any = SimpleNamespace(sources=sources, box=box, transfer=1)
    found = [fault.allowed for fault in buffer_rules._delivery_faults(part, tensor)]
    assert found == ([] if told is None else [f"each element of {box} {told}"])


def test_a_message_says_which_workload_has_weights() -> None:
    both = [SimpleNamespace(id=WorkloadId(core, 0), kind="pe", weight=weight)
            for core, weight in enumerate((None, channels(0, 3)))]
    schedule: Any = SimpleNamespace(layers={"a": both}, dialect="today")
    fault, = layer_rules.layers_are_alike(schedule)
    assert fault.found.startswith("with weights, and without weights at ")


def ranges(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any], str, str]]:
    """Yield each range of a file: where it is, in names without numbers, its record and the keys of its ends."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.endswith("lower"):
                yield (*place, key), value, key, key.replace("lower", "upper")
            yield from ranges(inner, (*place, key.rstrip("0123456789")))
    elif isinstance(value, list):
        for inner in value:
            yield from ranges(inner, place)


@pytest.mark.parametrize("dialect", ["older", "today"])
def test_no_range_of_a_file_ends_before_it_begins(dialect: str) -> None:
    """Of rows, so that nothing but the range is wrong; weights of the older dialect have channels alone."""
    places = {place for place, *_ in ranges(getattr(mesh_files, dialect)())}
    assert len(places) >= 7
    for wanted in places:
        values = getattr(mesh_files, dialect)()
        _, record, lower, upper = next(found for found in ranges(values) if found[0] == wanted)
        if isinstance(record[lower], int):
            record[lower] = record[upper] + 1
        else:
            record[lower][2] = record[upper][2] + 1
        with pytest.raises(WeftError, match="that ends before it begins"):
            schedule_of(values)
