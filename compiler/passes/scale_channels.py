# SPDX-License-Identifier: Apache-2.0
"""Pass for INT8 machines: a tensor times a number for each channel is scaled by the requantizer.

Squeeze and excitation has such gates. The SIMD unit multiplies bytes to a byte, but an exact product has more bits and
should be rounded once. The requantizer does that: its multipliers, one for each lane, come from local memory. There
they are unsigned bytes; the other bytes of a multiplier and its bias are 0. So the gate becomes a row of
``SCALE_VECTORS`` pixels. The first is the gate, and the others are 0. A table makes bytes of it that count from 0. It
may not be negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.functions import FUNCTION, of_steps, steps_of
from weft.compiler.lowering.rewrite import NO_WINDOW
from weft.compiler.lowering.rules import Step
from weft.compiler.passes.fuse_functions import has_byte_tables
from weft.compiler.passes.propagate_quantizers import only_copies
from weft.compiler.passes.quantization import Quantization
from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SCALE_VECTORS

SCALE_CHANNELS = "ScaleChannels"
"""The canonical operator: input 0 times, for each channel, pixel (0, 0) of input 1.

Input 1 is [1, channels, 1, SCALE_VECTORS]."""

NEVER_NEGATIVE = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softplus", "Sqrt"})
COPIED: tuple[Step, ...] = (("Identity", (0,), ()),)
"""The steps of a function that changes no real number.

If a scale of the file ends at 0, real numbers may be below it in a graph that does not round; the bytes end there
too."""


class Gate(NamedTuple):
    """A Mul of an ``image`` with the one-pixel tensor ``source``, which the nodes ``spread`` repeat.

    Before or behind that one of them may choose some of its channels."""

    image: str
    source: str
    spread: tuple[Node, ...]

    @property
    def chosen(self) -> Node | None:
        """The convolution that chooses channels, or None."""
        return next((node for node in self.spread if node.op == "Conv"), None)


def scale_channels(graph: Graph, quantization: Quantization, arch: Arch) -> Graph:
    """Return the graph with gates of channels as ``SCALE_CHANNELS`` nodes.

    Without a table for every byte on the machine the graph stays the same."""
    if not has_byte_tables(arch):
        return graph
    makers = {node.output: node for node in graph.nodes}
    constants, shapes = dict(graph.constants), dict(graph.shapes)
    nodes: list[Node] = []
    rows: dict[tuple[str, bytes], str] = {}
    spread: set[str] = set()
    for node in graph.nodes:
        gate = _gate(graph, node, makers, quantization)
        if gate is None:
            nodes.append(node)
            continue
        chosen = b"" if gate.chosen is None else graph.constants[gate.chosen.input(1)].tobytes()
        key = gate.source, chosen
        spread |= {entry.output for entry in gate.spread}
        if key not in rows:
            rows[key] = f"{gate.spread[-1].output}/factors"
            nodes += _row(node, gate, rows[key], shapes, constants)
        nodes.append(node.replace(op=SCALE_CHANNELS, inputs=(gate.image, rows[key])))
    return graph.replace(shapes=shapes).with_nodes(_without_unread(nodes, spread, graph.output_tensors()), constants)


def _without_unread(nodes: Sequence[Node], spread: set[str], outputs: frozenset[str]) -> list[Node]:
    """Return the nodes without those that make tensors of ``spread`` that nobody reads any more."""
    read, kept = set(outputs), list[Node]()
    for node in reversed(nodes):
        if node.output in read or node.output not in spread:
            read |= {*node.inputs}
            kept.append(node)
    return kept[::-1]


def _gate(graph: Graph, node: Node, makers: Mapping[str, Node], quantization: Quantization) -> Gate | None:
    """Return the gate of channels that a Mul is, or None."""
    for image, last in (node.inputs, node.inputs[::-1]) if node.op == "Mul" else ():
        spread = _spread(graph, last, makers)
        if not any(entry.op == "Enlarge" for entry in spread) or image == last:
            continue
        source = spread[0].input(0)
        scales = {quantization.tensors.get(name) for name in (source, *(entry.output for entry in spread))}
        one_pixel = graph.shapes[source][2:] == (1, 1)
        if len(scales) == 1 and one_pixel and _never_negative(graph, source, makers, quantization):
            return Gate(image, source, tuple(spread))
    return None


def _spread(graph: Graph, name: str, makers: Mapping[str, Node]) -> list[Node]:
    """Return the nodes that make a tensor by repeating pixels and by choosing channels, each once, in any order."""
    found: list[Node] = []
    while name in makers and makers[name].op not in [entry.op for entry in found]:
        maker = makers[name]
        if maker.op != "Enlarge" and not only_copies(graph, maker):
            break
        found.insert(0, maker)
        name = maker.input(0)
    return found


def _never_negative(graph: Graph, name: str, makers: Mapping[str, Node], quantization: Quantization) -> bool:
    """Tell whether a tensor is never negative, according to its scale or the node that makes it."""
    if name in quantization.tensors and quantization.tensors[name].low >= 0:
        return True
    maker = makers.get(name)
    if maker is None:
        return False
    if maker.op in ("Enlarge", "View") or only_copies(graph, maker):
        return _never_negative(graph, maker.input(0), makers, quantization)
    if maker.op == FUNCTION:
        steps = steps_of(maker.op, maker.attributes)
        return _is_positive(steps, len(steps))
    return maker.op in NEVER_NEGATIVE or maker.op == "Clip"


def _is_positive(steps: tuple[Step, ...], number: int | float) -> bool:
    """Tell whether the result of step ``number`` is never negative.

    Steps count from 1; 0 is the function's argument. A float is a constant."""
    if isinstance(number, float):
        return number >= 0
    if not number:
        return False
    op, arguments, _ = steps[number - 1]
    found = [_is_positive(steps, argument) for argument in arguments]
    if op in NEVER_NEGATIVE or (op == "Max" and any(found)):
        return True
    return op in ("Add", "Div", "Identity", "Min", "Mul", "Round") and all(found)


def _row(node: Node, gate: Gate, name: str, shapes: dict[str, tuple[int, ...]],
         constants: dict[str, np.ndarray]) -> list[Node]:
    """Return the nodes that make the row ``name`` of multipliers from a gate."""
    row, channels = f"{gate.spread[-1].output}/row", shapes[gate.spread[-1].output][1]
    attributes = {**NO_WINDOW, "kernel_shape": (1, 1), "pads": (0, 0, 0, SCALE_VECTORS - 1)}
    if gate.chosen is not None:
        names, group = gate.chosen.inputs[1:], gate.chosen.attributes["group"]
    else:
        names, group = (f"{row}/weights", f"{row}/bias"), channels
        constants |= {names[0]: np.ones((channels, 1, 1, 1), np.float32), names[1]: np.zeros(channels, np.float32)}
    shapes |= dict.fromkeys((row, name), (1, channels, 1, SCALE_VECTORS))
    return [Node(node.name, "Conv", (gate.source, *names), (row,), {"group": group, **attributes}),
            Node(node.name, FUNCTION, (row,), (name,), dict(of_steps(COPIED, "keeps_zero")), node.origin)]
