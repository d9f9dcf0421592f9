# SPDX-License-Identifier: Apache-2.0
"""The table of coverage counts by room, and refuses a room that fell. Pieces of it are kept while they are true."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from subprocess import CalledProcessError, CompletedProcess
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
    assert set(script.known()) <= measured | {script.CONTRACT}
    assert set(script.BARS) <= measured | {script.CONTRACT}


# -- pieces ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def pieces(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that measures file by file, with data in a folder of the test's own."""
    made = importlib.import_module("coverage_pieces")
    for name, path in (("PIECES", tmp_path / "pieces"), ("FOLDER", tmp_path)):
        monkeypatch.setattr(made, name, path)
    monkeypatch.setattr(script, "DATA", tmp_path / "coverage.json")
    return made


def test_files_of_folders_are_found_once(pieces: ModuleType, tmp_path: Path) -> None:
    for name in ("a/test_two.py", "a/b/test_one.py", "a/helper.py", "test_three.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert pieces.files_of(["test_three.py", "a", "a/test_two.py"], tmp_path) == [
        "test_three.py", "a/b/test_one.py", "a/test_two.py"]
    with pytest.raises(WeftError, match="tests.*nowhere.*a file or folder of tests"):
        pieces.files_of(["nowhere"], tmp_path)


def test_a_file_is_measured_again_only_if_it_or_a_room_changed(pieces: ModuleType, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    codes = {"run": pieces.NOTHING_CHOSEN, "combine": 0}

    def command(words: list[str], env: dict[str, str], **_: object) -> CompletedProcess[bytes]:
        commands.append(words[3])
        Path(env["COVERAGE_FILE"]).write_text(str(len(commands)))
        return CompletedProcess(words, codes[words[3]])

    monkeypatch.setattr(pieces.subprocess, "run", command)
    monkeypatch.setattr(pieces, "ROOT", tmp_path)
    pieces.PIECES.mkdir()
    test = tmp_path / "test_one.py"
    test.write_text("one")
    first = pieces.measure("test_one.py", "rooms")
    assert (pieces.measure("test_one.py", "rooms"), commands) == (first, ["run", "combine"])
    assert pieces.measure("test_one.py", "other rooms") != first
    test.write_text("two")
    assert pieces.measure("test_one.py", "rooms") != first
    assert (first.read_text(), commands) == ("2", ["run", "combine"] * 3)
    codes["run"] = 1
    test.write_text("a test that fails")
    for _ in range(2):
        with pytest.raises(CalledProcessError):
            pieces.measure("test_one.py", "rooms")
    assert commands[6:] == ["run"] * 2


def test_every_measured_room_counts_for_what_is_kept(pieces: ModuleType) -> None:
    sources = set(pieces.measured_sources())
    assert {ROOT / name for name in ("golden/alu.py", "hw/contract/isa.py", "compiler/pipeline.py")} < sources
    assert not [path for path in sources if path.is_relative_to(ROOT / "tb")]


def test_only_rooms_that_are_named_are_written(script: ModuleType, pieces: ModuleType, monkeypatch: pytest.MonkeyPatch,
                                               tmp_path: Path) -> None:
    """Rows of other rooms stay, with what measured them; a run whose rows are all newer elsewhere goes."""
    found = report(golden_alu=(10, 9, 4, 3), runtime_pieces=(10, 9, 4, 3))
    before = pieces.rooms(report(golden_alu=(10, 9, 4, 2), compiler_lir=(2, 2, 0, 0)))
    stays = {"command": "first", "commit": "1", "rooms": {"compiler": before["compiler"], "golden": before["golden"]}}
    script.DATA.write_text(json.dumps({"runs": [stays, {**stays, "rooms": {"golden": before["golden"]}}]}))
    (tmp_path / "rooms.json").write_text(json.dumps(found))
    monkeypatch.setattr(pieces, "measure", lambda *_: tmp_path)
    monkeypatch.setattr(pieces, "together", lambda _: tmp_path / "rooms.json")
    pieces.main(["tb/unit/golden"], ["golden"])
    written = json.loads(script.DATA.read_text())
    assert written["runs"] == [
        {**stays, "rooms": {"compiler": before["compiler"]}},
        {"command": "scripts/coverage_pieces.py tb/unit/golden", "commit": script.head(),
         "rooms": {"golden": pieces.rooms(found)["golden"]}}]
    assert script.known() == {"compiler": before["compiler"], "golden": pieces.rooms(found)["golden"]}
    assert "| `golden` | 10 | 90.0 % | 4 | 75.0 % | 98 % | 2 |" in script.measured()
    (tmp_path / "rooms.json").write_text(json.dumps(report(golden_alu=(10, 8, 4, 3))))
    with pytest.raises(WeftError, match="lines of golden"):
        pieces.main(["tb/unit/golden"], ["golden"])
    assert json.loads(script.DATA.read_text()) == written
