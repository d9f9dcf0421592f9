# SPDX-License-Identifier: Apache-2.0
"""A schedule as both dialects mean it: sizes in bits, DRAM is core ``DRAM``, a workload is named by core and number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from weft.schedule.boxes import Box

DRAM = -1
"""The core that stands for DRAM."""

Dialect = Literal["today", "older"]


class WorkloadId(NamedTuple):
    """A workload: its core and its number there."""

    core: int
    number: int

    def __str__(self) -> str:
        """Return core and number in words."""
        return f"core {self.core}, workload {self.number}"


class Delivery(NamedTuple):
    """A transfer to a workload, of weights or of a feature map."""

    transfer: int
    workload: WorkloadId
    is_weight: bool


class Target(NamedTuple):
    """The destination of a transfer: a ``workload``, or None for DRAM.

    ``layer``: the layer that reads it, where the file says so."""

    workload: WorkloadId | None
    layer: str | None


@dataclass(frozen=True)
class Piece:
    """A part of a workload's ofmap that goes to ``targets`` as one transfer."""

    transfer: int
    box: Box
    size_bits: int
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class Source:
    """A part of a tensor in the buffer, from ``core``.

    ``place`` is its range in the tensor; ``box`` its range in the ofmap that it comes from, where the file says so."""

    core: int
    transfer: int
    layer: str | None
    size_bits: int
    place: Box
    box: Box | None


@dataclass(frozen=True)
class Tensor:
    """A tensor in a core's buffer as a workload starts.

    ``reader``: the workload that an ifmap is for, where the file says so. ``address`` in bytes, None where the file
    has none; ``block_kib``: the room that it takes, where the file has no addresses."""

    kind: Literal["ifmap", "ofmap", "weight"]
    layer: str | None
    box: Box
    size_bits: int
    transfers: tuple[int, ...]
    sources: tuple[Source, ...]
    reader: WorkloadId | None = None
    is_current: bool = False
    address: int | None = None
    block_kib: int | None = None
    is_new: bool | None = None
    tensor_id: int | None = None
    order: int | None = None
    bitwidth: int = 8
    align: int = 1

    @property
    def transfer(self) -> int | None:
        """The first of its transfers, None without one."""
        return next(iter(self.transfers), None)

    @property
    def key(self) -> object:
        """The tensor's identity in the snapshots of one core."""
        return self.kind, self.layer, self.box, self.transfers, self.reader, self.tensor_id


@dataclass(frozen=True)
class Ifmap:
    """The part of a feature map that a workload reads.

    ``last_producer``: the highest workload that makes some of it, where the file says so."""

    box: Box
    transfers: tuple[int, ...]
    size_bits: int
    bitwidth: int = 8
    align: int = 1
    last_producer: int | None = None

    @property
    def transfer(self) -> int | None:
        """The first of its transfers, None without one."""
        return next(iter(self.transfers), None)


@dataclass(frozen=True)
class Weight:
    """A workload's weights.

    ``box`` [output channels, input channels, rows, columns], or [1, output channels, input channels, rows x
    columns]; of a file that tells only output channels the rest is 0."""

    box: Box
    transfers: tuple[int, ...]
    size_bits: int | None = None


@dataclass(frozen=True)
class WeightPlace:
    """Weights in the WL0 buffer; ``address`` and ``size`` in bytes."""

    address: int
    size: int
    layer: str
    transfers: tuple[int, ...]

    @property
    def transfer(self) -> int | None:
        """The first of its transfers, None without one."""
        return next(iter(self.transfers), None)


@dataclass(frozen=True)
class Tile:
    """A tile within a workload."""

    name: str
    layer: str
    ifmap: Box
    ofmap: Box
    loop_order: str


@dataclass(frozen=True)
class Workload:
    """A workload, which a core computes without a pause: ``box`` of the ofmap of ``layer``."""

    id: WorkloadId
    layer: str
    kind: str
    box: Box
    cycles: int
    ofmap_bits: int
    ifmaps: tuple[Ifmap, ...]
    weight: Weight | None
    pieces: tuple[Piece, ...]
    buffer: tuple[Tensor, ...]
    weight_buffer: tuple[WeightPlace, ...] = ()
    rings: tuple[tuple[int, int], ...] = ()
    tiles: tuple[Tile, ...] = ()

    def listed(self, is_weight: bool) -> tuple[int, ...]:
        """Return the transfers that bring its weights, or its ifmaps."""
        if is_weight:
            return self.weight.transfers if self.weight else ()
        return tuple(transfer for ifmap in self.ifmaps for transfer in ifmap.transfers)


