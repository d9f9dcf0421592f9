# SPDX-License-Identifier: Apache-2.0
"""Write the files of a compiled model, with a report and warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.limit import array_vectors
from weft.compiler.backend.report import CompileReport, layer_table, total_vectors
from weft.compiler.backend.split import Cores
from weft.compiler.frontend.graph import Graph, GraphPort
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Lookup
from weft.compiler.lowering.functions import may_be_infinite, steps_of
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.partition import BESIDE, HOST, Part, Partition
from weft.compiler.passes.quantization import Quantization
from weft.compiler.products import Products
from weft.compiler.quantize.choose_points import copied
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.narrow import MINMAX
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.ranges import Calibration
from weft.compiler.quantize.tables import function_of
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.schemes import SchemeKind
from weft.support.errors import explain
from weft.support.files import reason
from weft.tmodel.errors import ModelError
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import CoreProgram, TModel
from weft.tmodel.model_set import check_set
from weft.tmodel.network import Network
from weft.tmodel.ports import ConstFile, Port
from weft.tmodel.scales import TensorNumbers, TensorPoint, TensorScale
from weft.tmodel.tensors import Signature, Tensor

LEAST_TABLE_DECIBELS = 40
"""The least ratio (dB) of a lookup table's largest value to its largest error without a warning."""

FEWEST_LAYER_STEPS = 16
"""The least root mean square of a layer's values, in steps of the data type, without a warning."""

FEWEST_BYTE_STEPS = 2
"""The least root mean square of a layer's values, in steps of a byte whose scale calibration chose."""

FEWEST_STEPS = 16
"""The least magnitude of an output's largest value, in steps of the data type, without a warning."""


FEW_NAMES = 4
"""The most names that a warning lists."""

LEAST_SHARE = 0.5
"""The least share of multiply-accumulates on the machine without a warning."""


def write(front: Products, made: Sequence[Products], folder: Path, name: str) -> CompileReport:
    """Write ``folder``/``name``.tmodel and the files it names; return the report.

    ``front`` has the products of the whole network, ``made`` those of each subgraph of the machine. Files are
    ``name``.tprog and .tdata; with several subgraphs a number stands before the point."""
    graph, partition, arch = front[Graph], front[Partition], front[Arch]
    names = [name if len(made) == 1 else f"{name}.{products[Part].number}" for products in made]
    made = [_of_cores(products) for products in made]
    models = [_program(products, folder, part) for products, part in zip(made, names, strict=True)]
    waiting = iter(models)
    network = Network(
        name=name, folder=folder, arch=arch, signature=_signature(graph),
        parts=tuple(part if isinstance(part, HostPart) else next(waiting) for part in partition.parts))
    path = network.save()
    rows = tuple(row for model in models for row in model.layers)
    warnings = (*_share_warnings(partition), *(text for products, model in zip(made, models, strict=True)
                                              for text in _warnings(products, model.layers)))
    files = [[folder / file for file in (model.program_file, model.const_files[0].file_name,
                                         *(core.program_file for core in model.others))] for model in models]
    program, constants, *_ = files[0]
    return CompileReport(
        name, path, program, constants, rows, sum(row["instructions"] for row in rows), network.macs,
        total_vectors(rows), sum(row["saturated"] for row in rows), tuple(dict.fromkeys(warnings)), partition,
        tuple(file for own in files for file in own))


def _of_cores(products: Products) -> Products:
    """Return products whose memory plan is core 0's, where the cores work on an image together."""
    plan = products[Cores].plan
    return products if plan is None else products.plus({MemoryPlan: plan.cores[0]})


def check_place(folder: Path, name: str) -> None:
    """Raise ModelError if :func:`write` would replace a file in ``folder`` that no earlier compilation wrote."""
    files = re.compile(rf"{re.escape(name)}(\.\d+)?(\.core\d+)?\.(tdata|tprog)")
    try:
        there = sorted(path.name for path in folder.glob("*"))
    except OSError as error:  # such as a name longer than the system takes
        raise ModelError(explain(f"output folder {folder}", reason(error), "a folder that can be made",
                                 "choose another place")) from None
    check_set(folder, f"{name}.tmodel", [file for file in there if files.fullmatch(file)])


def _program(products: Products, folder: Path, name: str) -> TModel:
    """Return the model of one subgraph of the machine."""
    arch, graph, consts, layout = (products[Arch], products[Graph], products[Consts], products[MemoryPlan])
    code, *others = _codes(products)
    rows = _layer_rows(products)
    files = {kind: f"{name}.{kind}" for kind in ("tdata", "tprog")}
    constants = consts.vectors.astype(arch.number.storage_dtype, copy=False).tobytes()
    model = TModel(
        name=name, folder=folder, arch=arch, program_file=files["tprog"],
        const_files=_const_files(consts, layout, files["tdata"]),
        inputs=_ports(graph.inputs, products), outputs=_ports(graph.outputs, products),
        contents={files["tdata"]: constants, files["tprog"]: code.content},
        macs=sum(row["macs"] for row in rows), layers=rows, instruction_layers=code.layers)
    if arch.cores == 1:
        return model
    cores = {f"{name}.core{core}.tprog": own for core, own in enumerate(others, 1)}
    return replace(model, window_bytes=_window_bytes(layout, arch),
                   contents={**model.contents, **{file: own.content for file, own in cores.items()}},
                   others=tuple(CoreProgram(file, own.layers) for file, own in cores.items()))


