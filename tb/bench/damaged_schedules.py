# SPDX-License-Identifier: Apache-2.0
"""Damages of a schedule's file: each changes one thing at a place that a seed draws, and says how it must be told.

A damage takes a file's values, which it changes, and a random generator. It returns what a fault must name: rule, core,
workload, transfer; or words of the message with which the file is not even read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

Values = dict[str, Any]
Named = dict[str, Any]
"""``rule`` and some of ``core``, ``workload``, ``transfer``; or ``words``."""
Damage = Callable[[Values, random.Random], Named]


def is_today(values: Values) -> bool:
    return "buffersize" in values


def works(values: Values) -> Iterator[tuple[int, Values]]:
    for key, workloads in values.items():
        if key.isdigit():
            yield from ((int(key), workload) for workload in workloads)


def a_work(values: Values, draw: random.Random, wanted: Callable[[Values], Any] = lambda workload: True
           ) -> tuple[int, Values]:
    return draw.choice([(core, workload) for core, workload in works(values) if wanted(workload)])


def at(core: int, workload: Values, rule: str, **more: Any) -> Named:
    return {"rule": rule, "core": core, "workload": workload["workload_id"], **more}


def ifmap_of(workload: Values) -> Values:
    found = workload["ifmap"]
    return found[0] if isinstance(found, list) else found


def current(workload: Values) -> Values:
    """The tensor in the buffer that is the workload's ifmap."""
    return next(entry for entry in workload["buffer"] if entry["type"] == "ifmap"
                and (entry.get("cur_wl_ifmap") or entry.get("workload_id") == workload["workload_id"]))


def fmaps(values: Values, related: bool = False) -> list[Values]:
    return [block for block in values["-1"]["out"]
            if block["type"] == "fmap" and (block["related_ifmap"] or not related)]


# -- what is not even read ---------------------------------------------------------------------------------------------
def _unread(change: Callable[[Values, random.Random], str]) -> Damage:
    """A damage of one workload, whose core and number the message names."""
    def damage(values: Values, draw: random.Random) -> Named:
        core, workload = a_work(values, draw)
        return {"words": [f"core {core}, workload {workload['workload_id']}", change(workload, draw)]}
    return damage


def lost_key(workload: Values, draw: random.Random) -> str:
    key = draw.choice(["buffer", "ifmap", "layer_name", "layer_type", "ofmap", "ofmap_size", "time", "workload"])
    del workload[key]
    return f"key {key}: found no such key"


def lost_inner_key(workload: Values, draw: random.Random) -> str:
    entry = draw.choice(workload["ofmap"])
    del entry["size"]
    return f"transfer {entry['transfer_id']}, key ofmap[{workload['ofmap'].index(entry)}].size: found no such key"


def odd_key(workload: Values, draw: random.Random) -> str:
    draw.choice(workload["buffer"])["colour"] = 1
    return "found an unknown key colour"


def text_for_number(workload: Values, draw: random.Random) -> str:
    workload["time"] = str(workload["time"])
    return "key time: found '"


def truth_for_number(workload: Values, draw: random.Random) -> str:
    workload["ofmap_size"] = True
    return "key ofmap_size: found True; allowed: int"


def negative(workload: Values, draw: random.Random) -> str:
    workload["time"] = -1 - draw.randrange(100)
    return f"key time: found {workload['time']}; allowed: int >= 0"


def huge(workload: Values, draw: random.Random) -> str:
    workload["ofmap"][0]["upper"][2] = 1 << draw.randrange(40, 60)
    return "key ofmap[0].upper[2]"


def backwards(workload: Values, draw: random.Random) -> str:
    entry = draw.choice(workload["ofmap"])
    entry["lower"][1] = entry["upper"][1] + 1
    return "that ends before it begins"


def three_numbers(workload: Values, draw: random.Random) -> str:
    workload["workload"][0].pop()
    return "key workload[0]"


def odd_layer_type(workload: Values, draw: random.Random) -> str:
    workload["layer_type"] = "magic"
    return "key layer_type: found 'magic'; allowed: one of "


def odd_destination(workload: Values, draw: random.Random) -> str:
    draw.choice(draw.choice(workload["ofmap"])["destination"])["type"] = "bus"
    return "found invalid value 'bus'"


def null_list(workload: Values, draw: random.Random) -> str:
    workload["buffer"] = None
    return "key buffer: found None"


def lost_top(values: Values, draw: random.Random) -> Named:
    key = draw.choice(["xlen", "ylen", "top_batch_cut"])
    del values[key]
    return {"words": [f"schedule, key {key}: found no such key"]}


def no_workloads(values: Values, draw: random.Random) -> Named:
    core, _ = a_work(values, draw)
    values[str(core)] = {}
    return {"words": [f"core {core}: found dict"]}


