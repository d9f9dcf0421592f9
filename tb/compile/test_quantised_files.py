# SPDX-License-Identifier: Apache-2.0
"""Quantised ONNX files: read as the network that they are, compiled for machines of fixed point, refused with a reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.frontend.reader import read_model
from weft.compiler.indices.index import feed
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.propagate_quantizers import propagate_quantizers
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.quantised_twin import KINDS, SHAPE, small_twin
from weft.tb.compile.run_model import BASE, check_model, run_float, signal_to_noise
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import run_model


def of_graph(graph: Graph, sample: np.ndarray) -> np.ndarray:
    """The only output of a graph with one input."""
    port, = graph.inputs
    value, = run_model(to_onnx(graph), feed(graph, {port.name: sample})).values()
    return value


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, np.ndarray]]:
    """Of ``small_network``, each kind, with samples of its input."""
    return {kind: small_twin(tmp_path_factory.mktemp("twin"), kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_read_as_what_it_means(kind: str, twins: dict[str, tuple[Path, np.ndarray]]) -> None:
    """Rounded where the file rounds: the same numbers, but where QOperators round halves of whole numbers."""
    path, samples = twins[kind]
    graph = read_model(path)
    assert not {"QuantizeLinear", "DequantizeLinear", "QLinearConv"} & {node.op for node in graph.nodes}
    for sample in samples:
        expected, = run_float(path, {"x": sample[None]}).values()
        found = of_graph(graph, sample)
        step = graph.nodes[-2].attributes["scale"] if kind.startswith("operators") else 1e-6
        assert np.abs(found.reshape(expected.shape) - expected).max() <= 1.5 * step


@pytest.mark.parametrize("kind", KINDS)
def test_every_rounding_becomes_the_scale_of_a_tensor(kind: str, twins: dict[str, tuple[Path, np.ndarray]]) -> None:
    path, _ = twins[kind]
    canonical = fold_channelwise(normalise(read_model(path), BASE.array_size))
    graph, quantization = propagate_quantizers(canonical)
    assert FAKE_QUANTIZE not in {node.op for node in graph.nodes}
    saved = {node.output for node in graph.nodes if node.op in ("Add", "Sigmoid", "MaxPool", "Assemble")}
    relus = {node.output for node in graph.nodes if node.op == "Relu"}
    assert saved | relus <= quantization.tensors.keys() | {
        node.input(0) for node in graph.nodes if node.op == "Relu" and node.output in quantization.tensors}
    assert graph.inputs[0].tensor in quantization.tensors
    assert graph.outputs[0].tensor in quantization.tensors


def test_inspect_names_the_operators_of_the_file(twins: dict[str, tuple[Path, np.ndarray]],
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["inspect", str(twins["qdq"][0]), "-a", "arty", "--json"]) == 0
    operators = json.loads(capsys.readouterr().out)["operators"]
    assert "QuantizeLinear" in operators and FAKE_QUANTIZE not in operators


@pytest.mark.parametrize("kind", ["qdq", "operators of unsigned bytes"])
def test_machines_of_fixed_point_compute_it_in_real_numbers(kind: str,
                                                            twins: dict[str, tuple[Path, np.ndarray]]) -> None:
    """Within what eight bits cost; the ReLUs that the quantiser left to the limits of bytes are there."""
    path, samples = twins[kind]
    arch = dataclasses.replace(BASE, lut_count=2, lut_depth=256, simd_registers_depth=3)
    check_model(path, arch, samples, 15)


# -- bad input ---------------------------------------------------------------------------------------------------------
class Maker:
    """x -> QuantizeLinear -> DequantizeLinear -> Conv with quantised weights -> QuantizeLinear -> DequantizeLinear."""

    def __init__(self) -> None:
        self.opset, self.other_opset = 13, 0
        self.kinds: tuple[int, int] = (TensorProto.FLOAT, TensorProto.FLOAT)
        self.values: dict[str, np.ndarray] = {
            "scale": np.array(0.05, np.float32), "zero": np.array(3, np.int8),
            "weights": np.arange(-54, 54).reshape(2, 6, 3, 3).astype(np.int8),
            "weight_scales": np.array([0.01, 0.02], np.float32), "weight_zeros": np.zeros(2, np.int8),
            "bias": np.array([100, -100], np.int32), "bias_scale": np.array(0.0005, np.float32)}
        self.nodes = [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantise"),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="dequantise"),
            helper.make_node("DequantizeLinear", ["weights", "weight_scales", "weight_zeros"], ["w"], name="of_weights",
                             axis=0),
            helper.make_node("DequantizeLinear", ["bias", "bias_scale"], ["b"], name="of_bias"),
            helper.make_node("Conv", ["d", "w", "b"], ["c"], name="conv"),
            helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["y_q"], name="quantise_y"),
            helper.make_node("DequantizeLinear", ["y_q", "scale", "zero"], ["y"], name="dequantise_y")]

    def node(self, name: str) -> onnx.NodeProto:
        return next(node for node in self.nodes if node.name == name)

    def save(self, path: Path) -> Path:
        graph = helper.make_graph(
            self.nodes, "made", [helper.make_tensor_value_info("x", self.kinds[0], SHAPE)],
            [helper.make_tensor_value_info(self.nodes[-1].output[0], self.kinds[1], [None] * 4)],
            [numpy_helper.from_array(value, name) for name, value in self.values.items()])
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        if self.other_opset:
            domains.append(helper.make_opsetid("", self.other_opset))
        model = helper.make_model(graph, opset_imports=domains, ir_version=8 if self.opset < 21 else 10)
        path.write_bytes(model.SerializeToString())
        return path


def set_value(name: str, value: np.ndarray) -> Callable[[Maker], None]:
    return lambda maker: maker.values.update({name: value})


def set_axis(axis: int) -> Callable[[Maker], None]:
    def change(maker: Maker) -> None:
        maker.values.update(weight_scales=np.full(6, 0.01, np.float32), weight_zeros=np.zeros(6, np.int8))
        maker.node("of_weights").attribute[0].i = axis
    return change


def drop_input(name: str, count: int) -> Callable[[Maker], None]:
    def change(maker: Maker) -> None:
        del maker.node(name).input[count:]
    return change


def blank_scale(maker: Maker) -> None:
    maker.node("quantise").input[1] = ""


def computed_scale(maker: Maker) -> None:
    maker.nodes.insert(0, helper.make_node("ReduceMax", ["x"], ["most"], name="most", keepdims=0))
    maker.node("quantise").input[1] = maker.node("dequantise").input[1] = "most"


def other_scale(maker: Maker) -> None:
    maker.values["other"] = np.array(0.06, np.float32)
    maker.node("dequantise").input[1] = "other"


def without_dequantiser(maker: Maker) -> None:
    maker.nodes.remove(maker.node("dequantise"))
    maker.nodes.insert(1, helper.make_node("Cast", ["q"], ["d"], name="cast", to=TensorProto.FLOAT))


def dynamic(maker: Maker) -> None:
    maker.nodes[:2] = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dynamic"),
                       helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dequantise")]


def dynamic_integers(maker: Maker) -> None:
    """As onnxruntime's quantize_dynamic writes it, behind a convolution of real numbers."""
    maker.values.update(conv=np.ones((6, 6, 1, 1), np.float32), bytes=np.ones((6, 6, 1, 1), np.int8))
    maker.nodes[:] = [helper.make_node("Conv", ["x", "conv"], ["real"], name="real"),
                      helper.make_node("DynamicQuantizeLinear", ["real"], ["q", "s", "z"], name="dynamic"),
                      helper.make_node("ConvInteger", ["q", "bytes", "z"], ["c"], name="integers"),
                      helper.make_node("Cast", ["c"], ["f"], name="cast", to=TensorProto.FLOAT),
                      helper.make_node("Mul", ["f", "s"], ["y"], name="scaled")]


