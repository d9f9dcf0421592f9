# SPDX-License-Identifier: Apache-2.0
"""Rare forms in files: what few exporters write, and what only files made by hand ask for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend import constants
from weft.compiler.frontend.inputs import settle_inputs
from weft.compiler.frontend.reader import read_model
from weft.compiler.frontend.tensorflow_reader import FREEZE, check_constants, convertible, mend_converted
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, signal_to_noise
from weft.tb.random.network_rule import TABLES
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import run_model

FILE = Path("graph.pb")
ARCH = BASE.replace(**TABLES)
MICROSOFT = "com.microsoft"
node = helper.make_node


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def some_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape).astype(np.uint8)


def saved(folder: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[Any], outputs: Mapping[str, int],
          more: Mapping[str, Sequence[Any]] | None = None, opset: int = 17, **weights: Any) -> Path:
    """A file of nodes with the input ``x`` and ``more``; ``outputs``: their types."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
              for name, sizes in {"x": shape, **(more or {})}.items()]
    ends = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "made", inputs, ends,
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    domains = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    path = folder / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString())
    return path


def check(path: Path, least: float, hosts: set[str] | None = None) -> None:
    """The outputs of two samples as onnxruntime has them; ``hosts``: operators that the machine has not."""
    model = onnx.load(path)
    shape = [entry.dim_value for entry in model.graph.input[0].type.tensor_type.shape.dim]
    samples = normal(2, *shape[1:])
    report = compile_model(path, ARCH, path.parent, calibration={"x": samples}, host_fallback=hosts is not None)
    assert {place.operator for place in report.partition.places if place.where == "host"} == (hosts or set())
    found = Session(Network.load(report.model_path)).run({"x": samples}).outputs
    for number, sample in enumerate(samples):
        for name, value in run_model(model, {"x": sample[None]}).items():
            assert signal_to_noise(value, found[name][number:number + 1].reshape(value.shape)) >= least, name


