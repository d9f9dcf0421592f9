# SPDX-License-Identifier: Apache-2.0
"""No statement of the machine writes an expression out again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Fragment
from amaranth.hdl import _ast as ast

from weft.hw.system import with_ports
from weft.tb.random.lockstep_archs import lockstep_archs

MOST_NODES = 2000
"""Of an assignment. The widest multiplexers of the machine below have 1000; what is replicated bit by bit, sign
extensions and saturations of a sum without a name for example, easily has ten times as many."""


class Sizes:
    """Nodes of an expression as it is written out: what is used twice counts twice."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ast.Value, int]] = {}  # by identity, which the value kept beside it keeps unique

    def __call__(self, value: ast.Value) -> int:
        if id(value) not in self._known:
            self._known[id(value)] = value, 1 + sum(map(self, parts(value)))
        return self._known[id(value)][1]


def parts(value: ast.Value) -> list[ast.Value]:
    match value:
        case ast.Operator():
            return list(value.operands)
        case ast.Concat():
            return list(value.parts)
        case ast.Slice():
            return [value.value]
        case ast.Part():
            return [value.value, value.offset]
        case ast.SwitchValue():
            return [value.test, *(each for _, each in value.cases)]
    return []


def assignments(statements: Any) -> Iterator[ast.Assign]:
    for statement in statements:
        if isinstance(statement, ast.Assign):
            yield statement
        elif isinstance(statement, ast.Switch):
            for _, body, *_ in statement.cases:
                yield from assignments(body)


def fragments(fragment: Fragment) -> Iterator[Fragment]:
    yield fragment
    for inner, *_ in fragment.subfragments:
        yield from fragments(inner)


def test_no_assignment_writes_an_expression_out_many_times() -> None:
    """Amaranth's simulator, the Verilog and what is made of it grow with what is written out; a signal is a name."""
    module, _ = with_ports(lockstep_archs()["lanes4_lut"], trace=True)
    size = Sizes()
    found = {assign.src_loc: size(assign.rhs) for fragment in fragments(Fragment.get(module, None))
             for statements in fragment.statements.values() for assign in assignments(statements)}
    assert len(found) > 300
    assert {place: nodes for place, nodes in found.items() if nodes > MOST_NODES} == {}