def integer_convolution(maker: Maker) -> None:
    maker.nodes[1:] = [helper.make_node("ConvInteger", ["q", "weights"], ["c"], name="integers"),
                       helper.make_node("Cast", ["c"], ["y"], name="cast", to=TensorProto.FLOAT)]


def operator_without_scales(maker: Maker) -> None:
    maker.nodes[1:] = [helper.make_node("QLinearAdd", ["q", "scale", "zero", "q"], ["y"], name="sum",
                                        domain="com.microsoft")]
    maker.kinds = (TensorProto.FLOAT, TensorProto.INT8)


def activations_per_channel(maker: Maker) -> None:
    maker.values.update(six=np.full(6, 0.05, np.float32), zeros=np.zeros(6, np.int8))
    for name in ("quantise", "dequantise"):
        maker.node(name).input[1:] = ["six", "zeros"]


def int16_by_attribute(maker: Maker) -> None:
    """Since opset 21 a type needs no zero point."""
    maker.opset = 21
    del maker.node("quantise").input[2:], maker.node("dequantise").input[2:]
    maker.node("quantise").attribute.append(helper.make_attribute("output_dtype", TensorProto.INT16))


def in_blocks(maker: Maker) -> None:
    maker.opset = 21
    maker.node("of_weights").attribute.append(helper.make_attribute("block_size", 2))


