# SPDX-License-Identifier: Apache-2.0
"""Pass: operators that together are a function of one number become one lookup table.

So are activations as tools write them out: x * sigmoid(x), GELU as Div, Erf, Add, Mul or with a tanh, hard-swish as
Add, Clip, Mul, Div, 1 / sqrt(x + epsilon). A table has one rounding and one layer instead of several. A table of bytes
also holds the roundings that a quantised file has in between; such a function begins where the file rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.lowering.functions import FUNCTION, may_be_infinite, of_steps, real_function
from weft.compiler.lowering.operators import FUNCTIONS
from weft.compiler.lowering.rules import Step
from weft.compiler.passes.normalise import OPSET
from weft.hw.contract.arch import Arch
from weft.tmodel.scales import HIGHEST, LOWEST

Argument = int | float
Gains = Callable[[Graph, Sequence[Node], str], bool]
MakeSteps = Callable[[Node, tuple[Argument, ...], int], list[Step]]

PLAIN, AFFINE = frozenset({"Identity", "Neg", "Relu"}), frozenset({"Add", "Sub", "Mul", "Div"})

TABLES_NEEDED, REGISTERS_NEEDED = 2, 3
BYTE_TABLE_DEPTH = 256
"""The entries of a table that has one for every byte."""


def fuse_functions(graph: Graph, arch: Arch) -> Graph:
    """Return the graph with groups of operators fused that one lookup table computes better.

    Without such tables on the machine the graph stays the same."""
    if arch.lut_count < TABLES_NEEDED or arch.simd_registers_depth < REGISTERS_NEEDED:
        return graph
    return _fused(graph, _gains)


def fuse_byte_functions(graph: Graph, arch: Arch) -> Graph:
    """Return the graph with groups of operators fused that one table of 256 entries computes."""
    return _fused(graph, partial(_bends, rounded=_rounded(graph) if has_byte_tables(arch) else frozenset()))


def _fused(graph: Graph, gains: Gains) -> Graph:
    """Return the graph with every group of nodes fused for which ``gains`` says that a table is better."""
    makers = {node.output: node for node in graph.nodes if node.outputs}
    consumers, outputs = graph.consumers(), graph.output_tensors()
    fused: dict[str, Node] = {}
    gone: set[str] = set()
    for node in reversed(graph.nodes):
        if node.output in gone or node.op in (FAKE_QUANTIZE, "Identity"):  # which leave the file's scale to a table
            continue
        region = _region(graph, node, makers, consumers, outputs, gains)
        if region is not None:
            source, inside = region
            fused[node.output] = _as_function(graph, node, source, inside)
            gone |= {entry.output for entry in inside[:-1]}
    return graph.with_nodes(fused.get(node.output, node) for node in graph.nodes if node.output not in gone)


def has_byte_tables(arch: Arch) -> bool:
    """Tell whether the machine has a table with an entry for every byte: SIMD table or activation table."""
    return arch.activation_tables > 0 or simd_has_byte_tables(arch)


def simd_has_byte_tables(arch: Arch) -> bool:
    """Tell whether the SIMD unit has a table with an entry for every byte."""
    return arch.lut_count > 0 and arch.lut_depth == BYTE_TABLE_DEPTH


def _rounded(graph: Graph) -> frozenset[str]:
    """Return the names of all tensors that a FakeQuantize makes, whose numbers a quantised file has rounded.

    A function with a rounding inside must begin at such a tensor. The set is empty if the file rounds nothing."""
    return frozenset(node.output for node in graph.nodes if node.op == FAKE_QUANTIZE)


# -- what belongs together ---------------------------------------------------------------------------------------------
def _scalar(graph: Graph, name: str) -> float | None:
    """Return the one value of all elements of a constant, or None if they differ or are no numbers."""
    value = graph.constants.get(name)
    if value is None or value.dtype.kind != "f" or not value.size or np.isnan(value).any():
        return None
    return float(value.ravel()[0]) if (value == value.ravel()[0]).all() else None


def _arguments(graph: Graph, node: Node) -> list[str] | None:
    """Return the tensors from which a node computes its elements one by one; None if it is another kind of node."""
    if node.op not in STEPS or node.output not in graph.shapes:
        return None
    names = [name for name in node.inputs if name]
    tensors = list(dict.fromkeys(name for name in names if not graph.is_constant(name)))
    constants = [name for name in names if graph.is_constant(name)]
    shape = graph.shapes[node.output]
    if not tensors or any(graph.shapes.get(name) != shape for name in tensors):
        return None
    values = [_scalar(graph, name) for name in constants]
    if any(value is None or not (math.isfinite(value) or node.op == "Clip") for value in values):
        return None
    return tensors if _is_plain(graph, node) else None


def _is_plain(graph: Graph, node: Node) -> bool:
    """Tell whether a node is no Pow with a computed exponent and no Clip with a computed limit."""
    return node.op not in ("Pow", "Clip") or all(map(graph.is_constant, filter(None, node.inputs[1:])))


def _region(graph: Graph, last: Node, makers: Mapping[str, Node], consumers: Mapping[str, Sequence[Node]],
            outputs: frozenset[str], gains: Gains) -> tuple[str, list[Node]] | None:
    """Return the tensor and the largest group of nodes that computes the output of ``last`` from this one tensor.

    The nodes are in order. Return None if a table gains nothing."""
    inside: dict[str, Node] = {}
    border = {last.output}
    found = None
    while border:
        # Grow by a node of which everything is read inside.
        ready = [name for name in border if name == last.output or (name not in outputs and all(
            reader.output in inside for reader in consumers.get(name, [])))]
        grown = next((name for name in ready if name in makers and _arguments(graph, makers[name]) is not None), None)
        if grown is None:
            break
        node = makers[grown]
        inside[grown] = node
        border = border - {grown} | set(_arguments(graph, node) or ())
        if len(border) == 1 and gains(graph, [*inside.values()], next(iter(border))):
            found = next(iter(border)), [entry for entry in graph.nodes if entry.output in inside]
    return found


def _gains(graph: Graph, entries: Sequence[Node], source: str) -> bool:
    """Tell whether a table is better: nodes with a product, or several nodes that are not only straight pieces."""
    products = [node for node in entries if node.op == "HardSwish" or (
        node.op in ("Mul", "Div", "Pow") and _is_product(node, entries, source))]
    tables = [node for node in entries if node.op in FUNCTIONS]
    return bool(products) or (bool(tables) and len(entries) > 1)


def _bends(graph: Graph, entries: Sequence[Node], source: str, *, rounded: frozenset[str]) -> bool:
    """Tell whether a table of bytes is needed for these nodes.

    A factor, an offset, a ReLU and a limit need none. If the file rounds in between, ``source`` must be one of
    ``rounded``."""
    if any(node.op == FAKE_QUANTIZE for node in entries) and source not in rounded:
        return False

    def is_plain(node: Node) -> bool:
        if node.op == "Clip":
            limits = limits_of(graph, node)
            return limits is not None and limits[0] == 0
        constants = sum(map(graph.is_constant, node.inputs))
        return node.op in PLAIN or (node.op in AFFINE and constants == 1 and not (
            node.op == "Div" and graph.is_constant(node.input(0))))
    return not all(map(is_plain, entries))


def _is_product(node: Node, entries: Sequence[Node], source: str) -> bool:
    """Tell whether a node multiplies, divides or raises values that depend on ``source``, not only by constants."""
    made = {source, *(entry.output for entry in entries)}
    if node.op == "Pow":
        return True
    return all(name in made for name in node.inputs) or (node.op == "Div" and node.input(1) in made)


# -- as one ------------------------------------------------------------------------------------------------------------
def _as_function(graph: Graph, last: Node, source: str, nodes: Sequence[Node]) -> Node:
    """Return the Function node that computes the output of ``last`` from ``source`` as the ``nodes`` do."""
    numbers: dict[str, Argument] = {source: 0}
    steps: list[Step] = []
    for node in nodes:
        made = STEPS[node.op](node, _given(graph, node, numbers), len(steps))
        steps += made
        numbers[node.output] = len(steps)
    attributes = of_steps(tuple(steps), kind_of(tuple(steps)))
    return Node(last.name, FUNCTION, (source,), last.outputs, dict(attributes), last.op)


def _given(graph: Graph, node: Node, numbers: Mapping[str, Argument]) -> tuple[Argument, ...]:
    """Return a node's arguments: the step number of each tensor (from ``numbers``), the value of each constant."""
    return tuple(numbers[name] if name in numbers else _scalar(graph, name) or 0.0 for name in node.inputs if name)