def no_dram(values: Values, draw: random.Random) -> Named:
    del values["-1"]["out"]
    return {"words": ["DRAM, key out: found no such key"]}


# -- layers and workloads ----------------------------------------------------------------------------------------------
def grown_box(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: each["workload"][0][1] > 0 or each["workload"][0][2] > 0)
    axis = 1 if workload["workload"][0][1] > 0 else 2
    workload["workload"][0][axis] -= 1
    return {"rule": "layer boxes", "layer": workload["layer_name"]}


def shrunk_box(values: Values, draw: random.Random) -> Named:
    _, workload = a_work(values, draw, lambda each: each["workload"][1][1] > each["workload"][0][1])
    workload["workload"][0][1] += 1
    return {"rule": "layer boxes", "layer": workload["layer_name"]}


def lost_core(values: Values, draw: random.Random) -> Named:
    core, _ = a_work(values, draw)
    del values[str(core)]
    return {"rule": "destinations"}


def other_core(values: Values, draw: random.Random) -> Named:
    core, _ = a_work(values, draw)
    values["77"] = values.pop(str(core))
    return {"rule": "mesh"}


def swapped_workloads(values: Values, draw: random.Random) -> Named:
    core, _ = a_work(values, draw)
    workloads = values[str(core)]
    index = draw.randrange(len(workloads) - 1)
    workloads[index], workloads[index + 1] = workloads[index + 1], workloads[index]
    return at(core, workloads[index + 1], "workload order")


def twice_a_number(values: Values, draw: random.Random) -> Named:
    core, _ = a_work(values, draw)
    workloads = values[str(core)]
    index = draw.randrange(1, len(workloads))
    workloads[index]["workload_id"] = workloads[index - 1]["workload_id"]
    return at(core, workloads[index], "workload order")


