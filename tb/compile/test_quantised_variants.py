# SPDX-License-Identifier: Apache-2.0
"""Quantised networks as tools write them: opsets, types of bytes, scales per tensor and per channel, operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import CompileError
from weft.compiler.layers.hir import Layers
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.layer_bytes import Checked, Watch, together
from weft.tb.compile.run_model import BASE, run_float
from weft.tmodel.network import Network

ARCH = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)
SHAPE = (1, 5, 10, 9)
SAMPLES = np.random.default_rng(0).standard_normal((3, *SHAPE[1:])).astype(np.float32)
STEP = 0.0231
"""The scale of most tensors: of which few results are halves."""


class Maker:
    """A QDQ network of real numbers x -> y, node after node; every tensor is rounded."""

    def __init__(self, opset: int = 13, kind: type = np.int8, weights: type = np.int8,
                 per_channel: bool = True) -> None:
        self.opset, self.kind, self.weights_kind, self.per_channel = opset, kind, weights, per_channel
        self.random, self.nodes, self.values = np.random.default_rng(3), list[onnx.NodeProto](), dict[str, np.ndarray]()
        self.x = self.rounded("x", STEP, -7)

    def value(self, value: np.ndarray) -> str:
        name = f"value{len(self.values)}"
        self.values[name] = value
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{op}{len(self.nodes)}" + f"_{number}" * (number > 0) for number in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=names[0], **attributes))
        return names[0]

    def rounded(self, name: str, scale: float = STEP, zero: int = 5) -> str:
        """Through bytes; ``zero`` as a signed one."""
        zero += 128 * (self.kind is np.uint8)
        numbers = self.value(np.array(scale, np.float32)), self.value(np.array(zero, self.kind))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", name, *numbers), *numbers)

    def of_weights(self, axis: int, *shape: int) -> str:
        info = np.iinfo(self.weights_kind)
        count = shape[axis] if self.per_channel else 1
        numbers = [self.random.uniform(0.002, 0.004, count).astype(np.float32),
                   np.full(count, 0 if info.min else 121).astype(self.weights_kind)]
        steps: np.ndarray = self.random.integers(info.min + 1, info.max + 1, shape).astype(self.weights_kind)
        scales, zeros = (entry if self.per_channel else entry.reshape(()) for entry in numbers)
        attributes = {"axis": axis} if self.per_channel else {}
        return self.node("DequantizeLinear", self.value(steps), self.value(scales), self.value(zeros), **attributes)

    def conv(self, source: str, channels: int, made: int, kernel: int = 3, group: int = 1, **attributes: Any) -> str:
        weights = self.of_weights(0, made, channels // group, kernel, kernel)
        return self.node("Conv", source, weights, group=group, **attributes)

    def save(self, path: Path, output: str) -> Path:
        graph = helper.make_graph(
            self.nodes, "made", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [onnx.ValueInfoProto(name=output)],
            [numpy_helper.from_array(value, name) for name, value in self.values.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                  ir_version=8 if self.opset < 19 else 10)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def judge(path: Path, least_layers: int = 1) -> None:
    """No step changes the result, layers give onnxruntime's bytes, and the program's answer is as near as rounding is.
    """
    watch = Checked()
    report = compile_model(path, ARCH, path.parent, calibration={"x": SAMPLES}, watch=watch.after)
    watch.checker.insist()
    session = Session(Network.load(report.model_path))
    for sample in SAMPLES:
        found = watch.differences({"x": sample})
        bytes_off = together([found])
        assert len(found) >= least_layers and bytes_off.max() <= 1
        assert (bytes_off > 0).sum() <= max(2, 0.005 * len(bytes_off))
        wanted, = run_float(path, {"x": sample[None]}).values()
        made, = session.run({"x": sample}).outputs.values()
        assert made.shape == wanted.shape and np.abs(made - wanted).max() <= 3.1 * STEP


@pytest.mark.parametrize(("opset", "kind", "weights", "per_channel"), [
    (13, np.int8, np.int8, True), (13, np.uint8, np.uint8, False), (17, np.uint8, np.int8, True),
    (19, np.uint8, np.uint8, False), (21, np.int8, np.int8, True), (21, np.uint8, np.uint8, True)])
def test_opsets_and_types(opset: int, kind: type, weights: type, per_channel: bool, tmp_path: Path) -> None:
    maker = Maker(opset, kind, weights, per_channel)
    first = maker.rounded(maker.node("Relu", maker.conv(maker.x, 5, 8, pads=(1, 1, 1, 1))), 0.02, -128)
    deep = maker.rounded(maker.conv(first, 8, 8, group=8), 0.11)
    judge(maker.save(tmp_path / "model.onnx", maker.rounded(maker.node("MaxPool", deep, kernel_shape=(2, 2)), 0.11)), 2)


def concat(maker: Maker) -> str:
    """Of three scales, one part of which is an input."""
    other = maker.rounded(maker.conv(maker.x, 5, 3, pads=(1, 1, 1, 1)), 0.031, 11)
    return maker.node("Concat", maker.x, other, maker.x, axis=1)


def squash(maker: Maker) -> str:
    """HardSwish as tools write it, each part rounded or not."""
    inner = maker.rounded(maker.conv(maker.x, 5, 6), 0.07)
    return maker.node("HardSwish", inner)


def sigmoid_of_a_sum(maker: Maker) -> str:
    total = maker.rounded(maker.node("Add", maker.x, maker.rounded(maker.conv(maker.x, 5, 5, 1), 0.04)), 0.05)
    return maker.node("Sigmoid", total)


def slopes(maker: Maker) -> str:
    """One a channel, below and above 1 and below 0."""
    inner = maker.rounded(maker.conv(maker.x, 5, 6), 0.04, -20)
    slope = maker.value(np.array([0.1, 0.25, -0.5, 1.7, 0.0, 1.0], np.float32).reshape(6, 1, 1))
    return maker.node("PRelu", inner, slope)


def slopes_and_their_relu(maker: Maker) -> str:
    """Both read what the slopes make, rounded, and a ReLU has a scale from 0 on."""
    inner = maker.rounded(maker.conv(maker.x, 5, 6), 0.04, -20)
    slope = maker.value(np.array([0.1, 0.25, -0.5, 0.7, 0.0, 0.9], np.float32).reshape(6, 1, 1))
    both = maker.rounded(maker.node("PRelu", inner, slope), 0.037)
    above = maker.rounded(maker.node("Relu", both), 0.019, -128)
    return maker.node("Add", both, maker.rounded(maker.conv(above, 6, 6, 1), 0.02))


def differences_of_two(maker: Maker) -> str:
    return maker.node("Sub", maker.x, maker.rounded(maker.conv(maker.x, 5, 5, 1), 0.04, -9))


def moved(maker: Maker) -> str:
    inner = maker.rounded(maker.conv(maker.x, 5, 8), 0.05)
    padded = maker.rounded(maker.node("Pad", inner, maker.value(np.array([0, 0, 1, 1, 0, 0, 2, 0]))), 0.05)
    turned = maker.rounded(maker.node("Transpose", padded, perm=(0, 1, 3, 2)), 0.05)
    part = maker.node("Slice", turned, *(maker.value(np.array([entry])) for entry in (1, 8, 2)))
    return maker.conv(maker.rounded(part, 0.05), 8, 4, 2)


def split(maker: Maker) -> str:
    inner = maker.rounded(maker.conv(maker.x, 5, 8), 0.05)
    maker.node("Split", inner, outputs=2, axis=1, **({"num_outputs": 2} if maker.opset > 17 else {}))
    left, right = (maker.rounded(name, 0.05) for name in list(maker.nodes[-1].output))
    return maker.node("Add", left, maker.rounded(maker.conv(right, 4, 4, 1), 0.03))


def means(maker: Maker) -> str:
    inner = maker.rounded(maker.conv(maker.x, 5, 8), 0.05)
    pool = maker.node("AveragePool", inner, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=1)
    return maker.node("GlobalAveragePool", maker.rounded(pool, 0.041))


def enlarged(maker: Maker) -> str:
    scales = maker.value(np.array([1, 1, 2, 2], np.float32))
    return maker.node("Resize", maker.rounded(maker.conv(maker.x, 5, 4), 0.05), "", scales, mode="linear",
                      coordinate_transformation_mode="half_pixel")


def transposed(maker: Maker) -> str:
    inner = maker.rounded(maker.conv(maker.x, 5, 6), 0.05)
    return maker.node("ConvTranspose", inner, maker.of_weights(1, 6, 4, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1))


def scaled_by_constants(maker: Maker) -> str:
    """Of each channel, as batch normalisations are left."""
    product = maker.rounded(maker.node("Mul", maker.x, maker.of_weights(0, 5, 1, 1)), 0.009)
    return maker.node("Add", product, maker.of_weights(0, 5, 1, 1))


def matrix(maker: Maker) -> str:
    flat = maker.rounded(maker.node("Flatten", maker.rounded(maker.node(
        "MaxPool", maker.x, kernel_shape=(3, 3), strides=(3, 3)), STEP, -7)), STEP, -7)
    return maker.node("MatMul", flat, maker.of_weights(1, 45, 7))


def clipped(maker: Maker) -> str:
    limits = (maker.value(np.array(entry, np.float32)) for entry in (0, 1.5))
    return maker.node("Clip", maker.rounded(maker.conv(maker.x, 5, 6), 0.04), *limits)


OPERATORS: tuple[tuple[Callable[[Maker], str], float], ...] = (
    (concat, 0.033), (squash, 0.03), (sigmoid_of_a_sum, 1 / 256), (slopes, 0.037), (slopes_and_their_relu, 0.053),
    (differences_of_two, 0.045),
    (moved, 0.06), (split, 0.0613), (means, 0.021), (enlarged, 0.047), (transposed, 0.06), (scaled_by_constants, 0.011),
    (matrix, 0.05), (clipped, 0.0061))
"""Networks whose last tensor is rounded to the scale beside them."""


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("network", "scale"), OPERATORS, ids=lambda entry: getattr(entry, "__name__", ""))
def test_operators(network: Callable[[Maker], str], scale: float, per_channel: bool, tmp_path: Path) -> None:
    maker = Maker(17 if per_channel else 19, np.int8 if per_channel else np.uint8, np.int8 if per_channel else np.uint8,
                  per_channel)
    judge(maker.save(tmp_path / "model.onnx", maker.rounded(network(maker), scale)))


def test_a_pixel_of_nothing_but_its_bias_is_not_rounded_twice(tmp_path: Path) -> None:
    """Nearly halves of the result's steps, in three of four pixels."""
    maker = Maker()
    bias = maker.value(np.array([5.4994, -2.5005, 7.5002, 0.4996], np.float32) * np.float32(0.06))
    made = maker.node("ConvTranspose", maker.x, maker.of_weights(1, 5, 4, 1, 1), bias, strides=(2, 2))
    judge(maker.save(tmp_path / "model.onnx", maker.rounded(made, 0.06)))


