# SPDX-License-Identifier: Apache-2.0
"""Parts of reading and writing schedules, each by itself: dialects as they stand, tiles, rings, reads of one tensor."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from weft.compiler.layers.var import Var
from weft.compiler.memory.allocation import Kept
from weft.compiler.tiling.spans import Box as TileBox
from weft.hw.contract.arch import Arch
from weft.schedule import dataflow, read, tiles, write
from weft.schedule.boxes import Box
from weft.schedule.dataflow import Makers, Work
from weft.schedule.model import DRAM, Schedule, WorkloadId
from weft.schedule.read import dialect_of, schedule_of
from weft.schedule.records import Side, converted
from weft.schedule.room import Room
from weft.support.errors import WeftError
from weft.tb.bench import mesh_files

LANES = 4


def copied(values: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(values))
    return copy


# -- reading -----------------------------------------------------------------------------------------------------------
def test_todays_dialect_is_read_as_it_stands() -> None:
    """Widths and alignments that differ, and each reader's layer."""
    values = copied(mesh_files.today())
    works = [work for key, each in values.items() if key.isdigit() for work in each]
    for number, work in enumerate(works):
        for each in (*work["ifmap"], *work["buffer"]):
            each["bitwidth"], each["align"] = 1 + number % 8, 16 + number
    schedule = schedule_of(values)
    for work, found in zip(works, schedule.workloads(), strict=True):
        maps: list[Any] = [*found.ifmaps, *found.buffer]
        assert [(each.bitwidth, each.align, each.size_bits) for each in maps] == [
            (each["bitwidth"], each["align"], 8 * each["size"]) for each in (*work["ifmap"], *work["buffer"])]
        assert [(each.address, each.size) for each in found.weight_buffer] == [
            (each["address"], each["size"]) for each in work["wl0_buffer"]]
    assert [[(each.workload, each.layer) for each in block.readers] for block in schedule.reads] == [
        [((each["core_id"], each["workload_id"]), each["layer_name"]) for each in block["destination"]]
        for block in values["-1"]["out"]]


@pytest.mark.parametrize(("kind", "number", "core"), [("DRAM", 0, DRAM), ("DRAM", 2, DRAM), ("core", 2, 2)])
def test_a_source_is_dram_by_its_type(kind: str, number: int, core: int) -> None:
    """Whatever number stands beside it."""
    values = copied(mesh_files.older())
    for work in values["1"]:
        for each in work["buffer"]:
            for source in each.get("source", ()) if each["type"] == "ifmap" else ():
                source["type"], source["id"] = kind, number
    found = [source.core for work in schedule_of(values).cores[1] for each in work.buffer if each.kind == "ifmap"
             for source in each.sources]
    assert found and set(found) == {core}


def test_a_source_has_as_many_channels_as_it_becomes() -> None:
    for change in (-1, 1):
        values = copied(mesh_files.older())
        source = next(source for work in values["1"] for each in work["buffer"] if each["type"] == "ifmap"
                      for source in each["source"] if source["channel"][1] > source["channel"][0])
        source["channel"][1] += change
        with pytest.raises(WeftError, match="not as many as of"):
            schedule_of(values)


@pytest.mark.parametrize(("keys", "dialect"), [(("buffersize", "1"), "today"), (("0",), "today"), (("1",), "older")])
def test_the_dialect_is_todays_by_either_key(keys: tuple[str, ...], dialect: str) -> None:
    assert dialect_of(dict.fromkeys(keys)) == dialect


@pytest.mark.parametrize(("key", "is_core"), [("0", True), ("1", True), ("99999", True), ("00", False), ("01", False),
                                              ("100000", False), ("-2", False)])
def test_a_core_s_number_has_one_spelling(key: str, is_core: bool) -> None:
    assert bool(read.CORE_KEY.fullmatch(key)) is is_core


def test_the_most_workloads_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MOST_WORKLOADS", 3)
    read._check_cores({"0": [{}, {}], "1": [{}]})
    wrong: list[dict[str, Any]] = [{"0": [{}, {}], "1": [{}, {}]}, {"0": []}]
    for cores in wrong:
        with pytest.raises(WeftError, match="1 to 3 workloads"):
            read._check_cores(cores)


