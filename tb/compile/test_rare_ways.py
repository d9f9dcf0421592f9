# SPDX-License-Identifier: Apache-2.0
"""Rare ways through the compiler: operators as few files have them, each against onnxruntime or refused in words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.check.checker import Checker, compare
from weft.compiler.choices import FORMULA
from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.layers.hir import Layers, parse
from weft.compiler.lowering.operators import check_supported
from weft.compiler.pipeline import compile_model
from weft.compiler.steps import partitioned
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_model
from weft.tb.compile.test_operators import samples
from weft.tb.random.network_rule import TABLES

ARCH = BASE.replace(**TABLES)
IMAGE = (1, 6, 5, 4)
DECIBELS = 45
Make = Callable[[ModelMaker], object]


def ints(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


def number(maker: ModelMaker, value: float) -> str:
    return maker.constant(np.float32(value))


# -- limits ------------------------------------------------------------------------------------------------------------
def without_limits(maker: ModelMaker) -> None:
    maker.node("Neg", maker.node("Clip", "x"))


def only_below(maker: ModelMaker) -> None:
    maker.node("Clip", "x", "", number(maker, 0.5))


def limits_at_the_ends_of_the_type(maker: ModelMaker) -> None:
    ends = np.finfo(np.float32)
    maker.node("Neg", maker.node("Clip", "x", number(maker, float(ends.min)), number(maker, float(ends.max))))


# -- convolutions and matrices -----------------------------------------------------------------------------------------
def transposed_without_padding(maker: ModelMaker) -> None:
    maker.node("ConvTranspose", "x", maker.normal(6, 3, 3, 2), auto_pad="VALID", strides=(2, 2))


def transposed_beside_the_image(maker: ModelMaker) -> None:
    """Windows of some rows of the result end above the image: these hold the bias."""
    maker.node("ConvTranspose", "x", maker.normal(6, 2, 2, 1), maker.normal(2), strides=(3, 2), dilations=(4, 1),
               pads=(2, 2, 2, 4), output_padding=(1, 0))


def matrix_behind_padding(maker: ModelMaker) -> None:
    """What was padded is no part of the image that the matrix reads."""
    padded = maker.node("Pad", "x", ints(maker, 0, 0, 1, 0, 0, 0, 0, 1), number(maker, 0.5))
    maker.node("Gemm", maker.node("Flatten", padded), maker.normal(6 * 6 * 5, 7), maker.normal(7))


def constant_transposed_factor(maker: ModelMaker) -> None:
    rows = maker.node("Reshape", "x", ints(maker, 12, 10))
    maker.node("Gemm", maker.normal(12, 5), rows, transA=1, alpha=0.5)


def normalised_out_of_order(maker: ModelMaker) -> None:
    """The axis of the factors lies as rows, so that no layer has a factor for each channel."""
    turned = maker.node("Transpose", maker.conv("x", 6, 6, (1, 1)), perm=(0, 2, 1, 3))
    variance = maker.constant(maker.random.uniform(0.5, 2, 5).astype(np.float32))
    maker.node("BatchNormalization", turned, *(maker.normal(5) for _ in range(3)), variance)


# -- moves -------------------------------------------------------------------------------------------------------------
def padded_twice(maker: ModelMaker) -> None:
    """The second border has another number than the first."""
    once = maker.node("Pad", "x", ints(maker, 0, 0, 1, 1, 0, 0, 1, 1), number(maker, 0.5))
    maker.node("Pad", once, ints(maker, 0, 0, 0, 2, 0, 0, 1, 0), number(maker, -0.25))


def padded_by_attributes(maker: ModelMaker) -> None:
    maker.node("Pad", "x", pads=(0, 0, 1, 0, 0, 0, 0, 2), value=0.75)


def resized_to_whole_sizes(maker: ModelMaker) -> None:
    """5 pixels become 11, and 4 become 7: the first and the last ones stay where they are."""
    maker.node("Resize", "x", "", maker.constant(np.array([1, 1, 2.2, 1.75], np.float32)), mode="linear",
               coordinate_transformation_mode="align_corners")


def reduced_over_nothing(maker: ModelMaker) -> None:
    largest = maker.node("ReduceMax", "x", ints(maker), noop_with_empty_axes=1)
    maker.node("ReduceMean", maker.node("Neg", largest), ints(maker), noop_with_empty_axes=1)


NETWORKS: dict[str, tuple[Make, Sequence[int], int]] = {
    make.__name__: (make, shape, opset) for make, shape, opset in (
        (without_limits, IMAGE, 13), (only_below, IMAGE, 13), (limits_at_the_ends_of_the_type, IMAGE, 13),
        (transposed_without_padding, IMAGE, 13), (transposed_beside_the_image, (1, 6, 1, 4), 13),
        (matrix_behind_padding, IMAGE, 13), (constant_transposed_factor, IMAGE, 13),
        (normalised_out_of_order, IMAGE, 13), (padded_twice, IMAGE, 13), (padded_by_attributes, IMAGE, 10),
        (resized_to_whole_sizes, IMAGE, 13), (reduced_over_nothing, IMAGE, 18))}
"""Name -> what makes it, the input's shape, the opset."""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_rare_form_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    make, shape, opset = NETWORKS[name]
    maker = ModelMaker(shape, opset=opset)
    make(maker)
    check_model(maker.save(tmp_path / "net.onnx"), ARCH, samples(maker), DECIBELS)


