"""The list of what ``make test`` leaves to ``make test-wide`` fits the suite, and leaves what the breaks need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from weft.tb import wide
from weft.tb.mutations import breaks

ROOT = Path(__file__).resolve().parents[3]
COLLECT = """
import json, sys, pytest
class Collected:
    def pytest_collection_finish(self, session):
        left_out = {"long", "wide"}
        rows = {item.nodeid: not left_out & {mark.name for mark in item.iter_markers()} for item in session.items}
        open(sys.argv[1], "w").write(json.dumps(rows))
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tb"], plugins=[Collected()]))
"""


def collected(folder: Path) -> dict[str, bool]:
    """Every test of the suite -> whether it is one of ``make test``."""
    file = folder / "collected.json"
    done = subprocess.run([sys.executable, "-c", COLLECT, str(file)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return json.loads(file.read_text())


def test_list_and_breaks_fit_the_suite(tmp_path: Path) -> None:
    tests = collected(tmp_path)
    cases: dict[str, dict[str, bool]] = defaultdict(dict)
    for name, here in tests.items():
        test, _, case = name.removeprefix("tb/").partition("[")
        cases[test][case.removesuffix("]")] = here
    for test, patterns in wide.patterns().items():
        for pattern in patterns:
            assert any(wide.matches(case, pattern) for case in cases[test]), f"{test}  {pattern}: no such case"
        assert patterns == ("*",) or any(cases[test].values()), f"{test}: no case is left in make test"
    for entry in breaks():
        needed = [here for name, here in tests.items() if name == entry.test or name.startswith(f"{entry.test}[")]
        assert any(needed), f"break {entry.id}: make test has no case of {entry.test}"


def test_a_test_with_two_lines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wide.txt").write_text("a::test_b  one\na::test_b  two\n")
    monkeypatch.setattr(wide, "LIST", tmp_path / "wide.txt")
    with pytest.raises(ValueError, match="twice"):
        wide.patterns.__wrapped__()


@pytest.mark.parametrize("line", ["unit/test_a.py::test_b", "unit/test_a.py::test_b one"])
def test_a_line_without_cases_is_refused(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wide.txt").write_text(f"# heading\n{line}\n")
    monkeypatch.setattr(wide, "LIST", tmp_path / "wide.txt")
    with pytest.raises(ValueError, match="two spaces"):
        wide.patterns.__wrapped__()


def test_brackets_in_patterns_are_brackets() -> None:
    assert wide.matches("a[1]-b", "a[1]-*") and not wide.matches("a1-b", "a[1]-*")
