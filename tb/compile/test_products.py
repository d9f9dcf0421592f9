"""Products of matrices that are both computed: against onnxruntime, on machines where they fit and where they split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.compiler.manifest import TModel
from weft.compiler.pipeline import compile_model
from weft.compiler.run.check import Checker
from weft.hw.arch import Arch
from weft.tb.compile.network_rule import SMALL
from weft.tb.compile.run_model import BASE, run_float, run_golden, signal_to_noise

ARCHS = {"2 lanes": BASE.replace(array_size=2, local_depth=128, accumulator_depth=32),
         "3 lanes": BASE.replace(array_size=3, local_depth=384, accumulator_depth=48), "8 lanes": BASE}
EACH_ARCH = pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
SHAPES = [
    ((9, 13), (13, 10)),
    ((1, 20), (20, 5)),
    ((6, 1), (1, 7)),
    ((4,), (4, 9)),
    ((5, 11), (11,)),
    ((17,), (17,)),
    ((1, 7, 10), (1, 10, 6)),
    ((3, 4, 10), (3, 10, 5)),
    ((2, 3, 4, 5), (3, 5, 6)),
    ((3, 4, 9), (9, 5)),
    ((4, 9), (3, 9, 5)),
    ((2, 1, 4, 5), (3, 5, 2)),
]
"""Of both factors: sizes that lanes do not divide, single rows and columns, vectors, stacks, broadcast stacks."""


def save(path: Path, shapes: dict[str, tuple[int, ...]], nodes: list[onnx.NodeProto]) -> Path:
    """A network with an input for each name, whose last node makes its output."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = onnx.ValueInfoProto(name=nodes[-1].output[0])
    model = helper.make_model(helper.make_graph(nodes, "made", inputs, [output]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def sample(shape: tuple[int, ...], seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return values[0] if len(shape) > 1 and shape[0] == 1 else values


def insist(path: Path, arch: Arch, shapes: dict[str, tuple[int, ...]], decibels: float = 60) -> TModel:
    """``--check`` finds no fault, and the golden machine answers as onnxruntime does."""
    given = {name: sample(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    checker = Checker()
    report = compile_model(path, arch, path.parent, calibration={name: value[None] for name, value in given.items()},
                           watch=checker.after)
    checker.insist()
    model = TModel.load(report.model_path)
    expected = run_float(path, {name: value.reshape(shapes[name]) for name, value in given.items()})
    found = run_golden(model, given)
    for name, value in expected.items():
        assert signal_to_noise(value, found[name]) >= decibels, name
    return model


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@EACH_ARCH
def test_product_of_inputs(left: tuple[int, ...], right: tuple[int, ...], arch: Arch, tmp_path: Path) -> None:
    shapes = {"a": left, "b": right}
    insist(save(tmp_path / "model.onnx", shapes, [helper.make_node("MatMul", ["a", "b"], ["y"])]), arch, shapes)
