# SPDX-License-Identifier: Apache-2.0
"""Hostile files and command lines (``tb/hostile``): each is refused by one message, in time, and leaves nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tb.hostile.runner import all_cases

ROOT = Path(__file__).parents[3]
QUICK = [case.name for case in all_cases() if case.quick]


def test_every_reader_has_quick_cases() -> None:
    cases = all_cases()
    assert {case.reader for case in cases} == {case.reader for case in cases if case.quick}
    assert len(cases) >= 1300 and len(QUICK) >= 75


@pytest.mark.slow
@pytest.mark.parametrize("is_quick", [pytest.param(True, marks=pytest.mark.wide),
                                      pytest.param(False, marks=pytest.mark.long)])
def test_cases(is_quick: bool) -> None:
    """One process runs them all, a child for each: one test, so that one worker does it."""
    done = subprocess.run([sys.executable, "scripts/hostile.py", *["--quick"] * is_quick, "--json"], cwd=ROOT,
                          text=True, capture_output=True, check=False, timeout=600 if is_quick else 3600)
    assert done.returncode in (0, 2), done.stderr
    outcomes = {found["name"]: found for found in map(json.loads, done.stdout.splitlines())}
    assert outcomes.keys() == {case.name for case in all_cases() if case.quick or not is_quick}
    assert {name: f"{found['problem']}; it said {found['said']!r}" for name, found in outcomes.items()
            if found["problem"]} == {}
