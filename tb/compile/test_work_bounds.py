# SPDX-License-Identifier: Apache-2.0
"""What a file can make large is counted before it is built; time grows with the nodes, not with their pairs."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.reader import read_model
from weft.compiler.indices.boxes import alike_columns
from weft.compiler.indices.index import FILL, as_order
from weft.compiler.layers.build import build_layers
from weft.compiler.lowering.pieces import in_pieces
from weft.compiler.lowering.rewrite import MOST_WEIGHTS, Rewrite
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize import calibrate as calibration
from weft.compiler.quantize.calibrate import calibrate
from weft.compiler.quantize.samples import choose_samples
from weft.compiler.steps import canonical, partitioned, supported
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tb.compile.test_operators import samples
from weft.tb.hostile.large_networks import chain, net, permuted, weight
from weft.tb.hostile.large_operators import OPERATORS, doubled, one
from weft.tb.hostile.onnx_constants import ints, node
from weft.tb.shared import shared

RNG = np.random.default_rng(0)


def state_of(shape: tuple[int, ...]) -> Rewrite:
    """A graph of the tensor x alone."""
    return Rewrite(Graph("", (), (), (), {}, {}, 13), 4, shapes={"x": shape})


def read(tmp_path: Path, model: onnx.ModelProto) -> Graph:
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    return read_model(tmp_path / "net.onnx")


# -- pieces ------------------------------------------------------------------------------------------------------------
MOVE = Node("move", "Gather", ("x",), ("y",))


def test_pieces_are_counted_before_they_are_made() -> None:
    """300 x 300 elements in shuffled places: the pieces of the first 256 would have weights of 90 000 numbers each."""
    state = state_of((1, 300, 300, 1))
    pixels = np.stack([RNG.permutation(300) for _ in range(300)])[..., None]
    channels = np.broadcast_to(np.arange(300)[:, None, None], pixels.shape)
    with pytest.raises(CompileError, match="rearrangement of elements: found 300 pieces or more; allowed: at most 256"):
        in_pieces(state, MOVE, "x", pixels, channels, 0.0)
    assert not state.nodes


def test_weights_of_pieces_are_counted_before_they_are_made() -> None:
    """100 pieces of 1000 x 1000 weights."""
    state = state_of((1, 1000, 1, 100))
    pixels = np.broadcast_to(RNG.permutation(100), (1000, 1, 100))
    channels = np.stack([RNG.permutation(1000) for _ in range(100)], 1)[:, None]
    with pytest.raises(CompileError, match=f"weights that it becomes: found 100000000 .*at most {MOST_WEIGHTS}"):
        in_pieces(state, MOVE, "x", pixels, channels, 0.0)
    assert not state.nodes


def test_pieces_of_many_terms_take_memory_for_each_element() -> None:
    """A million elements, each output pixel of which takes from 1024 others."""
    state = state_of((1, 1, 1024, 1024))
    pixels = RNG.permutation(1 << 20).reshape(1024, 1024, 1)
    with pytest.raises(CompileError, match="pieces or more|weights that it becomes"):
        in_pieces(state, MOVE, "x", pixels, np.zeros_like(pixels), 0.0)
    assert not state.nodes


def test_alike_columns_are_those_of_numpy() -> None:
    values = RNG.integers(-1, 3, (4, 500))
    kinds, kind = alike_columns(values)
    expected, place = np.unique(values, axis=1, return_inverse=True)
    assert np.array_equal(kinds, expected) and np.array_equal(kind, place.reshape(-1))


def test_alike_columns_of_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sums tell nothing apart, the columns themselves do."""
    class Same:
        def integers(self, *_: object, size: tuple[int, int], **__: object) -> np.ndarray:
            return np.zeros(size, np.int64)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Same())
    factors = np.array([[0, 1, -1, 1], [0, -1, 1, -1]])
    kinds, kind = alike_columns(factors)
    assert kinds.tolist() == [[-1, 0, 1], [1, 0, -1]] and kind.tolist() == [1, 2, 0, 2]


