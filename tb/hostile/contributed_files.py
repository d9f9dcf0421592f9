# SPDX-License-Identifier: Apache-2.0
"""Files of onnxruntime's domain that lie: sizes that do not fit, numbers that are none, quantizers of odd types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.tb.hostile.case import Case, Recipe, quick
from weft.tb.hostile.onnx_constants import floats, node, scalar

MICROSOFT = "com.microsoft"
Make = Callable[[], onnx.ModelProto]
HUGE = 1 << 40


def _bytes(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.full(shape, 7, np.uint8), name)


def _net(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = (), shape: tuple[int, ...] = (1, 4, 8, 8),
         opset: int = 21, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "odd", [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(weights))
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset),
                                                                  helper.make_opsetid(MICROSOFT, 1)])


def _bits(rows: int, columns: int, bits: int = 4, block: int = 16, scale: float = 1.0) -> Make:
    """Return a maker of a MatMulNBits whose bytes are those of 8 by 4 numbers of four bits in blocks of 16."""
    return lambda: _net(node("MatMulNBits", ["x", "q", "s"], ["y"], domain=MICROSOFT, K=rows, N=columns, bits=bits,
                             block_size=block), weights=(_bytes("q", 4, 1, 8), floats("s", *[scale] * 4)), shape=(1, 8))


def _shared(count: int) -> onnx.ModelProto:
    """Return a chain of products that share weights of a megabyte."""
    names = ["x", *(f"t{number}" for number in range(count - 1)), "y"]
    return _net(*(node("MatMulNBits", [names[number], "q", "s"], [names[number + 1]], domain=MICROSOFT, K=2048, N=1024,
                       bits=4, block_size=32) for number in range(count)),
                weights=(_bytes("q", 1024, 64, 16), numpy_helper.from_array(np.ones(1 << 16, np.float32), "s")),
                shape=(1, 2048))


def _groups(count: int, scales: int) -> Make:
    return lambda: _net(node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=count), opset=18,
                        weights=(floats("s", *[1.0] * scales),))


def _quantised(zero: onnx.TensorProto, *between: onnx.NodeProto, source: str = "q") -> Make:
    """Return a maker of a quantizer, nodes behind it, and a dequantizer of ``source``."""
    return lambda: _net(node("QuantizeLinear", ["x", "s", "z"], ["q"]), *between,
                        node("DequantizeLinear", [source, "s", "z"], ["y"]),
                        weights=(scalar("s", 1e-3, np.float32), zero))


def _blocks(size: int, *shape: int) -> Make:
    return lambda: _net(node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=size),
                        node("MatMul", ["x", "w"], ["y"]), weights=(
        _bytes("q", 8, 4), numpy_helper.from_array(np.ones(shape, np.float32), "s")), shape=(1, 8))


def _one(operator: str, *inputs: str, **attributes: Any) -> Make:
    return lambda: _net(node(operator, list(inputs), ["y"], domain=MICROSOFT, **attributes),
                        weights=(floats("a", 1, 2, 3, 4, 5),))


WIDE = scalar("z", 0, np.int16)
FILES: dict[str, Make] = {
    "rows beyond the bytes": _bits(HUGE, 4), "columns beyond the bytes": _bits(8, HUGE), "no rows": _bits(0, 4),
    "columns below 0": _bits(8, -4), "blocks of 2**62": _bits(8, 4, block=1 << 62), "three bits": _bits(8, 4, bits=3),
    "scales of NaN": _bits(8, 4, scale=float("nan")), "scales of infinity": _bits(8, 4, scale=float("inf")),
    "scales of 3e38": _bits(8, 4, scale=3e38), "100 products of the same weights": lambda: _shared(100),
    "no groups": _groups(0, 4), "groups that do not divide": _groups(3, 3), "2**40 groups": _groups(HUGE, 4),
    "scales of channels": _groups(2, 4), "groups of one": _groups(4, 4),
    "sixteen bits as an output": lambda: _net(node("QuantizeLinear", ["x", "s", "z"], ["y"]), weights=(
        scalar("s", 1e-3, np.float32), WIDE)),
    "sixteen bits as an input": lambda: _net(node("DequantizeLinear", ["x", "s", "z"], ["y"]), kind=TensorProto.INT16,
                                             weights=(scalar("s", 1e-3, np.float32), WIDE)),
    "sixteen bits through a pool": _quantised(WIDE, node("MaxPool", ["q"], ["p"], kernel_shape=[2, 2]), source="p"),
    "sixteen bits, cast": _quantised(WIDE, node("Cast", ["q"], ["p"], to=6), source="p"),
    "32 bits": _quantised(scalar("z", 0, np.int32)),
    "8 bits of floats": _quantised(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0])),
    "blocks below 0": _blocks(-4, 2, 4), "one block of 2**60": _blocks(1 << 60, 1, 4),
    "blocks of other counts": _blocks(4, 3, 4), "Gelu of nothing": _one("Gelu", ""),
    "BiasGelu of another size": _one("BiasGelu", "x", "a"), "Gelu of weights": _one("Gelu", "a"),
    "QuickGelu of a text": _one("QuickGelu", "x", alpha="a"),
    "QuickGelu of infinity": _one("QuickGelu", "x", alpha=float("inf")),
    "SkipLayerNormalization of two": _one("SkipLayerNormalization", "x", "x"),
    "SkipLayerNormalization of another size": _one("SkipLayerNormalization", "x", "x", "a"),
    "FusedConv of no weights": _one("FusedConv", "x", activation="Relu"),
    "FusedConv of an unknown function": _one("FusedConv", "x", "a", activation="\x1b[31m"),
    "FusedMatMul of itself, transposed": _one("FusedMatMul", "x", "x", transB=1),
}


def _recipe(make: Make) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        onnx.save(make(), folder / "odd.onnx")
        return ["compile", "odd.onnx", "-a", "pynq_lut", "-o", "out"]

    return recipe


def cases() -> list[Case]:
    """Return a compilation of each file."""
    return quick([Case(f"contributed: {name}", "files of onnxruntime", _recipe(make), code=None)
                  for name, make in FILES.items()], "contributed: columns beyond the bytes")
