# SPDX-License-Identifier: Apache-2.0
"""Files as onnxruntime's optimiser and quantiser leave them are the networks that onnxruntime computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend.contributed import write_in_onnx
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, signal_to_noise
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import session

MICROSOFT = "com.microsoft"
TABLES = BASE.replace(simd_registers_depth=4, lut_count=2, lut_depth=256)
IMAGE, ROWS = (1, 4, 6, 6), (1, 6, 32)
RNG = np.random.default_rng(0)


def near(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def small(kind: str, *shape: int) -> np.ndarray:
    bounds = np.iinfo(kind)
    return RNG.integers(bounds.min, bounds.max, size=shape, dtype=kind, endpoint=True)


def above(scale: float, *shape: int) -> np.ndarray:
    return ((1 + RNG.random(shape)) * scale).astype(np.float32)


WEIGHTS: dict[str, Any] = {
    "kernel": near(8, 4, 3, 3), "bias": near(8), "matrix": near(32, 32), "row": near(32), "other": near(32),
    "four": near(4), "groups": 1 + near(4), "step": np.float32(1e-4), "middle": np.uint16(32768), "low": np.uint16(0),
    "zero": np.int16(0), "wide": small("uint16", 8, 4, 3, 3), "steps": above(2e-5, 8), "zeros": np.zeros(8, np.int16),
    "signed": small("int16", 8, 4, 3, 3), "bytes": small("int8", 32, 16), "blocks": above(0.004, 4, 16),
    "block_zeros": small("int8", 4, 16),
    "tall": above(0.004, 1, 16), "nibbles": small("uint8", 16, 2, 8), "scales": above(0.05, 32),
    "nibble_zeros": small("uint8", 16), "octets": small("uint8", 16, 2, 16), "octet_scales": above(0.004, 32),
    "pairs": small("uint8", 16, 2, 4), "pair_zeros": small("uint8", 16), "thirds": small("uint8", 16, 3, 8),
    "third_scales": above(0.05, 48), "third_zeros": small("uint8", 32), "real_zeros": near(48) + 8,
    "half": near(16), "group": np.arange(48, dtype=np.int32) // 16, "cut": above(0.004, 3, 16),
    "cut_zeros": small("int8", 3, 16), "tiny": np.float32(1e-5), "step_below": np.float32(-1e-4),
    "another": np.uint16(30000), "larger_step": np.float32(2e-4)}

Node = tuple[str, str, str, dict[str, Any]]
Nodes = list[Node]
CONV: Node = ("Conv", "x kernel", "t", {"pads": [1] * 4})
MUL: Node = ("MatMul", "x matrix", "t", {})
CASES: dict[str, tuple[tuple[int, ...], int, Nodes]] = {
    "Gelu": (IMAGE, 17, [CONV, ("M.Gelu", "t", "y", {})]),
    "BiasGelu": (ROWS, 13, [MUL, ("M.BiasGelu", "t row", "y", {})]),
    "FastGelu": (ROWS, 13, [MUL, ("M.FastGelu", "t", "y", {})]),
    "FastGelu of a sum": (ROWS, 13, [MUL, ("M.FastGelu", "t row", "y", {})]),
    "QuickGelu": (ROWS, 13, [MUL, ("M.QuickGelu", "t", "y", {"alpha": 1.5})]),
    "QuickGelu of its usual alpha": (ROWS, 13, [MUL, ("M.QuickGelu", "t", "y", {})]),
    **{f"FusedConv {name} {opset}": (IMAGE, opset, [CONV, ("M.FusedConv", "x kernel bias t", "y", {
        "pads": [1] * 4, "activation": name, **({"activation_params": numbers} if numbers else {})})])
       for name, numbers in {"Relu": [], "LeakyRelu": [0.1], "Clip": [-0.5, 0.5], "HardSigmoid": [0.2, 0.4]}.items()
       for opset in (10, 11, 17) if name == "Clip" or opset == 17},
    "FusedGemm": ((2, 32), 13, [("M.FusedGemm", "x matrix row", "y", {
        "transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2})]),
    "FusedGemm of two numbers": ((2, 32), 13, [("M.FusedGemm", "x matrix row", "y", {
        "activation": "HardSigmoid", "activation_alpha": 0.1, "activation_beta": 0.4})]),
    "FusedMatMul": (ROWS, 13, [("M.FusedMatMul", "x matrix", "y", {"transB": 1, "alpha": 0.5})]),
    **{f"SkipLayerNormalization {opset}": (ROWS, opset, [
        MUL, ("M.SkipLayerNormalization", "t x row other row", "u   s", {"epsilon": 1e-5}), ("Add", "u s", "y", {})])
       for opset in (12, 17, 18)},
    "SkipLayerNormalization alone": (ROWS, 17, [MUL, ("M.SkipLayerNormalization", "t x row", "y", {"epsilon": 1e-5})]),
    "SkipSimplifiedLayerNormalization": (ROWS, 17, [
        MUL, ("M.SkipSimplifiedLayerNormalization", "t x row", "u   s", {"epsilon": 1e-5}), ("Add", "u s", "y", {})]),
    "SkipSimplifiedLayerNormalization of a bias": (ROWS, 17, [
        MUL, ("M.SkipSimplifiedLayerNormalization", "t x row other", "y", {"epsilon": 1e-5})]),
    "SkipLayerNormalization of small numbers": (ROWS, 17, [
        ("Mul", "x tiny", "s", {}), ("M.SkipLayerNormalization", "s s row", "y", {})]),
    **{f"GroupNormalization {opset}": (IMAGE, opset, [
        CONV, ("GroupNormalization", "t groups four", "y", {"num_groups": 4})]) for opset in (18, 19, 20)},
    "GroupNormalization of small numbers": (IMAGE, 18, [
        ("Mul", "x tiny", "t", {}), ("GroupNormalization", "t groups four", "y", {"num_groups": 4})]),
    "weights of 16 bits": (IMAGE, 21, [("DequantizeLinear", "wide step middle", "w", {}),
                                       ("Conv", "x w", "y", {"pads": [1] * 4})]),
    "weights of 16 bits a channel": (IMAGE, 13, [("M.DequantizeLinear", "signed steps zeros", "w", {"axis": 0}),
                                                 ("Conv", "x w", "y", {"pads": [1] * 4})]),
    "weights of blocks": (ROWS, 21, [("DequantizeLinear", "bytes blocks block_zeros", "w", {
        "axis": 0, "block_size": 8}), ("MatMul", "x w", "y", {})]),
    "weights of one long block": (ROWS, 21, [("DequantizeLinear", "bytes tall", "w", {
        "axis": 0, "block_size": 1 << 60}), ("MatMul", "x w", "y", {})]),
    "weights of blocks, the last one cut": (ROWS, 21, [("DequantizeLinear", "bytes cut cut_zeros", "w", {
        "axis": -2, "block_size": 12}), ("MatMul", "x w", "y", {})]),
    "MatMulNBits": (ROWS, 17, [("M.MatMulNBits", "x nibbles scales", "y", {"K": 32, "N": 16, "bits": 4,
                                                                           "block_size": 16})]),
    "MatMulNBits of zeros": (ROWS, 17, [("M.MatMulNBits", "x nibbles scales nibble_zeros", "y", {
        "K": 32, "N": 16, "bits": 4, "block_size": 16})]),
    "MatMulNBits of bytes": (ROWS, 17, [("M.MatMulNBits", "x octets octet_scales", "y", {
        "K": 32, "N": 16, "bits": 8, "block_size": 16})]),
    "MatMulNBits of three blocks": ((1, 6, 40), 17, [("M.MatMulNBits", "x thirds third_scales third_zeros", "y", {
        "K": 40, "N": 16, "bits": 4, "block_size": 16})]),
    "MatMulNBits of real zeros": ((1, 6, 40), 17, [("M.MatMulNBits", "x thirds third_scales real_zeros", "y", {
        "K": 40, "N": 16, "bits": 4, "block_size": 16})]),
    "MatMulNBits of a bias": (ROWS, 17, [("M.MatMulNBits", "x nibbles scales nibble_zeros  half", "y", {
        "K": 32, "N": 16, "bits": 4, "block_size": 16})]),
    **{f"activations of 16 bits {domain}{zero}": (IMAGE, 21, [
        (f"{domain}QuantizeLinear", f"x step {zero}", "q", {}),
        (f"{domain}DequantizeLinear", f"q step {zero}", "d", {}),
        ("Conv", "d kernel", "y", {"pads": [1] * 4})])
       for domain in ("", "M.") for zero in ("middle", "low", "zero")},
}


def model(shape: tuple[int, ...], opset: int, nodes: Nodes) -> onnx.ModelProto:
    made = [helper.make_node(operator.removeprefix("M."), inputs.split(" "), outputs.split(" "),
                             domain=MICROSOFT if operator.startswith("M.") else "", **attributes)
            for operator, inputs, outputs, attributes in nodes]
    read = {name for node in made for name in node.input}
    graph = helper.make_graph(made, "made", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [onnx.ValueInfoProto(name="y")],
                              [numpy_helper.from_array(np.asarray(value), name) for name, value in WEIGHTS.items()
                               if name in read])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset),
                                                                  helper.make_opsetid(MICROSOFT, 1)])


def contributed() -> list[bytes]:
    """Return the files of all cases, for who damages them."""
    return [model(*case).SerializeToString() for case in CASES.values()]


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    shape, opset, nodes = CASES[name]
    made = model(shape, opset, nodes)
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    x = RNG.standard_normal(shape).astype(np.float32)
    wanted, = session(made).run(None, {"x": x})
    graph = read_model(path)
    found, = session(to_onnx(graph)).run(None, {"x": x})
    assert np.abs(found - wanted).max() < 1e-3 and signal_to_noise(wanted, found) > 60


def test_a_type_that_the_file_states_of_sixteen_bits_goes_with_them(tmp_path: Path) -> None:
    made = model(*CASES["activations of 16 bits middle"])
    made.graph.value_info.extend([helper.make_tensor_value_info("q", TensorProto.UINT16, IMAGE),
                                  helper.make_tensor_value_info("d", TensorProto.FLOAT, IMAGE)])
    onnx.save(made, tmp_path / "model.onnx")
    assert write_in_onnx(made)
    assert [value.name for value in made.graph.value_info] == ["d"]
    assert read_model(tmp_path / "model.onnx").shapes["y"] == (1, 8, 6, 6)


@pytest.mark.parametrize("name", ["Gelu", "GroupNormalization 18", "activations of 16 bits low", "MatMulNBits"])
def test_the_machine_computes_it(name: str, tmp_path: Path) -> None:
    shape, opset, nodes = CASES[name]
    made = model(shape, opset, nodes)
    onnx.save(made, tmp_path / "model.onnx")
    x = RNG.standard_normal((4, *shape)).astype(np.float32)
    report = compile_model(tmp_path / "model.onnx", TABLES, tmp_path, calibration={"x": x})
    found = Session(Network.load(report.model_path)).run({"x": x[0]}).outputs["y"]
    wanted, = session(made).run(None, {"x": x[0]})
    assert signal_to_noise(wanted, found) > 40


@pytest.mark.parametrize(("nodes", "wanted"), [
    ([("QuantizeLinear", "x step middle", "y", {})], "type of zero point 'middle': found uint16"),
    ([("M.MatMulNBits", "x nibbles scales", "y", {"K": 33, "N": 16, "bits": 4, "block_size": 16})],
     "found an operator of 'com.microsoft'"),
    ([("M.FusedConv", "x kernel", "y", {"activation": "Nothing"})], "found an operator of 'com.microsoft'"),
    ([("M.MatMulNBits", "x nibbles scales nibble_zeros group", "y", {"K": 32, "N": 16, "bits": 4, "block_size": 16})],
     "found an operator of 'com.microsoft'"),
    *(([("M.FusedMatMul", "x matrix", "y", {name: 1})], "found an operator of 'com.microsoft'")
      for name in ("transA", "transBatchA", "transBatchB")),
    *(([("M.SkipLayerNormalization", "x x row other", outputs, {})], "found an operator of 'com.microsoft'")
      for outputs in ("y m", "y  v")),
    ([("DequantizeLinear", "wide step_below middle", "y", {})], "allowed: finite numbers above 0"),
    *(([("QuantizeLinear", "x step middle", "q", {}), ("DequantizeLinear", f"q {scale} {zero}", "y", {})],
       "type of zero point 'middle': found uint16")
      for scale, zero in (("step", "another"), ("larger_step", "middle"))),
    ([("QuantizeLinear", "x step middle", "y", {}), ("DequantizeLinear", "y step middle", "d", {})],
     "type of zero point 'middle': found uint16")])
def test_what_is_not_understood_is_refused(nodes: Nodes, wanted: str, tmp_path: Path) -> None:
    onnx.save(model(IMAGE, 21, nodes), tmp_path / "model.onnx")
    with pytest.raises(CompileError, match=wanted):
        read_model(tmp_path / "model.onnx")


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    """It went to the host without a word, as the machine has no such weights."""
    nodes: Nodes = [("M.FusedConv", "x kernel", "y", {"activation": "LeakyRelu", "activation_params": [float("nan")]})]
    onnx.save(model(IMAGE, 17, nodes), tmp_path / "model.onnx")
    with pytest.raises(CompileError, match="attribute alpha of node 'y', LeakyRelu: found NaN; allowed: numbers"):
        read_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("zeros", [False, True])
def test_numbers_of_two_bits_are_the_fourths_of_a_byte(zeros: bool, tmp_path: Path) -> None:
    """From its lowest bits up, minus 2 or the zero point of their block, of which a byte holds four too."""
    nodes: Nodes = [("M.MatMulNBits", "x pairs scales" + " pair_zeros" * zeros, "y", {
        "K": 32, "N": 16, "bits": 2, "block_size": 16})]
    onnx.save(model(ROWS, 17, nodes), tmp_path / "model.onnx")
    x = RNG.standard_normal(ROWS).astype(np.float32)
    found, = session(to_onnx(read_model(tmp_path / "model.onnx"))).run(None, {"x": x})
    wanted = np.empty((32, 16), np.float32)
    for (row, column), _ in np.ndenumerate(wanted):
        byte, block = WEIGHTS["pairs"][column, row // 16, row % 16 // 4], row // 16
        zero = int(WEIGHTS["pair_zeros"][column]) >> 2 * block & 3 if zeros else 2
        wanted[row, column] = ((int(byte) >> 2 * (row % 4) & 3) - zero) * WEIGHTS["scales"][2 * column + block]
    assert np.abs(found - x @ wanted).max() < 1e-4


def test_what_two_nodes_write_out_counts_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.frontend.rewriter.MOST_WRITTEN", 1000)
    nodes: Nodes = [("M.MatMulNBits", "x nibbles scales", "y", {"K": 32, "N": 16, "bits": 4, "block_size": 16}),
                    ("M.MatMulNBits", "x octets octet_scales", "z", {"K": 32, "N": 16, "bits": 8, "block_size": 16})]
    onnx.save(model(ROWS, 17, nodes), tmp_path / "model.onnx")
    with pytest.raises(CompileError, match="weights of few bits: found more than 1000 elements"):
        read_model(tmp_path / "model.onnx")


def test_weights_of_few_bits_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("weft.compiler.frontend.rewriter.MOST_WRITTEN", 500)
    onnx.save(model(*CASES["MatMulNBits"]), tmp_path / "model.onnx")
    with pytest.raises(CompileError, match="weights of few bits: found more than 500 elements"):
        read_model(tmp_path / "model.onnx")
