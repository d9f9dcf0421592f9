# SPDX-License-Identifier: Apache-2.0
"""Collect the data that a page shows: layers, times, memory, numbers, machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.units import NEVER, UNIT_NAMES, dram_units, unit_names
from weft.report.live import memory_over_time
from weft.report.operations import Ran
from weft.report.picture import nodes
from weft.report.texts import shown
from weft.tmodel.network import Network

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Machine:
    """The machine as the page describes it.

    ``name`` of the preset, or what to call it; ``clock_hz``, and whether a board's build asks for it; ``routing``: the
    result of open tools there, in words; ``resources``: the result of ``hw.flow.resources.fits``, None without a
    part."""

    name: str
    clock_hz: float
    clock_known: bool
    routing: str
    resources: dict[str, Any] | None


def page_data(network: Network, machine: Machine, programs: Sequence[tuple[Ran, Rows]],
              totals: dict[str, Any]) -> dict[str, Any]:
    """Return all data of the page.

    ``programs``: each that ran, with rows that say where the cycles of its layers went; ``totals``: of all of them.
    Both as ``weft estimate --json`` prints them."""
    arch = network.arch
    layers, offset = [], 0
    for part, (ran, rows) in enumerate(programs):
        layers += _layers(ran, rows, part, offset)
        offset += ran.cycles
    return {
        "name": shown(network.name), "lanes": arch.array_size, "machine": _machine(machine, arch),
        "cycles": totals["cycles"], "macs": totals["macs"], "done_macs": totals["done_macs"],
        "utilization": totals["utilization"], "waits": totals["waits"],
        "tail": totals["tail"], "layers": layers, "nodes": nodes(network),
        "roof": {"macs_per_cycle": arch.array_size**2, "bytes_per_cycle": arch.axi_data_width // 8},
        "memory": [memory_over_time(ran) for ran, _ in programs], "vector_bytes": arch.vector_bytes,
        "units": list(unit_names(arch)), "programs": [ran.cycles for ran, _ in programs],
    }


def _machine(machine: Machine, arch: Arch) -> dict[str, Any]:
    """Return the machine's description with its architecture keys."""
    keys = {key: value for key, value in arch.to_dict().items() if value is not None}
    return {**dataclasses.asdict(machine), "keys": {key: shown(str(value)) for key, value in keys.items()}}


# -- layers ------------------------------------------------------------------------------------------------------------
def _layers(ran: Ran, rows: Rows, part: int, offset: int) -> list[dict[str, Any]]:
    """Return a row for each layer of a program; ``offset``: the cycles of earlier programs."""
    arch, found = ran.model.arch, []
    moved = _moved(ran, len(ran.model.layers))
    begins, ends = ran.spans
    times = [(begins[mine], ends[mine]) for mine in _by_layer(ran)]
    by_number = dict(enumerate(rows))
    for number, row in enumerate(ran.model.layers):
        where = by_number.get(number, {"cycles": 0, "vectors": 0, "waits": {}, "utilization": None, "done_macs": 0})
        vectors, done = where["vectors"], where["done_macs"]
        useful = done / arch.array_size**2
        begin, end = times[number]
        found.append({
            "name": shown(row["name"]), "kind": shown(row["kind"]), "part": part, "macs": row["macs"],
            "done_macs": done, "roof": roof_point(done, where["cycles"], max(moved[number].values(), default=0), arch),
            "cycles": where["cycles"], "vectors": vectors, "waits": where["waits"],
            "utilization": where["utilization"], "useful": round(useful, 1), "idle": round(vectors - useful, 1),
            "lanes": lanes_used(row, arch.array_size), "dram": moved[number], "numbers": _numbers(row),
            "input": _shape(row.get("input")), "output": _shape(row.get("output")),
            "begin": offset + int(begin.min()) if len(begin) else None,
            "end": offset + int(end.max()) if len(end) else None,
        })
    return found


def roof_point(done: int, cycles: int, moved: int, arch: Arch) -> dict[str, float] | None:
    """Return a layer's place below the roofline: multiply-accumulates a byte and a cycle, or None.

    Bytes (``moved``) are those of the DRAM port that moves most. A layer's data may be loaded while the layer before
    computes; if loading takes longer than the layer's ``cycles`` of the array, that time counts."""
    if not (done and cycles and moved):
        return None
    return {"macs_per_byte": done / moved, "macs_per_cycle": done / max(cycles, moved / (arch.axi_data_width // 8))}


def _by_layer(ran: Ran) -> list[np.ndarray]:
    """Return, for each layer, the indices of its finished operations."""
    done = ran.spans[1] != NEVER
    return [np.flatnonzero(done & (ran.layers == number)) for number in range(len(ran.model.layers))]


def _moved(ran: Ran, count: int) -> list[dict[str, int]]:
    """Return, for each layer, the bytes by DRAM unit."""
    found: list[dict[str, int]] = [{} for _ in range(count)]
    sizes = ran.work["size"].astype(np.int64) * ran.work["rows"] * ran.model.arch.vector_bytes
    for unit in dram_units(ran.model.arch):
        mine = (ran.work["unit"] == UNIT_NAMES.index(unit)) & (ran.layers >= 0) & (ran.layers < count)
        for number, size in enumerate(np.bincount(ran.layers[mine], sizes[mine], count)):
            found[number][unit] = int(size)
    return found


def lanes_used(row: dict[str, Any], lanes: int) -> dict[str, float] | None:
    """Return how many ``rows`` and ``columns`` of the array, of ``lanes`` each, a layer's weight tiles fill on average.

    Return None if that is not known, or if the layer computes nothing on the array. Layers of groups fill blocks on the
    diagonal: there both are the size of one block, or of the blocks that one tile holds."""
    shapes = _shape(row.get("input")), _shape(row.get("output"))
    group = row.get("group")
    if not row["macs"] or not shapes[0] or not shapes[1] or not isinstance(group, int) or group < 1:
        return None
    found = {}
    for name, (channels, *_) in zip(("rows", "columns"), shapes, strict=True):
        each = max(channels // group, 1)
        found[name] = each / math.ceil(each / lanes)
    return {name: round(used, 1) for name, used in found.items()} | {"group": group}


def _shape(value: Any) -> list[int]:
    """Return a list of sizes, or an empty one for anything else, as rows of a file are unchecked."""
    if isinstance(value, list) and value and all(type(size) is int and size > 0 for size in value):
        return value
    return []


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """Return range, point or scale and zero, saturations and SNR of a layer, as far as the file has them."""
    low, high = (row["range"] if _pair(row.get("range")) else (None, None))
    points, scales = (found if isinstance(found, dict) else {} for found in (row.get("points"), row.get("scales")))
    return {"low": low, "high": high, "point": _number(points.get("output")),
            "scale": scales["output"] if _pair(scales.get("output")) else None,
            "saturated": _number(row.get("saturated")), "saturations": _number(row.get("saturations")),
            "snr": _number(row.get("signal_to_noise")), "measured": "saturations" in row}


def _pair(value: Any) -> bool:
    """Tell whether a value is a list of two numbers."""
    return isinstance(value, list) and len(value) == 2 and all(_number(each) is not None for each in value)


def _number(value: Any) -> float | int | None:
    """Return a finite number as it is, None for anything else."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if known else None
