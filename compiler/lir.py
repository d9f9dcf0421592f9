# SPDX-License-Identifier: Apache-2.0
"""LIR, the compiler's form of programs: one operation per instruction, with tagged addresses, printable as text.

An operation is complete in itself: rows, pitches and the values of Configure registers that it needs (``Settings``) are
fields here, so that a scheduler may reorder operations. The backend writes a Configure where a value changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.compiler.errors import refuse
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.register_table import counted_rows
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
        """Return the address as text, such as ``local[12]``."""
        return f"{self.memory}[{self.offset}]"


class Settings(tuple[tuple[Register, int], ...]):
    """The Configure registers that an operation needs, with their values.

    They say how scalars are loaded into the accumulators, requantized, or multiplied. Which registers these are depends
    on the machine's number scheme."""

    __slots__ = ()

    @classmethod
    def of(cls, **values: int) -> Settings:
        """Return the settings with these values, by the registers' names in lower case."""
        return cls((Register[name.upper()], value) for name, value in values.items())

    def __str__(self) -> str:
        """Return the settings as text, such as ``input_shift:3``."""
        return ",".join(f"{register.name.lower()}:{value}" for register, value in self) or "none"


NO_SETTINGS = Settings()


class MatMul(NamedTuple):
    """A MatMul: ``rows`` times ``size`` vectors go through the array into the accumulators.

    ``local`` None: the input is zero. ``settings``: the shift of the bias, or the zero point subtracted from
    activations."""

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
        """The walk through local memory, None for zeros."""
        if self.local is None:
            return None
        return Walk(self.local.offset, self.size, self.local_stride, self.rows, self.local_pitch)

    @property
    def accumulator_walk(self) -> Walk:
        """The walk through the accumulators, with results that a depthwise pass drops."""
        return Walk(self.accumulator.offset, self.size, self.accumulator_stride, self.rows, self.accumulator_pitch)

    @property
    def tap_origin(self) -> int:
        """The value of the Configure register of this name: 0 if all lanes are summed."""
        return dict(self.settings).get(Register.TAP_ORIGIN, 0)

    @property
    def read_walks(self) -> tuple[Walk, ...]:
        """The walks over local memory that are read; a depthwise MatMul has one for each row of taps that counts."""
        if self.local_walk is None:
            return ()
        settings = dict(self.settings)
        rows = counted_rows(settings.get(Register.TAP_ROWS, 1)) if self.tap_origin else (0,)
        return tuple(self.local_walk.moved((row - rows[0]) * settings.get(Register.TAP_PITCH, 0)) for row in rows)

    @property
    def written_walk(self) -> Walk:
        """The walk through the accumulators that are written, without results that a depthwise pass drops."""
        dropped = dict(self.settings).get(Register.TAP_DROPPED, 0) if self.tap_origin else 0
        return self.accumulator_walk._replace(size=self.size - dropped)


class LoadWeight(NamedTuple):
    """A LoadWeight: ``size`` vectors shift into the weight column.

    With ``zero_bias`` a bias row of zeros follows them."""

    local: Address
    size: int
    zero_bias: bool = False


class DataMove(NamedTuple):
    """A DataMove between local memory and ``far``, a DRAM or the accumulators.

    ``settings``: how the accumulators are loaded or requantized. ``relu`` only applies from the accumulators to local
    memory, ``accumulate`` only the other way."""

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
        """The walk through local memory."""
        return Walk(self.local.offset, self.size, self.local_stride, self.rows, self.local_pitch)

    @property
    def far_walk(self) -> Walk:
        """The walk through the DRAM or the accumulators."""
        return Walk(self.far.offset, self.size, self.far_stride, self.rows, self.far_pitch)


class Simd(NamedTuple):
    """One SIMD instruction; source 0 is the vector read, n register n.

    ``settings``: how accumulators are read and written. In a loop ``hold`` keeps the read address where it is."""

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
    """A SIMD loop: the next ``body`` SIMD operations run ``iterations`` times; ``settings`` are theirs."""

    iterations: int
    body: int
    settings: Settings


class LoadLut(NamedTuple):
    """A LoadLUT: ``size`` vectors, the depth of a lookup table, go into ``table``."""

    local: Address
    table: int
    size: int


class LoadScale(NamedTuple):
    """A LoadScale: ``SCALE_VECTORS`` vectors with each lane's multiplier and bias for later requantizations."""

    local: Address


class LoadActivationTable(NamedTuple):
    """A LoadActivationTable: ``TABLE_ENTRIES`` vectors go into ``table``.

    Requantizations whose register names the table look up each byte there."""

    local: Address
    table: int


class Signal(NamedTuple):
    """A post to other cores, or with ``wait`` a wait for posts, ordered with moves of a range of a DRAM.

    A post comes after the moves of the range before it, and adds one to ``counter`` of each core in the bits of
    ``above``, see :func:`posted_to`. A wait lets no later move of the range begin until its own counter has ``above``,
    and takes it away."""

    wait: bool
    counter: int
    above: int
    far: Address
    size: int

    @property
    def far_walk(self) -> Walk:
        """The vectors of the DRAM range whose moves the Signal orders."""
        return Walk(self.far.offset, self.size)


def posted_to(above: int) -> list[int]:
    """Return the cores to which a post goes that has this ``above``."""
    return [core for core in range(above.bit_length()) if above >> core & 1]


Operation = MatMul | LoadWeight | DataMove | Simd | SimdLoop | LoadLut | LoadScale | LoadActivationTable | Signal
OPERATIONS: dict[str, Any] = {
    kind.__name__: kind for kind in
    (MatMul, LoadWeight, DataMove, Simd, SimdLoop, LoadLut, LoadScale, LoadActivationTable, Signal)}
_MUST = object()
"""The default of a field that has none."""
_FIELDS = {kind: tuple((name, kind._field_defaults.get(name, _MUST)) for name in kind._fields)
           for kind in OPERATIONS.values()}


def text(operation: Operation) -> str:
    """Return an operation as one line: its name, then each field that differs from its default."""
    words = [type(operation).__name__]
    for name, default in _FIELDS[type(operation)]:
        value = getattr(operation, name)
        if value != default or type(value) is not type(default):
            words.append(f"{name}={value.name.lower() if isinstance(value, SimdOpcode) else value}")
    return " ".join(words)


def program_text(operations: Iterable[Operation]) -> str:
    """Return operations as text, one a line."""
    return "".join(f"{text(operation)}\n" for operation in operations)


_ADDRESS = re.compile(r"(\w+)\[(\d+)\]")
_SETTINGS = re.compile(r"(\w+:-?\d+,?)+|none")


def _value(word: str) -> Any:
    """Return the value of a field that prints as ``word``."""
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
    """Return the operation of one line of :func:`text`. Raise CompileError for any other line."""
    name, *words = line.split()
    try:
        return OPERATIONS[name](**{key: _value(word) for key, _, word in (word.partition("=") for word in words)})
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(f"line of LIR {line!r}", f"{type(error).__name__} {error}",
                     f"one of {', '.join(OPERATIONS)} with its fields",
                     "print operations with weft.compiler.lir.text") from None


def parse_program(content: str) -> list[Operation]:
    """Return the operations of :func:`program_text`. Raise CompileError for other text."""
    return [parse(line) for line in content.splitlines() if line.strip()]
