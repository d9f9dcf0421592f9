# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files of every kind that the reader takes, against LiteRT, TensorFlow Lite's own interpreter."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import load_model, read_model
from weft.compiler.frontend.tflite.operators import CONVERTERS, UNKNOWN
from weft.tb.compile.run_model import signal_to_noise
from weft.tb.compile.tflite_bytes import BYTES, int8_network, stored, words
from weft.tb.compile.tflite_files import INT32, FileMaker, LiteRt
from weft.tb.compile.tflite_floats import FLOATS, IMAGE, Make, conv, weights
from weft.tb.compile.tflite_streams import STREAMS, read_again, stream
from weft.tmodel.onnx_engine import session

LARGEST_ERROR = 1e-4
"""Of a float32 result, relative to the largest one."""


def made(make: Make, folder: Path) -> Path:
    file = FileMaker()
    make(file)
    return file.save(folder / "model.tflite")


def samples(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each input; real numbers above 0, for logarithms of them."""
    random, found = np.random.default_rng(seed), {}
    for value in session(model).get_inputs():
        if value.type == "tensor(float)":
            found[value.name] = random.uniform(0.1, 1, value.shape).astype(np.float32)
        else:
            kind = np.dtype(value.type[7:-1])
            found[value.name] = random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, value.shape).astype(kind)
    return found


def ran(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    engine = session(model)
    names = [entry.name for entry in engine.get_outputs()]
    return dict(zip(names, engine.run(names, inputs), strict=True))


HALVES = {"AVERAGE_POOL_2D of bytes", "RESIZE_BILINEAR of bytes"}
"""Their results are often a half of a byte, which TensorFlow Lite rounds away from 0 and ONNX to even."""


def insist_close(wanted: np.ndarray, found: np.ndarray, most_off: float = 0.03) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    largest = 1.0 if wanted.dtype.kind != "f" else LARGEST_ERROR * max(np.abs(wanted).max(), 1)
    error = np.abs(found.astype(np.float64) - wanted)
    assert error.max() <= largest
    assert wanted.dtype.kind == "f" or (error > 0).mean() < most_off


@pytest.mark.parametrize("name", [*FLOATS, *BYTES])
def test_the_model_gives_what_litert_gives(name: str, tmp_path: Path) -> None:
    """Bytes that differ are off by one: TensorFlow Lite rounds averages and tables in its own ways."""
    path = made({**FLOATS, **BYTES}[name], tmp_path)
    model = load_model(path)
    inputs = samples(model)
    wanted, found = LiteRt(path).run(inputs), ran(model, inputs)
    assert found.keys() == wanted.keys()
    for output in wanted:
        insist_close(wanted[output], found[output], 0.3 if name in HALVES else 0.03)
    read_model(path)  # the whole frontend takes it


@pytest.mark.parametrize("name", STREAMS)
def test_states_are_inputs_and_outputs(name: str, tmp_path: Path) -> None:
    """Four runs, each with the states that the one before left, as LiteRT keeps them by itself."""
    path = made(STREAMS[name], tmp_path)
    model, graph, oracle = load_model(path), read_model(path), LiteRt(path)
    assert graph.states and all(state.zero and state.output == f"{state.input}/next" for state in graph.states)
    ports = {port.name: port for port in graph.inputs}
    held = {state.input: np.full(ports[state.input].shape, getattr(ports[state.input].quantized, "zero", 0),
                                 ports[state.input].type) for state in graph.states}
    for seed in range(4):
        inputs = {key: value for key, value in samples(model, seed).items() if key not in held}
        found = ran(model, {**inputs, **held})
        for output, wanted in oracle.run(inputs).items():
            insist_close(wanted, found[output])
        held = {state.input: found[state.output] for state in graph.states}


def test_ends_are_what_is_asked_for(tmp_path: Path) -> None:
    """A tensor on the way brings no state along; a state may be an end too."""
    path = made(stream, tmp_path)
    cut = read_model(path, ["concatenation3"])
    assert [port.name for port in cut.outputs] == ["concatenation3"] and not cut.states
    kept = read_model(path, ["kept/next"])
    assert [port.name for port in kept.outputs] == ["kept/next"] and kept.states == (("kept/next", "kept", True),)
    assert {port.name for port in kept.inputs} == {"x", "kept"}
    with pytest.raises(CompileError, match="--end: found 'lost/next'"):
        read_model(path, ["lost/next"])


def test_an_end_without_states_reads_what_was_assigned_before(tmp_path: Path) -> None:
    path = made(read_again, tmp_path)
    cut = read_model(path, ["y"])
    assert [port.name for port in cut.inputs] == ["x", "kept"] and not cut.states
    x, kept = (np.random.default_rng(seed).uniform(0.1, 1, (1, 4)).astype(np.float32) for seed in range(2))
    found, = ran(load_model(path, ["y"]), {"x": x, "kept": kept}).values()
    np.testing.assert_allclose(found, (x + kept) * np.exp(kept), rtol=1e-6)
    assert [port.name for port in read_model(path, ["exp7"]).inputs] == ["kept"]


def test_an_image_stays_in_planes(tmp_path: Path) -> None:
    """From the input to the output no Transpose but the first and the last, whatever is done to the image."""
    def write(file: FileMaker) -> None:
        graph = file.main
        x = graph.input("x", IMAGE)
        wide = graph.run("PAD", [x, graph.constant([[0, 0], [1, 1], [1, 1], [0, 0]], INT32)], (1, 8, 9, 4))
        cut = graph.run("SLICE", [wide, graph.constant([0, 0, 1, 0], INT32), graph.constant([1, 8, 8, 4], INT32)],
                        (1, 8, 8, 4))
        total = graph.run("ADD", [conv(graph, cut, (1, 8, 8, 4), 4), cut], (1, 8, 8, 4))
        mean = graph.run("MEAN", [total, graph.constant([1, 2], INT32)], (1, 1, 1, 4), options={"KeepDims": True})
        gate = graph.run("LOGISTIC", [mean], (1, 1, 1, 4))
        joined = graph.run("CONCATENATION", [graph.run("MUL", [total, gate], (1, 8, 8, 4)), cut], (1, 8, 8, 8),
                           options={"Axis": 3})
        graph.run("RESIZE_BILINEAR", [joined, graph.constant([16, 16], INT32)], (1, 16, 16, 8))

    nodes = [node.op_type for node in load_model(made(write, tmp_path)).graph.node]
    assert nodes.count("Transpose") == 2 and nodes[0] == nodes[-1] == "Transpose"


def test_a_state_that_begins_elsewhere_is_told(tmp_path: Path) -> None:
    state, = read_model(made(partial(stream, first=0.5), tmp_path)).states
    assert not state.zero


def test_activations_of_sixteen_bits(tmp_path: Path) -> None:
    """The network of real numbers behind them, to half a step of what the file rounds to, twice."""
    path = made(words, tmp_path)
    model = load_model(path)
    assert {node.op_type for node in model.graph.node} == {"Transpose", "Conv", "Relu", "Add"}
    real = np.random.default_rng(0).uniform(-3, 3, (1, 6, 7, 4)).astype(np.float32)
    numbers = np.rint(real * 8192).clip(-32768, 32767).astype(np.int16)
    found, = ran(model, {"x": (numbers / 8192).astype(np.float32)}).values()
    wanted, = LiteRt(path).run({"x": numbers}).values()
    assert np.abs(found - wanted / 512).max() <= 1.5 / 512


def test_weights_of_four_bits(tmp_path: Path) -> None:
    """Two a byte, the lower half first."""
    numbers = np.arange(4 * 5).reshape(5, 4) % 16 - 8

    def write(kind: str, file: FileMaker) -> None:
        graph, halves = file.main, (numbers & 15).astype(np.uint8).reshape(-1, 2)
        data = halves[:, 0] | halves[:, 1] << 4 if kind == "int4" else numbers.astype(np.int8)
        known = graph.tensor("filter", (5, 4), kind, data=data, scale=0.1)
        graph.run("FULLY_CONNECTED", [graph.input("x", (1, 4)), known, graph.constant(weights(5))], (1, 5))

    four, eight = (load_model(made(partial(write, kind), tmp_path)) for kind in ("int4", "int8"))
    assert four == eight


def test_weights_of_half_a_real_number(tmp_path: Path) -> None:
    """bfloat16 is the upper half of float32."""
    def write(halves: bool, file: FileMaker) -> None:
        graph, real = file.main, (weights(5, 4).view(np.uint32) & 0xFFFF0000)
        data = (real >> 16).astype(np.uint16) if halves else real
        known = graph.tensor("filter", (5, 4), "bfloat16" if halves else "float32", data=data)
        graph.run("FULLY_CONNECTED", [graph.input("x", (1, 4)), known, graph.constant(weights(5))], (1, 5))

    half, whole = (load_model(made(partial(write, way), tmp_path)) for way in (True, False))
    assert half == whole


def test_a_bias_without_a_scale_has_that_of_the_products(tmp_path: Path) -> None:
    def write(scaled: bool, file: FileMaker) -> None:
        graph = file.main
        known = graph.constant(np.arange(20).reshape(5, 4) - 9, "int8", scale=0.25)
        bias = graph.constant(np.arange(5) * 100, INT32, scale=0.125 if scaled else None)
        x = graph.input("x", (1, 4), "int8", scale=0.5)
        graph.run("FULLY_CONNECTED", [x, known, bias], (1, 5), "int8", scale=1)

    without, scaled = (load_model(made(partial(write, way), tmp_path)) for way in (False, True))
    x = {"x": np.array([[100, -7, 50, 3]], np.int8)}
    (found,), (wanted,) = ran(without, x).values(), ran(scaled, x).values()
    np.testing.assert_array_equal(found, wanted)
    assert len(set(found.ravel().tolist())) == 5


def test_weights_of_bytes_between_real_numbers(tmp_path: Path) -> None:
    """LiteRT quantises what comes in on the way, which is left out here."""
    def write(file: FileMaker) -> None:
        graph = file.main
        numbers, scales = stored(weights(5, 8).reshape(1, -1))
        known = [graph.constant(numbers.reshape(5, 8), "int8", scale=scales), graph.constant(weights(5))]
        graph.run("FULLY_CONNECTED", [graph.input("x", (1, 8)), *known], (1, 5))

    path = made(write, tmp_path)
    model = load_model(path)
    assert [node.op_type for node in model.graph.node] == ["Gemm"]
    inputs = samples(model)
    (wanted,), (found,) = LiteRt(path).run(inputs).values(), ran(model, inputs).values()
    assert signal_to_noise(wanted, found) > 35


def test_mediapipes_transposed_convolution(tmp_path: Path) -> None:
    """The custom operator is TRANSPOSE_CONV with a bias, its inputs in another order."""
    def write(custom: bool, file: FileMaker) -> None:
        graph, shape = file.main, (1, 12, 14, 3)
        x, known = graph.input("x", IMAGE), [graph.constant(weights(3, 3, 3, 4)), graph.constant(weights(3))]
        if custom:
            graph.operator("Convolution2DTransposeBias", [x, *known], [graph.tensor("y", shape)],
                           custom=struct.pack("<iii", 1, 2, 2))
        else:
            graph.operator("TRANSPOSE_CONV", [graph.constant(shape, INT32), known[0], x, known[1]],
                           [graph.tensor("y", shape)], {"Padding": 0, "StrideW": 2, "StrideH": 2}, version=3)

    own, plain = (load_model(made(partial(write, custom), tmp_path)) for custom in (True, False))
    assert own == plain


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("code", "said"), [
    ("MaxPoolingWithArgmax2D", r"custom operator .* \(the maximum of each window, and where it lay"),
    ("TFLite_Detection_PostProcess", r"custom operator .* \(boxes from anchors"),
    ("SVDF", r"operator SVDF \(a filter over time"), ("Unheard", "custom operator Unheard, which is not read"),
    ("HASHTABLE_SIZE", "operator HASHTABLE_SIZE, which is not read")])
def test_an_operator_that_is_not_read_is_named(code: str, said: str, tmp_path: Path) -> None:
    def write(file: FileMaker) -> None:
        graph = file.main
        graph.operator(code, [graph.run("ABS", [graph.input("x", IMAGE)], IMAGE, name="before")],
                       [graph.tensor("y", IMAGE)], custom=b"")

    path = made(write, tmp_path)
    with pytest.raises(CompileError, match=rf"node 'y', operator {code}: found {said}.*allowed: ABS, ADD, .*way out: "
                                           "end the network before it with --end before"):
        read_model(path)
    assert [port.name for port in read_model(path, ["before"]).outputs] == ["before"]


def test_the_way_out_names_each_computed_input_once(tmp_path: Path) -> None:
    """No constants, which are no ends of a network."""
    def write(file: FileMaker) -> None:
        graph = file.main
        x = graph.input("x", IMAGE)
        first, other = (graph.run(code, [x], IMAGE, name=code.lower()) for code in ("ABS", "NEG"))
        graph.operator("Unheard", [first, graph.constant(weights(3)), other, first], [graph.tensor("y", IMAGE)],
                       custom=b"")

    with pytest.raises(CompileError) as error:
        read_model(made(write, tmp_path))
    assert " --end abs,neg, and" in str(error.value)


def _with(**changed: Any) -> Make:
    """A convolution, one thing of it wrong."""
    def write(file: FileMaker) -> None:
        graph = file.main
        x = graph.input("x", IMAGE, **changed.get("input", {}))
        known = [graph.constant(weights(3, 2, 2, 4), **changed.get("filter", {})), graph.constant(weights(3))]
        graph.run("CONV_2D", [x, *known[:changed.get("count", 2)]], changed.get("made", (1, 6, 7, 3)),
                  options={"StrideW": 1, "StrideH": 1, **changed.get("options", {})})

    return write


@pytest.mark.parametrize(("make", "said"), [
    (_with(made=(1, 6, 8, 3)), "shapes of the model file: found"),
    (_with(options={"Padding": 7}), "padding: found number 7"),
    (_with(options={"StrideW": 0}), "window: found"),
    (_with(options={"FusedActivationFunction": 5}), "fused activation: found number 5"),
    (_with(count=0), "lacks input 1"),
    (lambda file: int8_network(file, scale=float("nan")), "scale of tensor 'x': found nan"),
    (lambda file: int8_network(file, zero=300), "zero point of tensor 'x': found 300; allowed: -128 .. 127"),
])
def test_what_no_file_should_say_is_refused(make: Make, said: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=said):
        read_model(made(make, tmp_path))


OPEN_IMAGE = (-1, -1, -1, 4)


def _open(file: FileMaker) -> None:
    """Every operator that asks for the shape of its result, of an image of any size; all shapes are placeholders."""
    graph = file.main
    ones = (1, 1, 1, 4)
    x = graph.input("x", ones, signature=OPEN_IMAGE)
    kernel = graph.constant(weights(4, 3, 3, 4))
    made = graph.run("CONV_2D", [x, kernel, graph.constant(weights(4))], ones,
                     options={"StrideW": 2, "StrideH": 1, "Padding": 0})
    upper = graph.run("EXPAND_DIMS", [made, graph.constant(-2, INT32)], (1, 1, 1, 1, 4))
    flat = graph.run("SQUEEZE", [upper], ones, options={"SqueezeDims": [3]})
    large = graph.run("RESIZE_BILINEAR", [flat, graph.constant([12, 10], INT32)], ones)
    added = graph.run("ADD", [large, graph.run("ZEROS_LIKE", [large], ones)], ones)
    rows = graph.run("FULLY_CONNECTED", [added, graph.constant(weights(6, 4))], (1, 1, 1, 6),
                     options={"KeepNumDims": True})
    matrix = graph.run("RESHAPE", [rows, graph.constant([-1, 18], INT32)], (1, 18))
    halves = [graph.tensor(name, (1, 9)) for name in ("left", "right")]
    graph.operator("UNPACK", [graph.run("RESHAPE", [matrix, graph.constant([2, -1, 9], INT32)], (2, 1, 9))], halves,
                   {"Num": 2, "Axis": 0})
    pair = graph.run("PACK", halves, (1, 2, 9), options={"ValuesCount": 2, "Axis": 1})
    graph.outputs.append(graph.run("FULLY_CONNECTED", [pair, graph.constant(weights(5, 18))], (1, 5)))


@pytest.mark.parametrize("sizes", [(1, 6, 9, 4), (2, 5, 8, 4)])
def test_open_sizes_are_those_that_are_told(sizes: tuple[int, ...], tmp_path: Path) -> None:
    path = made(_open, tmp_path)
    oracle = LiteRt(path, sizes={"x": sizes})
    inputs = {"x": np.random.default_rng(0).standard_normal(sizes).astype(np.float32)}
    found, wanted = ran(load_model(path, shapes={"x": sizes}), inputs), oracle.run(inputs)
    assert found.keys() == wanted.keys()
    for output in wanted:
        insist_close(wanted[output], found[output])
    assert read_model(path, shapes={"x": sizes}).shapes["x"] == sizes


def _reshaped(signature: list[int]) -> Make:
    """A RESHAPE whose sizes stand in the result alone, of an image of any size."""
    return lambda file: file.main.run("RESHAPE", [file.main.input("x", IMAGE, signature=OPEN_IMAGE)], (1, 4),
                                      signature=signature)


def _sum(file: FileMaker) -> None:
    """An image of any size and one of a fixed size."""
    graph = file.main
    graph.run("ADD", [graph.input("x", IMAGE, signature=OPEN_IMAGE), graph.input("other", IMAGE)], IMAGE)


def test_a_shape_without_an_input_is_that_of_the_result(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 7, 4)).astype(np.float32)
    found, = ran(load_model(made(_reshaped([-1, 8]), tmp_path), shapes={"x": x.shape}), {"x": x}).values()
    np.testing.assert_array_equal(found, x.reshape(-1, 8))


def test_a_slice_to_the_end_of_an_open_size(tmp_path: Path) -> None:
    """LiteRT takes the placeholder for its size."""
    def write(file: FileMaker) -> None:
        graph, ends = file.main, [[0, 2, 0, 1], [-1, -1, 3, -1]]
        x = graph.input("x", (1, 1, 1, 4), signature=OPEN_IMAGE)
        graph.run("SLICE", [x, *(graph.constant(numbers, INT32) for numbers in ends)], (1, 1, 1, 3))

    x = np.random.default_rng(0).standard_normal((1, 6, 7, 4)).astype(np.float32)
    found, = ran(load_model(made(write, tmp_path), shapes={"x": x.shape}), {"x": x}).values()
    np.testing.assert_array_equal(found, x[:, 2:, :3, 1:])


def test_open_sizes_that_nobody_tells_are_those_of_the_file(tmp_path: Path) -> None:
    """As LiteRT allocates them."""
    path = made(_with(input={"signature": [1, -1, 7, 4]}), tmp_path)
    inputs = samples(load_model(path))
    assert inputs["x"].shape == IMAGE
    (wanted,), (found,) = LiteRt(path).run(inputs).values(), ran(load_model(path), inputs).values()
    insist_close(wanted, found)


@pytest.mark.parametrize(("make", "sizes", "said"), [
    (_open, (1, 6, 9), "--shape x: found 1,6,9; allowed: sizes that fit -1,-1,-1,4"),
    (_open, (1, 6, 9, 5), "--shape x: found 1,6,9,5; allowed: sizes that fit"),
    (_open, (1, 0, 9, 4), "--shape x: found 1,0,9,4; allowed: sizes that fit"),
    (_with(input={"signature": [1, -1, 7, 4]}, options={"Padding": 1}), (1, 1, 7, 4),
     "sizes of at least 1; way out: give other sizes of x with --shape"),
    (_reshaped([1, 4]), (1, 6, 7, 4), r"shape: found \[1, 4\] for \[1, 6, 7, 4\]; allowed: as many numbers"),
    (_reshaped([-1, -1]), (1, 6, 7, 4), r"shape: found \[-1, -1\] for .*at most one size open; way out: convert"),
    (_sum, (1, 5, 7, 4), "sizes of the inputs that fit this operator; way out: give other sizes of x, other with"),
    (lambda file: file.main.run("SPACE_TO_BATCH_ND", [
        file.main.input("x", IMAGE, signature=[1, -1, 7, 4]), file.main.constant([1, 7], INT32),
        file.main.constant([[0, 0], [0, 0]], INT32)], (7, 6, 1, 4), signature=[7, -1, 1, 4]), IMAGE,
     "fixed sizes, for this operator; way out: convert the network again with fixed shapes, or end"),
])
def test_open_sizes_that_do_not_fit(make: Make, sizes: tuple[int, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=said):
        load_model(made(make, tmp_path), shapes={"x": sizes})


@pytest.mark.parametrize("content", [b"", b"no flatbuffer at all", b"\x1c\0\0\0TFL3" + b"\xff" * 100])
def test_no_file_of_tensorflow_lite(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    said = "model.tflite: found not a TensorFlow Lite model, or a damaged one .*way out: convert"
    with pytest.raises(CompileError, match=said):
        read_model(path)


def test_neither_tensorflow_nor_its_converter_is_asked(tmp_path: Path) -> None:
    """In a process of its own, which another test cannot have filled."""
    path = made(FLOATS["CONV_2D, groups"], tmp_path)
    script = ("import sys, pathlib; from weft.compiler.frontend.reader import read_model; "
              "read_model(pathlib.Path(sys.argv[1])); assert not {'tensorflow', 'tf2onnx'} & sys.modules.keys()")
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


def test_the_documentation_lists_every_operator() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compiler.md").read_text()
    assert [code for code in CONVERTERS if not re.search(rf"\b{code}\b", page)] == []
    assert not CONVERTERS.keys() & UNKNOWN.keys()