@pytest.mark.parametrize(("entry", "name"), [({"workload_id": 0}, "0"), ({}, "at place 7"), ([], "at place 7")])
def test_a_workload_is_named_by_its_number_or_its_place(entry: Any, name: str) -> None:
    assert read._name("1", 7, entry) == f"core 1, workload {name}"


@pytest.mark.parametrize(("side", "good"), [(0, False), (1, True), (256, True), (257, False)])
def test_sides_of_a_mesh(side: int, good: bool) -> None:
    if good:
        assert converted(side, Side, "mesh") == side
    else:
        with pytest.raises(WeftError):
            converted(side, Side, "mesh")


def test_what_a_block_carries_is_known_through_dram() -> None:
    """By who wrote it, and of what a core sends by itself."""
    def block(transfer: int, **more: Any) -> Any:
        return SimpleNamespace(transfer=transfer, **more)

    maker, other = WorkloadId(0, 1), WorkloadId(1, 2)
    own: Any = SimpleNamespace(id=maker, pieces=(block(1),))
    schedule = Schedule("today", 2, 1, 1, None, {0: (own,)},
                        (block(5, related=(3, 4)), block(6, related=())),
                        (block(3, workload=maker), block(4, workload=other)))
    assert schedule.producers == {1: {maker}, 5: {maker, other}, 6: set()}


# -- what layers read --------------------------------------------------------------------------------------------------
def var(name: str, channels: int = 8) -> Var:
    return Var(name, channels, 4, 4)


def test_two_pieces_of_a_tensor_are_read_as_the_box_around_them() -> None:
    x = var("x")
    pieces = [(x, TileBox((0, 1), (0, 2), (0, 4))), (x, TileBox((1, 2), (1, 3), (0, 4))),
              (x, TileBox((0, 2), (0, 0), (0, 4)))]
    assert dataflow._joined(pieces, LANES) == {x: Box((0, 0, 0, 0), (0, 7, 2, 3))}


def test_a_layer_reads_what_earlier_ones_made() -> None:
    x, whole = var("x"), Box((0, 0, 0, 0), (0, 7, 3, 3))
    works = [[Work(0, 0, 1, x, Box(whole.lower, (0, 3, 3, 3)), True, ()), Work(0, 1, 2, x, whole, True, ())]]
    makers = Makers(works, LANES)
    found = [[each.producer.layer for each in makers.arrivals(layer, x, whole)] for layer in (1, 2, 3)]
    assert found == [[], [1], [1, 2]]


# -- tiles -------------------------------------------------------------------------------------------------------------
def steps_of(*stages: tuple[TileBox, tuple[TileBox, ...]]) -> list[Any]:
    return [SimpleNamespace(stage=number, region=region, input_tile=own)
            for number, (region, inputs) in enumerate(stages) for own in inputs]


