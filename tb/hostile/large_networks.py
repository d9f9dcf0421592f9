# SPDX-License-Identifier: Apache-2.0
"""Small files of networks that are large: many nodes, tensors, pieces and steps, and what is computed of huge numbers.

Each is compiled and inspected. What the compiler builds of it must be counted before it is built.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.tb.hostile.case import Case, Recipe, quick
from weft.tb.hostile.onnx_constants import floats, ints, node, scalar

Make = Callable[[], onnx.ModelProto]
MANY = 20_000
"""Inputs or outputs of one node."""
NODES = 16_000
"""Nodes of one network: nearly as many as are allowed."""


def net(shape: tuple[int, ...], *nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), opset: int = 20,
        weights: tuple[onnx.TensorProto, ...] = (), inputs: int = 1) -> onnx.ModelProto:
    """Return a network from x (or x0, x1 ...) of ``shape`` to ``outputs``."""
    names = ["x"] if inputs == 1 else [f"x{number}" for number in range(inputs)]
    graph = helper.make_graph(
        list(nodes), "large", [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def chain(count: int, link: Callable[[str, str, int], onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return a chain from x to y; ``link`` makes each node from its input, its output and its number."""
    return [link(f"t{number}" if number else "x", f"t{number + 1}" if number < count - 1 else "y", number)
            for number in range(count)]


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Return random numbers, of which a file holds so many."""
    return numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape).astype(np.float32), name)


def permuted(count: int, name: str = "n") -> onnx.TensorProto:
    return ints(name, *np.random.default_rng(0).permutation(count).tolist())


# -- many nodes --------------------------------------------------------------------------------------------------------
def _chain_of(operator: str, *more: str, weights: tuple[onnx.TensorProto, ...] = (), count: int = NODES,
              shape: tuple[int, ...] = (1, 4, 4, 4), **attributes: Any) -> Make:
    return lambda: net(shape, *chain(count, lambda a, b, number: node(operator, [a, *more], [b], **attributes)),
                       weights=weights)


def _star(operator: str, count: int = NODES) -> Make:
    """Return a maker of so many nodes that read x, and one that reads them all."""
    return lambda: net((1, 4, 4, 4), *(node(operator, ["x"], [f"t{number}"]) for number in range(count - 1)),
                       node("Sum", [f"t{number}" for number in range(count - 1)], ["y"]))


def _ends(count: int) -> Make:
    return lambda: net((1, 4, 4, 4), *(node("Relu", ["x"], [f"y{number}"]) for number in range(count)),
                       outputs=tuple(f"y{number}" for number in range(count)))


def _inputs(count: int) -> Make:
    return lambda: net((1, 4), node("Sum", [f"x{number}" for number in range(count)], ["y"]), inputs=count)


def _own_weights(count: int) -> Make:
    """Return a maker of a chain with constants of its own in every node."""
    return lambda: net((1, 4), *chain(count, lambda a, b, number: node("Add", [a, f"w{number}"], [b])),
                       weights=tuple(floats(f"w{number}", 1, 2, 3, 4) for number in range(count)))


def _unread_weights(count: int, size: int) -> Make:
    return lambda: net((1, 4), node("Relu", ["x"], ["y"]),
                       weights=tuple(numpy_helper.from_array(np.zeros(size, np.float32), f"w{number}")
                                     for number in range(count)))


def _constant_nodes(count: int) -> Make:
    """Return a maker of a chain of constants, each of which is computed from the one before."""
    return lambda: net((1, 4), *(node("Add", [f"c{number}", f"c{number}"], [f"c{number + 1}"])
                                 for number in range(count - 1)),
                       node("Mul", ["c0", "x"], ["y0"]), node("Add", ["y0", f"c{count - 1}"], ["y"]),
                       weights=(floats("c0", 0),))


def _refused(count: int, operator: str = "Sin") -> Make:
    """Return a maker of operators that the machine has not, one after every convolution."""
    def link(a: str, b: str, number: int) -> onnx.NodeProto:
        return node(operator, [a], [b]) if number % 2 else node("Conv", [a, "w"], [b])

    return lambda: net((1, 4, 4, 4), *chain(count, link), weights=(weight("w", 4, 4, 1, 1),))


def _refused_late(count: int) -> Make:
    """Return a maker of nodes that only their elements' places make impossible, each found by itself."""
    def link(a: str, b: str, number: int) -> onnx.NodeProto:
        return node("Gather", [a, "n"], [b], axis=2) if number % 2 else node("Conv", [a, "w"], [b])

    return lambda: net((1, 4, 700), *chain(count, link), weights=(weight("w", 4, 4, 1), permuted(700)))


