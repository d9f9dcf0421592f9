"""Pass for machines of eight-bit numbers: a FakeQuantize becomes the scale of the tensor before it.

What is rounded twice in the same way is rounded once. Where a tensor has a scale already and another is wanted a copy
of it is made: an Enlarge that repeats nothing. Maxima, copies and views keep the scale that they read, so a scale
wanted of them is wanted of their input. Tensors that lie in one share its scale.

A tensor that other readers take as it is, or round otherwise, gets the scale that one wants only where that holds all
its values: a file rounds a slice to the slice's own range, and what it has no Relu for to a range from 0 on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from weft.tmodel.scales import TensorScale

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.lowering.functions import FUNCTION, of_steps
from weft.compiler.lowering.quantize import Ranges
from weft.compiler.passes.quantization import Quantization

KEEPS_SCALE = frozenset({"MaxPool", "Enlarge", "View"})
COPY = {"factors": (1, 1)}
"""Of an Enlarge that repeats nothing."""


def propagate_quantizers(graph: Graph, measure: Callable[[Sequence[str]], Ranges] | None = None,
                      ) -> tuple[Graph, Quantization]:
    """The graph without FakeQuantize, and the scales that its tensors keep. ``measure`` runs the graph; without it
    every scale is taken to hold what others read."""
    contested = [name for name, scales in _wanted(graph).items() if len(scales) > 1]
    return _Settler(graph, measure(contested) if measure and contested else {}).run()


def _wanted(graph: Graph) -> dict[str, set[TensorScale | None]]:
    """By tensor the scales that readers round it to, or copies of it; None among them for who takes it as it is."""
    wanted: dict[str, set[TensorScale | None]] = {name: {None} for name in graph.output_tensors()}
    for node in reversed(graph.nodes):
        found: set[TensorScale | None] = {scale_of(node) if node.op == FAKE_QUANTIZE else None}
        if node.op in KEEPS_SCALE or node.op == "Assemble":
            found = wanted.get(node.output, set())
        for name in filter(graph.shapes.__contains__, node.inputs):
            wanted.setdefault(name, set()).update(found)
    return wanted


def only_copies(graph: Graph, node: Node, factor: int = 1) -> bool:
    """Whether a node is a convolution each of whose results is one of its inputs, times ``factor``."""
    if node.op != "Conv" or any(node.attributes["pads"]):
        return False
    weights = graph.constants[node.input(1)].reshape(len(graph.constants[node.input(1)]), -1)
    return bool(((weights != 0).sum(1) == 1).all() and (weights.sum(1) == factor).all()
                and not graph.constants[node.input(2)].any())


def multiplies(graph: Graph, node: Node) -> bool:
    """Whether a convolution only multiplies each channel by a number."""
    weights, bias = (graph.constants[name] for name in node.inputs[1:])
    return weights.shape[1:] == (1, 1, 1) and node.attributes["group"] == len(weights) and not bias.any()


@dataclass
class _Settler:
    """``ranges`` of tensors that readers want in several ways; ``scales`` of tensors, ``names``: what a tensor is
    called now; ``makers`` of the nodes so far; ``lying``: parts of assembled tensors, ``apart``: parts that the scale
    of the whole does not hold."""

    graph: Graph
    ranges: Ranges
    scales: dict[str, TensorScale] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    makers: dict[str, Node] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    lying: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)

    def run(self) -> tuple[Graph, Quantization]:
        self.shapes = dict(self.graph.shapes)
        self.readers = self.graph.consumers()
        self.scales = {port.tensor: port.quantized for port in self.graph.inputs if port.quantized is not None}
        for node in self.graph.nodes:
            node = node.replace(inputs=tuple(self.names.get(name, name) for name in node.inputs))
            if node.op == FAKE_QUANTIZE:
                self._settle(node)
            else:
                self.makers[node.output] = node
                self._inherit(node)
        nodes = [made for node in self.makers.values() for made in self._with_copies(node)]
        nodes = [made for node in nodes for made in self._limited(node)]
        lying = {port.tensor for port in self.graph.inputs} | {
            name for node in nodes for name in (node.inputs if node.op == "Assemble" else node.outputs)
            if node.op in ("Assemble", "View")}
        outputs = tuple(dataclasses.replace(port, tensor=self._output(port.tensor, lying, nodes))
                        for port in self.graph.outputs)
        graph = self.graph.replace(outputs=outputs, shapes=self.shapes).with_nodes(nodes, self.constants)
        return graph, Quantization(self.scales)

    def _output(self, name: str, lying: set[str], nodes: list[Node]) -> str:
        """The tensor of an output: one of its own, a copy where it is now an input or lies in another tensor."""
        kept = self.names.get(name, name)
        if kept == name or kept not in lying:
            return kept
        if name not in self.scales:
            nodes.append(Node(name, "Enlarge", (kept,), (name,), COPY, "Identity"))
            self.scales[name] = self.scales[kept]
        return name

    def _inherit(self, node: Node) -> None:
        source = node.input(0)
        if source in self.scales and (node.op in KEEPS_SCALE or only_copies(self.graph, node)):
            self.scales[node.output] = self.scales[source]

    def _settle(self, node: Node) -> None:
        source, wanted = node.input(0), scale_of(node)
        if source not in self.scales:
            self._claim(source, wanted)
        if self.scales.get(source) == wanted:
            self.names[node.output] = source
        else:
            self.makers[node.output] = node.replace(op="Enlarge", attributes=COPY)
            self.scales[node.output] = wanted

    def _halves(self, name: str) -> tuple[str, ...]:
        """The terms of a sum, of which one is always 0: relu(x) and a multiple of relu(-x). Rounded to the scale of the
        sum, or of its ReLU, before it, they are not rounded twice."""
        positive = self._made(name, "Relu")
        total = self._made(positive.input(0) if positive else name, "Add")
        for first, second in (total.inputs, total.inputs[::-1]) if total else ():
            above, multiple = self._made(first, "Relu"), self._made(second, "Conv")
            below = multiple and self._made(multiple.input(0), "Relu")
            negative = below and self._made(below.input(0), "Conv")
            if (above and multiple and negative and above.input(0) == negative.input(0)
                    and only_copies(self.graph, negative, -1) and multiplies(self.graph, multiple)):
                return first, second
        return ()

    def _made(self, name: str, op: str) -> Node | None:
        """The node that makes a tensor, where it is an ``op``."""
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op == op else None

    def _claim(self, name: str, wanted: TensorScale) -> bool:
        """Gives a tensor, and those that it has its numbers from, a scale; False where one of these has another, or
        has other readers, or where other readers of the tensor need more than the scale holds."""
        if not self._holds(wanted, name):
            return False
        maker = self.makers.get(name)
        if maker is not None and maker.op in KEEPS_SCALE:
            source = maker.input(0)
            free = source not in self.scales and len(self.readers.get(source, [])) == 1
            if self.scales.get(source) != wanted and not (free and self._claim(source, wanted)):
                return False
        if maker is not None and maker.op == "Assemble":
            for part in maker.inputs:
                if part not in self.scales and not self._claim(part, wanted):
                    self.apart.add(part)
        self.scales |= dict.fromkeys((name, *self._halves(name)), wanted)
        return True

    def _holds(self, scale: TensorScale, name: str) -> bool:
        """Whether a scale is enough for all readers of a tensor. Infinite values saturate in any."""
        low, high = (value if math.isfinite(value) else 0.0 for value in self.ranges.get(name, (0.0, 0.0)))
        return scale.holds(low, high)

    def _with_copies(self, node: Node) -> list[Node]:
        """Parts of an assembled tensor that have another scale than it, or that cannot lie in it, are copied into it.
        """
        if node.op != "Assemble":
            return [node]
        whole = self.scales.get(node.output)
        found = {self.scales.get(part) for part in node.inputs}
        if whole is None and len(found) == 1 and None not in found:
            whole = self.scales[node.output] = found.pop()  # type: ignore[assignment]
        nodes, parts = [], []
        for part, place in zip(node.inputs, node.attributes["places"], strict=True):
            if self.scales.get(part, whole) == whole and part not in self.apart and self._can_lie(part, place, node):
                self.lying.add(part)
                parts.append(part)
                continue
            copy = f"{node.output}/{part}.{len(parts)}"
            nodes.append(Node(node.name, "Enlarge", (part,), (copy,), COPY, node.origin))
            self.shapes[copy] = self.shapes[part]
            if whole is not None:
                self.scales[copy] = whole
            parts.append(copy)
        return [*nodes, node.replace(inputs=tuple(parts))]

    def _can_lie(self, part: str, place: tuple[int, ...], node: Node) -> bool:
        """Whether a tensor can be written where it is to lie: ``Rewrite.assemble`` saw to it, but for what was
        rounded in front of it only."""
        if part in self.lying or part in {port.tensor for port in self.graph.inputs}:
            return False
        if part not in self.names.values():
            return True
        maker, size = self.makers[part], self.shapes[part][2:]
        if maker.op == "Assemble":
            return size == self.shapes[node.output][2:] and place[1:] == (0, size[1], 1)
        viewed = any(reader.op == "View" and reader.input(0) == part for reader in self.makers.values())
        return maker.op != "View" and not viewed

    def _limited(self, node: Node) -> list[Node]:
        """A Clip from 0 is a Relu whose result's scale ends where it does; where that scale goes further, and is the
        file's, a function limits it."""
        scale = self.scales.get(node.output)
        if node.op != "Clip" or scale is None:
            return [node]
        most = float({**self.graph.constants, **self.constants}[node.input(2)])
        positive = node.replace(op="Relu", inputs=node.inputs[:1])
        if scale.high <= most + scale.scale / 2:
            return [positive]
        name = f"{node.output}/positive"
        self.shapes[name], self.scales[name] = self.shapes[node.output], scale
        steps = (("Min", (0, most), ()),)
        return [positive.replace(outputs=(name,)), Node(node.name, FUNCTION, (name,), node.outputs,
                                                        dict(of_steps(steps, "keeps_zero")), node.origin)]
