# SPDX-License-Identifier: Apache-2.0
"""Every operator of the compiler's table, each bent in every way: inputs, attributes, axes, ranks, types, outputs.

``BASES`` says how a good node of each looks; ``BENDS`` changes it. Where a bent one is still legal the compiler must
get it right: half of the cases run ``weft compile --check``, the others ``weft inspect``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.lowering.operators import OPERATORS
from weft.tb.hostile.case import Case, Recipe, quick

FAR = 1 << 62
STEP = 8
QUICK = ("bent LayerNormalization: axis 2**62", "bent PRelu: x of rank 0", "bent Log: x of rank 3",
         "bent GRU: a minus infinity of constants")
TABLES = ["--set", "lut_count=2", "--set", "lut_depth=64", "--set", "simd_registers_depth=3"]
COMMANDS = (["compile", "net.onnx", "-a", "tiny", *TABLES, "--check", "-o", "out"],
            ["inspect", "net.onnx", "-a", "tiny", *TABLES])


@dataclass(frozen=True)
class Bent:
    """One node.

    ``constants``: its inputs behind the first; an array of 0 dimensions is a scalar, None is left out."""

    op: str
    constants: tuple[np.ndarray | None, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int | str, ...] = (1, 2, 4, 4)
    kind: int = TensorProto.FLOAT
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] = ("y",)

    @property
    def names(self) -> tuple[str, ...]:
        """The node's inputs."""
        if self.inputs is not None:
            return self.inputs
        return ("x", *(f"c{number}" if value is not None else "" for number, value in enumerate(self.constants)))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            [helper.make_node(self.op, self.names, self.outputs, name="bent", **self.attributes)], "bent",
            [helper.make_tensor_value_info("x", self.kind, self.shape)],
            [onnx.ValueInfoProto(name=self.outputs[0] if self.outputs else "y")],
            [numpy_helper.from_array(value, f"c{number}") for number, value in enumerate(self.constants)
             if value is not None])
        graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _opset(self.op))], ir_version=10)


def _opset(operator: str) -> int:
    """Return the newest opset that onnxruntime knows, or the one that the operator went with."""
    schema = onnx.defs.get_schema(operator)
    return 9 if operator == "Upsample" else max(20, schema.since_version)


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


_PAIR = {"constants": (_ones(1, 2, 4, 4),)}
_CHANNELS = {"constants": (_ones(2),) * 4}
_AXES = {"constants": (_ints(2),)}
_POOL = {"attributes": {"kernel_shape": [2, 2]}}
BASES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min", "Mean", "Sum"), _PAIR),
    **{name: _AXES for name in OPERATORS if name.startswith("Reduce")},
    "AveragePool": _POOL, "MaxPool": _POOL, "BatchNormalization": _CHANNELS,
    "Clip": {"constants": (np.float32(-1), np.float32(1))},
    "Concat": {"inputs": ("x", "x"), "attributes": {"axis": 1}},
    "Conv": {"constants": (_ones(2, 2, 3, 3), _ones(2))}, "ConvTranspose": {"constants": (_ones(2, 2, 3, 3), _ones(2))},
    "DepthToSpace": {"shape": (1, 4, 2, 2), "attributes": {"blocksize": 2}},
    "SpaceToDepth": {"attributes": {"blocksize": 2}}, "Dropout": {"constants": (np.float32(0.5),)},
    "Expand": {"constants": (_ints(1, 2, 4, 4),)}, "Gather": {"constants": (_ints(0, 1),), "attributes": {"axis": 1}},
    "GRU": {"shape": (2, 1, 2), "constants": (_ones(1, 6, 2), _ones(1, 6, 2)), "attributes": {"hidden_size": 2}},
    "LSTM": {"shape": (2, 1, 2), "constants": (_ones(1, 8, 2), _ones(1, 8, 2)), "attributes": {"hidden_size": 2}},
    "RNN": {"shape": (2, 1, 2), "constants": (_ones(1, 2, 2), _ones(1, 2, 2)), "attributes": {"hidden_size": 2}},
    "Gemm": {"shape": (1, 4), "constants": (_ones(4, 3), _ones(3))}, "MatMul": {"constants": (_ones(4, 3),)},
    "GroupNormalization": {"constants": (_ones(2), _ones(2)), "attributes": {"num_groups": 2}},
    "InstanceNormalization": {"constants": (_ones(2), _ones(2))},
    "LayerNormalization": {"constants": (_ones(4), _ones(4))}, "RMSNormalization": {"constants": (_ones(4),)},
    "Pad": {"constants": (_ints(0, 0, 1, 1, 0, 0, 1, 1), np.float32(0))},
    "Reshape": {"constants": (_ints(1, 4, 8),)}, "Upsample": {"constants": (_floats(1, 1, 2, 2),)},
    "Resize": {"constants": (None, _floats(1, 1, 2, 2))},
    "Slice": {"constants": (_ints(0), _ints(2), _ints(2))},
    "Split": {"constants": (_ints(1, 1),), "attributes": {"axis": 1}, "outputs": ("y", "z")},
    "Squeeze": {"constants": (_ints(0),)}, "Unsqueeze": {"constants": (_ints(0),)},
    "Tile": {"constants": (_ints(1, 1, 2, 2),)}, "TopK": {"constants": (_ints(1),), "outputs": ("y", "z")},
    "Transpose": {"attributes": {"perm": [0, 2, 3, 1]}},
    "Where": {"inputs": ("c0", "x", "x"), "constants": (np.ones((4, 4), bool),)},
}