# -- what tf2onnx makes of a frozen graph, without TensorFlow ----------------------------------------------------------
def converted(*nodes: onnx.NodeProto, shape: list[int] | None = None, **weights: np.ndarray) -> onnx.ModelProto:
    """A model with one input ``x:0``; without ``shape`` it has none, as of a placeholder of any rank."""
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info("x:0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_input_without_a_shape_takes_what_is_given() -> None:
    graph = converted(node("Relu", ["x:0"], ["y:0"])).graph
    with pytest.raises(CompileError, match=r"input 'x:0': found no shape; allowed: a shape of fixed sizes; way out: "
                                           r"give it: --shape x:0:1,3,224,224"):
        settle_inputs(graph, {}, {})
    with pytest.raises(CompileError, match=r"--shape x:0: found 0,2; allowed: sizes that fit \?,\?"):
        settle_inputs(graph, {"x:0": (0, 2)}, {})
    graph = converted(node("Relu", ["x:0"], ["y:0"])).graph
    settle_inputs(graph, {"x:0": (1, 2, 5)}, {})
    assert [entry.dim_value for entry in graph.input[0].type.tensor_type.shape.dim] == [1, 2, 5]


def test_scales_of_a_converted_resize_make_whole_sizes() -> None:
    """9 pixels times the number below 17/9 are 16 pixels in ONNX, and 17 in TensorFlow."""
    below = np.float32(17 / 9)
    assert np.floor(np.float64(below) * 9) == 16
    nodes = [node("Resize", ["x:0", "", "scales"], ["r:0"]), node("Resize", ["r:0"], ["s:0"]),
             node("Mul", ["s:0", "other"], ["y:0"])]
    scales, other = np.array([1, 1, below, 2], np.float32), np.array([below], np.float32)
    model = converted(*nodes, scales=scales, other=other)
    mend_converted(FILE, model, {"y:0": "y"})
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert np.floor(found["scales"].astype(np.float64) * [1, 3, 9, 9]).tolist() == [1, 3, 17, 18]
    assert found["scales"][[0, 1, 3]].tolist() == [1, 1, 2] and found["other"] == other


def test_a_converted_model_has_the_names_of_the_graphs_nodes() -> None:
    model = converted(node("Relu", ["x:0"], ["r:0"]), node("Neg", ["r:0"], ["y:0"]))
    mend_converted(FILE, model, {"x:0": "x", "y:0": "y"})
    assert [(*entry.input, *entry.output) for entry in model.graph.node] == [("x", "r:0"), ("r:0", "y")]
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["x", "y"]


@pytest.mark.parametrize(("op", "domain"), [("Bucketize", ""), ("Relu", "ai.onnx.contrib")])
def test_an_operator_that_tf2onnx_leaves_is_named(op: str, domain: str) -> None:
    model = converted(node(op, ["x:0"], ["y:0"], name="strange", domain=domain))
    with pytest.raises(CompileError, match=f"node 'strange' of graph.pb, operator {op}: found no ONNX operator for it"):
        mend_converted(FILE, model, {})


def constant_of(*sizes: int) -> SimpleNamespace:
    """A node as TensorFlow reads it from a graph; the constant is one number of this shape."""
    shape = SimpleNamespace(dim=[SimpleNamespace(size=size) for size in sizes])
    return SimpleNamespace(name="c", op="Const", attr={"value": SimpleNamespace(tensor=SimpleNamespace(
        tensor_shape=shape))})


@pytest.mark.parametrize(("nodes", "said"), [
    ([constant_of(1 << 20, 1 << 20)], "node 'c' of graph.pb, operator Const: found 1099511627776 elements"),
    ([constant_of(1 << 25)] * 3, "found 100663296 elements with those of constants before; allowed: at most 67108864"),
    ([constant_of(4, -1)], r"found a constant of shape \[4, -1\]"),
    ([constant_of()] * 70_000, "model file graph.pb: found 70000 nodes; allowed: at most 65536")])
def test_constants_of_a_frozen_graph_are_counted(nodes: list[SimpleNamespace], said: str) -> None:
    """Equal numbers stand in the file once, and tf2onnx would write 4 TB of them."""
    check_constants(FILE, [constant_of(), constant_of(3, 3)])
    with pytest.raises(CompileError, match=said):
        check_constants(FILE, nodes)


def test_errors_of_a_converter_become_one_message() -> None:
    said = "model file graph.pb: found something that tf2onnx cannot convert .*two words"
    with pytest.raises(CompileError, match=said), convertible(FILE, "a frozen inference graph", FREEZE):
        raise KeyError("two words")
    with pytest.raises(CompileError, match="^node 'a': found b"), convertible(FILE, "anything", FREEZE):
        raise refuse("node 'a'", "b", "c", "d")
    with convertible(FILE, "anything", FREEZE):
        pass


def test_unknown_keys_of_data_outside_print_nothing(tmp_path: Path) -> None:
    """Onnx warns of them with the names as they stand in the file, which may be those of a terminal."""
    path = saved(tmp_path, [node("Add", ["x", "w"], ["y"])], [2], {"y": TensorProto.FLOAT})
    model = onnx.load(path)
    tensor = model.graph.initializer.add(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "length": "8", "\x1b[31m": "0"}.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    (tmp_path / "w.bin").write_bytes(np.ones(2, np.float32).tobytes())
    with warnings.catch_warnings(action="error"):
        assert read_model(path).constants["w"].tolist() == [1, 1]


# -- sizes and names ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("shapes", "said"), [
    ({"batch": 0}, "--shape batch: found 0; allowed: a size of at least 1"),
    ({"x": (1, 4, 8), "other": (1, 5, 8)}, "--shape other: found 4 and 5 for length; allowed: one size for one name"),
])
def test_sizes_that_do_not_fit_each_other_are_refused(shapes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Concat", ["x", "other"], ["y"], axis=0)], ["batch", "length", 8],
                 {"y": TensorProto.FLOAT}, {"other": ["batch", "length", 8]})
    with pytest.raises(CompileError, match=said):
        read_model(path, shapes=shapes)


def test_a_first_output_without_a_name_gets_one_that_is_free(tmp_path: Path) -> None:
    """Only the last state of a layer is read, and the file has the name that it would get."""
    nodes = [node("Neg", ["x"], ["lstm/unread1"]),
             node("LSTM", ["lstm/unread1", "w", "r"], ["", "h"], name="lstm", hidden_size=3), node("Neg", ["h"], ["y"])]
    path = saved(tmp_path, nodes, [4, 1, 5], {"y": TensorProto.FLOAT}, w=normal(1, 12, 5), r=normal(1, 12, 3))
    assert [entry.outputs[0] for entry in read_model(path).nodes] == ["lstm/unread1", "lstm/unread1_", "y"]


