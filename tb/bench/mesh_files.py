# SPDX-License-Identifier: Apache-2.0
"""Schedules of a small network on 2 x 2 cores, written by hand for tests, in both dialects of the format.

It shares nothing with ``schedule/``: plain dictionaries, from the format's description and from what published files
look like. Cores run the layers in step, one workload a layer, cut in rows, columns, channels or quarters. What goes
from layer to layer goes to other cores, or through DRAM.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class LayerSpec:
    """A layer of ``shape`` [channels, rows, columns]; ``inputs`` are joined by channels, of an addition laid on each
    other. ``stored``: its ofmap goes through DRAM."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    cut: str
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    stored: bool = False
    weight_volume: int = 0


INPUT = (3, 16, 16)
NETWORK = (
    LayerSpec("conv1", "conv2d", (), (16, 16, 16), "quarters", 3, 1, 1, weight_volume=27),
    LayerSpec("pool1", "pool", ("conv1",), (16, 8, 8), "rows", 2, 2, stored=True),
    LayerSpec("left", "conv2d", ("pool1",), (16, 8, 8), "channels", 1, weight_volume=16),
    LayerSpec("right", "conv2d", ("pool1",), (32, 8, 8), "columns", 3, 1, 1, stored=True, weight_volume=144),
    LayerSpec("joined", "conv2d", ("left", "right"), (16, 8, 8), "rows", 1, weight_volume=48),
    LayerSpec("sum", "element_wise", ("joined", "left"), (16, 8, 8), "quarters"),
    LayerSpec("fc", "fc", ("sum",), (16, 1, 1), "channels", stored=True, weight_volume=1024),
)
"""Ends in ``fc``, which nobody reads."""

KINDS = {"conv2d": "pe", "fc": "pe", "pool": "vp", "element_wise": "vp"}


