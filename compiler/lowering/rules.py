"""What the table of operators (``operators.py``) says of each: how it is rewritten, and what of it is honoured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.compiler.frontend.graph import Node
from weft.compiler.lowering.rewrite import Rewrite

Lower = Callable[[Rewrite, Node], None]
"""Writes a node of the model in canonical nodes, and says where its outputs lie."""


Step = tuple[str, tuple[int | float, ...], tuple[tuple[str, Any], ...]]
"""One of several operators of ONNX that make a function of one number: name, inputs, attributes. Input 0 is the
argument, n the result of step n; a float is a constant."""

SQUARE: tuple[Step, ...] = (("Mul", (0, 0), ()),)


def filled(magnitude: float) -> float:
    """Return the largest magnitude that 16 bits hold at the binary point that ``magnitude`` has: what saturates there
    is within the range that a lookup table is made for."""
    return float(2.0 ** math.ceil(math.log2(magnitude)) * (1 - 2.0 ** -15))


@dataclass(frozen=True)
class Rule:
    """Which values of an attribute are honoured: ``text`` says it, ``accepts`` tests it."""

    text: str
    accepts: Callable[[Any], bool]


def only(*values: Any) -> Rule:
    return Rule(" or ".join(map(repr, values)), lambda value: value in values)


def plane(least: int) -> Rule:
    """Integers, each at least ``least``."""
    return Rule(f"integers of at least {least}", lambda value: all(number >= least for number in value))


ANY = Rule("any value", lambda value: True)
AT_LEAST_1 = Rule("at least 1", lambda value: value >= 1)


@dataclass(frozen=True)
class ValueTable:
    """A function that becomes a table of straight pieces.

    ``keeps_zero``: it makes 0 of 0, and its table does so exactly: unused lanes stay zero. ``domain``: the lowest and
    the highest number that may be asked for, of those seen in calibration, where the function is not finite everywhere;
    None: any, so the table reaches a margin beyond those seen. ``pole_at_zero``: 0 must not be among them.
    """

    keeps_zero: bool = False
    domain: Callable[[float, float], tuple[float, float]] | None = None
    pole_at_zero: bool = False


@dataclass(frozen=True)
class Operator:
    """One operator of ONNX. ``lower`` is None for those that the machine never computes: they are the host's.

    Honoured are ``attributes`` by name, and no others. ``constants`` are the inputs that must be known when compiling,
    ``rank`` the dimensions of input 0 (None: any). ``outputs``: more than the first may be read.
    ``table``: it is a function by lookup table. ``counted``: its multiply-accumulates count as the network's.

    ``elementwise``: written canonically it keeps its name, and each element depends on the same one of its inputs.
    ``moves``: it computes nothing, and holds elements of its inputs at other places.
    ``relabels``: it keeps every element, and only calls it another; an input is packed as it leaves them. ``scales``:
    with a constant it may stand between an input and what relabels it.
    """

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