COUNTS: dict[str, Make] = {
    "chain of Relu": _chain_of("Relu"), "chain of Reshape": _chain_of("Reshape", "n", weights=(ints("n", 1, 4, 4, 4),)),
    "chain of Identity": _chain_of("Identity"), "chain of Add": _chain_of("Add", "x"),
    "chain of Mul": _chain_of("Mul", "x"), "chain of Transpose": _chain_of("Transpose", perm=[0, 2, 3, 1]),
    "chain of Softmax": _chain_of("Softmax"), "chain of Sigmoid": _chain_of("Sigmoid"),
    "chain of Conv": _chain_of("Conv", "w", weights=(weight("w", 4, 4, 1, 1),)),
    "chain of MaxPool": _chain_of("MaxPool", kernel_shape=[1, 1]),
    "chain of MatMul": _chain_of("MatMul", "x"), "chain of Cast": _chain_of("Cast", to=TensorProto.FLOAT16),
    "chain of Concat": _chain_of("Concat", "x", axis=1), "chain of LSTM": _chain_of(
        "LSTM", "w", "w", weights=(weight("w", 1, 16, 4),), shape=(4, 1, 4), hidden_size=4),
    "chain of LayerNormalization": _chain_of("LayerNormalization", "w", weights=(weight("w", 4),)),
    "chain of Dropout": _chain_of("Dropout"), "chain of Pad": _chain_of("Pad", "n", weights=(ints("n", *[0] * 8),)),
    "chain of QuantizeLinear": lambda: net((1, 4), *chain(NODES, lambda a, b, number: node(
        "DequantizeLinear" if number % 2 else "QuantizeLinear", [a, "s"], [b])), weights=(
        scalar("s", 0.1, np.float32),)),
    "star of Relu": _star("Relu"), "star of Sigmoid": _star("Sigmoid"), "star of Transpose": _star("Transpose"),
    "16000 outputs": _ends(NODES), "20000 inputs": _inputs(MANY), "10000 constants": _own_weights(10_000),
    "10000 constants that nobody reads": _unread_weights(10_000, 100),
    "a constant of 400 MB that nobody reads": _unread_weights(1, 100_000_000),
    "100000 constants that nobody reads": _unread_weights(100_000, 1),
    "chain of computed constants": _constant_nodes(NODES), "8000 operators of the host": _refused(NODES),
    "2000 operators that fail late": _refused_late(2000),
}

# -- many inputs or outputs of one node --------------------------------------------------------------------------------
BRANCHES: dict[str, dict[str, Any]] = {"Concat": {"axis": 1}, "Sum": {}, "Max": {}, "Min": {}, "Mean": {}, "Einsum": {
    "equation": ",".join(["ij"] * MANY) + "->ij"}}


def _wide(operator: str, count: int, **attributes: Any) -> Make:
    return lambda: net((1, 4), node(operator, ["x"] * count, ["y"], **attributes))


def _split(count: int, joined: bool) -> Make:
    names = [f"p{number}" for number in range(count)]
    return lambda: net((1, count, 2, 2), node("Split", ["x"], names, axis=1, num_outputs=count),
                       *([node("Concat", names[::-1], ["y"], axis=1)] if joined else []),
                       outputs=("y",) if joined else tuple(names))


WIDE: dict[str, Make] = {
    **{f"{operator} of {MANY}": _wide(operator, MANY, **attributes) for operator, attributes in BRANCHES.items()},
    "Concat of 20000 along rows": lambda: net((1, 1, 1, 4), node("Concat", ["x"] * MANY, ["y"], axis=2)),
    "Concat of 20000 constants": lambda: net((1, 4), node("Concat", ["x", *["c"] * MANY], ["y"], axis=1),
                                             weights=(weight("c", 1, 2),)),
    "Split in 20000": _split(MANY, False), "Split in 20000 and back": _split(MANY, True),
    "Split in 200 and back": _split(200, True),
    "Einsum of 50 labels": lambda: net((1,) * 26, node("Einsum", ["x", "x"], ["y"], equation=(
        "abcdefghijklmnopqrstuvwxyz,ABCDEFGHIJKLMNOPQRSTUVWXYZ->a"))),
    "Einsum": lambda: net((64, 64), node("Einsum", ["x"] * 8, ["y"], equation="ab,bc,cd,de,ef,fg,gh,hi->ai")),
}


# -- elements that move ------------------------------------------------------------------------------------------------
def _moved(shape: tuple[int, ...], *nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = (),
           channels: int = 0) -> Make:
    """Return a maker of nodes that make m of x; if told, a convolution of so many channels reads m."""
    if not channels:
        return lambda: net(shape, *nodes, node("Sigmoid", ["m"], ["y"]), weights=weights)
    kernel = weight("w", 2, channels, *[1] * (len(shape) - 2))
    return lambda: net(shape, *nodes, node("Conv", ["m", "w"], ["y"]), weights=(*weights, kernel))


def _gather(shape: tuple[int, ...], axis: int) -> Make:
    return _moved(shape, node("Gather", ["x", "n"], ["m"], axis=axis), weights=(permuted(shape[axis]),),
                  channels=shape[1])


def _reshaped(shape: tuple[int, ...], *sizes: int) -> Make:
    return lambda: net(shape, node("Reshape", ["x", "n"], ["m"]), node("Conv", ["m", "w"], ["y"]),
                       weights=(ints("n", *sizes), weight("w", 2, sizes[1], *[1] * (len(sizes) - 2))))