def boxes(spec: LayerSpec) -> list[Box]:
    """The boxes of four cores."""
    channels, rows, columns = spec.shape
    steps = {"rows": (1, 4, 1), "columns": (1, 1, 4), "channels": (4, 1, 1), "quarters": (1, 2, 2)}[spec.cut]
    sizes = tuple(size // step for size, step in zip((channels, rows, columns), steps, strict=True))
    return [((0, *(at * size for at, size in zip(place, sizes, strict=True))),
             (0, *((at + 1) * size - 1 for at, size in zip(place, sizes, strict=True))))
            for place in itertools.product(*map(range, steps))]


def volume(box: Box) -> int:
    return math.prod(high - low + 1 for low, high in zip(*box, strict=True))


def common(one: Box, other: Box) -> Box | None:
    lower, upper = tuple(map(max, one[0], other[0])), tuple(map(min, one[1], other[1]))
    return (lower, upper) if all(low <= high for low, high in zip(lower, upper, strict=True)) else None


def moved(box: Box, channels: int) -> Box:
    (batch, low, *rest), (last, high, *ends) = box
    return (batch, low + channels, *rest), (last, high + channels, *ends)


@dataclass
class Part:
    """A part of a workload's ifmap: ``box`` in the ofmap of ``layer``, ``place`` in the ifmap."""

    transfer: int
    layer: str
    core: int
    box: Box
    place: Box


@dataclass
class Work:
    """A workload of core ``core`` (0 to 3), the ``layer``-th of its core."""

    layer: int
    core: int
    box: Box
    ifmap: Box
    operands: list[list[Part]] = field(default_factory=list)
    pieces: dict[Box, dict[str, Any]] = field(default_factory=dict)
    weight: int | None = None


@dataclass
class Mesh:
    """The network's workloads, and the blocks of DRAM, both before they become one of the dialects."""

    works: list[list[Work]] = field(default_factory=list)
    written: dict[int, dict[str, Any]] = field(default_factory=dict)
    read: dict[int, dict[str, Any]] = field(default_factory=dict)
    transfers: itertools.count[int] = field(default_factory=itertools.count)


def needed(spec: LayerSpec, box: Box) -> Box:
    """What of the ifmap a workload reads; the ifmap's channels are those of all inputs."""
    shapes = [INPUT] if not spec.inputs else [next(each.shape for each in NETWORK if each.name == name)
                                              for name in spec.inputs]
    overlay = spec.kind == "element_wise"
    channels, rows, columns = (shapes[0][0] if overlay else sum(shape[0] for shape in shapes)), *shapes[0][1:]
    (_, low, *first), (_, high, *last) = box
    if spec.kind == "fc":
        return (0, 0, 0, 0), (0, channels - 1, rows - 1, columns - 1)
    starts = [max(0, at * spec.stride - spec.pad) for at in first]
    ends = [min(size, at * spec.stride - spec.pad + spec.kernel) - 1
            for at, size in zip(last, (rows, columns), strict=True)]
    span = (low, high) if spec.kind in ("pool", "element_wise") else (0, channels - 1)
    return (0, span[0], *starts), (0, span[1], *ends)


def mesh() -> Mesh:
    """The network on four cores."""
    found = Mesh()
    names = [spec.name for spec in NETWORK]
    for number, spec in enumerate(NETWORK):
        works = [Work(number, core, box, needed(spec, box)) for core, box in enumerate(boxes(spec))]
        found.works.append(works)
        _add_weights(found, spec, works)
        offset = 0
        for name in spec.inputs or ("",):
            _add_operand(found, spec, works, name, names, offset)
            if spec.kind != "element_wise" and name:
                offset += NETWORK[names.index(name)].shape[0]
    for works in found.works:
        for work in works:
            if NETWORK[work.layer].stored:
                _stored(found, work)
    return found


def _add_weights(found: Mesh, spec: LayerSpec, works: list[Work]) -> None:
    ranges: dict[tuple[int, int], int] = {}
    for work in works if spec.weight_volume else ():
        span = work.box[0][1], work.box[1][1]
        if span not in ranges:
            ranges[span] = next(found.transfers)
            found.read[ranges[span]] = {"weight": span, "layer": spec.name, "readers": [], "related": [],
                                        "volume": (span[1] - span[0] + 1) * spec.weight_volume}
        work.weight = ranges[span]
        found.read[work.weight]["readers"].append((work.core, work.layer))


def _add_operand(found: Mesh, spec: LayerSpec, works: list[Work], name: str, names: list[str], offset: int) -> None:
    """An input of the layer for all its workloads: the network's own, through DRAM, or from other cores."""
    blocks: dict[Box, int] = {}
    for work in works:
        shape = NETWORK[names.index(name)].shape if name else INPUT
        whole: Box = ((0, 0, 0, 0), (0, *(size - 1 for size in shape)))
        box = common(moved(work.ifmap, -offset), whole)
        assert box is not None
        parts: list[Part] = []
        if not name or NETWORK[names.index(name)].stored:
            if box not in blocks:
                blocks[box] = _block(found, spec, name, names, box, moved(box, offset))
            found.read[blocks[box]]["readers"].append((work.core, work.layer))
            parts.append(Part(blocks[box], name or "input", -1, box, moved(box, offset)))
        else:
            for producer in found.works[names.index(name)]:
                piece = common(box, producer.box)
                if piece:
                    entry = producer.pieces.setdefault(piece, {"transfer": next(found.transfers), "readers": []})
                    entry["readers"].append((work.core, work.layer))
                    parts.append(Part(entry["transfer"], name, producer.core, piece, moved(piece, offset)))
        work.operands.append(parts)


def _block(found: Mesh, spec: LayerSpec, name: str, names: list[str], box: Box, place: Box) -> int:
    """A block that comes out of DRAM, of what the layer ``name`` wrote there."""
    transfer = next(found.transfers)
    related = []
    for producer in found.works[names.index(name)] if name else ():
        if common(box, producer.box):
            written = _stored(found, producer)
            found.written[written]["related"].append(transfer)
            related.append(written)
    found.read[transfer] = {"weight": None, "layer": spec.name, "readers": [], "related": related, "box": box,
                            "place": place}
    return transfer


def _stored(found: Mesh, work: Work) -> int:
    """The transfer by which a workload's ofmap goes to DRAM."""
    entry = work.pieces.setdefault(work.box, {"transfer": next(found.transfers), "readers": []})
    entry["stored"] = True
    found.written.setdefault(entry["transfer"], {"work": work, "related": []})
    return int(entry["transfer"])


def first_snapshot(work: Work, found: Mesh) -> int:
    """The workload, by its place on the core, with which an ifmap comes into the buffer."""
    names = [spec.name for spec in NETWORK]
    made = [names.index(part.layer) for parts in work.operands for part in parts if part.core >= 0]
    return min([work.layer, max(work.layer - 1, 0), *made])


# -- the older dialect -------------------------------------------------------------------------------------------------
CORES = (1, 2, 5, 6)


def older() -> dict[str, Any]:
    """The schedule as SET writes it: bits, one numbering of workloads, no addresses."""
    found = mesh()
    return {"-1": {"in": [_older_in(found, transfer) for transfer in found.written],
                   "out": [_older_out(found, transfer) for transfer in found.read]},
            **{str(CORES[core]): [_older_workload(found, works[core]) for works in found.works] for core in range(4)},
            "top_batch_cut": 1, "xlen": 2, "ylen": 2}


def _number(core: int, layer: int) -> int:
    return layer * 4 + core


def _ends(box: Box) -> dict[str, Any]:
    return {"lower": list(box[0]), "upper": list(box[1])}


def _older_in(found: Mesh, transfer: int) -> dict[str, Any]:
    work = found.written[transfer]["work"]
    return {"core_id": CORES[work.core], **_ends(work.box), "related_ofmap": found.written[transfer]["related"],
            "transfer_id": transfer, "workload_id": _number(work.core, work.layer)}


def _older_out(found: Mesh, transfer: int) -> dict[str, Any]:
    block = found.read[transfer]
    weight = block["weight"]
    return {"destination": [{"id": CORES[core], "type": "core", "workload_id": _number(core, layer)}
                            for core, layer in block["readers"]],
            "layer_name": block["layer"], "related_ifmap": block["related"], "transfer_id": transfer,
            "type": "fmap" if weight is None else "weight",
            **(_ends(block["box"]) if weight is None else {"lower": weight[0], "upper": weight[1]}),
            "size": 8 * (volume(block["box"]) if weight is None else block["volume"])}


def _older_ifmap(work: Work) -> dict[str, Any]:
    parts = [part for parts in work.operands for part in parts]
    return {"block": -(-volume(work.ifmap) // 1024), "layer": NETWORK[work.layer].name, **_ends(work.ifmap),
            "source": [{"channel": [part.place[0][1], part.place[1][1]],
                        "id": CORES[part.core] if part.core >= 0 else 0,
                        "layer_name": part.layer, **_ends(part.box), "size": 8 * volume(part.box),
                        "transfer_id": part.transfer, "type": "core" if part.core >= 0 else "DRAM"}
                       for part in parts],
            "transfer_id": [part.transfer for part in parts], "type": "ifmap",
            "workload_id": _number(work.core, work.layer)}


def _older_weight(found: Mesh, work: Work) -> dict[str, Any]:
    assert work.weight is not None
    block = found.read[work.weight]
    low, high = block["weight"]
    return {"block": -(-block["volume"] // 1024), "layer": NETWORK[work.layer].name, "lower": low, "upper": high,
            "source": [{"id": 0, "lower": low, "upper": high, "size": 8 * block["volume"], "transfer_id": work.weight,
                        "type": "DRAM"}],
            "transfer_id": [[work.weight]], "type": "weight"}


def _older_workload(found: Mesh, work: Work) -> dict[str, Any]:
    spec = NETWORK[work.layer]
    own = [works[work.core] for works in found.works]
    buffer = [_older_ifmap(later) for later in own if first_snapshot(later, found) <= work.layer <= later.layer]
    buffer += [_older_weight(found, later) for later in own
               if later.weight is not None and later.layer - 1 <= work.layer <= later.layer]
    if spec.stored:
        buffer.append({"block": 1, "layer": spec.name, **_ends(work.box), "size": 8 * volume(work.box),
                       "type": "ofmap"})
    transfers = [part.transfer for parts in work.operands for part in parts]
    return {"buffer": buffer, "ifmap": {**_ends(work.ifmap), "max_workload_id": _last_producer(found, work),
                                        "transfer_id": transfers},
            "layer_name": spec.name, "layer_type": spec.kind,
            "ofmap": [_older_piece(found, box, piece) for box, piece in work.pieces.items()],
            "ofmap_size": 8 * volume(work.box), "time": 100 * work.layer + 7,
            **({} if work.weight is None else {"weight": {"lower": work.box[0][1], "upper": work.box[1][1],
                                                          "transfer_id": [work.weight]}}),
            "workload": [list(work.box[0]), list(work.box[1])], "workload_id": _number(work.core, work.layer)}


def _last_producer(found: Mesh, work: Work) -> int:
    numbers = [0]
    for part in (part for parts in work.operands for part in parts):
        if part.core >= 0:
            numbers.append(_number(part.core, [spec.name for spec in NETWORK].index(part.layer)))
        else:
            numbers += [_number(entry["work"].core, entry["work"].layer)
                        for entry in map(found.written.get, found.read[part.transfer]["related"]) if entry]
    return max(numbers)


def _older_piece(found: Mesh, box: Box, piece: dict[str, Any]) -> dict[str, Any]:
    targets = [{"id": CORES[core], "layer_name": NETWORK[layer].name, "type": "core",
                "workload_id": _number(core, layer)} for core, layer in piece["readers"]]
    if piece.get("stored"):
        readers = [found.read[number]["layer"] for number in found.written[piece["transfer"]]["related"]]
        targets.append({"id": 0, "layer_name": (readers or ["output"])[0], "type": "DRAM"})
    return {"destination": targets, **_ends(box), "size": 8 * volume(box), "transfer_id": piece["transfer"]}


# -- today's dialect ---------------------------------------------------------------------------------------------------
ALIGN = 8
BUFFER = 1 << 16


def aligned(box: Box) -> int:
    """Bytes of a tensor of bytes whose channels are aligned."""
    channels = box[1][1] - box[0][1] + 1
    return volume(box) // channels * -(-channels // ALIGN) * ALIGN


def today() -> dict[str, Any]:
    """The schedule as the format's description has it: bytes, workloads by core, addresses."""
    found = mesh()
    return {"-1": {"in": [_today_in(found, transfer) for transfer in found.written],
                   "out": [_today_out(found, transfer) for transfer in found.read]},
            **{str(core): _today_core(found, core) for core in range(4)},
            "buffersize": BUFFER, "top_batch_cut": 1, "xlen": 2, "ylen": 2}


def _today_in(found: Mesh, transfer: int) -> dict[str, Any]:
    work = found.written[transfer]["work"]
    return {"core_id": work.core, "layer_name": NETWORK[work.layer].name, **_ends(work.box),
            "related_ofmap": found.written[transfer]["related"], "transfer_id": transfer, "workload_id": work.layer}


def _weight_ends(block: dict[str, Any]) -> dict[str, Any]:
    """[K, C, R x S, 1] with C = 1: the volume is what counts here."""
    low, high = block["weight"]
    return {"lower": [low, 0, 0, 0], "upper": [high, 0, block["volume"] // (high - low + 1) - 1, 0]}


def _today_out(found: Mesh, transfer: int) -> dict[str, Any]:
    block = found.read[transfer]
    is_weight = block["weight"] is not None
    return {"destination": [{"core_id": core, "layer_name": block["layer"], "type": "core", "workload_id": layer}
                            for core, layer in block["readers"]],
            **(_weight_ends(block) if is_weight else _ends(block["place"])), "related_ifmap": block["related"],
            "size": block["volume"] if is_weight else aligned(block["box"]), "transfer_id": transfer,
            "type": "weight" if is_weight else "fmap"}


def _today_tensors(found: Mesh, core: int) -> list[dict[str, Any]]:
    """Every tensor of a core's buffer with its first and last snapshot and its address."""
    tensors: list[dict[str, Any]] = []
    for works in found.works:
        work = works[core]
        spec = NETWORK[work.layer]
        for parts in work.operands:
            box = work.ifmap
            entry = {**_ends(box), "align": ALIGN, "bitwidth": 8, "size": aligned(box), "type": "ifmap",
                     "layer_name": spec.name, "transfer_id": [part.transfer for part in parts],
                     "source": [_today_source(part) for part in parts]}
            tensors.append({"entry": entry, "first": first_snapshot(work, found), "last": work.layer,
                            "current": work.layer})
            if spec.kind != "element_wise":
                rest = [part for others in work.operands[1:] for part in others]
                entry["transfer_id"] += [part.transfer for part in rest]
                entry["source"] += [_today_source(part) for part in rest]
                break
        if work.weight is not None:
            block = found.read[work.weight]
            entry = {**_weight_ends(block), "align": ALIGN, "bitwidth": 8, "size": block["volume"], "type": "weight",
                     "layer_name": spec.name, "transfer_id": [work.weight],
                     "source": [{"core_id": -1, **_weight_ends(block), "size": block["volume"], "type": "DRAM",
                                 "transfer_id": work.weight}]}
            tensors.append({"entry": entry, "first": max(work.layer - 1, 0), "last": work.layer, "current": None})
        entry = {**_ends(work.box), "align": ALIGN, "bitwidth": 8, "size": aligned(work.box), "type": "ofmap",
                 "layer_name": spec.name, "source": [],
                 "transfer_id": [piece["transfer"] for piece in work.pieces.values()]}
        tensors.append({"entry": entry, "first": work.layer, "last": work.layer, "current": None})
    address = 0
    for number, tensor in enumerate(tensors):  # without reuse: there is room
        tensor["entry"].update(address=address, tensor_id=number, tensor_order=number)
        address += tensor["entry"]["size"]
    assert address <= BUFFER
    return tensors


def _today_source(part: Part) -> dict[str, Any]:
    return {"core_id": part.core, **_ends(part.place), "size": aligned(part.box), "transfer_id": part.transfer,
            **({"type": "core", "layer_name": part.layer} if part.core >= 0 else {"type": "DRAM"})}


def _today_core(found: Mesh, core: int) -> list[dict[str, Any]]:
    tensors = _today_tensors(found, core)
    return [_today_workload(found, works[core], tensors) for works in found.works]


def _today_workload(found: Mesh, work: Work, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    spec = NETWORK[work.layer]
    buffer = [{**tensor["entry"], "newly_added": tensor["first"] == work.layer,
               **({"cur_wl_ifmap": True} if tensor["current"] == work.layer else {})}
              for tensor in tensors if tensor["first"] <= work.layer <= tensor["last"]]
    weight = None if work.weight is None else found.read[work.weight]
    keys = ("align", "bitwidth", "lower", "size", "transfer_id", "upper")
    return {"buffer": buffer,
            "ifmap": [{key: entry[key] for key in keys} for entry in buffer if entry.get("cur_wl_ifmap")],
            "layer_name": spec.name, "layer_type": KINDS[spec.kind],
            "ofmap": [_today_piece(box, piece) for box, piece in work.pieces.items()],
            "ofmap_size": aligned(work.box), "ring_buffer_info": [[0, BUFFER]], "tile_info": _tiles(work, spec),
            "tile_padding_tblr": [spec.pad] * 4, "time": 100 * work.layer + 7,
            **({} if weight is None else {"weight": {**_weight_ends(weight), "size": weight["volume"],
                                                     "transfer_id": [work.weight]}}),
            "wl0_buffer": [] if weight is None else
            [{"address": 64 * half, "align": ALIGN, "bitwidth": 8, "layer_name": spec.name, "size": 64,
              "source": "CORE", "tensor_order": None, "transfer_id": [work.weight]} for half in range(2)],
            "workload": [list(work.box[0]), list(work.box[1])], "workload_id": work.layer}


def _today_piece(box: Box, piece: dict[str, Any]) -> dict[str, Any]:
    targets = [{"core_id": core, "type": "core", "workload_id": layer} for core, layer in piece["readers"]]
    if piece.get("stored"):
        targets.append({"core_id": -1, "type": "DRAM"})
    return {"destination": targets, **_ends(box), "size": aligned(box), "transfer_id": piece["transfer"]}


def _tiles(work: Work, spec: LayerSpec) -> dict[str, Any]:
    """Two tiles of half the channels each."""
    (_, low, *starts), (_, high, *ends) = work.box
    middle = (low + high) // 2
    spans = [(low, middle), (middle + 1, high)] if low < high else [(low, high)]
    return {f"tile_num_{number}": {
        "act_mini_tile": [1, 1, 4, 4], "ci_cut_num": 1, "cut_mode": "KH", "ifmap_lower": list(work.ifmap[0]),
        "ifmap_upper": list(work.ifmap[1]), "layer_name": spec.name, "loop_order": "KNHW", "mtc0_mtk0": [1, 1],
        "ofmap_lower": [0, first, *starts], "ofmap_upper": [0, last, *ends], "out_mini_tile": [1, 8, 2, 2],
        "single_tile_time_pred": 3.5, "tile_padding_tblr": [spec.pad] * 4}
        for number, (first, last) in enumerate(spans)}
