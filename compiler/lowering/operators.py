# SPDX-License-Identifier: Apache-2.0
"""The table of operators that the compiler knows, one row each.

The check below, the rewriting (``normalise.py``), lookup tables, layers, documentation and node tests all read it. A
new operator is a row here, and a function that rewrites it in one of the files beside this one. An attribute that is
not in its operator's row is an error, so nothing is silently ignored."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import partial

from weft.compiler.errors import ON_HOST, USE_HOST, CompileError, refuse_node
from weft.compiler.frontend.graph import FLOAT, Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.lowering import activations as activations
from weft.compiler.lowering import arithmetic as arithmetic
from weft.compiler.lowering import choice as choice
from weft.compiler.lowering import linear as linear
from weft.compiler.lowering import matrix as matrix
from weft.compiler.lowering import move as moves
from weft.compiler.lowering import norm as norms
from weft.compiler.lowering import pool as pools
from weft.compiler.lowering import recurrent as recurrent
from weft.compiler.lowering.functions import FUNCTION, RECIPROCAL, TABLES
from weft.compiler.lowering.lookup import lookup, several_steps
from weft.compiler.lowering.quantize import fake_quantize
from weft.compiler.lowering.resize import resize
from weft.compiler.lowering.rules import ANY, AT_LEAST_1, Operator, Rule, ValueTable, only, plane

AUTO_PAD = only("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
WINDOW = {"kernel_shape": plane(1), "strides": plane(1), "dilations": plane(1), "pads": plane(0), "auto_pad": AUTO_PAD}
AXES = {"axes": ANY, "keepdims": ANY, "noop_with_empty_axes": ANY}
RECURRENT: dict[str, Rule] = {
    "hidden_size": ANY, "direction": only("forward", "reverse", "bidirectional"), "layout": only(0, 1),
    "activations": Rule(", ".join(recurrent.ACTIVATIONS), lambda value: set(value) <= set(recurrent.ACTIVATIONS))}
HOST = Operator(None)
"""The row of operators that the machine never computes."""


def _function(attributes: Mapping[str, Rule], table: ValueTable) -> Operator:
    """Return the row of an operator of one tensor that is computed by lookup table."""
    return Operator(partial(lookup, table=table), attributes, table=table, elementwise=True)


def _not_negative(low: float, high: float) -> tuple[float, float]:
    """Return the part of a range that is not negative."""
    return max(low, 0.0), max(high, 0.0)


OPERATORS: dict[str, Operator] = {
    "Abs": Operator(activations.absolute, elementwise=True),
    "Add": Operator(arithmetic.add, elementwise=True, scales=True),
    "ArgMax": HOST,
    "ArgMin": HOST,
    "AveragePool": Operator(pools.average_pool, {**WINDOW, "ceil_mode": only(0, 1), "count_include_pad": only(0, 1)}),
    "BatchNormalization": Operator(
        linear.batch_normalization,
        {"epsilon": ANY, "momentum": ANY, "spatial": only(1), "training_mode": only(0)}, constants=(1, 2, 3, 4)),
    "Celu": _function({"alpha": ANY}, ValueTable(keeps_zero=True)),
    "Clip": Operator(activations.clip, {"min": ANY, "max": ANY}, elementwise=True),
    "Concat": Operator(moves.concat, {"axis": ANY}),
    "Conv": Operator(linear.conv, {**WINDOW, "group": AT_LEAST_1}, constants=(1, 2), counted=True),
    "ConvTranspose": Operator(
        linear.conv_transpose,
        {**WINDOW, "group": AT_LEAST_1, "output_padding": plane(0), "output_shape": plane(1)}, constants=(1, 2),
        counted=True),
    "DepthToSpace": Operator(moves.move, {"blocksize": ANY, "mode": ANY}, moves=True),
    "Div": Operator(arithmetic.div, scales=True),
    "Dropout": Operator(moves.dropout, {"ratio": ANY, "seed": ANY}, constants=(1, 2)),
    "Elu": _function({"alpha": ANY}, ValueTable(keeps_zero=True)),
    "Erf": _function({}, ValueTable(keeps_zero=True)),
    "Exp": _function({}, ValueTable()),
    "Expand": Operator(moves.move, constants=(1,), moves=True),
    "Flatten": Operator(moves.move, {"axis": ANY}, moves=True),
    "Gather": Operator(moves.move, {"axis": ANY}, constants=(1,), moves=True),
    "Gelu": _function({"approximate": ANY}, ValueTable(keeps_zero=True)),
    "GRU": Operator(recurrent.gru, {**RECURRENT, "linear_before_reset": only(0, 1)}, constants=(1, 2, 3, 4),
                    outputs=True, counted=True),
    "Gemm": Operator(matrix.gemm, {"alpha": ANY, "beta": ANY, "transA": only(0, 1), "transB": only(0, 1)}, rank=2,
                     counted=True),
    "GlobalAveragePool": Operator(pools.reduce_mean),
    "GlobalMaxPool": Operator(pools.global_max_pool),
    "GroupNormalization": Operator(norms.group_normalization, {"epsilon": ANY, "num_groups": ANY, "stash_type": ANY},
                                   constants=(1, 2)),
    "HardSigmoid": Operator(activations.hard_sigmoid, {"alpha": ANY, "beta": ANY}),
    "HardSwish": Operator(activations.hard_swish),
    "Identity": Operator(moves.alias, relabels=True, moves=True),
    "InstanceNormalization": Operator(norms.instance_normalization, {"epsilon": ANY}, constants=(1, 2)),
    "LSTM": Operator(recurrent.lstm, {**RECURRENT, "input_forget": only(0)}, constants=(1, 2, 3, 4, 7), outputs=True,
                     counted=True),
    "LayerNormalization": Operator(norms.layer_normalization, {"axis": ANY, "epsilon": ANY, "stash_type": ANY},
                                   constants=(1, 2), outputs=True),
    "LeakyRelu": Operator(activations.leaky_relu, {"alpha": ANY}, elementwise=True),
    "Log": _function({}, ValueTable(domain=lambda low, high: (low, high))),
    "LogSoftmax": Operator(norms.log_softmax, {"axis": ANY}),
    "MatMul": Operator(matrix.mat_mul, counted=True),
    "Max": Operator(arithmetic.maximum),
    "MaxPool": Operator(pools.max_pool, {**WINDOW, "ceil_mode": only(0, 1), "storage_order": ANY}),
    "Mean": Operator(arithmetic.mean),
    "MeanVarianceNormalization": Operator(norms.mean_variance_normalization, {"axes": ANY}),
    "Min": Operator(arithmetic.minimum),
    "Mish": _function({}, ValueTable(keeps_zero=True)),
    "Mul": Operator(arithmetic.mul, elementwise=True, scales=True),
    "Neg": Operator(arithmetic.negate),
    "PRelu": Operator(activations.prelu, constants=(1,)),
    "Pad": Operator(moves.pad, {"mode": only("constant", "reflect", "edge", "wrap"), "value": ANY, "pads": ANY},
                    constants=(1, 2, 3)),
    "Pow": Operator(arithmetic.power, constants=(1,)),
    "RMSNormalization": Operator(norms.rms_normalization, {"axis": ANY, "epsilon": ANY, "stash_type": ANY},
                                 constants=(1,)),
    "RNN": Operator(recurrent.rnn, RECURRENT, constants=(1, 2, 3, 4), outputs=True, counted=True),
    "Reciprocal": _function({}, RECIPROCAL),
    "ReduceL1": Operator(norms.reduce_l1, AXES, constants=(1,)),
    "ReduceL2": Operator(norms.reduce_l2, AXES, constants=(1,)),
    "ReduceLogSum": Operator(norms.reduce_log_sum, AXES, constants=(1,)),
    "ReduceLogSumExp": Operator(norms.reduce_log_sum_exp, AXES, constants=(1,)),
    "ReduceMax": Operator(pools.reduce_max, AXES, constants=(1,)),
    "ReduceMean": Operator(pools.reduce_mean, AXES, constants=(1,)),
    "ReduceMin": Operator(norms.reduce_min, AXES, constants=(1,)),
    "ReduceSum": Operator(pools.reduce_sum, AXES, constants=(1,)),
    "ReduceSumSquare": Operator(norms.reduce_sum_square, AXES, constants=(1,)),
    "Relu": Operator(activations.relu, elementwise=True),
    "Reshape": Operator(moves.move, {"allowzero": ANY}, constants=(1,), relabels=True, moves=True),
    "Resize": Operator(
        resize,
        {"antialias": ANY, "axes": ANY, "coordinate_transformation_mode": ANY, "cubic_coeff_a": ANY,
         "exclude_outside": ANY, "extrapolation_value": ANY, "keep_aspect_ratio_policy": ANY, "mode": ANY,
         "nearest_mode": ANY}, constants=(1, 2, 3)),
    "Selu": _function({"alpha": ANY, "gamma": ANY}, ValueTable(keeps_zero=True)),
    "Sigmoid": _function({}, ValueTable()),
    "Slice": Operator(moves.move, {"axes": ANY, "starts": ANY, "ends": ANY}, constants=(1, 2, 3, 4), moves=True),
    "Softmax": Operator(norms.softmax, {"axis": ANY}),
    "Softplus": _function({}, ValueTable()),
    "Softsign": _function({}, ValueTable(keeps_zero=True)),
    "SpaceToDepth": Operator(moves.move, {"blocksize": ANY, "mode": ANY}, moves=True),
    "Split": Operator(moves.move, {"axis": ANY, "num_outputs": ANY, "split": ANY}, constants=(1,), outputs=True,
                      moves=True),
    "Sqrt": _function({}, ValueTable(domain=_not_negative)),
    "Squeeze": Operator(moves.move, {"axes": ANY}, constants=(1,), relabels=True, moves=True),
    "Sub": Operator(arithmetic.sub, scales=True),
    "Sum": Operator(arithmetic.add),
    "Swish": Operator(activations.swish, {"alpha": ANY}),
    "Tanh": _function({}, ValueTable(keeps_zero=True)),
    "Tile": Operator(moves.move, constants=(1,), moves=True),
    "TopK": HOST,
    "Transpose": Operator(moves.move, {"perm": ANY}, relabels=True, moves=True),
    "Unsqueeze": Operator(moves.move, {"axes": ANY}, constants=(1,), relabels=True, moves=True),
    "Upsample": Operator(resize, {"mode": ANY, "scales": ANY}, constants=(1,)),
    "Where": Operator(choice.where, constants=(0,)),
}
"""ONNX operator -> its row: what the compiler does with it."""

HOST_OPERATORS = frozenset(name for name, operator in OPERATORS.items() if operator.lower is None)
MACHINE_OPERATORS = tuple(name for name in OPERATORS if name not in HOST_OPERATORS)
RELABEL = frozenset(name for name, operator in OPERATORS.items() if operator.relabels)
FUNCTIONS = frozenset(name for name, operator in OPERATORS.items() if operator.table is not None)
TABLES.update({name: operator.table for name, operator in OPERATORS.items() if operator.table is not None})
CANONICAL_FUNCTIONS = FUNCTIONS | {FUNCTION}
ROWS = {**OPERATORS, FUNCTION: Operator(several_steps, elementwise=True),
        FAKE_QUANTIZE: Operator(fake_quantize, {"scale": ANY, "zero": ANY}, elementwise=True)}
"""The rows of all operators: those of ONNX, Function (``fuse_functions.py``), and FakeQuantize.

