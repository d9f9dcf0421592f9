"""TensorFlow Lite files, of real numbers and of bytes, against TensorFlow Lite itself: ``make test-tensorflow``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.runtime.network import Network
from weft.runtime.session import Session
from weft.tb.compile.layer_bytes import Watch, insist
from weft.tb.compile.run_model import BASE, signal_to_noise

ARCH = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)
SHAPE = (1, 12, 10, 6)
SAMPLES = np.random.default_rng(0).standard_normal((8, *SHAPE)).astype(np.float32)
KINDS = ("float", "float around bytes", "int8", "uint8")
"""What goes in and out; ``uint8`` has one scale for all of a layer's weights, others one for each output channel."""


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="needs the extra tensorflow: make test-tensorflow")


def network(tf: Any) -> Any:
    """Limits, depthwise taps, a residual sum, both pools in one tensor, a table, a mean, a matrix."""
    random = np.random.default_rng(1)

    def weights(*shape: int) -> Any:
        return tf.constant((random.standard_normal(shape) / 3).astype(np.float32))

    numbers = [weights(*shape) for shape in ((3, 3, 6, 8), (8,), (3, 3, 8, 1), (1, 1, 8, 8), (16, 5))]

    @tf.function
    def run(x: Any) -> Any:
        first = tf.nn.relu6(tf.nn.conv2d(x, numbers[0], 2, "SAME") + numbers[1])
        deep = tf.nn.relu(tf.nn.depthwise_conv2d(first, numbers[2], [1, 1, 1, 1], "SAME"))
        total = first + tf.nn.conv2d(deep, numbers[3], 1, "SAME")
        both = tf.concat([tf.nn.max_pool2d(total, 2, 2, "VALID"), tf.nn.avg_pool2d(total, 2, 2, "VALID")], 3)
        return tf.matmul(tf.reduce_mean(tf.nn.sigmoid(both), [1, 2]), numbers[4])

    return run.get_concrete_function(tf.TensorSpec(SHAPE, tf.float32, "x"))


@pytest.fixture(scope="module")
def files(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The network, converted in each kind."""
    folder, function, found = tmp_path_factory.mktemp("tflite"), network(tf), {}
    for kind in KINDS:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
        if kind != "float":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([sample] for sample in SAMPLES)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        if kind in ("int8", "uint8"):
            converter.inference_input_type = converter.inference_output_type = getattr(tf, kind)
            converter._experimental_disable_per_channel = kind == "uint8"
        found[kind] = folder / f"{kind.replace(' ', '_')}.tflite"
        found[kind].write_bytes(converter.convert())
    return found


def of_tflite(tf: Any, path: Path, sample: np.ndarray) -> np.ndarray:
    """What TensorFlow Lite's own reference operators compute."""
    interpreter = tf.lite.Interpreter(model_path=str(path), experimental_op_resolver_type=tf.lite.experimental.
                                      OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def samples_of(path: Path) -> np.ndarray:
    """``SAMPLES`` as the network takes them."""
    port, = read_model(path).inputs
    if port.quantized is None:
        return SAMPLES
    shift = 128 if port.type == "uint8" else 0
    return (port.quantized.quantize(SAMPLES) + shift).astype(port.type)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_tensorflow_lite_does(kind: str, tf: Any, files: dict[str, Path], tmp_path: Path) -> None:
    """Bytes that differ are off by one; TensorFlow Lite rounds multipliers to 31 bits and shifts twice."""
    path, samples, watch = files[kind], samples_of(files[kind]), Watch()
    source, output = (port.name for ports in (read_model(path).inputs, read_model(path).outputs) for port in ports)
    report = compile_model(path, ARCH, tmp_path, calibration={source: samples[:, 0]}, watch=watch.after)
    assert not report.warnings
    session = Session(Network.load(report.model_path))
    for sample in samples[:4]:
        wanted, found = of_tflite(tf, path, sample), session.run({source: sample}).outputs[output]
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        if kind == "float":
            assert signal_to_noise(wanted, found) > 25
            continue
        insist([watch.differences({source: sample})])
        step = 1 if kind in ("int8", "uint8") else np.abs(wanted).max() / 127
        assert np.abs(found.astype(float) - wanted).max() <= 2 * step
        assert found.argmax() == wanted.argmax()


@pytest.mark.long
def test_command_line(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-a", "arty", "--set", "data_type=INT8", "--set", "lut_count=1", "--set", "lut_depth=256",
               "--set", "simd_registers_depth=2", "--check"]
    assert exit_code(["compile", str(files["int8"]), *options, "-o", str(tmp_path)]) == 0
    assert exit_code(["compile", str(files["int8"]), *options, "-o", str(tmp_path), "--end", "nowhere"]) == 1
    assert "--output: found 'nowhere'" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("content", [b"", b"no flatbuffer at all", b"\x1c\0\0\0TFL3" + b"\xff" * 100])
def test_no_file_of_tensorflow_lite(content: bytes, tf: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    with pytest.raises(CompileError, match="not a TensorFlow Lite model, or a damaged one .*way out: convert"):
        read_model(path)


@pytest.mark.long
def test_damaged_files(tf: Any, files: dict[str, Path], tmp_path: Path) -> None:
    """Cut off, and with bytes that are wrong: one message, or a network."""
    content, path = files["int8"].read_bytes(), tmp_path / "model.tflite"
    random = np.random.default_rng(3)
    for trial in range(12):
        damaged = bytearray(content[:int(random.integers(8, len(content)))] if trial % 2 else content)
        for place in random.integers(8, len(damaged), 8):
            damaged[place] = int(random.integers(256))
        path.write_bytes(damaged)
        try:
            read_model(path)
        except CompileError as error:
            assert ": found " in str(error) and "; way out: " in str(error)


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(CompileError, match=r"TensorFlow Lite file: found no Python package tensorflow; allowed: .*"
                                           r"way out: pip install 'weft\[tensorflow\]'"):
        read_model(path)
