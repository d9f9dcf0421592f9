# SPDX-License-Identifier: Apache-2.0
"""Directed cases for what else one network among many would meet by chance: exact numbers where there are any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.layers.hir import Layers
from weft.compiler.lir import DRAM0, DRAM1, DataMove, Simd, SimdLoop
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.passes.nest_pools import nest_pools
from weft.compiler.pipeline import compile_model
from weft.compiler.scheduler.load import LOAD_VECTORS
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model, run_golden
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import session

ONE_PIXEL = (1, 4, 1, 1)
EPSILON = 0.25


def on_golden(path: Path, arch: Arch, samples: np.ndarray) -> np.ndarray:
    """The first output of every sample."""
    report = compile_model(path, arch, path.parent, calibration={"x": samples})
    model = TModel.load(report.model_path)
    return np.stack([next(iter(run_golden(model, {"x": sample}).values())) for sample in samples.astype(np.float32)])


def pixels(*values: float) -> np.ndarray:
    """One sample of four channels."""
    return np.array(values, np.float64).reshape(ONE_PIXEL)


@pytest.mark.parametrize("slope", [0.1, 0.3, 0.55, 0.07])
def test_the_slope_of_a_leaky_relu_is_rounded_not_cut(slope: float, tmp_path: Path) -> None:
    """It is a power of two times a factor with 8 bits of fraction: of 0.1, 0.3 and 0.55 the nearest one is the next
    larger, of 0.07 the next smaller; the other one would be off by ten times the tolerance."""
    maker = ModelMaker(ONE_PIXEL)
    maker.node("LeakyRelu", "x", alpha=slope)
    found = on_golden(maker.save(tmp_path / "slope.onnx"), BASE, pixels(-8, -5, -3, 4)).ravel()
    power = 2.0 ** np.ceil(np.log2(slope))
    rounded = round(slope / power * 256) / 256 * power
    np.testing.assert_allclose(found, [-8 * rounded, -5 * rounded, -3 * rounded, 4], atol=2.0 ** -11, rtol=0)


def test_a_leaky_relu_with_registers_to_spare_reads_less_and_computes_the_same(tmp_path: Path) -> None:
    """With a register for each of its constants a vector is read twice; with one register three times. Without a loop,
    which finds the constants in every iteration, the product needs a third."""
    maker = ModelMaker((1, 6, 5, 7))
    maker.node("LeakyRelu", maker.conv("x", 6, 20, (3, 3)), alpha=0.1)
    path, samples = maker.save(tmp_path / "leaky.onnx"), maker.random.standard_normal((2, 6, 5, 7))
    registers = [BASE.replace(simd_registers_depth=depth) for depth in (1, 2, 3)]
    expected = on_golden(path, registers[0], samples)
    assert (expected < 0).any()
    for arch in (*registers, *(arch.replace(simd_loop_depth=0) for arch in registers)):
        assert np.array_equal(on_golden(path, arch, samples), expected)
    reads = [sum(operation.read is not None for operation in bodies(path, arch, samples)) for arch in registers]
    assert reads == [3, 2, 2]


def bodies(path: Path, arch: Arch, samples: np.ndarray) -> list[Simd]:
    """The SIMD operations of the first loop."""
    operations = after_all_steps(path, arch, samples)[Schedule].operations
    place, loop = next((place, one) for place, one in enumerate(operations) if isinstance(one, SimdLoop))
    return [one for one in operations[place + 1:place + 1 + loop.body] if isinstance(one, Simd)]


@pytest.mark.parametrize(("kernel", "window"), [
    ((5, 5), {"pads": (2, 2, 2, 2)}), ((13, 9), {"pads": (6, 4, 6, 4)}),
    ((7, 6), {"strides": (2, 1), "pads": (1, 0, 3, 2)}), ((5, 4), {"dilations": (2, 3), "pads": (4, 0, 0, 3)}),
    ((9, 6), {"strides": (2, 2), "ceil_mode": 1})])
def test_large_pools_go_by_rows_and_columns(kernel: tuple[int, int], window: dict, tmp_path: Path) -> None:
    """The maximum of maxima, exactly; negative everywhere, so that a zero from padding would be seen."""
    maker = ModelMaker((1, 5, 17, 15))
    maker.node("MaxPool", "x", kernel_shape=kernel, **window)
    path, samples = maker.save(tmp_path / "pool.onnx"), -maker.random.integers(1, 999, (2, 5, 17, 15)) / 256
    pools = [layer for layer in after_all_steps(path, BASE, samples)[Layers] if layer.pool is not None]
    assert len(pools) == 2
    reference = session(path.read_bytes())
    expected = np.stack([reference.run(None, {"x": sample[None].astype(np.float32)})[0] for sample in samples])
    assert np.array_equal(on_golden(path, BASE, samples).ravel(), expected.ravel())


def test_pools_side_by_side_are_nested(tmp_path: Path) -> None:
    """Of five pools the larger ones read a smaller one, whatever their order in the file: 7 x 6 of 5 x 4, the last two
    of what their pads allow."""
    maker = ModelMaker((1, 5, 17, 15))
    names = [maker.node("MaxPool", "x", kernel_shape=kernel, pads=pads, strides=strides) for kernel, pads, strides in [
        ((9, 9), (4, 4, 4, 4), (1, 1)), ((5, 4), (2, 1, 2, 2), (1, 1)), ((7, 6), (4, 2, 2, 3), (1, 1)),
        ((5, 5), (2, 2, 2, 2), (2, 2)), ((6, 8), (0, 3, 0, 4), (1, 1))]]
    path, samples = maker.save(tmp_path / "pools.onnx", *names), -maker.random.integers(1, 999, (1, 5, 17, 15)) / 256
    graph = nest_pools(read_model(path))
    reads = {node.output: (node.input(0), tuple(node.attributes["kernel_shape"])) for node in graph.nodes}
    assert reads == {"maxpool0": ("maxpool2", (3, 4)), "maxpool1": ("x", (5, 4)), "maxpool2": ("maxpool1", (3, 3)),
                     "maxpool3": ("x", (5, 5)), "maxpool4": ("x", (6, 8))}
    expected = session(path.read_bytes()).run(names, {"x": samples.astype(np.float32)})
    found = session(to_onnx(graph)).run(names, {"x": samples.astype(np.float32)})
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


def test_small_pools_read_whole_windows(tmp_path: Path) -> None:
    maker = ModelMaker((1, 4, 9, 9))
    maker.node("MaxPool", "x", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    state = after_all_steps(maker.save(tmp_path / "pool.onnx"), BASE, maker.random.standard_normal((1, 4, 9, 9)))
    assert len(state[Layers]) == 1


@pytest.mark.parametrize("depth", [512, 96])
@pytest.mark.parametrize(("window", "operations"), [
    ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, 6),
    ({"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)}, 9),
    ({"kernel_shape": (4, 3), "pads": (3, 0, 0, 2), "dilations": (1, 2)}, 7),
    ({"kernel_shape": (3, 3), "pads": (2, 1, 2, 1), "dilations": (2, 1)}, 6),
    ({"kernel_shape": (3, 2), "pads": (0, 1, 2, 0), "strides": (1, 1)}, 5)])
def test_maxima_of_columns_come_first(window: dict, operations: int, depth: int, tmp_path: Path) -> None:
    """Exactly, also where several windows begin in the first row; negative, so that padding would be seen."""
    maker = ModelMaker((1, 5, 13, 8))
    maker.node("MaxPool", "x", **window)
    path, samples = maker.save(tmp_path / "pool.onnx"), -maker.random.integers(1, 999, (1, 5, 13, 8)) / 256
    arch = BASE.replace(accumulator_depth=depth)
    products = after_all_steps(path, arch, samples)
    (pool,) = (layer.pool for layer in products[Layers] if layer.pool)
    assert pool is not None and pool.operations == operations
    table = products[Schedule].table
    vectors = int(table.loops()[1].sum())
    assert vectors <= 1.06 * operations * pool.size[0] * pool.size[1]  # strides read a column more
    expected = session(path.read_bytes()).run(None, {"x": samples.astype(np.float32)})[0]
    assert np.array_equal(on_golden(path, arch, samples).ravel(), expected.ravel())
    check_every_step(path, arch, samples)


@pytest.mark.parametrize("lowest", [1, -1, 3])
def test_the_lowest_bit_of_a_bias_arrives(lowest: int, tmp_path: Path) -> None:
    """The input takes away all of the bias but its last places, so that the result is nothing else."""
    maker = ModelMaker(ONE_PIXEL)
    rest = lowest * 2.0 ** -14
    weights = np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    bias = np.array([1 + rest, 1, 1 - 2 * rest, 1.0], np.float32)
    maker.node("Conv", "x", maker.constant(weights), maker.constant(bias))
    found = on_golden(maker.save(tmp_path / "bias.onnx"), BASE, pixels(-1, -1, -1, -1)).ravel()
    assert found.tolist() == [rest, 0, -2 * rest, 0]


@pytest.mark.parametrize("apart", [False, True])
def test_an_added_constant_may_differ_from_pixel_to_pixel(apart: bool, tmp_path: Path) -> None:
    """A number for each channel becomes a bias; a single pixel apart makes it an image."""
    maker = ModelMaker((1, 4, 2, 3))
    added = np.repeat(np.array([1, -2, 0.5, 3], np.float32), 6).reshape(1, 4, 2, 3)
    added[0, 2, 1, 2] += apart
    maker.node("Add", "x", maker.constant(added))
    samples = np.arange(24.0).reshape(1, 4, 2, 3) / 8
    found = on_golden(maker.save(tmp_path / "added.onnx"), BASE, samples)
    assert (found.reshape(samples.shape) == samples + added).all()


def normalised(maker: ModelMaker, name: str) -> tuple[str, dict[str, np.ndarray]]:
    """A BatchNormalization of four channels in which every number differs from every other."""
    numbers = {"scale": [0.5, 2, -1, 1.5], "offset": [0.25, -1, 3, 0.5], "mean": [1, -0.75, 0.5, 2],
               "variance": [3.75, 0, 0.75, 2]}
    arrays = {key: np.array(value, np.float32) for key, value in numbers.items()}
    return maker.node("BatchNormalization", name, *map(maker.constant, arrays.values()), epsilon=EPSILON), arrays


def by_hand(values: np.ndarray, numbers: dict[str, np.ndarray]) -> np.ndarray:
    return ((values - numbers["mean"]) / np.sqrt(numbers["variance"] + EPSILON) * numbers["scale"] + numbers["offset"])


def test_a_batch_normalization_alone(tmp_path: Path) -> None:
    maker = ModelMaker(ONE_PIXEL)
    _, numbers = normalised(maker, "x")
    samples = pixels(1, -2, 3, 0.5)
    found = on_golden(maker.save(tmp_path / "norm.onnx"), BASE, samples).ravel()
    np.testing.assert_allclose(found, by_hand(samples.ravel(), numbers), atol=0.004)


def test_a_batch_normalization_behind_a_convolution_with_a_bias(tmp_path: Path) -> None:
    """The convolution's bias is scaled too, the normalisation's offset is not."""
    maker = ModelMaker(ONE_PIXEL)
    weights = np.diag(np.array([1, 0.5, -1, 2], np.float32)).reshape(4, 4, 1, 1)
    bias = np.array([2, -1, 0.5, 4], np.float32)
    _, numbers = normalised(maker, maker.node("Conv", "x", maker.constant(weights), maker.constant(bias)))
    samples = pixels(1, -2, 3, 0.5)
    found = on_golden(maker.save(tmp_path / "norm.onnx"), BASE, samples).ravel()
    np.testing.assert_allclose(found, by_hand(samples.ravel() * [1, 0.5, -1, 2] + bias, numbers), atol=0.004)


@pytest.mark.parametrize("lanes", [3, 8])
@pytest.mark.parametrize(("inputs", "outputs", "group"), [(12, 4, 2), (12, 3, 3), (20, 10, 5), (9, 3, 1)])
def test_a_grouped_convolution_with_fewer_outputs_than_inputs(inputs: int, outputs: int, group: int, lanes: int,
                                                              tmp_path: Path) -> None:
    maker = ModelMaker((1, inputs, 5, 4), seed=group)
    maker.conv("x", inputs, outputs, (3, 2), group=group, pads=(1, 0, 1, 1))
    samples = maker.random.standard_normal((2, inputs, 5, 4)).astype(np.float32)
    check_model(maker.save(tmp_path / "grouped.onnx"), BASE.replace(array_size=lanes), samples, 60)


def test_a_grouped_convolution_with_fewer_outputs_of_channels_that_lie_apart(tmp_path: Path) -> None:
    """The image's channels are chosen out of a wider tensor, so that the weights are spread over all of it."""
    maker = ModelMaker((1, 10, 4, 4), seed=3)
    chosen = maker.node("Gather", maker.conv("x", 10, 14, (1, 1)), maker.constant(np.array([9, 2, 0, 13, 5, 4])),
                        axis=1)
    maker.conv(chosen, 6, 2, (2, 2), group=2)
    samples = maker.random.standard_normal((2, 10, 4, 4)).astype(np.float32)
    check_model(maker.save(tmp_path / "apart.onnx"), BASE, samples, 60)


