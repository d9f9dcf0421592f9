# SPDX-License-Identifier: Apache-2.0
"""`weft doctor`: every lack has a command, and only what is needed ends with exit code 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli import doctor
from weft.support import packages
from weft.tb.unit.project.conftest import Weft


def findings(weft: Weft, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    answer = weft("doctor", "--json", *arguments)
    return answer.code, {row["what"]: row for row in json.loads(answer.out)["findings"]}


def test_a_lack_has_a_command_and_nothing_else_has(weft: Weft) -> None:
    code, rows = findings(weft)
    assert {"Python", "g++", "packages", "extra sim", "cache", "disk"} <= set(rows)
    assert all(bool(row["mend"]) == (row["state"] != doctor.FINE) for row in rows.values())
    assert code == any(row["state"] == doctor.LACKING for row in rows.values())


def test_what_lacks_is_an_error_only_where_it_is_needed(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    found = packages.installed
    monkeypatch.setattr(packages, "installed", lambda name: None if name == "tensorflow-cpu" else found(name))
    assert findings(weft)[1]["extra tensorflow"]["state"] == doctor.NOT_NEEDED
    code, rows = findings(weft, "--extra", "tensorflow")
    assert code == 1 and rows["extra tensorflow"]["state"] == doctor.LACKING
    assert " -m pip install 'tensorflow-cpu>=" in rows["extra tensorflow"]["mend"]


def test_a_tool_that_lacks_and_a_cache_that_cannot_be_written(weft: Weft, monkeypatch: pytest.MonkeyPatch,
                                                              tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(doctor.shutil, "which", lambda tool: None)
    answer = weft("doctor")
    assert answer.code == 1 and "Traceback" not in answer.err
    assert "g++: sudo apt-get install -y g++" in answer.out and "cache: export WEFT_CACHE=" in answer.out


def test_an_unknown_extra_is_refused(weft: Weft) -> None:
    answer = weft("doctor", "--extra", "gpu")
    assert (answer.code, answer.out) == (1, "") and "--extra: found gpu; allowed: bitstream, board," in answer.err
