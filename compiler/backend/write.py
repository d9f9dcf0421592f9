"""The files of a compiled model, and what there is to say about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler.backend.limit import array_vectors
from weft.compiler.backend.report import CompileReport, layer_table, total_vectors
from weft.hw.contract.arch import EVERY_STEP
from weft.runtime.manifest import ConstFile, Port, TModel, write_files

if TYPE_CHECKING:
    from weft.compiler.pipeline import State

FEWEST_STEPS = 16
"""Of the data type's, that an output's largest value should be worth."""


def write(state: State, folder: Path, name: str) -> CompileReport:
    passed = by_layer(state, [array_vectors([operation]) for operation in state.schedule.operations])
    rows = layer_table(state.layers, state.points, state.calibration, state.layout, state.instruction_counts, passed,
                       state.arch)
    files = {kind: f"{name}.{kind}" for kind in ("tdata", "tprog", "tmodel")}
    manifest = TModel(
        name, folder, state.arch, files["tprog"], len(state.program),
        _const_files(state, files["tdata"]),
        _ports(state, state.graph.inputs), _ports(state, state.graph.outputs), state.host,
        sum(row["macs"] for row in rows), rows, state.instruction_layers)
    storage = state.arch.number.storage_dtype
    write_files(folder, {
        files["tdata"]: state.consts.vectors.astype(storage).tobytes(),
        files["tprog"]: state.program,
        files["tmodel"]: (json.dumps(manifest.to_json(), indent=1) + "\n").encode(),
    })
    return CompileReport(
        name, folder / files["tmodel"], folder / files["tprog"], folder / files["tdata"], rows,
        sum(state.instruction_counts), manifest.macs, total_vectors(rows),
        sum(row["saturated"] for row in rows), _warnings(state, rows), state.host)


def _const_files(state: State, name: str) -> tuple[ConstFile, ...]:
    size, copy = len(state.consts.vectors), state.layout.copy
    return ConstFile(name, 0, size), *([ConstFile(name, copy.base, size, "dram0")] if copy is not None else [])


def _ports(state: State, ports: tuple[Any, ...]) -> tuple[Port, ...]:
    places = state.layout.dram0
    found = []
    for port in ports:
        place, (_, channels, height, width) = places[port.tensor], state.graph.shapes[port.tensor]
        found.append(Port(port.name, place.base, place.size, tuple(port.shape), (channels, height, width),
                          state.points.vars[port.tensor], port.order, port.packing))
    return tuple(found)


def _warnings(state: State, rows: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    warnings = []
    if state.calibration.random and not (state.plain or state.arch.mac_rounding == EVERY_STEP):
        warnings.append("no calibration inputs: binary points come from random inputs and may be far off; "
                        "give real ones (--calibrate x.npz)")
    for port in state.graph.inputs:
        exponent = state.arch.number.width - 1 - state.points.vars[port.tensor]
        beyond = state.calibration.ranges[port.tensor].beyond(exponent)
        if beyond:
            warnings.append(f"input {port.name}: {beyond} calibration values saturate")
    for port in state.graph.outputs:
        largest = state.calibration.ranges[port.tensor].magnitude * 2.0 ** state.points.vars[port.tensor]
        if 0 < largest < FEWEST_STEPS:
            warnings.append(f"output {port.name}: its values are no more than {largest:.1f} steps of its type, for it "
                            "shares a binary point with much larger numbers; look for a damaged weight")
    for row in rows:
        if row["saturated"]:
            warnings.append(f"layer {row['name']}: {row['saturated']} calibration values saturate")
    return tuple(warnings)


def by_layer(state: State, numbers: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    """One number for each operation, summed up for each layer."""
    sums = np.bincount(state.schedule.layers, numbers, len(state.layers))
    return tuple(int(number) for number in sums)
