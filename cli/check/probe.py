"""Signal to noise of every layer: the same layers and numbers, with every tensor kept, on the golden machine.

Arithmetic does not depend on tiling or on where tensors lie, so a program that keeps all of them computes what the
compiled one computes. The reference is the float network on the same inputs, tensor by tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.compiler.frontend.graph import Port
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.layers.hir import Var
from weft.compiler.passes.index import feed
from weft.compiler.pipeline import STEPS, State
from weft.compiler.quantize.calibrate import check_inputs, random_inputs
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.runtime.compare import signal_to_noise
from weft.runtime.elements import pack, unpack
from weft.runtime.onnx_engine import session

PROBES = 2
"""Calibration inputs that run, the first ones."""


def layer_signals(model: Path, arch: Arch, inputs: Mapping[str, np.ndarray] | None, plain: bool,
                  host_fallback: bool, outputs: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Per layer, in order: ``signal_to_noise`` in decibels (None: no error at all) and ``saturations``, scalars of its
    outputs at the ends of their range."""
    state = _compile(State(model, _roomy(arch), inputs, plain, host_fallback, outputs))
    samples = random_inputs(state.graph) if inputs is None else check_inputs(state.graph, inputs)
    count = min(PROBES, *(len(array) for array in samples.values()))
    outputs_of = [(number, var) for number, layer in enumerate(state.layers) for var in layer.outputs]
    engine = session(to_onnx(state.graph, [var.name for _, var in outputs_of]))
    layers = len(state.layers)
    signal, noise, saturated = np.zeros(layers), np.zeros(layers), np.zeros(layers, int)
    for sample in range(count):
        given = feed(state.graph, {name: array[sample] for name, array in samples.items()})
        wanted = dict(zip((entry.name for entry in engine.get_outputs()), engine.run(None, given), strict=True))
        dram0 = _run(state, given)
        for number, var in outputs_of:
            scalars = _tensor(state, dram0, var)
            value = wanted[var.name][0].astype(np.float64)
            found = state.arch.number.dequantize(scalars, state.points.vars[var.root])
            signal[number] += (value ** 2).sum()
            noise[number] += ((value - found) ** 2).sum()
            saturated[number] += np.isin(scalars, (state.arch.number.minimum, state.arch.number.maximum)).sum()
    return [{"signal_to_noise": signal_to_noise(signal[number], noise[number]), "saturations": int(saturated[number])}
            for number in range(layers)]


def _roomy(arch: Arch) -> Arch:
    """The same arithmetic with the largest DRAM0 that the address width allows."""
    return arch.replace(dram0_depth=max(arch.dram0_depth, min(1 << 26, (1 << arch.axi_address_width)
                                                             // arch.vector_bytes)))


def _compile(state: State) -> State:
    """All steps; before the memory step every tensor becomes an output, so that none is overwritten."""
    for step in STEPS:
        if step.name == "memory":
            kept = {var.root: None for layer in state.layers for var in layer.outputs}
            ports = tuple(Port(name, state.graph.shapes[name], name) for name in kept)
            state = state.replace(graph=dataclasses.replace(state.graph, outputs=ports))
        state = step.run(state)
    return state


def _run(state: State, given: Mapping[str, np.ndarray]) -> Dram:
    machine, number = Machine(state.arch), state.arch.number
    machine.dram1.write(0, state.consts.vectors)
    if state.layout.copy is not None:
        machine.dram0.write(state.layout.copy.base, state.consts.vectors)
    for name, tensor in given.items():
        scalars = number.quantize(tensor[0], state.points.vars[name])
        machine.dram0.write(state.layout.dram0[name].base, pack(scalars, state.arch.array_size))
    machine.run(state.program)
    return machine.dram0


def _tensor(state: State, dram0: Dram, var: Var) -> np.ndarray:
    """[channels, height, width] of scalars, also of a part."""
    place = state.layout.dram0[var.root]
    channels, height, width = state.graph.shapes[var.root][1:]
    whole = unpack(dram0.read(place.base, place.size), (-(-channels // state.arch.array_size) * state.arch.array_size,
                                                        height, width))
    if var.part is None:
        return whole[:var.channels]
    first = var.part.tile * state.arch.array_size
    pixels = (var.part.offset + var.part.pitch * np.arange(var.height)[:, None]
              + var.part.step * np.arange(var.width))
    return whole.reshape(len(whole), -1)[first:first + var.channels][:, pixels]
