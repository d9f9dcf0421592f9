# SPDX-License-Identifier: Apache-2.0
"""The graph: the frontend makes it and the passes rewrite it. It is frozen; every rewrite makes a new one.

Operators keep their ONNX names and meaning, so that a graph can be written back as ONNX and run after every pass
(``frontend/onnx_writer.py``). Tensors are named; constants are numpy arrays; shapes are tuples with batch first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.frontend.states import State
from weft.tmodel.packing import Packing
from weft.tmodel.scales import TensorScale
from weft.tmodel.window import Window

Shape = tuple[int, ...]
FLOAT = "float32"


@dataclass(frozen=True)
class Node:
    """One operation. A missing input is the empty string; ``outputs`` are tensor names.

    ``origin`` is the model's operator if a pass has replaced it; ``macs`` its multiply-accumulates if its weights do
    not tell. The last ``captured`` of its inputs are not the operator's own: graphs in its attributes read them by
    name."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    macs: int | None = None
    captured: int = 0

    @property
    def output(self) -> str:
        """The name of the first output."""
        return self.outputs[0]

    @property
    def window(self) -> Window:
        """The window of a canonical convolution or pool: kernel, strides, pads before, and dilations."""
        attributes = self.attributes
        return Window(attributes["kernel_shape"], attributes["strides"], attributes["pads"][:2],
                      attributes["dilations"])

    def input(self, index: int) -> str:
        """Return the name of an input, empty if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def replace(self, **values: Any) -> Node:
        """Return the node with other fields."""
        return dataclasses.replace(self, **values)


@dataclass(frozen=True)
class GraphPort:
    """An input or output of the network: its name and shape for the user, and the tensor that holds it.

    ``order`` is the position in that tensor of every element, None if they lie in order. With ``packing`` it is the
    position in the image which the host packs into that tensor."""

    name: str
    shape: Shape
    tensor: str
    order: np.ndarray | None = None
    packing: Packing | None = None
    type: str = FLOAT
    """numpy's name of the type in the model's file."""
    quantized: TensorScale | None = None
    """The scale and zero point if the user's array holds bytes; unsigned ones are larger by 128.

    The graph's tensor holds the real numbers."""


Interval = tuple[float, float]
"""The lowest and the highest value that a tensor may have; infinite if nothing is known."""


class Limited(NamedTuple):
    """The bound of a tensor that saturates there on purpose, because small numbers are what its readers need."""

    low: float
    high: float


class Within(NamedTuple):
    """The bound of a tensor that holds values of ``source`` times ``factor``, or ``differences`` of two of them.

    They may be lower by ``margin``."""

    source: str
    differences: bool = False
    margin: float = 0.0
    factor: float = 1.0


Bound = Interval | Limited | Within


@dataclass(frozen=True)
class Copied:
    """What a tensor of copies holds: for each of its channels the channel of ``source`` that is there, moved.

    ``channels`` has -1 where nothing is."""

    source: str
    channels: tuple[int, ...]


NO_COPIES: Mapping[str, Copied] = {}


@dataclass(frozen=True)
class Graph:
    """A network: nodes in an order that respects their dataflow, and what is known of its tensors.

    ``types``: numpy's names, for tensors that are not real numbers; real ones are in single precision. ``bounds``: what
    the pass that made a tensor knows of its values, for all inputs; beyond the bound no reader tells values apart.
    ``copies``: tensors that hold others' channels several times."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[GraphPort, ...]
    outputs: tuple[GraphPort, ...]
    shapes: Mapping[str, Shape]
    constants: Mapping[str, np.ndarray]
    opset: int
    types: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    states: tuple[State, ...] = ()
    copies: Mapping[str, Copied] = field(default_factory=dict)

    def type(self, name: str) -> str:
        """Return numpy's name of a tensor's type."""
        return self.types.get(name, FLOAT)

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor or of a constant."""
        return tuple(self.constants[name].shape) if self.is_constant(name) else self.shapes[name]

    def consumers(self) -> Mapping[str, Sequence[Node]]:
        """Return tensor -> nodes that read it, once per reading input."""
        return self._consumers

    @cached_property
    def _consumers(self) -> dict[str, list[Node]]:
        """The cached result of :meth:`consumers`."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        return readers

    def output_tensors(self) -> frozenset[str]:
        """Return the tensors of the outputs."""
        return self._output_tensors

    @cached_property
    def _output_tensors(self) -> frozenset[str]:
        """The cached result of :meth:`output_tensors`."""
        return frozenset(port.tensor for port in self.outputs)

    def has_one_reader(self, name: str) -> bool:
        """Tell whether one input of one node reads a tensor, and no output is it."""
        return len(self._consumers.get(name, [])) == 1 and name not in self._output_tensors

    def free_name(self, wish: str) -> str:
        """Return ``wish``, with as many primes behind it as no tensor or constant has."""
        while wish in self.shapes or wish in self.constants:
            wish += "'"
        return wish

    def is_constant(self, name: str) -> bool:
        """Tell whether a tensor is a constant."""
        return name in self.constants

    def replace(self, **values: Any) -> Graph:
        """Return the graph with other fields."""
        return dataclasses.replace(self, **values)

    def with_nodes(self, nodes: Iterable[Node], constants: Mapping[str, np.ndarray] | None = None) -> Graph:
        """Return the graph with other nodes; constants are added, and unread ones are dropped."""
        nodes = tuple(nodes)
        read = {name for node in nodes for name in node.inputs}
        merged = {**self.constants, **(constants or {})}
        return self.replace(nodes=nodes, constants={name: value for name, value in merged.items() if name in read})

    def part(self, nodes: Iterable[Node]) -> Graph:
        """Return a graph of some of the nodes, with the constants and shapes of what they read and make."""
        nodes = tuple(nodes)
        names = dict.fromkeys(name for node in nodes for name in (*node.inputs, *node.outputs))
        constants, shapes, types = ({name: known[name] for name in names if name in known}
                                    for known in (self.constants, self.shapes, self.types))
        return self.replace(nodes=nodes, constants=constants, shapes=shapes, types=types)

    def text(self) -> str:
        """Return the graph as text, one line a tensor or node; constants by shape and type."""
        lines = [f"graph {self.name} opset={self.opset}"]
        lines += [f"input {port.name}: {_shape(port.shape)} in {port.tensor}" for port in self.inputs]
        lines += [f"constant {name}: {value.dtype}{_shape(value.shape)}" for name, value in self.constants.items()]
        lines += [self._node_text(node) for node in self.nodes]
        lines += [f"output {port.name}: {_shape(port.shape)} in {port.tensor}" for port in self.outputs]
        return "\n".join(lines) + "\n"

    def _node_text(self, node: Node) -> str:
        """Return a node as text."""
        attributes = "".join(f" {key}={value}" for key, value in sorted(node.attributes.items()))
        shape = _shape(self.shapes.get(node.output, ()))
        return f"{', '.join(node.outputs)} = {node.op}({', '.join(node.inputs)}){attributes} : {shape}"


def _shape(shape: Shape) -> str:
    """Return a shape as text, such as ``[1x3x8x8]``."""
    return "[" + "x".join(map(str, shape)) + "]"