@pytest.mark.parametrize("arch", [BASE, BASE.replace(array_size=3)], ids=lambda arch: f"{arch.array_size} lanes")
def test_an_output_pixel_of_many_pixels_is_one_convolution(arch: Arch, tmp_path: Path) -> None:
    """An image as a row of channels, for the left side of a product: seed 880106 of the machine bytes2 has 336."""
    maker = ModelMaker((1, 2, 5, 70))
    image = maker.node("Relu", maker.conv("x", 2, 2, (3, 3), pads=(1, 1, 1, 1)))
    row, column = (maker.node("Reshape", image, maker.constant(np.array(shape))) for shape in ((1, 700), (700, 1)))
    maker.node("MatMul", row, column)
    path = maker.save(tmp_path / "model.onnx")
    lowered = canonical(read_model(path), arch)
    assert len(lowered.nodes) <= 12
    check_model(path, arch, samples(maker), 40)


def test_fills_between_pixels_of_an_output_pixel() -> None:
    state = state_of((1, 2, 4, 4))
    pixels, channels = np.array([3, 9, 14, 0])[:, None, None], np.array([0, 1, 1, FILL])[:, None, None]
    in_pieces(state, MOVE, "x", pixels, channels, 0.5)
    view, conv = state.nodes
    weights, bias = (state.constants[name] for name in conv.inputs[1:])
    assert view.attributes["offset"] == 1 and weights.shape == (4, 2, 4, 3)
    assert [tuple(place) for place in np.argwhere(weights)] == [(0, 0, 0, 2), (1, 1, 2, 0), (2, 1, 3, 1)]
    assert bias.tolist() == [0, 0, 0, 0.5]


def test_a_network_of_many_frames_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    """swift-f0: it took all memory of the machine."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    path = shared("models/today/swift_f0.onnx")
    assert exit_code(["inspect", "-a", "ultra96", "--shape", "audio:1,16000", str(path)]) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 20
    assert "on the machine" in capsys.readouterr().out


# -- many of everything ------------------------------------------------------------------------------------------------
def outputs_of_one(count: int) -> onnx.ModelProto:
    names = [f"p{number}" for number in range(count)]
    return net((1, count, 2, 2), node("Split", ["x"], names, axis=1, num_outputs=count), outputs=tuple(names))


def sum_of(count: int) -> onnx.ModelProto:
    return net((1, 4), node("Sum", ["x"] * count, ["y"]))


def reshapes(count: int) -> onnx.ModelProto:
    return net((1, 4), *chain(count, lambda a, b, number: node("Flatten", [a], [b])), node("Relu", ["y"], ["z"]),
               outputs=("z",))


def joins(count: int) -> onnx.ModelProto:
    return net((1, 4, 2, 2), *(node("Concat", ["x", "x"], [f"y{number}"], axis=1) for number in range(count)),
               outputs=tuple(f"y{number}" for number in range(count)))


def products(count: int) -> onnx.ModelProto:
    return net((4, 4), *chain(count, lambda a, b, number: node("MatMul", [a, "x"], [b])))


def late(count: int) -> onnx.ModelProto:
    """Convolutions; every second one reads pixels in an order that only its lowering finds impossible."""
    def link(a: str, b: str, number: int) -> onnx.NodeProto:
        return node("Gather", [a, "n"], [b], axis=2) if number % 3 == 1 else node("Conv", [a, "w"], [b])

    return net((1, 4, 700), *chain(count, link), weights=(weight("w", 4, 4, 1), permuted(700)))


def for_the_host(count: int) -> onnx.ModelProto:
    def link(a: str, b: str, number: int) -> onnx.NodeProto:
        return node("Sin", [a], [b]) if number % 2 else node("Conv", [a, "w"], [b])

    return net((1, 4, 4), *chain(count, link), weights=(weight("w", 4, 4, 1),))


@pytest.mark.parametrize(("make", "count"), [(outputs_of_one, 100), (sum_of, 1500), (reshapes, 500), (joins, 100),
                                             (products, 100), (for_the_host, 250)])
def test_time_grows_with_the_number(make: Callable[[int], onnx.ModelProto], count: int, tmp_path: Path) -> None:
    """Four times as many take less than ten times as long; of pairs they would take sixteen times."""
    taken = []
    for times in (1, 4):
        graph, began = read(tmp_path, make(times * count)), time.process_time()
        partitioned(graph, Arch.load("ultra96"))
        taken.append(time.process_time() - began)
    assert taken[1] < 10 * taken[0] + 0.1


def test_outputs_of_one_tensor_share_a_copy(tmp_path: Path) -> None:
    lowered = canonical(read(tmp_path, outputs_of_one(100)), BASE)
    assert len(lowered.nodes) == 1


def test_more_outputs_than_a_node_may_have(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="node 'p0', operator Split: found 3000 outputs; allowed: at most 2048"):
        read(tmp_path, outputs_of_one(3000))


def test_all_refusals_are_found_at_once_after_some(tmp_path: Path) -> None:
    """40 orders that fail late are the host's, and no convolution that reads them."""
    places = partitioned(read(tmp_path, late(120)), Arch.load("ultra96")).places
    where = [{place.where for place in places[first::3]} for first in range(3)]
    assert where == [{"machine"}, {"host"}, {"machine"}]


