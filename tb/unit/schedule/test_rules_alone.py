# SPDX-License-Identifier: Apache-2.0
"""Each rule of a schedule by itself: what it allows, and the nearest thing that it refuses, on a mesh of two cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weft.schedule import buffer_rules, layer_rules, order_rules, transfer_rules
from weft.schedule.assign import assigned_layers, place_of
from weft.schedule.boxes import Box
from weft.schedule.faults import Fault
from weft.schedule.model import (
    DRAM,
    DramRead,
    DramWrite,
    Ifmap,
    Piece,
    Schedule,
    Source,
    Target,
    Tensor,
    Tile,
    Weight,
    WeightPlace,
    Workload,
    WorkloadId,
)
from weft.support.errors import WeftError

BITS = 8


def box(low: int, high: int) -> Box:
    """Channels of one pixel."""
    return Box((0, low, 0, 0), (0, high, 0, 0))


ALL = box(0, 3)


def work(core: int, number: int, layer: str = "a", **more: Any) -> Workload:
    """A workload that makes four elements."""
    whole: dict[str, Any] = {"kind": "pe", "box": ALL, "cycles": 1, "ofmap_bits": 4 * BITS, "ifmaps": (),
                             "weight": None, "pieces": (), "buffer": (), **more}
    return Workload(WorkloadId(core, number), layer, **whole)


def mesh(*works: Workload, dialect: Any = "today", reads: tuple[DramRead, ...] = (), writes: tuple[DramWrite, ...] = (),
         xlen: int = 2, ylen: int = 1) -> Schedule:
    cores: dict[int, tuple[Workload, ...]] = {}
    for each in works:
        cores[each.id.core] = (*cores.get(each.id.core, ()), each)
    return Schedule(dialect, xlen, ylen, 1, 64 if dialect == "today" else None, cores, reads, writes)


def tensor(kind: Any = "ifmap", *, layer: str | None = "a", **more: Any) -> Tensor:
    whole: dict[str, Any] = {"box": ALL, "size_bits": 4 * BITS, "transfers": (1,), "sources": (), **more}
    return Tensor(kind, layer, **whole)


def at(address: int, size: int, transfer: int) -> Tensor:
    return tensor(address=address, size_bits=BITS * size, transfers=(transfer,))


def source(core: int, *, layer: str | None = None, place: Box = ALL, size: int = 4, transfer: int = 1) -> Source:
    return Source(core, transfer, layer, BITS * size, place, None)


def read(transfer: int = 1, *, weight: bool = False, readers: tuple[Target, ...] = (), related: tuple[int, ...] = (),
         where: Box = ALL) -> DramRead:
    return DramRead(transfer, weight, None, where, 4 * BITS, related, readers)


def asks(transfer: int, **more: Any) -> tuple[Ifmap]:
    return (Ifmap(ALL, (transfer,), 4 * BITS, **more),)


def to(core: int, number: int, layer: str | None = None) -> Target:
    return Target(WorkloadId(core, number), layer)


TO_DRAM = Target(None, None)


def piece(*targets: Target, transfer: int = 1, where: Box = ALL) -> Piece:
    return Piece(transfer, where, where.volume * BITS, targets)


def write(transfer: int = 1, core: int = 0, *, layer: str | None = None, where: Box = ALL,
          related: tuple[int, ...] = ()) -> DramWrite:
    return DramWrite(transfer, WorkloadId(core, 0), layer, where, related)


def holding(*tensors: Tensor, **more: Any) -> Workload:
    return work(0, 0, buffer=tensors, **more)


OWN = Weight(ALL, (1,))
PLACE = WeightPlace(0, 4, "a", (1,))
SENT = piece(to(1, 0))
MAKER = work(0, 0, "first", pieces=(SENT,))


READER = work(1, 0, ifmaps=asks(1), pieces=(piece(TO_DRAM, transfer=9),))
KEPT = (write(9, 1),)


def got(*sources: Source) -> Workload:
    """A workload of core 1 with what comes from elsewhere."""
    return work(1, 0, buffer=(tensor(sources=sources),))


CASES: dict[str, Any] = {
    # -- buffers
    "a long tensor lies under two others": (
        buffer_rules.tensors_do_not_overlap, mesh(holding(at(0, 30, 1), at(30, 5, 2), at(35, 5, 3))),
        mesh(holding(at(0, 30, 1), at(10, 5, 2), at(20, 5, 3))), 2),
    "weights come straight into WL0": (
        buffer_rules.weights_are_there, mesh(work(0, 0, weight=OWN, weight_buffer=(PLACE,))),
        mesh(work(0, 0, weight=OWN, weight_buffer=(replace(PLACE, transfers=(2,)),))), 1),
    "weights of one transfer are the workload's": (
        buffer_rules.weights_are_there, mesh(holding(tensor("weight"), weight=OWN)),
        mesh(holding(tensor("weight", box=box(0, 2)), weight=OWN)), 1),
    "weights of two transfers are parts": (
        buffer_rules.weights_are_there, mesh(holding(tensor("weight", box=box(0, 2)), weight=Weight(ALL, (1, 2)))),
        mesh(holding(weight=Weight(ALL, (1, 2)))), 1),
    "a core's piece may have other channels in a tensor that joins several, a block of DRAM not": (
        buffer_rules.sources_are_senders, mesh(MAKER, got(source(0, place=box(4, 7)))),
        mesh(work(0, 0), got(source(DRAM, place=box(4, 7))), reads=(read(),)), 1),
    "a block of DRAM has the size that it is sent with": (
        buffer_rules.sources_are_senders, mesh(got(source(DRAM)), reads=(read(),)),
        mesh(got(source(DRAM, size=5)), reads=(read(),)), 1),
    "what the network is given comes from no layer": (
        buffer_rules.sources_are_senders, mesh(got(source(DRAM, layer="image")), reads=(read(),)),
        mesh(got(source(DRAM, layer="a")), reads=(read(),)), 1),
    "what a layer makes comes from it": (
        buffer_rules.sources_are_senders, mesh(MAKER, got(source(0, layer="first"))),
        mesh(MAKER, got(source(0, layer="a"))), 1),
    "channels are aligned": (
        buffer_rules.sizes_hold_elements, mesh(holding(tensor(align=8, size_bits=8 * BITS))),
        mesh(holding(tensor(align=8, size_bits=7 * BITS))), 1),
    "WL0 has weights": (
        buffer_rules.weight_places_do_not_overlap, mesh(work(0, 0, weight_buffer=(PLACE,)), reads=(read(weight=True),)),
        mesh(work(0, 0, weight_buffer=(PLACE,)), reads=(read(),)), 1),
    "places in WL0 end where the next one begins": (
        buffer_rules.weight_places_do_not_overlap,
        mesh(work(0, 0, weight_buffer=(PLACE, replace(PLACE, address=4))), reads=(read(weight=True),)),
        mesh(work(0, 0, weight_buffer=(PLACE, replace(PLACE, address=3))), reads=(read(weight=True),)), 1),
    "an ifmap is for a workload that has still to run": (
        buffer_rules.tensors_stay, mesh(work(0, 0, buffer=(tensor(reader=WorkloadId(0, 0)),), ifmaps=asks(1)),
                                        work(0, 1)),
        mesh(work(0, 0, ifmaps=asks(1)), work(0, 1, buffer=(tensor(reader=WorkloadId(0, 0)),))), 1),
    "two tensors differ by their number alone": (
        buffer_rules.tensors_stay, mesh(holding(tensor(tensor_id=1), tensor(tensor_id=2))),
        mesh(holding(tensor(tensor_id=1), tensor(tensor_id=1))), 2),
    "an ofmap has one room": (
        buffer_rules.ofmaps_have_room, mesh(holding(tensor("ofmap"), pieces=(piece(TO_DRAM),)), dialect="older"),
        mesh(holding(tensor("ofmap"), tensor("ofmap"), pieces=(piece(TO_DRAM),)), dialect="older"), 1),
    # -- layers
    "numbers are one core's in the older dialect": (
        layer_rules.workloads_ascend, mesh(work(1, 0), work(2, 1), dialect="older"),
        mesh(work(1, 0), work(2, 0), dialect="older"), 1),
    "numbers are each core's own in today's dialect": (
        layer_rules.workloads_ascend, mesh(work(0, 0), work(1, 0)), mesh(work(0, 1), work(0, 1)), 1),
    "a layer without weights has none": (
        layer_rules.layers_are_alike, mesh(work(0, 0, kind="pool"), dialect="older"),
        mesh(work(0, 0, kind="pool", weight=OWN), dialect="older"), 1),
    "a layer of weights has some": (
        layer_rules.layers_are_alike, mesh(work(0, 0, kind="fc", weight=OWN), dialect="older"),
        mesh(work(0, 0, kind="fc"), dialect="older"), 1),
    "a tile is of the workload's layer": (
        layer_rules.tiles_make_up_workloads,
        mesh(work(0, 0, tiles=(Tile("0", "a", ALL, ALL, "KNHWC"),)), work(1, 0, "b")),
        mesh(work(0, 0, tiles=(Tile("0", "b", ALL, ALL, "KNHWC"),)), work(1, 0, "b")), 1),
    "a loop has a letter of an axis": (
        layer_rules.tiles_make_up_workloads, mesh(work(0, 0, tiles=(Tile("0", "a", ALL, ALL, "KNHWCRS"),))),
        mesh(work(0, 0, tiles=(Tile("0", "a", ALL, ALL, "KNHWCX"),))), 1),
    # -- order
    "room for an ofmap is the layer's own": (
        order_rules.own_results_are_kept, mesh(holding(tensor("ofmap", transfers=()), pieces=(piece(to(0, 1)),))),
        mesh(holding(tensor("ofmap", layer="b", transfers=()), pieces=(piece(to(0, 1)),))), 1),
    "a tensor keeps its transfers": (
        order_rules.orders_are_one_tensors,
        mesh(work(0, 0, buffer=(tensor(tensor_id=1),)), work(0, 1, buffer=(tensor(tensor_id=1),))),
        mesh(work(0, 0, buffer=(tensor(tensor_id=1),)), work(0, 1, buffer=(tensor(tensor_id=1, transfers=(2,)),))), 1),
    "a workload waits for the one before it": (
        order_rules.nobody_waits_for_ever, mesh(work(0, 0, pieces=(SENT,)), work(0, 1), work(1, 0, ifmaps=asks(1))),
        mesh(work(0, 0, ifmaps=asks(2)), work(0, 1, pieces=(SENT,)),
             work(1, 0, ifmaps=asks(1), pieces=(piece(to(0, 0), transfer=2),))), 1),
    # -- transfers
    "a piece and a block have different transfers": (
        transfer_rules.transfers_begin_once, mesh(MAKER, reads=(read(2),)), mesh(MAKER, reads=(read(1),)), 1),
    "a piece that is written is written by its own transfer": (
        transfer_rules.transfers_begin_once, mesh(work(0, 0, pieces=(piece(TO_DRAM),)), writes=(write(),)),
        mesh(work(0, 0, pieces=(piece(TO_DRAM),)), writes=(write(), write())), 1),
    "pieces that go to DRAM hold each element once": (
        transfer_rules.pieces_are_sent, mesh(work(0, 0, pieces=(piece(TO_DRAM),)), writes=(write(),)),
        mesh(work(0, 0, pieces=(piece(TO_DRAM, where=box(0, 2)),)), writes=(write(where=box(0, 2)),)), 1),
    "a piece lies in the workload's box": (
        transfer_rules.pieces_are_sent, mesh(MAKER, READER, writes=KEPT),
        mesh(work(0, 0, pieces=(piece(to(1, 0), where=box(2, 5)),)), READER, writes=KEPT), 1),
    "a destination is of the reader's layer": (
        transfer_rules.pieces_are_sent, mesh(work(0, 0, "b", pieces=(piece(to(1, 0, "a")),)), READER, writes=KEPT),
        mesh(work(0, 0, "b", pieces=(piece(to(1, 0, "b")),)), READER, writes=KEPT), 1),
    "a piece that nobody reads in DRAM is for no layer": (
        transfer_rules.pieces_are_sent, mesh(work(0, 0, pieces=(piece(Target(None, "out")),)), writes=(write(),)),
        mesh(work(0, 0, pieces=(piece(Target(None, "a")),)), writes=(write(),)), 1),
    "a piece may go to DRAM and to a core": (
        transfer_rules.writes_are_pieces, mesh(work(0, 0, pieces=(piece(to(1, 0), TO_DRAM),)), writes=(write(),)),
        mesh(MAKER, writes=(write(),)), 1),
    "a block is of the layer that makes it": (
        transfer_rules.writes_are_pieces,
        mesh(work(0, 0, pieces=(piece(TO_DRAM),)), work(1, 0, "b"), writes=(write(layer="a"),)),
        mesh(work(0, 0, pieces=(piece(TO_DRAM),)), work(1, 0, "b"), writes=(write(layer="b"),)), 1),
    "a block names each other one once": (
        transfer_rules.writes_are_pieces,
        mesh(work(0, 0, pieces=(piece(TO_DRAM),)), writes=(write(related=(2,)),), reads=(read(2, related=(1,)),)),
        mesh(work(0, 0, pieces=(piece(TO_DRAM),)), writes=(write(related=(2, 2)),), reads=(read(2, related=(1,)),)), 1),
    "weights come from no other block": (
        transfer_rules.reads_are_written, mesh(work(0, 0, weight=OWN), reads=(read(weight=True, readers=(to(0, 0),)),)),
        mesh(work(0, 0, weight=OWN), reads=(read(weight=True, readers=(to(0, 0),), related=(5,)),)), 1),
    "blocks that a block comes from are of one layer in the older dialect": (
        transfer_rules.reads_are_written,
        *(mesh(work(0, 0, box=box(0, 1)), work(1, 0, layer, box=box(2, 3)), work(0, 1, "c", ifmaps=asks(3)),
               dialect="older", reads=(read(3, readers=(to(0, 1),), related=(1, 2)),),
               writes=(write(1, 0, where=box(0, 1), related=(3,)), write(2, 1, where=box(2, 3), related=(3,))))
          for layer in "ab"), 1),
    "no block lies beside what is read": (
        transfer_rules.reads_are_written,
        *(mesh(work(0, 0), work(1, 0, "c", ifmaps=asks(3)), dialect="older",
               reads=(read(3, readers=(to(1, 0),), related=(1, 2)),),
               writes=(write(1, where=box(0, high), related=(3,)),
                       write(2, where=box(high + 1, high + 2), related=(3,))))
          for high in (2, 3)), 1),
    "weights come by a transfer": (
        transfer_rules.reads_are_sent, mesh(work(0, 0, weight=OWN), reads=(read(weight=True, readers=(to(0, 0),)),)),
        mesh(work(0, 0, weight=Weight(ALL, ()))), 1),
    "weights have the size that is sent": (
        transfer_rules.weights_are_what_is_read,
        mesh(work(0, 0, weight=Weight(ALL, (1,), 4 * BITS)), reads=(read(weight=True),)),
        mesh(work(0, 0, weight=Weight(ALL, (1,), 5 * BITS)), reads=(read(weight=True),)), 1),
    "the last producer is the highest": (
        transfer_rules.last_producers_are_told,
        *(mesh(work(0, 2), work(1, 5), work(1, 6, ifmaps=asks(3, last_producer=last)), dialect="older",
               reads=(read(3, related=(1, 2)),),
               writes=(replace(write(1), workload=WorkloadId(0, 2)), replace(write(2), workload=WorkloadId(1, 5))))
          for last in (5, 2)), 1),
}
"""A rule, a schedule that keeps it, one that does not, and how many faults it then has."""


@pytest.mark.parametrize("name", CASES)
def test_a_rule_allows_this_and_not_that(name: str) -> None:
    rule, sound, broken, faults = CASES[name]
    assert [fault.text() for fault in rule(sound)] == []
    assert len([fault.text() for fault in rule(broken)]) == faults


def test_a_fault_is_told_with_its_place() -> None:
    """Transfer 0 is one like others; DRAM has no workload."""
    assert Fault("r", "f", "a", WorkloadId(0, 1), "conv", 0, "key").place == \
        "core 0, workload 1, layer conv, transfer 0, key key"
    assert Fault("r", "f", "a", WorkloadId(DRAM, 0)).place == "DRAM" and Fault("r", "f", "a").place == "schedule"


# -- what the compiler takes of a schedule -----------------------------------------------------------------------------
@pytest.mark.parametrize(("core", "place"), [(1, 0), (2, 1), (3, 2), (6, 3), (7, 4), (8, 5)])
def test_cores_of_the_older_dialect_count_the_columns_of_dram(core: int, place: int) -> None:
    """Of a mesh of 3 x 2: a row has five places, of which the first and the last are DRAM's."""
    assert place_of(mesh(dialect="older", xlen=3, ylen=2), core) == place
    assert place_of(mesh(xlen=3, ylen=2), core) == core


def test_layers_come_in_the_order_of_their_first_workloads() -> None:
    found = assigned_layers(mesh(work(0, 1, "early"), work(0, 4, "late", kind="fc", weight=OWN), work(1, 2, "late"),
                                 work(1, 5, "early"), work(1, 6, "last", weight=None)), 2)
    assert [layer.name for layer in found] == ["early", "late", "last"]


@pytest.mark.parametrize(("kind", "weight", "has"), [
    ("pe", OWN, True), ("conv2d", OWN, True), ("fc", OWN, True), ("pool", OWN, False), ("pe", None, False)])
def test_kinds_that_have_weights(kind: str, weight: Weight | None, has: bool) -> None:
    layer, = assigned_layers(mesh(work(0, 0, kind=kind, weight=weight)), 2)
    assert layer.weighted is has


def test_a_mesh_has_no_more_places_than_the_machine_has_cores() -> None:
    """Places that rest count: cores are known by them."""
    assigned_layers(mesh(work(0, 0), xlen=2, ylen=1), 2)
    with pytest.raises(WeftError, match="a mesh of 2 x 2; allowed: at most 3 cores"):
        assigned_layers(mesh(work(0, 0), xlen=2, ylen=2), 3)
