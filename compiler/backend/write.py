"""The files of a compiled model, and what there is to say about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.limit import array_vectors
from weft.compiler.backend.report import CompileReport, layer_table, total_vectors
from weft.compiler.frontend.graph import Graph, GraphPort
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.layout import Layout
from weft.compiler.passes.host import OnHost
from weft.compiler.products import Products
from weft.compiler.quantize.calibrate import Calibration
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.points import Points
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.runtime.manifest import TModel
from weft.runtime.ports import ConstFile, Port

LEAST_TABLE_DECIBELS = 40
"""Of a value table's largest error against the largest value that it makes."""

FEWEST_LAYER_STEPS = 16
"""Of the data type's, that a layer's values should be worth: their root mean square."""

FEWEST_STEPS = 16
"""Of the data type's, that an output's largest value should be worth."""


def write(products: Products, folder: Path, name: str) -> CompileReport:
    """``folder``/``name``.tmodel, .tprog and .tdata, from the products of all steps."""
    arch, graph, consts, layout = (products[Arch], products[Graph], products[Consts], products[Layout])
    points, code, host = products[Points], products[MachineCode], products[OnHost].part
    counts, rows = _layer_rows(products)
    files = {kind: f"{name}.{kind}" for kind in ("tdata", "tprog", "tmodel")}
    constants = consts.vectors.astype(arch.number.storage_dtype).tobytes()
    manifest = TModel(
        name=name, folder=folder, arch=arch, program_file=files["tprog"],
        const_files=_const_files(consts, layout, files["tdata"]),
        inputs=_ports(graph.inputs, graph, layout, points), outputs=_ports(graph.outputs, graph, layout, points),
        contents={files["tdata"]: constants, files["tprog"]: code.content}, host=host,
        macs=sum(row["macs"] for row in rows), layers=rows, instruction_layers=code.layers)
    manifest.save()
    return CompileReport(
        name, folder / files["tmodel"], folder / files["tprog"], folder / files["tdata"], rows,
        sum(counts), manifest.macs, total_vectors(rows),
        sum(row["saturated"] for row in rows), _warnings(products, rows), host)


def _layer_rows(products: Products) -> tuple[list[int], tuple[dict[str, Any], ...]]:
    """Per layer how many instructions it has, and its row of the report."""
    schedule, code, layers = products[Schedule], products[MachineCode], products[Layers]
    counts = np.bincount(code.layers, minlength=len(layers)).tolist()
    vectors = [array_vectors([operation]) for operation in schedule.operations]
    passed = np.bincount(schedule.layers, vectors, len(layers)).astype(int).tolist()
    rows = layer_table(layers, products[Points], products[Calibration], products[Layout], counts, passed,
                       products[Arch])
    return counts, rows


def _const_files(consts: Consts, layout: Layout, name: str) -> tuple[ConstFile, ...]:
    size, copy = len(consts.vectors), layout.copy
    return ConstFile(name, 0, size), *([ConstFile(name, copy.base, size, "dram0")] if copy is not None else [])


def _ports(ports: tuple[GraphPort, ...], graph: Graph, layout: Layout, points: Points) -> tuple[Port, ...]:
    found = []
    for port in ports:
        place, (_, channels, height, width) = layout.dram0[port.tensor], graph.shapes[port.tensor]
        found.append(Port(port.name, place.base, place.size, tuple(port.shape), (channels, height, width),
                          points.vars[port.tensor], port.order, port.packing))
    return tuple(found)


def _warnings(products: Products, rows: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    arch, graph, points = products[Arch], products[Graph], products[Points]
    calibration, warnings = products[Calibration], []
    if calibration.random and not (products[Request].plain or not arch.numbers.has_points):
        warnings.append("no calibration inputs: binary points come from random inputs and may be far off; "
                        "give real ones (--calibrate x.npz)")
    for port in graph.inputs:
        exponent = arch.number.width - 1 - points.vars[port.tensor]
        beyond = calibration.ranges[port.tensor].beyond(exponent)
        if beyond:
            warnings.append(f"input {port.name}: {beyond} calibration values saturate")
    for port in graph.outputs:
        largest = calibration.ranges[port.tensor].magnitude * 2.0 ** points.vars[port.tensor]
        if 0 < largest < FEWEST_STEPS:
            warnings.append(f"output {port.name}: its values are no more than {largest:.1f} steps of its type, for it "
                            "shares a binary point with much larger numbers; look for a damaged weight")
    for row in rows:
        if row["saturated"]:
            warnings.append(f"layer {row['name']}: {row['saturated']} calibration values saturate")
        warnings += _poor_numbers(row)
    return tuple(warnings)


def _poor_numbers(row: dict[str, Any]) -> list[str]:
    """Warnings of a layer whose value table or binary point loses much of its values."""
    largest, error, found = max(map(abs, row["range"])), row["table_error"], []
    if error and largest and error > largest * 10 ** (-LEAST_TABLE_DECIBELS / 20):
        found.append(f"layer {row['name']}: its value table is off by up to {error:.3g}, of values up to "
                     f"{largest:.3g}; raise lut_depth, or calibrate with samples of a smaller range")
    steps = row["root_mean_square"] * 2.0 ** row["points"]["output"]
    if 0 < steps < FEWEST_LAYER_STEPS:
        found.append(f"layer {row['name']}: its values are {steps:.1f} steps of their type on average, for it has room "
                     f"for {largest:.3g}; take a wider data_type, or samples without outliers")
    return found
