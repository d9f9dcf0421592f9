# SPDX-License-Identifier: Apache-2.0
"""Parts of the records of both dialects: numbers with their limits, ranges, and messages that name the place.

A record is an object of the file in which no other keys may stand. Numbers are bounded, so that sums of them stay
small: no coordinate beyond 2**20, no volume beyond 2**80.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from weft.schedule.boxes import Box
from weft.support.errors import WeftError, explain

Coordinate = Annotated[int, Meta(ge=0, le=1 << 20)]
Corner = tuple[Coordinate, Coordinate, Coordinate, Coordinate]
Id = Annotated[int, Meta(ge=0, le=1 << 31)]
Count = Annotated[int, Meta(ge=0, le=1 << 48)]
Cycles = Annotated[int, Meta(ge=0, le=1 << 48)]
Side = Annotated[int, Meta(ge=1, le=256)]
"""Cores along an axis of the mesh."""
Name = Annotated[str, Meta(min_length=1, max_length=4096)]
Ids = tuple[Id, ...]

WAY_OUT = "write the file again with the scheduler that made it, or with weft schedule"


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object of the file."""


class Ranged(Record, kw_only=True):
    """A record with a range of elements: ``lower`` to ``upper``, both included."""

    lower: Corner
    upper: Corner

    def __post_init__(self) -> None:
        """Raise ValueError for a range that ends before it begins."""
        check_range(self.lower, self.upper)

    @property
    def box(self) -> Box:
        """The range ``lower`` to ``upper`` as a box."""
        return Box(self.lower, self.upper)


def check_range(lower: tuple[int, ...], upper: tuple[int, ...]) -> None:
    """Raise ValueError for a range that ends before it begins."""
    if any(low > high for low, high in zip(lower, upper, strict=True)):
        raise ValueError(f"a range {list(lower)}..{list(upper)} that ends before it begins")


T = TypeVar("T")


def converted(values: Any, kind: type[T], where: str) -> T:
    """Return the typed record.

    Raises WeftError, which names ``where`` it stands, the transfer, the key and what is wrong there."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`").removeprefix(".")
        place, value = _place(values, path, where, text)
        found, allowed = _in_words(text, value, kind, path)
        raise WeftError(explain(place, found, allowed, WAY_OUT)) from None


def _in_words(text: str, value: Any, kind: Any, path: str) -> tuple[str, str]:
    """Return (found, allowed) from the library's message about ``value``."""
    if match := _FIELD.search(text):
        return ("no such key" if "missing" in text else f"an unknown key {match[1]}"), _keys(kind, path)
    if text.startswith("Invalid enum value"):
        return repr(value), f"one of {', '.join(map(repr, get_args(_type_at(kind, path))))}"
    if not text.startswith("Expected "):
        return text[:1].lower() + text[1:], _keys(kind, path)
    expected = text.removeprefix("Expected ").partition(", got ")[0]
    return repr(value) if not isinstance(value, dict) else "an object", expected.replace("`", "")


_FIELD = re.compile(r"field `([^`]*)`")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _place(values: Any, path: str, where: str, text: str) -> tuple[str, Any]:
    """Return where a fault lies in words (the record, the innermost transfer around it, the key), and the value."""
    transfer = None
    for name, index in _STEP.findall(path):
        if isinstance(values, dict):
            transfer = _transfer(values, transfer)
        values = _inside(values, name, index)
    if isinstance(values, dict):
        transfer = _transfer(values, transfer)
    field = _FIELD.search(text)
    key = ".".join(filter(None, (path, field[1] if field else "")))
    return ", ".join(filter(None, (where, transfer and f"transfer {transfer}", key and f"key {key}"))), values


def _inside(values: Any, name: str, index: str) -> Any:
    if isinstance(values, dict):
        return values.get(name)
    if isinstance(values, list) and index.isdigit() and int(index) < len(values):
        return values[int(index)]
    return None


def _transfer(values: Mapping[str, Any], before: str | None) -> str | None:
    """Return the record's transfer in words, or the one ``before``."""
    found = values.get("transfer_id")
    if isinstance(found, list):
        found = found[0] if found else None
    return str(found) if isinstance(found, int) else before


def _keys(kind: Any, path: str) -> str:
    """Return the keys of the record in which the fault lies."""
    record = _type_at(kind, path)
    names = [field.encode_name for field in msgspec.structs.fields(record)] if _is_record(record) else []
    return f"keys {', '.join(names)}" if names else "see docs/schedule-ir.md"


def _type_at(kind: Any, path: str) -> Any:
    """Return the type of the value at ``path``, as far as types tell.

    Of a value in a list that of the list's records, of one of several kinds of records the first."""
    for name in re.findall(r"[a-z_0-9]+", re.sub(r"\[[^]]*\]", "", path)):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)} if _is_record(kind) else {}
        if name not in fields:
            break
        kind = next(iter(_records(fields[name])), fields[name])
    return kind


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _records(kind: Any) -> list[Any]:
    """Return the record types within a type such as ``tuple[A | B, ...]``."""
    if _is_record(kind):
        return [kind]
    return [record for inner in getattr(kind, "__args__", ()) for record in _records(inner)]
