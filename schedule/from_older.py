# SPDX-License-Identifier: Apache-2.0
"""The older dialect -> the schedule that it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from weft.schedule import older
from weft.schedule.boxes import Box
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
    Weight,
    Workload,
    WorkloadId,
)


def schedule_of(top: older.Top, dram: older.Dram, cores: Mapping[int, Sequence[older.Workload]]) -> Schedule:
    """Return the schedule of typed records."""
    return Schedule("older", top.xlen, top.ylen, top.top_batch_cut, None,
                    {core: tuple(_workload(core, entry) for entry in entries) for core, entries in cores.items()},
                    tuple(map(_read, dram.out)), tuple(map(_write, dram.into)))


def _workload(core: int, entry: older.Workload) -> Workload:
    return Workload(
        WorkloadId(core, entry.workload_id), entry.layer_name, entry.layer_type, Box(*entry.workload), entry.time,
        entry.ofmap_size,
        (Ifmap(entry.ifmap.box, entry.ifmap.transfer_id, entry.ifmap.box.volume * 8,
               last_producer=entry.ifmap.max_workload_id),),
        None if entry.weight is UNSET else Weight(_channels(entry.weight), entry.weight.transfer_id),
        tuple(Piece(piece.transfer_id, piece.box, piece.size, tuple(map(_target, piece.destination)))
              for piece in entry.ofmap),
        tuple(_tensor(core, tensor) for tensor in entry.buffer))


def _channels(record: older.Channels) -> Box:
    """Return the range of weights: only output channels are told."""
    return Box((record.lower, 0, 0, 0), (record.upper, 0, 0, 0))


def _target(target: older.CoreDestination | older.DramDestination) -> Target:
    workload = WorkloadId(target.id, target.workload_id) if isinstance(target, older.CoreDestination) else None
    return Target(workload, target.layer_name)


def _tensor(core: int, entry: older.IfmapTensor | older.WeightTensor | older.OfmapTensor) -> Tensor:
    if isinstance(entry, older.OfmapTensor):
        return Tensor("ofmap", entry.layer, entry.box, entry.size, (), (), block_kib=entry.block)
    if isinstance(entry, older.WeightTensor):
        box, (source,) = _channels(entry), entry.source
        return Tensor("weight", entry.layer, box, source.size, entry.transfer_id[0],
                      (Source(DRAM, source.transfer_id, None, source.size, _channels(source), None),),
                      block_kib=entry.block)
    sources = tuple(map(_source, entry.source))
    return Tensor("ifmap", entry.layer, entry.box, entry.box.volume * 8, entry.transfer_id, sources,
                  WorkloadId(core, entry.workload_id), block_kib=entry.block)


def _source(entry: older.IfmapSource) -> Source:
    core = DRAM if entry.type == "DRAM" else entry.id
    return Source(core, entry.transfer_id, entry.layer_name, entry.size, entry.box.with_channels(*entry.channel),
                  entry.box)


def _read(block: older.FmapOut | older.WeightOut) -> DramRead:
    box = _channels(block) if isinstance(block, older.WeightOut) else block.box
    return DramRead(block.transfer_id, isinstance(block, older.WeightOut), block.layer_name, box, block.size,
                    block.related_ifmap, tuple(Target(WorkloadId(reader.id, reader.workload_id), block.layer_name)
                                               for reader in block.destination))


def _write(block: older.DramIn) -> DramWrite:
    return DramWrite(block.transfer_id, WorkloadId(block.core_id, block.workload_id), None, block.box,
                     block.related_ofmap)