def without_quantiser(maker: Maker) -> None:
    maker.nodes.remove(maker.node("quantise"))
    maker.node("dequantise").input[0] = "x"


def convolution_of_bytes(maker: Maker) -> None:
    maker.nodes.remove(maker.node("dequantise"))
    maker.node("conv").input[0] = "q"


def convolution_without_output_scale(maker: Maker) -> None:
    maker.nodes[1:] = [helper.make_node("QLinearConv", ["q", "scale", "zero", "weights", "weight_scales",
                                                        "weight_zeros", "scale"], ["y"], name="sum")]
    maker.kinds = (TensorProto.FLOAT, TensorProto.INT8)


def two_opsets(maker: Maker) -> None:
    maker.other_opset = 17


def old_opset(maker: Maker) -> None:
    """AffineParams per channel came with opset 13."""
    maker.opset = 10


BAD: dict[str, tuple[Callable[[Maker], None], tuple[str, ...]]] = {
    "scale of zero": (set_value("scale", np.array(0, np.float32)), ("'quantise'", "found 0.0", "above 0")),
    "negative scale": (set_value("scale", np.array(-1, np.float32)), ("'quantise'", "found -1.0")),
    "scale that is NaN": (set_value("scale", np.array(np.nan, np.float32)), ("'quantise'", "found nan")),
    "infinite scale of weights": (set_value("weight_scales", np.array([1, np.inf], np.float32)),
                                  ("'of_weights'", "found inf")),
    "no scale": (drop_input("quantise", 1), ("quantise",)),
    "scale left out": (blank_scale, ("quantise", "input 1")),
    "scale that is another": (other_scale, ("'dequantise'", "0.06, 3", "0.05, 3")),
    "zero point of a wrong type": (set_value("zero", np.array(3, np.int16)), ("zero point 'zero'", "found int16")),
    "real zero point": (set_value("zero", np.array(3, np.float32)), ("zero point 'zero'", "found float32")),
    "zero point of a bias": (lambda maker: (
        maker.values.update(one=np.array(1, np.int32)), maker.node("of_bias").input.append("one"))[0],
        ("'of_bias'", "found 1")),
    "per-axis on the input channels": (set_axis(1), ("'of_weights'", "attribute axis", "found 1", "allowed: 0")),
    "more scales than channels": (set_value("weight_scales", np.full(3, 0.1, np.float32)), ("'of_weights'",)),
    "axis that is not there": (set_axis(7), ("'of_weights'",)),
    "activations per channel": (activations_per_channel, ("6 numbers", "per tensor")),
    "an operator between that takes no bytes": (without_dequantiser, ("'cast'", "bytes")),
    "a convolution of integers": (integer_convolution, ("'integers'", "bytes of a quantised tensor")),
    "an operator without its scales": (operator_without_scales, ("'sum'", "at least 7")),
    "16 bits by the type of the output": (int16_by_attribute, ("'quantise'", "found int16", "int8 or uint8")),
    "scales of blocks": (in_blocks, ("'of_weights'", "block_size", "found 2")),
    "real numbers to dequantise": (without_quantiser, ("'dequantise'", "real numbers", "put QuantizeLinear")),
    "a convolution of bytes": (convolution_of_bytes, ("'conv'", "bytes", "put DequantizeLinear")),
    "a quantised convolution without its scale": (convolution_without_output_scale, ("sum", "input size 7")),
    "a zero point out of range": (set_value("zero", np.array(300, np.int32)), ("'quantise'", "found int32")),
    "no numbers in a scale": (set_value("scale", np.zeros(0, np.float32)), ("'quantise'", "float32[0]")),
    "a whole number as scale": (set_value("scale", np.array(1, np.int32)), ("'quantise'", "found int32")),
    "two zero points of one scale": (set_value("zero", np.array([3, 3], np.int8)), ("'quantise'", "2 numbers", "1;")),
    "scale of zero of a bias": (set_value("bias_scale", np.array(0, np.float32)), ("'of_bias'", "found 0.0")),
    "negative scale of weights": (set_value("weight_scales", np.array([0.1, -0.1], np.float32)), ("'of_weights'",)),
    "two opsets of one domain": (two_opsets, ("opset", "13, 17")),
    "scales per channel in an old opset": (old_opset, ("axis",)),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_with_what_where_and_the_way_out(case: str, tmp_path: Path) -> None:
    change, parts = BAD[case]
    maker = Maker()
    change(maker)
    with pytest.raises(CompileError) as error:
        read_model(maker.save(tmp_path / "model.onnx"))
    text = str(error.value)
    assert all(part in text for part in (": found ", "; allowed: ", "; way out: ", *parts)), text


@pytest.mark.parametrize("change", [dynamic, dynamic_integers])
def test_dynamic_ranges_are_those_of_calibration(change: Callable[[Maker], object], tmp_path: Path) -> None:
    maker = Maker()
    change(maker)
    path = maker.save(tmp_path / "model.onnx")
    sample = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": sample})
    expected, = run_float(path, {"x": sample}).values()
    found, = Session(Network.load(report.model_path)).run({"x": sample}).outputs.values()
    assert signal_to_noise(expected, found.reshape(expected.shape)) >= 25


def test_scales_that_are_found_while_it_runs_are_the_hosts(tmp_path: Path) -> None:
    """Without the host they are refused, and the way out that is named works."""
    maker = Maker()
    computed_scale(maker)
    path = maker.save(tmp_path / "model.onnx")
    with pytest.raises(CompileError, match="scales that are found while it runs.*way out: .*--host-fallback"):
        compile_model(path, BASE, tmp_path)
    sample = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": sample}, host_fallback=True)
    expected, = run_float(path, {"x": sample}).values()
    found, = Session(Network.load(report.model_path)).run({"x": sample}).outputs.values()
    assert signal_to_noise(expected, found.reshape(expected.shape)) >= 30


def test_a_way_out_that_is_taken_is_not_named(tmp_path: Path) -> None:
    """Where the frontend refuses a network the host is no help."""
    maker = Maker()
    dynamic(maker)
    maker.values["zero"] = np.array(3, np.uint8)
    maker.node("dequantise").input[1:] = ["scale", "zero"]
    path = maker.save(tmp_path / "model.onnx")
    for host_fallback in (False, True):
        with pytest.raises(CompileError, match="'dequantise'.*that no QuantizeLinear made") as error:
            compile_model(path, BASE, tmp_path, host_fallback=host_fallback)
        assert ("--host-fallback" in str(error.value)) == (not host_fallback) and "--end" in str(error.value)


def test_nothing_wrong_is_not_refused(tmp_path: Path) -> None:
    path = Maker().save(tmp_path / "model.onnx")
    sample = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    expected, = run_float(path, {"x": sample}).values()
    assert np.array_equal(of_graph(read_model(path), sample).reshape(expected.shape), expected)


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8])
def test_inputs_and_outputs_of_bytes(kind: int, tmp_path: Path) -> None:
    """The graph computes on the numbers that they mean."""
    maker = Maker()
    maker.values["zero"] = np.array(3, np.int8 if kind == TensorProto.INT8 else np.uint8)
    del maker.nodes[0], maker.nodes[-1]
    maker.node("dequantise").input[0] = "x"
    maker.kinds = (kind, kind)
    path = maker.save(tmp_path / "model.onnx")
    graph = read_model(path)
    source, output = graph.inputs[0], graph.outputs[0]
    assert output.quantized is not None
    assert source.quantized == output.quantized == (np.float32(0.05), 3 if kind == TensorProto.INT8 else -125)
    info = np.iinfo(source.type)
    sample = np.random.default_rng(0).integers(info.min, info.max + 1, SHAPE).astype(source.type)
    expected, = run_float(path, {"x": sample}).values()
    found = output.quantized.quantize(of_graph(graph, sample)) + (128 if kind == TensorProto.UINT8 else 0)
    assert np.array_equal(found.reshape(expected.shape), expected)


def test_inputs_beyond_the_range_of_their_bytes_are_counted(tmp_path: Path) -> None:
    """-6.55 to 6.2 are the bytes of scale 0.05 and zero point 3."""
    sample = np.zeros(SHAPE[1:], np.float32)
    path, arch = Maker().save(tmp_path / "model.onnx"), BASE.replace(data_type="INT8")
    model = TModel.load(compile_model(path, arch, tmp_path, calibration={"x": sample[None]}).model_path)
    sample.flat[:4] = -6.5, 6.2, 7.0, -7.0
    assert Session(model).run({"x": sample}).saturated_inputs == {"x": 2}
