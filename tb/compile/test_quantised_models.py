"""Quantised networks on a machine of bytes: every layer gives the bytes that onnxruntime gives of the same inputs, and
the whole answers as it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from weft.cli.check.checker import Checker
from weft.cli.check.evaluate import Tensors
from weft.cli.check.integers import quantised
from weft.cli.check.scaled import Scaled
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.layers.hir import Layers, Var
from weft.compiler.passes.index import feed
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products, Step
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.scales import Scales
from weft.hw.contract.arch import Arch
from weft.runtime.network import Network
from weft.runtime.onnx_engine import run_model
from weft.runtime.session import Session
from weft.tb.compile.quantised_twin import KINDS, small_twin
from weft.tb.compile.run_model import BASE, run_float
from weft.tb.shared import shared

ROOT = Path(__file__).resolve().parents[2]
BYTES = {"data_type": "INT8", "accumulator_width": None, "lut_count": 1, "lut_depth": 256, "simd_registers_depth": 2}
ARCH, SMALL = Arch.load("pynq").replace(**BYTES), BASE.replace(**BYTES)
LEAST_EQUAL = 0.999
"""Of all bytes that a network's layers make, given equal inputs; no other may be off by more than one."""


class Watch:
    """The graph while it still rounds as the file says, and what all steps left; each step is checked."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.products: Products
        self.rounding: Graph

    def after(self, step: Step, products: Products) -> None:
        self.checker.after(step, products)
        self.products = products
        if step.name == "fold_forward":
            self.rounding = products[Graph]


def layer_differences(watch: Watch, sample: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Of each layer whose tensors the file has: by how much its bytes are off, where it reads what onnxruntime made."""
    products, rounding = watch.products, watch.rounding
    graph, arch, numbers = products[Graph], products[Arch], products[Numbers]
    assert isinstance(numbers, Scales)
    made = {**run_model(to_onnx(rounding, [node.output for node in rounding.nodes]), feed(rounding, sample)),
            **feed(graph, sample)}

    def true_bytes(var: Var) -> np.ndarray:
        return numbers.tensor(var.root, arch).quantize(made[var.name][0])

    found = []
    integers = quantised(products[Layers], graph.constants, numbers, arch)
    for number, layer in enumerate(products[Layers]):
        if {var.name for var in (*layer.inputs, *layer.outputs)} <= made.keys():
            tensors = Tensors(graph, arch, np.int64)
            for var in layer.inputs:
                tensors.write(var, true_bytes(var))
            alone = Scales(numbers.vars, numbers.layers[number:number + 1], numbers.tables)
            Scaled(arch, alone, integers[number:number + 1]).run([layer], tensors)
            found.append(np.abs(tensors.read(layer.output) - true_bytes(layer.output)))
    assert len(found) > len(products[Layers]) / 2
    return found


def insist(differences: list[np.ndarray]) -> None:
    for entry in differences:
        assert entry.max() <= 1
    everything = np.concatenate([entry.ravel() for entry in differences])
    assert (everything == 0).mean() >= LEAST_EQUAL


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_network(kind: str, tmp_path: Path) -> None:
    path, samples = small_twin(tmp_path, kind)
    watch = Watch()
    report = compile_model(path, SMALL, tmp_path / "out", watch=watch.after)
    watch.checker.insist()
    assert not report.warnings  # ranges that nobody measures are not missed
    session = Session(Network.load(report.model_path))
    for sample in samples:
        insist(layer_differences(watch, {"x": sample}))
        wanted, = run_float(path, {"x": sample[None]}).values()
        found, = session.run({"x": sample}).outputs.values()
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize(("name", "images"), [
    ("mlperf_tiny_resnet8_tflite_int8_qdq", 3), ("resnet20_cifar10_folded_int8", 1)])
def test_a_published_network(name: str, images: int, tmp_path: Path) -> None:
    path = shared(f"models/{name}.onnx")
    samples = np.load(shared(f"models/{name}.npz"))["input"]
    watch = Watch()
    report = compile_model(path, ARCH, tmp_path, watch=watch.after, host_fallback=True)
    watch.checker.insist()
    session = Session(Network.load(report.model_path))
    assert [part.passes for part in report.division.hosts] in ([], [()])  # Softmax alone
    differences = []
    for sample in samples[:images]:
        differences += layer_differences(watch, {"input": sample})
        wanted, = run_float(path, {"input": sample[None]}).values()
        found, = session.run({"input": sample}).outputs.values()
        assert found.argmax() == wanted.argmax() and found.dtype == wanted.dtype
    insist(differences)


def test_digits_in_bytes(tmp_path: Path) -> None:
    """The demo's float network, quantised by its calibration inputs: the same answers."""
    held = np.load(ROOT / "models" / "digits" / "held_out.npz")
    watch = Watch()
    report = compile_model(ROOT / "models" / "digits" / "digits.onnx", SMALL, tmp_path,
                           calibration={"image": held["calibration"]}, watch=watch.after)
    watch.checker.insist()
    found = Session(Network.load(report.model_path)).run({"image": held["image"][:40]}).outputs["logits"]
    np.testing.assert_array_equal(found.argmax(1), held["logits"][:40].argmax(1))
