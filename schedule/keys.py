# SPDX-License-Identifier: Apache-2.0
"""Every key of a schedule's file: in which record it stands, its unit, its meaning.

Which dialect has it, and of which type it is, say the records themselves (``today.py``, ``older.py``);
docs/schedule-ir.md shows both as one table."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from weft.schedule import older, today


class Record(NamedTuple):
    """A kind of object in the file, with its types in both dialects.

    Several where ``type`` tells them apart, none where a dialect has no such object."""

    today: tuple[type[msgspec.Struct], ...]
    older: tuple[type[msgspec.Struct], ...]


class Key(NamedTuple):
    """The description of a key. ``unit`` is empty where there is none."""

    unit: str
    meaning: str


RECORDS: dict[str, Record] = {
    "file": Record((today.Top,), (older.Top,)),
    "-1": Record((today.Dram,), (older.Dram,)),
    "in": Record((today.DramIn,), (older.DramIn,)),
    "out": Record((today.DramOut,), (older.FmapOut, older.WeightOut)),
    "out.destination": Record((today.Reader,), (older.Reader,)),
    "workload": Record((today.Workload,), (older.Workload,)),
    "ifmap": Record((today.Ifmap,), (older.Ifmap,)),
    "weight": Record((today.Weight,), (older.Weight,)),
    "ofmap": Record((today.Ofmap,), (older.Ofmap,)),
    "ofmap.destination": Record((today.CoreDestination, today.DramDestination),
                                (older.CoreDestination, older.DramDestination)),
    "buffer": Record((today.Tensor,), (older.IfmapTensor, older.WeightTensor, older.OfmapTensor)),
    "source": Record((today.Source,), (older.IfmapSource, older.WeightSource)),
    "wl0_buffer": Record((today.WeightBuffer,), ()),
    "tile_info": Record((today.Tile,), ()),
}

KEYS: dict[str, Key] = {
    "file.buffersize": Key("bytes", "size of a core's L2 buffer"),
    "file.top_batch_cut": Key("", "groups that the batch is cut into at the root"),
    "file.xlen": Key("cores", "columns of the mesh"),
    "file.ylen": Key("cores", "rows of the mesh"),
    "-1.in": Key("", "blocks that go into DRAM"),
    "-1.out": Key("", "blocks that come out of DRAM"),
    "in.related_ofmap": Key("transfers", "blocks of `out` that read this one or a part of it"),
    "out.related_ifmap": Key("transfers", "blocks of `in` that this one is read from; none: the network's input, or "
                             "weights"),
    "out.type": Key("", "`fmap`, `weight`"),
    "out.lower": Key("elements", "first element, in the reader's ifmap (older: in the ofmap it comes from), or of the "
                     "weights"),
    "out.upper": Key("elements", "last element, included"),
    "out.layer_name": Key("", "layer that reads it"),
    "workload.buffer": Key("", "tensors in the L2 buffer as the workload starts"),
    "workload.ifmap": Key("", "what it reads of feature maps"),
    "workload.layer_type": Key("", "`pe` array, `vp` vectors, `dt` data transfer; older: `conv2d`, `pool`, `fc`, "
                               "`element_wise`"),
    "workload.ofmap": Key("", "pieces of its result and where they go"),
    "workload.ofmap_size": Key("bytes, older: bits", "size of its result"),
    "workload.ring_buffer_info": Key("bytes", "rings of the L2 buffer, [first address, size] each: behind the end of a "
                                     "ring comes its beginning"),
    "workload.tile_info": Key("", "`tile_num_0` and up: tiles within the workload"),
    "workload.time": Key("cycles", "estimate of how long it runs"),
    "workload.weight": Key("", "its weights, where its layer has some"),
    "workload.wl0_buffer": Key("", "weights in the WL0 buffer as the workload starts"),
    "workload.workload": Key("elements", "[lower, upper] of its ofmap, both included: [batch, channel, row, column]"),
    "workload.workload_id": Key("", "number, ascending on a core (older: one numbering of all cores)"),
    "ifmap.max_workload_id": Key("", "highest workload that makes some of it, 0 without one"),
    "weight.lower": Key("elements", "first weight: [K, C, R, S] or [1, K, C, R x S]; older: output channel"),
    "weight.upper": Key("elements", "last weight, included"),
    "ofmap.destination": Key("", "who gets the piece"),
    "out.destination": Key("", "who reads the block"),
    "buffer.address": Key("bytes", "where it begins in the L2 buffer"),
    "buffer.block": Key("KiB", "room that it takes"),
    "buffer.cur_wl_ifmap": Key("", "whether it is the workload's own ifmap"),
    "buffer.layer": Key("", "layer that it is for, of an ofmap the layer that makes it"),
    "buffer.newly_added": Key("", "whether it was not in the snapshot before"),
    "buffer.source": Key("", "where its parts come from"),
    "buffer.tensor_id": Key("", "number of the tensor on this core"),
    "buffer.tensor_order": Key("", "its place in the queue to DRAM, or null"),
    "buffer.type": Key("", "`ifmap`, `ofmap`, `weight`"),
    "buffer.workload_id": Key("", "workload of this core that an ifmap is for"),
    "source.channel": Key("elements", "channels of the ifmap that it becomes"),
    "source.lower": Key("elements", "first element, in the tensor (older: in the ofmap it comes from)"),
    "source.upper": Key("elements", "last element, included"),
    "source.type": Key("", "`core`, `DRAM`"),
    "ofmap.destination.type": Key("", "`core`, `DRAM`"),
    "out.destination.type": Key("", "`core`"),
    "wl0_buffer.address": Key("bytes", "where it begins in the WL0 buffer"),
    "wl0_buffer.source": Key("", "`CORE`: the L2 buffer, `DRAM`"),
    "wl0_buffer.tensor_order": Key("", "its place in the queue to DRAM, or null"),
    "tile_info.act_mini_tile": Key("elements", "sizes [N, C, H, W] of the input of one mini tile"),
    "tile_info.ci_cut_num": Key("", "groups of input channels"),
    "tile_info.cut_mode": Key("", "axes that the workload is cut along"),
    "tile_info.ifmap_lower": Key("elements", "first element that the tile reads"),
    "tile_info.ifmap_upper": Key("elements", "last element that the tile reads, included"),
    "tile_info.loop_order": Key("", "loops over mini tiles, outermost first; each axis once"),
    "tile_info.mtc0_mtk0": Key("", "groups of input and of output channels within a mini tile"),
    "tile_info.ofmap_lower": Key("elements", "first element that the tile makes"),
    "tile_info.ofmap_upper": Key("elements", "last element that the tile makes, included"),
    "tile_info.out_mini_tile": Key("elements", "sizes [N, K, H, W] of the output of one mini tile"),
    "tile_info.single_tile_time_pred": Key("cycles", "estimate of how long the tile runs"),
    "align": Key("elements", "channels are rounded up to a multiple of it"),
    "bitwidth": Key("bits", "width of an element"),
    "core_id": Key("", "core, -1 for DRAM"),
    "id": Key("", "core y * (xlen + 2) + x + 1, 0 for DRAM"),
    "layer_name": Key("", "layer that it belongs to, of a source the layer that makes it"),
    "lower": Key("elements", "first element: [batch, channel, row, column]"),
    "size": Key("bytes, older: bits", "size in memory"),
    "tile_padding_tblr": Key("elements", "padding above, below, left and right of the input"),
    "transfer_id": Key("", "transfers that bring it, or the one that takes it"),
    "upper": Key("elements", "last element, included"),
    "workload_id": Key("", "workload of that core"),
}
"""Meaning by record and key, ``record.key``; or by key alone where it means the same in all records that have it."""


def meaning(record: str, key: str) -> Key:
    """Return the description of a record's key. Raise KeyError for a key without one."""
    return KEYS[f"{record}.{key}"] if f"{record}.{key}" in KEYS else KEYS[key]


def keys_of(kinds: tuple[type[msgspec.Struct], ...]) -> dict[str, bool]:
    """Return the keys of a record and whether each must be there, whatever the record's ``type``."""
    found: dict[str, list[bool]] = {}
    for kind in kinds:
        fields: list[Any] = list(msgspec.structs.fields(kind))
        if kind.__struct_config__.tag_field:
            found.setdefault(kind.__struct_config__.tag_field, []).append(True)
        for field in fields:
            found.setdefault(field.encode_name, []).append(field.required)
    return {key: len(must) == len(kinds) and all(must) for key, must in sorted(found.items())}
