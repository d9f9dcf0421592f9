# SPDX-License-Identifier: Apache-2.0
"""Files as tools write them: open sizes, shapes that are computed, integers, casts, other precisions and opsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, signal_to_noise
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import run_model

RNG = np.random.default_rng(0)


def saved(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]],
          outputs: dict[str, tuple[int, int]], weights: dict[str, np.ndarray], opset: int = 17) -> Path:
    """A model of nodes; inputs by name are (type, shape), outputs (type, dimensions)."""
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info(name, *entry) for name, entry in inputs.items()],
        [helper.make_tensor_value_info(name, kind, [f"{name}{axis}" for axis in range(rank)])
         for name, (kind, rank) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def check(path: Path, inputs: dict[str, np.ndarray], parts: int, least: float = 45, **options: Any) -> Network:
    """Every output of every sample, against onnxruntime, in the file's own types."""
    report = compile_model(path, BASE, path.parent, calibration=inputs, host_fallback=True, **options)
    network = Network.load(report.model_path)
    assert len(network.parts) == parts
    found = Session(network).run(inputs).outputs
    for number in range(len(next(iter(inputs.values())))):
        wanted = run_model(onnx.load(path), {name: value[number:number + 1] for name, value in inputs.items()})
        for name, value in wanted.items():
            assert found[name].dtype == value.dtype
            assert signal_to_noise(value, found[name][number:number + 1]) >= least, name
    return network


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# -- sizes -------------------------------------------------------------------------------------------------------------
def open_sizes(tmp_path: Path) -> Path:
    """Two inputs whose height has the same name; what comes out is reshaped by a shape that is computed."""
    nodes = [helper.make_node("Concat", ["x", "y"], ["xy"], axis=1),
             helper.make_node("Conv", ["xy", "w"], ["c"], kernel_shape=[1, 1]),
             helper.make_node("Shape", ["c"], ["shape"]),
             helper.make_node("Gather", ["shape", "first"], ["batch"], axis=0),
             helper.make_node("Concat", ["batch", "rest"], ["flat"], axis=0),
             helper.make_node("Reshape", ["c", "flat"], ["z"])]
    shape = ["N", 2, "height", -1]
    return saved(tmp_path / "open.onnx", nodes, {"x": (TensorProto.FLOAT, shape), "y": (TensorProto.FLOAT, shape)},
                 {"z": (TensorProto.FLOAT, 2)},
                 {"w": normal(3, 4, 1, 1), "first": np.array([0]), "rest": np.array([-1])})


def test_a_size_is_given_once_for_all_that_have_its_name(tmp_path: Path) -> None:
    path = open_sizes(tmp_path)
    with pytest.raises(CompileError, match=r"input 'x', dimension 2: found height; .* --shape x:1,2,224,224"):
        read_model(path)
    with pytest.raises(CompileError, match="input 'y', dimension 3"):
        read_model(path, (), {"x": (1, 2, 4, 5)})
    sizes = {"x": (1, 2, 4, 5), "y": (1, 2, 4, 5)}
    assert read_model(path, (), sizes).outputs[0].shape == (1, 60)
    check(path, {"x": normal(2, 2, 4, 5), "y": normal(2, 2, 4, 5)}, 1, shapes=sizes)


@pytest.mark.parametrize(("given", "message"), [
    ({"z": (1,)}, "--shape z: found no such input or size; allowed: inputs 'x', 'y'; sizes 'N', 'height'"),
    ({"x": (1, 2, 4)}, "--shape x: found 1,2,4; allowed: sizes that fit N,2,height,?"),
    ({"x": (1, 3, 4, 4)}, "found 1,3,4,4"), ({"x": (0, 2, 4, 4)}, "found 0,2,4,4")])
def test_a_size_that_does_not_fit_is_refused(given: dict[str, tuple[int, ...]], message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        read_model(open_sizes(tmp_path), (), given)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["x", "x:", ":1", "x:1,a", "x:1,-2", "x:1,2,4,4 x:1,2,4,4"])
def test_wrong_options_of_sizes_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [part for shape in text.split(" ") for part in ("--shape", shape)]
    assert exit_code(["inspect", str(open_sizes(tmp_path)), *options]) == 1
    assert "--shape" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (3, 1, 2, 4, 5), (1, 2, 4, 5), (2, 4, 5)])
def test_calibration_with_and_without_a_batch(shape: tuple[int, ...], tmp_path: Path) -> None:
    maker = ModelMaker((1, 2, 4, 5))
    maker.conv("x", 2, 3, (2, 2))
    report = compile_model(maker.save(tmp_path / "net.onnx"), BASE, tmp_path, calibration={"x": normal(*shape)})
    assert not report.warnings