The frontend makes FakeQuantize from QuantizeLinear and DequantizeLinear."""


def check_supported(graph: Graph) -> Graph:
    """Return the graph itself. Raise CompileError for a node that the machine cannot compute.

    The error says node, operator, attribute and what is allowed."""
    for error in refusals(graph).values():
        raise error
    return graph


def refusals(graph: Graph) -> dict[str, CompileError]:
    """Return the error of every node that the machine cannot compute, by node name, in the graph's order."""
    consumers, outputs = graph.consumers(), graph.output_tensors()
    found = {}
    for node in graph.nodes:
        try:
            _check_node(graph, node, consumers, outputs)
        except CompileError as error:
            found[node.name] = error
    return found


WIDE = frozenset({"GroupNormalization", "InstanceNormalization", "LayerNormalization", "LogSoftmax",
                  "MeanVarianceNormalization", "RMSNormalization", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare",
                  "Softmax"})
"""Operators whose squares, exponentials or inverses need more than eight bits."""


DYNAMIC = frozenset({"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear"})
"""Quantisation operators left in a graph: their scales are found while the network runs."""


def check_bytes(graph: Graph) -> Graph:
    """Return the graph itself. Raise CompileError if eight bits are not enough for what an operator computes."""
    for node in graph.nodes:
        if node.op in WIDE:
            raise refuse_node(node, "", "not supported in bytes: its intermediate results need more bits",
                              "a machine of fixed point",
                              f"choose an architecture with data_type FP16BP8, or {ON_HOST}")
    return graph


