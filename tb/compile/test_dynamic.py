# SPDX-License-Identifier: Apache-2.0
"""Networks of dynamic quantisation, as onnxruntime's own tool writes them: the network of real numbers behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, signal_to_noise
from weft.tb.compile.test_recurrent import TABLES
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import run_model

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def saved(path: Path, nodes: list[onnx.NodeProto], shape: list[int], kind: int = TensorProto.FLOAT, rank: int = 3,
          **weights: np.ndarray) -> Path:
    graph = helper.make_graph(nodes, "made", [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def products(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """With a bias, and a product of two tensors that are both computed."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]),
             helper.make_node("Relu", ["q"], ["r"]), helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
             helper.make_node("MatMul", ["r", "t"], ["s"]), helper.make_node("MatMul", ["s", "v"], ["y"])]
    return saved(path, nodes, [1, 5, 8], w=normal(8, 12), b=normal(12), v=normal(5, 6)), {"x": normal(3, 5, 8)}


def convolutions(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["p"], pads=[1, 1, 1, 1], strides=[2, 2]),
             helper.make_node("Relu", ["p"], ["r"]), helper.make_node("Conv", ["r", "v"], ["y"], group=2)]
    return (saved(path, nodes, [1, 3, 8, 8], rank=4, w=normal(8, 3, 3, 3), b=normal(8), v=normal(4, 4, 1, 1)),
            {"x": normal(3, 3, 8, 8)})


def recurrent(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["h"], hidden_size=6),
             helper.make_node("Squeeze", ["h", "axis"], ["s"]), helper.make_node("MatMul", ["s", "v"], ["y"])]
    return (saved(path, nodes, [4, 1, 5], w=normal(1, 24, 5), r=normal(1, 24, 6), b=normal(1, 48), v=normal(6, 3),
                  axis=np.array([1])), {"x": normal(4, 1, 5)})


def embedding(path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    nodes = [helper.make_node("Gather", ["table", "x"], ["e"]), helper.make_node("MatMul", ["e", "v"], ["y"])]
    return (saved(path, nodes, [1, 4], TensorProto.INT64, table=normal(20, 8), v=normal(8, 3)),
            {"x": RNG.integers(0, 20, (3, 4))})


NETWORKS = {"products": products, "convolutions": convolutions, "recurrent": recurrent, "embedding": embedding}
OPERATORS = {"products": "MatMulInteger", "convolutions": "ConvInteger", "recurrent": "DynamicQuantizeLSTM",
             "embedding": "MatMulInteger"}


def quantised(name: str, folder: Path, **options: Any) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """The file of real numbers, the quantised one, samples."""
    path, samples = NETWORKS[name](folder / f"{name}.onnx")
    found = folder / f"{name}_dynamic.onnx"
    quantize_dynamic(path, found, op_types_to_quantize=["Conv", "Gather", "LSTM", "MatMul"],
                     extra_options={"MatMulConstBOnly": False, "ForceQuantizeNoInputCheck": True}, **options)
    assert OPERATORS[name] in {node.op_type for node in onnx.load(found).graph.node}
    return path, found, samples


def run(path: Path, arch: Arch, samples: dict[str, np.ndarray]) -> tuple[np.ndarray, set[str]]:
    """The outputs, and operators of the host."""
    report = compile_model(path, arch, path.parent, calibration=samples, host_fallback=True)
    hosts = {place.operator for place in report.partition.places if place.where == "host"}
    return Session(Network.load(report.model_path)).run(samples).outputs["y"], hosts


def wanted(path: Path, samples: dict[str, np.ndarray], whole: bool) -> np.ndarray:
    given = [samples] if whole else [{"x": sample[None]} for sample in samples["x"]]
    return np.concatenate([run_model(onnx.load(path), entry)["y"] for entry in given])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_of_real_numbers_runs_on_the_machine(name: str, kind: QuantType, per_channel: bool,
                                                         tmp_path: Path) -> None:
    """Nearer to the original than onnxruntime, which rounds activations to bytes; as near as the weights' bytes are."""
    if name == "convolutions" and kind is QuantType.QInt8:
        kind = QuantType.QUInt8  # onnxruntime has no ConvInteger of signed weights
    path, dynamic, samples = quantised(name, tmp_path, weight_type=kind, per_channel=per_channel)
    found, hosts = run(dynamic, BASE.replace(**TABLES), samples)
    assert hosts == ({"Gather"} if name == "embedding" else set())
    whole = name == "recurrent"
    real, bytes_ = (wanted(file, samples, whole).reshape(found.shape) for file in (path, dynamic))
    assert signal_to_noise(bytes_, found) >= 25
    assert signal_to_noise(real, found) >= signal_to_noise(real, bytes_) - 2


def test_bytes_with_calibration(tmp_path: Path) -> None:
    """An INT8 machine finds static scales."""
    _, dynamic, samples = quantised("convolutions", tmp_path)
    found, hosts = run(dynamic, BASE.replace(data_type="INT8", activation_tables=8), samples)
    assert not hosts and signal_to_noise(wanted(dynamic, samples, False), found) >= 20


def test_bytes_that_are_read_in_other_ways_stay_bytes(tmp_path: Path) -> None:
    """A product that does not subtract the zero point, and a sum of whole numbers in front of the cast."""
    nodes = [helper.make_node("MatMul", ["x", "m"], ["p"]),
             helper.make_node("DynamicQuantizeLinear", ["p"], ["q", "s", "z"]),
             helper.make_node("MatMulInteger", ["q", "w"], ["i"]), helper.make_node("Add", ["i", "one"], ["j"]),
             helper.make_node("Cast", ["j"], ["c"], to=TensorProto.FLOAT), helper.make_node("Mul", ["c", "s"], ["y"])]
    path = saved(tmp_path / "odd.onnx", nodes, [1, 5, 8], m=normal(8, 8), w=RNG.integers(0, 9, (8, 3)).astype(np.uint8),
                 one=np.ones(3, np.int32))
    samples = {"x": normal(2, 5, 8)}
    found, hosts = run(path, BASE, samples)
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= hosts
    assert signal_to_noise(wanted(path, samples, False), found) >= 30


def with_weights_of_its_own() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """The zero point of the weights is computed."""
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
             helper.make_node("Cast", ["s"], ["zero"], to=TensorProto.UINT8),
             helper.make_node("MatMulInteger", ["q", "w", "z", "zero"], ["i"]),
             helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]
    return nodes, {"w": RNG.integers(0, 9, (8, 3)).astype(np.uint8)}


