# SPDX-License-Identifier: Apache-2.0
"""Every refusal says what, found, allowed and the way out, and names the node."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.cli.options import override
from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tmodel.errors import ModelError
from weft.tmodel.manifest import TModel


def refusal(path: Path, arch: Arch = BASE, **options: Any) -> str:
    """The text of the error that compiling must raise; it has all four parts."""
    with pytest.raises(CompileError) as error:
        compile_model(path, arch, path.parent / "output", **options)
    text = str(error.value)
    assert all(part in text for part in (": found ", "; allowed: ", "; way out: ")), text
    assert not (path.parent / "output").exists()
    return text


def made(tmp_path: Path, build: Callable[[ModelMaker], object], shape: tuple[int, ...] = (1, 6, 9, 8)) -> Path:
    maker = ModelMaker(shape)
    build(maker)
    return maker.save(tmp_path / "model.onnx")


def test_missing_model(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.onnx")


@pytest.mark.parametrize("content", [b"", b"no protobuf at all", b"\x08\x07"])
def test_broken_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    assert "not a valid ONNX model" in refusal(path)


def test_old_opset(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), opset=6)
    maker.node("Relu", "x")
    assert "opset of the model: found 6; allowed: 7 to " in refusal(maker.save(tmp_path / "model.onnx"))


def shuffled_pixels(maker: ModelMaker) -> None:
    large = maker.node("Tile", "x", maker.constant(np.array([1, 1, 3, 3])))
    line = maker.node("Reshape", large, maker.constant(np.array([1, 6, 648])))
    mixed = maker.node("Gather", line, maker.constant(maker.random.permutation(648)), axis=2)
    maker.node("Conv", mixed, maker.normal(2, 6, 3))


CASES: dict[str, tuple[Callable[[ModelMaker], object], list[str]]] = {
    "operator": (lambda maker: maker.node("Sin", "x"), ["node 'sin0', operator Sin", "not supported", "MaxPool"]),
    "attribute": (lambda maker: maker.node("MaxPool", "x", kernel_shape=(2, 2), ceil_mode=2),
                  ["node 'maxpool0', operator MaxPool, attribute ceil_mode: found 2", "allowed: 0 or 1"]),
    "scales": (lambda maker: maker.node("Resize", "x", "", maker.constant(np.array([1, 1, 0.7, 1], np.float32)),
                                        mode="linear", coordinate_transformation_mode="align_corners"),
               ["node 'resize0', operator Resize, scales with align_corners", "whole sizes from [1, 6, 9, 8]"]),
    "lookup tables": (lambda maker: maker.node("Sigmoid", "x"),
                     ["node 'sigmoid0', operator Sigmoid, architecture keys: found lut_count 0, lut_depth 64, "
                      "simd_registers_depth 1", "lut_count at least 2", "simd_registers_depth at least 3",
                      "compile for arty100_lut or", "or ultra96 or ultra96_taps9 or zcu104"]),
    "quotient": (lambda maker: maker.node("Div", "x", maker.node("Relu", "x")),
                 ["node 'div1', operator Reciprocal, architecture keys: found lut_count 0, lut_depth 64"]),
    "rearrangement": (lambda maker: shuffled_pixels(maker), ["rearrangement of elements", "allowed: at most 256"]),
    "training": (lambda maker: maker.node("Dropout", "x", maker.constant(np.float32(0.5)), maker.constant(
        np.array(True))), ["operator Dropout, input 2", "allowed: False"]),
    "weights at run time": (lambda maker: maker.node("Conv", maker.normal(1, 6, 9, 9), "x"),
                            ["input 1 ('x')", "computed at run time", "a constant"]),
    "constant per pixel": (lambda maker: maker.node("Add", maker.node("Tile", "x", maker.constant(np.array(
        [1, 1, 8, 8]))), maker.normal(1, 1, 72, 64)), ["shape of a constant", "[1, 6, 72, 64]", "at most 4096 pixels"]),
    "infinite choice": (lambda maker: maker.node("Where", maker.constant(np.arange(8) < 5), "x", maker.constant(
        np.float32(-np.inf))), ["node 'where0', operator Where, constant", "finite numbers", "Softmax 20 below"]),
    "for the host": (lambda maker: maker.node("ArgMax", maker.node("Relu", maker.conv("x", 6, 5, (1, 1)))),
                     ["node 'argmax2', operator ArgMax: found not supported", "--host-fallback", "--end"]),
    "three dimensions": (lambda maker: maker.node("Conv", maker.node("Reshape", "x", maker.constant(
        np.array([1, 6, 9, 4, 2], np.int64))), maker.normal(2, 6, 3, 1, 1)), ["operator Conv, shape of input 0"]),
}


@pytest.mark.parametrize("name", CASES)
def test_unsupported(name: str, tmp_path: Path) -> None:
    build, words = CASES[name]
    text = refusal(made(tmp_path, build))
    assert all(word in text for word in words), text


def test_a_constant_that_leaves_no_bit_for_its_tensor(tmp_path: Path) -> None:
    """FixedPointParams would fall without end, until a power of two is no number any more."""
    path = made(tmp_path, lambda maker: maker.node("LeakyRelu", "x", alpha=1e9))
    assert "binary point of tensor 'x': found no bit left beside the constants" in refusal(path)


def test_the_way_to_value_tables_works(tmp_path: Path) -> None:
    """On a machine without them, with the settings that the message names."""
    path = made(tmp_path, lambda maker: maker.node("Sigmoid", maker.conv("x", 6, 5, (1, 1))))
    settings = re.findall(r"--set ([a-z_]+=[0-9]+)", refusal(path))
    assert len(settings) == 3
    compile_model(path, override(BASE, settings), tmp_path)


def test_open_dimension(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, "height", 8])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    assert "input 'x', dimension 2: found height" in refusal(path)
    assert "--shape x:1,3,224,8" in refusal(path)
    sample = {"x": np.ones((2, 3, 5, 8), np.float32)}
    report = compile_model(path, BASE, tmp_path, calibration=sample, shapes={"x": (1, 3, 5, 8)})
    assert [port.shape for port in TModel.load(report.model_path).outputs] == [(1, 3, 5, 8)]


def test_open_channels_are_told_as_the_weights_have_them(tmp_path: Path) -> None:
    """The way out compiles, of groups too."""
    path = made(tmp_path, lambda maker: maker.conv("x", 6, 4, (3, 3), group=2))
    model = onnx.load(path)
    for axis, name in enumerate(("n", "c", "height")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    onnx.save(model, path)
    text = refusal(path)
    assert "dimension 1: found c;" in text and "--shape x:1,6,224,8, for example" in text
    compile_model(path, BASE.replace(dram0_depth=1 << 22), tmp_path, shapes={"x": (1, 6, 224, 8)})


def test_nodes_of_one_name_get_names_of_their_own(tmp_path: Path) -> None:
    """Else the host would get all of them for the one that the machine does not compute."""
    path = made(tmp_path, lambda maker: maker.node("Cos", maker.conv("x", 6, 4, (3, 3))))
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = "n"
    onnx.save(model, path)
    report = compile_model(path, BASE, tmp_path, host_fallback=True)
    assert report.partition.machine_share == 1
    assert len({place.node for place in report.partition.places}) == 2


def test_an_output_that_is_a_constant(tmp_path: Path) -> None:
    """It is named, and the network compiles as the message says."""
    path = made(tmp_path, lambda maker: maker.node("Relu", "x"))
    model = onnx.load(path)
    end = model.graph.output[0].name
    model.graph.initializer.append(helper.make_tensor("c", TensorProto.FLOAT, [2], [1, 2]))
    model.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [2]))
    onnx.save(model, path)
    text = refusal(path)
    assert "output 'c': found a constant of the file" in text and f"--end {end}" in text
    compile_model(path, BASE, tmp_path, outputs=(end,))


@pytest.mark.parametrize("op", ["Relu", "Cos"])
def test_an_output_that_shapes_alone_decide(op: str, tmp_path: Path) -> None:
    """It is refused in the same way, whether the host has a part (Cos) or not."""
    maker = ModelMaker((1, 2, 4, 4))
    end = maker.node(op, maker.conv("x", 2, 3, (1, 1)))
    path = maker.save(tmp_path / "net.onnx", end, maker.node("Shape", end))
    with pytest.raises(CompileError, match=f"output 'shape2': found a constant, .*--end {end}$"):
        compile_model(path, BASE, tmp_path, host_fallback=True)
    compile_model(path, BASE, tmp_path, host_fallback=True, outputs=(end,))


def emptied(maker: ModelMaker, source: str, begin: int) -> str:
    return maker.node("Slice", source, *(maker.constant(np.array([number])) for number in (begin, 12, 2)))


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    """The network can end before it, or its input can be large enough. Fixed shapes it has already."""
    behind = made(tmp_path, lambda maker: emptied(maker, maker.node("Relu", "x"), 9))
    text = refusal(behind)
    end = re.search(r"--end (\S+)$", text)
    assert "found (1, 6, 0, 8); allowed: at least one element" in text and end
    compile_model(behind, BASE, tmp_path / "ended", outputs=(end[1],))
    first = made(tmp_path, lambda maker: maker.node("Relu", emptied(maker, "x", 9)))
    assert "way out: export the model again without it, or for a size of input at which" in refusal(first)
    compile_model(made(tmp_path, lambda maker: maker.node("Relu", emptied(maker, "x", 9)), (1, 6, 12, 8)), BASE,
                  tmp_path / "larger")


@pytest.mark.parametrize("others", [True, False])
def test_an_output_that_is_an_input(tmp_path: Path, others: bool) -> None:
    """It is named. The network compiles with its other outputs, or with an Identity before the input's copy."""
    path = made(tmp_path, lambda maker: maker.node("Relu", "x"))
    model = onnx.load(path)
    (end,) = model.graph.output
    if not others:
        del model.graph.node[:], model.graph.output[:]
    model.graph.output.append(model.graph.input[0])
    onnx.save(model, path)
    text = refusal(path)
    assert "output 'x': found an input of the model as it is; allowed: an output that a node computes" in text
    if others:
        assert text.endswith(f"--end {end.name}")
        compile_model(path, BASE, tmp_path, outputs=(end.name,))
    else:
        assert text.endswith("with an output that a node computes, be it Identity")
        compile_model(made(tmp_path, lambda maker: maker.node("Identity", "x")), BASE, tmp_path)