def slice_of_a_wide_tensor(maker: Maker) -> str:
    """Rounded to its own range, that of the whole goes further."""
    wide = maker.conv(maker.x, 5, 6)
    part = maker.node("Slice", wide, *(maker.value(np.array([entry])) for entry in (1, 3, 1)))
    return maker.node("Concat", maker.rounded(part, 0.01), maker.rounded(maker.node("Relu", wide), 0.05, -128), axis=1)


def part_that_others_need_below_0(maker: Maker) -> str:
    """Rounded from 0 on with what it lies beside, which is a ReLU; whole in a sum."""
    part = maker.conv(maker.x, 5, 5, 1)
    positive = maker.rounded(maker.node("Concat", part, maker.x, axis=1), 0.03, -128)
    return maker.node("Concat", positive, maker.rounded(maker.node("Add", part, maker.x), 0.05), axis=1)


@pytest.mark.parametrize("network", [slice_of_a_wide_tensor, part_that_others_need_below_0])
def test_a_scale_that_is_too_narrow_for_other_readers(network: Callable[[Maker], str], tmp_path: Path) -> None:
    """It is rounded twice then, but nothing saturates."""
    maker, checked = Maker(), Checked()
    path = maker.save(tmp_path / "model.onnx", maker.rounded(network(maker), 0.05))
    report = compile_model(path, ARCH, tmp_path, calibration={"x": SAMPLES}, watch=checked.after)
    checked.checker.insist()
    session = Session(Network.load(report.model_path))
    for sample in SAMPLES:
        wanted, = run_float(path, {"x": sample[None]}).values()
        made, = session.run({"x": sample}).outputs.values()
        assert np.abs(made - wanted).max() <= 2.1 * 0.05


