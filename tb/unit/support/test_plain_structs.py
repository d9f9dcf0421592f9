# SPDX-License-Identifier: Apache-2.0
"""The checks without msgspec say what msgspec says, of every damaged ``.tmodel`` and ``shell.json``."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import pytest

from weft.runtime.driver import shell_file
from weft.support import plain_structs, structs
from weft.tb.bench.dram_model import board_description
from weft.tb.unit.driver.test_device import TINY, adder
from weft.tmodel import schema

BAD: tuple[Any, ...] = (-1, 1 << 70, 1.5, "", "x", None, [], {}, [[]], True, [1, 2, 3], {"file_name": 1}, 3)


def without_msgspec(module: ModuleType) -> ModuleType:
    """The same module as it is where msgspec is not installed."""
    assert module.__file__
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_plain", module.__file__)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    known = {name: getattr(structs, name) for name in structs.__all__}
    sys.modules[spec.name] = made
    try:
        for name in structs.__all__:
            setattr(structs, name, getattr(plain_structs, name))
        spec.loader.exec_module(made)
    finally:
        for name, value in known.items():
            setattr(structs, name, value)
    return made


@pytest.fixture(scope="module")
def plain_schema() -> Iterator[ModuleType]:
    """tmodel/schema.py in Python alone; its ``structs`` is asked when it converts."""
    made = without_msgspec(schema)
    made.structs = plain_structs  # type: ignore[attr-defined]
    yield made


def said(convert: Any, content: Any) -> tuple[bool, str]:
    try:
        return True, repr(json.dumps(structs.to_builtins(convert(content)), sort_keys=True, default=vars))
    except ValueError as error:
        return False, str(error)


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value, and one that is not there in each object."""
    if where:
        yield where
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*where, key))
    if isinstance(value, dict):
        yield (*where, "unknown")


def damaged(content: Any) -> Iterator[Any]:
    """The content, and with each place changed, or left out."""
    yield content
    for where in places(content):
        for bad in (*BAD, ...):
            made = copy.deepcopy(content)
            inside = made
            for key in where[:-1]:
                inside = inside[key]
            if bad is not ...:
                inside[where[-1]] = bad
            elif isinstance(inside, dict):
                inside.pop(where[-1], None)
            yield made


def test_a_damaged_model_is_refused_alike(plain_schema: ModuleType, tmp_path: Path) -> None:
    made = adder(tmp_path)
    made.save()
    content = json.loads((tmp_path / f"{made.name}.tmodel").read_text())
    content = {**content, "arch": {"array_size": 2}, "macs": 5, "cores": {"mode": "batch", "window_bytes": 1 << 16}}
    content["inputs"][0] |= {"shape": [1, 2], "scale": 0.5, "zero": 3, "order": [[1, 2, 3]]}
    content["network"] = {"inputs": [{"name": "x", "type": "float32", "shape": [1, 2]}], "outputs": []}
    content["layers"] = [{"name": "a", "kind": "Conv", "macs": 3, "more": []}]
    count = 0
    for each in damaged(content):
        expected, found = said(schema.convert, each), said(plain_schema.convert, each)
        assert found[0] == expected[0], (each, expected, found)
        if not expected[0]:
            assert found[1] == expected[1], each
        count += 1
    assert count > 500


def test_a_damaged_shell_is_refused_alike() -> None:
    made = without_msgspec(shell_file)
    content = board_description(TINY, "ulx3s", witness=0x9100_0000)
    content["registers"] = {name: content["registers"][name] for name in sorted(content["registers"])}
    for each in damaged(content):
        expected, found = said(shell_file.ShellFile.of, each), said(made.ShellFile.of, each)
        assert found[0] == expected[0], (each, expected, found)
        if not expected[0]:
            assert found[1] == expected[1], each


@pytest.mark.parametrize(("kind", "limits", "values"), [
    (int, {"ge": 3}, (2, 3)), (int, {"gt": 3}, (3, 4)), (int, {"le": 3}, (3, 4)), (int, {"lt": 3}, (2, 3)),
    (float, {"ge": 0.5, "lt": 2.0}, (0.25, 0.5, 1.5, 2.0)), (float, {"gt": 0.5, "le": 2.0}, (0.5, 0.75, 2.0, 3.0)),
    (int, {"multiple_of": 4}, (4, 6, 8)), (str, {"min_length": 1, "max_length": 3}, ("", "a", "abc", "abcd")),
    (str, {"pattern": "^[0-9]{2}$"}, ("1", "12", "123")), (int, {"ge": 1, "le": 4}, (0, 1, 4, 5))])
def test_limits_are_those_of_msgspec_at_their_edges(kind: type, limits: dict[str, Any],
                                                    values: tuple[Any, ...]) -> None:
    def check(value: Any) -> Any:
        plain_structs._check(value, plain_structs.Meta(**limits), "$")
        return value

    allowed = [said(check, value)[0] for value in values]
    assert allowed == [said(lambda it: msgspec.convert(it, Annotated[kind, msgspec.Meta(**limits)]), value)[0]
                       for value in values]
    assert {True, False} == set(allowed)
