# SPDX-License-Identifier: Apache-2.0
"""The older dialect, which SET and Gemini publish.

Sizes in bits, one numbering of workloads over all cores, no addresses. Cores count the columns of DRAM at the left
and right of the mesh: y * (xlen + 2) + x + 1."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from weft.schedule.records import Coordinate, Corner, Count, Cycles, Id, Ids, Name, Ranged, Record, Side, check_range

DRAM_ID = 0
"""The word for DRAM in place of another core's number."""


class Channels(Record, kw_only=True):
    """A record with a range of output channels: ``lower`` to ``upper``, both included."""

    lower: Coordinate
    upper: Coordinate

    def __post_init__(self) -> None:
        """Raise ValueError if the range of channels ends before it begins."""
        check_range((self.lower,), (self.upper,))


class Reader(Record, kw_only=True, tag_field="type", tag="core"):
    """A reader of a block of DRAM."""

    id: Id
    workload_id: Id


class CoreDestination(Record, kw_only=True, tag_field="type", tag="core"):
    """A workload that gets a piece of an ofmap."""

    id: Id
    layer_name: Name
    workload_id: Id


class DramDestination(Record, kw_only=True, tag_field="type", tag="DRAM"):
    """DRAM, which gets a piece of an ofmap for a layer."""

    id: Literal[0]
    layer_name: Name


class DramIn(Ranged, kw_only=True):
    """A block that a core writes to DRAM."""

    core_id: Id
    related_ofmap: Ids
    transfer_id: Id
    workload_id: Id


class FmapOut(Ranged, kw_only=True, tag_field="type", tag="fmap"):
    """A block of a feature map that cores read from DRAM."""

    destination: tuple[Reader, ...]
    layer_name: Name
    related_ifmap: Ids
    size: Count
    transfer_id: Id


class WeightOut(Channels, kw_only=True, tag_field="type", tag="weight"):
    """Weights that cores read from DRAM."""

    destination: tuple[Reader, ...]
    layer_name: Name
    related_ifmap: Ids
    size: Count
    transfer_id: Id


class Dram(Record, kw_only=True, rename={"into": "in"}):
    """The traffic into DRAM and out of it."""

    into: tuple[DramIn, ...]
    out: tuple[FmapOut | WeightOut, ...]


class Ifmap(Ranged, kw_only=True):
    """The part of its layer's ifmap that a workload reads."""

    max_workload_id: Id
    transfer_id: Ids


class Weight(Channels, kw_only=True):
    """The weights of a workload."""

    transfer_id: tuple[Id]


class Ofmap(Ranged, kw_only=True):
    """A piece of a workload's ofmap and where it goes."""

    destination: tuple[CoreDestination | DramDestination, ...]
    size: Count
    transfer_id: Id


class IfmapSource(Ranged, kw_only=True):
    """The source of a part of an ifmap: its range in the ofmap of ``layer_name``; ``channel`` in the ifmap."""

    channel: tuple[Coordinate, Coordinate]
    id: Id
    layer_name: Name
    size: Count
    transfer_id: Id
    type: Literal["core", "DRAM"]

    def __post_init__(self) -> None:
        """Raise ValueError if the range in the ofmap, or ``channel``, ends before it begins.

        Raise it too if both do not have the same number of channels."""
        check_range(self.lower, self.upper)
        check_range(self.channel[:1], self.channel[1:])
        if self.channel[1] - self.channel[0] != self.upper[1] - self.lower[1]:
            raise ValueError(f"channel {list(self.channel)}, not as many as of {list(self.lower)}..{list(self.upper)}")


class WeightSource(Channels, kw_only=True):
    """The source of weights."""

    id: Literal[0]
    size: Count
    transfer_id: Id
    type: Literal["DRAM"]


class IfmapTensor(Ranged, kw_only=True, tag_field="type", tag="ifmap"):
    """An ifmap in the buffer, for the workload ``workload_id``."""

    block: Count
    layer: Name
    source: tuple[IfmapSource, ...]
    transfer_id: Ids
    workload_id: Id


class WeightTensor(Channels, kw_only=True, tag_field="type", tag="weight"):
    """Weights in the buffer, of a layer."""

    block: Count
    layer: Name
    source: tuple[WeightSource]
    transfer_id: tuple[tuple[Id]]


class OfmapTensor(Ranged, kw_only=True, tag_field="type", tag="ofmap"):
    """Room in the buffer for an ofmap on its way to DRAM; ``block`` may be less than ``size``."""

    block: Count
    layer: Name
    size: Count


class Workload(Record, kw_only=True):
    """A workload of a core."""

    buffer: tuple[IfmapTensor | WeightTensor | OfmapTensor, ...]
    ifmap: Ifmap
    layer_name: Name
    layer_type: Literal["conv2d", "pool", "fc", "element_wise"]
    ofmap: tuple[Ofmap, ...]
    ofmap_size: Count
    time: Cycles
    weight: Weight | UnsetType = UNSET
    workload: tuple[Corner, Corner]
    workload_id: Id

    def __post_init__(self) -> None:
        """Raise ValueError if the range of elements that the workload makes ends before it begins."""
        check_range(*self.workload)


class Top(Record, kw_only=True):
    """The keys beside those of DRAM and the cores."""

    top_batch_cut: Side
    xlen: Side
    ylen: Side
