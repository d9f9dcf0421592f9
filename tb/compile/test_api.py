# SPDX-License-Identifier: Apache-2.0
"""The Python interface: weft.compile, weft.Session as onnxruntime's, the ONNX backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.cli.main import exit_code
from weft.support.errors import WeftError
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
    assert not report.warnings and report.partition.machine_share == 1
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
    with pytest.raises(WeftError, match="input: found 'y'; allowed: 'x'; way out: name one of them"):
        session.run(None, {"x": samples, "y": samples})
    with pytest.raises(WeftError, match="input 'x': found arrays none"):
        session.run(None, {})
    for wrong in (samples[0], samples[None], samples.reshape(-1)):
        with pytest.raises(WeftError, match=r"input 'x': found an array of . dimensions.*4 dimensions, \[1, 3, 8, 8\], "
                                            r"or \[N, 3, 8, 8\] for N runs"):
            session.run(None, {"x": wrong})


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of which the host computes a part, as Python and the command line compile it by themselves."""
    folder = tmp_path_factory.mktemp("api")
    maker = ModelMaker((1, 3, 8, 8))
    path = maker.save(folder / "net.onnx", *network(maker))
    weft.compile(path, "tiny", folder / "python")
    assert exit_code(["compile", str(path), "-a", "tiny", "-o", str(folder / "command")]) == 0
    return folder


def test_python_and_the_command_line_have_one_default(compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The host computes what the machine does not; where that is not wanted it is an error, in both."""
    texts = [(compiled / name / "net.tmodel").read_text() for name in ("python", "command")]
    assert texts[0] == texts[1] and '"host"' in texts[0]
    path = compiled / "net.onnx"
    with pytest.raises(WeftError, match="operator Cos: found not supported") as error:
        weft.compile(path, "tiny", compiled / "refused", host_fallback=False)
    capsys.readouterr()
    assert exit_code(["compile", str(path), "-a", "tiny", "-o", str(compiled / "refused"), "--no-host-fallback"]) == 1
    assert capsys.readouterr().err == f"weft: {error.value}\n"
    assert exit_code(["compile", str(path), "-a", "tiny", "-o", str(compiled / "given"), "--host-fallback"]) == 0


@pytest.mark.parametrize("device", ["golden", "golden:tiny"])
def test_devices_that_need_nothing(device: str, compiled: Path) -> None:
    image = np.ones((1, 3, 8, 8), np.float32)
    expected = weft.Session(compiled / "python" / "net.tmodel").run(None, {"x": image})
    with weft.Session(compiled / "python" / "net.tmodel", device) as session:
        for value, wanted in zip(session.run(None, {"x": image}), expected, strict=True):
            assert np.array_equal(value, wanted)


@pytest.mark.parametrize("device", ["gpu", "golden:nonsense", "serial:", "udp", "mmio:", "golden?speed=1",
                                    "sim?seconds=x", "serial:/dev/null", "", "\x1b[31m"])
def test_devices_are_the_command_lines(device: str, compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What one refuses the other refuses with the same words."""
    path = compiled / "python" / "net.tmodel"
    np.savez(compiled / "x.npz", x=np.ones((1, 3, 8, 8), np.float32))
    with pytest.raises(WeftError) as error:
        weft.Session(path, device)
    capsys.readouterr()
    assert exit_code(["run", str(path), "--input", str(compiled / "x.npz"), "--on", device]) == 1
    assert capsys.readouterr().err == f"weft: {error.value}\n"


def test_a_model_in_memory(tmp_path: Path) -> None:
    maker = ModelMaker((1, 3, 8, 8))
    report = weft.compile(maker.model(*network(maker)), BASE, tmp_path, name="given")
    assert report.model_path == tmp_path / "given.tmodel"


@pytest.mark.parametrize("samples", [[np.zeros((1, 3, 8, 8))], np.zeros((2, 3, 8, 8)), "samples.npz"])
def test_calibration_that_has_no_names(samples: Any, tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="calibrate: found a .*; allowed: a dict of name and array; way out: "):
        weft.compile(ModelMaker((1, 3, 8, 8)).save(tmp_path / "any.onnx", "x"), "arty", tmp_path, calibrate=samples)


def test_the_onnx_backend() -> None:
    maker = ModelMaker((1, 3, 8, 8))
    model = maker.model(*network(maker))
    image = maker.random.standard_normal((1, 3, 8, 8)).astype(np.float32)
    relu, cosine = weft.backend.run_model(model, [image], arch=BASE)
    assert signal_to_noise(np.cos(relu), cosine) >= 45
    prepared = weft.backend.prepare(model, "CPU", arch=BASE, calibrate={"x": image})
    assert np.array_equal(prepared.run([image])[0], relu)
    known = {name for name in ("CPU", "golden", "serial:/dev/x", "CUDA") if weft.backend.supports_device(name)}
    assert known == {"CPU", "golden", "serial:/dev/x"}
    other = ModelMaker((1, 3, 8, 8))
    other.node("Cos", "x")
    assert not weft.backend.is_compatible(other.model(), arch=BASE)
    with pytest.warns(UserWarning, match="nothing left for the machine"):
        cosine, = weft.backend.run_model(other.model(), [image], arch=BASE)
    assert np.allclose(cosine, np.cos(image))
