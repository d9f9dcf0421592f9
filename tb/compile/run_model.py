# SPDX-License-Identifier: Apache-2.0
"""Helpers: small ONNX models in a few lines, compiled, run on the golden machine, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.check.checker import Checker
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.products import Products
from weft.compiler.request import Request
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import session

BASE = Arch(data_type="FP16BP8", array_size=8, dram0_depth=1 << 20, dram1_depth=1 << 20, local_depth=2048,
            accumulator_depth=512, simd_registers_depth=1, stride0_depth=8, stride1_depth=8)


class ModelMaker:
    """Collects nodes; every method returns the name of the tensor it makes. Weights are seeded random."""

    def __init__(self, shape: Sequence[int], seed: int = 0, opset: int = 13) -> None:
        self.random = np.random.default_rng(seed)
        self.shape, self.opset = tuple(shape), opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.beside: dict[str, Sequence[int]] = {}
        """Inputs besides ``x``."""

    def input(self, name: str, *shape: int) -> str:
        self.beside[name] = shape
        return name

    def constant(self, value: np.ndarray | np.generic) -> str:
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape).astype(np.float32))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, source: str, channels_in: int, channels_out: int, kernel: tuple[int, int], *, group: int = 1,
             bias: bool = True, **attributes: Any) -> str:
        weights = self.normal(channels_out, channels_in // group, *kernel)
        inputs = [source, weights, *([self.normal(channels_out)] if bias else [])]
        return self.node("Conv", *inputs, kernel_shape=kernel, group=group, **attributes)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """With the input ``x`` and those beside it; outputs default to the last tensor."""
        names = outputs or (self.nodes[-1].output[0],)
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                  for name, shape in {"x": self.shape, **self.beside}.items()]
        graph = helper.make_graph(self.nodes, "made", inputs, [onnx.ValueInfoProto(name=name) for name in names],
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def save(self, path: Path, *outputs: str) -> Path:
        """The same as a file."""
        onnx.save(self.model(*outputs), path)
        return path


def signal_to_noise(reference: np.ndarray, found: np.ndarray) -> float:
    """Decibels; infinite where both are equal."""
    reference, found = np.asarray(reference, np.float64), np.asarray(found, np.float64)
    assert reference.shape == found.shape, (reference.shape, found.shape)
    noise = ((reference - found) ** 2).sum()
    return float(10 * np.log10((reference ** 2).sum() / noise)) if noise else np.inf


def run_golden(model: TModel, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One sample through the golden machine; the machine's own outputs as floats."""
    machine = Machine(model.arch)
    for base, vectors in model.consts:
        machine.dram1.write(base, vectors)
    for base, vectors in model.dram0_consts:
        machine.dram0.write(base, vectors)
    for port in model.inputs:
        machine.dram0.write(port.base, model.pack_input(port.name, inputs[port.name]))
    machine.run(model.program)
    assert machine.stopped is None, machine.stopped
    return {port.name: model.unpack_output(port.name, machine.dram0.read(port.base, port.size))
            for port in model.outputs}


def run_float(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The ONNX model in floating point, through onnxruntime."""
    engine = session(path.read_bytes())
    names = [output.name for output in engine.get_outputs()]
    return dict(zip(names, engine.run(names, dict(inputs)), strict=True))


def after_all_steps(path: Path, arch: Arch, samples: np.ndarray) -> Products:
    """Every product of the compiler, with ``samples`` as calibration of the input ``x``."""
    return run_steps(Request(path, {"x": samples}), arch)


def check_every_step(path: Path, arch: Arch, samples: np.ndarray) -> None:
    """No step of the compiler changes the result."""
    checker = Checker()
    compile_model(path, arch, path.parent, calibration={"x": samples}, watch=checker.after)
    checker.insist()


def check_model(path: Path, arch: Arch, samples: np.ndarray, decibels: float, name: str = "x",
                host_fallback: bool = False) -> TModel:
    """Compile with ``samples`` as calibration, run each on golden and in float, compare every output."""
    report = compile_model(path, arch, path.parent, calibration={name: samples}, host_fallback=host_fallback)
    network = Network.load(report.model_path)
    for sample in samples.astype(np.float32):
        expected = run_float(path, {name: sample[None]})
        found = Session(network).run({name: sample}).outputs
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert signal_to_noise(value, found[key]) >= decibels, key
    return network.machines[0]