@pytest.mark.parametrize(("channels", "kernels", "size", "local", "sizes"), [
    ((65, 72), (1,), 1, 64, {1, 8, 9}), ((17, 33, 25, 9), (1, 1, 1), 1, 2048, {1, 8, 9, 26}),
    ((13, 21, 19, 11), (2, 3, 1), 4, 2048, {20, 33, LOAD_VECTORS})],
    ids=["one layer", "one pixel", "kernels"])
def test_short_pieces_of_weights_from_dram0_are_the_ones_of_dram1(
        channels: tuple[int, ...], kernels: tuple[int, ...], size: int, local: int, sizes: set[int],
        tmp_path: Path) -> None:
    """Of a bias alone, of one tile, of a tile with fewer rows than lanes, of more: bit for bit what the network
    computes with all weights from DRAM1."""
    maker = ModelMaker((1, channels[0], size, size), seed=8)
    name = "x"
    for before, after, kernel in zip(channels, channels[1:], kernels, strict=False):
        name = maker.conv(name, before, after, (kernel, kernel))
    path, arch = maker.save(tmp_path / "pieces.onnx"), BASE.replace(axi_data_width=32, local_depth=local)
    samples = maker.random.standard_normal((2, channels[0], size, size))
    state = after_all_steps(path, arch, samples)
    loads = [move for move in state[Schedule].operations if isinstance(move, DataMove) and move.to_local]
    copy = state[MemoryPlan].copy
    assert copy is not None
    found = {move.size for move in loads if move.far.memory == DRAM0 and move.far.offset >= copy.base}
    assert sizes <= found and any(move.far.memory == DRAM1 for move in loads)
    alone = on_golden(path, arch.replace(dram0_depth=copy.base), samples)
    assert np.array_equal(on_golden(path, arch, samples), alone)


