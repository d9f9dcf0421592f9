# SPDX-License-Identifier: Apache-2.0
"""Collect the ONNX model of a TensorFlow Lite subgraph: nodes, constants, and each tensor in the needed forms.

A tensor has real numbers and, if the file quantises it to bytes, these bytes. Both lie with channels last as in the
file, or as planes (batch, channels, height, width), which ONNX's convolutions need. A form is made once, when an
operator reads it, by a Transpose, QuantizeLinear or DequantizeLinear. So a chain of convolutions has no Transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.compiler.errors import refuse
from weft.compiler.frontend.tflite.numbers import QUANTISE_AGAIN
from weft.compiler.frontend.tflite.schema import CONVERT_AGAIN, Damaged, Subgraph
from weft.compiler.frontend.tflite.values import FILE, ORDER, PLANES, Layout, Value
from weft.tmodel.onnx_bounds import MOST_ELEMENTS, MOST_NODES

OPSET = 20
IR_VERSION = 10
HANDLE = "/handle"
"""The suffix of a variable's handle; the name without it is that of the state."""

MOST_CONSTANTS = 2 * MOST_ELEMENTS
"""The most numbers in all constants: those of the file, and those that operators make of them."""

MOST_KNOWN = MOST_ELEMENTS
"""The most numbers in constants that operators make of constants."""


class Variables(NamedTuple):
    """The tensor that reads each variable first, and the one that was assigned to it last, by name."""

    read: dict[str, int]
    assigned: dict[str, int]