def _check_node(graph: Graph, node: Node, consumers: Mapping[str, Sequence[Node]], outputs: frozenset[str]) -> None:
    """Raise CompileError if the machine cannot compute a node."""
    operator = ROWS.get(node.op)
    if node.op in DYNAMIC:
        raise refuse_node(node, "", "scales that are found while it runs", "scales that are constants",
                          f"quantise the model with static ranges, or {ON_HOST}")
    if operator is None or operator.lower is None:
        near = difflib.get_close_matches(node.op, MACHINE_OPERATORS, 1, 0.8)
        raise refuse_node(node, "", "not supported", ", ".join(MACHINE_OPERATORS),
                          f"{USE_HOST}{f'; the nearest supported one is {near[0]}' if near else ''}")
    _check_attributes(node, operator)
    _check_inputs(graph, node, operator)
    unread = [name for name in node.outputs[1:] if name and (name in consumers or name in outputs)]
    if unread and not operator.outputs:
        raise refuse_node(node, f"output {unread[0]!r}", "read by another node", "only the first output is read",
                          USE_HOST)
    _check_types(graph, node)


def _check_types(graph: Graph, node: Node) -> None:
    """Raise CompileError if a computed input or output is not float32.

    Integers and truth values are the host's; constants of these types are checked by the operator."""
    for kind, names in (("input", node.inputs), ("output", node.outputs)):
        for name in names:
            if name and not graph.is_constant(name) and graph.type(name) != FLOAT:
                raise refuse_node(node, f"type of {kind} {name!r}", graph.type(name), FLOAT, USE_HOST)


