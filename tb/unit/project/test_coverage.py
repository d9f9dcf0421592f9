# SPDX-License-Identifier: Apache-2.0
"""The table of coverage counts by room, and refuses a room that fell."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from weft.support.errors import WeftError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("coverage_table")


def report(**files: tuple[int, int, int, int]) -> dict[str, Any]:
    """Coverage's JSON: of each file statements, lines run, branches, branches run."""
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {"files": {name.replace("_", "/"): {"summary": dict(zip(names, counts, strict=True))}
                      for name, counts in files.items()}}


def test_a_room_is_its_folder_and_the_contract_one_of_its_own(script: ModuleType) -> None:
    found = script.rooms(report(golden_alu=(10, 9, 4, 2), golden_decode=(10, 10, 4, 4), hw_contract_isa=(3, 3, 0, 0),
                                hw_core=(1, 0, 2, 1)))
    assert [(room, script.share(counts, "lines"), script.share(counts, "branches")) for room, counts in found.items()
            ] == [("golden", 95.0, 75.0), ("hw", 0.0, 50.0), ("hw/contract", 100.0, 100.0)]


def test_a_share_is_cut_so_that_no_bar_is_met_by_rounding(script: ModuleType) -> None:
    assert script.share({"num_branches": 10_000, "covered_branches": 9_799}, "branches") == 97.9


@pytest.mark.parametrize(("after", "says"), [
    ({"golden_alu": (20, 19, 4, 3)}, None), ({"golden_alu": (10, 8, 4, 4)}, "lines of golden .*80.0 %.* 90.0 %"),
    ({"golden_alu": (10, 10, 4, 2)}, "branches of golden .*50.0 %.* 75.0 %"), ({}, "lines of golden .*0.0 %")])
def test_a_room_that_falls_is_refused(after: dict[str, Any], says: str | None, script: ModuleType) -> None:
    before, found = script.rooms(report(golden_alu=(10, 9, 4, 3))), script.rooms(report(**after))
    if says is None:
        script.check(found, before)
        return
    with pytest.raises(WeftError, match=says):
        script.check(found, before)


def test_every_room_with_code_is_measured(script: ModuleType) -> None:
    measured = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]["source"])
    rooms = {path.name for path in (ROOT / "weft").iterdir() if any(path.glob("*.py"))} - {"tb", "models", "presets"}
    assert measured == rooms - {"__pycache__"}
    assert set(json.loads(script.DATA.read_text())["rooms"]) <= measured | {script.CONTRACT}
    assert set(script.BARS) <= measured | {script.CONTRACT}
