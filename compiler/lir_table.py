# SPDX-License-Identifier: Apache-2.0
"""LIR as arrays: the operations of each kind together, a field as one array, for what looks at all of a program.

The fields of ``LirTable.of_kind`` are those of the operation's own class: numbers are int64 [operations of the kind],
addresses are an ``Address`` of two arrays, with MEMORY_NUMBERS for memories. Settings are numbers of
``LirTable.settings``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from weft.compiler import lir
from weft.compiler.lir import Address
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.register_table import counted_rows
from weft.hw.contract.registers import Register
from weft.hw.contract.units import Memory

MEMORY_NUMBERS = {memory.value: number for number, memory in enumerate(Memory)}
ABSENT = -1
"""The number of the memory of an address that an operation does not have."""
UNKNOWN = len(MEMORY_NUMBERS)
"""The number of a memory that no machine has."""
_NAMES = [*MEMORY_NUMBERS, "unknown"]

_ADDRESSES = {"local", "accumulator", "far", "read", "write"}
_FLAGS = {"accumulate", "hold", "relu", "to_local", "wait", "zero_bias"}


@dataclass(frozen=True)
class LirTable:
    """Operations by kind, as arrays.

    ``numbers``: for each kind the places of its operations in the program, int64, ascending. ``fields``: for each kind
    its operations as one, whose fields are arrays. ``settings``: all that occur."""

    numbers: Mapping[type, np.ndarray]
    fields: Mapping[type, Any]
    settings: tuple[lir.Settings, ...]
    count: int

    @staticmethod
    def of(operations: Sequence[lir.Operation]) -> LirTable:
        """Return the table of operations: some microseconds for each."""
        kinds = np.array([_CODES[type(operation)] for operation in operations], np.int8)
        settings = _Settings()
        numbers = {kind: np.flatnonzero(kinds == code) for kind, code in _CODES.items()}
        fields = {kind: _columns(kind, [operations[number] for number in places.tolist()], settings)
                  if len(places) else _EMPTY.fields[kind] for kind, places in numbers.items()}
        return LirTable(numbers, fields, tuple(settings.known), len(operations))

    @staticmethod
    def joined(tables: Sequence[LirTable]) -> LirTable:
        """Return the table of all operations of ``tables``, one table's behind another's."""
        known: dict[lir.Settings, int] = {}
        numbers = [np.array([known.setdefault(settings, len(known)) for settings in table.settings], np.int64)
                   for table in tables]
        firsts = np.cumsum([0, *(table.count for table in tables)]).tolist()
        places, fields = {}, {}
        kind: Any
        for kind in _CODES:
            some = [(table, first, own) for table, first, own in zip(tables, firsts[:-1], numbers, strict=True)
                    if len(table.numbers[kind])]
            if not some:
                places[kind], fields[kind] = _EMPTY.of_kind(kind)
                continue
            places[kind] = np.concatenate([table.numbers[kind] + first for table, first, _ in some])
            fields[kind] = kind(*(_concatenated(name, columns) for name, columns in zip(kind._fields, zip(
                *(_numbered(table.fields[kind], own) for table, _, own in some), strict=True), strict=True)))
        return LirTable(places, fields, tuple(known), firsts[-1])

    def operations(self) -> list[lir.Operation]:
        """Return the operations in program order."""
        found: list[Any] = [None] * self.count
        kind: Any
        for kind, places in self.numbers.items():
            columns = (_values(name, column, self.settings)
                       for name, column in zip(kind._fields, self.fields[kind], strict=True))
            for place, values in zip(places.tolist(), zip(*columns, strict=True), strict=True):
                found[place] = kind(*values)
        return found

    def operation(self, number: int) -> lir.Operation:
        """Return the operation with this number. Raise IndexError if there is none."""
        kind: Any
        for kind, places in self.numbers.items():
            place = int(np.searchsorted(places, number))
            if place < len(places) and places[place] == number:
                own = np.array([place])
                columns = zip(kind._fields, self.fields[kind], strict=True)
                values = (_values(name, _sorted(column, own), self.settings)[0] for name, column in columns)
                found: lir.Operation = kind(*values)
                return found
        raise IndexError(number)

    def ordered(self, order: np.ndarray) -> LirTable:
        """Return the table of the same operations in another ``order``, indices of operations."""
        places = np.empty(self.count, np.int64)
        places[order] = np.arange(self.count)
        numbers, fields = {}, {}
        for kind, old in self.numbers.items():
            if not len(old):
                numbers[kind], fields[kind] = _EMPTY.of_kind(kind)
                continue
            new = places[old]
            sorting = np.argsort(new)
            numbers[kind] = new[sorting]
            fields[kind] = kind(*(_sorted(column, sorting) for column in self.fields[kind]))
        return LirTable(numbers, fields, self.settings, self.count)

    def of_kind(self, kind: type) -> tuple[np.ndarray, Any]:
        """Return the places of a kind's operations in the program, and their fields as arrays."""
        return self.numbers[kind], self.fields[kind]

    def setting(self, register: Register, default: int = 0) -> np.ndarray:
        """Return the value that each of ``settings`` gives a register, ``default`` where it gives none."""
        return np.array([dict(settings).get(register, default) for settings in self.settings], np.int64)

    def loops(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each SIMD operation whether it is in a loop's body, and how often it runs: 1 outside."""
        (heads, head), (places, _) = self.of_kind(lir.SimdLoop), self.of_kind(lir.Simd)
        if not len(heads):
            return np.zeros(len(places), bool), np.ones(len(places), np.int64)
        latest = np.searchsorted(heads, places) - 1
        inside = (latest >= 0) & (places - heads[latest] <= head.body[latest])
        return inside, np.where(inside, head.iterations[latest], 1)

    @cached_property
    def scaled_moves(self) -> np.ndarray:
        """Return bool [operations]: whether each is a move out of the accumulators right behind a LoadScale.

        Between the two there may be other moves out of the accumulators, and nothing else."""
        numbers, move = self.of_kind(lir.DataMove)
        scales, leaves = np.zeros((2, self.count), bool)
        scales[self.numbers[lir.LoadScale]] = True
        leaves[numbers] = (move.to_local != 0) & (move.far.memory == MEMORY_NUMBERS[lir.ACCUMULATORS])
        before = np.maximum.accumulate(np.where(leaves, 0, np.arange(self.count)))
        return np.asarray(leaves & scales[before])

    def tap_moves(self) -> list[tuple[int, ...]]:
        """Return for each of ``settings`` by how many vectors the walks of a MatMul's reads lie behind the first one.

        There is one for each row of taps that counts."""
        moves = []
        for settings in map(dict, self.settings):
            rows = counted_rows(settings.get(Register.TAP_ROWS, 1)) if settings.get(Register.TAP_ORIGIN, 0) else (0,)
            moves.append(tuple((row - rows[0]) * settings.get(Register.TAP_PITCH, 0) for row in rows))
        return moves


class _Settings:
    """Numbers for settings, in the order of their first operation. Most operations share the object, others equal it.

    ``of``: by the object; ``known``: by content."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.known: dict[lir.Settings, int] = {}

    def numbers(self, column: Sequence[lir.Settings]) -> np.ndarray:
        """Return the number of each of the settings, int64."""
        for settings in {id(settings): settings for settings in column}.values():
            self.of[id(settings)] = self.known.setdefault(settings, len(self.known))
        return np.array([self.of[id(settings)] for settings in column], np.int64)


def _sorted(column: Any, order: np.ndarray) -> Any:
    """Return a field's arrays in another order."""
    if not isinstance(column, Address):
        return column[order]
    parts: Any = column
    return Address(*(part[order] for part in parts))


def _columns(kind: Any, operations: Sequence[Any], settings: _Settings) -> Any:
    """Return operations of one kind as one, whose fields are arrays."""
    columns = zip(*operations, strict=True) if operations else [()] * len(kind._fields)
    made: list[Any] = []
    for name, column in zip(kind._fields, columns, strict=True):
        if name in _ADDRESSES:
            made.append(_addresses(column))
        elif name == "settings":
            made.append(settings.numbers(column))
        else:
            made.append(np.array(column, np.int64))
    return kind(*made)


def _addresses(column: Sequence[Address | None]) -> Any:
    """Return addresses as one ``Address`` of two arrays."""
    given = [_NO_ADDRESS if address is None else address for address in column] if None in column else column
    memories: Any = [memory for memory, _ in given]  # type: ignore[misc]
    offsets: Any = np.array([offset for _, offset in given], np.int64)  # type: ignore[misc]
    return Address(np.array([_NUMBERS.get(memory, UNKNOWN) for memory in memories], np.int64),  # type: ignore[arg-type]
                   offsets)


def _numbered(fields: Any, numbers: np.ndarray) -> Any:
    """Return the fields of a kind, with settings replaced by their ``numbers``."""
    return fields._replace(settings=numbers[fields.settings]) if "settings" in fields._fields else fields


def _concatenated(name: str, columns: Sequence[Any]) -> Any:
    """Return the arrays of a field behind one another."""
    if name not in _ADDRESSES:
        return np.concatenate(columns)
    parts: Any = [np.concatenate(part) for part in zip(*columns, strict=True)]
    return Address(*parts)


def _values(name: str, column: Any, settings: Sequence[lir.Settings]) -> list[Any]:
    """Return a field's arrays as the values that operations have there."""
    if name in _ADDRESSES:
        memories, offsets = column
        return [None if memory == ABSENT else Address(_NAMES[memory], offset)
                for memory, offset in zip(memories.tolist(), offsets.tolist(), strict=True)]
    values = column.tolist()
    if name == "settings":
        return [settings[number] for number in values]
    if name == "opcode":
        return [SimdOpcode(value) for value in values]
    return [bool(value) for value in values] if name in _FLAGS else values


_NO_ADDRESS = Address("", 0)
_NUMBERS = {**MEMORY_NUMBERS, _NO_ADDRESS.memory: ABSENT}
_CODES: dict[Any, int] = {kind: code for code, kind in enumerate(lir.OPERATIONS.values())}
_EMPTY = LirTable({kind: np.zeros(0, np.int64) for kind in _CODES},
                  {kind: _columns(kind, (), _Settings()) for kind in _CODES}, (), 0)