def hard_swish(maker: Maker) -> str:
    """Of nodes, each of which is rounded; in two orders."""
    inner = maker.rounded(maker.conv(maker.x, 5, 6), 0.0713)
    three, six = (maker.rounded(maker.value(np.array(entry, np.float32)), entry / 127, 0) for entry in (3, 6))
    gate = maker.rounded(maker.node("Add", inner, three), 0.07, -30)
    gate = maker.rounded(maker.node("Clip", gate, *(maker.value(np.array(entry, np.float32)) for entry in (0, 6))),
                         6 / 255, -128)
    return maker.node("Div", maker.rounded(maker.node("Mul", gate, inner), 0.3), six)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_function_that_is_rounded_in_between_is_one_table(kind: type, tmp_path: Path) -> None:
    """Exact, for the table's values are made by the file's own steps. It joins the convolution before it."""
    maker, watch = Maker(kind=kind), Watch()
    path = maker.save(tmp_path / "model.onnx", maker.rounded(hard_swish(maker), 0.0411, -100))
    compile_model(path, ARCH, tmp_path, calibration={"x": SAMPLES}, watch=watch.after)
    layers = watch.parts[1][Layers]
    assert [layer.kind for layer in layers] == ["mat_mul+round+lookup"]
    for sample in SAMPLES:
        assert not watch.differences({"x": sample})[f"0 {layers[0].name} {layers[0].output.name}"].any()
    judge(path, 1)