def other_kind(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    kinds = ("pe", "vp") if is_today(values) else ("pool", "element_wise")
    workload["layer_type"] = kinds[workload["layer_type"] == kinds[0]]
    return {"rule": "layer kinds", "layer": workload["layer_name"]}


def other_layer(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    workload["layer_name"] = "elsewhere"
    return {"rule": "layer boxes"}


def small_ofmap(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    workload["ofmap_size"] //= 3
    return at(core, workload, "sizes")


def late_before_early(values: Values, draw: random.Random) -> Named:
    """The last workload of a core runs first, and all numbers are right for that."""
    core, _ = a_work(values, draw)
    workloads = values[str(core)]
    numbers = [workload["workload_id"] for workload in workloads]
    workloads.insert(0, workloads.pop())
    known = {workload["workload_id"]: number for workload, number in zip(workloads, numbers, strict=True)}
    _renumber(values, core, known)
    return {"rule": "deadlock"}


def _renumber(values: Values, core: int, known: dict[int, int]) -> None:
    for workload in values[str(core)]:
        workload["workload_id"] = known[workload["workload_id"]]
        for entry in workload["buffer"]:
            if "workload_id" in entry:
                entry["workload_id"] = known[entry["workload_id"]]
    targets = [target for block in values["-1"]["out"] for target in block["destination"]]
    targets += [target for _, workload in works(values) for piece in workload["ofmap"]
                for target in piece["destination"] if target["type"] == "core"]
    for entry in (*targets, *values["-1"]["in"]):
        if entry.get("id", entry.get("core_id")) == core:
            entry["workload_id"] = known[entry["workload_id"]]


# -- transfers ---------------------------------------------------------------------------------------------------------
def lost_piece(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    piece = draw.choice(workload["ofmap"])
    workload["ofmap"].remove(piece)
    target = draw.choice(piece["destination"])
    return {"rule": "DRAM" if target["type"] == "DRAM" else "transfers", "transfer": piece["transfer_id"]}


def lost_read(values: Values, draw: random.Random) -> Named:
    block = draw.choice(values["-1"]["out"])
    values["-1"]["out"].remove(block)
    return {"rule": "transfers", "transfer": block["transfer_id"]}


def lost_write(values: Values, draw: random.Random) -> Named:
    block = draw.choice(values["-1"]["in"])
    values["-1"]["in"].remove(block)
    return {"rule": "DRAM", "core": block["core_id"], "workload": block["workload_id"],
            "transfer": block["transfer_id"]}


def moved_write(values: Values, draw: random.Random) -> Named:
    block = draw.choice(values["-1"]["in"])
    block["lower"][1] += 1
    block["upper"][1] += 1
    return {"rule": "DRAM", "transfer": block["transfer_id"]}


def unlisted(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    transfer = ifmap_of(workload)["transfer_id"].pop()
    return {"rule": "destinations", "transfer": transfer}


def asked_of_nobody(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    ifmap_of(workload)["transfer_id"].append(999_999)
    return at(core, workload, "transfers", transfer=999_999)


def twice_an_id(values: Values, draw: random.Random) -> Named:
    one, other = draw.sample([piece for _, workload in works(values) for piece in workload["ofmap"]], 2)
    other["transfer_id"] = one["transfer_id"]
    return {"rule": "transfer ids", "transfer": one["transfer_id"]}


def to_nobody(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, _sends)
    piece, target = _sent(workload, draw)
    target["workload_id"] = 888_888
    return at(core, workload, "destinations", transfer=piece["transfer_id"])


def _sends(workload: Values) -> bool:
    return any(target["type"] == "core" for piece in workload["ofmap"] for target in piece["destination"])


def _sent(workload: Values, draw: random.Random) -> tuple[Values, Values]:
    return draw.choice([(piece, target) for piece in workload["ofmap"] for target in piece["destination"]
                        if target["type"] == "core"])


def lost_destination(values: Values, draw: random.Random) -> Named:
    _, workload = a_work(values, draw, _sends)
    piece, target = _sent(workload, draw)
    piece["destination"].remove(target)
    return {"rule": "transfers", "transfer": piece["transfer_id"], "core": target.get("id", target.get("core_id")),
            "workload": target["workload_id"]}


def twice_a_destination(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, _sends)
    piece, target = _sent(workload, draw)
    piece["destination"].append(dict(target))
    return at(core, workload, "destinations", transfer=piece["transfer_id"])


def moved_piece(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    piece = draw.choice(workload["ofmap"])
    piece["lower"][2] += 40
    piece["upper"][2] += 40
    return at(core, workload, "ofmap", transfer=piece["transfer_id"])


def small_read(values: Values, draw: random.Random) -> Named:
    block = draw.choice(fmaps(values))
    block["size"] //= 3
    return {"rule": "sizes", "transfer": block["transfer_id"]}


def unrelated(values: Values, draw: random.Random) -> Named:
    block = draw.choice(fmaps(values, related=True))
    other = draw.choice(block["related_ifmap"])
    block["related_ifmap"].remove(other)
    return {"rule": "related blocks", "transfer": other}


def unwritten(values: Values, draw: random.Random) -> Named:
    """Both sides forget a relation: only the elements tell that something is missing."""
    block = draw.choice([each for each in fmaps(values) if len(each["related_ifmap"]) > 1])
    other = block["related_ifmap"].pop()
    written = next(each for each in values["-1"]["in"] if each["transfer_id"] == other)
    written["related_ofmap"].remove(block["transfer_id"])
    return {"rule": "related blocks", "transfer": block["transfer_id"]}


def weights_for_fmap(values: Values, draw: random.Random) -> Named:
    """A workload lists its ifmap's transfer as its weights too."""
    core, workload = a_work(values, draw, lambda each: "weight" in each)
    workload["weight"]["transfer_id"] = [ifmap_of(workload)["transfer_id"][0]]
    return at(core, workload, "transfers", transfer=workload["weight"]["transfer_id"][0])


def other_last_producer(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    workload["ifmap"]["max_workload_id"] += 1
    return at(core, workload, "producers")


# -- buffers -----------------------------------------------------------------------------------------------------------
def lost_source(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: len(current(each)["source"]) > 1
                            and each["layer_type"] not in ("element_wise", "vp"))
    current(workload)["source"].pop()
    return at(core, workload, "ifmap")


def moved_source(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    source = draw.choice(current(workload)["source"])
    source["lower"][2] += 1
    source["upper"][2] += 1
    return at(core, workload, "sources", transfer=source["transfer_id"])


def source_elsewhere(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: any(source["type"] == "core"
                                                           for source in current(each)["source"]))
    source = draw.choice([each for each in current(workload)["source"] if each["type"] == "core"])
    key = "core_id" if is_today(values) else "id"
    source[key] = next(other for other, _ in works(values) if other != source[key])
    return at(core, workload, "sources", transfer=source["transfer_id"])


def source_of_other_layer(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: any(source["type"] == "core"
                                                           for source in current(each)["source"]))
    source = draw.choice([each for each in current(workload)["source"] if each["type"] == "core"])
    source["layer_name"] = workload["layer_name"]
    return at(core, workload, "sources", transfer=source["transfer_id"])


def lost_ifmap(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    workload["buffer"].remove(current(workload))
    return at(core, workload, "ifmap")


def lost_weights(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: "weight" in each)
    transfers = workload["weight"]["transfer_id"]
    workload["buffer"] = [entry for entry in workload["buffer"]
                          if entry["type"] != "weight" or entry["transfer_id"] not in (transfers, [transfers])]
    workload.pop("wl0_buffer", None)
    if is_today(values):
        workload["wl0_buffer"] = []
    return at(core, workload, "weights")


def other_weights(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: "weight" in each)
    if is_today(values):
        workload["weight"]["upper"][0] += 1
    else:
        workload["weight"]["upper"] += 1
    return at(core, workload, "weight channels")


def twice_a_tensor(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    workload["buffer"].append(dict(draw.choice(workload["buffer"])))
    return at(core, workload, "snapshots")


def gone_for_a_while(values: Values, draw: random.Random) -> Named:
    """An ifmap that another core sends leaves the buffer, and is back for its workload."""
    found = []
    for key in (key for key in values if key.isdigit()):
        for before, between, workload in zip(values[key], values[key][1:], values[key][2:], strict=False):
            tensor = current(workload)
            same = [[entry for entry in each["buffer"] if entry["type"] == "ifmap"
                     and entry["transfer_id"] == tensor["transfer_id"]] for each in (before, between)]
            if all(same) and any(source["type"] == "core" for source in tensor["source"]):
                found.append((int(key), between, workload, same[1][0]))
    core, between, workload, tensor = draw.choice(found)
    between["buffer"].remove(tensor)
    return at(core, workload, "snapshots")


def other_block(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    current(workload)["block"] += draw.choice([-1, 1])
    return at(core, workload, "room")


def room_of_another_ofmap(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: any(entry["type"] == "ofmap" for entry in each["buffer"]))
    next(entry for entry in workload["buffer"] if entry["type"] == "ofmap")["upper"][3] += 1
    return at(core, workload, "room")


# -- today's alone -----------------------------------------------------------------------------------------------------
def overlap(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: len(each["buffer"]) > 1)
    one, other = draw.sample(workload["buffer"], 2)
    one["address"] = other["address"]
    return at(core, workload, "overlap")


def beyond_the_buffer(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    draw.choice(workload["buffer"])["address"] = values["buffersize"]
    return at(core, workload, "room")


def wide_ring(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    workload["ring_buffer_info"][0][1] += 1
    return at(core, workload, "room")


def small_tensor(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    current(workload)["size"] -= 1
    return at(core, workload, "sizes")


def more_weights(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: "weight" in each)
    workload["weight"]["size"] += 1
    return at(core, workload, "sizes", transfer=workload["weight"]["transfer_id"][0])


def other_address(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: any(not entry["newly_added"] for entry in each["buffer"]))
    draw.choice([entry for entry in workload["buffer"] if not entry["newly_added"]])["address"] += 1
    return at(core, workload, "snapshots")


def not_so_new(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    entry = draw.choice(workload["buffer"])
    entry["newly_added"] = not entry["newly_added"]
    return at(core, workload, "snapshots")


def other_order(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: any(not entry["newly_added"] for entry in each["buffer"]))
    entry = draw.choice([entry for entry in workload["buffer"] if not entry["newly_added"]])
    entry["tensor_order"] += 1000
    return at(core, workload, "tensor ids")


def lost_tile(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: len(each["tile_info"]) > 1)
    workload["tile_info"].popitem()
    return at(core, workload, "tiles")


def loop_twice(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw)
    draw.choice(list(workload["tile_info"].values()))["loop_order"] = "KNHH"
    return at(core, workload, "tiles")


def overlap_in_wl0(values: Values, draw: random.Random) -> Named:
    core, workload = a_work(values, draw, lambda each: len(each["wl0_buffer"]) > 1)
    workload["wl0_buffer"][1]["address"] = workload["wl0_buffer"][0]["address"]
    return at(core, workload, "overlap")


UNREAD: dict[str, Damage] = {
    **{change.__name__: _unread(change) for change in (
        lost_key, lost_inner_key, odd_key, text_for_number, truth_for_number, negative, huge, backwards, three_numbers,
        odd_layer_type, odd_destination, null_list)},
    **{damage.__name__: damage for damage in (lost_top, no_workloads, no_dram)},
}
BOTH: dict[str, Damage] = {damage.__name__: damage for damage in (
    grown_box, shrunk_box, lost_core, other_core, swapped_workloads, twice_a_number, other_kind, other_layer,
    small_ofmap, late_before_early, lost_piece, lost_read, lost_write, moved_write, unlisted, asked_of_nobody,
    twice_an_id, to_nobody, lost_destination, twice_a_destination, moved_piece, small_read, unrelated, unwritten,
    weights_for_fmap, lost_source, moved_source, source_elsewhere, source_of_other_layer, lost_ifmap, lost_weights,
    other_weights, twice_a_tensor, gone_for_a_while)}
OLDER_ALONE: dict[str, Damage] = {damage.__name__: damage for damage in (
    other_last_producer, other_block, room_of_another_ofmap)}
TODAY_ALONE: dict[str, Damage] = {damage.__name__: damage for damage in (
    overlap, beyond_the_buffer, wide_ring, small_tensor, more_weights, other_address, not_so_new, other_order,
    lost_tile, loop_twice, overlap_in_wl0)}