@pytest.mark.parametrize("outer", [False, True])
def test_tiles_tell_the_tiling(outer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer of 20 channels and 8 outputs on 4 x 6 pixels: rows are cut 3 to 1, input channels in two groups."""
    first, last = TileBox((0, 2), (0, 3), (0, 6)), TileBox((0, 2), (3, 4), (0, 6))
    ahead, behind = TileBox((0, 3), (0, 4), (0, 6)), TileBox((3, 5), (0, 4), (0, 5))
    monkeypatch.setattr(tiles, "layer_steps", lambda shape, tiling: steps_of(
        (first, (ahead, behind)), (last, (TileBox((0, 0), (0, 0), (0, 0)),))))
    source = SimpleNamespace(channels=20, height=4, width=6)
    shape: Any = SimpleNamespace(arch=SimpleNamespace(array_size=LANES), input_tiles=5,
                                 layer=SimpleNamespace(core=SimpleNamespace(input=source)))
    tiling: Any = SimpleNamespace(inputs=3, outputs=2, outputs_outer=outer)
    work = Work(0, 0, 0, Var("y", 8, 4, 6), Box((0, 0, 0, 0), (0, 7, 3, 5)), True, ())
    one, two = tiles.tiles_of(shape, tiling, work, 1000, (1, 2, 3, 4)).values()
    assert (one.ofmap_lower, one.ofmap_upper, two.ofmap_lower) == ((0, 0, 0, 0), (0, 7, 2, 5), (0, 0, 3, 0))
    assert (one.single_tile_time_pred, two.single_tile_time_pred) == (750, 250)
    assert (one.cut_mode, two.cut_mode) == ("H", "H") and one.ci_cut_num == 2
    assert one.loop_order == ("KNHWC" if outer else "NHWKC") and one.mtc0_mtk0 == (3, 2)
    assert one.act_mini_tile == (1, 12, 4, 6) and (one.ifmap_lower, one.ifmap_upper) == ((0, 0, 0, 0), (0, 19, 3, 5))
    assert two.act_mini_tile == (1, 20, 4, 6), "what is there already is not loaded again"
    assert one.tile_padding_tblr == (1, 2, 3, 4)


@pytest.mark.parametrize(("region", "cut"), [
    (TileBox((0, 2), (0, 4), (0, 6)), "N"), (TileBox((0, 1), (0, 4), (0, 6)), "K"),
    (TileBox((0, 2), (0, 2), (0, 6)), "H"), (TileBox((0, 2), (0, 4), (0, 5)), "W"),
    (TileBox((0, 1), (0, 2), (0, 5)), "KHW")])
def test_axes_that_are_cut_are_named(region: TileBox, cut: str) -> None:
    source = SimpleNamespace(channels=8, height=4, width=6)
    shape: Any = SimpleNamespace(arch=SimpleNamespace(array_size=LANES), input_tiles=2,
                                 layer=SimpleNamespace(core=SimpleNamespace(input=source)))
    tiling: Any = SimpleNamespace(inputs=2, outputs=2, outputs_outer=False)
    work = Work(0, 0, 0, Var("y", 8, 4, 6), Box((0, 0, 0, 0), (0, 7, 3, 5)), True, ())
    ofmap = dataflow.elements(region, 8, LANES)
    assert tiles._tile(shape, tiling, work, [], ofmap, 1, (0, 0, 0, 0)).cut_mode == cut


# -- places ------------------------------------------------------------------------------------------------------------
ARCH = Arch.load("tiny")
BYTES = ARCH.vector_bytes


def stream(name: str, root: str | None = None) -> Any:
    return SimpleNamespace(name=name, root=root or name)


def test_rings_stand_one_behind_another() -> None:
    """Input, weights, two other inputs that share a room, an output; then what is pinned."""
    x, left, right, kept = stream("x"), stream("left"), stream("right"), stream("kept")
    layer = SimpleNamespace(core=SimpleNamespace(input=x), inputs=(x, left, right, left, kept))
    shape = SimpleNamespace(layer=layer, scratch=90, streamed_outputs=[SimpleNamespace(var=stream("y"))])
    need = SimpleNamespace(input_tile=10, weights=5, residual=8, scales=0, output_buffer=3)
    plan: Any = SimpleNamespace(shapes=[shape], residents={"kept": None},
                                plans=[SimpleNamespace(tiling=SimpleNamespace(buffers=2, weight_slots=3), need=need)])
    assert Room(plan, ARCH).rings(0) == {name: (base * BYTES, size * BYTES) for name, (base, size) in {
        "x": (0, 20), "": (20, 15), "left": (35, 8), "right": (43, 8), "y": (51, 6),
        "pinned": (90, ARCH.local_depth - 90)}.items()}


@pytest.mark.parametrize(("offset", "first", "place"), [(0, 0, 100), (6, 0, 106), (6, 4, 102), (2, 4, 100)])
def test_a_part_of_a_tensor_s_pixels_lies_behind_those_that_are_kept_before_it(offset: int, first: int,
                                                                               place: int) -> None:
    """Rows of a tensor of 12 pixels; a core keeps it from a pixel on."""
    kept = Kept(first_tile=0, tiles=1, first_pixel=first, pixels=12 - first)
    plan: Any = SimpleNamespace(residents={"root": SimpleNamespace(base=100, kept=kept)})
    part: Any = SimpleNamespace(root="root", first_tile=0, height=1, width=3, tile_pixels=12,
                                part=SimpleNamespace(offset=offset))
    box = Box((0, 0, 0, 0), (0, ARCH.array_size - 1, 0, 2))
    assert Room(plan, ARCH).span(part, box, 0) == (place * BYTES, 3 * BYTES)


@pytest.mark.parametrize(("first", "last", "padding"), [
    ((0, 0), (3, 5), (1, 1, 2, 2)), ((0, 0), (2, 4), (1, 0, 2, 0)), ((1, 1), (3, 5), (0, 1, 0, 2)),
    ((0, 1), (3, 4), (1, 1, 0, 0)), ((1, 0), (2, 5), (0, 0, 2, 2))])
def test_padding_is_at_the_ends_of_the_image(first: tuple[int, int], last: tuple[int, int],
                                             padding: tuple[int, ...]) -> None:
    """Of 1 pixel above and below, 2 left and right, of an image of 4 x 6."""
    layer: Any = SimpleNamespace(core=SimpleNamespace(window=SimpleNamespace(pads=(1, 2))))
    work: Any = SimpleNamespace(box=Box((0, 0, *first), (0, 3, *last)), output=SimpleNamespace(size=(4, 6)))
    assert write._padding(layer, work) == padding


@pytest.mark.parametrize(("span", "on"), [((0, 10), False), ((0, 11), True), ((20, 5), False), ((19, 5), True),
                                          ((12, 2), True), ((0, 40), True)])
def test_tensors_that_touch_do_not_overlap(span: tuple[int, int], on: bool) -> None:
    assert write.Entry({"address": 10, "size": 10}, 0, 0).is_on(span) is on


def test_a_tensor_is_new_once() -> None:
    writer: Any = write.Writer.__new__(write.Writer)
    entry = write.Entry({"address": 0, "align": 1, "bitwidth": 8, "lower": (0, 0, 0, 0), "upper": (0, 0, 0, 0),
                         "size": 1, "type": "ifmap", "source": (), "transfer_id": ()}, 2, 4, (3, 4))
    found = [writer._tensor(0, entry, number) for number in (2, 3, 4)]
    assert [each.newly_added for each in found] == [True, False, False]
    assert [each.cur_wl_ifmap is True for each in found] == [False, True, True]


def test_a_layer_s_time_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer that saves twice its last workload has it, and its tiles."""
    monkeypatch.setattr(write, "tiles_of", lambda *given: {"tile_num_0": given[3]})
    monkeypatch.setattr(write, "_padding", lambda layer, work: (0, 0, 0, 0))
    room = SimpleNamespace(plan=SimpleNamespace(shapes=[None], plans=[SimpleNamespace(tiling=None)]),
                           bytes_of=lambda box: 1, rings=lambda layer: {})
    writer: Any = write.Writer.__new__(write.Writer)
    writer.layers, writer.rooms, writer.times = [SimpleNamespace(core=None)], [room], [{0: 90}]
    writer.arch, writer.lanes, writer.weights, writer.entries = ARCH, LANES, {}, [[]]
    works = [Work(0, number, 0, var("x"), Box((0, 0, 0, 0), (0, 7, 3, 3)), number == 1, ()) for number in range(2)]
    writer.ifmaps, writer.pieces = {(0, 0): [], (0, 1): []}, {(0, 0): {}, (0, 1): {}}
    assert [(each.time, each.tile_info) for each in map(writer._workload, works)] == [(0, {}), (90, {"tile_num_0": 90})]


def test_a_block_that_comes_out_of_dram_is_one_core_s() -> None:
    """Its workloads read it once and name it together; another core's memory has its own."""
    writer: Any = write.Writer.__new__(write.Writer)
    writer.rooms = [SimpleNamespace(span=lambda *_, size=size: (0, size)) for size in (16, 32)]
    writer.transfers, writer.out, writer.into, writer.blocks = itertools.count(), {}, {}, {}
    box = Box((0, 0, 0, 0), (0, 7, 3, 3))
    for core, number in ((0, 0), (0, 1), (1, 0)):
        writer._sent_again(Work(core, number, 2, var("y"), box, True, ()), var("x"), box, [])
    assert [(block.size, [(each.core_id, each.workload_id) for each in block.destination])
            for block in writer.out.values()] == [(16, [(0, 0), (0, 1)]), (32, [(1, 0)])]
