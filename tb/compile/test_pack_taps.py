# SPDX-License-Identifier: Apache-2.0
"""Copies of a tensor fill idle lanes: the same convolution in fewer taps, and the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.check.evaluate import convolve
from weft.compiler.cores import AssignedLayer
from weft.compiler.frontend.graph import Graph, Within
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import Convolution
from weft.compiler.layers.var import Var
from weft.compiler.passes import pack_taps as pass_module
from weft.compiler.passes.quantization import Quantization
from weft.compiler.passes.tap_copies import AxisCopies, TapCopies, in_place, tap_copies
from weft.compiler.pipeline import run_parts, run_steps
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.points import rounded_weights
from weft.compiler.quantize.ranges import Calibration
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.schedule.read import read_schedule
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tmodel.onnx_engine import run_model
from weft.tmodel.scales import TensorScale
from weft.tmodel.window import Window

BYTES = BASE.replace(data_type="INT8")


# -- the geometry ------------------------------------------------------------------------------------------------------
def laid_out(image: np.ndarray, copies: TapCopies) -> np.ndarray:
    """Return the copies [copies * channels, rows, columns] of an image, by what AxisCopies says of every pixel."""
    def pixels(axis: AxisCopies, shift: int) -> np.ndarray:
        return axis.begin + axis.step * np.arange(axis.size) + shift

    room = 100
    padded = np.pad(image, ((0, 0), (room, room), (room, room)))
    return np.concatenate([padded[:, room + pixels(copies.rows, down)][:, :, room + pixels(copies.columns, across)]
                           for down in copies.rows.shifts for across in copies.columns.shifts])


def by_copies(image: np.ndarray, weights: np.ndarray, copies: TapCopies, made: tuple[int, int]) -> np.ndarray:
    """Return a convolution's result with weights [out, in, height, width], computed from copies of its image."""
    rows, columns = copies.rows, copies.columns
    moved = np.zeros((len(weights), rows.count, columns.count, len(image), rows.kernel, columns.kernel), weights.dtype)
    for down in rows.reads:
        for across in columns.reads:
            moved[:, down.copy, across.copy, :, down.at, across.at] = weights[:, :, down.tap, across.tap]
    window = Window((rows.kernel, columns.kernel), (rows.stride, columns.stride), (rows.pad, columns.pad),
                    (rows.dilation, columns.dilation))
    return convolved(laid_out(image, copies), moved.reshape(len(weights), -1, *window.kernel), window, made)


def convolved(image: np.ndarray, weights: np.ndarray, window: Window, made: tuple[int, int]) -> np.ndarray:
    core = Convolution(Var("x", *image.shape), "w", "b", 1, window, made, 0)
    return np.asarray(convolve(image, weights, core))