@dataclass(frozen=True)
class DramWrite:
    """A block that a workload writes to DRAM; ``related``: the reads of it. ``layer``, where the file says so."""

    transfer: int
    workload: WorkloadId
    layer: str | None
    box: Box
    related: tuple[int, ...]


@dataclass(frozen=True)
class DramRead:
    """A block that workloads read from DRAM.

    ``related``: the writes that made it, none of what the network is given. ``box`` of a feature map: in the ofmap
    that it comes from (older dialect), or in the reader's ifmap (today's)."""

    transfer: int
    is_weight: bool
    layer: str | None
    box: Box
    size_bits: int
    related: tuple[int, ...]
    readers: tuple[Target, ...]


@dataclass(frozen=True)
class Schedule:
    """The content of a file. ``cores``: workloads by core, in their order. ``buffer_bytes`` None: the file has none."""

    dialect: Dialect
    xlen: int
    ylen: int
    batch_cut: int
    buffer_bytes: int | None
    cores: Mapping[int, tuple[Workload, ...]]
    reads: tuple[DramRead, ...]
    writes: tuple[DramWrite, ...]

    def workloads(self) -> Iterator[Workload]:
        """Every workload, core by core."""
        for core in self.cores.values():
            yield from core

    @cached_property
    def by_id(self) -> dict[WorkloadId, Workload]:
        """Every workload by its core and number."""
        return {workload.id: workload for workload in self.workloads()}

    @cached_property
    def layers(self) -> dict[str, list[Workload]]:
        """The workloads of each layer."""
        found: dict[str, list[Workload]] = {}
        for workload in self.workloads():
            found.setdefault(workload.layer, []).append(workload)
        return found

    @cached_property
    def sent(self) -> dict[int, tuple[Workload, Piece]]:
        """The workload and piece that each transfer of an ofmap comes from."""
        return {piece.transfer: (workload, piece) for workload in self.workloads() for piece in workload.pieces}

    @cached_property
    def read(self) -> dict[int, DramRead]:
        """Transfers out of DRAM."""
        return {block.transfer: block for block in self.reads}

    @cached_property
    def written(self) -> dict[int, DramWrite]:
        """Transfers into DRAM."""
        return {block.transfer: block for block in self.writes}

    @cached_property
    def sendings(self) -> frozenset[Delivery]:
        """The pairs of a transfer and the workload that it is sent to, as weights or not."""
        from_cores = {Delivery(piece.transfer, target.workload, False) for _, piece in self.sent.values()
                      for target in piece.targets if target.workload is not None}
        from_dram = {Delivery(block.transfer, reader.workload, block.is_weight) for block in self.reads
                     for reader in block.readers if reader.workload is not None}
        return frozenset(from_cores | from_dram)

    @cached_property
    def requests(self) -> frozenset[Delivery]:
        """The pairs of a transfer and the workload that lists it, as weights or not."""
        return frozenset(Delivery(transfer, workload.id, is_weight) for workload in self.workloads()
                         for is_weight in (False, True) for transfer in workload.listed(is_weight))

    @cached_property
    def relations(self) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
        """Pairs (block into DRAM, block out of DRAM) that are related: as the first say, as the second say."""
        return (frozenset((block.transfer, other) for block in self.writes for other in block.related),
                frozenset((other, block.transfer) for block in self.reads for other in block.related))

    @cached_property
    def producers(self) -> dict[int, frozenset[WorkloadId]]:
        """The workloads that make what each transfer carries, through DRAM too."""
        through_dram = {block.transfer: frozenset(self.written[number].workload for number in block.related
                                                  if number in self.written) for block in self.reads}
        return {**through_dram, **{transfer: frozenset([workload.id]) for transfer, (workload, _) in self.sent.items()}}

    @cached_property
    def sources(self) -> dict[int, frozenset[str]]:
        """The layers that make what each transfer carries."""
        return {transfer: frozenset(self.by_id[producer].layer for producer in producers if producer in self.by_id)
                for transfer, producers in self.producers.items()}
