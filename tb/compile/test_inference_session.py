# SPDX-License-Identifier: Apache-2.0
"""weft.InferenceSession beside onnxruntime's own: the same script, the same words, close numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import weft
from weft.cli.inference_session import PROVIDER
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, ModelMaker, signal_to_noise

IGNORED = "of onnxruntime. ignored"


def network(maker: ModelMaker) -> tuple[str, str]:
    """Two outputs; the second has no leading 1, so that those of several samples have to be stacked."""
    made = maker.node("Relu", maker.conv("x", 3, 4, (3, 3)))
    return made, maker.node("Reshape", made, maker.constant(np.array([4, 36], np.int64)))


@pytest.fixture(scope="module")
def made() -> tuple[onnx.ModelProto, np.ndarray]:
    maker = ModelMaker((1, 3, 8, 8))
    return maker.model(*network(maker)), maker.random.standard_normal((3, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def session(made: tuple[onnx.ModelProto, np.ndarray]) -> weft.InferenceSession:
    model, samples = made
    return weft.InferenceSession(model, arch=BASE, calibrate={"x": samples})


def script(session: Any, image: np.ndarray) -> tuple[Any, ...]:
    """What a user of onnxruntime writes: all that it describes, and all outputs in three ways."""
    x, = session.get_inputs()
    outputs = session.get_outputs()
    said = [(entry.name, entry.shape, entry.type) for entry in (x, *outputs)]
    runs = [session.run(None, {x.name: image}), session.run([], {x.name: image}),
            session.run([entry.name for entry in outputs[::-1]], {x.name: image}, None)[::-1]]
    return said, runs


@pytest.mark.parametrize("given", ["path", "bytes", "model"])
@pytest.mark.filterwarnings("ignore:.*of onnxruntime")
def test_the_script_of_onnxruntime_runs(given: str, made: tuple[onnx.ModelProto, np.ndarray], tmp_path: Path) -> None:
    model, samples = made
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    what: Any = {"path": str(path), "bytes": path.read_bytes(), "model": model}[given]
    ours = weft.InferenceSession(what, None, ["CPUExecutionProvider"], arch=BASE, calibrate={"x": samples})
    theirs = onnxruntime.InferenceSession(path, None, ["CPUExecutionProvider"])
    (said, runs), (wanted_said, wanted) = (script(session, samples[:1]) for session in (ours, theirs))
    assert said == wanted_said
    for outputs, wanted_outputs in zip(runs, wanted, strict=True):
        for value, reference in zip(outputs, wanted_outputs, strict=True):
            assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
            assert signal_to_noise(reference, value) >= 45
    assert ours.get_providers() == [PROVIDER]


def test_several_samples_are_stacked(session: weft.InferenceSession, made: tuple[onnx.ModelProto, np.ndarray]) -> None:
    """Along a leading 1 they are joined; [4, 36] becomes [3, 4, 36], and never [12, 36]."""
    _, samples = made
    images, rows = session.run(None, {"x": samples})
    assert images.shape == (3, 4, 6, 6) and rows.shape == (3, 4, 36)
    for number, sample in enumerate(samples):
        image, row = session.run(None, {"x": sample[None]})
        assert np.array_equal(images[number], image[0]) and np.array_equal(rows[number], row)


def test_samples_of_an_input_without_a_leading_1() -> None:
    """One axis more counts samples, also of one."""
    maker = ModelMaker((4, 8))
    maker.node("MatMul", "x", maker.normal(8, 6))
    samples = maker.random.standard_normal((3, 4, 8)).astype(np.float32)
    session = weft.InferenceSession(maker.model(), arch=BASE, calibrate={"x": samples})
    made, = session.run(None, {"x": samples})
    assert made.shape == (3, 4, 6)
    for number, sample in enumerate(samples):
        one, = session.run(None, {"x": sample[None]})
        alone, = session.run(None, {"x": sample})
        assert np.array_equal(one, made[number:number + 1]) and np.array_equal(alone, made[number])


KINDS = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE,
         np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int32: TensorProto.INT32,
         np.int64: TensorProto.INT64}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_goes_in_and_out(kind: Any) -> None:
    """A network of any type, whose numbers are real inside: x -> Conv -> the type, as onnxruntime has them."""
    maker = ModelMaker((1, 3, 8, 8))
    made = maker.conv(maker.node("Cast", "x", to=TensorProto.FLOAT), 3, 4, (3, 3))
    model = maker.model(maker.node("Cast", made, to=KINDS[kind]))
    model.graph.input[0].type.tensor_type.elem_type = KINDS[kind]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, KINDS[kind], (1, 4, 6, 6)))
    samples = maker.random.integers(0, 5, (2, 3, 8, 8)).astype(kind)
    ours = weft.InferenceSession(model, arch=BASE, calibrate={"x": samples})
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    (said, runs), (wanted_said, wanted) = (script(session, samples[:1]) for session in (ours, theirs))
    assert said == wanted_said
    value, reference = runs[0][0], wanted[0][0]
    assert value.dtype == reference.dtype == kind
    step = 0.05 if np.dtype(kind).kind == "f" else 1
    assert np.abs(value.astype(float) - reference.astype(float)).max() <= step


@pytest.mark.parametrize(("feed", "words"), [
    ({"x": np.zeros((1, 3, 8, 8))}, "input 'x': found an array of float64; allowed: float32; way out: convert it: "
                                    r"array.astype\(numpy.float32\)"),
    ({"x": np.zeros((1, 3, 8, 8), np.int8)}, "input 'x': found an array of int8"),
    ({"x": np.zeros((3, 8, 8), np.float32)}, r"found an array of 3 dimensions, \[3, 8, 8\]; allowed: 4 dimensions"),
    ({"x": np.zeros((1, 3, 8, 9), np.float32)}, "input x: found shape"),
    ({"y": np.zeros((1, 3, 8, 8), np.float32)}, "input: found 'y'; allowed: 'x'"),
    ({}, "input 'x': found arrays none"),
    ({"x": [[1, 2], [3]]}, "a list that is no array of float32"),
    ({"x": None}, "input 'x': found an array of 0 dimensions"),
    (None, "inputs: found a NoneType; allowed: a dict of name and array"), ([1, 2], "inputs: found a list"),
])
def test_what_does_not_fit_is_refused(session: weft.InferenceSession, feed: Any, words: str) -> None:
    with pytest.raises(WeftError, match=words):
        session.run(None, feed)


def test_the_ways_out_work(session: weft.InferenceSession) -> None:
    array = np.ones((1, 3, 8, 8))
    one, _ = session.run(None, {"x": array.astype(np.float32)})
    listed, _ = session.run(None, {"x": array.tolist()})
    assert np.array_equal(one, listed)
    with pytest.raises(WeftError, match="output: found 'z'"):
        session.run(["z"], {"x": array.astype(np.float32)})


def test_what_is_onnxruntimes_alone_is_said_once(made: tuple[onnx.ModelProto, np.ndarray],
                                                 session: weft.InferenceSession) -> None:
    model, samples = made
    with pytest.warns(UserWarning) as told:
        weft.InferenceSession(model, onnxruntime.SessionOptions(), ["CUDAExecutionProvider"], [{}], arch=BASE,
                              calibrate={"x": samples})
    assert [str(one.message) for one in told] == [
        "sess_options, providers, provider_options of onnxruntime: ignored; `arch` says which machine computes, "
        "`device` where it runs"]
    with pytest.warns(UserWarning, match=f"run_options {IGNORED}"):
        session.run(None, {"x": samples}, onnxruntime.RunOptions())


def test_the_compilers_warnings_are_warnings(made: tuple[onnx.ModelProto, np.ndarray]) -> None:
    with pytest.warns(UserWarning, match="random"):
        weft.InferenceSession(made[0], arch=BASE)


def test_a_compiled_network(made: tuple[onnx.ModelProto, np.ndarray], session: weft.InferenceSession,
                            tmp_path: Path) -> None:
    model, samples = made
    path = weft.compile(model, BASE, tmp_path, calibrate={"x": samples}).model_path
    with weft.InferenceSession(path, device="golden") as loaded:
        assert loaded.get_inputs() == session.get_inputs()
        for one, other in zip(loaded.run(None, {"x": samples}), session.run(None, {"x": samples}), strict=True):
            assert np.array_equal(one, other)
    for wrong in ({"arch": BASE}, {"calibrate": {"x": samples}}, {"name": "other"}):
        with pytest.raises(WeftError, match=f"argument {next(iter(wrong))}: found a .tmodel, which is compiled"):
            weft.InferenceSession(path, **wrong)


@pytest.mark.parametrize("given", [b"no model", b"", "missing.onnx", "missing.tmodel"])
def test_what_is_no_model_is_refused(given: Any) -> None:
    with pytest.raises(WeftError, match="found .*; allowed: .*; way out: "):
        weft.InferenceSession(given)


def test_onnxruntimes_own_load_error_is_shown() -> None:
    """The backend gives what the machine does not take to the host, where it has to say why it fails."""
    maker = ModelMaker((1, 3, 8, 8))
    maker.node("Relu", "x")
    model = maker.model()
    model.graph.node[0].op_type, model.graph.node[0].domain = "Nonsense", "nowhere"
    model.opset_import.append(helper.make_opsetid("nowhere", 1))
    with pytest.raises(Exception, match="Nonsense") as theirs:
        onnxruntime.InferenceSession(model.SerializeToString())
    with pytest.warns(UserWarning, match="nothing of this model"), pytest.raises(WeftError) as ours:
        weft.backend.prepare(model, arch=BASE)
    assert str(theirs.value).split("\n")[0] in str(ours.value)
    assert "onnx's evaluator does not run it" in str(ours.value)
