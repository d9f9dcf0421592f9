# SPDX-License-Identifier: Apache-2.0
"""Pass for INT8 machines: a FakeQuantize becomes the scale of the tensor before it.

Rounding twice in the same way is done once. If a tensor has a scale already and another is wanted, a copy of it is
made: an Enlarge that repeats nothing. Maxima, copies and views keep the scale of their input, so a scale wanted for
them is wanted for their input. Parts of an assembled tensor share its scale. A tensor with other readers gets the scale
that one of them wants only if that scale holds all its values. For a file rounds a slice to the slice's own range, and
a tensor without a Relu to a range from 0 on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Graph, Node, Within
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.lowering.functions import FUNCTION, of_steps
from weft.compiler.lowering.quantize import Ranges
from weft.compiler.passes.quantization import Quantization
from weft.tmodel.scales import TensorScale

KEEPS_SCALE = frozenset({"MaxPool", "Enlarge", "View"})
COPY = {"factors": (1, 1)}
"""The attributes of an Enlarge that repeats nothing."""


def propagate_quantizers(graph: Graph, measure: Callable[[Sequence[str]], Ranges] | None = None,
                      ) -> tuple[Graph, Quantization]:
    """Return the graph without FakeQuantize, and the scales that its tensors keep.

    ``measure`` runs the graph to find ranges; without it every scale is taken to hold the values that others read."""
    contested = [name for name, scales in _wanted(graph).items() if len(scales) > 1]
    return _Settler(graph, measure(contested) if measure and contested else {}).run()


def _wanted(graph: Graph) -> dict[str, set[TensorScale | None]]:
    """Return, for each tensor, the scales to which readers round it or its copies; None for readers of exact values."""
    wanted: dict[str, set[TensorScale | None]] = {name: {None} for name in graph.output_tensors()}
    for node in reversed(graph.nodes):
        found: set[TensorScale | None] = {scale_of(node) if node.op == FAKE_QUANTIZE else None}
        if node.op in KEEPS_SCALE or node.op == "Assemble":
            found = wanted.get(node.output, set())
        for name in filter(graph.shapes.__contains__, node.inputs):
            wanted.setdefault(name, set()).update(found)
    return wanted


def only_copies(graph: Graph, node: Node, factor: int = 1) -> bool:
    """Return whether a node is a convolution each of whose results is one of its inputs, times ``factor``."""
    if node.op != "Conv" or any(node.attributes["pads"]):
        return False
    weights, bias = (graph.constants[name] for name in node.inputs[1:])
    return copies_inputs(weights, bias, factor)


def copies_inputs(weights: np.ndarray, bias: np.ndarray, factor: int = 1) -> bool:
    """Return whether each output channel of a convolution has one weight, which is ``factor``, and no bias."""
    rows = weights.reshape(len(weights), -1)
    return bool(((rows != 0).sum(1) == 1).all() and (rows.sum(1) == factor).all() and not bias.any())


def multiplies(graph: Graph, node: Node) -> bool:
    """Tell whether a convolution only multiplies each channel by a number."""
    weights, bias = (graph.constants[name] for name in node.inputs[1:])
    return weights.shape[1:] == (1, 1, 1) and node.attributes["group"] == len(weights) and not bias.any()


@dataclass
class _Settler:
    """The graph while FakeQuantize nodes become scales.

    ``ranges``: of tensors whose readers want different scales. ``scales``: of tensors. ``names``: the present name of a
    tensor. ``makers``: the nodes so far, by output. ``lying``: parts of assembled tensors. ``apart``: parts whose
    values the scale of the whole does not hold."""

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
        """Return the graph without FakeQuantize, and the scales that its tensors keep."""
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
        bounds = {name: bound._replace(source=self.names.get(bound.source, bound.source))
                  if isinstance(bound, Within) else bound for name, bound in self.graph.bounds.items()}
        graph = self.graph.replace(outputs=outputs, shapes=self.shapes, bounds=bounds).with_nodes(nodes, self.constants)
        return graph, Quantization(self.scales)

    def _output(self, name: str, lying: set[str], nodes: list[Node]) -> str:
        """Return the tensor of an output: its own, or a copy if it is now an input or a part of another tensor."""
        kept = self.names.get(name, name)
        if kept == name or kept not in lying:
            return kept
        if name not in self.scales:
            nodes.append(Node(name, "Enlarge", (kept,), (name,), COPY, "Identity"))
            self.scales[name] = self.scales[kept]
        return name

    def _inherit(self, node: Node) -> None:
        """Give the output of a node that keeps scales the scale of its input."""
        source = node.input(0)
        if source in self.scales and (node.op in KEEPS_SCALE or only_copies(self.graph, node)):
            self.scales[node.output] = self.scales[source]

    def _settle(self, node: Node) -> None:
        """Replace a FakeQuantize by the scale of its input, or by a copy with that scale."""
        source, wanted = node.input(0), scale_of(node)
        if source not in self.scales:
            self._claim(source, wanted)
        if self.scales.get(source) == wanted:
            self.names[node.output] = source
        else:
            self.makers[node.output] = node.replace(op="Enlarge", attributes=COPY)
            self.scales[node.output] = wanted

    def _halves(self, name: str) -> tuple[str, ...]:
        """Return the two terms of the sum relu(x) + a multiple of relu(-x), of which one is always 0.

        Rounded to the scale of the sum, or of its ReLU, before it, they are not rounded twice. The tuple is empty for
        other tensors, and for the ReLU of a sum that is rounded, or read by others too: they want what is below 0."""
        positive = self._made(name, "Relu")
        if positive and not self._has_one_reader(positive.input(0)):
            return ()
        total = self._made(positive.input(0) if positive else name, "Add")
        for first, second in (total.inputs, total.inputs[::-1]) if total else ():
            above, multiple = self._made(first, "Relu"), self._made(second, "Conv")
            below = multiple and self._made(multiple.input(0), "Relu")
            negative = below and self._made(below.input(0), "Conv")
            if (above and multiple and negative and above.input(0) == negative.input(0)
                    and only_copies(self.graph, negative, -1) and multiplies(self.graph, multiple)):
                return first, second
        return ()

    def _has_one_reader(self, name: str) -> bool:
        """Tell whether a tensor without a scale has one reader, which no output is."""
        return name not in self.scales and self.graph.has_one_reader(name)

    def _made(self, name: str, op: str) -> Node | None:
        """Return the node that makes a tensor if its operator is ``op``, else None."""
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op == op else None

    def _claim(self, name: str, wanted: TensorScale) -> bool:
        """Give a tensor, and the tensors whose numbers it has, a scale; tell whether that was possible.

        It is not if one of these has another scale or other readers, or if other readers need more than the scale
        holds."""
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
        """Tell whether a scale is wide enough for all readers of a tensor; infinite values saturate in any."""
        low, high = (value if math.isfinite(value) else 0.0 for value in self.ranges.get(name, (0.0, 0.0)))
        return scale.holds(low, high)

    def _with_copies(self, node: Node) -> list[Node]:
        """Return an Assemble, after copies of those parts that have another scale or cannot lie in it."""
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
        """Tell whether a tensor can be written where it is to lie in an assembled tensor.

        ``Rewrite.assemble`` ensured that, except for tensors that were only reached through a FakeQuantize."""
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
        """Return the nodes for a Clip from 0: a Relu if its result's scale ends at the limit.

        If that scale goes further, and is the file's, a function limits it."""
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