MOVES: dict[str, Make] = {
    "Gather of shuffled pixels": _gather((1, 8, 4096), 2), "Gather of shuffled columns": _gather((1, 8, 32, 512), 3),
    "Gather of shuffled channels": _gather((1, 4096, 2, 2), 1),
    "Gather of shuffled channels and pixels": _moved(
        (1, 64, 64), node("Reshape", ["x", "a"], ["f"]), node("Gather", ["f", "n"], ["g"], axis=1),
        node("Reshape", ["g", "b"], ["m"]), weights=(ints("a", 1, 4096), permuted(4096), ints("b", 1, 64, 64)),
        channels=64),
    "Gather of a million": _moved((1, 2, 16), node("Gather", ["x", "n"], ["m"], axis=2), channels=2, weights=(
        ints("n", *np.random.default_rng(0).integers(16, size=1_000_000).tolist()),)),
    "pixels as channels": _reshaped((1, 1, 64, 512), 1, 512, 8, 8), "channels as pixels": _reshaped(
        (1, 4096, 8, 1), 1, 8, 4096, 1), "frames of sound": _reshaped((1, 1, 16384), 1, 256, 64),
    "frames of large sound": _reshaped((1, 1, 1 << 20), 1, 1024, 1024),
    "one row of everything": _reshaped((1, 16, 64, 64), 1, 65536, 1, 1),
    "transposed channels": _moved((1, 512, 512), node("Transpose", ["x"], ["m"], perm=[0, 2, 1]), channels=512),
    "transposed large channels": _moved((1, 2048, 2048), node("Transpose", ["x"], ["m"], perm=[0, 2, 1]),
                                        channels=2048),
    "slices of frames": lambda: net(
        (1, 1, 8192), *(node("Slice", ["x", f"a{number}", f"b{number}", "d", "s"], [f"p{number}"])
                        for number in range(64)),
        node("Concat", [f"p{number}" for number in range(64)], ["m"], axis=1), node("Conv", ["m", "w"], ["y"]),
        weights=(ints("d", 2), ints("s", 3), weight("w", 2, 64, 1), *(ints(f"{side}{number}", at + number)
                                                                      for number in range(64)
                                                                      for side, at in (("a", 0), ("b", 6000))))),
    "Tile": _moved((1, 2, 4, 4), node("Tile", ["x", "n"], ["m"]), weights=(ints("n", 1, 1, 300, 300),), channels=2),
    "Tile of channels": _moved((1, 2, 4, 4), node("Tile", ["x", "n"], ["m"]), weights=(ints("n", 1, 9000, 1, 1),),
                               channels=18000),
    "Expand": _moved((1, 2, 1, 1), node("Expand", ["x", "n"], ["m"]), weights=(ints("n", 1, 2, 1000, 1000),),
                     channels=2),
    "Pad by reflection": _moved((1, 1, 300, 300), node("Pad", ["x", "n"], ["m"], mode="reflect"),
                                weights=(ints("n", 0, 0, 299, 299, 0, 0, 299, 299),), channels=1),
    "Pad of a constant": _moved((1, 1, 4, 4), node("Pad", ["x", "n"], ["m"]),
                                weights=(ints("n", 0, 0, 900, 900, 0, 0, 900, 900),), channels=1),
    "DepthToSpace": _moved((1, 4096, 8, 8), node("DepthToSpace", ["x"], ["m"], blocksize=64), channels=1),
    "SpaceToDepth": _moved((1, 1, 512, 512), node("SpaceToDepth", ["x"], ["m"], blocksize=64), channels=4096),
    "a thousand moves of a million": lambda: net((1, 1, 1024, 1024), *chain(1000, lambda a, b, number: node(
        "Transpose", [a], [b], perm=[0, 1, 3, 2]))),
}
"""What the compiler brings to its place by pieces."""


def _recipe(make: Make, command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        (folder / "net.onnx").write_bytes(make().SerializeToString())
        return command

    return recipe


def _commands(arch: str) -> dict[str, list[str]]:
    return {"inspect": ["inspect", "net.onnx", "-a", arch], "compile": ["compile", "net.onnx", "-a", arch, "-o", "out"],
            "compile for the host": ["compile", "net.onnx", "-a", arch, "-o", "out", "--host-fallback"]}


def of_kind(kind: str, makers: dict[str, Make], arch: str = "ultra96") -> list[Case]:
    return [Case(f"large {kind}: {name}, {command}", "large networks", _recipe(make, arguments), code=None)
            for name, make in makers.items() for command, arguments in _commands(arch).items()]


def cases() -> list[Case]:
    from weft.tb.hostile.large_operators import OPERATORS

    found = [case for kind, makers in (("count", COUNTS), ("node", WIDE), ("move", MOVES), ("operator", OPERATORS))
             for case in of_kind(kind, makers)]
    return quick(found, "large move: Gather of shuffled channels and pixels, inspect",
                 "large node: Concat of 20000, inspect", "large node: Sum of 20000, compile",
                 "large move: frames of large sound, inspect")
