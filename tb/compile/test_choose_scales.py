# SPDX-License-Identifier: Apache-2.0
"""AffineParams: layers of bytes are compared with onnxruntime, which gets equal inputs and does not fuse what files
round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layers
from weft.compiler.lir import LoadScale
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.quantize.choose_scales import _factors, _requantization
from weft.compiler.quantize.narrow import BINS, RANGES, Histogram, by_error, by_percentile, known_ranges
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.scales import rounded_weights
from weft.compiler.quantize.var_scales import tensor_scale
from weft.compiler.quantize.weight_scales import single_precision_scales, weight_scales
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.tiling.costs import SCALE_OVERHEAD_CYCLES
from weft.tb.compile.layer_bytes import (
    Watch,
    insist,
    run_layer,
    run_layers,
    scales_of,
    tensors_of,
    together,
    with_numbers,
)
from weft.tb.compile.quantised_twin import KINDS, quantised_twin, small_network, small_twin
from weft.tb.compile.run_model import (
    BASE,
    ModelMaker,
    after_all_steps,
    check_every_step,
    run_float,
    signal_to_noise,
)
from weft.tb.shared import shared

ARCH = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)


def built(path: Path, samples: Mapping[str, np.ndarray], ranges: str = "minmax",
          outputs: tuple[str, ...] = ()) -> Watch:
    return with_numbers(path, ARCH, samples, ranges, outputs)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_give_the_bytes_of_onnxruntime(kind: str, tmp_path: Path) -> None:
    path, samples = small_twin(tmp_path, kind)
    made = built(path, {"x": samples})
    found = [made.differences({"x": sample}) for sample in samples]
    assert len(together(found)) > 5_000
    insist(found)


@pytest.mark.parametrize("name", ["mlperf_tiny_resnet8_tflite_int8_qdq", "resnet20_cifar10_folded_int8"])
def test_published_networks_give_the_bytes_of_onnxruntime(name: str) -> None:
    path = shared(f"models/{name}.onnx")
    samples = np.load(path.with_suffix(".npz"))["input"]
    made = built(path, {"input": samples}, outputs=("Add__29:0",) if "tflite" in name else ())  # before the Softmax
    insist(made.differences({"input": sample}) for sample in samples[:2])


def test_halves_are_where_exactness_ends(tmp_path: Path) -> None:
    """A mean of four bytes is often a half. The layer rounds it to even; single precision may be a hair beside it."""
    maker = ModelMaker((1, 8, 8, 8))
    maker.node("AveragePool", maker.node("Relu", maker.conv("x", 8, 8, (1, 1))), kernel_shape=(2, 2), strides=(2, 2))
    samples = np.random.default_rng(2).standard_normal((4, 8, 8, 8)).astype(np.float32)
    made = built(quantised_twin(maker.save(tmp_path / "mean.onnx"), {"x": samples}), {"x": samples})
    products = made.parts[1]
    layer, numbers = products[Layers][-1], scales_of(products).layers[-1]
    bytes_read = np.random.default_rng(3).integers(-128, 128, (8, 8, 8))
    tensors = tensors_of(products, {"x": samples[0]})
    tensors.write(layer.core.input, bytes_read)
    run_layer(products, len(products[Layers]) - 1, tensors)
    mean = bytes_read.reshape(8, 4, 2, 4, 2).mean((2, 4))
    assert numbers.activation_zero_point == numbers.requantizations[0].zero and (mean % 1 == 0.5).sum() > 10
    even = np.rint(mean - numbers.activation_zero_point) + numbers.activation_zero_point
    assert np.array_equal(tensors.read(layer.output), even)


@pytest.mark.parametrize("widest", [7.93, 12.37])
def test_a_function_of_one_weight_has_the_halves_of_onnxruntime(widest: float, tmp_path: Path) -> None:
    """min(max(x + 3, 0), 6) in steps of 6 / 255: 0 becomes 127.5 of them. Every byte, and 0 often."""
    maker = ModelMaker((1, 1, 16, 32))
    sum_with_3 = maker.node("Add", "x", maker.constant(np.float32(3)))
    maker.node("Clip", sum_with_3, maker.constant(np.float32(0)), maker.constant(np.float32(6)))
    values = np.append(np.linspace(-widest, widest + 3, 256), np.zeros(256)).astype(np.float32)
    samples = values.reshape(1, 1, 16, 32)
    made = built(quantised_twin(maker.save(tmp_path / "gate.onnx"), {"x": samples}), {"x": samples})
    assert not together([made.differences({"x": samples[0]})]).any()


# -- networks of real numbers ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ranges", RANGES)
def test_a_network_of_real_numbers_gets_scales(ranges: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 8, 8))
    small_network(maker)
    path = maker.save(tmp_path / "model.onnx")
    samples = np.random.default_rng(1).standard_normal((4, 6, 8, 8)).astype(np.float32)
    made = built(path, {"x": samples}, ranges)
    for sample in samples:
        expected, = run_float(path, {"x": sample[None]}).values()
        assert signal_to_noise(expected.ravel(), run_layers(made.parts[1], {"x": sample})) > 20


def test_biases_take_back_what_rounding_weights_adds(tmp_path: Path) -> None:
    """Activations far from 0 on average: then the errors of weights do not cancel."""
    maker = ModelMaker((1, 32, 6, 6))
    maker.conv("x", 32, 16, (3, 3))
    path = maker.save(tmp_path / "model.onnx")
    samples = (np.random.default_rng(1).standard_normal((4, 32, 6, 6)) * 0.05 + 3).astype(np.float32)
    made = built(path, {"x": samples})
    products = made.parts[1]
    port, = products[Graph].outputs
    step = scales_of(products).vars[port.tensor].scale
    errors = [run_layers(products, {"x": sample}) - next(iter(run_float(path, {"x": sample[None]}).values())).ravel()
              for sample in samples]
    assert np.abs(np.mean(errors, 0).reshape(16, -1).mean(1)).max() < 0.25 * step


def test_tiles_are_large_enough_for_their_scales(tmp_path: Path) -> None:
    """Where no array is busy: results leave for longer than LoadScale makes them wait."""
    maker = ModelMaker((1, 64, 28, 28))
    product = maker.node("Mul", "x", maker.normal(1, 64, 1, 1))
    maker.node("Relu", maker.node("Add", product, maker.normal(1, 64, 1, 1)))
    samples = np.random.default_rng(1).standard_normal((2, 64, 28, 28)).astype(np.float32)
    made = run_steps(Request(maker.save(tmp_path / "model.onnx"), {"x": samples}), ARCH)
    loads = sum(isinstance(operation, LoadScale) for operation in made[Schedule].operations)
    assert loads * SCALE_OVERHEAD_CYCLES < 64 // ARCH.array_size * 28 * 28


# -- single numbers ----------------------------------------------------------------------------------------------------
def test_the_scale_of_a_range_holds_it_and_zero() -> None:
    for low, high in ((-1.0, 2.0), (0.0, 6.0), (0.5, 3.0), (-4.0, -1.0)):
        scale = tensor_scale(low, high)
        assert scale.low <= min(low, 0) + scale.scale / 2 and scale.high >= max(high, 0) - scale.scale / 2
        assert scale.dequantize(np.array(scale.zero)) == 0
    assert tensor_scale(0.0, 0.0) == (1.0, 0)
    assert [tensor_scale(0.0, 0.0, limit).high for limit in (0.0, 0.75, 6.0, 300.0)] == [0, 0, 6, 127]


def test_a_limit_that_no_value_comes_near(tmp_path: Path) -> None:
    """Calibration saw nothing but 0 there: a scale of any steps that ends at the limit."""
    maker = ModelMaker((1, 3, 4, 4))
    below = maker.node("Conv", "x", maker.normal(2, 3, 1, 1), maker.constant(np.full(2, -100, np.float32)))
    maker.node("Clip", below, maker.constant(np.float32(0)), maker.constant(np.float32(0.75)))
    samples = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    made = built(maker.save(tmp_path / "model.onnx"), {"x": samples})
    assert not run_layers(made.parts[1], {"x": samples[0]}).any()


def test_weights_on_a_grid_keep_it() -> None:
    """Single precision, any scale, also where no weight is 127 steps."""
    random = np.random.default_rng(0)
    for most in (127, 100, 7, 1):
        steps = random.integers(-most, most + 1, (20, 30))
        steps[:, 0] = most
        grid = random.uniform(0.001, 0.1, 20).astype(np.float32)
        weights = (steps.astype(np.float32) * grid[:, None]).astype(np.float64)
        scales = weight_scales(weights, np.zeros(20), 0.02, 0.05)
        assert np.abs(rounded_weights(weights, scales) * scales[:, None] - weights).max() < 1e-6


def test_scales_of_single_precision_are_found_again() -> None:
    """Weights are rounded products, so that their quotients are not the scale. What is on no grid keeps its scale."""
    random = np.random.default_rng(0)
    steps = random.integers(-127, 128, (200, 30))
    steps[:, 0], steps[:, 1] = 127, 126
    grid = random.uniform(0.001, 0.1, 200).astype(np.float32)
    weights = steps.astype(np.float32) * grid[:, None]
    scales = weight_scales(weights.astype(np.float64), np.zeros(200), 0.02, 0.05)
    assert (scales != grid).any()
    assert (single_precision_scales(weights, scales) == grid).all()
    reals = random.standard_normal((200, 30)).astype(np.float32)
    assert (single_precision_scales(reals, scales) == scales).all()


@pytest.mark.parametrize("dead", [0, 1])
def test_channels_of_one_weight_are_exact_with_wide_multipliers(dead: int, tmp_path: Path) -> None:
    """A normalization that is not folded, of every byte, with and without a channel whose factor is 0."""
    maker = ModelMaker((1, 24, 16, 16))

    def rounded(name: str, scale: float, zero: int) -> str:
        parameters = maker.constant(np.float32(scale)), maker.constant(np.int8(zero))
        return maker.node("DequantizeLinear", maker.node("QuantizeLinear", name, *parameters), *parameters)

    factors = np.append(maker.random.uniform(2, 9, 24 - dead), np.zeros(dead))
    offsets, means, variances = maker.random.standard_normal(24), np.zeros(24), np.ones(24)
    numbers = [maker.constant(values.astype(np.float32)) for values in (factors, offsets, means, variances)]
    rounded(maker.node("BatchNormalization", rounded("x", 0.0213, 14), *numbers, epsilon=0.0), 0.0497, -7)
    samples = np.broadcast_to(np.linspace(-3, 3, 256, dtype=np.float32).reshape(16, 16), (1, 24, 16, 16)).copy()
    path = maker.save(tmp_path / "norm.onnx")
    off = {bits: int((together([with_numbers(path, ARCH.replace(multiplier_width=bits), {"x": samples}).differences(
        {"x": samples[0]})]) > 0).sum()) for bits in (17, 24)}
    assert off[24] == 0 < off[17]


def test_a_large_bias_and_a_channel_without_weights_fit() -> None:
    weights = np.array([[1e-9, -1e-9], [0.0, 0.0], [0.5, 0.25]])
    bias = np.array([3.0, 2.0, 1.0])
    scales = weight_scales(weights, bias, 0.02, 0.05)
    steps = bias / (0.02 * scales)
    assert (np.abs(steps) <= 1 << 23).all()
    assert np.abs(np.rint(steps) * 0.02 * scales - bias).max() < 0.05 / 100


def test_sums_that_the_output_holds_fit_the_accumulators() -> None:
    """The mean of a large image: every weight of 127 steps would be too much."""
    weights = np.full((1, 112 * 112), 1 / 112 ** 2)
    scales = weight_scales(weights, np.zeros(1), 0.02, 0.02)
    assert rounded_weights(weights, scales).sum() * 255 <= 1 << 24
    assert np.abs(rounded_weights(weights, scales) * scales - weights).max() < 1e-9


def test_multipliers_are_as_large_as_they_may_be() -> None:
    for largest in (1e-6, 0.3, 0.9999999, 1.0, 37.0):
        shift, multipliers = _requantization(np.array([largest, largest / 3]), 17)
        assert 1 << 16 <= multipliers[0] < 1 << 17 and 0 <= shift <= 42
        assert np.allclose(multipliers / 2.0 ** shift, [largest, largest / 3], rtol=1e-4)


def test_factors_have_the_ratios_of_scales() -> None:
    for scales in ((0.1, 0.1), (0.03, 0.1), (0.1, 0.0001), (0.02, 0.03, 0.05)):
        factors, step = _factors(scales)
        assert sum(factors) * 255 <= 1 << 24
        assert np.abs(np.array(factors) * step - scales).max() < 1e-4 * max(scales)


def test_ranges_leave_out_what_lies_far_out() -> None:
    values = np.append(np.random.default_rng(0).standard_normal(100_000), [50.0, -40.0])
    histogram = Histogram(-40.0, 50.0, np.histogram(values, BINS, (-40.0, 50.0))[0])
    low, high = by_percentile(histogram)
    assert -5 < low < -3 and 3 < high < 5
    low, high = by_error(histogram)
    assert high - low < 75 and low < -4 and high > 4


def test_unknown_ranges() -> None:
    with pytest.raises(CompileError, match="'widest'; allowed: minmax, percentile, error"):
        known_ranges("widest")


def test_layers_that_lose_too_much_are_named(tmp_path: Path) -> None:
    """One value of a thousand times the others' size."""
    maker = ModelMaker((1, 8, 48, 48))
    maker.conv("x", 8, 8, (1, 1))
    path = maker.save(tmp_path / "model.onnx")
    samples = np.random.default_rng(1).standard_normal((2, 8, 48, 48)).astype(np.float32)
    assert not compile_model(path, ARCH, tmp_path / "fine", calibration={"x": samples}).warnings
    samples[0, 0, 0, 0] = 3000
    warning, = compile_model(path, ARCH, tmp_path / "poor", calibration={"x": samples}).warnings
    assert "layer conv0: its values are" in warning and "--ranges" in warning and "FP16BP8" in warning