@pytest.mark.parametrize("function", [("Reciprocal",), ("Log",), ("Sqrt", "Reciprocal")], ids="_of_".join)
@pytest.mark.parametrize("lowest", [0.0, 1.0])
def test_infinite_values_saturate(function: tuple[str, ...], lowest: float, tmp_path: Path) -> None:
    """1 / 0 and log(0) are the ends of the file's scale, whether calibration saw the 0 or not, as are its other bytes
    which calibration did not see."""
    maker = Maker()
    maker.x = maker.rounded("x", 0.02, -128)
    name = maker.x
    for operator in function:
        name = maker.node(operator, name)
    path = maker.save(tmp_path / "model.onnx", maker.rounded(name, 0.05, -30))
    given = np.linspace(0, 4, int(np.prod(SHAPE)), dtype=np.float32).reshape(SHAPE)
    report = compile_model(path, ARCH, tmp_path, calibration={"x": np.clip(given, lowest, 2)})
    made, = Session(Network.load(report.model_path)).run({"x": given[0]}).outputs.values()
    wanted, = run_float(path, {"x": given}).values()
    assert np.array_equal(made, wanted)


LIMITS = ((-1.01, 1.01, -1, 1), (-3, 3, -1, 1), (-1, np.inf, -1, 2), (-1, 1, -1, 1), (-1, 1, -1.5, 1.25),
          (0.5, 2, 0, 2), (-2, -0.5, -2, 0))
"""Limits of a Clip, and the ends of its result's bytes: not beyond the limits for the first three."""


@pytest.mark.parametrize(("tables", "low", "high", "lowest", "highest"), [
    *((True, *entry) for entry in LIMITS), *((False, *entry) for entry in LIMITS[:3])])
def test_a_convolution_within_limits_is_rounded_once(tables: bool, low: float, high: float, lowest: float,
                                                     highest: float, tmp_path: Path) -> None:
    """Without tables too, where bytes end at the limits."""
    maker, step = Maker(), (highest - lowest) / 255
    limits = (maker.value(np.array(entry, np.float32)) for entry in (low, high))
    limited = maker.node("Clip", maker.conv(maker.x, 5, 6), *limits)
    path = maker.save(tmp_path / "model.onnx", maker.rounded(limited, step, round(-lowest / step) - 128))
    arch = ARCH if tables else ARCH.replace(lut_count=0, lut_depth=16)
    session = Session(Network.load(compile_model(path, arch, tmp_path).model_path))
    for sample in SAMPLES:
        made, = session.run({"x": sample}).outputs.values()
        wanted, = run_float(path, {"x": sample[None]}).values()
        assert np.abs(made - wanted).max() <= 1.1 * step
        assert (made != wanted).mean() <= 0.005


def test_without_tables_the_host_has_the_products_of_such_a_function(tmp_path: Path) -> None:
    maker = Maker()
    path = maker.save(tmp_path / "model.onnx", maker.rounded(hard_swish(maker), 0.0411, -100))
    plain = ARCH.replace(lut_count=0, lut_depth=16)
    with pytest.raises(CompileError, match="two computed tensors to multiply.*INT8"):
        compile_model(path, plain, tmp_path, calibration={"x": SAMPLES})
    report = compile_model(path, plain, tmp_path, calibration={"x": SAMPLES}, host_fallback=True)
    made, = Session(Network.load(report.model_path)).run({"x": SAMPLES[0]}).outputs.values()
    wanted, = run_float(path, {"x": SAMPLES[:1]}).values()
    assert np.abs(made - wanted).max() <= 3.1 * 0.0411


def test_products_of_two_tensors_are_the_hosts(tmp_path: Path) -> None:
    maker = Maker()
    factor = maker.rounded(maker.node("Tanh", maker.x), 1 / 128)
    path = maker.save(tmp_path / "model.onnx", maker.rounded(maker.node(
        "Mul", maker.rounded(maker.conv(maker.x, 5, 5, pads=(1, 1, 1, 1)), 0.06), factor), 0.02))
    with pytest.raises(CompileError, match="two computed tensors to multiply.*INT8.*--host-fallback"):
        compile_model(path, ARCH, tmp_path, calibration={"x": SAMPLES})
    report = compile_model(path, ARCH, tmp_path, calibration={"x": SAMPLES}, host_fallback=True)
    made, = Session(Network.load(report.model_path)).run({"x": SAMPLES[0]}).outputs.values()
    wanted, = run_float(path, {"x": SAMPLES[:1]}).values()
    assert np.abs(made - wanted).max() <= 3.1 * 0.02
