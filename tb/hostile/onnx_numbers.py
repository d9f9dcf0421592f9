# SPDX-License-Identifier: Apache-2.0
"""ONNX files whose attributes and constants are no sensible numbers: infinite, huge, tiny, NaN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.tb.hostile.case import Case, good_and, network, quick
from weft.tb.hostile.onnx_constants import Make, ints, node

VALUES: dict[str, float] = {
    "infinity": np.inf, "-infinity": -np.inf, "NaN": np.nan, "3e38": 3e38, "1e9": 1e9, "-1e9": -1e9, "1e-45": 1e-45}

ATTRIBUTES: dict[tuple[str, str], dict[str, Any]] = {
    ("LeakyRelu", "alpha"): {}, ("Elu", "alpha"): {}, ("Celu", "alpha"): {}, ("Selu", "alpha"): {},
    ("Selu", "gamma"): {},
    ("HardSigmoid", "alpha"): {}, ("HardSigmoid", "beta"): {}, ("ThresholdedRelu", "alpha"): {},
    ("Shrink", "lambd"): {},
    ("Shrink", "bias"): {}, ("LRN", "alpha"): {"size": 3}, ("LRN", "beta"): {"size": 3}, ("LRN", "bias"): {"size": 3},
    ("MeanVarianceNormalization", "axes"): {},
}
"""Operator and attribute -> the other attributes."""
INTEGERS = {"axes"}

CONSTANTS: dict[str, tuple[str, ...]] = {
    "Add": ("v",), "Mul": ("v",), "Div": ("v",), "Pow": ("v",), "PRelu": ("v",), "Max": ("v",), "Sub": ("v",),
    "Clip": ("v",), "Clip of a maximum": ("", "v"), "Clip of one number": ("v", "v"), "Pad": ("pads", "v"),
    "Conv": ("weights",), "Conv with bias": ("ones", "bias"), "BatchNormalization": ("bias", "two", "two", "two"),
    "BatchNormalization of a variance": ("two", "two", "two", "bias"), "Where": (), "QuantizeLinear": ("v",),
}
"""Operator -> its inputs behind the first one, of the weights below."""

TABLES = {"Elu", "Celu", "Selu", "HardSigmoid", "Shrink", "LRN", "MeanVarianceNormalization", "Pow", "Div"}
"""Operators that need a machine with lookup tables."""

SPREAD = ("BatchNormalization", "LayerNormalization", "InstanceNormalization")
"""Operators with an epsilon."""


def _weights(value: float) -> dict[str, onnx.TensorProto]:
    number = np.float32(value)
    arrays = {"v": number, "weights": np.full((2, 2, 1, 1), number), "bias": np.full(2, number),
              "two": np.ones(2, np.float32), "ones": np.ones((2, 2, 1, 1), np.float32), "four": np.ones(4, np.float32)}
    found = {name: numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays.items()}
    return {**found, "pads": ints("pads", 0, 0, 1, 1, 0, 0, 1, 1),
            "mask": numpy_helper.from_array(np.arange(4) < 2, "mask")}


def _network(*nodes: onnx.NodeProto, weights: dict[str, onnx.TensorProto]) -> onnx.ModelProto:
    """Return a network with the nodes behind a convolution, so that the machine has something to do."""
    read = {name for each in nodes for name in each.input} | {"ones"}
    return network(node("Conv", ["x", "ones"], ["a"]), *nodes,
                   weights=[tensor for name, tensor in weights.items() if name in read])


def _of_attribute(operator: str, name: str, value: float, rest: dict[str, Any]) -> onnx.ModelProto:
    return _network(_with(node(operator, ["a"], ["y"], **rest), name, value), weights=_weights(1))


def _with(made: onnx.NodeProto, name: str, value: float | list[int]) -> onnx.NodeProto:
    made.attribute.append(helper.make_attribute(name, value))
    return made


def _of_integers(operator: str, name: str, value: int) -> onnx.ModelProto:
    return _network(_with(node(operator, ["a"], ["y"]), name, [value]), weights=_weights(1))


def _of_constant(operator: str, inputs: tuple[str, ...], value: float) -> onnx.ModelProto:
    op, *_ = operator.split()
    weights = _weights(value)
    if op == "Where":
        return _network(node(op, ["mask", "a", "v"], ["y"]), weights=weights)
    if op == "QuantizeLinear":
        return _network(node(op, ["a", "v"], ["q"]), node("DequantizeLinear", ["q", "v"], ["y"]), weights=weights)
    return _network(node(op, ["a", *inputs], ["y"]), weights=weights)


def _of_epsilon(operator: str, value: float) -> onnx.ModelProto:
    inputs = {"BatchNormalization": ["two"] * 4, "LayerNormalization": ["four"], "InstanceNormalization": ["two"] * 2}
    return _network(node(operator, ["a", *inputs[operator]], ["y"], epsilon=value), weights=_weights(1))


def _of_input(operator: str, value: float) -> onnx.ModelProto:
    """Return a network with nothing before the operator that would take bits away."""
    weights = [] if operator == "LeakyRelu" else [_weights(value)["v"]]
    made = node(operator, ["x", *(tensor.name for tensor in weights)], ["y"])
    return network(made if weights else _with(made, "alpha", value), weights=weights)


def _of_gemm(name: str, value: float) -> onnx.ModelProto:
    weights = {**_weights(1), "w": numpy_helper.from_array(np.ones((32, 3), np.float32), "w"),
               "c": numpy_helper.from_array(np.ones(3, np.float32), "c")}
    return _network(node("Flatten", ["a"], ["f"]), _with(node("Gemm", ["f", "w", "c"], ["g"]), name, value),
                    node("Reshape", ["g", "s"], ["y"]), weights={**weights, "s": ints("s", 1, 3, 1, 1)})


def makers() -> dict[str, Make]:
    """Return every network's maker by its name."""
    found: dict[str, Make] = {}
    for text, value in VALUES.items():
        for (operator, name), rest in ATTRIBUTES.items():
            if name not in INTEGERS:
                found[f"{operator} {name} {text}"] = partial(_of_attribute, operator, name, value, rest)
        for operator, inputs in CONSTANTS.items():
            found[f"{operator} of {text}"] = partial(_of_constant, operator, inputs, value)
        for operator in SPREAD:
            found[f"{operator} epsilon {text}"] = partial(_of_epsilon, operator, value)
        for name in ("alpha", "beta"):
            found[f"Gemm {name} {text}"] = partial(_of_gemm, name, value)
        for operator in ("LeakyRelu", "PRelu", "Mul"):
            found[f"{operator} of the input {text}"] = partial(_of_input, operator, value)
    for number in (1 << 40, -(1 << 40), 99):
        found[f"MeanVarianceNormalization of axis {number}"] = partial(
            _of_integers, "MeanVarianceNormalization", "axes", number)
    return found


def _made(make: Make) -> Callable[[Path], Any]:
    return lambda folder: (folder / "net.onnx").write_bytes(make().SerializeToString())


def cases() -> list[Case]:
    """Return the cases: each is refused, or compiled with what it means."""
    found = []
    for name, make in makers().items():
        arch = "ultra96" if name.split()[0] in TABLES else "arty"
        command = ["compile", "net.onnx", "-a", arch, "-o", "out"]
        found.append(Case(f"onnx number: {name}", "onnx numbers", good_and(command, _made(make)), code=None))
    return quick(found, "onnx number: LeakyRelu of the input 1e9", "onnx number: Selu alpha 3e38",
                 "onnx number: Mul of infinity",
                 "onnx number: BatchNormalization of a variance of NaN")
