# SPDX-License-Identifier: Apache-2.0
"""What ``make test`` leaves to ``make test-wide`` leaves what the breaks need."""

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
from weft.tb import wide
class Collected:
    def pytest_collection_finish(self, session):
        left_out = {"long", "wide"}
        rows = {item.nodeid: (not left_out & {mark.name for mark in item.iter_markers()}, wide.patterns(item))
                for item in session.items}
        open(sys.argv[1], "w").write(json.dumps(rows))
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tb"], plugins=[Collected()]))
"""


def collected(folder: Path) -> dict[str, tuple[bool, list[str]]]:
    """Return for every case of the suite whether it is one of ``make test``, and its test's patterns of wide cases."""
    file = folder / "collected.json"
    done = subprocess.run([sys.executable, "-c", COLLECT, str(file)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return json.loads(file.read_text())


@pytest.mark.wide
def test_marks_and_breaks_fit_the_suite(tmp_path: Path) -> None:
    cases = collected(tmp_path)
    tests: dict[str, list[str]] = defaultdict(list)
    for name in cases:
        tests[name.partition("[")[0]].append(name)
    for test, names in tests.items():
        for pattern in cases[names[0]][1]:
            assert any(wide.matches(name, pattern) for name in names), f"{test}  {pattern}: no such case"
            assert any(cases[name][0] for name in names), f"{test}: no case is left in make test"
    for entry in breaks():
        needed = [here for name, (here, _) in cases.items() if name == entry.test or name.startswith(f"{entry.test}[")]
        assert any(needed), f"break {entry.id}: make test has no case of {entry.test}"


def test_brackets_in_patterns_are_brackets() -> None:
    assert wide.matches("test_x[a[1]-b]", "a[1]-*") and not wide.matches("test_x[a1-b]", "a[1]-*")


def test_a_test_without_cases_has_no_wide_ones() -> None:
    assert not wide.matches("test_x", "a*")