def test_inputs_that_are_empty_at_the_end_are_left_out(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Clip", ["x", "low", ""], ["y"])], [1, 8], {"y": TensorProto.FLOAT},
                 low=np.array(0.5, np.float32))
    assert read_model(path).nodes[0].inputs == ("x", "low")
    check(path, 50)


# -- choices -----------------------------------------------------------------------------------------------------------
def branch(*nodes: onnx.NodeProto, outputs: Sequence[str]) -> onnx.GraphProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "branch", [], ends)


def test_a_branch_may_give_one_tensor_twice_and_have_names_of_others(tmp_path: Path) -> None:
    """Both choices have an inner tensor of one name, and the graph has the name that the first one's would get."""
    first = branch(node("Neg", ["x"], ["m"]), node("Relu", ["m"], ["t"]), outputs=["t", "t"])
    second = branch(node("Abs", ["b"], ["m"]), node("Add", ["m", "first/m"], ["t"]), outputs=["t"])
    other = branch(node("Identity", ["x"], ["o"]), outputs=["o"])
    twice = branch(node("Identity", ["x"], ["p"]), node("Identity", ["x"], ["o"]), outputs=["p", "o"])
    nodes = [node("Neg", ["x"], ["first/m"]),
             node("If", ["yes"], ["a", "b"], name="first", then_branch=first, else_branch=twice),
             node("If", ["yes"], ["c"], name="last", then_branch=second, else_branch=other),
             node("Sub", ["c", "a"], ["y"])]
    path = saved(tmp_path, nodes, [1, 8], {"y": TensorProto.FLOAT}, yes=np.array(True))
    graph = read_model(path)
    made = [name for entry in graph.nodes for name in entry.outputs]
    assert len(set(made)) == len(made) and "If" not in {entry.op for entry in graph.nodes}
    check(path, 45)


# -- constants ---------------------------------------------------------------------------------------------------------
def test_constants_are_folded_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of elements, and of steps to compute them."""
    nodes = [node("MatMul", ["v", "w"], ["m"], name="known"), node("Add", ["x", "m"], ["y"])]
    path = saved(tmp_path, nodes, [1, 8], {"y": TensorProto.FLOAT}, v=normal(1, 8), w=normal(8, 8))
    check(path, 50)
    for bound, said in (("MOST_FOLDED", "constants up to node 'known', operator MatMul: found 8 elements that are"),
                        ("MOST_WORK", "node 'known', operator MatMul: found constant inputs, and 64 steps to eval")):
        with monkeypatch.context() as patch:
            patch.setattr(constants, bound, 7)
            with pytest.raises(WeftError, match=said):
                read_model(path)


def test_what_onnx_itself_cannot_evaluate_onnxruntime_does(tmp_path: Path) -> None:
    """ONNX's own evaluator fails for a Softsign of one number, and for channels of a tensor of one axis."""
    nodes = [node("Shape", ["x"], ["shape"]), node("Cast", ["shape"], ["sizes"], to=1),
             node("ReduceMean", ["sizes"], ["mean"], axes=[0], keepdims=0), node("Softsign", ["mean"], ["factor"]),
             node("BatchNormalization", ["one", *["one"] * 4], ["norm"]), node("Mul", ["x", "factor"], ["scaled"]),
             node("Mul", ["scaled", "norm"], ["y"])]
    check(saved(tmp_path, nodes, (1, 3, 4), {"y": TensorProto.FLOAT}, one=np.ones(1, np.float32)), 60)


def test_a_constant_of_no_known_size_is_named(tmp_path: Path) -> None:
    nodes = [node("NonMaxSuppression", ["boxes", "scores", "most"], ["chosen"], name="nms"),
             node("Gather", ["x", "chosen"], ["y"])]
    path = saved(tmp_path, nodes, [4, 8], {"y": TensorProto.FLOAT}, boxes=abs(normal(1, 4, 4)), scores=normal(1, 1, 4),
                 most=np.array([2]))
    with pytest.raises(CompileError, match="shape of tensor .* found a size that values decide"):
        read_model(path)


def test_texts_are_no_constants_of_the_machine(tmp_path: Path) -> None:
    nodes = [node("StringNormalizer", ["words"], ["lower"], name="texts", case_change_action="LOWER"),
             node("Neg", ["x"], ["y"])]
    path = saved(tmp_path, nodes, [1, 8], {"y": TensorProto.FLOAT, "lower": TensorProto.STRING},
                 words=np.array(["A", "B"], object))
    with pytest.raises(CompileError, match="type of output 'lower': found string"):
        read_model(path)


