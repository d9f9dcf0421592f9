# SPDX-License-Identifier: Apache-2.0
"""Lower Where with a constant mask: each tensor times its part of the mask, and their sum."""

from __future__ import annotations

import numpy as np

from weft.compiler.errors import ON_HOST, refuse_node
from weft.compiler.frontend.graph import Node
from weft.compiler.lowering.arithmetic import add, mul
from weft.compiler.lowering.rewrite import Rewrite


def where(state: Rewrite, node: Node) -> None:
    """Lower Where; elements of constants that are not chosen may be anything."""
    shape = state.graph.shapes[node.output]
    mask = np.broadcast_to(state.constant(node.input(0)), shape).astype(bool)
    terms, total = [], np.zeros(shape)
    for number, (name, chosen) in enumerate(zip(node.inputs[1:], (mask, ~mask), strict=True)):
        if state.is_constant(name):
            total += _chosen(state, node, name, chosen)
            continue
        terms.append(f"{node.output}/chosen.{number}")
        factor = f"{node.output}/mask.{number}"
        state.declare(terms[-1], shape)
        state.know(factor, chosen.astype(np.float32))
        mul(state, node.replace(op="Mul", inputs=(name, factor), outputs=(terms[-1],)))
    state.know(f"{node.output}/constant", total.astype(np.float32))
    add(state, node.replace(op="Add", inputs=(*terms, f"{node.output}/constant")))


def _chosen(state: Rewrite, node: Node, name: str, mask: np.ndarray) -> np.ndarray:
    """Return a constant's values where the mask is true, else 0. Raise CompileError for infinite numbers or NaN."""
    values = np.where(mask, np.broadcast_to(state.constant(name).astype(np.float64), mask.shape), 0.0)
    if not np.isfinite(values).all():
        raise refuse_node(node, f"constant {name!r}", "an infinite number or NaN", "finite numbers",
                          f"give one as far from the others as is needed, before a Softmax 20 below them, or {ON_HOST}")
    return values
