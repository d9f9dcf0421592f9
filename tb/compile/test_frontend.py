# SPDX-License-Identifier: Apache-2.0
"""Where a network ends (--end), channels-last inputs, and TensorFlow files on a machine without TensorFlow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import must_run, read_model
from weft.compiler.pipeline import compile_model
from weft.tb.compile.run_model import BASE, ModelMaker, check_model, run_float, run_golden, signal_to_noise
from weft.tmodel.manifest import TModel

SHAPE = (1, 9, 8, 3)


def channels_last(maker: ModelMaker) -> None:
    """As tf2onnx writes it: the image turned at the beginning and at the end, the mean over the middle axes."""
    image = maker.node("Transpose", "x", perm=(0, 3, 1, 2))
    name = maker.node("Relu", maker.conv(image, 3, 5, (3, 3), pads=(1, 1, 1, 1)))
    last = maker.node("Transpose", name, perm=(0, 2, 3, 1))
    maker.node("ReduceMean", last, axes=(1, 2), keepdims=0)


def test_channels_last_input_is_packed_not_moved(tmp_path: Path) -> None:
    """The manifest speaks of the user's array; the machine does what it would do with channels first."""
    maker = ModelMaker(SHAPE)
    channels_last(maker)
    path = maker.save(tmp_path / "model.onnx", "relu2", "reducemean4")
    samples = maker.random.standard_normal((2, *SHAPE[1:])).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": samples})
    assert [row["kind"] for row in report.layers] == ["mat_mul+relu", "mat_mul"]
    port, = json.loads(report.model_path.read_text())["inputs"]
    assert (port["shape"], port["packing"]["source"], port["strides"]) == ([1, 9, 8, 3], [3, 9, 8], [0, 8, 1, 72])
    model = TModel.load(report.model_path)
    expected = run_float(path, {"x": samples[:1]})
    found = run_golden(model, {"x": samples[0]})
    assert all(signal_to_noise(value, found[name]) > 60 for name, value in expected.items())


@pytest.mark.parametrize("perm", [(0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 2, 1)])
def test_inputs_turned_in_any_way(perm: tuple[int, ...], tmp_path: Path) -> None:
    maker = ModelMaker((1, 4, 4, 4))
    maker.conv(maker.node("Transpose", "x", perm=perm), 4, 5, (3, 2))
    path = maker.save(tmp_path / "model.onnx")
    sample = maker.random.standard_normal((1, 4, 4, 4)).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": sample})
    assert len(report.layers) == 1
    found, = run_golden(TModel.load(report.model_path), {"x": sample}).values()
    expected, = run_float(path, {"x": sample}).values()
    assert signal_to_noise(expected, found) > 60


def test_an_image_is_scaled_before_it_is_turned(tmp_path: Path) -> None:
    """Mean and deviation of each colour, on the user's array with channels last."""
    maker = ModelMaker(SHAPE)
    shifted = maker.node("Sub", "x", maker.normal(3))
    scaled = maker.node("Mul", shifted, maker.normal(1, 1, 1, 3))
    maker.conv(maker.node("Transpose", scaled, perm=(0, 3, 1, 2)), 3, 5, (3, 3))
    path = maker.save(tmp_path / "model.onnx")
    sample = maker.random.standard_normal(SHAPE).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": sample})
    assert len(report.layers) == 2 and TModel.load(report.model_path).inputs[0].layout == (3, 9, 8)
    found, = run_golden(TModel.load(report.model_path), {"x": sample}).values()
    expected, = run_float(path, {"x": sample}).values()
    assert signal_to_noise(expected, found) > 60


def test_a_mean_over_axes_that_do_not_lie_as_channels_last(tmp_path: Path) -> None:
    """Only where the last axis lies as channels is the mean taken in another order."""
    maker = ModelMaker((1, 6, 9, 8))
    maker.node("ReduceMean", maker.node("Transpose", maker.conv("x", 6, 5, (1, 1)), perm=(0, 3, 1, 2)), axes=(2,))
    path = maker.save(tmp_path / "model.onnx")
    sample = maker.random.standard_normal((1, 6, 9, 8)).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": sample})
    found, = run_golden(TModel.load(report.model_path), {"x": sample}).values()
    expected, = run_float(path, {"x": sample}).values()
    assert signal_to_noise(expected, found) > 55


# -- outputs ---------------------------------------------------------------------------------------------------------
def two_steps(tmp_path: Path) -> Path:
    """What follows the chosen output is not read at all, be it ever so unsupported."""
    maker = ModelMaker((1, 6, 9, 8))
    maker.node("Sin", maker.node("Relu", maker.conv("x", 6, 5, (3, 3))))
    return maker.save(tmp_path / "model.onnx")