# -- what is known when compiling --------------------------------------------------------------------------------------
def test_shapes_are_computed_by_any_operators(tmp_path: Path) -> None:
    """As exporters write Expand and Pad: ConstantOfShape, Equal, Where, Range, NonZero, Cast, each known one by one."""
    nodes = [helper.make_node("Shape", ["x"], ["shape"]),
             helper.make_node("Size", ["shape"], ["rank"]),
             helper.make_node("Reshape", ["rank", "one"], ["length"]),
             helper.make_node("ConstantOfShape", ["length"], ["ones"],
                              value=numpy_helper.from_array(np.array([1], np.int64))),
             helper.make_node("Equal", ["wanted", "ones"], ["same"]),
             helper.make_node("Where", ["same", "shape", "wanted"], ["whole"]),
             helper.make_node("Expand", ["x", "whole"], ["e"]),
             helper.make_node("Range", ["zero", "rank", "step"], ["axes"]),
             helper.make_node("NonZero", ["axes"], ["inner"]),
             helper.make_node("Squeeze", ["inner", "none"], ["reduced"]),
             helper.make_node("Slice", ["reduced", "first", "last"], ["two"]),
             helper.make_node("Conv", ["e", "w"], ["c"], kernel_shape=[1, 1]),
             helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
             helper.make_node("Unsqueeze", ["t", "two"], ["u"])]
    weights = {"one": np.array([1]), "wanted": np.array([1, 1, 1, 1]), "zero": np.array(0), "step": np.array(1),
               "none": np.array([0]), "first": np.array([1]), "last": np.array([2]), "w": normal(3, 2, 1, 1)}
    path = saved(tmp_path / "shapes.onnx", nodes, {"x": (TensorProto.FLOAT, ["N", 2, 4, 5])},
                 {"u": (TensorProto.FLOAT, 5)}, weights)
    graph = read_model(path)
    assert [node.op for node in graph.nodes] == ["Expand", "Conv", "Transpose", "Unsqueeze"]
    check(path, {"x": normal(2, 2, 4, 5)}, 1)


def test_a_shape_that_asks_for_too_much_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("ConstantOfShape", ["huge"], ["ones"]), helper.make_node("Add", ["x", "ones"], ["y"])]
    path = saved(tmp_path / "huge.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 1])}, {"y": (TensorProto.FLOAT, 2)},
                 {"huge": np.array([1 << 20, 1 << 20])})
    with pytest.raises(Exception, match="found .*; allowed: at most"):
        read_model(path)