def test_pieces_of_all_nodes_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("weft.compiler.lowering.rewrite.MOST_PIECES", 1000)
    with pytest.raises(CompileError, match="pieces of moved elements in the network: found more than 1000"):
        partitioned(read(tmp_path, late(120)), Arch.load("ultra96"))


def test_more_nodes_than_are_computed(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="found 5001 nodes that are no constants; allowed: at most 4096"):
        read(tmp_path, reshapes(5000))


@pytest.mark.parametrize(("operator", "shape", "wanted"), [
    ("AveragePool", (4096, 1, 4, 4), "matrix of output lines by input lines: found 16384 by 16384"),
    ("Softmax", (1, 20_000, 2, 1), "weights that it becomes: found 200000000"),
    ("ReduceMean", (1, 1, 1 << 16, 4), "matrix of output lines by input lines: found 65536 by 65536"),
    ("Resize", (1, 1, 900, 900), "sizes: found .900, 900. to .2700, 2700.")])
def test_matrices_are_counted_before_they_are_made(operator: str, shape: tuple[int, ...], wanted: str,
                                                   tmp_path: Path) -> None:
    maker = ModelMaker(shape, opset=17)
    more: dict[str, dict[str, Any]] = {
        "AveragePool": {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, "Softmax": {"axis": 1},
        "ReduceMean": {"axes": [3]}, "Resize": {"mode": "linear"}}
    scales = ["", maker.constant(np.array([1, 1, 3, 3], np.float32))] if operator == "Resize" else []
    maker.node(operator, "x", *scales, **more[operator])
    with pytest.raises(CompileError, match=wanted):
        canonical(read_model(maker.save(tmp_path / "model.onnx")), BASE)


def test_a_long_sum_is_several_layers(tmp_path: Path) -> None:
    maker = ModelMaker((1, 3, 2, 2))
    maker.node("Sum", *["x"] * 600)
    path = maker.save(tmp_path / "model.onnx")
    report = compile_model(path, BASE, tmp_path, calibration={"x": np.ones((1, 3, 2, 2)) / 100})
    assert len(report.layers) == 3


def test_weights_that_are_not_numbers(tmp_path: Path) -> None:
    """The square root of a negative variance."""
    maker = ModelMaker((1, 3, 2, 2))
    ones = maker.constant(np.ones(3, np.float32))
    maker.node("BatchNormalization", "x", ones, ones, ones, maker.constant(-np.ones(3, np.float32)))
    with pytest.raises(CompileError, match="operator BatchNormalization, weights: found infinite numbers, or none"):
        compile_model(maker.save(tmp_path / "model.onnx"), BASE, tmp_path)


# -- large operators ---------------------------------------------------------------------------------------------------
PRESET = Arch.load("ultra96")


@pytest.mark.parametrize(("made", "wanted"), [
    (one((1, 4, 64, 64), "Conv", ["w"], weight("w", 1, 4, 3, 3), pads=[2000] * 4), "16499844 vectors of 16 channels"),
    (one((1, 4, 64, 64), "ConvTranspose", ["w"], weight("w", 4, 4, 64, 64), strides=[40, 40]), "6677056 vectors"),
    (one((1, 1, 1024, 1024), "ReduceL2", ["n"], ints("n", 2, 3)), "whole tiles of 16 lanes: found 268435456"),
    (one((1, 1, 1024, 1024), "GlobalMaxPool"), "windows of .1, 1024. pixels, in all: found 1048576 pixels"),
    (one((1, 65536, 2, 2), "Conv", ["w"], weight("w", 65536, 1, 1, 1), group=65536), "becomes: found 16777216"),
    (OPERATORS["Constant of 2**26"], "67108864 elements; allowed: at most 33554432: more are not compiled")],
    ids=["end", "transposed end", "weights", "maxima", "groups", "result"])
def test_large_operators_are_refused_by_their_node(made: Callable[[], onnx.ModelProto], wanted: str,
                                                   tmp_path: Path) -> None:
    """So that the host takes them, where there is one."""
    graph = read(tmp_path, made())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CompileError, match=wanted) as refused:
        build_layers(canonical(supported(graph, PRESET), PRESET), PRESET)
    assert refused.value.node == "y"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kB


