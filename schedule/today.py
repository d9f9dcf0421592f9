# SPDX-License-Identifier: Apache-2.0
"""Today's dialect, which the description of the Gemini scheduler's IR has.

Sizes in bytes, workloads numbered on each core, tensors with addresses. Cores count from 0."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from weft.schedule.records import Coordinate, Corner, Count, Cycles, Id, Ids, Name, Ranged, Record, Side, check_range

Bitwidth = Annotated[int, Meta(ge=1, le=64)]
Align = Annotated[int, Meta(ge=1, le=1 << 16)]
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Few = tuple[Coordinate, Coordinate]


class Reader(Record, kw_only=True, tag_field="type", tag="core"):
    """A reader of a block of DRAM."""

    core_id: Id
    layer_name: Name
    workload_id: Id


class CoreDestination(Record, kw_only=True, tag_field="type", tag="core"):
    """A workload that gets a piece of an ofmap."""

    core_id: Id
    workload_id: Id


class DramDestination(Record, kw_only=True, tag_field="type", tag="DRAM"):
    """DRAM, which gets a piece of an ofmap."""

    core_id: Literal[-1]


class DramIn(Ranged, kw_only=True):
    """A block that a core writes to DRAM."""

    core_id: Id
    layer_name: Name
    related_ofmap: Ids
    transfer_id: Id
    workload_id: Id


class DramOut(Ranged, kw_only=True):
    """A block that cores read from DRAM."""

    destination: tuple[Reader, ...]
    related_ifmap: Ids
    size: Count
    transfer_id: Id
    type: Literal["fmap", "weight"]


class Dram(Record, kw_only=True, rename={"into": "in"}):
    """The traffic into DRAM and out of it."""

    into: tuple[DramIn, ...]
    out: tuple[DramOut, ...]


class Ifmap(Ranged, kw_only=True):
    """An ifmap of a workload, in the buffer."""

    align: Align
    bitwidth: Bitwidth
    size: Count
    transfer_id: Ids


class Weight(Ranged, kw_only=True):
    """The weights of a workload."""

    size: Count
    transfer_id: Ids


class Ofmap(Ranged, kw_only=True):
    """A piece of a workload's ofmap and where it goes."""

    bitwidth: Bitwidth | UnsetType = UNSET
    destination: tuple[CoreDestination | DramDestination, ...]
    size: Count
    transfer_id: Id


class Source(Ranged, kw_only=True):
    """The source of a part of a tensor, and its range within the tensor."""

    core_id: Annotated[int, Meta(ge=-1, le=1 << 31)]
    layer_name: Name | UnsetType = UNSET
    size: Count
    transfer_id: Id
    type: Literal["core", "DRAM"]


class Tensor(Ranged, kw_only=True):
    """A tensor in the buffer."""

    address: Count
    align: Align
    bitwidth: Bitwidth
    cur_wl_ifmap: bool | UnsetType = UNSET
    layer_name: Name | UnsetType = UNSET
    newly_added: bool
    size: Count
    source: tuple[Source, ...]
    tensor_id: Id
    tensor_order: Id | None
    transfer_id: Ids
    type: Literal["ifmap", "ofmap", "weight"]


class WeightBuffer(Record, kw_only=True):
    """Weights in the WL0 buffer."""

    address: Count
    align: Align
    bitwidth: Bitwidth
    layer_name: Name
    size: Count
    source: Literal["CORE", "DRAM"]
    tensor_order: Id | None
    transfer_id: Ids


class Tile(Record, kw_only=True):
    """A tile within a workload."""

    act_mini_tile: Corner
    ci_cut_num: Count
    cut_mode: Word
    ifmap_lower: Corner
    ifmap_upper: Corner
    layer_name: Name
    loop_order: Word
    mtc0_mtk0: Few
    ofmap_lower: Corner
    ofmap_upper: Corner
    out_mini_tile: Corner
    single_tile_time_pred: Annotated[float, Meta(ge=0, le=1 << 48)]
    tile_padding_tblr: Corner

    def __post_init__(self) -> None:
        """Raise ValueError for ranges that end before they begin."""
        check_range(self.ifmap_lower, self.ifmap_upper)
        check_range(self.ofmap_lower, self.ofmap_upper)


class Workload(Record, kw_only=True):
    """A workload of a core."""

    buffer: tuple[Tensor, ...]
    ifmap: Annotated[tuple[Ifmap, ...], Meta(max_length=64)]
    layer_name: Name
    layer_type: Literal["pe", "vp", "dt"]
    ofmap: tuple[Ofmap, ...]
    ofmap_size: Count
    ring_buffer_info: tuple[tuple[Count, Count], ...]
    tile_info: dict[Annotated[str, Meta(pattern="^tile_num_(0|[1-9][0-9]{0,8})$")], Tile]
    tile_padding_tblr: Corner
    time: Cycles
    weight: Weight | UnsetType = UNSET
    wl0_buffer: tuple[WeightBuffer, ...]
    workload: tuple[Corner, Corner]
    workload_id: Id

    def __post_init__(self) -> None:
        """Raise ValueError for a range that ends before it begins."""
        check_range(*self.workload)


class Top(Record, kw_only=True):
    """The keys beside those of DRAM and the cores."""

    buffersize: Count
    top_batch_cut: Side
    xlen: Side
    ylen: Side
