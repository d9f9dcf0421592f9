# SPDX-License-Identifier: Apache-2.0
"""Objects with checked keys, in Python alone: what files need of msgspec where msgspec is not installed.

Names, meanings and messages are msgspec's. ``weft-runtime`` so needs nothing but numpy; tests hold both against each
other (tb/unit/support/test_plain_structs.py)."""

from __future__ import annotations

import copy
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T")
NAMES: dict[Any, str] = {int: "int", float: "float", str: "str", bool: "bool", type(None): "null", dict: "object",
                         list: "array", tuple: "array"}
"""Type -> its name in messages."""


class ValidationError(ValueError):
    """The error for a value that is not of the type."""


@dataclass(frozen=True)
class Meta:
    """The limits of a value, of a text's or array's length, or a text's form."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: int | None = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None


@dataclass_transform(kw_only_default=False)
class Struct:
    """An object whose keys are the annotations of its class."""

    __struct_fields__: tuple[str, ...] = ()
    _forbids = False

    def __init_subclass__(cls, frozen: bool = False, kw_only: bool = False,
                          forbid_unknown_fields: bool = False) -> None:
        """Make the class's annotations its keys."""
        cls._forbids = cls._forbids or forbid_unknown_fields
        for name in cls.__dict__.get("__annotations__", {}):
            default = cls.__dict__.get(name, MISSING)
            if isinstance(default, dict | list):
                setattr(cls, name, field(default_factory=partial(copy.copy, default)))
        dataclass(frozen=frozen, kw_only=kw_only)(cls)
        cls.__struct_fields__ = tuple(each.name for each in fields(cls))  # type: ignore[arg-type]


def to_builtins(value: Any) -> Any:
    """Return a struct as a dictionary, and what is in it likewise."""
    if isinstance(value, Struct):
        return {name: to_builtins(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: to_builtins(each) for key, each in value.items()}
    return [to_builtins(each) for each in value] if isinstance(value, list | tuple) else value


def convert(value: Any, kind: type[T]) -> T:
    """Return a value of JSON as ``kind``. Raise ValidationError, which says what was found where."""
    return _converted(value, kind, "$", "")


def _converted(value: Any, kind: Any, where: str, null: str) -> Any:
    """Return a value as a type, which stands at the path ``where``; ``null``: what messages add to the type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found = _converted(value, inner[0], where, null)
        _check(found, inner[1], where)
        return found
    if origin in (Union, types.UnionType):
        return None if value is None else _converted(value, _but_none(inner), where, " | null")
    if kind is Any:
        return value
    made = Struct if isinstance(kind, type) and issubclass(kind, Struct) else origin
    if made in _BY_ORIGIN:
        return _BY_ORIGIN[made](value, kind, where, null)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise _unexpected(kind, value, where, null)
    return value


def _but_none(kinds: tuple[Any, ...]) -> Any:
    """Return the one type of a union that is not None."""
    kind, = (each for each in kinds if each is not type(None))
    return kind


def _literal(value: Any, kind: Any, where: str, null: str) -> Any:
    """Return one of several texts."""
    if type(value) is not str:
        raise _unexpected(str, value, where, null)
    if value not in get_args(kind):
        raise _wrong(f"Invalid enum value {value!r}", where)
    return value


def _array(value: Any, kind: Any, where: str, null: str) -> Any:
    """Return a list, or a tuple of any or of a given length."""
    if not isinstance(value, list | tuple):
        raise _unexpected(list, value, where, null)
    made, inner = get_origin(kind), get_args(kind)
    assert made is not None
    if made is tuple and inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            raise _wrong(f"Expected `array` of length {len(inner)}, got {len(value)}", where)
        kinds = list(inner)
    else:
        kinds = [inner[0]] * len(value)
    return made(_converted(each, one, f"{where}[{number}]", "")
                for number, (each, one) in enumerate(zip(value, kinds, strict=True)))


def _object(value: Any, kind: Any, where: str, null: str) -> Any:
    """Return a dictionary."""
    if not isinstance(value, Mapping):
        raise _unexpected(dict, value, where, null)
    keys, values = get_args(kind)
    return {_converted(key, keys, f"key in {where}", ""): _converted(each, values, f"{where}[...]", "")
            for key, each in value.items()}


def _struct(value: Any, kind: Any, where: str, null: str) -> Any:
    """Return an object of a class. Keys that it does not know are left out, or an error if it forbids them."""
    if not isinstance(value, Mapping):
        raise _unexpected(dict, value, where, null)
    hints, found = _hints(kind), {}
    for key, each in value.items():
        if key in hints:
            found[key] = _converted(each, hints[key], f"{where}.{key}", "")
        elif kind._forbids:
            raise _wrong(f"Object contains unknown field `{key}`", where)
    for each in fields(kind):
        if each.name not in value and each.default is MISSING and each.default_factory is MISSING:
            raise _wrong(f"Object missing required field `{each.name}`", where)
    return kind(**found)


_BY_ORIGIN: dict[Any, Callable[[Any, Any, str, str], Any]] = {
    Literal: _literal, list: _array, tuple: _array, dict: _object, Struct: _struct}


@lru_cache
def _hints(kind: type[Struct]) -> dict[str, Any]:
    """Return the types of a class's keys."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _check(value: Any, meta: Meta, where: str) -> None:
    """Raise ValidationError if a value is beyond its limits."""
    if value is None:
        return
    name = NAMES[type(value)]
    limits = ((meta.ge, ">=", lambda limit: value >= limit), (meta.gt, ">", lambda limit: value > limit),
              (meta.le, "<=", lambda limit: value <= limit), (meta.lt, "<", lambda limit: value < limit))
    for limit, sign, holds in limits:
        if limit is not None and not holds(limit):
            shift = {">": 1, "<": -1}.get(sign, 0) if name == "int" else 0
            raise _wrong(f"Expected `{name}` {sign + '=' if shift else sign} {limit + shift}", where)
    if meta.multiple_of is not None and value % meta.multiple_of:
        raise _wrong(f"Expected `{name}` that's a multiple of {meta.multiple_of}", where)
    if meta.min_length is not None and len(value) < meta.min_length:
        raise _wrong(f"Expected `{name}` of length >= {meta.min_length}", where)
    if meta.max_length is not None and len(value) > meta.max_length:
        raise _wrong(f"Expected `{name}` of length <= {meta.max_length}", where)
    if meta.pattern is not None and not re.search(meta.pattern, value):
        raise _wrong(f"Expected `{name}` matching regex {meta.pattern!r}", where)


def _unexpected(kind: Any, value: Any, where: str, null: str) -> ValidationError:
    """Return the error for a value of another type."""
    found = NAMES.get(type(value), type(value).__name__)
    return _wrong(f"Expected `{NAMES[kind]}{null}`, got `{found}`", where)


def _wrong(what: str, where: str) -> ValidationError:
    """Return the error with its place; the whole has none."""
    return ValidationError(what if where == "$" else f"{what} - at `{where}`")