def test_integer_input(tmp_path: Path) -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "integers",
                              [helper.make_tensor_value_info("x", TensorProto.INT32, [1, 3])],
                              [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 3])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), path)
    assert "operator Relu, type of input 'x': found int32; allowed: float32" in refusal(path)


def test_no_simd_registers(tmp_path: Path) -> None:
    path = made(tmp_path, lambda maker: maker.node("MaxPool", "x", kernel_shape=(2, 2)))
    text = refusal(path, BASE.replace(simd_registers_depth=0))
    assert "node 'maxpool0', operator MaxPool, architecture key simd_registers_depth" in text and "at least 1" in text


def test_a_window_of_nothing_but_padding(tmp_path: Path) -> None:
    """Dilated, one row above the image and one below it (seed 107 of the machine ``odd`` of random networks)."""
    path = made(tmp_path, lambda maker: maker.node("MaxPool", "x", kernel_shape=(2, 1), dilations=(2, 1),
                                                   pads=(1, 0, 1, 0)), (1, 3, 1, 4))
    assert "node 'maxpool0', operator MaxPool, window of output row 0: found only padding" in refusal(path)


@pytest.mark.parametrize(("key", "depth", "least"), [
    ("local_depth", 8, 9), ("dram0_depth", 100, 116), ("dram1_depth", 30, 55)])
