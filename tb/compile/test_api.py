"""The Python interface: weft.compile, weft.Session as onnxruntime's, the ONNX backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.hw.contract.errors import WeftError
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise


def network(maker: ModelMaker) -> tuple[str, str]:
    """Two outputs, one of the host."""
    made = maker.node("Relu", maker.conv("x", 3, 4, (3, 3)))
    return made, maker.node("Cos", made)


def test_compile_and_run(tmp_path: Path) -> None:
    maker = ModelMaker((1, 3, 8, 8))
    path = maker.save(tmp_path / "net.onnx", *network(maker))
    samples = maker.random.standard_normal((3, 3, 8, 8)).astype(np.float32)
    report = weft.compile(path, BASE, tmp_path, calibrate={"x": samples})
    assert not report.warnings and report.division.machine_share == 1
    session = weft.Session(report.model_path, device="golden")
    assert [(tensor.name, tensor.type, tensor.shape) for tensor in session.get_inputs()] == [
        ("x", "float32", (1, 3, 8, 8))]
    names = [tensor.name for tensor in session.get_outputs()]
    wanted = run_float(path, {"x": samples[:1]})
    assert names == list(wanted)
    for name, value in zip(names, session.run(None, {"x": samples[:1]}), strict=True):
        assert value.shape == wanted[name].shape and signal_to_noise(wanted[name], value) >= 45
    last, = session.run(names[1:], {"x": samples})
    assert len(last) == 3
    with pytest.raises(WeftError, match="output: found 'z'; allowed: 'relu1', 'cos2'"):
        session.run(["z"], {"x": samples})
    with pytest.raises(WeftError, match="input 'x': found arrays 'y'"):
        session.run(None, {"y": samples})
    with pytest.raises(WeftError, match="device: found 'gpu'"):
        weft.Session(report.model_path, device="gpu")


def test_a_model_in_memory(tmp_path: Path) -> None:
    maker = ModelMaker((1, 3, 8, 8))
    report = weft.compile(maker.model(*network(maker)), BASE, tmp_path, name="given")
    assert report.model_path == tmp_path / "given.tmodel"


def test_the_onnx_backend() -> None:
    maker = ModelMaker((1, 3, 8, 8))
    model = maker.model(*network(maker))
    image = maker.random.standard_normal((1, 3, 8, 8)).astype(np.float32)
    relu, cosine = weft.backend.run_model(model, [image], arch=BASE)
    assert signal_to_noise(np.cos(relu), cosine) >= 45
    prepared = weft.backend.prepare(model, "CPU", arch=BASE, calibrate={"x": image})
    assert np.array_equal(prepared.run([image])[0], relu)
    assert weft.backend.supports_device("golden") and not weft.backend.supports_device("CUDA")
    other = ModelMaker((1, 3, 8, 8))
    other.node("Cos", "x")
    assert not weft.backend.is_compatible(other.model(), arch=BASE)
    with pytest.warns(UserWarning, match="nothing left for the machine"):
        cosine, = weft.backend.run_model(other.model(), [image], arch=BASE)
    assert np.allclose(cosine, np.cos(image))
