# SPDX-License-Identifier: Apache-2.0
"""A graph of an ONNX model while nodes of it are written in others, before anything is known but its constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.compiler.errors import refuse
from weft.compiler.frontend.check_quantizers import known_constants
from weft.tmodel.onnx_bounds import MOST_NODES

MOST_WRITTEN = 1 << 26
"""The most elements of weights that are written out as real numbers, as of other computed constants."""


@dataclass
class Writer:
    """A graph while it is rewritten: its ``nodes`` so far, and which constants were made."""

    graph: onnx.GraphProto
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    made: list[onnx.TensorProto] = field(default_factory=list)
    wide: set[str] = field(default_factory=set)
    """Tensors of sixteen bits that are real numbers now."""
    elements: int = 0

    def __post_init__(self) -> None:
        """Read the graph's constants and names."""
        self.known = known_constants(self.graph)
        self.used = {name for node in self.graph.node for name in (*node.input, *node.output)} | self.known.keys()
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.ends = {value.name for value in self.graph.output}

    def write(self, conversion: Callable[[onnx.NodeProto, int], Convert | None]) -> bool:
        """Rewrite every node that has a ``conversion``, of a node and an opset; return whether there was any.

        Raise CompileError for too many nodes."""
        changed = False
        for node in self.graph.node:
            convert, before = conversion(node, self.opset), (len(self.nodes), len(self.made))
            if convert is not None and convert(self, node, attributes_of(node)):
                changed = True
            else:
                del self.nodes[before[0]:], self.made[before[1]:]
                self.nodes.append(node)
            if len(self.nodes) > MOST_NODES:
                raise refuse("the model", f"more than {MOST_NODES} nodes when others' operators are written out",
                             f"at most {MOST_NODES}", "split the network")
        if changed:
            self._keep()
        return changed

    def _keep(self) -> None:
        """Replace the graph's nodes by those that were made."""
        kept = list(self.nodes)
        del self.graph.node[:]
        self.graph.node.extend(kept)
        self.graph.initializer.extend(self.made)
        told = [value for value in self.graph.value_info if value.name not in self.wide]
        del self.graph.value_info[:]
        self.graph.value_info.extend(told)

    def new(self, node: onnx.NodeProto, part: str) -> str:
        """Return a name that no tensor has."""
        name = f"{node.output[0]}/{part}"
        while name in self.used:
            name += "_"
        self.used.add(name)
        return name

    def add(self, node: onnx.NodeProto, operator: str, inputs: Sequence[str], output: str = "",
            **attributes: Any) -> str:
        """Add a node of ONNX; return the name of what it makes, ``output`` or a new one."""
        output = output or self.new(node, operator.lower())
        name = node.name if output in node.output and node.name else output
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=name, **attributes))
        return output

    def constant(self, node: onnx.NodeProto, value: Any) -> str:
        """Add a constant, an array or a number of type float32; return its name."""
        name = self.new(node, "constant")
        self.made.append(numpy_helper.from_array(np.asarray(value, getattr(value, "dtype", np.float32)), name))
        return name

    def count(self, elements: int) -> None:
        """Count elements of weights that are written out. Raise CompileError beyond the limit."""
        self.elements += elements
        if self.elements > MOST_WRITTEN:
            raise refuse("weights of few bits", f"more than {MOST_WRITTEN} elements", f"at most {MOST_WRITTEN}",
                         "split the network, or end it earlier with --end")


Convert = Callable[[Writer, onnx.NodeProto, Mapping[str, Any]], bool]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node that are numbers, texts or lists of them."""
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute
            if entry.type in (entry.INT, entry.FLOAT, entry.STRING, entry.INTS, entry.FLOATS)}


def input_of(node: onnx.NodeProto, number: int) -> str:
    """Return the name of an input, empty if it is absent."""
    return node.input[number] if number < len(node.input) else ""