def test_memory_too_small(tmp_path: Path, key: str, depth: int, least: int) -> None:
    """The message names the parameter and the least that would do, and that is true."""
    def build(maker: ModelMaker) -> None:
        maker.node("MaxPool", maker.conv("x", 6, 6, (3, 3), bias=False), kernel_shape=(2, 2), strides=(2, 2))

    path = made(tmp_path, build, (1, 6, 10, 10))
    smallest = {"local_banks": 1, "accumulator_banks": 1}
    text = refusal(path, BASE.replace(**{key: depth}, **smallest))
    found = int(text.split("at least ")[1].split()[0])
    assert found == least and key in text and f"found {depth}" in text, text
    refusal(path, BASE.replace(**{key: found - 1}, **smallest))
    compile_model(path, BASE.replace(**{key: found}, **smallest), tmp_path)


def test_calibration_that_does_not_fit(tmp_path: Path) -> None:
    path = made(tmp_path, lambda maker: maker.node("Relu", "x"))
    assert "an array named 'x'" in refusal(path, calibration={"y": np.zeros((1, 6, 9, 8))})
    assert "[samples, 6, 9, 8]" in refusal(path, calibration={"x": np.zeros((1, 6, 9, 9))})


def test_without_calibration_there_is_a_warning(tmp_path: Path) -> None:
    path = made(tmp_path, lambda maker: maker.node("Relu", "x"))
    report = compile_model(path, BASE, tmp_path)
    assert any("no calibration inputs" in warning for warning in report.warnings)
    assert not compile_model(path, BASE, tmp_path, calibration={"x": np.ones((1, 6, 9, 8))}).warnings


# -- files of a compiled model -------------------------------------------------------------------------------------
@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    path = made(tmp_path, lambda maker: maker.conv("x", 6, 6, (3, 3)))
    return compile_model(path, BASE, tmp_path, calibration={"x": np.ones((1, 6, 9, 8))}).model_path


def load_error(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        TModel.load(path)
    assert "way out" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", [".tprog", ".tdata"])
def test_truncated_files(compiled: Path, suffix: str) -> None:
    path = compiled.with_suffix(suffix)
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert f"size of {path}: found {len(content) - 3} bytes; allowed: {len(content)} bytes" in load_error(compiled)
    path.unlink()
    assert f"{path}, named by model.tmodel: found no such file" in load_error(compiled)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{\"name\": 1"])
def test_broken_manifest(compiled: Path, content: str) -> None:
    compiled.write_text(content)
    assert "something unreadable" in load_error(compiled)


def test_missing_manifest(tmp_path: Path) -> None:
    assert "no such file" in load_error(tmp_path / "absent.tmodel")


def test_wrong_inputs(compiled: Path) -> None:
    model = TModel.load(compiled)
    with pytest.raises(ModelError, match=r"shape of input 'x': found \[6, 9, 9\]; allowed: \[1, 6, 9, 8\]"):
        model.pack_input("x", np.zeros((6, 9, 9)))
    with pytest.raises(ModelError, match="input of model model: found 'y'; allowed: 'x'"):
        model.pack_input("y", np.zeros((6, 9, 8)))
    with pytest.raises(ModelError, match="type of input 'x'"):
        model.pack_input("x", np.full((6, 9, 8), "a"))
    with pytest.raises(ModelError, match="vectors of output"):
        model.unpack_output(model.outputs[0].name, np.zeros((1, 8)))
