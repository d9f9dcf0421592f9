# SPDX-License-Identifier: Apache-2.0
"""Frozen TensorFlow graphs against TensorFlow itself and against their ONNX twins: ``make test-tensorflow``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.frontend.tensorflow_reader import run_frozen
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.onnx_nodes import ARCH
from weft.tb.compile.run_model import run_golden, signal_to_noise
from weft.tb.shared import shared
from weft.tmodel.manifest import TModel

pytestmark = pytest.mark.long

CHANNELS = 6
SHAPE = (1, 9, 8, CHANNELS)


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="needs the extra tensorflow: make test-tensorflow")


# -- the models that exist in both forms -----------------------------------------------------------------------------
class Twin(NamedTuple):
    """The frozen graph's names."""

    input: str
    output: str


TWINS = {
    "fsrcnn_x2": Twin("IteratorGetNext", "NHWC_output"),
    "mlperf_tiny_resnet8": Twin("x", "Identity"),
    "mlperf_tiny_vww_mobilenetv1_025": Twin("x", "Identity"),
    "resnet20_cifar10": Twin("input", "logits"),
}


@pytest.mark.parametrize("name", TWINS)
def test_same_program_as_the_onnx_twin(name: str, tf: Any, tmp_path: Path) -> None:
    twin, path = TWINS[name], shared(f"models/{name}.onnx")
    images = np.load(path.with_suffix(".npz"))["input"].astype(np.float32)
    turned = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    reports = [
        compile_model(path, Arch.load("zcu104"), tmp_path / "onnx", calibration={"input": images}, host_fallback=True),
        compile_model(path.with_suffix(".pb"), Arch.load("zcu104"), tmp_path / "pb", outputs=(twin.output,),
                      calibration={twin.input: turned}, host_fallback=True)]
    assert reports[0].program_path.read_bytes() == reports[1].program_path.read_bytes()
    assert reports[0].data_path.read_bytes() == reports[1].data_path.read_bytes()
    models = [TModel.load(report.model_path) for report in reports]
    assert models[1].inputs[0].shape == (1, *turned.shape[1:])
    for number in range(2):
        expected, = run_golden(models[0], {"input": images[number]}).values()
        made = run_golden(models[1], {twin.input: turned[number]})
        found, = made.values()
        found = found.transpose(0, 3, 1, 2) if found.ndim == 4 else found
        np.testing.assert_array_equal(expected, found)
        final = models[1].run_host(made)
        wanted = run_frozen(path.with_suffix(".pb"), (twin.output,), {twin.input: turned[number:number + 1]})
        assert signal_to_noise(wanted[twin.output], final[twin.output]) > 45


# -- every operator that the original tools took from TensorFlow -------------------------------------------------------
def weights(tf: Any, *shape: int) -> Any:
    return tf.constant(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 3)


def conv(tf: Any, x: Any, channels: int = CHANNELS) -> Any:
    return tf.raw_ops.Conv2D(input=x, filter=weights(tf, 3, 3, int(x.shape[3]), channels), strides=[1, 1, 1, 1],
                             padding="SAME")


def batch_norm(tf: Any, x: Any) -> Any:
    numbers = [weights(tf, CHANNELS) ** 2 + 0.5 for _ in range(4)]
    return tf.raw_ops.FusedBatchNormV3(x=x, scale=numbers[0], offset=numbers[1], mean=numbers[2],
                                       variance=numbers[3], is_training=False).y


def shape_arithmetic(tf: Any, x: Any) -> Any:
    """Shape, StridedSlice, Pack, Cast: computed while compiling."""
    size = tf.shape(x)
    rows = tf.cast(tf.cast(size[1], tf.float32) * 1.0, tf.int32)
    return tf.reshape(x, tf.stack([size[0], rows * size[2], 1, size[3]]))


