"""LIR: one operation per instruction, with tagged addresses. Prints and parses.

An operation is complete in itself: rows, pitches and what its numbers need (``Settings``), which the machine keeps in
Configure registers, are fields here, so that a scheduler may reorder operations; the backend writes Configure where a
value changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.compiler.errors import refuse
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.registers import Register
from weft.hw.contract.units import Memory
from weft.hw.contract.walk import Walk

LOCAL, ACCUMULATORS, DRAM0, DRAM1 = (memory.value for memory in (
    Memory.LOCAL, Memory.ACCUMULATORS, Memory.DRAM0, Memory.DRAM1))
"""Names of the memories of the core that a program runs on (``System.memories_of``)."""


class Address(NamedTuple):
    """A vector of a memory: the memory's name, and the vector's number in it."""

    memory: str
    offset: int

    def __str__(self) -> str:
        return f"{self.memory}[{self.offset}]"


class Settings(tuple[tuple[Register, int], ...]):
    """Configure registers that an operation needs, with what they hold: how its scalars enter the accumulators, leave
    them, or meet the weights. Which ones these are is up to the machine's numbers."""

    __slots__ = ()

    @classmethod
    def of(cls, **values: int) -> Settings:
        """By the registers' names in lower case."""
        return cls((Register[name.upper()], value) for name, value in values.items())

    def __str__(self) -> str:
        return ",".join(f"{register.name.lower()}:{value}" for register, value in self) or "none"


NO_SETTINGS = Settings()


class MatMul(NamedTuple):
    """``size`` vectors x ``rows`` through the array. ``local`` None: the input is zero. ``settings``: how the bias
    enters, or what is taken off each activation."""

    local: Address | None
    accumulator: Address
    size: int
    settings: Settings = NO_SETTINGS
    accumulate: bool = False
    local_stride: int = 1
    accumulator_stride: int = 1
    rows: int = 1
    local_pitch: int = 0
    accumulator_pitch: int = 0

    @property
    def local_walk(self) -> Walk | None:
        if self.local is None:
            return None
        return Walk(self.local.offset, self.size, self.local_stride, self.rows, self.local_pitch)

    @property
    def accumulator_walk(self) -> Walk:
        return Walk(self.accumulator.offset, self.size, self.accumulator_stride, self.rows, self.accumulator_pitch)

    @property
    def tap_origin(self) -> int:
        """As the Configure register: 0 where all lanes meet."""
        return dict(self.settings).get(Register.TAP_ORIGIN, 0)

    @property
    def written_walk(self) -> Walk:
        """What of the accumulators is written: not what a depthwise one drops."""
        dropped = dict(self.settings).get(Register.TAP_DROPPED, 0) if self.tap_origin else 0
        return self.accumulator_walk._replace(size=self.size - dropped)


class LoadWeight(NamedTuple):
    """Shift ``size`` vectors into the weight column, and a zero bias row behind them with ``zero_bias``."""

    local: Address
    size: int
    zero_bias: bool = False


class DataMove(NamedTuple):
    """Between local memory and ``far``: a DRAM or accumulators, which ``settings`` is the way into or out of.

    ``relu`` counts towards local from the accumulators, ``accumulate`` the other way.
    """

    to_local: bool
    local: Address
    far: Address
    size: int
    settings: Settings = NO_SETTINGS
    accumulate: bool = False
    relu: bool = False
    local_stride: int = 1
    far_stride: int = 1
    rows: int = 1
    local_pitch: int = 0
    far_pitch: int = 0

    @property
    def local_walk(self) -> Walk:
        return Walk(self.local.offset, self.size, self.local_stride, self.rows, self.local_pitch)

    @property
    def far_walk(self) -> Walk:
        return Walk(self.far.offset, self.size, self.far_stride, self.rows, self.far_pitch)


class Simd(NamedTuple):
    """One SIMD instruction: sources 0 is the input, n register n. ``settings``: its ways from and to accumulators.

    In a loop ``hold`` keeps the read address where it is.
    """

    opcode: SimdOpcode
    left: int
    right: int
    destination: int
    settings: Settings
    read: Address | None = None
    write: Address | None = None
    read_stride: int = 1
    write_stride: int = 1
    hold: bool = False


class SimdLoop(NamedTuple):
    """The next ``body`` SIMD operations, ``iterations`` times; ``settings`` are theirs."""

    iterations: int
    body: int
    settings: Settings


class LoadLut(NamedTuple):
    """``size`` vectors, the depth of a lookup table, into ``table``."""

    local: Address
    table: int
    size: int


class LoadScale(NamedTuple):
    """``SCALE_VECTORS`` vectors: each lane's multiplier and bias for the moves out of the accumulators behind it."""

    local: Address


class LoadActivationTable(NamedTuple):
    """``TABLE_ENTRIES`` vectors into ``table``: what becomes of each byte in moves out of the accumulators that are set
    to it."""

    local: Address
    table: int


Operation = MatMul | LoadWeight | DataMove | Simd | SimdLoop | LoadLut | LoadScale | LoadActivationTable
OPERATIONS: dict[str, Any] = {kind.__name__: kind for kind in
                               (MatMul, LoadWeight, DataMove, Simd, SimdLoop, LoadLut, LoadScale, LoadActivationTable)}
_MUST = object()
"""Default of a field that has none."""
_FIELDS = {kind: tuple((name, kind._field_defaults.get(name, _MUST)) for name in kind._fields)
           for kind in OPERATIONS.values()}


def text(operation: Operation) -> str:
    """One line: the name, then each field that differs from its default."""
    words = [type(operation).__name__]
    for name, default in _FIELDS[type(operation)]:
        value = getattr(operation, name)
        if value != default or type(value) is not type(default):
            words.append(f"{name}={value.name.lower() if isinstance(value, SimdOpcode) else value}")
    return " ".join(words)


def program_text(operations: Iterable[Operation]) -> str:
    return "".join(f"{text(operation)}\n" for operation in operations)


_ADDRESS = re.compile(r"(\w+)\[(\d+)\]")
_SETTINGS = re.compile(r"(\w+:-?\d+,?)+|none")


def _value(word: str) -> Any:
    match = _ADDRESS.fullmatch(word)
    if match:
        return Address(match[1], int(match[2]))
    if _SETTINGS.fullmatch(word):
        pairs = (part.split(":") for part in word.split(",") if part != "none")
        return Settings.of(**{name: int(value) for name, value in pairs})
    literals = {"None": None, "True": True, "False": False}
    if word in literals:
        return literals[word]
    return int(word) if word.isdigit() else SimdOpcode[word.upper()]


def parse(line: str) -> Operation:
    """The operation of one line of :func:`text`. Raises CompileError."""
    name, *words = line.split()
    try:
        return OPERATIONS[name](**{key: _value(word) for key, _, word in (word.partition("=") for word in words)})
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(f"line of LIR {line!r}", f"{type(error).__name__} {error}",
                     f"one of {', '.join(OPERATIONS)} with its fields",
                     "print operations with weft.compiler.lir.text") from None


def parse_program(content: str) -> list[Operation]:
    return [parse(line) for line in content.splitlines() if line.strip()]
