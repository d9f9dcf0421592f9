# SPDX-License-Identifier: Apache-2.0
"""Arguments of the Python interface that are of another type than it takes, and numbers that it warns of."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tmodel.network import Network

FOUR_PARTS = r"found .*; allowed: .*; way out: "
X = np.random.default_rng(3).standard_normal((4, 1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = ModelMaker((1, 3, 8, 8))
    maker.conv("x", 3, 4, (3, 3))
    return maker.save(tmp_path_factory.mktemp("arguments") / "net.onnx")


@pytest.fixture(scope="module")
def compiled(path: Path) -> Path:
    return weft.compile(path, BASE, path.parent, calibrate={"x": X}).model_path


@pytest.mark.parametrize(("given", "words"), [
    ({"model": None}, "the model: found a NoneType"), ({"model": io.BytesIO(b"")}, "the model: found a BytesIO"),
    ({"model": 3}, "the model: found a int"), ({"arch": None}, "arch: found a NoneType"),
    ({"arch": {"array_size": 8}}, "arch: found a dict"), ({"arch": b"pynq"}, "arch: found a bytes"),
    ({"folder": 3}, "folder: found a int"), ({"folder": b"out"}, "folder: found a bytes"),
    ({"folder": "a" * 300}, "output folder a*: found file name too long"),
    ({"calibrate": {3: X}}, "a name in calibrate: found a int"),
    ({"calibrate": {"x": [[1], [1, 2]]}}, "calibration array 'x': found what is no array"),
    ({"calibrate": {"x": iter(X)}}, "calibration array 'x': found a .*iterator"),
    ({"end": "y"}, "option of weft.compile: found end; allowed: name, "),
    ({"calibration": {"x": X}}, "option of weft.compile: found calibration"),
    ({"output": ["y"]}, "way out: did you mean outputs?"), ({"outputs": "y"}, "option outputs: found 'y'"),
    ({"shapes": {"x": "1,3,8,8"}}, "option shapes: found "), ({"shapes": [1]}, "option shapes"),
    ({"fixed": 3}, "option fixed"), ({"name": 3}, "option name"), ({"dump_dir": 3}, "option dump_dir"),
    ({"watch": 3}, "option watch"), ({"input_cycles": float("nan")}, "option input_cycles: found nan"),
])
def test_a_wrong_argument_of_compile_is_refused(given: dict[str, Any], words: str, path: Path, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=f"(?=.*{words}).*{FOUR_PARTS}"):
        weft.compile(**{"model": path, "arch": BASE, "folder": tmp_path, "calibrate": {"x": X}, **given})
    assert not [*tmp_path.iterdir()]


def test_a_compiled_network_is_not_compiled_again(compiled: Path, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=f"found a network that is compiled; .*; way out: run it: weft run {compiled} "):
        weft.compile(compiled, BASE, tmp_path)


def test_what_is_taken(path: Path, tmp_path: Path) -> None:
    """Bytes of any kind, paths of any kind, lists, sizes of numpy's."""
    contents: list[Any] = [bytearray(path.read_bytes()), memoryview(path.read_bytes()), str(path)]
    for number, content in enumerate(contents):
        report = weft.compile(content, BASE, str(tmp_path / str(number)), calibrate={"x": X.tolist()},
                              shapes={"x": np.array(X[0].shape)})
        assert weft.Session(report.model_path).run(None, {"x": X[0]})[0].shape == (1, 4, 6, 6)


@pytest.mark.parametrize("model", [None, 3, b"net.tmodel", {}])
def test_what_is_no_compiled_network_is_refused(model: Any) -> None:
    with pytest.raises(WeftError, match="compiled network: found a .*; allowed: a .tmodel"):
        weft.Session(model)


@pytest.mark.parametrize("device", [None, 3, ["golden"]])
def test_what_is_no_device_is_refused(device: Any, compiled: Path) -> None:
    with pytest.raises(WeftError, match="device: found a .*; allowed: golden"):
        weft.Session(compiled, device)


@pytest.mark.parametrize(("names", "words"), [(5, "output names: found a int"), ("conv1", "output names: found a str"),
                                              ([3], "output: found 3"), ([None], "output: found None")])
def test_names_of_outputs_are_a_list(names: Any, words: str, compiled: Path) -> None:
    with pytest.raises(WeftError, match=words):
        weft.Session(compiled).run(names, {"x": X[0]})


class Ungiving:
    """An array of another library that numpy cannot have."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("call detach() first")

    def shape(self) -> None:
        """Stand for what an array has as an attribute, and a value of onnxruntime as a method."""


@pytest.mark.parametrize(("value", "words"), [
    (Ungiving(), "call detach"), (iter(X), "a .*iterator"), ([[1], [1, 2]], "what is no array")])
def test_what_is_no_array_is_refused(value: Any, words: str, compiled: Path) -> None:
    with pytest.raises(WeftError, match=f"input 'x': found .*{words}.*; allowed: an array"):
        weft.Session(compiled).run(None, {"x": value})


def test_values_beyond_calibration_are_warned_of_once(compiled: Path) -> None:
    session = weft.Session(compiled)
    with pytest.warns(UserWarning) as told:
        session.run(None, {"x": X[0] * 1e9})
    assert "values are beyond its range; compile again" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, {"x": X[0] * 1e9})
        weft.Session(compiled).run(None, {"x": X[0]})


@pytest.mark.parametrize("kind", ["FP16BP8", "INT8"])
@pytest.mark.parametrize("largest", [np.float32(3e38), np.float64(1e300), np.longdouble("1e4000")])
def test_the_largest_numbers_are_warned_of_by_name_alone(largest: np.floating, kind: str, path: Path,
                                                         tmp_path: Path) -> None:
    """And not by numpy, which would print its own warning with the path of a source."""
    report = weft.compile(path, BASE.replace(data_type=kind), tmp_path, calibrate={"x": X})
    with pytest.warns(UserWarning) as told:
        weft.Session(report.model_path).run(None, {"x": np.sign(X[0]) * largest})
    assert {one.category for one in told} == {UserWarning}
    assert "input x: " in str(told[0].message)


def test_a_network_of_poor_numbers_is_warned_of_when_it_is_loaded(compiled: Path, tmp_path: Path) -> None:
    from weft.compiler.check.quality import record

    copy = tmp_path / compiled.name
    for file in compiled.parent.glob("net.t*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    record(copy, 3.0)
    with pytest.warns(UserWarning, match="poor numbers: 3.0 dB"):
        weft.Session(copy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.Session(Network.load(copy))  # whoever has it in memory was told by the compiler