# -- quantised operators of onnxruntime --------------------------------------------------------------------------------
SCALES: dict[str, Any] = {"a": np.array(0.05, np.float32), "b": np.array(0.01, np.float32),
                          "c": np.array(0.1, np.float32), "zero": np.array(128, np.uint8)}
ENDS = [node("QuantizeLinear", ["x", "a", "zero"], ["q"], name="begin", domain=MICROSOFT)]


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_of_bytes_may_end_in_real_numbers(has_bias: bool, tmp_path: Path) -> None:
    """QGemm without a scale of its output, behind onnxruntime's own QuantizeLinear."""
    bias = ["bias"] if has_bias else []
    nodes = [*ENDS, node("QGemm", ["q", "a", "zero", "w", "b", "zero", *bias], ["y"], domain=MICROSOFT, alpha=0.5)]
    path = saved(tmp_path, nodes, [1, 8], {"y": TensorProto.FLOAT}, w=some_bytes(8, 5),
                 bias=np.arange(-200, 300, 100).astype(np.int32), **SCALES)
    check(path, 30)


@pytest.mark.parametrize("opset", [10, 17])
def test_scales_and_zero_points_may_be_behind_an_identity(opset: int, tmp_path: Path) -> None:
    """They are constants all the same, of each output channel too, which opset 10 has no attribute for."""
    same = [node("Identity", [name], [f"{name}_"]) for name in ("a", "zero", "each", "zeros")]
    nodes = [*same, node("QuantizeLinear", ["x", "a_", "zero_"], ["q"]),
             node("QLinearConv", ["q", "a_", "zero", "w", "each_", "zeros_", "c", "zero"], ["p"]),
             node("DequantizeLinear", ["p", "c", "zero_"], ["r"]),
             node("DequantizeLinear", ["v", "b", "zero_"], ["m"]), node("MatMul", ["r", "m"], ["y"])]
    path = saved(tmp_path, nodes, [1, 2, 4, 4], {"y": TensorProto.FLOAT}, opset=opset, w=some_bytes(3, 2, 1, 1),
                 v=some_bytes(4, 5), each=np.array([0.01, 0.02, 0.005], np.float32),
                 zeros=np.full(3, 100, np.uint8), **SCALES)
    check(path, 25)


def test_a_node_that_reads_two_tensors_of_bytes_becomes_nodes_of_different_names(tmp_path: Path) -> None:
    """The host's part is a file of onnxruntime's, which refuses two nodes of one name."""
    nodes = [*ENDS, node("QuantizeLinear", ["x", "c", "zero"], ["r"]),
             node("QLinearAdd", ["q", "a", "zero", "r", "c", "zero", "c", "zero"], ["s"], name="sum", domain=MICROSOFT),
             node("DequantizeLinear", ["s", "c", "zero"], ["y"])]
    graph = read_model(saved(tmp_path, nodes, [1, 2, 4, 4], {"y": TensorProto.FLOAT}, **SCALES))
    assert len({entry.name for entry in graph.nodes}) == len(graph.nodes)


@pytest.mark.parametrize("opset, own, axis", [(17, 13, 1), (12, 11, 1), (12, 13, -1), (17, 11, -1)])
def test_a_softmax_of_bytes_is_of_its_own_opset(opset: int, own: int, axis: int, tmp_path: Path) -> None:
    nodes = [*ENDS, node("QLinearSoftmax", ["q", "a", "zero", "part", "none"], ["s"], domain=MICROSOFT, axis=axis,
                         opset=own), node("DequantizeLinear", ["s", "part", "none"], ["y"])]
    check(saved(tmp_path, nodes, [1, 2, 4, 4], {"y": TensorProto.FLOAT}, opset=opset, part=np.float32(1 / 256),
                none=np.uint8(0), **SCALES), 20)