def drawn_window(random: np.random.Generator) -> tuple[Window, tuple[int, int], tuple[int, int]]:
    """Return a random window, an image's size and the result's size, which at least one window reaches."""
    while True:
        kernel, strides, dilations = (tuple(map(int, random.integers(1, most, 2))) for most in (6, 4, 3))
        image, pads = (tuple(map(int, random.integers(low, high, 2))) for low, high in ((1, 10), (0, 4)))
        behind = random.integers(0, 4, 2)
        made = tuple(int((image[axis] + pads[axis] + behind[axis] - (kernel[axis] - 1) * dilations[axis] - 1)
                         // strides[axis] + 1) for axis in range(2))
        if min(made) > 0:
            return Window(kernel, strides, pads, dilations), image, made  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_copies_under_their_window_are_the_same_convolution(seed: int, whole: bool) -> None:
    """Integers, random windows: strides, dilations, paddings larger than kernels, images smaller than these."""
    random = np.random.default_rng(seed)
    seen = 0
    for _ in range(60):
        window, image, made = drawn_window(random)
        values, weights = random.integers(-9, 9, (2, *image)), random.integers(-9, 9, (3, 2, *window.kernel))
        expected = convolved(values, weights, window, made)
        for copies in tap_copies(window, image, made, 6, whole):
            assert 2 <= copies.count <= 6
            assert np.array_equal(by_copies(values, weights, copies, made), expected), (window, image, made, copies)
            if whole:
                assert copies.size == image
                assert [axis.kernel for axis in (copies.rows, copies.columns)] == list(window.kernel)
            seen += 1
    assert seen > 60


def test_as_few_taps_as_the_copies_allow() -> None:
    """A 5x5 kernel over three copies reads ten taps, over 2 x 2 copies nine; 29 columns are as few as that takes."""
    ways = tap_copies(Window((5, 5), pads=(2, 2)), (28, 28), (28, 28), 4, whole=False)
    taps = {(way.rows.count, way.columns.count): len(way.rows.taps) * len(way.columns.taps) for way in ways}
    assert taps == {(1, 2): 15, (1, 3): 10, (1, 4): 10, (2, 1): 15, (2, 2): 9, (3, 1): 10, (4, 1): 10}
    assert {way.columns.size for way in ways if way.columns.count == 3} == {29}


def test_copies_of_the_images_size_serve_what_padding_allows() -> None:
    """Three copies serve a kernel of three in one tap. Of a kernel of five, its outer taps have one of their own."""
    three, five = (in_place(Window((1, taps), pads=(0, taps // 2)), 1, 14, 14, 3) for taps in (3, 5))
    assert three is not None and three.taps == [1]
    assert five is not None and five.taps == [2, 3, 4] and five.kernel == 5


def test_one_tap_of_a_stride_is_made_for_every_second_pixel() -> None:
    way, = (way for way in tap_copies(Window((1, 3), (1, 2), (0, 1)), (1, 16), (1, 8), 3, whole=False)
            if way.columns.count == 3)
    assert (way.columns.step, way.columns.stride, way.columns.size, way.columns.kernel) == (2, 1, 8, 1)


# -- the pass ----------------------------------------------------------------------------------------------------------
NETWORKS: dict[str, tuple[int, tuple[int, int], dict[str, Any]]] = {
    "a few channels": (2, (3, 3), {"pads": (1, 1, 1, 1)}),
    "rows and columns": (1, (5, 5), {"pads": (2, 2, 2, 2)}),
    "a full tile before": (11, (3, 3), {"pads": (1, 1, 1, 1)}),
    "two copies behind two tiles": (20, (1, 5), {"pads": (0, 2, 0, 2)}),
    "stride and dilation": (3, (3, 4), {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 3, 0, 3)}),
    "no padding": (4, (2, 3), {}),
    "a stride behind a full tile": (9, (3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
}
"""Channels, kernel and attributes of a convolution on 8 lanes."""


def network(case: str, folder: Path, channels: int | None = None) -> tuple[Path, np.ndarray]:
    """Save a network whose second convolution is that of a case; return its file and two samples."""
    given, kernel, attributes = NETWORKS[case]
    maker = ModelMaker((1, 8, 9, 10), seed=3)
    inner = maker.node("Relu", maker.conv("x", 8, channels or given, (1, 1)))
    maker.conv(inner, channels or given, 12, kernel, **attributes)
    return maker.save(folder / "net.onnx"), np.random.default_rng(4).standard_normal((2, 8, 9, 10)).astype(np.float32)


@pytest.fixture(name="always")
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy wherever that takes fewer taps, whatever a layer costs."""
    monkeypatch.setattr(pass_module, "LAYER_CYCLES", -1 << 30)


def packed(path: Path, arch: Arch, samples: np.ndarray, *, copies: bool = True) -> Products:
    return run_steps(Request(path, {"x": samples}, copies=copies), arch)


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.usefixtures("always")
def test_the_graph_computes_the_same(case: str, tmp_path: Path) -> None:
    path, samples = network(case, tmp_path)
    request = Request(path, {"x": samples})
    _, (before,) = run_parts(request, BASE, last="pack_inputs")
    after = pass_module.pack_taps(before[Graph], BASE)
    assert after.copies
    values = {port.tensor: samples[:1] for port in after.inputs}
    results = [run_model(to_onnx(graph), values) for graph in (before[Graph], after)]
    for name, value in results[0].items():
        np.testing.assert_allclose(results[1][name], value, rtol=1e-4, atol=1e-4)
    for name, copied in after.copies.items():
        assert after.bounds[name] == Within(copied.source)
        assert len(copied.channels) == after.shapes[name][1]


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.usefixtures("always")
def test_on_the_machine(case: str, tmp_path: Path) -> None:
    path, samples = network(case, tmp_path)
    check_model(path, BASE, samples, 50)


@pytest.mark.parametrize("arch", [BASE, BYTES], ids=["fixed point", "bytes"])
@pytest.mark.parametrize("case", ["rows and columns", "a full tile before"])
@pytest.mark.usefixtures("always")
def test_numbers_stay_what_they_were(case: str, arch: Arch, tmp_path: Path) -> None:
    """Copies have the scale of their source; weights are those of the network without copies, and so are biases."""
    path, samples = network(case, tmp_path)
    found, plain = (packed(path, arch, samples, copies=copies) for copies in (True, False))
    numbers, before = (products[Numbers] for products in (found, plain))
    copies = found[Graph].copies
    assert copies and not plain[Graph].copies
    roots = {var.name: var.root for layer in found[Layers] for var in (*layer.inputs, *layer.outputs)}
    for name, copied in copies.items():
        assert numbers.tensor(roots[name], arch) == numbers.tensor(roots[copied.source], arch)
    assert [len(products[Layers]) for products in (found, plain)] == [3, 2]
    last, others = (params.integers(len(products[Layers]) - 1, products[Layers][-1], products[Graph].constants, arch)
                    for products, params in ((found, numbers), (plain, before)))
    assert last.weights is not None and others.weights is not None
    assert np.array_equal(np.sort(last.weights[last.weights != 0]), np.sort(others.weights[others.weights != 0]))
    assert last.bias is not None and others.bias is not None and np.array_equal(last.bias, others.bias)


@pytest.mark.usefixtures("always")
def test_bits_of_narrow_accumulators_are_shared_as_without_copies(tmp_path: Path) -> None:
    """Weights that are zero in lanes of other taps do not make the weights smaller, whatever the inputs' size is.

    All numbers are positive, so that sums are large and the accumulators have no room for all bits of both."""
    maker = ModelMaker((1, 2, 9, 10))
    uniform = maker.random.uniform
    inner = maker.node("Conv", "x", maker.constant(uniform(0.5, 1, (2, 2, 1, 1)).astype(np.float32)))
    inner = maker.node("Relu", inner)
    maker.node("Conv", inner, maker.constant(uniform(0, 0.8, (12, 2, 5, 5)).astype(np.float32)), pads=(2, 2, 2, 2))
    path = maker.save(tmp_path / "net.onnx")
    samples = uniform(0, 1, (2, 2, 9, 10)).astype(np.float32)
    points = {size: [packed(path, BASE, samples * np.float32(size), copies=copies)[Numbers].layers[-1]
                     for copies in (True, False)] for size in (1, 1.25, 1.5)}
    assert all(found == plain for found, plain in points.values()), points


@pytest.mark.usefixtures("always")
def test_the_range_of_copies_is_their_sources(tmp_path: Path) -> None:
    """Its mean square too, which decides how accumulators' bits are shared: zeros beside the image do not count."""
    path, samples = network("a full tile before", tmp_path)
    found = packed(path, BASE, samples)
    ranges = found[Calibration].ranges
    assert len(found[Graph].copies) == 2
    for name, copied in found[Graph].copies.items():
        assert ranges[name].root_mean_square == ranges[copied.source].root_mean_square > 0
        assert ranges[name].expected(1.125) == ranges[copied.source].expected(1.125)


def test_kernels_of_copies_are_rounded_as_one() -> None:
    """Errors of a kernel's weights add up to almost nothing, wherever copies have put its taps."""
    random = np.random.default_rng(5)
    steps = random.uniform(-20, 20, (3, 2, 1, 6))
    number = BASE.number
    whole = rounded_weights(steps, number)
    moved = np.zeros((3, 4, 1, 3))
    moved[:, [0, 1]], moved[:, [2, 3]] = steps[..., :3], steps[..., 3:]
    found = rounded_weights(moved, number, (0, 1, 0, 1))
    assert np.array_equal(np.concatenate([found[:, :2], found[:, 2:]], axis=-1), whole)
    assert not np.array_equal(rounded_weights(moved, number), found)
    assert np.abs(found.sum((1, 3))[:, 0] - steps.sum((1, 3))[:, 0]).max() <= 1


@pytest.mark.usefixtures("always")
def test_means_and_scales_of_copies_are_their_sources(tmp_path: Path) -> None:
    path, samples = network("a full tile before", tmp_path)
    _, (before,) = run_parts(Request(path, {"x": samples}), BASE, last="pack_inputs")
    graph = pass_module.pack_taps(before[Graph], BASE)
    (copies, copied), (whole, held) = graph.copies.items()
    assert copied.channels == (8, 9, 10) * 2
    assert held.channels == (*range(11), *(-1,) * 5, *copied.channels)
    given = Quantization({copied.source: TensorScale(0.5, 3)}).with_copies(graph)
    assert given.tensors[copies] == given.tensors[whole] == TensorScale(0.5, 3)
    assert set(Quantization({}).with_copies(graph).tensors) == set()


# -- when --------------------------------------------------------------------------------------------------------------
def copied(maker: ModelMaker, folder: Path, *outputs: str, arch: Arch = BASE, **options: Any) -> set[str]:
    """Return the tensors of a network of which the compiler makes copies."""
    samples = np.random.default_rng(6).standard_normal((1, *maker.shape[1:])).astype(np.float32)
    request = Request(maker.save(folder / "net.onnx", *outputs), {"x": samples}, **options)
    _, (products,) = run_parts(request, arch, last="pack_taps")
    return {entry.source for entry in products[Graph].copies.values()}


def thin(size: int = 32, channels: int = 2, lanes: int = 8) -> tuple[ModelMaker, str]:
    maker = ModelMaker((1, lanes, size, size))
    return maker, maker.node("Relu", maker.conv("x", lanes, channels, (1, 1)))


def test_only_where_it_saves_cycles(tmp_path: Path) -> None:
    for size, expected in ((32, True), (4, False)):
        maker, inner = thin(size)
        maker.conv(inner, 2, 8, (3, 3), pads=(1, 1, 1, 1))
        assert (copied(maker, tmp_path) == {inner}) == expected, size
    for channels, expected in ((4, True), (5, False), (8, False), (12, True), (13, False)):
        maker, inner = thin(channels=channels)
        maker.conv(inner, channels, 24, (3, 3), pads=(1, 1, 1, 1))
        assert (copied(maker, tmp_path) == {inner}) == expected, channels


@pytest.mark.parametrize(("channels", "most"), [(2, 1024), (12, 3 * 1024)])
def test_copies_take_a_quarter_of_the_dram_at_most(channels: int, most: int, tmp_path: Path) -> None:
    """A tensor of 32 x 32 pixels takes 1 024 vectors a channel tile; with a full tile before, it has three."""
    for depth, expected in ((4 * most, True), (4 * most - 1, False)):
        maker, inner = thin(channels=channels)
        maker.conv(inner, channels, 24, (3, 3), pads=(1, 1, 1, 1))
        assert (copied(maker, tmp_path, arch=BASE.replace(dram0_depth=depth)) == {inner}) == expected


def test_fewer_vectors_pass_the_array(tmp_path: Path) -> None:
    maker, inner = thin()
    maker.conv(inner, 2, 8, (3, 3), pads=(1, 1, 1, 1))
    path, samples = maker.save(tmp_path / "net.onnx"), np.ones((1, 8, 32, 32), np.float32)
    taps = []
    for copies in (True, False):
        found = packed(path, BASE, samples, copies=copies)
        taps.append([sum(len(tiles) for tiles in block.tiles) for layer in found[Consts].layers
                     for block in layer.blocks])
    assert taps == [[1, 3, 3], [1, 9]]


def test_not_what_others_say(tmp_path: Path) -> None:
    """No depthwise kernels, none with taps of zeros, no 1x1; and none where it is not wanted."""
    maker, inner = thin()
    maker.conv(inner, 2, 2, (3, 3), group=2, pads=(1, 1, 1, 1))
    assert copied(maker, tmp_path) == set()
    maker, inner = thin()
    maker.conv(inner, 2, 8, (1, 1))
    assert copied(maker, tmp_path) == set()
    maker, inner = thin()
    weights = np.ones((8, 2, 3, 3), np.float32)
    weights[..., 1, 1] = 0
    maker.node("Conv", inner, maker.constant(weights), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    assert copied(maker, tmp_path) == set()
    maker, inner = thin()
    maker.conv(inner, 2, 8, (3, 3), pads=(1, 1, 1, 1))
    assert copied(maker, tmp_path, copies=False) == set()


def test_a_tensor_with_full_tiles_must_be_free_to_lie_with_its_copies(tmp_path: Path) -> None:
    """Not one that users read, not a part of another, not a pool whose windows overlap; one of few channels may be."""
    for channels, expected in ((10, False), (2, True)):
        for kind in ("output", "part", "pool"):
            maker, inner = thin(channels=channels)
            if kind == "pool":
                inner = maker.node("MaxPool", inner, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
            made = maker.conv(inner, channels, 24, (3, 3), pads=(1, 1, 1, 1))
            other = [maker.conv(maker.node("Concat", inner, "x", axis=1), channels + 8, 8, (1, 1))
                     ] if kind == "part" else [inner] if kind == "output" else []
            found = copied(maker, tmp_path, made, *other)
            assert (inner in found) == expected, (channels, kind)
    maker, inner = thin(channels=10)
    inner = maker.node("MaxPool", inner, kernel_shape=(2, 2), strides=(2, 2))
    maker.conv(inner, 10, 24, (3, 3), pads=(1, 1, 1, 1))
    assert copied(maker, tmp_path) == {inner}


def test_readers_of_several_windows_have_copies_each(tmp_path: Path) -> None:
    """Readers with one window share copies; what else reads the tensor reads it as it was."""
    maker, inner = thin()
    made = [maker.conv(inner, 2, 8, (taps, taps), pads=(taps // 2,) * 4) for taps in (3, 3, 5)]
    made.append(maker.node("Add", inner, inner))
    path = maker.save(tmp_path / "net.onnx", *made)
    samples = np.random.default_rng(6).standard_normal((1, 8, 32, 32)).astype(np.float32)
    found = packed(path, BASE, samples)
    assert len(found[Graph].copies) == 2
    check_model(path, BASE, samples, 50)


def test_a_schedule_in_a_file_has_no_layers_of_copies(tmp_path: Path) -> None:
    """One that is written has the network's own layers; one that is followed says which layers there are."""
    maker, inner = thin()
    maker.conv(inner, 2, 8, (3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx")
    assert exit_code(["schedule", str(path), "-a", "zcu104", "-o", str(tmp_path / "net.json")]) == 0
    assert len(read_schedule(tmp_path / "net.json").layers) == 2
    box = AssignedLayer("conv2", (8, 32, 32), True, ((0, (0, 8), (0, 32), (0, 32)),))
    assert copied(maker, tmp_path, assigned=(box,)) == set()
