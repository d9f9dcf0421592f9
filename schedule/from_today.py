# SPDX-License-Identifier: Apache-2.0
"""Today's dialect -> the schedule that it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from weft.schedule import today
from weft.schedule.boxes import Box
from weft.schedule.model import (
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


def schedule_of(top: today.Top, dram: today.Dram, cores: Mapping[int, Sequence[today.Workload]]) -> Schedule:
    """Return the schedule of typed records."""
    return Schedule("today", top.xlen, top.ylen, top.top_batch_cut, top.buffersize,
                    {core: tuple(_workload(core, entry) for entry in entries) for core, entries in cores.items()},
                    tuple(map(_read, dram.out)), tuple(map(_write, dram.into)))


def _workload(core: int, entry: today.Workload) -> Workload:
    weight = None if entry.weight is UNSET else Weight(entry.weight.box, entry.weight.transfer_id,
                                                       entry.weight.size * 8)
    return Workload(
        WorkloadId(core, entry.workload_id), entry.layer_name, entry.layer_type, Box(*entry.workload), entry.time,
        entry.ofmap_size * 8,
        tuple(Ifmap(ifmap.box, ifmap.transfer_id, ifmap.size * 8, ifmap.bitwidth, ifmap.align)
              for ifmap in entry.ifmap),
        weight,
        tuple(Piece(piece.transfer_id, piece.box, piece.size * 8, tuple(map(_target, piece.destination)))
              for piece in entry.ofmap),
        tuple(map(_tensor, entry.buffer)),
        tuple(WeightPlace(place.address, place.size, place.layer_name, place.transfer_id)
              for place in entry.wl0_buffer),
        entry.ring_buffer_info,
        tuple(Tile(name, tile.layer_name, Box(tile.ifmap_lower, tile.ifmap_upper),
                   Box(tile.ofmap_lower, tile.ofmap_upper), tile.loop_order)
              for name, tile in entry.tile_info.items()))


def _target(target: today.CoreDestination | today.DramDestination) -> Target:
    if isinstance(target, today.DramDestination):
        return Target(None, None)
    return Target(WorkloadId(target.core_id, target.workload_id), None)


def _tensor(entry: today.Tensor) -> Tensor:
    sources = tuple(Source(source.core_id, source.transfer_id,
                           None if source.layer_name is UNSET else source.layer_name, source.size * 8, source.box, None)
                    for source in entry.source)
    return Tensor(entry.type, None if entry.layer_name is UNSET else entry.layer_name, entry.box, entry.size * 8,
                  entry.transfer_id, sources, is_current=entry.cur_wl_ifmap is True, address=entry.address,
                  is_new=entry.newly_added, tensor_id=entry.tensor_id, order=entry.tensor_order,
                  bitwidth=entry.bitwidth, align=entry.align)


def _read(block: today.DramOut) -> DramRead:
    return DramRead(block.transfer_id, block.type == "weight", None, block.box, block.size * 8, block.related_ifmap,
                    tuple(Target(WorkloadId(reader.core_id, reader.workload_id), reader.layer_name)
                          for reader in block.destination))


def _write(block: today.DramIn) -> DramWrite:
    return DramWrite(block.transfer_id, WorkloadId(block.core_id, block.workload_id), block.layer_name, block.box,
                     block.related_ofmap)