def _every(attribute: Any) -> Callable[[Bent], Bent]:
    """Return a bend by which all attributes of the row become one value."""
    return lambda bent: replace(bent, attributes=dict.fromkeys(OPERATORS[bent.op].attributes, attribute))


def _far(axis: int) -> Callable[[Bent], Bent]:
    return lambda bent: replace(bent, attributes={**bent.attributes, "axis": axis})


def _constants(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Bent], Bent]:
    return lambda bent: replace(bent, constants=tuple(None if value is None else change(np.asarray(value))
                                                      for value in bent.constants))


def _with_inputs(change: Callable[[tuple[str, ...]], Sequence[str]]) -> Callable[[Bent], Bent]:
    return lambda bent: replace(bent, inputs=tuple(change(bent.names)))


def _with(**values: Any) -> Callable[[Bent], Bent]:
    return lambda bent: replace(bent, **values)


BENDS: dict[str, Callable[[Bent], Bent]] = {
    "as it is": lambda bent: bent, "no input": _with(inputs=()), "no output": _with(outputs=()),
    "its first input left out": _with_inputs(lambda names: ("", *names[1:])),
    "its last input missing": _with_inputs(lambda names: names[:-1]),
    "its last input left out": _with_inputs(lambda names: (*names[:-1], "")),
    "all inputs x": _with_inputs(lambda names: ["x"] * len(names)),
    "inputs turned": _with_inputs(lambda names: names[::-1]),
    "nine more inputs": _with_inputs(lambda names: (*names, *["x"] * 9)),
    "nine inputs left out behind": _with_inputs(lambda names: (*names, *[""] * 9)),
    "an input that nobody makes": _with_inputs(lambda names: (*names[:-1], "nobody")),
    "nine outputs": _with(outputs=tuple(f"y{number}" for number in range(9))), "one output": _with(outputs=("y",)),
    "an unknown attribute": lambda bent: replace(bent, attributes={**bent.attributes, "weft": 1}),
    "no attribute": _with(attributes={}), "attributes of text": _every("a"), "attributes of 0.5": _every(0.5),
    "attributes of 0": _every(0), "attributes of -1": _every(-1), "attributes of 2**62": _every(FAR),
    "attributes of lists of 2**62": _every([FAR] * 4), "attributes of lists of 0": _every([0, 0]),
    "attributes of one tensor": _every(numpy_helper.from_array(np.ones(3), "t")),
    "axis 99": _far(99), "axis -99": _far(-99), "axis 2**62": _far(FAR), "axis 0": _far(0),
    "constants of -1": _constants(lambda value: np.full_like(value, -1) if value.dtype != bool else ~value),
    "constants of 2**40": _constants(lambda value: (value * 0 + (1 << 40)).astype(value.dtype)),
    "constants of 0": _constants(np.zeros_like), "constants without elements": _constants(lambda value: value[:0]
                                                                                         if value.ndim else value),
    "constants of one axis more": _constants(lambda value: value[None]),
    "constants as scalars": _constants(lambda value: value.reshape(-1)[:1].reshape(())),
    "constants of the other type": _constants(lambda value: value.astype(
        np.float32 if value.dtype == np.int64 else np.int64)),
    **{f"a {name} of constants": _constants(partial(np.full_like, fill_value=value, dtype=np.float32))
       for name, value in (("NaN", np.nan), ("minus infinity", -np.inf))},
    **{f"x of rank {len(shape)}": _with(shape=shape) for shape in ((), (4,), (2, 4), (1, 2, 4), (1, 2, 4, 2, 2),
                                                                   (1,) * 9)},
    **{f"x of {shape}": _with(shape=shape) for shape in ((1, 0, 4, 4), (0, 2, 4, 4), (1, 2, 1 << 31, 4),
                                                         (1, 2, FAR, 4), (3, 2, 1, 1), ("n", 2, "h", 4))},
    **{f"x of {TensorProto.DataType.Name(kind)}": _with(kind=kind) for kind in (
        TensorProto.STRING, TensorProto.BOOL, TensorProto.INT8, TensorProto.INT64, TensorProto.BFLOAT16,
        TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.COMPLEX64, TensorProto.DOUBLE)},
}


def bent(operator: str, bend: str) -> Bent:
    return BENDS[bend](Bent(operator, **BASES.get(operator, {})))


def _recipe(operator: str, bend: str, command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        (folder / "net.onnx").write_bytes(bent(operator, bend).model().SerializeToString())
        return command

    return recipe


def cases() -> list[Case]:
    """Return one pair of ``STEP``, which has no divisor in common with the number of bends.

    So each operator meets each eighth bend, and each bend each eighth operator. ``every`` has all pairs."""
    return quick(every()[::STEP], *QUICK)


def every() -> list[Case]:
    """Return all pairs: some thousand."""
    pairs = [(operator, bend) for operator in OPERATORS for bend in BENDS]
    return [Case(f"bent {operator}: {bend}", "operators", _recipe(operator, bend, COMMANDS[number // STEP % 2]),
                 code=None) for number, (operator, bend) in enumerate(pairs)]