def test_a_network_may_end_earlier(tmp_path: Path) -> None:
    path = two_steps(tmp_path)
    report = compile_model(path, BASE, tmp_path, outputs=("relu1", "conv0"))
    assert [port.name for port in TModel.load(report.model_path).outputs] == ["relu1", "conv0"]
    assert exit_code(["compile", str(path), "-a", "arty", "-o", str(tmp_path / "cli"), "--end", "relu1"]) == 0


def test_a_file_may_leave_the_shapes_of_its_outputs_out(tmp_path: Path) -> None:
    path = two_steps(tmp_path)
    whole = read_model(path)
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    assert read_model(path).outputs == whole.outputs


def test_unknown_output(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="--end: found 'relu'; allowed: .* ends 'sin2'; way out: .*'relu1'"):
        read_model(two_steps(tmp_path), ("relu",))


# -- TensorFlow that is not there -------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", ["tensorflow", "tf2onnx"])
def test_without_the_extra(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    """One message that says what to install."""
    if missing == "tf2onnx":
        monkeypatch.setitem(sys.modules, "tensorflow", sys)  # anything that can be imported
    monkeypatch.setitem(sys.modules, missing, None)
    path = tmp_path / "model.pb"
    path.write_bytes(b"\x0a\x00")
    assert exit_code(["compile", str(path), "-a", "tiny", "-o", str(tmp_path / "out"), "--end", "logits"]) == 1
    text = capsys.readouterr().err
    assert "TensorFlow graph: found no Python package" in text and "-m pip install " in text
    assert not list((tmp_path / "out").glob("*"))


def test_missing_frozen_graph(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no such file"):
        read_model(tmp_path / "absent.pb", ("logits",))


def test_a_network_that_runs_runs_up_to_a_tensor_within(tmp_path: Path) -> None:
    """A file does not say of what type its inner tensors are. What stops the compiler there is its own fault."""
    maker = ModelMaker((1, 3, 4, 4))
    inner = maker.conv("x", 3, 5, (1, 1))
    maker.node("Softmax", inner, axis=1)
    must_run(maker.save(tmp_path / "inner.onnx"), (inner,))


def test_what_has_no_elements_is_left_out_of_a_concat(tmp_path: Path) -> None:
    """A Split may leave nothing over, and the cache of a first step is empty."""
    made = ModelMaker((1, 4, 6), opset=17)
    made.nodes.append(onnx.helper.make_node("Split", ["x", made.constant(np.array([6, 0]))], ["all", "none"], axis=-1))
    both = made.node("Concat", "none", made.node("MatMul", "all", made.normal(6, 6)), axis=-1)
    made.node("Concat", both, "x", made.constant(np.zeros((1, 0, 6), np.float32)), axis=1)
    check_model(made.save(tmp_path / "empty.onnx"), BASE, np.random.default_rng(0).standard_normal((2, 4, 6)), 60)


@pytest.mark.parametrize("on_host", [False, True])
def test_group_normalization_has_the_shape_of_what_it_normalises(on_host: bool, tmp_path: Path) -> None:
    """ONNX infers none for this operator, which exporters of opset 21 write."""
    made = ModelMaker((1, 4, 6, 6), opset=21)
    scale = made.node("ReduceSum", "x", made.constant(np.array([0, 2, 3])), keepdims=0) if on_host else made.normal(4)
    source = made.conv("x", 4, 4, (1, 1))
    made.node("Relu", made.node("GroupNormalization", source, scale, made.normal(4), num_groups=2))
    model = made.model()
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(model.graph.output[0].name, 1, (1, 4, 6, 6)))
    onnx.save(model, tmp_path / "groups.onnx")
    samples = np.random.default_rng(0).standard_normal((2, 4, 6, 6))
    tables = BASE.replace(simd_registers_depth=4, lut_count=2, lut_depth=256)
    check_model(tmp_path / "groups.onnx", tables, samples, 45, host_fallback=on_host)


def test_a_size_that_values_decide_says_where_to_end(tmp_path: Path) -> None:
    """Detectors end in such nodes. What the message tells to type works, and keeps the outputs that can stay."""
    made = ModelMaker((1, 3, 8, 8), opset=17)
    flat = made.node("Flatten", made.conv("x", 3, 4, (1, 1)))
    boxes = made.node("Reshape", flat, made.constant(np.array([1, 64, 4])))
    marks = made.node("Reshape", made.node("Sigmoid", flat), made.constant(np.array([1, 4, 64])))
    kept = made.node("NonMaxSuppression", boxes, marks, made.constant(np.array([5])))
    made.node("Gather", flat, made.node("ReduceMax", kept, keepdims=0))
    path = made.save(tmp_path / "boxes.onnx", kept, marks, made.nodes[-1].output[0])
    with pytest.raises(CompileError, match=f"--end {marks},{boxes}") as caught:
        read_model(path)
    assert "values decide" in str(caught.value)
    ends = str(caught.value).split("--end ")[1].split(",")
    assert [port.name for port in read_model(path, ends).outputs] == [marks, boxes]


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="found a folder; allowed: an existing"):
        read_model(tmp_path)
