# SPDX-License-Identifier: Apache-2.0
"""The checker runs products of steps by this table: a row for each type of product that can be run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.split import ALONE, Cores
from weft.compiler.check.evaluate import Fixed, Real, Tensors
from weft.compiler.check.integers import quantised, stored
from weft.compiler.check.lir_machine import run_lir
from weft.compiler.check.scaled import Scaled
from weft.compiler.frontend.graph import Graph, GraphPort
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.indices.index import feed, real_values
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.memory.variables import whole_var
from weft.compiler.partition import Partition
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import LayerIntegers, Numbers
from weft.compiler.quantize.points import FixedPointParams
from weft.compiler.quantize.scales import AffineParams
from weft.compiler.scheduler.schedule import Schedule
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.golden.system import GoldenSystem
from weft.hw.contract.arch import Arch
from weft.tmodel.elements import gather, pack, unpack
from weft.tmodel.onnx_engine import run_model
from weft.tmodel.scales import SHIFTS

Sample = Mapping[str, np.ndarray]
"""Input of the network -> one value."""

Results = dict[str, np.ndarray]
"""Output -> real numbers, in the user's shape."""


class Runner(NamedTuple):
    """A way to run a product; ``name`` in words, ``exact``: whether it computes with the machine's integers."""

    name: str
    exact: bool
    run: Callable[[Products, Sample], Results]


def _run_graph(products: Products, sample: Sample) -> Results:
    """Run the graph on onnxruntime."""
    graph = products[Graph]
    tensors = run_model(to_onnx(graph), feed(graph, sample))
    return {port.name: _of_user(port, np.asarray(tensors[port.tensor])) for port in graph.outputs}


def _run_parts(products: Products, sample: Sample) -> Results:
    """Run every subgraph of the network on onnxruntime, in order."""
    graph = products[Graph]
    values = {port.name: real_values(np.asarray(sample[port.name]), port).astype(graph.type(port.tensor))
              for port in graph.inputs}
    for part in products[Partition].parts:
        if isinstance(part, Graph):
            values |= run_model(to_onnx(part), {port.tensor: values[port.name] for port in part.inputs})
        else:
            values |= part.run(values, graph.name)
    return {port.name: _of_user(port, values[port.name]) for port in graph.outputs}


def _run_real(products: Products, sample: Sample) -> Results:
    """Run the layers in real numbers."""
    graph = products[Graph]
    tensors = Tensors(graph, products[Arch], np.float64)
    for name, value in feed(graph, sample).items():
        tensors.write(whole_var(graph, name), value[0])
    Real(graph.constants, graph.opset).run(products[Layers], tensors)
    return _outputs(products, lambda var: tensors.read(var))


def _run_numbers(products: Products, sample: Sample) -> Results:
    """Run the layers in integers, with constants as chosen."""
    graph, arch = products[Graph], products[Arch]
    integers = quantised(products[Layers], graph.constants, products[Numbers], arch)
    return _run_integers(products, sample, integers, Tensors(graph, arch, np.int64))


def _run_consts(products: Products, sample: Sample) -> Results:
    """Run the layers in integers, with constants as stored."""
    return _run_integers(products, sample, _stored(products), Tensors(products[Graph], products[Arch], np.int64))


def _run_layout(products: Products, sample: Sample) -> Results:
    """Run the layers in integers, with stored constants and tensors where they are placed."""
    tensors = Tensors(products[Graph], products[Arch], np.int64, products[MemoryPlan])
    return _run_integers(products, sample, _stored(products), tensors)


def _stored(products: Products) -> list[LayerIntegers]:
    """Return the integer constants as DRAM1 holds them."""
    return stored(products[Layers], products[Consts], products[Arch])


def _run_integers(products: Products, sample: Sample, integers: Sequence[LayerIntegers], tensors: Tensors) -> Results:
    """Run the layers with given integer constants and tensors."""
    graph, arch, numbers = products[Graph], products[Arch], products[Numbers]
    for name, value in feed(graph, sample).items():
        tensors.write(whole_var(graph, name), numbers.tensor(name, arch).quantize(value[0]))
    EVALUATORS[type(numbers)](arch, numbers, integers).run(products[Layers], tensors)
    return _outputs(products, lambda var: _real(products, var, tensors.read(var)))