def test_windows_that_look_alike_but_do_not_move_with_the_stride(tmp_path: Path) -> None:
    """Dilated and strided, the first window has only its second column inside, the second one only its first: one
    vector each, a column apart and not a stride. Both maxima are exact."""
    maker = ModelMaker((1, 4, 1, 4))
    maker.node("MaxPool", "x", kernel_shape=(1, 2), strides=(1, 3), dilations=(1, 2), pads=(0, 1, 0, 1))
    values = np.array([1, 2, -3, 4], np.float64)
    found = on_golden(maker.save(tmp_path / "pool.onnx"), BASE, np.broadcast_to(values, (1, 4, 1, 4)))
    assert found.reshape(4, 2).tolist() == [[2, -3]] * 4


def test_windows_that_move_with_the_stride_share_a_loop(tmp_path: Path) -> None:
    maker = ModelMaker((1, 4, 1, 21))
    maker.node("MaxPool", "x", kernel_shape=(1, 3), strides=(1, 2), pads=(0, 1, 0, 0))
    samples = maker.random.standard_normal((1, 4, 1, 21))
    state = after_all_steps(maker.save(tmp_path / "pool.onnx"), BASE, samples)
    loops = [operation for operation in state[Schedule].operations if isinstance(operation, SimdLoop)]
    assert [loop.iterations for loop in loops] == [9]  # the first of the ten windows is cut off by the padding


def test_a_bias_reaches_pixels_that_its_first_tap_does_not(tmp_path: Path) -> None:
    """No tap of the kernel is inside the image everywhere: each pixel is the bias and what its taps add."""
    maker = ModelMaker((1, 4, 1, 2))
    weights = np.stack([np.eye(4), 2 * np.eye(4)], axis=-1).reshape(4, 4, 1, 2).astype(np.float32)
    bias = np.array([100, 50, 25, -10], np.float32)
    maker.node("Conv", "x", maker.constant(weights), maker.constant(bias), kernel_shape=(1, 2), dilations=(1, 2),
               pads=(0, 2, 0, 2))
    samples = np.array([[1, 3], [2, 5], [-4, 7], [6, -8]], np.float64).reshape(1, 4, 1, 2)
    found = on_golden(maker.save(tmp_path / "bias.onnx"), BASE, samples).reshape(4, 4)
    first, last = samples.reshape(4, 2).T
    assert np.array_equal(found, np.stack([bias + 2 * first, bias + 2 * last, bias + first, bias + last], axis=1))
