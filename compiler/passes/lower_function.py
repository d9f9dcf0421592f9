"""Functions by value table (Sigmoid, Tanh, Exp, ...): they keep their names here; tables are made with the points."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.passes.rewrite import Rewrite
from weft.compiler.passes.rules import ValueTable
from weft.compiler.passes.take import exact, image

RECIPROCAL = ValueTable(domain=lambda low, high: (low, high), pole_at_zero=True)


def lookup(state: Rewrite, node: Node, table: ValueTable) -> None:
    """Lowers a function of one number to a value table. Where the function of 0 is not 0, unused lanes become channels
    (copies of the first), so that what reads the result knows of them."""
    source, channels = image(state, node, node.input(0))
    _, count, *size = state.shapes[source]
    full = -(-count // state.lanes) * state.lanes
    if channels is not None or (full != count and not table.keeps_zero):
        source = exact(state, node, node.input(0))
        count = state.shapes[source][1]
        full = count if table.keeps_zero else -(-count // state.lanes) * state.lanes
    if full != count:
        eye = np.zeros((full, count, 1, 1))
        eye[range(full), [*range(count), *[0] * (full - count)]] = 1
        source = state.conv(node, source, eye, np.zeros(1), size, "lanes")
    made = state.emit(node, node.op, [source], node.attributes, state.shapes[source])
    state.hold(node.output, made, None if full == count else state.index_of_shape(node.output))