def test_a_pool_goes_from_scale_to_scale(tmp_path: Path) -> None:
    """A pool's result shares a scale with a wide tensor; what the pool and a convolution read keeps its fine one."""
    maker = ModelMaker((1, 6, 8, 8), 3)
    pool = maker.node("MaxPool", "x", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    first = maker.conv("x", 6, 6, (1, 1))
    wide = maker.node("Add", maker.conv(first, 6, 6, (3, 3), pads=(1, 1, 1, 1)), first)
    path = maker.save(tmp_path / "net.onnx", maker.conv(pool, 6, 4, (1, 1)),
                      maker.conv(maker.node("Concat", pool, wide, axis=1), 12, 4, (1, 1)))
    samples = maker.random.random((2, 6, 8, 8), np.float32)  # so the zero point is the lowest byte
    arch = ARCH.replace(array_size=4)  # six channels leave two lanes without one
    products = after_all_steps(path, arch, samples)
    scales = products[Numbers].vars
    pooled = next(layer for layer in products[Layers] if layer.only_pools)
    assert 2 * scales["x"].scale < scales[pooled.output.root].scale
    check_every_step(path, arch, samples)


def test_there_are_no_plain_points(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 4, 4))
    maker.conv("x", 8, 8, (1, 1))
    with pytest.raises(CompileError, match="plain points: found .*INT8.*way out: leave --plain out"):
        run_steps(Request(maker.save(tmp_path / "model.onnx"), plain=True), ARCH)


def test_ranges_are_narrowed_for_bytes_alone(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 4, 4))
    maker.conv("x", 8, 8, (1, 1))
    with pytest.raises(CompileError, match="ranges by error: found .*FP16BP8.*way out: leave --ranges out"):
        run_steps(Request(maker.save(tmp_path / "model.onnx"), ranges="error"), BASE)


def test_softmax_is_not_for_bytes(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 4, 4))
    maker.node("Softmax", maker.conv("x", 8, 8, (1, 1)), axis=1)
    with pytest.raises(CompileError, match="'softmax1', operator Softmax: .*FP16BP8"):
        run_steps(Request(maker.save(tmp_path / "model.onnx")), ARCH)