def with_computed_bytes() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """The weights of onnxruntime's own product are computed."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
             helper.make_node("Cast", ["t"], ["bytes"], to=TensorProto.UINT8),
             helper.make_node("DynamicQuantizeMatMul", ["x", "bytes", "scale"], ["y"], domain="com.microsoft")]
    return nodes, {"scale": np.ones(1, np.float32)}


@pytest.mark.parametrize(("made", "operator"), [(with_weights_of_its_own, "DynamicQuantizeLinear"),
                                                (with_computed_bytes, "DynamicQuantizeMatMul")])
def test_parameters_that_are_computed_are_refused_by_their_node(made: Any, operator: str, tmp_path: Path) -> None:
    """They were a fault of the compiler: a constant that is none was looked up."""
    nodes, weights = made()
    path = saved(tmp_path / "odd.onnx", nodes, [2, 8], rank=2, **weights)
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.opset_import[0].version = 18
    onnx.save(model, path)
    with pytest.raises(CompileError, match=f"operator {operator}"):
        compile_model(path, BASE, tmp_path, host_fallback=True)


def test_biases_that_are_rounded_while_it_runs_are_real_ones(tmp_path: Path) -> None:
    """Older quantizers write them so: divided by both scales, floored, cast and added to whole numbers."""
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
             helper.make_node("Mul", ["s", "w_scale"], ["scale"]), helper.make_node("Div", ["b", "scale"], ["d"]),
             helper.make_node("Floor", ["d"], ["f"]), helper.make_node("Cast", ["f"], ["n"], to=TensorProto.INT32),
             helper.make_node("ConvInteger", ["q", "w", "z", "w_zero"], ["i"]),
             helper.make_node("Reshape", ["n", "sizes"], ["m"]), helper.make_node("Add", ["m", "i"], ["j"]),
             helper.make_node("Cast", ["j"], ["c"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["c", "scale"], ["y"])]
    path = saved(tmp_path / "older.onnx", nodes, [1, 3, 8, 8], rank=4, b=10 * normal(4),
                 w=RNG.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8), w_zero=np.array(128, np.uint8),
                 w_scale=np.array(0.02, np.float32), sizes=np.array([1, -1, 1, 1]))
    samples = {"x": normal(3, 3, 8, 8)}
    found, hosts = run(path, BASE, samples)
    assert not hosts and signal_to_noise(wanted(path, samples, False), found) >= 35