def _codes(products: Products) -> tuple[MachineCode, ...]:
    """Return the programs of an image: of every core that works on it."""
    return products[Cores].codes or (products[MachineCode],)


def _window_bytes(layout: MemoryPlan, arch: Arch) -> int:
    """From one core's window of DRAM0 to the next."""
    return -(-layout.dram0_end * arch.vector_bytes // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES


def _signature(graph: Graph) -> Signature:
    """Return the inputs and outputs that the user sees."""
    return Signature(*(tuple(Tensor(port.name, port.type, tuple(port.shape), port.quantized) for port in ports)
                       for ports in (graph.inputs, graph.outputs)))


def _layer_rows(products: Products) -> tuple[dict[str, Any], ...]:
    """Return the report's row of each layer."""
    layers = products[Layers]
    counts = np.sum([np.bincount(code.layers, minlength=len(layers)) for code in _codes(products)], axis=0).tolist()
    schedules = products[Cores].schedules or (products[Schedule],)
    passed = np.sum([_passed(schedule, len(layers)) for schedule in schedules], axis=0).tolist()
    done = [own.done_macs for own in products[Consts].layers]
    return layer_table(layers, products[Numbers], products[Calibration], products[MemoryPlan], counts, passed, done,
                       products[Request].ranges != MINMAX, products[Arch])


def _passed(schedule: Schedule, layers: int) -> np.ndarray:
    """Return [layers]: the vectors that the array computes."""
    places, vectors = array_vectors(schedule.table)
    return np.bincount(schedule.layers[places], vectors, layers).astype(int)


def _const_files(consts: Consts, layout: MemoryPlan, name: str) -> tuple[ConstFile, ...]:
    """Return the entries of the file of constants, for DRAM1 and for a copy in DRAM0."""
    size, copy = len(consts.vectors), layout.copy
    return ConstFile(name, 0, size), *([ConstFile(name, copy.base, size, "dram0")] if copy is not None else [])


def _ports(ports: tuple[GraphPort, ...], products: Products) -> tuple[Port, ...]:
    """Return a program's inputs or outputs with their places in DRAM0."""
    arch, layout, found = products[Arch], products[MemoryPlan], []
    for port in ports:
        place, (_, channels, height, width) = layout.dram0[port.tensor], products[Graph].shapes[port.tensor]
        found.append(Port(port.name, place.base, place.size, tuple(port.shape), (channels, height, width), None,
                          port.order, port.packing).holding(products[Numbers].tensor(port.tensor, arch)))
    return tuple(found)


def _share_warnings(partition: Partition) -> list[str]:
    """Return a warning if most multiply-accumulates run on the host, else an empty list."""
    share = partition.machine_share
    if share >= LEAST_SHARE:
        return []
    first = next(place for place in partition.places if place.where == HOST and place.why != BESIDE)
    return [f"only {100 * share:.1f} % of the network's multiply-accumulates run on the machine; the first node on the "
            f"host is {first.node!r} ({first.operator}): {first.why}"]


def _schedule_warnings(products: Products) -> list[str]:
    """Return warnings on an outside schedule: layers that were merged into others, and boxes that were moved."""
    followed, found = products[Cores].followed, []
    if followed is not None and followed.merged:
        found.append(f"schedule: {len(followed.merged)} of its layers are computed within others: "
                     f"{', '.join(followed.merged[:FEW_NAMES])}{', ...' if len(followed.merged) > FEW_NAMES else ''}")
    if followed is not None and followed.rounded:
        found.append(f"schedule: {followed.rounded} of its boxes end between channel tiles of "
                     f"{products[Arch].array_size} or pixels that are computed, and were moved to the nearest")
    return found


def _warnings(products: Products, rows: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    """Return the warnings about calibration, saturation and poor quantization parameters of a program."""
    arch, graph, numbers = products[Arch], products[Graph], products[Numbers]
    calibration, warnings = products[Calibration], _schedule_warnings(products)
    if calibration.random and numbers.measured and not products[Request].plain:
        warnings.append(f"no calibration inputs: {numbers.measured} come from random inputs and may be far off; "
                        "give real ones (--calibrate x.npz)")
    for port in graph.inputs:
        beyond = calibration.ranges[port.tensor].beyond(numbers.tensor(port.tensor, arch).exponent)
        if beyond:
            warnings.append(f"input {port.name}: {beyond} calibration values saturate")
    for port in graph.outputs:
        largest = calibration.ranges[port.tensor].magnitude / numbers.tensor(port.tensor, arch).step
        if 0 < largest < FEWEST_STEPS:
            warnings.append(f"output {port.name}: its values are no more than {largest:.1f} steps of its type, for it "
                            "shares a binary point with much larger numbers; look for a damaged weight")
    warnings += numbers.warnings(products[Layers])
    makers = {layer.output.name: layer for layer in products[Layers]}
    made: dict[str, float] = {}  # by all layers of a node, at most, for a function may be a sum of several
    for row in rows:
        made[row["name"]] = max(made.get(row["name"], 0.0), *map(abs, row["range"]))
    parts = _parts_of_functions(rows, products[Layers])
    for row, layer in zip(rows, products[Layers], strict=True):
        if row["saturated"]:
            warnings.append(f"layer {row['name']}: {row['saturated']} calibration values saturate")
        warnings += _poor_numbers(row if layer.lookup is None else {**row, **parts[row["name"]]},
                                  numbers.tensor(layer.output.root, arch))
        if layer.lookup is not None and arch.scheme.kind is SchemeKind.FIXED_POINT:
            roots = copied(layer.core.input, makers, graph.constants)
            step = max(numbers.tensor(root, arch).step for root in roots)
            name = row["name"]
            warnings += _coarse_argument(name, made[name], layer.lookup, calibration, step, graph.opset)
        if not products[Quantization].tensors:
            warnings += _poor_bytes(row, numbers.tensor(layer.output.root, arch))
    return tuple(warnings)


def _parts_of_functions(rows: Sequence[dict[str, Any]], layers: Sequence[Layer]) -> dict[str, dict[str, Any]]:
    """Return, for each node with lookup tables, the largest range and root mean square that one of them makes.

    A function over a wide range is the sum of several, most of which give little on average."""
    found: dict[str, dict[str, Any]] = {}
    for row, layer in zip(rows, layers, strict=True):
        if layer.lookup is not None:
            before = found.get(row["name"], {"range": [0.0, 0.0], "root_mean_square": 0.0})
            found[row["name"]] = {"range": max(before["range"], row["range"], key=lambda ends: max(map(abs, ends))),
                                  "root_mean_square": max(before["root_mean_square"], row["root_mean_square"])}
    return found


def _poor_bytes(row: dict[str, Any], held: TensorNumbers) -> list[str]:
    """Return a warning for a layer whose few large values leave most values only few steps of a byte."""
    steps = row["root_mean_square"] / held.step
    if not isinstance(held, TensorScale) or not 0 < steps < FEWEST_BYTE_STEPS:
        return []
    return [f"layer {row['name']}: its values are {steps:.1f} steps of a byte on average, for it has room for "
            f"{max(map(abs, row['range'])):.3g}; try --ranges percentile or error, or an architecture of 16 bits "
            "(data_type FP16BP8)"]


def _coarse_argument(name: str, largest: float, lookup: Lookup, calibration: Calibration, step: float,
                     opset: int) -> list[str]:
    """Return a warning for a function near a pole, as 1 / sqrt of a variance near 0, whose argument is too coarse.

    ``largest``: magnitude that the function makes; ``step``: of its argument."""
    if not any(map(may_be_infinite, steps_of(lookup.function, dict(lookup.attributes)))):
        return []
    low = calibration.ranges[lookup.source].low
    values = function_of(lookup, opset)(np.array([low, low + step / 2]))
    change = abs(float(values[1] - values[0]))
    if not change > largest * 10 ** (-LEAST_TABLE_DECIBELS / 20):
        return []
    return [f"layer {name}: half a step of its argument, {step / 2:.3g} beside {low:.3g}, changes its value by "
            f"{change:.3g}, of {largest:.3g}; add more to the argument in the network (the epsilon of a normalisation),"
            " take a wider data_type, or leave out samples that are nearly constant"]


def _poor_numbers(row: dict[str, Any], held: TensorNumbers) -> list[str]:
    """Return warnings for a layer whose lookup table or binary point loses much of its values."""
    largest, error, found = max(map(abs, row["range"])), row["table_error"], []
    if error and largest and error > largest * 10 ** (-LEAST_TABLE_DECIBELS / 20):
        found.append(f"layer {row['name']}: its lookup table is off by up to {error:.3g}, of values up to "
                     f"{largest:.3g}; raise lut_depth, or calibrate with samples of a smaller range")
    steps = row["root_mean_square"] / held.step
    if isinstance(held, TensorPoint) and 0 < steps < FEWEST_LAYER_STEPS:
        found.append(f"layer {row['name']}: its values are {steps:.1f} steps of their type on average, for it has room "
                     f"for {largest:.3g}; take a wider data_type, or samples without outliers")
    return found