def tiled(tf: Any, x: Any) -> Any:
    return conv(tf, x + tf.tile(weights(tf, 1, 1, 1, CHANNELS // 2), [1, 1, 1, 2]))


GRAPHS: dict[str, Callable[[Any, Any], Any]] = {
    "Conv2D": conv,
    "BiasAdd": lambda tf, x: tf.nn.bias_add(conv(tf, x), weights(tf, CHANNELS)),
    "FusedBatchNormV3": batch_norm,
    "MatMul": lambda tf, x: tf.matmul(tf.reshape(x, [1, 9 * 8 * CHANNELS]), weights(tf, 9 * 8 * CHANNELS, 10)),
    "ResizeBilinear": lambda tf, x: tf.compat.v1.image.resize_bilinear(x, [18, 16], half_pixel_centers=True),
    "ResizeBilinear aligned": lambda tf, x: tf.compat.v1.image.resize_bilinear(x, [17, 15], align_corners=True),
    "MaxPool": lambda tf, x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
    "AvgPool": lambda tf, x: tf.nn.avg_pool2d(x, 3, 2, "SAME"),
    "Mean": lambda tf, x: tf.reduce_mean(conv(tf, x), [1, 2]),
    "Relu": lambda tf, x: tf.nn.relu(conv(tf, x)),
    "Relu6": lambda tf, x: tf.nn.relu6(conv(tf, x)),
    "LeakyRelu": lambda tf, x: tf.nn.leaky_relu(conv(tf, x), 0.1),
    "AddV2": lambda tf, x: conv(tf, x) + x,
    "ConcatV2": lambda tf, x: conv(tf, tf.concat([x, conv(tf, x, 5)], 3)),
    "Split": lambda tf, x: tf.add(*tf.split(conv(tf, x), 2, 3)),
    "SplitV": lambda tf, x: conv(tf, tf.split(conv(tf, x), [2, 4], 3)[1]),
    "Pad": lambda tf, x: conv(tf, tf.pad(x, [[0, 0], [1, 2], [3, 0], [0, 0]])),
    "Reshape": lambda tf, x: tf.reshape(conv(tf, x), [1, 9 * 8 * CHANNELS]),
    "Shape, StridedSlice, Pack, Cast": shape_arithmetic,
    "Tile": tiled,
}


def freeze(tf: Any, build: Callable[[Any, Any], Any], path: Path, shape: tuple[int | None, ...] = SHAPE) -> Path:
    """A graph with the placeholder ``x`` and the output ``y``."""
    with tf.Graph().as_default() as graph:
        tf.identity(build(tf, tf.compat.v1.placeholder(tf.float32, shape, "x")), name="y")
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.mark.parametrize("name", GRAPHS)
def test_operator(name: str, tf: Any, tmp_path: Path) -> None:
    path = freeze(tf, GRAPHS[name], tmp_path / "model.pb")
    sample = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    report = compile_model(path, ARCH, tmp_path, outputs=("y",), calibration={"x": sample})
    found = run_golden(TModel.load(report.model_path), {"x": sample})["y"]
    assert signal_to_noise(run_frozen(path, ("y",), {"x": sample})["y"], found) > 55


def test_open_batch(tf: Any, tmp_path: Path) -> None:
    path = freeze(tf, conv, tmp_path / "model.pb", (None, *SHAPE[1:]))
    assert read_model(path, ("y",)).inputs[0].shape == SHAPE


def test_command_line(tf: Any, tmp_path: Path) -> None:
    path = freeze(tf, conv, tmp_path / "model.pb")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((3, *SHAPE[1:])).astype(np.float32))
    assert exit_code(["compile", str(path), "-a", "arty", "-o", str(tmp_path), "--end", "y", "--calibrate",
                      str(tmp_path / "x.npz")]) == 0
    assert exit_code(["compile", str(path), "-a", "arty", "-o", str(tmp_path), "--end", "y", "--check"]) == 0
    assert exit_code(["run", str(tmp_path / "model.tmodel"), "--input", str(tmp_path / "x.npz")]) == 0


# -- mistakes --------------------------------------------------------------------------------------------------------
def refusal(path: Path, outputs: tuple[str, ...] = ("y",)) -> str:
    with pytest.raises(CompileError) as error:
        read_model(path, outputs)
    assert all(part in str(error.value) for part in (": found ", "; allowed: ", "; way out: ")), error.value
    return str(error.value)


def test_outputs_that_are_missing_or_unknown(tf: Any, tmp_path: Path) -> None:
    path = freeze(tf, conv, tmp_path / "model.pb")
    text = refusal(path, ())
    assert "found none named; allowed: names of nodes, such as 'y'; way out: add --end y" in text
    assert "--end: found 'z'" in refusal(path, ("z",)) and "its ends 'y'" in refusal(path, ("z",))


@pytest.mark.parametrize("content", [b"", b"no protobuf at all"])
def test_no_graph(content: bytes, tf: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(content)
    assert "not a TensorFlow graph" in refusal(path)


def test_variables(tf: Any, tmp_path: Path) -> None:
    path = freeze(tf, lambda tf, x: x * tf.compat.v1.get_variable("scale", [CHANNELS]), tmp_path / "model.pb")
    assert "a variable; allowed: constants; way out: freeze the graph" in refusal(path)


def test_operator_without_onnx_equivalent(tf: Any, tmp_path: Path) -> None:
    path = freeze(tf, lambda tf, x: tf.math.lgamma(conv(tf, x)), tmp_path / "model.pb")
    assert "operator Lgamma" in refusal(path)