class Writer:
    """The ONNX model while it is written.

    ``values``: one for each tensor of the subgraph, under different names. ``kept``: the states of recurrent layers,
    each as the tensor before the run and the name of its value after the run."""

    def __init__(self, graph: Subgraph) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.makers: dict[str, onnx.NodeProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.variables = Variables({}, {})
        self.kept: list[tuple[Value, str]] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shared: dict[tuple[float, int, str], tuple[str, str]] = {}
        self.used: set[str] = set()
        self.again: dict[str, int] = {}
        self.elements = self.known = 0
        self.values = [Value(tensor, self.fresh(tensor.name + HANDLE * (tensor.type == "resource")))
                       for tensor in graph.tensors]

    # -- names, nodes, constants ---------------------------------------------------------------------------------------
    def fresh(self, wanted: str) -> str:
        """Return a name that nothing else has, the wanted one if it is free."""
        name = wanted
        while name in self.used:
            self.again[wanted] = self.again.get(wanted, 0) + 1
            name = f"{wanted}_{self.again[wanted]}"
        self.used.add(name)
        return name

    def node(self, op: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        """Add a node; return the name of its result, ``wanted`` or near it."""
        return self.many(op, inputs, [wanted], **attributes)[0]

    def many(self, op: str, inputs: Sequence[str], wanted: Sequence[str], **attributes: Any) -> list[str]:
        """Add a node of several results; return their names."""
        if len(self.nodes) >= MOST_NODES:
            raise refuse("the model", f"more than {MOST_NODES} nodes", f"at most {MOST_NODES}", "split the network")
        names = [self.fresh(name) for name in wanted]
        node = helper.make_node(op, list(inputs), names, name=names[0], **attributes)
        self.nodes.append(node)
        self.makers |= dict.fromkeys(names, node)
        return names

    def constant(self, value: np.ndarray, wanted: str) -> str:
        """Add a constant; return its name."""
        self.elements += value.size
        if self.elements > MOST_CONSTANTS:
            raise refuse(f"constant {wanted!r}", f"{self.elements} numbers in constants", f"at most {MOST_CONSTANTS}",
                         "make the network smaller")
        name = self.fresh(wanted)
        self.constants[name] = np.asarray(value, order="C")
        return name

    def rename(self, name: str, wanted: str) -> str:
        """Rename the result of a node that nothing reads yet; the name may be free or reserved."""
        node = self.makers.pop(name)
        node.output[:] = [wanted if output == name else output for output in node.output]
        self.used.add(wanted)
        self.makers[wanted] = node
        return wanted

    # -- forms ---------------------------------------------------------------------------------------------------------
    def name_of(self, value: Value, layout: Layout, of_bytes: bool) -> str:
        """Return the name for a form; the form that the file itself holds has the file's name."""
        own = value.is_bytes == of_bytes
        wanted = value.name + layout + ("" if own else "/real")
        return wanted if own and layout == FILE else self.fresh(wanted)

    def as_real(self, number: int, layout: Layout = FILE) -> str:
        """Return the name of a tensor's real numbers, or of its integers if they mean no real numbers."""
        value = self.made(number)
        if layout not in value.real:
            value.real[layout] = self._new_real(value, layout)
        return value.real[layout]

    def made(self, number: int) -> Value:
        """Return a tensor that is known by now. Raise Damaged for one that is not."""
        value = self.values[number]
        if not value.is_made:
            raise Damaged(f"tensor {value.name!r} is read before it is made")
        if value.variable:
            raise Damaged(f"tensor {value.name!r} is read as numbers and is a variable's handle")
        return value

    def _new_real(self, value: Value, layout: Layout) -> str:
        """Add the real numbers of a tensor in a layout; return their name."""
        if value.constant is not None:
            there = value.constant if layout == FILE else value.constant.transpose(ORDER[PLANES])
            return self.constant(there, value.name + layout)
        if layout in value.bytes:
            return self._dequantized(value, layout)
        if not value.real:
            self._dequantized(value, next(iter(value.bytes)))
        other, name = next(iter(value.real.items()))
        return self._turned(value, name, other, False)

    def _turned(self, value: Value, source: str, layout: Layout, of_bytes: bool) -> str:
        """Add the Transpose from one layout to the other."""
        other = PLANES if layout == FILE else FILE
        made = self.node("Transpose", [source], f"{value.name}{other}/turned", perm=ORDER[other])
        return self.rename(made, self.name_of(value, other, of_bytes))

    def _dequantized(self, value: Value, layout: Layout) -> str:
        """Add the DequantizeLinear of a tensor; return its name."""
        scale, zero = self.parameters(value)
        name = self.node("DequantizeLinear", [value.bytes[layout], scale, zero], f"{value.name}/dequantized")
        value.real[layout] = self.rename(name, self.name_of(value, layout, False))
        return value.real[layout]

    def parameters(self, value: Value) -> tuple[str, str]:
        """Return the names of a tensor's scale and zero point."""
        scales, zeros, _ = value.quantization
        key = float(scales[0]), int(zeros[0]), value.tensor.type
        if key not in self.shared:
            kind = np.dtype(value.tensor.type)
            ends = np.iinfo(kind)
            if not ends.min <= key[1] <= ends.max:
                raise refuse(f"zero point of tensor {value.name!r}", key[1], f"{ends.min} .. {ends.max}",
                             QUANTISE_AGAIN)
            self.shared[key] = (self.constant(np.array(key[0], np.float32), f"scale{len(self.shared)}"),
                                self.constant(np.array(key[1], kind), f"zero{len(self.shared)}"))
        return self.shared[key]

    def as_bytes(self, number: int, layout: Layout = FILE) -> str:
        """Return the name of a tensor's bytes."""
        value = self.made(number)
        if layout not in value.bytes:
            other, name = next(iter(value.bytes.items()), (layout, ""))
            value.bytes[layout] = self._turned(value, name, other, True) if name else self._quantized(
                value, self.as_real(number, layout), layout)
        return value.bytes[layout]

    def _quantized(self, value: Value, source: str, layout: Layout) -> str:
        """Add the QuantizeLinear of a tensor under its own name; return the name."""
        return self.rename(self._rounded(value, source), self.name_of(value, layout, True))

    def _rounded(self, value: Value, source: str) -> str:
        """Add a QuantizeLinear to a tensor's scale."""
        return self.node("QuantizeLinear", [source, *self.parameters(value)], f"{value.name}/quantized")

    # -- what operators make -------------------------------------------------------------------------------------------
    def give(self, number: int, source: str, layout: Layout, rounds: bool = True) -> None:
        """Make ``source`` the result of the file's operator: the tensor ``number``.

        ``rounds`` is false for a choice among numbers that have its scale already."""
        value = self.result(number)
        value.native = layout
        if layout == PLANES and len(value.shape) != 4:
            raise refuse(f"shape of tensor {value.name!r}", list(value.shape), "4 dimensions", CONVERT_AGAIN)
        maker = self.makers[source]
        if maker.name == source:
            maker.name = value.name
        if value.is_bytes and rounds:
            value.bytes[layout] = self._quantized(value, self.rename(source, self.fresh(f"{value.name}/exact")), layout)
        else:
            value.real[layout] = self.rename(source, self.name_of(value, layout, False))

    def result(self, number: int) -> Value:
        """Return the tensor that an operator is to make. Raise Damaged if it is made already."""
        value = self.values[number]
        if value.is_made:
            raise Damaged(f"tensor {value.name!r} is made twice")
        return value

    def know(self, number: int, numbers: np.ndarray) -> None:
        """Make a constant the result of the file's operator."""
        value = self.result(number)
        if numbers.shape != value.shape:
            raise Damaged(f"constant {value.name!r} of {list(numbers.shape)} where {list(value.shape)} is told")
        self.known += numbers.size
        if self.known > MOST_KNOWN:
            raise refuse(f"constant {value.name!r}", f"{self.known} numbers in constants that operators make",
                         f"at most {MOST_KNOWN}", "convert the network again with constants folded")
        value.constant = numbers

    # -- ends ----------------------------------------------------------------------------------------------------------
    def input(self, number: int, name: str = "") -> None:
        """Make a tensor an input of the model, under a name of its own if one is given.

        A tensor of four axes is taken for an image: operators that may choose read it as planes, as convolutions
        will."""
        value = self.result(number)
        value.native = PLANES if len(value.shape) == 4 else FILE
        if name:
            value.name = self.fresh(name)
        forms = value.bytes if value.is_bytes else value.real
        forms[FILE] = value.name
        self.inputs.append(helper.make_tensor_value_info(value.name, value.onnx_type, value.shape))

    def alias(self, number: int, source: Value) -> None:
        """Make a tensor the same as another one."""
        value = self.result(number)
        if (value.shape, value.tensor.type) != (source.shape, source.tensor.type):
            raise Damaged(f"tensor {value.name!r} is not of the kind of {source.name!r}, whose numbers it has")
        value.real, value.bytes, value.native, value.constant = (source.real, source.bytes, source.native,
                                                                 source.constant)

    def stored(self, number: int) -> str:
        """Return the name of a tensor as the file holds it."""
        return self.as_bytes(number) if self.made(number).is_bytes else self.as_real(number)

    def keep(self, before: Value, source: str) -> None:
        """Let the next run read ``source`` as the input ``before``."""
        self.kept.append((before, self._rounded(before, source) if before.is_bytes else source))

    def output(self, value: Value, source: str, name: str = "") -> str:
        """Make an output of a tensor of the kind of ``value``; return its name.

        It gets a name of its own if one is given."""
        taken = {each.name for each in (*self.inputs, *self.outputs)} | self.constants.keys()
        if name or source in taken:
            source = self.node("Identity", [source], name or f"{value.name}/output")
        self.outputs.append(helper.make_tensor_value_info(source, value.onnx_type, value.shape))
        return source

    def model(self, name: str, constants: Mapping[str, np.ndarray],
              told: Sequence[onnx.ValueInfoProto] = ()) -> onnx.ModelProto:
        """Return the whole model with these constants, and ``told`` as further inputs."""
        weights = [numpy_helper.from_array(value, key) for key, value in constants.items()]
        graph = helper.make_graph(self.nodes, name, [*self.inputs, *told], self.outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