BAD = {
    "a softmax of another opset": (
        [*ENDS, node("QLinearSoftmax", ["q", "a", "zero", "b", "zero"], ["s"], name="bad", domain=MICROSOFT, axis=1,
                     opset=11), node("DequantizeLinear", ["s", "b", "zero"], ["y"])],
        "node 'bad', .*attribute opset: found 11; allowed: 13 or more, as the model has opset 17, or the axis -1"),
    "a product of bytes": (
        [*ENDS, node("MatMulInteger", ["q", "q"], ["p"], name="bad"), node("Cast", ["p"], ["y"], to=1)],
        "node 'bad', .*put DequantizeLinear in front of it and take MatMul instead"),
    "a bias that is computed": (
        [*ENDS, node("Cast", ["x"], ["bias"], to=TensorProto.INT32),
         node("QGemm", ["q", "a", "zero", "w", "b", "zero", "bias"], ["y"], name="bad", domain=MICROSOFT)],
        "node 'bad', .*bias 'bias': found a tensor computed at run time; allowed: a constant"),
    "channels last": (
        [*ENDS, node("QLinearGlobalAveragePool", ["q", "a", "zero", "c", "zero"], ["p"], name="bad", domain=MICROSOFT,
                     channels_last=1), node("DequantizeLinear", ["p", "c", "zero"], ["y"])],
        "node 'bad', .*attribute channels_last: found 1; allowed: 0"),
    "a scale that is left out": ([*ENDS, node("DequantizeLinear", ["q", ""], ["y"], name="bad", domain=MICROSOFT)],
                                 "node 'bad', .*inputs: found 1; allowed: a tensor and its scale"),
    "two scales in one tensor": (
        [*ENDS, node("QuantizeLinear", ["x", "b", "zero"], ["r"]),
         node("Concat", ["q", "r"], ["s"], name="bad", axis=0), node("DequantizeLinear", ["s", "a", "zero"], ["y"])],
        "node 'bad', .*scales of its inputs: found 0.05, 0.01; allowed: one scale and zero point"),
    "pixels between bytes": (
        [*ENDS, node("Resize", ["q", "", "", "sizes"], ["s"], name="bad", mode="linear"),
         node("DequantizeLinear", ["s", "a", "zero"], ["y"])],
        "node 'bad', .*attribute mode: found linear; allowed: nearest, where it reads bytes"),
}
"""What is wrong -> the nodes, the message."""


@pytest.mark.parametrize("name", BAD)
def test_what_bytes_cannot_be_is_said(name: str, tmp_path: Path) -> None:
    nodes, said = BAD[name]
    shape = [1, 8] if "bias" in name else [1, 2, 4, 4]
    path = saved(tmp_path, nodes, shape, {"y": TensorProto.FLOAT}, w=some_bytes(8, 5), sizes=np.array([1, 2, 8, 8]),
                 **SCALES)
    with pytest.raises(CompileError, match=said):
        read_model(path)


def test_bytes_are_padded_with_their_zero(tmp_path: Path) -> None:
    """Pad without a number writes the byte 0, which is -6.4, and a scale without a zero point is of unsigned bytes."""
    nodes = [*ENDS, node("Pad", ["q", "pads"], ["p"]), node("DequantizeLinear", ["p", "a", "zero"], ["d"]),
             node("QuantizeLinear", ["d", "c"], ["r"]), node("DequantizeLinear", ["r", "c"], ["y"])]
    path = saved(tmp_path, nodes, [1, 2, 4, 4], {"y": TensorProto.FLOAT, "d": TensorProto.FLOAT},
                 pads=np.array([0, 0, 1, 0, 0, 0, 0, 2]), **SCALES)
    graph = read_model(path)
    pad = next(entry for entry in graph.nodes if entry.op == "Pad")
    assert graph.constants[pad.input(2)] == np.float32(-6.4)
    check(path, 25)


# -- dynamic quantisation ----------------------------------------------------------------------------------------------
FOUND = node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])


@pytest.mark.parametrize("name", ["to real numbers", "of real numbers", "moved before"])
def test_products_of_bytes_found_while_it_runs_become_real(name: str, tmp_path: Path) -> None:
    nodes = {
        "to real numbers": [FOUND, node("MatMulIntegerToFloat", ["q", "w", "s", "b", "z", "zero", "bias"], ["y"],
                                        domain=MICROSOFT)],
        "of real numbers": [node("DynamicQuantizeMatMul", ["x", "w", "b", "zero"], ["y"], domain=MICROSOFT)],
        "moved before": [FOUND, node("Reshape", ["q", "rows"], ["t"]),
                         node("MatMulIntegerToFloat", ["t", "w", "s", "b", "z", "zero"], ["y"], domain=MICROSOFT)],
    }[name]
    path = saved(tmp_path, nodes, [1, 8], {"y": TensorProto.FLOAT}, bias=normal(5), rows=np.array([2, 4]),
                 w=some_bytes(4 if "moved" in name else 8, 5), **SCALES)
    check(path, 35)
