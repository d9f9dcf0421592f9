# SPDX-License-Identifier: Apache-2.0
"""A PRelu with a slope for each channel: a stage of its convolution's layer where the SIMD unit has room for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.layers.hir import Layers, parse
from weft.compiler.layers.stages import Slopes, SteepSlopes
from weft.compiler.lir import Simd, SimdLoop
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.slopes import BODY, FACTORS, SHARE, largest_factor, most_slopes, slope_factors
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import DataType
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model, run_float
from weft.tb.compile.test_operators import EACH_ARCH, samples
from weft.tb.compile.test_split import THREE, same_words
from weft.tmodel.network import Network

DECIBELS = 55
CHANNELS = 13
"""They fill no whole number of tiles on any of the machines."""


def prelu(maker: ModelMaker, source: str, slopes: Sequence[float] | np.ndarray) -> str:
    return maker.node("PRelu", source, maker.constant(np.asarray(slopes, np.float32).reshape(-1, 1, 1)))


def between(low: float, high: float, channels: int = CHANNELS) -> np.ndarray:
    """Slopes from ``low`` to ``high``, not in their order."""
    return np.linspace(low, high, channels)[np.arange(channels) * 5 % channels]


def conv(maker: ModelMaker, channels: int = CHANNELS, kernel: tuple[int, int] = (3, 3)) -> str:
    return maker.conv("x", 6, channels, kernel)


def flat(maker: ModelMaker) -> None:
    """Slopes up to 1, negative ones and 0 too."""
    maker.conv(prelu(maker, conv(maker), between(-0.5, 1)), CHANNELS, 5, (1, 1))


def steep(maker: ModelMaker) -> None:
    """Some slopes above 1, and below -1."""
    prelu(maker, conv(maker), between(-3, 1.5))


def enlarging(maker: ModelMaker) -> None:
    """What is below zero becomes larger than any sum that the accumulators have seen."""
    prelu(maker, conv(maker), between(-9, -5))


def pooled(maker: ModelMaker) -> None:
    """A max pool commutes with slopes that are not negative."""
    maker.node("MaxPool", prelu(maker, conv(maker), between(0, 0.9)), kernel_shape=(2, 2), strides=(2, 2))


def pooled_and_read(maker: ModelMaker) -> None:
    """With negative slopes it does not, though another layer reads the same tensor."""
    made = prelu(maker, conv(maker), between(-0.9, 0.9))
    small = maker.node("MaxPool", made, kernel_shape=(2, 2), strides=(1, 1), pads=(0, 0, 1, 1))
    maker.node("Sub", small, made)


def behind_a_sum(maker: ModelMaker) -> None:
    prelu(maker, maker.node("Add", conv(maker), conv(maker)), between(-0.5, 1))


def behind_a_pool(maker: ModelMaker) -> None:
    made = maker.node("MaxPool", conv(maker), kernel_shape=(2, 2), strides=(2, 2))
    maker.node("Relu", prelu(maker, made, between(-0.5, 0.5)))


def of_one_pixel(maker: ModelMaker) -> None:
    """Tiles of one vector, several of them in one step."""
    prelu(maker, conv(maker, kernel=(7, 9)), between(-0.5, 1.2))


def of_an_input(maker: ModelMaker) -> None:
    """In a layer that loads a tensor."""
    prelu(maker, "x", between(-0.5, 1.2, 6))


def of_small_slopes(maker: ModelMaker) -> None:
    """What is below zero before is fifty times what is left of it."""
    shifted = maker.node("Sub", conv(maker), maker.constant(np.full((1, CHANNELS, 1, 1), 40, np.float32)))
    maker.conv(prelu(maker, shifted, between(0.01, 0.02)), CHANNELS, 5, (1, 1))


def two(maker: ModelMaker) -> None:
    """Both kinds, one of them behind a pool."""
    made = maker.node("MaxPool", prelu(maker, conv(maker), between(0, 0.9)), kernel_shape=(2, 2), strides=(2, 2))
    prelu(maker, maker.conv(made, CHANNELS, 7, (2, 2)), between(-0.7, 1.3, 7))


ONE = {function.__name__: function for function in (
    flat, steep, enlarging, pooled, behind_a_sum, behind_a_pool, of_one_pixel, of_an_input, pooled_and_read, two)}
STEEP = steep, of_one_pixel, of_an_input
COARSE: dict[Callable[[ModelMaker], None], float] = {of_small_slopes: 15}
"""Decibels less, where the tensor before the slopes has the most numbers in its lowest bits."""


def network(build: Callable[[ModelMaker], None]) -> ModelMaker:
    maker = ModelMaker((1, 6, 7, 9), seed=5)
    build(maker)
    return maker


def stages(path: Path, arch: Arch, given: np.ndarray) -> list[Slopes]:
    layers = after_all_steps(path, arch, given)[Layers]
    assert parse(layers.text()) == layers
    return [layer.elementwise for layer in layers if isinstance(layer.elementwise, Slopes)]


@EACH_ARCH
@pytest.mark.parametrize("build", [*ONE.values(), of_small_slopes], ids=lambda build: build.__name__)
def test_against_onnxruntime(tmp_path: Path, build: Callable[[ModelMaker], None], arch: Arch) -> None:
    maker = network(build)
    path, given = maker.save(tmp_path / "model.onnx"), samples(maker)
    check_model(path, arch, given, DECIBELS - COARSE.get(build, 0))


@pytest.mark.parametrize("build", ONE.values(), ids=ONE)
def test_they_are_a_stage_and_no_step_changes_the_result(tmp_path: Path, build: Callable[[ModelMaker], None]) -> None:
    maker = network(build)
    path, given = maker.save(tmp_path / "model.onnx"), samples(maker)
    found = stages(path, BASE, given)
    flat_ones, steep_ones = build not in STEEP, build in (*STEEP, two)
    assert [type(stage) for stage in found] == [Slopes] * flat_ones + [SteepSlopes] * steep_ones
    check_every_step(path, BASE, given)
    check_every_step(path, BASE.replace(array_size=4, simd_registers_depth=3), given)


def layer_kinds(path: Path, arch: Arch, given: np.ndarray) -> list[str]:
    return [layer.kind for layer in after_all_steps(path, arch, given)[Layers]]


ROOM = SHARE * FACTORS
"""The vectors of a memory for each tile of channels that may have slopes."""


@pytest.mark.parametrize(("keys", "fits"), [
    ({"simd_registers_depth": 0}, False), ({"simd_loop_depth": BODY - 1}, False), ({"simd_loop_depth": BODY}, True),
    ({"accumulator_depth": 2 * ROOM}, True), ({"accumulator_depth": 2 * ROOM - 1}, False),
    ({"local_depth": 2 * ROOM - 1, "accumulator_depth": 64}, False), ({"data_type": "FP8BP6"}, False),
    ({"output_slope": 1}, True)])
def test_the_array_does_it_where_the_simd_unit_has_no_room(keys: dict[str, int | str], fits: bool,
                                                           tmp_path: Path) -> None:
    """Registers, loops, accumulators for two tiles, numbers up to 2. A slope on output is one for all channels."""
    maker, arch = network(flat), BASE.replace(**keys)
    path, given = maker.save(tmp_path / "model.onnx"), samples(maker)
    assert bool(stages(path, arch, given)) == fits
    if arch.number == BASE.number:
        check_model(path, arch, given, DECIBELS)


def test_as_many_channels_as_the_smaller_memory_has_room_for() -> None:
    """An eighth of it holds two constants of each tile."""
    arch = BASE.replace(array_size=8, local_depth=256, accumulator_depth=64)
    assert most_slopes(arch) == 4 * 8 and most_slopes(arch.replace(accumulator_depth=63)) == 3 * 8
    assert most_slopes(arch.replace(local_depth=32)) == 2 * 8


@pytest.mark.parametrize(("channels", "fits"), [(16, True), (17, False)])
def test_as_many_channels_as_there_is_room_for_are_a_stage(channels: int, fits: bool, tmp_path: Path) -> None:
    maker = network(lambda maker: None)
    prelu(maker, conv(maker, channels), between(-0.5, 1, channels))
    arch = BASE.replace(array_size=8, accumulator_depth=2 * ROOM)
    assert bool(stages(maker.save(tmp_path / "model.onnx"), arch, samples(maker))) == fits


def test_slopes_of_zero_commute_with_a_max_pool(tmp_path: Path) -> None:
    """All is one layer then."""
    maker = network(pooled)
    layer, = after_all_steps(maker.save(tmp_path / "model.onnx"), BASE, samples(maker))[Layers]
    assert layer.pool is not None and isinstance(layer.elementwise, Slopes)


@pytest.mark.parametrize(("low", "high", "apart"), [(0.1, 1.5, True), (-0.5, 0.9, True), (0.1, 0.9, False)])
def test_a_max_pool_behind_slopes_that_fall_or_are_steep_is_another_layers(low: float, high: float, apart: bool,
                                                                           tmp_path: Path) -> None:
    """Another reader wants the tensor before the pool, whose windows meet nowhere: with flat slopes one layer saves
    both."""
    maker = ModelMaker((1, 6, 8, 8), seed=5)
    made = prelu(maker, conv(maker), between(low, high))
    small = maker.node("MaxPool", made, kernel_shape=(2, 2), strides=(2, 2))
    maker.node("Add", small, maker.conv(made, CHANNELS, CHANNELS, (2, 2), strides=(2, 2)))
    layers = after_all_steps(maker.save(tmp_path / "model.onnx"), BASE, samples(maker))[Layers]
    assert [layer.pool is None for layer in layers if isinstance(layer.elementwise, Slopes)] == [apart]
    assert any(layer.pool for layer in layers)


def pooled_alone(maker: ModelMaker) -> None:
    """The second of two layers pools."""
    maker.node("MaxPool", prelu(maker, conv(maker), between(-0.5, 0.9)), kernel_shape=(2, 2), strides=(2, 2))


def steep_and_pooled(maker: ModelMaker) -> None:
    """Rounded, the sum of two terms may fall by a step where its terms do."""
    maker.node("MaxPool", prelu(maker, conv(maker), between(0, 1.5)), kernel_shape=(2, 2), strides=(2, 2))


def very_steep(maker: ModelMaker) -> None:
    """One slope less 1 is beyond what two factors make."""
    prelu(maker, conv(maker), [*between(0, 1)[:-1], 64])


def by_pixel(maker: ModelMaker) -> None:
    maker.node("PRelu", conv(maker), maker.normal(CHANNELS, 5, 7))


@pytest.mark.parametrize("build", [pooled_alone, steep_and_pooled, very_steep, by_pixel],
                         ids=lambda build: build.__name__)
def test_others_stay_layers(build: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = network(build)
    path, given = maker.save(tmp_path / "model.onnx"), samples(maker)
    assert not stages(path, BASE, given)
    check_model(path, BASE, given, 45)


def test_machines_of_bytes_keep_their_way(tmp_path: Path) -> None:
    maker = network(flat)
    arch = BASE.replace(data_type="INT8", accumulator_width=32)
    assert not stages(maker.save(tmp_path / "model.onnx"), arch, samples(maker))


@pytest.mark.parametrize("build", [flat, steep], ids=lambda build: build.__name__)
def test_each_tile_has_a_loop_and_registers_save_reads(build: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    """There are two tiles. Whatever the number of registers, the result is the same."""
    maker = network(build)
    path, given = maker.save(tmp_path / "model.onnx"), samples(maker)
    outputs, found = [], []
    for registers in (1, 2, 3):
        arch = BASE.replace(simd_registers_depth=registers)
        operations = after_all_steps(path, arch, given)[Schedule].operations
        bodies = [operations[place + 1:place + 1 + one.body] for place, one in enumerate(operations)
                  if isinstance(one, SimdLoop)]
        assert bodies and len(bodies) % 2 == 0 and {*map(len, bodies)} == {3 + (build is steep)}
        found.append(sum(one.read is not None for one in bodies[0] if isinstance(one, Simd)))
        model = Network.load(compile_model(path, arch, tmp_path, calibration={"x": given}).model_path)
        outputs.append(next(iter(Session(model).run({"x": given}).outputs.values())))
    assert found == [3, 2, 2] and np.array_equal(outputs[0], outputs[1]) and np.array_equal(outputs[0], outputs[2])


def factors(kind: type[Slopes], slopes: np.ndarray, number: DataType) -> tuple[np.ndarray, np.ndarray]:
    """Both factors, and what they make."""
    found = slope_factors(kind("x", "slopes"), {"slopes": slopes}, number)
    return found, found.prod(0) / number.one ** 2


@pytest.mark.parametrize(("name", "times"), [("FP16BP8", 10), ("FP24BP12", 50), ("FP8BP4", 2), ("FP18BP10", 25)])
def test_two_factors_are_more_exact_than_one(name: str, times: int) -> None:
    """By so many times on average, and never less exact; 0, 1 and -1 have no error."""
    number = DataType.parse(name)
    slopes = np.array([0, 1, -1, *np.random.default_rng(1).uniform(-1.5, 1, 500)], np.float32)
    alone = np.abs(np.rint(slopes * number.one) / number.one - slopes).mean()
    for kind, wanted in ((Slopes, slopes), (SteepSlopes, slopes - 1)):
        errors = np.abs(factors(kind, slopes, number)[1] - wanted)
        assert not errors[:3].any() and errors.mean() * times < alone and errors.max() <= 0.5 / number.one


@pytest.mark.parametrize("name", ["FP16BP8", "FP8BP4"])
def test_numbers_above_zero_stay(name: str) -> None:
    """No rounding makes the product with a slope larger than the number."""
    number = DataType.parse(name)
    found, _ = factors(Slopes, np.linspace(-2, 1, 1000, dtype=np.float32), number)
    above = np.arange(number.maximum + 1)[:, None]
    assert (number.multiply(number.multiply(above, found[0]), found[1]) <= above).all()


@pytest.mark.parametrize("kind", [Slopes, SteepSlopes])
@pytest.mark.parametrize("name", ["FP16BP8", "FP8BP4"])
def test_no_factor_is_larger_than_is_said(name: str, kind: type[Slopes]) -> None:
    """Each has a single slope; the second factor may well be larger than what both make."""
    number, larger = DataType.parse(name), 0
    for slope in np.linspace(-3, 1 if kind is Slopes else 4, 301, dtype=np.float32):
        found, made = factors(kind, np.array([slope]), number)
        said = largest_factor(kind("x", "slopes"), {"slopes": np.array([slope])}, number)
        assert np.abs(found).max() <= said
        larger += np.abs(found[1, 0]) > max(number.one, number.one * abs(made[0]))
    assert larger > 10


def test_constants_have_room_beside_large_tensors(tmp_path: Path) -> None:
    """In one tensor with numbers hundreds of times as large, the output's point is far below that of the accumulators.

    There the factors must not saturate. What is left of a number is right to a step and a half."""
    maker = network(lambda maker: None)
    large = maker.node("Mul", conv(maker), maker.constant(np.float32(500)))
    maker.node("Concat", large, prelu(maker, conv(maker), between(0.4, 0.9)), axis=1)
    path, given = maker.save(tmp_path / "model.onnx"), samples(maker)
    model = check_model(path, BASE, given, DECIBELS)
    expected = np.concatenate([next(iter(run_float(path, {"x": one[None]}).values())) for one in given])
    found = next(iter(Session(Network.load(tmp_path / "model.tmodel")).run({"x": given}).outputs.values()))
    errors = np.abs(found.reshape(expected.shape) - expected)[:, CHANNELS:]
    point = model.outputs[0].point
    assert point is not None
    step = 2.0 ** -point
    assert expected[:, CHANNELS:].min() < -10 * step and errors.max() <= 1.5 * step
    check_every_step(path, BASE, given)


def test_pixels_that_nobody_reads_are_not_made(tmp_path: Path) -> None:
    maker = network(lambda maker: None)
    maker.conv(prelu(maker, conv(maker), between(-0.5, 0.9)), CHANNELS, 5, (1, 1), strides=(2, 2))
    layers = after_all_steps(maker.save(tmp_path / "model.onnx"), BASE, samples(maker))[Layers]
    assert layers[0].output.size == (3, 4)


def test_cores_share_a_layer_with_slopes(tmp_path: Path) -> None:
    """Each takes the constants of the tiles that it computes."""
    maker = ModelMaker((1, 6, 12, 9), seed=5)
    prelu(maker, maker.conv("x", 6, 40, (3, 3)), between(-0.5, 1.2, 40))
    same_words(maker.save(tmp_path / "model.onnx"), samples(maker), THREE)