def limits_of(graph: Graph, clip: Node) -> tuple[float, float] | None:
    """Return the lowest and the highest result of a Clip; None if its limits are computed or differ by element."""
    if _arguments(graph, clip) is None:
        return None
    (_, (_, low), _), (_, (_, high), _) = _clip(clip, _given(graph, clip, {clip.input(0): 0}), 0)
    return float(low), float(high)


def kind_of(steps: tuple[Step, ...]) -> str:
    """Return the kind of a function, a key of ``functions.KINDS``."""
    if any(map(may_be_infinite, steps)):
        return "as_seen"
    at_zero = real_function(FUNCTION, of_steps(steps, "any"), OPSET)(np.zeros(1))
    return "keeps_zero" if at_zero[0] == 0 else "any"


def _same(node: Node, arguments: tuple[Argument, ...], before: int) -> list[Step]:
    """Return the step of a node whose operator is a step itself."""
    return [(node.op, arguments, tuple(sorted(node.attributes.items())))]


def _nothing(node: Node, arguments: tuple[Argument, ...], before: int) -> list[Step]:
    """Return the step of a node that does nothing."""
    return [("Identity", arguments[:1], ())]


def _clip(node: Node, arguments: tuple[Argument, ...], before: int) -> list[Step]:
    """Return the steps of a Clip, whose bounds are attributes or inputs and may be absent."""
    given = dict(zip([number for number, name in enumerate(node.inputs) if name], arguments, strict=True))
    low = given.get(1, float(node.attributes.get("min", -math.inf)))
    high = given.get(2, float(node.attributes.get("max", math.inf)))
    largest = float(np.finfo(np.float32).max)
    return [("Max", (arguments[0], max(float(low), -largest)), ()),
            ("Min", (before + 1, min(float(high), largest)), ())]


def _fake_quantize(node: Node, arguments: tuple[Argument, ...], before: int) -> list[Step]:
    """Return the steps of a FakeQuantize, in single precision, as onnxruntime rounds."""
    scale, zero = scale_of(node)
    return [("Div", (*arguments, scale), ()), ("Round", (before + 1,), ()),
            ("Max", (before + 2, float(LOWEST - zero)), ()), ("Min", (before + 3, float(HIGHEST - zero)), ()),
            ("Mul", (before + 4, scale), ())]


STEPS: dict[str, MakeSteps] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Neg", "Abs", "Relu", "HardSwish", "HardSigmoid",
                     "LeakyRelu", *sorted(FUNCTIONS)), _same),
    "Clip": _clip, FAKE_QUANTIZE: _fake_quantize, "Identity": _nothing}
"""Operators that may be part of a function: the maker of their steps."""
