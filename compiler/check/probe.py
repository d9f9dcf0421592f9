# SPDX-License-Identifier: Apache-2.0
"""Measure the signal to noise of every layer, with every tensor kept, on the golden machine.

Arithmetic does not depend on tiling or on where tensors lie, so a program that keeps all tensors computes what the
compiled one computes. The reference is the float network on the same inputs, tensor by tensor; for a quantised file on
an INT8 machine it rounds as the file says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.runners import memories
from weft.compiler.cores import AUTO, THROUGHPUT
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.indices.index import feed
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.passes.quantization import Quantization, with_rounding
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.samples import Samples
from weft.compiler.request import Request
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.support.signals import signal_to_noise
from weft.tmodel.elements import unpack
from weft.tmodel.onnx_engine import session
from weft.tmodel.scales import TensorScale

PROBES = 2
"""The number of calibration inputs that are run, the first ones."""


def layer_signals(request: Request, arch: Arch) -> list[dict[str, Any]]:
    """Return a row for each layer, in order.

    ``signal_to_noise`` in decibels (None: no error at all) and ``saturations``, scalars of its outputs at the ends of
    their range. Tensors that saturate on purpose, as what reads them is constant beyond, are compared with real numbers
    cut in the same way, and count no saturations. Each subgraph of the machine reads the float network's results."""
    _, made = run_parts(dataclasses.replace(request, keep_tensors=True, cores=AUTO, goal=THROUGHPUT), _roomy(arch))
    return [signal for products in made for signal in _of_part(products)]


def _of_part(products: Products) -> list[dict[str, Any]]:
    """Return the rows of one subgraph's layers."""
    graph, samples = products[Graph], products[Samples].arrays
    count = min(PROBES, *(len(array) for array in samples.values()))
    saved = [(index, var) for index, layer in enumerate(products[Layers]) for var in layer.outputs]
    quantization = products[Quantization]
    engine = session(to_onnx(with_rounding(graph, quantization), [var.name for _, var in saved]))
    layers = len(products[Layers])
    signal, noise, saturated = np.zeros(layers), np.zeros(layers), np.zeros(layers, int)
    for sample in range(count):
        given = feed(graph, {name: array[sample] for name, array in samples.items()})
        given = {name: _rounded(value, quantization.tensors.get(name)) for name, value in given.items()}
        wanted = dict(zip((entry.name for entry in engine.get_outputs()), engine.run(None, given), strict=True))
        dram0, dram1 = memories(products, given)
        Machine(products[Arch], dram0, dram1).run(products[MachineCode].content)
        for index, var in saved:
            scalars = _tensor(products, dram0, var)
            value = wanted[var.name][0].astype(np.float64)
            held = products[Numbers].tensor(var.root, products[Arch])
            on_purpose = var.root in products[Numbers].limited
            if on_purpose:
                value = np.clip(value, held.low, held.high)
            found = held.dequantize(scalars)
            signal[index] += (value ** 2).sum()
            noise[index] += ((value - found) ** 2).sum()
            saturated[index] += 0 if on_purpose else held.saturated(scalars, value)
    return [{"signal_to_noise": signal_to_noise(signal[index], noise[index]), "saturations": int(saturated[index])}
            for index in range(layers)]


def _rounded(value: np.ndarray, scale: TensorScale | None) -> np.ndarray:
    """Return values rounded to a scale; unchanged without one."""
    return value if scale is None else scale.dequantize(scale.quantize(value)).astype(value.dtype)


def _roomy(arch: Arch) -> Arch:
    """Return one core of the machine, with the largest DRAM0 that the address width allows, up to 2**26 vectors."""
    beside = arch.dram1_depth * arch.vector_bytes if arch.shared_dram else 0
    room = ((1 << arch.axi_address_width) - beside) // DRAM_OFFSET_BYTES * DRAM_OFFSET_BYTES // arch.vector_bytes
    return arch.replace(cores=1, memory_ports=1, sync_counters=0, dram0_depth=max(arch.dram0_depth, min(1 << 26, room)))


def _tensor(products: Products, dram0: Dram, var: Var) -> np.ndarray:
    """Return a Var, or a part of one, as scalars [channels, height, width]."""
    place, lanes = products[MemoryPlan].dram0[var.root], products[Arch].array_size
    channels, height, width = products[Graph].shapes[var.root][1:]
    whole = unpack(dram0.read(place.base, place.size), (-(-channels // lanes) * lanes, height, width))
    if var.part is None:
        return whole[:var.channels]
    first = var.part.tile * lanes
    pixels = (var.part.offset + var.part.pitch * np.arange(var.height)[:, None]
              + var.part.step * np.arange(var.width))
    return whole.reshape(len(whole), -1)[first:first + var.channels][:, pixels]
