# SPDX-License-Identifier: Apache-2.0
"""Small quantised networks on INT8 machines, in RTL: every word as golden, and as many cycles as were estimated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.runtime.session import RTL, RunResult, Session
from weft.tb.compile.quantised_twin import quantised_twin
from weft.tb.compile.run_model import ModelMaker, run_float
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tmodel.manifest import TModel

ARCHS = {name: lockstep_archs()[name] for name in ("lanes2_int8", "lanes4_int8")}
"""The random programs' tests build their simulators too."""
SHAPE = (1, 3, 6, 6)


def residual(maker: ModelMaker) -> None:
    """A convolution with a ReLU, one of each channel, a sum of two scales, a max pool."""
    first = maker.node("Relu", maker.conv("x", 3, 6, (3, 3), pads=(1, 1, 1, 1)))
    deep = maker.conv(first, 6, 6, (3, 3), pads=(1, 1, 1, 1), group=6)
    total = maker.node("Relu", maker.node("Add", first, maker.conv(deep, 6, 6, (1, 1))))
    maker.node("MaxPool", total, kernel_shape=(2, 2), strides=(2, 2))


def branches(maker: ModelMaker) -> None:
    """A stride, average pools, a concatenation of two scales, a last matrix."""
    left = maker.conv("x", 3, 5, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    right = maker.node("AveragePool", "x", kernel_shape=(2, 2), strides=(2, 2))
    pooled = maker.node("GlobalAveragePool", maker.node("Concat", left, right, axis=1))
    maker.node("Gemm", maker.node("Flatten", pooled), maker.normal(8, 5), maker.normal(5))


def separable(maker: ModelMaker) -> None:
    """Channels one by one with a limit, between two matrices of pixels, as MobileNets have; a sum over them."""
    limits = maker.constant(np.float32(0)), maker.constant(np.float32(6))
    wide = maker.node("Clip", maker.conv("x", 3, 9, (1, 1)), *limits)
    deep = maker.node("Clip", maker.conv(wide, 9, 9, (3, 3), pads=(1, 1, 1, 1), group=9), *limits)
    maker.node("Add", "x", maker.conv(deep, 9, 3, (1, 1)))


def enlarging(maker: ModelMaker) -> None:
    """A batch normalisation of its own behind a sum, and a transposed convolution."""
    total = maker.node("Add", "x", maker.conv("x", 3, 3, (3, 3), pads=(1, 1, 1, 1)))
    scaled = maker.node("Add", maker.node("Mul", total, maker.normal(1, 3, 1, 1)), maker.normal(1, 3, 1, 1))
    weights = maker.normal(3, 4, 2, 2)
    maker.node("ConvTranspose", maker.node("Relu", scaled), weights, kernel_shape=(2, 2), strides=(2, 2))


def preactivated(maker: ModelMaker) -> None:
    """A max pool, a sum and its normalisation, each in the layer of the convolution before it."""
    first = maker.node("MaxPool", maker.node("Relu", maker.conv("x", 3, 5, (1, 1))), kernel_shape=(3, 3))
    total = maker.node("Add", first, maker.node("Relu", maker.conv(first, 5, 5, (3, 3), pads=(1, 1, 1, 1))))
    normal = maker.node("BatchNormalization", total, *(maker.constant(np.linspace(0.5, value, 5, dtype=np.float32))
                                                       for value in (2, -1, 1, 4)))
    maker.node("Add", total, maker.conv(maker.node("Relu", normal), 5, 5, (1, 1)))


def bent(maker: ModelMaker) -> None:
    """Activation tables: functions behind convolutions, before a sum and a max pool, of the input; more than tables."""
    first = maker.node("LeakyRelu", maker.conv("x", 3, 6, (3, 3), pads=(1, 1, 1, 1)), alpha=0.1)
    deep = maker.node("Elu", maker.conv(first, 6, 6, (3, 3), pads=(1, 1, 1, 1), group=6))
    total = maker.node("Add", maker.node("Sigmoid", maker.conv(deep, 6, 3, (1, 1))), maker.node("Tanh", "x"))
    last = maker.node("LeakyRelu", maker.conv(total, 3, 5, (1, 1)), alpha=0.2)
    maker.node("MaxPool", last, kernel_shape=(2, 2), strides=(2, 2))


def run_alike(model: TModel, samples: np.ndarray) -> RunResult:
    """Two samples in RTL: every word as golden, every operation at the cycle that was estimated."""
    result = Session(model).run({"x": samples[:2]}, on=RTL, trace_operations=True)
    assert result.comparison is not None
    result.comparison.insist()
    for (_, program), (cycles, operations) in zip(result.programs, result.operations, strict=True):
        found = estimate(program, model.arch)
        assert found.cycles == cycles
        assert np.array_equal(found.operations, operations)
    return result


def calibrated(make: Callable[[ModelMaker], None], machine: str, folder: Path) -> tuple[TModel, np.ndarray]:
    """A network of real numbers in bytes, and samples of its input."""
    maker = ModelMaker(SHAPE, seed=1)
    make(maker)
    samples = maker.random.standard_normal((4, *SHAPE[1:])).astype(np.float32)
    report = compile_model(maker.save(folder / "net.onnx"), ARCHS[machine], folder, calibration={"x": samples})
    return TModel.load(report.model_path), samples


@pytest.mark.wide_cases("lanes2_int8")
@pytest.mark.parametrize("machine", ARCHS)
def test_network_of_real_numbers_on_rtl(machine: str, tmp_path: Path) -> None:
    model, samples = calibrated(preactivated, machine, tmp_path)
    assert [layer["kind"] for layer in model.layers] == [
        "mat_mul+relu+round+max_pool", "mat_mul+relu+round+add+save+scale+relu", "mat_mul+round+add"]
    run_alike(model, samples)


@pytest.mark.wide_cases("lanes2_int8")
@pytest.mark.parametrize("machine", ARCHS)
def test_functions_on_the_way_out_on_rtl(machine: str, tmp_path: Path) -> None:
    model, samples = calibrated(bent, machine, tmp_path)
    kinds = [layer["kind"] for layer in model.layers]
    assert sum("translate" in kind for kind in kinds) == 5 and kinds[-1] == "mat_mul+translate+round+max_pool"
    run_alike(model, samples)


@pytest.mark.wide_cases("*-lanes2_int8")
@pytest.mark.parametrize("machine", ARCHS)
@pytest.mark.parametrize(("network", "kind"), [
    (residual, "qdq"), (branches, "qdq of unsigned bytes"), (separable, "qdq"), (enlarging, "qdq of unsigned bytes"),
    (bent, "qdq")],
                         ids=lambda value: getattr(value, "__name__", None))
def test_quantised_network_on_rtl(network: Callable[[ModelMaker], None], kind: str, machine: str,
                                  tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE, seed=1)
    network(maker)
    samples = maker.random.standard_normal((4, *SHAPE[1:])).astype(np.float32)
    path = quantised_twin(maker.save(tmp_path / "net.onnx"), {"x": samples}, kind)
    report = compile_model(path, ARCHS[machine], tmp_path, calibration={"x": samples})
    assert report.warnings == ()
    model = TModel.load(report.model_path)
    result = run_alike(model, samples)
    step = next(port.scale for port in model.outputs if port.scale is not None).scale
    (name, made), = result.outputs.items()
    for image, sample in zip(made, samples, strict=False):
        assert np.abs(image - run_float(path, {"x": sample[None]})[name]).max() < 1.5 * step
