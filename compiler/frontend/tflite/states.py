# SPDX-License-Identifier: Apache-2.0
"""Convert the states of a network: variables, and the states of recurrent layers.

Each becomes an input, its value before the run, and an output, its value after the run. ``weft run --state
OUTPUT:INPUT`` passes it on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.tflite.operation import Convert, Operation
from weft.compiler.frontend.tflite.schema import Damaged, Operator, Subgraph
from weft.compiler.frontend.tflite.values import Value
from weft.compiler.frontend.tflite.writer import Writer

NEXT = "/next"
"""The suffix of the output that holds a state after the run."""


def var_handle(op: Operation) -> None:
    """Convert VAR_HANDLE: note the name of the variable that the handle stands for."""
    if len(op.outputs) != 1:
        raise Damaged(f"operator {op.operator.code} with {len(op.outputs)} results")
    op.writer.result(op.operator.outputs[0]).variable = name_of(op.option("SharedName"), op.outputs[0].tensor.name)


def name_of(shared: bytes | None | int, otherwise: str) -> str:
    """Return the name of a variable."""
    return shared.decode(errors="replace") if isinstance(shared, bytes) and shared else otherwise


def read_variable(op: Operation) -> None:
    """Convert READ_VARIABLE: the value that an earlier operator has assigned, else that of the input."""
    variables, name, number = op.writer.variables, _variable(op), op.operator.outputs[0]
    if name in variables.assigned:
        source = op.writer.made(variables.assigned[name])
        op.writer.alias(number, source)
    elif name in variables.read:
        op.writer.alias(number, op.writer.values[variables.read[name]])
    else:
        op.writer.input(number, name)
        variables.read[name] = number


def assign_variable(op: Operation) -> None:
    """Convert ASSIGN_VARIABLE: note the tensor that is assigned."""
    op.input(1)
    op.writer.made(op.operator.inputs[1])
    op.writer.variables.assigned[_variable(op)] = op.operator.inputs[1]


def _variable(op: Operation) -> str:
    """Return the name of the variable that input 0 stands for. Raise CompileError if it is no handle."""
    name = op.input(0).variable
    if not name:
        raise op.refusal("input 0", f"{op.input(0).name!r}, no variable", "the handle of a variable")
    return name


def call_once(op: Operation) -> None:
    """Convert CALL_ONCE, which sets variables before the first run: nothing, as :func:`first_numbers` reads it."""


def first_numbers(graphs: Sequence[Subgraph], number: int) -> dict[str, np.ndarray]:
    """Return the real numbers that a subgraph assigns to variables, by name. Raise CompileError."""
    if not 0 < number < len(graphs):
        raise Damaged(f"it calls subgraph {number} of {len(graphs)}")
    graph, handles, found = graphs[number], {}, {}
    for operator in graph.operators:
        numbers = _second(graph, operator)
        if operator.code == "VAR_HANDLE" and operator.outputs:
            handles[operator.outputs[0]] = name_of(operator.option("SharedName"),
                                                   graph.tensors[operator.outputs[0]].name)
        elif operator.code == "ASSIGN_VARIABLE" and numbers is not None and operator.inputs[0] in handles:
            found[handles[operator.inputs[0]]] = numbers
        else:
            raise refuse(f"operator {operator.code} of subgraph {number}", "run once before the network",
                         "VAR_HANDLE and ASSIGN_VARIABLE of constants", "convert the network again, with variables "
                         "that begin at constants")
    return found


def _second(graph: Subgraph, operator: Operator) -> np.ndarray | None:
    """Return the real numbers of an operator's second input, or None if it has none or they are computed."""
    number = next(iter(operator.inputs[1:]), -1)
    return Value(graph.tensors[number], "").constant if number >= 0 else None


def kept_states(writer: Writer) -> list[tuple[Value, str]]:
    """Return the variables that are read and assigned: the tensor before the run, and the name assigned to it.

    Raise CompileError if both do not have one type and shape."""
    variables, found = writer.variables, []
    for name, number in variables.read.items():
        if name in variables.assigned:
            before, behind = writer.values[number], writer.values[variables.assigned[name]]
            _need_one_kind(name, before, behind)
            found.append((before, writer.stored(variables.assigned[name])))
    return found


def _need_one_kind(name: str, before: Value, behind: Value) -> None:
    """Raise CompileError unless a variable is read and assigned with one shape, type and scale."""
    kinds = [(value.shape, value.tensor.type, *(np.concatenate(value.tensor.quantization[:2]).tolist()
                                                if value.tensor.quantization else ())) for value in (before, behind)]
    if kinds[0] != kinds[1]:
        raise refuse(f"variable {name!r}", f"read as {kinds[0]}, assigned {kinds[1]}", "one shape, type and scale",
                     "convert the network again")


CONVERTERS: dict[str, Convert] = {
    "ASSIGN_VARIABLE": assign_variable, "CALL_ONCE": call_once, "READ_VARIABLE": read_variable,
    "VAR_HANDLE": var_handle}
