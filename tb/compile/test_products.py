# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that are both computed: against onnxruntime, on machines where they fit and where they split."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.compiler.check.checker import Checker
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, check_model, run_float, run_golden, signal_to_noise
from weft.tb.random.network_rule import SMALL
from weft.tmodel.manifest import TModel

ARCHS = {"2 lanes": BASE.replace(array_size=2, local_depth=128, accumulator_depth=32),
         "3 lanes": BASE.replace(array_size=3, local_depth=384, accumulator_depth=48), "8 lanes": BASE}
Shape = tuple[int, ...]
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


def save(path: Path, shapes: dict[str, Shape], nodes: list[onnx.NodeProto]) -> Path:
    """A network with an input for each name, whose last node makes its output."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = onnx.ValueInfoProto(name=nodes[-1].output[0])
    model = helper.make_model(helper.make_graph(nodes, "made", inputs, [output]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def sample(shape: Shape, seed: int) -> np.ndarray:
    values = np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)
    return values[0] if len(shape) > 1 and shape[0] == 1 else values

ROW_DECIBELS = 58
"""Each product of a row's elements is rounded before they are summed."""


def insist(path: Path, arch: Arch, shapes: dict[str, Shape], decibels: float = 60) -> TModel:
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
def test_product_of_inputs(left: Shape, right: Shape, arch: Arch, tmp_path: Path) -> None:
    shapes = {"a": left, "b": right}
    decibels = ROW_DECIBELS if 1 in (len(left), len(right)) else 60
    insist(save(tmp_path / "model.onnx", shapes, [helper.make_node("MatMul", ["a", "b"], ["y"])]), arch, shapes,
           decibels)


# -- inside a network --------------------------------------------------------------------------------------------------
Factor = Callable[[ModelMaker, int, int], str]


def straight(maker: ModelMaker, rows: int, columns: int) -> str:
    """A matrix of some elements of the image, its rows as pixels."""
    name = maker.node("Reshape", maker.node("Relu", maker.conv("x", 6, columns, (1, 1))), ints(maker, columns, 72))
    return cut(maker, maker.node("Transpose", name, perm=(1, 0)), rows)


def crossed(maker: ModelMaker, rows: int, columns: int) -> str:
    """The same with rows as channels."""
    name = maker.node("Reshape", maker.node("Relu", maker.conv("x", 6, rows, (1, 1))), ints(maker, rows, 72))
    return cut(maker, name, columns, axis=1)


def constant(maker: ModelMaker, rows: int, columns: int) -> str:
    return maker.normal(rows, columns)


def cut(maker: ModelMaker, name: str, count: int, axis: int = 0) -> str:
    return maker.node("Slice", name, ints(maker, 3), ints(maker, 3 + count), ints(maker, axis))


