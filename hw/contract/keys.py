# SPDX-License-Identifier: Apache-2.0
"""The row of the table of architecture keys. The table itself is the fields of ``Arch`` (arch.py).

Limits and refusals, ARCH_HASH, the check of a model against a machine, what the explorer shares between machines, and
the documentation are made from these rows."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from weft.support.errors import ArchError

ROW = "row"
"""Name of a field's row in its metadata."""


class Affects(enum.IntEnum):
    """The last of a program's products that depends on a key; each value includes those below it."""

    NOTHING = 0
    """The key is accepted, without effect on any program or its time."""
    TIMING = 1
    """The key changes how long a program takes."""
    PROGRAM = 2
    """The key changes which program the compiler writes."""
    CONSTANTS = 3
    """The key changes the constants that the compiler writes: weights, biases and tables, cut into tiles."""


class Compatibility(enum.Enum):
    """The effect on a program of running on a machine with another value of a key.

    All but SAME are part of ARCH_HASH."""

    SAME = "the same results"
    OTHER_NUMBERS = "other results of the same program"
    REFUSED = "another instruction set or other memories: it must be compiled again"


@dataclass(frozen=True)
class Key:
    """One row of the table of architecture keys.

    ``low``..``high``: the integers allowed, None for a key of another type. ``choices``: the words allowed.
    ``default``: MISSING for a key that must be given. ``since``: the version of the file format that brought the key. A
    key later than version 1 is left out of ARCH_HASH at its default, so that older machines keep theirs.

    ``neutral``: the value that stands for all others when the explorer shares work between machines that differ in this
    key alone; None takes the default. ``former``: the name that the key had before. Files that have it load, and
    ARCH_HASH uses it, for bitstreams in the field."""

    name: str
    meaning: str
    affects: Affects
    compatibility: Compatibility
    default: Any
    low: int | None
    high: int | None
    power_of_two: bool
    choices: tuple[str, ...]
    choice_hint: str
    since: int
    neutral: Any
    former: str

    def check(self, value: object) -> None:
        """Raise ArchError if ``value`` is not allowed, whatever the other keys are."""
        if self.choices and value not in self.choices:
            raise ArchError(self.name, value, " or ".join(self.choices), self.choice_hint)
        if self.low is not None and self.high is not None:
            self._check_integer(value, self.low, self.high)

    def _check_integer(self, value: object, low: int, high: int) -> None:
        """Raise ArchError if ``value`` is no integer of ``low``..``high``, or no power of two as required."""
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ArchError(self.name, value, f"an integer, {low}..{high}", f"set {self.name} within {low}..{high}")
        if self.power_of_two and value & (value - 1):
            near = 1 << (value.bit_length() - 1)
            raise ArchError(self.name, value, "a power of two", f"set {self.name} to {near} or {2 * near}")


def key(meaning: str, affects: Affects, compatibility: Compatibility, *, default: Any = MISSING,
        integers: tuple[int, int] | None = None, power_of_two: bool = False, choices: tuple[str, ...] = (),
        choice_hint: str = "", since: int = 1, neutral: Any = None, former: str = "") -> Any:
    """Return the dataclass field of a key with its row; parameters as :class:`Key` has them."""
    low, high = integers or (None, None)

    def row(name: str) -> Key:
        return Key(name, meaning, affects, compatibility, default, low, high, power_of_two, choices, choice_hint, since,
                   default if neutral is None else neutral, former)

    return field(default=default, metadata={ROW: row})


def rows_of(record: type) -> dict[str, Key]:
    """Return the rows of a dataclass whose fields were made by :func:`key`: name -> row, in their order."""
    made: dict[str, Callable[[str], Key]] = {each.name: each.metadata[ROW] for each in fields(record)}
    return {name: row(name) for name, row in made.items()}
