# SPDX-License-Identifier: Apache-2.0
"""How the suite runs: its order, its progress, its word on the outside oracle, and builds that two workers want."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from weft.simulate.once import built_once
from weft.tb import shared, skipped
from weft.tb.progress import Progress

ROOT = Path(__file__).parents[3]
TESTS = """
import time
import pytest

def test_quick():
    pass

@pytest.mark.slow
def test_wrong():
    assert 0, "seed 77"

def test_skipped():
    pytest.skip("nothing to see")

def test_published():
    from weft.tb import shared, skipped
    shared.opened.add("vectors/x")
"""


def run_suite(folder: Path, *options: str) -> str:
    """The output of pytest on TESTS, with the suite's own conftest."""
    (folder / "conftest.py").write_text((ROOT / "tb" / "conftest.py").read_text())
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder),
               "-p", "no:cacheprovider", *options, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("options", ([], ["--numprocesses", "2", "--dist", "worksteal"]), ids=("alone", "two workers"))
def test_failures_seeds_and_the_closing_line_are_there(options: list[str], tmp_path: Path) -> None:
    out = run_suite(tmp_path, *options)
    assert "repeat with: " in out and "-m pytest 'test_some.py::test_wrong'" in out
    assert "AssertionError: seed 77" in out
    assert "SKIPPED [1] test_some.py" in out and "nothing to see" in out
    assert "outside oracle: 1 published-vector tests ran" in out
    assert "did not run: 1, nothing to see" in out
    assert "1 failed, 2 passed, 1 skipped" in out.splitlines()[-1]
    assert "s.F" not in out and ".F" not in out, "no row of dots beside the progress line"


def test_what_is_slow_runs_first(tmp_path: Path) -> None:
    lines = [line for line in run_suite(tmp_path, "-v").splitlines() if "::test_" in line]
    assert "test_wrong" in lines[0] and "test_quick" in lines[1]


def test_line_says_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = SimpleNamespace(testscollected=3021)
    log = io.StringIO()
    progress = Progress(session, Console(file=log, width=100))
    for name in ("tb/a.py::test_a[2]", "tb/b.py::test_b"):
        progress.pytest_runtest_logstart(name)
    progress.pytest_runtest_logfinish("tb/b.py::test_b")
    report: Any = SimpleNamespace(failed=True, nodeid="tb/b.py::test_b")
    progress.pytest_runtest_logreport(report)
    now = time.monotonic()
    monkeypatch.setattr("weft.tb.progress.time.monotonic", lambda: now + 125)
    assert progress.text().strip() == "1 of 3021, 1 failed, 2:05 | tb/a.py::test_a[2] 125 s"
    assert "failed: tb/b.py::test_b; repeat with: " in log.getvalue()


@pytest.mark.parametrize(("ran", "there", "line"), [
    (12, True, "12 published-vector tests ran"), (0, True, "did not run (no test of this selection"),
    (0, False, "did not run (published vectors are not beside this checkout)")])
def test_the_word_on_the_oracle(ran: int, there: bool, line: str, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "ROOT", tmp_path)
    if there:
        (tmp_path / "vectors").mkdir()
    assert shared.oracle_line(ran).startswith(f"outside oracle: {line}")


def test_the_word_on_what_did_not_run() -> None:
    reasons = ("Skipped: skipped: needs Chromium", "Skipped: needs ../shared", "Skipped: needs Chromium")
    reports: list[Any] = [SimpleNamespace(longrepr=("test_a.py", 3, reason)) for reason in reasons]
    assert skipped.line(reports) == "did not run: 2, needs Chromium; 1, needs ../shared"
    assert skipped.line([SimpleNamespace(longrepr="odd")]) == "did not run: 1, odd"
    assert skipped.line([]) == "did not run: nothing of this selection"


def test_only_vectors_are_the_oracle() -> None:
    assert shared.published({"models/a.npz", "vectors/resnet20v2_zcu104"})
    assert not shared.published({"models/vectors.npz"}) and not shared.published(set())


def test_shared_is_beside_the_checkout() -> None:
    assert ROOT.parent / "shared" == shared.ROOT


def fill(directory: Path) -> bool:
    """Whether this process had to make it."""
    with built_once(directory) as work:
        if work is not None:
            time.sleep(0.5)
            (work / "program").write_text("whole")
        return work is not None


def test_two_workers_build_once_and_both_find_it_whole(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        made = list(pool.map(fill, [tmp_path / "cache" / "simulation"] * 3))
    assert sorted(made) == [False, False, True]
    assert (tmp_path / "cache" / "simulation" / "program").read_text() == "whole"
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"simulation", "simulation.lock"}