def ints(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


@pytest.mark.parametrize("factors", [(straight, straight), (straight, crossed), (crossed, straight),
                                     (crossed, crossed), (constant, straight), (constant, crossed)],
                         ids=lambda factors: "_".join(factor.__name__ for factor in factors))
@EACH_ARCH
def test_product_in_a_network(factors: tuple[Factor, Factor], arch: Arch, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=3)
    left, right = (factor(maker, *size) for factor, size in zip(factors, ((7, 19), (19, 11)), strict=True))
    maker.node("Relu", maker.node("MatMul", left, right))
    insist_made(maker, arch, tmp_path)


def insist_made(maker: ModelMaker, arch: Arch, folder: Path, decibels: float = 60) -> None:
    insist(maker.save(folder / "model.onnx"), arch, {"x": maker.shape}, decibels)


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm_of_computed_factors(transposed: tuple[int, int], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=4)
    sizes = (10, 5), (5, 9)
    left, right = (straight(maker, *(size[::-1] if swap else size))
                   for size, swap in zip(sizes, transposed, strict=True))
    maker.node("Gemm", left, right, straight(maker, 1, 9), transA=transposed[0], transB=transposed[1], alpha=0.5,
               beta=2.0)
    insist_made(maker, BASE, tmp_path)


@pytest.mark.parametrize("computed", ["left", "right", "bias"])
def test_gemm_with_one_computed_input(computed: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=5)
    left, right, bias = (straight(maker, *size) if name == computed else maker.normal(*size)
                         for name, size in (("left", (10, 5)), ("right", (5, 9)), ("bias", (10, 9))))
    maker.node("Gemm", left, right, bias, alpha=0.5, beta=2.0)
    insist_made(maker, BASE, tmp_path)


def test_gemm_with_an_input_of_one_number(tmp_path: Path) -> None:
    shapes: dict[str, Shape] = {"a": (5, 4), "b": (4, 7), "c": ()}
    insist(save(tmp_path / "model.onnx", shapes, [helper.make_node("Gemm", ["a", "b", "c"], ["y"])]), BASE, shapes)


def test_product_of_a_tensor_with_itself(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=6)
    name = straight(maker, 13, 13)
    maker.node("MatMul", name, name)
    insist_made(maker, BASE, tmp_path)


def test_sums_beyond_the_accumulators(tmp_path: Path) -> None:
    """Accumulators as narrow as the data type: both factors give up bits, and what is left is right."""
    maker = ModelMaker((1, 6, 9, 8), seed=7)
    maker.node("MatMul", straight(maker, 20, 19), straight(maker, 19, 11))
    insist_made(maker, BASE.replace(accumulator_width=24), tmp_path, 45)


# -- attention ---------------------------------------------------------------------------------------------------------
TOKENS, WIDTH, HEADS = 10, 12, 2


def line(maker: ModelMaker, source: str, inputs: int, outputs: int) -> str:
    weights = maker.constant((maker.random.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32))
    return maker.node("Add", maker.node("MatMul", source, weights), maker.normal(outputs))


def head(maker: ModelMaker, source: str, perm: tuple[int, ...]) -> str:
    name = maker.node("Reshape", line(maker, source, WIDTH, WIDTH), ints(maker, 1, TOKENS, HEADS, WIDTH // HEADS))
    return maker.node("Transpose", name, perm=perm)


def scores(maker: ModelMaker) -> str:
    product = maker.node("MatMul", head(maker, "x", (0, 2, 1, 3)), head(maker, "x", (0, 2, 3, 1)))
    return maker.node("Mul", product, maker.constant(np.float32(0.4)))


def encoder_block(maker: ModelMaker) -> None:
    """Attention of several heads with ReLU in place of Softmax, and what stands around it."""
    weights = maker.node("Mul", maker.node("Relu", scores(maker)), maker.constant(np.float32(1 / TOKENS)))
    mixed = maker.node("MatMul", weights, head(maker, "x", (0, 2, 1, 3)))
    mixed = maker.node("Reshape", maker.node("Transpose", mixed, perm=(0, 2, 1, 3)), ints(maker, 1, TOKENS, WIDTH))
    first = maker.node("Add", line(maker, mixed, WIDTH, WIDTH), "x")
    hidden = maker.node("Relu", line(maker, first, WIDTH, 2 * WIDTH))
    maker.node("Add", line(maker, hidden, 2 * WIDTH, WIDTH), first)


def linear_attention(maker: ModelMaker) -> None:
    """queries (keys^T values)."""
    queries, keys, values = (line(maker, "x", WIDTH, WIDTH) for _ in range(3))
    context = maker.node("MatMul", maker.node("Transpose", maker.node("Relu", keys), perm=(0, 2, 1)), values)
    maker.node("MatMul", maker.node("Relu", queries), context)


BLOCKS = [encoder_block, linear_attention]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
@pytest.mark.parametrize("arch", [*ARCHS.values(), SMALL["tiny"], SMALL["small8"]],
                         ids=[*ARCHS, "tiny", "next to nothing"])
def test_attention(block: Callable[[ModelMaker], None], arch: Arch, tmp_path: Path) -> None:
    maker = ModelMaker((1, TOKENS, WIDTH), seed=8)
    block(maker)
    insist_made(maker, arch, tmp_path)


def test_softmax_of_scores_on_the_host(tmp_path: Path) -> None:
    maker = ModelMaker((1, TOKENS, WIDTH), seed=9)
    mixed = maker.node("MatMul", maker.node("Softmax", scores(maker), axis=-1), head(maker, "x", (0, 2, 1, 3)))
    path = maker.save(tmp_path / "model.onnx", mixed)
    check_model(path, BASE, maker.random.standard_normal((2, TOKENS, WIDTH)), 60, host_fallback=True)