def _check_attributes(node: Node, operator: Operator) -> None:
    """Raise CompileError for an attribute or attribute value that is not supported."""
    for name, value in node.attributes.items():
        rule = operator.attributes.get(name)
        if rule is None:
            raise refuse_node(node, f"attribute {name}", value, ", ".join(operator.attributes) or "no attributes",
                              USE_HOST)
        if not rule.accepts(value):
            raise refuse_node(node, f"attribute {name}", value, rule.text, USE_HOST)


def _check_inputs(graph: Graph, node: Node, operator: Operator) -> None:
    """Raise CompileError if an input must be constant and is not, or has a wrong number of dimensions."""
    for index in operator.constants:
        name = node.input(index)
        if name and not graph.is_constant(name):
            raise refuse_node(node, f"input {index} ({name!r})", "a tensor computed at run time", "a constant",
                              USE_HOST)
    first = node.input(0)
    shape = graph.constants[first].shape if graph.is_constant(first) else graph.shapes.get(first, ())
    axis, last = node.attributes.get("axis"), len(shape) - (node.op != "Flatten")
    if isinstance(axis, int) and not -len(shape) <= axis <= last:
        raise refuse_node(node, "attribute axis", axis, f"{-len(shape)} to {last}", USE_HOST)
    if operator.rank is not None and len(shape) != operator.rank:
        raise refuse_node(node, f"shape of input 0 ({node.input(0)!r})", list(shape),
                          f"{operator.rank} dimensions", USE_HOST)