# -- refusals ----------------------------------------------------------------------------------------------------------
def divided_by_nothing(maker: ModelMaker) -> None:
    maker.node("Div", "x", maker.constant(np.array([1, 0, 2, 3], np.float32)))


def many_joined(maker: ModelMaker) -> None:
    rows = [maker.node("Slice", "x", ints(maker, row), ints(maker, row + 1), ints(maker, 2)) for row in range(5)]
    maker.node("Concat", *(rows * 52), axis=3)


def resized_channels(maker: ModelMaker) -> None:
    maker.node("Resize", "x", "", "", ints(maker, 1, 12, 5, 4))


def resized_line(maker: ModelMaker) -> None:
    maker.node("Resize", "x", "", "", ints(maker, 1, 6, 9))


def resized_to_part_of_a_pixel(maker: ModelMaker) -> None:
    maker.node("Resize", "x", "", maker.constant(np.array([1, 1, 1.5, 2], np.float32)), mode="linear",
               coordinate_transformation_mode="align_corners")


REFUSED: dict[str, tuple[Make, Sequence[int], str]] = {
    "division by zero": (divided_by_nothing, IMAGE, "operator Div, constant 'constant0': found 0; allowed: no zeros"),
    "many pieces": (many_joined, IMAGE, "operator Concat, .*: found more than 256 pieces; allowed: at most 256"),
    "more channels": (resized_channels, IMAGE, r"operator Resize, shapes: found \[1, 6, 5, 4\] to \[1, 12, 5, 4\]"),
    "a line": (resized_line, (1, 6, 5), r"operator Resize, shapes: found \[1, 6, 5\] to \[1, 6, 9\]; allowed: 4 dim"),
    "part of a pixel": (resized_to_part_of_a_pixel, IMAGE, r"scales with align_corners: found \[1.0, 1.0, 1.5, 2.0\]"),
}
"""What is asked for -> what makes it, the input's shape, the message."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_can_do_is_said(name: str, tmp_path: Path) -> None:
    make, shape, said = REFUSED[name]
    maker = ModelMaker(shape, opset=18 if "pixel" in name else 13)
    make(maker)
    with pytest.raises(CompileError, match=said):
        compile_model(maker.save(tmp_path / "net.onnx"), ARCH, tmp_path, calibration={"x": samples(maker)})


# -- what the machine gives to the host --------------------------------------------------------------------------------
def strange(maker: ModelMaker) -> None:
    """A division by zero and a max pool between convolutions, which is where the machine would compute them too."""
    name = maker.node("Div", maker.conv("x", 6, 6, (1, 1)), maker.constant(np.array([1, 0, 2, 3], np.float32)))
    name = maker.node("MaxPool", maker.conv(name, 6, 6, (1, 1)), kernel_shape=(2, 2))
    maker.node("MaxPool", maker.conv(name, 6, 6, (1, 1)), kernel_shape=(2, 2))


def test_refusals_found_all_at_once_are_those_found_one_by_one(tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    maker = ModelMaker(IMAGE)
    strange(maker)
    graph = read_model(maker.save(tmp_path / "net.onnx"))
    arch = BASE.replace(simd_registers_depth=0)  # no max pool
    one_by_one = partitioned(graph, arch)
    assert [place.operator for place in one_by_one.places if place.where == "host"] == ["Div", "MaxPool", "MaxPool"]
    monkeypatch.setattr("weft.compiler.partition.PATIENCE", 0)
    assert partitioned(graph, arch).places == one_by_one.places


def test_a_graph_of_the_machine_alone_has_no_operator_of_the_host(tmp_path: Path) -> None:
    maker = ModelMaker(IMAGE)
    maker.node("Relu", "x")
    path = maker.save(tmp_path / "fine.onnx")
    assert check_supported(read_model(path)) == read_model(path)
    maker.node("Sin", "x")
    with pytest.raises(CompileError, match="node 'sin1', operator Sin: found not supported"):
        check_supported(read_model(maker.save(tmp_path / "net.onnx")))


# -- samples, checks, choices ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("samples", "said"), [
    ({"x": np.full((1, 6), "a"), "other": np.ones((1, 6))}, "calibration array 'x': found values of type <U1; allowed: "
                                                            "integers or floats"),
    ({"x": np.ones((2, 6)), "other": np.ones((1, 6))}, "calibration arrays: found different numbers of samples"),
    ({"x": np.ones((0, 6)), "other": np.ones((0, 6))}, r"calibration array 'x': found \[0, 6\]; allowed: at least one"),
])
def test_samples_that_are_none_are_refused(samples: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6))
    maker.node("Add", "x", maker.input("other", 1, 6))
    with pytest.raises(CompileError, match=said):
        compile_model(maker.save(tmp_path / "net.onnx"), ARCH, tmp_path, calibration=samples)


def test_results_of_other_shapes_or_names_are_no_results() -> None:
    one, other = {"y": np.ones((1, 3))}, {"y": np.ones(3)}
    assert compare(one, one, None) == (None, "")
    assert compare(one, other, None) == (-math.inf, "output 'y' has shape (3,), not (1, 3)")
    assert compare(one, {"z": np.ones((1, 3))}, None) == (-math.inf, "no output is left")


def checked(path: Path, samples: np.ndarray) -> None:
    compile_model(path, ARCH, path.parent, calibration={"x": samples}, watch=Checker().after)


def test_a_check_needs_numbers_of_the_models_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = ModelMaker((1, 6))
    logarithm = maker.node("Log", "x")
    path = maker.save(tmp_path / "net.onnx")
    checked(path, np.ones((1, 6), np.float32))
    with pytest.raises(CompileError, match=f"output '{logarithm}' on the first input, with --check: found NaN or inf"):
        checked(path, np.array([[-1, 1, 1, 1, 1, 1], [1] * 6], np.float32))
    monkeypatch.setattr("weft.compiler.check.checker.run_model", lambda *_: {logarithm: np.ones(6)})
    with pytest.raises(CompileError, match=rf"output '{logarithm}', with --check: found shape \[6\] in onnxruntime; "
                                           r"allowed: \[1, 6\], which ONNX gives it"):
        checked(path, np.ones((1, 6), np.float32))


def test_choices_are_for_as_many_parts_as_there_are(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6))
    maker.node("Relu", "x")
    with pytest.raises(CompileError, match="choices: found those of 2 parts; allowed: 1 parts of the machine's"):
        compile_model(maker.save(tmp_path / "net.onnx"), ARCH, tmp_path, choices=(FORMULA, FORMULA))


# -- texts of steps ----------------------------------------------------------------------------------------------------
def test_scales_of_bytes_are_told_in_the_files_of_steps(tmp_path: Path) -> None:
    """A second run replaces them, and a file that no step wrote is left as it is."""
    maker = ModelMaker(IMAGE)
    maker.node("Add", maker.conv("x", 6, 6, (1, 1)), "x")
    path, dumps = maker.save(tmp_path / "net.onnx"), tmp_path / "dumps"
    arch = BASE.replace(data_type="INT8", activation_tables=8)
    for _ in range(2):
        report = compile_model(path, arch, tmp_path, calibration={"x": samples(maker)}, dump_dir=dumps)
    written = next(dumps.glob("[0-9][0-9]_scales.txt"))
    port, = json.loads(report.model_path.read_text())["inputs"]
    text = written.read_text()
    assert f"\nvar x: scale {port['scale']:.9g} zero {port['zero']}\n" in text
    assert len(re.findall(r"^layer \d+: activation_zero_point -?\d+ rescales ", text, re.M)) == len(report.layers)
    (dumps / "notes.txt").write_text("mine")
    written.write_text("mine")
    first = next(dumps.glob("00_*.txt"))
    before = first.stat().st_mtime_ns
    with pytest.raises(WeftError, match=f"{written.name}.*found "):
        compile_model(path, arch, tmp_path, calibration={"x": samples(maker)}, dump_dir=dumps)
    assert written.read_text() == "mine" and first.stat().st_mtime_ns == before
    written.unlink()
    written.hardlink_to(path)
    with pytest.raises(WeftError, match="found the model itself, by a name that a step writes"):
        compile_model(path, arch, tmp_path, calibration={"x": samples(maker)}, dump_dir=dumps)


def test_empty_lines_between_layers_mean_nothing(tmp_path: Path) -> None:
    maker = ModelMaker(IMAGE)
    maker.node("Neg", maker.conv("x", 6, 6, (1, 1)))
    layers = after_all_steps(maker.save(tmp_path / "net.onnx"), ARCH, samples(maker))[Layers]
    assert parse("\n" + layers.text().replace("\nlayer", "\n\n  \nlayer")) == layers
