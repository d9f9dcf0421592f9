# SPDX-License-Identifier: Apache-2.0
"""The canonical form of networks that a seed draws gives onnxruntime's numbers, before anything is rounded.

No layer is planned and no program made, so hundreds of them take seconds. They are of operators that only move
elements, of products, windows, norms and reductions, each behind and in front of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.random import Generator

from weft.compiler.errors import CompileError
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.indices.index import feed
from weft.compiler.passes.normalise import normalise
from weft.tb.compile.run_model import ModelMaker
from weft.tmodel.elements import gather
from weft.tmodel.onnx_engine import run_model

Shape = tuple[int, ...]
Move = Callable[[ModelMaker, Generator, str, Shape], str | None]
"""A function that adds an operator on a tensor of this shape, or None where it does not fit."""

NEAR = 2e-4
"""The error allowed, as a share of the largest value: both are of single precision."""


def ints(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


def pad(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    """Once or twice in a row, each by a number of its own."""
    for _ in range(int(draw.integers(1, 3))):
        pads = draw.integers(0, 2, 2 * len(shape)).tolist()
        if maker.opset < 11:
            name = maker.node("Pad", name, pads=pads, value=float(draw.integers(0, 3)))
        else:
            name = maker.node("Pad", name, ints(maker, *pads), maker.constant(np.float32(draw.integers(0, 3))))
    return name


def cut(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    axis = int(draw.integers(len(shape)))
    if shape[axis] < 2 or maker.opset < 10:
        return None
    begin, step = int(draw.integers(0, shape[axis] // 2)), int(draw.integers(1, 3))
    return maker.node("Slice", name, *(ints(maker, number) for number in (begin, shape[axis], axis, step)))


def turn(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    return maker.node("Transpose", name, perm=draw.permutation(len(shape)).tolist())


def reshape(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    sizes = [*shape]
    place = int(draw.integers(len(sizes)))
    parts = [number for number in range(2, 5) if sizes[place] % number == 0]
    if len(sizes) < 4 and parts:
        sizes[place:place + 1] = [parts[0], sizes[place] // parts[0]]
    elif len(sizes) > 2:
        sizes[:2] = [sizes[0] * sizes[1]]
    return maker.node("Reshape", name, ints(maker, *sizes))


def join(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    """With a constant, or with itself negated and padded, in any order."""
    other = maker.normal(*shape) if draw.integers(2) else maker.node("Neg", name)
    names = [name, other] if draw.integers(2) else [other, name]
    return maker.node("Concat", *names, axis=int(draw.integers(len(shape))))


def times(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    """With a constant on either side, or with itself transposed."""
    kind = int(draw.integers(3))
    if kind == 0:
        return maker.node("MatMul", name, maker.normal(shape[-1], 5))
    if kind == 1:
        return maker.node("MatMul", maker.normal(3, shape[-2]), name)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return maker.node("MatMul", *((name, maker.node("Transpose", name, perm=order)) if draw.integers(2) else (
        maker.node("Transpose", name, perm=order), name)))


def gemm(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    if len(shape) != 2:
        return None
    transposed = int(draw.integers(2))
    rows, inner = shape[::-1] if transposed else shape
    bias = maker.normal(*[(4,), (rows, 1), (1, 4), (rows, 4)][int(draw.integers(4))])
    return maker.node("Gemm", name, maker.normal(inner, 4), bias, transA=transposed, alpha=0.5, beta=-2.0)


def convolve(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    if not 3 <= len(shape) <= 4 or shape[0] > 2:
        return None
    axes = len(shape) - 2
    kernel = draw.integers(1, 4, axes).tolist()
    weights = maker.normal(4, shape[1], *kernel)
    same = ["NOTSET", "SAME_UPPER", "SAME_LOWER"][int(draw.integers(3))]
    pads = {"pads": [1] * 2 * axes} if same == "NOTSET" else {"auto_pad": same}
    return maker.node("Conv", name, weights, kernel_shape=kernel, strides=draw.integers(1, 3, axes).tolist(), **pads)


def transposed(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    if not 3 <= len(shape) <= 4 or shape[0] > 2:
        return None
    axes, kind = len(shape) - 2, int(draw.integers(4))
    kernel, strides = draw.integers(2, 5, axes).tolist(), draw.integers(2, 4, axes).tolist()
    forms: list[dict[str, Any]] = [
        {"pads": [1, *[0] * (axes - 1), *[1] * axes]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"},
        {"output_shape": [size * stride for size, stride in zip(shape[2:], strides, strict=True)]}]
    more = {"output_padding": draw.integers(0, 2, axes).tolist()} if kind in (0, 3) else {}
    return maker.node("ConvTranspose", name, maker.normal(shape[1], 3, *kernel), strides=strides, kernel_shape=kernel,
                      **forms[kind], **more)


def pool(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    if len(shape) != 4 or min(shape[2:]) < 2 or shape[0] > 2:
        return None
    return maker.node(["MaxPool", "AveragePool"][int(draw.integers(2))], name, kernel_shape=[2, 2],
                      strides=draw.integers(1, 3, 2).tolist())


def norm(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    op = ["Softmax", "LogSoftmax", "InstanceNormalization"][int(draw.integers(3))]
    if maker.opset >= 18 and len(shape) > 2 and shape[1] in (4, 6) and np.prod(shape[2:]) > 3:
        return maker.node("GroupNormalization", name, maker.normal(2), maker.normal(2), num_groups=2, epsilon=0.5)
    if op != "InstanceNormalization":
        return maker.node(op, name, axis=int(draw.integers(len(shape))))
    if len(shape) < 3 or np.prod(shape[2:]) < 4:
        return None
    return maker.node(op, name, maker.normal(shape[1]), maker.normal(shape[1]), epsilon=0.5)


def reduce(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str | None:
    op = ["ReduceMin", "ReduceMax", "ReduceMean", "ReduceL1", "ReduceSumSquare"][int(draw.integers(5))]
    axes = sorted(draw.choice(len(shape), int(draw.integers(1, len(shape))), replace=False).tolist())
    name = name if draw.integers(3) else pad(maker, draw, name, shape)
    if maker.opset < 18:
        return maker.node(op, name, axes=axes, keepdims=1)
    return maker.node(op, name, ints(maker, *axes), keepdims=1)


def function(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    op = ["Relu", "Neg", "Tanh", "Abs", "Sigmoid"][int(draw.integers(5))]
    return maker.node(op, name)


def add(maker: ModelMaker, draw: Generator, name: str, shape: Shape) -> str:
    """A constant that broadcasts, or what another operator makes of the same tensor."""
    sizes = [size if draw.integers(2) else 1 for size in shape]
    op = ["Add", "Mul", "Sub"][int(draw.integers(3))]
    return maker.node(op, name, maker.normal(*sizes) if draw.integers(2) else maker.node("Abs", name))


MOVES: tuple[Move, ...] = (pad, cut, turn, reshape, join, times, gemm, convolve, transposed, pool, norm, reduce,
                           function, add, pad, turn, reshape)


def drawn(seed: int) -> ModelMaker:
    draw = np.random.default_rng(seed)
    rank = int(draw.integers(2, 5))
    shape = (1 if rank > 2 else int(draw.integers(1, 7)), *draw.integers(2, 7, rank - 1).tolist())
    maker = ModelMaker(shape, seed, opset=[9, 13, 13, 18][seed % 4])
    name = "x"
    for _ in range(int(draw.integers(2, 6))):
        made = MOVES[int(draw.integers(len(MOVES)))](maker, draw, name, shape)
        if made is None:
            continue
        name = made
        sizes = onnx.shape_inference.infer_shapes(maker.model(name), strict_mode=True).graph.output[0].type.tensor_type
        shape = tuple(entry.dim_value for entry in sizes.shape.dim)
        if min(shape, default=0) < 1 or np.prod(shape) > 400 or not shape:
            break
    return maker


def agree(maker: ModelMaker, folder: Path, seed: int, *outputs: str) -> int:
    """Compare both forms on machines of 3 and of 8 lanes; return how many of these take the network."""
    path = maker.save(folder / "net.onnx", *outputs)
    sample = {"x": np.random.default_rng(seed).standard_normal(maker.shape).astype(np.float32)}
    wanted, taken = run_model(onnx.load(path), sample), 0
    for lanes in (3, 8):
        try:
            graph = normalise(read_model(path), lanes)
        except CompileError:
            continue
        found = run_model(to_onnx(graph), feed(graph, sample))
        for port in graph.outputs:
            value = gather(found[port.tensor], port.order, tuple(port.shape))
            most = np.abs(wanted[port.name]).max(initial=1)
            assert np.abs(value - wanted[port.name]).max(initial=0) <= NEAR * most, (seed, lanes)
        taken += 1
    return taken


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_drawn_network_is_the_same_in_canonical_form(first: int, tmp_path: Path) -> None:
    taken = 0
    for seed in range(first, first + 20):
        draw, maker = np.random.default_rng(seed), drawn(seed)
        if maker.nodes:
            ends = [maker.nodes[int(draw.integers(len(maker.nodes)))].output[0], maker.nodes[-1].output[0]]
            taken += agree(maker, tmp_path, seed, *dict.fromkeys(ends))
    assert taken > 20


@pytest.mark.parametrize("op", ["ReduceMin", "ReduceMax", "ReduceMean", "ReduceL1", "Relu", "Exp", "Neg", "Softmax"])
def test_what_a_pad_adds_counts_with_its_number(op: str, tmp_path: Path) -> None:
    for number, fill in enumerate((-2.0, 0.0, 3.0)):
        maker = ModelMaker((1, 3, 4, 2))
        padded = maker.node("Pad", "x", ints(maker, 0, 1, 0, 0, 0, 0, 2, 1), maker.constant(np.float32(fill)))
        attributes = {"axes": [1, 3]} if op.startswith("Reduce") else {"axis": 1} if op == "Softmax" else {}
        assert agree(maker, tmp_path, number, maker.node(op, padded, **attributes)) == 2


@pytest.mark.parametrize(("channels", "groups"), [(4, 2), (6, 3), (6, 2), (5, 5), (4, 1)])
@pytest.mark.parametrize("opset", [18, 21])
def test_factors_of_groups_are_of_channels_next_to_each_other(channels: int, groups: int, opset: int,
                                                              tmp_path: Path) -> None:
    """Each channel has its own as of opset 21."""
    maker = ModelMaker((1, channels, 3, 2), opset=opset)
    factors = [maker.normal(groups if opset < 21 else channels) for _ in range(2)]
    assert agree(maker, tmp_path, 0, maker.node("GroupNormalization", "x", *factors, num_groups=groups,
                                                epsilon=0.5)) == 2


@pytest.mark.parametrize("joined", [False, True])
def test_a_second_factor_is_no_part_of_another_tensor(joined: bool, tmp_path: Path) -> None:
    """It lies as weights do, so what a Concat has too is copied for it."""
    maker = ModelMaker((6, 4))
    right = maker.node("Relu", maker.node("MatMul", "x", maker.normal(4, 5)))
    left = maker.node("Relu", maker.node("MatMul", "x", maker.normal(4, 6)))
    outputs = [maker.node("Concat", right, left, axis=1)] if joined else []
    outputs.append(maker.node("MatMul", left, right))
    assert agree(maker, tmp_path, 0, *outputs) == 2
    graph = normalise(read_model(maker.save(tmp_path / "net.onnx", *outputs)), 8)
    parts = {name for node in graph.nodes if node.op == "Assemble" for name in node.inputs}
    factors = [node.input(1) for node in graph.nodes if node.op == "Product"]
    assert bool(parts) == joined and factors and not parts.intersection(factors)