# -- types -------------------------------------------------------------------------------------------------------------
def test_bytes_with_channels_last(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["image"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("Sub", ["f", "mean"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["m"]),
             helper.make_node("Transpose", ["m"], ["t"], perm=[0, 3, 1, 2]),
             helper.make_node("Conv", ["t", "w"], ["c"], kernel_shape=[3, 3])]
    path = saved(tmp_path / "bytes.onnx", nodes, {"image": (TensorProto.UINT8, [1, 8, 8, 3])},
                 {"c": (TensorProto.FLOAT, 4)},
                 {"mean": np.array([120, 110, 100], np.float32),
                  "scale": np.array(1 / 64, np.float32), "w": normal(4, 3, 3, 3)})
    images = RNG.integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    network = check(path, {"image": images}, 2)
    assert network.signature.inputs[0].type == "uint8"
    found = [Session(network).run({"image": images.astype(kind)}).outputs["c"] for kind in (np.uint8, np.float64)]
    assert np.array_equal(found[0], found[1]), "whole numbers in another type"
    with pytest.raises(Exception, match="values of input 'image': found float64, 0.5 .. 0.5; allowed: numbers of the"):
        Session(network).run({"image": np.full((8, 8, 3), 0.5)})
    with pytest.raises(CompileError, match="calibration array 'image': found float32"):
        compile_model(path, BASE, tmp_path, calibration={"image": images / np.float32(7)}, host_fallback=True)
    assert not compile_model(path, BASE, tmp_path, host_fallback=True).saturated, "random bytes"


def test_an_embedding_with_integers_that_come_out_too(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["table", "words"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["m"]),
             helper.make_node("Relu", ["m"], ["r"]), helper.make_node("ArgMax", ["r"], ["a"], axis=2, keepdims=0)]
    path = saved(tmp_path / "words.onnx", nodes, {"words": (TensorProto.INT64, [1, 6])},
                 {"r": (TensorProto.FLOAT, 3), "a": (TensorProto.INT64, 2)},
                 {"table": normal(10, 4), "w": normal(4, 5)})
    network = check(path, {"words": RNG.integers(0, 10, (2, 6))}, 3)
    assert [tensor.type for tensor in network.signature.outputs] == ["float32", "int64"]
    assert not compile_model(path, BASE, tmp_path, host_fallback=True).saturated, "random words are in the table"


def test_outputs_keep_the_order_of_the_file(tmp_path: Path) -> None:
    """A classifier as scikit-learn's exporter writes it: the label, which the host computes, before probabilities."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"]), helper.make_node("Relu", ["scores"], ["r"]),
             helper.make_node("ArgMax", ["r"], ["label"], axis=1, keepdims=0)]
    outputs: dict[str, tuple[int, int]] = {"label": (TensorProto.INT64, 1), "scores": (TensorProto.FLOAT, 2)}
    path = saved(tmp_path / "label.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 4])}, outputs, {"w": normal(4, 3)})
    network = check(path, {"x": normal(2, 4)}, 2)
    assert [tensor.name for tensor in network.signature.outputs] == ["label", "scores"]
    label, scores = weft.Session(network).run(None, {"x": normal(1, 4)})
    assert (label.dtype, scores.dtype) == (np.int64, np.float32)


def test_a_scalar_that_the_host_reads(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Cos", ["gain"], ["c"]),
             helper.make_node("Mul", ["m", "c"], ["y"])]
    path = saved(tmp_path / "scalar.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 4]), "gain": (TensorProto.FLOAT, [])},
                 {"y": (TensorProto.FLOAT, 2)}, {"w": normal(4, 3)})
    samples = {"x": normal(2, 4), "gain": np.array([0.3, 0.8], np.float32)}
    report = compile_model(path, BASE, tmp_path, calibration=samples, host_fallback=True)
    found = weft.Session(report.model_path).run(None, {"x": samples["x"][:1], "gain": samples["gain"][0]})
    wanted = run_model(onnx.load(path), {"x": samples["x"][:1], "gain": np.asarray(samples["gain"][0])})
    assert signal_to_noise(wanted["y"], found[0]) >= 45


@pytest.mark.parametrize("inputs", [7, 3])
def test_a_part_of_no_elements_is_refused_before_anything_is_written(inputs: int, tmp_path: Path) -> None:
    """The second part has none, and it is an output."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]),
             helper.make_node("Split", ["r", "sizes"], ["a", "b", "c"], axis=1)]
    outputs: dict[str, tuple[int, int]] = dict.fromkeys(("a", "b", "c"), (TensorProto.FLOAT, 2))
    path = saved(tmp_path / "split.onnx", nodes, {"x": (TensorProto.FLOAT, [1, inputs])}, outputs,
                 {"sizes": np.array([2, 0, inputs - 2])})
    with pytest.raises(CompileError, match=r"tensor 'b' \(node 'a', Split\): found .*0.*allowed: at least one element"):
        compile_model(path, BASE, tmp_path)
    assert not list(tmp_path.glob("*.tmodel"))
    outputs.pop("b")
    path = saved(tmp_path / "split.onnx", nodes, {"x": (TensorProto.FLOAT, [1, inputs])}, outputs,
                 {"sizes": np.array([2, 0, inputs - 2])})
    check(path, {"x": normal(2, inputs)}, 1)


def test_a_computed_part_of_no_elements_that_only_a_concat_reads(tmp_path: Path) -> None:
    """The cache of a first step, cut from an input."""
    nodes = [helper.make_node("Slice", ["x", "zero", "zero", "two"], ["none"]),
             helper.make_node("Concat", ["none", "x"], ["all"], axis=2), helper.make_node("Relu", ["all"], ["y"])]
    path = saved(tmp_path / "cache.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 4, 6])}, {"y": (TensorProto.FLOAT, 3)},
                 {"zero": np.array([0]), "two": np.array([2])})
    check(path, {"x": normal(2, 4, 6)}, 1)


@pytest.mark.parametrize("change", ["no shape", "no type", "no inputs for weights"])
def test_files_that_only_onnxs_checker_refuses(change: str, tmp_path: Path) -> None:
    """The shape of the output follows from a constant that is computed, which onnx does not infer."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Shape", ["x"], ["s"]),
             helper.make_node("Concat", ["s", "one"], ["size"], axis=0),
             helper.make_node("Reshape", ["m", "size"], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 4])}, {"y": (TensorProto.FLOAT, 3)},
                 {"w": normal(4, 4), "one": np.array([1])}, opset=8)
    model = onnx.load(path)
    if change == "no shape":
        model.graph.output[0].type.tensor_type.ClearField("shape")
    elif change == "no type":
        model.graph.output[0].ClearField("type")
    else:
        model.ir_version = 3
    onnx.save(model, path)
    network = check(path, {"x": normal(2, 4)}, 1)
    assert [tensor.shape for tensor in network.signature.outputs] == [(1, 4, 1)]


@pytest.mark.parametrize(("kind", "name", "least"), [
    (TensorProto.FLOAT16, "float16", 45), (TensorProto.DOUBLE, "float64", 60)])
def test_other_precisions(kind: int, name: str, least: float, tmp_path: Path) -> None:
    """Weights, inputs and outputs; casts between them do nothing."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3]),
             helper.make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT), helper.make_node("Relu", ["f"], ["r"]),
             helper.make_node("Cast", ["r"], ["y"], to=kind)]
    path = saved(tmp_path / "precision.onnx", nodes, {"x": (kind, [1, 3, 8, 8])}, {"y": (kind, 4)},
                 {"w": normal(4, 3, 3, 3).astype(name), "b": normal(4).astype(name)})
    network = check(path, {"x": normal(2, 3, 8, 8).astype(name)}, 1, least)
    assert network.signature.inputs[0].type == network.signature.outputs[0].type == name
    np.save(tmp_path / "x.npy", normal(2, 3, 8, 8).astype(name))
    command = ["compile", path, "-a", "arty", "-o", tmp_path, "--calibrate", tmp_path / "x.npy", "--check"]
    assert exit_code(list(map(str, command))) == 0


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 21, 23])
def test_opsets(opset: int, tmp_path: Path) -> None:
    maker = ModelMaker((1, 3, 8, 8), opset=opset)
    pooled = maker.node("MaxPool", maker.node("Relu", maker.conv("x", 3, 4, (3, 3))), kernel_shape=(2, 2))
    maker.node("Cos", maker.node("Flatten", pooled))
    check(maker.save(tmp_path / "net.onnx"), {"x": normal(2, 3, 8, 8)}, 2)


