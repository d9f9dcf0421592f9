# SPDX-License-Identifier: Apache-2.0
"""Turn dynamic quantisation into the network of real numbers behind it.

Models of onnxruntime's ``quantize_dynamic`` find the scale of every activation while they run. The machine has scales,
or binary points, from calibration instead. So DynamicQuantizeLinear passes its input on, with the scale 1 and the zero
point 0. Operators on its bytes compute on real numbers. The later nodes, which apply scales, stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.frontend.check_quantizers import DEQUANTIZE, known_constants, spread
from weft.compiler.frontend.dynamic_bias import real_biases
from weft.compiler.frontend.qoperators import OURS
from weft.compiler.frontend.quantizers import MOVES, PRODUCTS

QUANTIZE = "DynamicQuantizeLinear"
LSTM = "DynamicQuantizeLSTM"
TO_FLOAT = "MatMulIntegerToFloat"
OUTPUT_AXES = {"ConvInteger": 0, "MatMulInteger": -1, TO_FLOAT: -1, "DynamicQuantizeMatMul": -1}
"""Operator -> the axis of weights on which output channels lie."""
BYTES = (np.dtype(np.int8), np.dtype(np.uint8))

Nodes = list[onnx.NodeProto]


def to_real(model: onnx.ModelProto) -> None:
    """Rewrite the model's own graph. Other computations on bytes stay, for the host."""
    known = known_constants(model.graph)
    real_biases(model.graph, known)
    network = _Network(model.graph, known)
    nodes = [made for node in model.graph.node for made in network.rewritten(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


class _Network:
    """The network while it is rewritten.

    ``known``: its constants. ``real``: tensors of bytes that become real numbers."""

    def __init__(self, graph: onnx.GraphProto, known: Mapping[str, np.ndarray]) -> None:
        self.graph, self.known = graph, known
        self.readers: dict[str, Nodes] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.makers = {name: node for node in graph.node for name in node.output}
        self.ends = {value.name for value in graph.output}
        moved = [self._bytes_of(node) or set() for node in graph.node if node.op_type == QUANTIZE]
        self.real = self._with_real_partners(set().union(*moved))

    # -- which quantizers may be left out ------------------------------------------------------------------------------
    def _bytes_of(self, quantizer: onnx.NodeProto) -> set[str] | None:
        """Return a quantizer's bytes, and the tensors that they are moved to.

        Return None if anything reads them but products that subtract their zero point."""
        found, waiting, zero = set(), [quantizer.output[0]], quantizer.output[2]
        if self.ends.intersection(quantizer.output):
            return None
        while waiting:
            name = waiting.pop()
            found.add(name)
            for reader in self.readers.get(name, []):
                if reader.op_type in MOVES and reader.input[0] == name and reader.op_type != "Pad":
                    waiting += [output for output in reader.output if output]
                elif not (self._is_product(reader, name, zero) or _undoes(reader, name, quantizer)):
                    return None
        return None if found & self.ends else found

    def _is_product(self, node: onnx.NodeProto, name: str, zero: str) -> bool:
        """Tell whether a node multiplies the bytes minus ``zero``, and its result is cast to real numbers."""
        inputs = [*node.input, *[""] * 6]
        if node.op_type == TO_FLOAT:
            return (inputs[0], inputs[4]) == (name, zero) or (inputs[1], inputs[5]) == (name, zero)
        fits = (inputs[0], inputs[2]) == (name, zero) or (inputs[1], inputs[3]) == (name, zero)
        return node.op_type in PRODUCTS and fits and self._only_cast(node)

    def _only_cast(self, node: onnx.NodeProto) -> bool:
        """Tell whether only casts to real numbers read the result of a product."""
        return node.output[0] not in self.ends and all(
            _casts_to_real(reader) for reader in self.readers.get(node.output[0], []))

    def _with_real_partners(self, wished: set[str]) -> set[str]:
        """Return the tensors among ``wished`` that can become real numbers.

        Everywhere they must be multiplied by constants whose parameters are constants, or by each other."""
        kept = set(wished)
        while True:
            lost = {name for node in self.graph.node if node.op_type in OUTPUT_AXES
                    and kept.intersection(node.input[:2])
                    for name, parameters in zip(node.input[:2], _parameters(node), strict=False)
                    if name not in kept and not (self.knows(*parameters)
                                                 and (name in self.known or _moves_before(self, name)))}
            drop = {name for name in kept if any(lost.intersection(reader.input) for reader in self.readers[name])} \
                if lost else set()
            drop |= {name for node in self.graph.node if node.op_type in MOVES and node.input[0] in kept
                     and not kept.issuperset(filter(None, node.output)) for name in node.input[:1]}
            drop |= {name for node in self.graph.node if node.op_type in MOVES and node.input[0] not in kept
                     for name in node.output if name in kept}
            if not drop:
                return kept
            kept -= drop

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def rewritten(self, node: onnx.NodeProto) -> Nodes:
        """Return the nodes that replace a node; the node itself if it stays."""
        rewrite = REWRITES.get(node.op_type) if node.domain in OURS else None
        made = None if rewrite is None else rewrite(self, node)
        return [node] if made is None else made

    def knows(self, *names: str) -> bool:
        """Tell whether all these tensors are constants; an empty name counts as one."""
        return all(name in self.known for name in names if name)

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant; return its name."""
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weights(self, name: str, zero: str, axis: int, scale: str = "") -> np.ndarray:
        """Return the real numbers of a constant of bytes; without a scale, as if it were 1.

        Raise ValueError for sizes that do not fit."""
        values = self.known[name].astype(np.float64)
        zeros = spread(self.known[zero], values.ndim, axis) if zero else np.zeros(())
        scales = spread(self.known[scale], values.ndim, axis) if scale else np.ones(())
        return np.asarray((values - zeros) * scales).astype(np.float32)

    def operands(self, node: onnx.NodeProto) -> tuple[Nodes, list[str]]:
        """Return the nodes and the names of the real numbers that a product multiplies.

        The nodes move those of a table."""
        nodes: Nodes = []
        names = []
        for number, (name, (zero, scale)) in enumerate(zip(node.input[:2], _parameters(node), strict=True)):
            axis, real = OUTPUT_AXES[node.op_type] if number else 0, f"{node.output[0]}/real{number}"
            if name in self.real:
                names.append(name)
            elif name in self.known:
                names.append(self.constant(real, self.weights(name, zero, axis, scale)))
            else:
                chain = _moves_before(self, name)
                table = self.constant(f"{real}/table", self.weights(chain[-1].input[0], zero, 0, scale))
                nodes += _moved(chain, table, real)
                names.append(real)
        return nodes, names

    def is_real(self, node: onnx.NodeProto) -> bool:
        """Tell whether a product is to be one of real numbers.

        It reads a quantizer that is left out or a table that is moved, with constant parameters, and only casts to real
        numbers read its result."""
        if self.real.intersection(node.input[:2]):
            return True
        parameters = dict(zip(node.input[:2], _parameters(node), strict=False))
        tables = [name for name in parameters if _moves_before(self, name)]
        return (bool(tables) and (node.op_type == TO_FLOAT or self._only_cast(node))
                and self.knows(*(name for name in parameters if name not in tables),
                               *(name for pair in parameters.values() for name in pair))
                and all(self.known[name].size == 1 for table in tables for name in parameters[table] if name))


def _parameters(node: onnx.NodeProto) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return zero point and scale of both operands of a product, empty if there are none."""
    inputs = [*node.input, *[""] * 6]
    if node.op_type in PRODUCTS:
        return (inputs[2], ""), (inputs[3], "")
    if node.op_type == TO_FLOAT:
        return (inputs[4], inputs[2]), (inputs[5], inputs[3])
    return ("", ""), (inputs[3], inputs[2])  # DynamicQuantizeMatMul: activations of real numbers


def _undoes(node: onnx.NodeProto, name: str, quantizer: onnx.NodeProto) -> bool:
    """Tell whether a node dequantizes ``name`` with the parameters of ``quantizer``."""
    return node.op_type == DEQUANTIZE and list(node.input) == [name, *quantizer.output[1:]]


def _casts_to_real(node: onnx.NodeProto) -> bool:
    """Tell whether a node is a cast to real numbers."""
    return node.op_type == "Cast" and any(entry.name == "to" and entry.i in (TensorProto.FLOAT, TensorProto.FLOAT16)
                                          for entry in node.attribute)


def _quantize(network: _Network, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes for a DynamicQuantizeLinear that is left out, or None if it stays."""
    if node.output[0] not in network.real:
        return None
    network.constant(node.output[1], np.ones((), np.float32))
    network.constant(node.output[2], np.zeros((), np.uint8))
    return [helper.make_node("Identity", node.input[:1], node.output[:1], name=node.name)]


def _product(network: _Network, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes for a product of bytes as one of real numbers, or None if it stays."""
    if not network.is_real(node):
        return None
    nodes, names = network.operands(node)
    made = helper.make_node(PRODUCTS[node.op_type], names, node.output, name=node.name)
    made.attribute.extend(node.attribute)
    return [*nodes, made]


def _to_float(network: _Network, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes for a MatMulIntegerToFloat, or None if it stays; the scale of real numbers is 1."""
    if not network.is_real(node):
        return None
    nodes, names = network.operands(node)
    return [*nodes, *_with_bias(node, names, "".join(node.input[6:7]))]


def _mat_mul(network: _Network, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes for a DynamicQuantizeMatMul (real activations, weights of bytes), or None if it stays."""
    inputs = [*node.input, *[""] * 6]
    name, weights, scale, zero, bias = inputs[:5]
    if not network.knows(weights, scale, zero):
        return None
    made = network.constant(f"{node.output[0]}/real1", network.weights(weights, zero, -1, scale))
    return _with_bias(node, [name, made], bias)


def _with_bias(node: onnx.NodeProto, names: Sequence[str], bias: str) -> Nodes:
    """Return a MatMul and, with a bias, an Add."""
    product = f"{node.output[0]}/product" if bias else node.output[0]
    found = [helper.make_node("MatMul", names, [product], name=node.name)]
    if bias:
        found.append(helper.make_node("Add", [product, bias], node.output, name=f"{node.name or node.output[0]}/Add"))
    return found


LSTM_REALS, LSTM_WEIGHTS = 8, (1, 2)
"""The number of inputs of LSTM, after which come scale and zero point of both weights, and the weights' inputs.

Weights lie [directions, inputs, gates]."""


def _lstm(network: _Network, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes for a DynamicQuantizeLSTM, or None if it stays."""
    inputs = [*node.input, *[""] * 12]
    if not network.knows(*(inputs[place] for place in LSTM_WEIGHTS), *inputs[8:12]):
        return None
    for number, (place, scale, zero) in enumerate(zip(LSTM_WEIGHTS, inputs[8:12:2], inputs[9:12:2], strict=True)):
        values = network.known[inputs[place]].astype(np.float64)
        scales, zeros = (_of_gates(network.known[name], values.shape) for name in (scale, zero))
        real = ((values - zeros) * scales).astype(np.float32).transpose(0, 2, 1)
        inputs[place] = network.constant(f"{node.output[0]}/real{number}", real)
    names = inputs[:LSTM_REALS]
    while not names[-1]:
        names.pop()
    made = helper.make_node("LSTM", names, node.output, name=node.name)
    made.attribute.extend(node.attribute)
    return [made]


def _of_gates(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return [directions, 1, gates or 1]: one number for each direction, or for each of its gates."""
    return values.astype(np.float64).reshape(shape[0], 1, -1)


def _dequantize(network: _Network, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes for a DequantizeLinear: none for real numbers; tables of bytes are made real first."""
    if node.input[0] in network.real:
        return [helper.make_node("Identity", node.input[:1], node.output, name=node.name)]
    source, scale, zero = [*node.input, "", ""][:3]
    chain = _moves_before(network, source)
    known = network.known
    if not chain or not scale or not network.knows(scale, zero) or known[scale].size != 1:
        return None
    first = chain[-1].input[0]
    table = network.constant(f"{node.output[0]}/real", network.weights(first, zero, 0, scale))
    return _moved(chain, table, node.output[0])


def _moved(chain: Nodes, name: str, target: str) -> Nodes:
    """Return copies of the nodes of a chain (the last one first), from the tensor ``name`` to the tensor ``target``."""
    made = []
    for number, move in enumerate(reversed(chain)):
        output = target if number == len(chain) - 1 else f"{target}/move{number}"
        moved = helper.make_node(move.op_type, [name, *move.input[1:]], [output], name=f"{move.name}/real{number}")
        moved.attribute.extend(move.attribute)
        made.append(moved)
        name = output
    return made


TABLE_MOVES = frozenset({"Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose",
                         "Unsqueeze"})


def _moves_before(network: _Network, name: str) -> Nodes:
    """Return the nodes that move a constant of bytes to ``name``, the last one first; empty for other tensors."""
    chain: Nodes = []
    makers = network.makers
    while name in makers and makers[name].op_type in TABLE_MOVES:
        chain.append(makers[name])
        name = makers[name].input[0]
    return chain if name in network.known and network.known[name].dtype in BYTES else []


REWRITES: Mapping[str, Callable[[_Network, onnx.NodeProto], Nodes | None]] = {
    DEQUANTIZE: _dequantize, LSTM: _lstm, QUANTIZE: _quantize, TO_FLOAT: _to_float,
    "DynamicQuantizeMatMul": _mat_mul, **dict.fromkeys(PRODUCTS, _product)}