def test_a_long_line_is_cut_into_long_parts(tmp_path: Path) -> None:
    """Of 512 and more parts those are tried that are not single pixels."""
    (tmp_path / "net.onnx").write_bytes(
        net((1, 1, 1 << 20), node("Conv", ["x", "w"], ["y"]), weights=(weight("w", 4, 1, 9),)).SerializeToString())
    report = compile_model(tmp_path / "net.onnx", PRESET, tmp_path)
    assert report.instructions < 30_000


def test_calibration_looks_at_few_tensors_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maker = ModelMaker((1, 3, 8, 8))
    image = maker.node("Relu", maker.conv("x", 3, 5, (3, 3)))
    maker.node("Add", maker.conv(image, 5, 5, (1, 1)), image)
    graph = canonical(read_model(maker.save(tmp_path / "model.onnx")), BASE)
    whole = calibrate(graph, choose_samples(graph, None))
    monkeypatch.setattr(calibration, "MOST_HELD", 200)
    found = calibrate(graph, choose_samples(graph, None))
    assert found.sums == pytest.approx(whole.sums) and found.means.keys() == whole.means.keys()
    for name, seen in whole.ranges.items():
        assert found.ranges[name].at_least == pytest.approx(seen.at_least, abs=1)  # onnxruntime fuses other nodes
        assert found.ranges[name].peaks == pytest.approx(seen.peaks)
        assert found.ranges[name].unclipped == pytest.approx(seen.unclipped)
        assert found.ranges[name].root_mean_square == pytest.approx(seen.root_mean_square)


@pytest.mark.parametrize("made", [one((1, 4, 64, 64), "Relu"), one((1, 1, 4, 4096), "Squeeze", ["n"], ints("n", 0))],
                         ids=["output", "order"])
def test_ports_beyond_dram0_are_refused_before_calibration(made: Callable[[], onnx.ModelProto], tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration takes arrays of their size, a gigabyte for the largest input that there may be."""
    monkeypatch.setattr("weft.compiler.steps.calibrate", lambda *_: pytest.fail("calibrated"))
    (tmp_path / "net.onnx").write_bytes(made().SerializeToString())
    with pytest.raises(CompileError, match="found 6000; allowed: at least 8192 vectors"):
        compile_model(tmp_path / "net.onnx", PRESET.replace(dram0_depth=6000), tmp_path)


def test_an_order_takes_eight_bytes_an_element() -> None:
    order = as_order(np.arange(1000)[::-1], 1000)
    assert isinstance(order, np.ndarray) and order.nbytes == 8000 and as_order(np.arange(10), 10) is None


def test_constants_that_double_are_not_computed_by_shape_inference(tmp_path: Path) -> None:
    """Onnx takes 70 bytes for each element of a list that it propagates: 26 doublings took 4.7 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = read(tmp_path, doubled(24))
    assert graph.nodes[-1].op == "Add" and graph.constants["s"] == 1 << 24
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kB