# -- the command line --------------------------------------------------------------------------------------------------
def test_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = open_sizes(tmp_path)
    options = ["--shape", "x:1,2,4,5", "--shape", "y:1,2,4,5"]
    assert exit_code(["inspect", str(path), "-a", "arty", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1 and found["machine_share"] == 1 and found["macs"] == 4 * 3 * 20
    assert found["operators"]["Conv"] == {"machine": 1, "host": 0, "count": 1, "macs": 240}
    assert found["outputs"] == [{"name": "z", "type": "float32", "shape": [1, 60]}]
    assert exit_code(["inspect", str(path), *options]) == 0
    assert "on the machine: 100.0 % of 240 multiply-accumulates, in 1 part" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.tmodel"))


def test_a_network_that_is_not_compiled_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = open_sizes(tmp_path)
    assert exit_code(["run", str(path), "--input", str(tmp_path / "x.npy")]) == 1
    assert "way out: compile it first: weft compile" in capsys.readouterr().err


def test_archs_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["archs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["archs"]["ultra96"]["array_size"] == 16
    assert exit_code(["archs"]) == 0 and "ultra96" in capsys.readouterr().out
    assert exit_code(["--version"]) == 0
    assert capsys.readouterr().out.startswith("weft ")


def test_a_token_expanded_to_a_shape_that_is_computed(tmp_path: Path) -> None:
    """As PyTorch's exporter writes a vision transformer of a fixed input: a size that a first look at the shapes does
    not know, and gives a name, becomes known when the constants in front of it are."""
    made = helper.make_node
    nodes = [made("Shape", ["x"], ["size"]), made("Gather", ["size", "first"], ["batch"], axis=0),
             made("Conv", ["x", "w"], ["c"], kernel_shape=[4, 4], strides=[4, 4]),
             made("Concat", ["batch", "flat"], ["pixels"], axis=0), made("Reshape", ["c", "pixels"], ["r"]),
             made("Transpose", ["r"], ["t"], perm=[0, 2, 1]), made("Shape", ["t"], ["size2"]),
             made("Gather", ["size2", "first"], ["batch2"], axis=0),
             made("Concat", ["batch2", "any"], ["wish"], axis=0), made("Reshape", ["wish", "all"], ["want"]),
             made("Shape", ["want"], ["rank"]),
             made("ConstantOfShape", ["rank"], ["ones"], value=numpy_helper.from_array(np.array([1]))),
             made("Mul", ["ones", "all"], ["same"]), made("Equal", ["want", "same"], ["open"]),
             made("Where", ["open", "ones", "want"], ["shape"]), made("Expand", ["token", "shape"], ["e"]),
             made("Concat", ["e", "t"], ["tokens"], axis=1), made("Add", ["tokens", "places"], ["placed"]),
             made("MatMul", ["placed", "m"], ["y"])]
    path = saved(tmp_path / "vit.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 3, 8, 8])}, {"y": (TensorProto.FLOAT, 3)},
                 {"w": normal(6, 3, 4, 4), "token": normal(1, 1, 6), "places": normal(1, 5, 6), "m": normal(6, 2),
                  "first": np.array([0]), "flat": np.array([6, -1]), "any": np.array([-1, -1]), "all": np.array([-1])})
    check(path, {"x": normal(2, 3, 8, 8)}, 1)
