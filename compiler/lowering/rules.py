# SPDX-License-Identifier: Apache-2.0
"""The columns of the table of operators (``operators.py``): how one is rewritten, and what of it is supported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.compiler.frontend.graph import Node
from weft.compiler.lowering.rewrite import Rewrite

Lower = Callable[[Rewrite, Node], None]
"""A function that writes a node of the model in canonical nodes, and notes where its outputs lie."""


Step = tuple[str, tuple[int | float, ...], tuple[tuple[str, Any], ...]]
"""One of several ONNX operators that make a function of one number: name, inputs, attributes.

Input 0 is the argument, n the result of step n; a float is a constant."""

SQUARE: tuple[Step, ...] = (("Mul", (0, 0), ()),)


def filled(magnitude: float) -> float:
    """Return the largest magnitude that 16 bits hold at the binary point that ``magnitude`` has.

    So what saturates there is within the range that a lookup table is made for."""
    return float(2.0 ** math.ceil(math.log2(magnitude)) * (1 - 2.0 ** -15))


@dataclass(frozen=True)
class Rule:
    """The values of an attribute that are supported: ``text`` names them, ``accepts`` tests one."""

    text: str
    accepts: Callable[[Any], bool]


def only(*values: Any) -> Rule:
    """Return the rule that an attribute is one of ``values``."""
    return Rule(" or ".join(map(repr, values)), lambda value: value in values)


def plane(least: int) -> Rule:
    """Return the rule that an attribute has integers of at least ``least``."""
    return Rule(f"integers of at least {least}", lambda value: all(number >= least for number in value))


ANY = Rule("any value", lambda value: True)
AT_LEAST_1 = Rule("at least 1", lambda value: value >= 1)


@dataclass(frozen=True)
class ValueTable:
    """The properties of a function that becomes a table of straight pieces.

    ``keeps_zero``: it maps 0 to 0, and its table does so exactly, so that unused lanes stay zero. ``domain``: given the
    range seen in calibration, the range that may be asked for, if the function is not finite everywhere; None: any, so
    that the table reaches a margin beyond the range seen. ``pole_at_zero``: 0 must not be in the range."""

    keeps_zero: bool = False
    domain: Callable[[float, float], tuple[float, float]] | None = None
    pole_at_zero: bool = False


@dataclass(frozen=True)
class Operator:
    """The row of one ONNX operator.

    ``lower`` is None for operators that only the host computes. ``attributes`` are supported by name, and no others.
    ``constants`` are the inputs that must be known when compiling, ``rank`` the dimensions of input 0 (None: any).
    ``outputs``: more than the first may be read. ``table``: it is a function by lookup table. ``counted``: its
    multiply-accumulates count as the network's. ``elementwise``: its canonical form has the same name, and each element
    depends on the same element of its inputs. ``moves``: it computes nothing, and holds elements of its inputs at
    other places. ``relabels``: it only gives elements other coordinates; an input is
    packed in the order after it. ``scales``: with a constant it may stand between an input and an operator that
    relabels it."""

    lower: Lower | None
    attributes: Mapping[str, Rule] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    rank: int | None = None
    outputs: bool = False
    table: ValueTable | None = None
    counted: bool = False
    elementwise: bool = False
    moves: bool = False
    relabels: bool = False
    scales: bool = False