EVALUATORS: dict[type, Callable[..., Fixed | Scaled]] = {FixedPointParams: Fixed, AffineParams: Scaled}
"""Kind of quantization parameters -> the evaluation of layers with them."""


def _run_schedule(products: Products, sample: Sample) -> Results:
    """Run the LIR on the golden machine."""
    drams = memories(products, feed(products[Graph], sample))
    run_lir(products[Schedule].operations, Machine(products[Arch], *drams))
    return _outputs(products, lambda var: _real(products, var, _from_dram(products, drams[0], var)))


def _run_code(products: Products, sample: Sample) -> Results:
    """Run the program on the golden machine."""
    drams = memories(products, feed(products[Graph], sample))
    Machine(products[Arch], *drams).run(products[MachineCode].content)
    return _outputs(products, lambda var: _real(products, var, _from_dram(products, drams[0], var)))


def _run_cores(products: Products, sample: Sample) -> Results:
    """Run the programs of all cores on golden machines."""
    cores = products[Cores]
    assert cores.plan is not None
    placed = products.plus({MemoryPlan: cores.plan.cores[0]})
    drams = memories(placed, feed(products[Graph], sample))
    GoldenSystem(products[Arch], *drams).run([code.content for code in cores.codes])
    return _outputs(products, lambda var: _real(products, var, _from_dram(placed, drams[0], var)))


RUNNERS: dict[type, Runner] = {
    Graph: Runner("graph on onnxruntime", False, _run_graph),
    Partition: Runner("parts on onnxruntime", False, _run_parts),
    Layers: Runner("layers in real numbers", False, _run_real),
    Numbers: Runner("layers in integers", True, _run_numbers),
    Consts: Runner("layers, stored constants", True, _run_consts),
    MemoryPlan: Runner("layers, placed tensors", True, _run_layout),
    Schedule: Runner("LIR on golden", True, _run_schedule),
    MachineCode: Runner("program on golden", True, _run_code),
    Cores: Runner("programs of all cores on golden", True, _run_cores),
}
"""Type of product -> how it runs, together with the products before it."""


def newest(products: Products) -> type:
    """Return the type of the newest product that can run."""
    return next(kind for kind in reversed(products) if kind in RUNNERS and products[kind] is not ALONE)


# -- the machine's memories --------------------------------------------------------------------------------------------
def memories(products: Products, inputs: Mapping[str, np.ndarray]) -> tuple[Dram, Dram]:
    """Return DRAM0 with the graph's input tensors ``inputs``, and DRAM1 with the constants."""
    arch, layout, consts = products[Arch], products[MemoryPlan], products[Consts]
    dram0, dram1 = Dram(arch), Dram(arch)
    dram1.write(0, consts.vectors)
    if layout.copy is not None:
        dram0.write(layout.copy.base, consts.vectors)
    for name, value in inputs.items():
        held = products[Numbers].tensor(name, arch)
        dram0.write(layout.dram0[name].base, pack(held.quantize(value[0]), arch.array_size, held.zero))
    return dram0, dram1


def _from_dram(products: Products, dram0: Dram, var: Var) -> np.ndarray:
    """Return a Var in DRAM0 as scalars [channels, height, width]."""
    place = products[MemoryPlan].dram0[var.name]
    return unpack(dram0.read(place.base, place.size), (var.channels, var.height, var.width))


def _real(products: Products, var: Var, scalars: np.ndarray) -> np.ndarray:
    """Return a Var's scalars as real numbers."""
    return products[Numbers].tensor(var.root, products[Arch]).dequantize(scalars)


def _outputs(products: Products, read: Callable[[Var], np.ndarray]) -> Results:
    """Return the machine's outputs in the user's shape; ``read`` returns a Var."""
    graph = products[Graph]
    return {port.name: _of_user(port, read(whole_var(graph, port.tensor))) for port in graph.outputs}


def _of_user(port: GraphPort, tensor: np.ndarray) -> np.ndarray:
    """Return an output as the network's file has it, in double precision."""
    values = np.asarray(gather(tensor, port.order, port.shape), np.float64)
    return values if port.quantized is None else port.quantized.quantize(values) + float(SHIFTS[port.type])
