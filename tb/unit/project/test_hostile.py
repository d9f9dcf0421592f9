"""Hostile files and command lines (``tb/hostile``): each is refused by one message, in time, and leaves nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tb.hostile.runner import all_cases

ROOT = Path(__file__).parents[3]
QUICK = [case.name for case in all_cases() if case.quick]


@pytest.fixture(scope="session")
def problems() -> dict[str, str]:
    """Case -> what is wrong with what it did. One process runs them all, a child for each."""
    done = subprocess.run([sys.executable, "scripts/hostile.py", "--quick", "--json"], cwd=ROOT, text=True,
                          capture_output=True, check=False, timeout=600)
    assert done.returncode in (0, 2), done.stderr
    return {found["name"]: found["problem"] and f"{found['problem']}; it said {found['said']!r}"
            for found in map(json.loads, done.stdout.splitlines())}


def test_every_reader_has_quick_cases() -> None:
    cases = all_cases()
    assert {case.reader for case in cases} == {case.reader for case in cases if case.quick}
    assert len(cases) >= 300 and len(QUICK) >= 60


@pytest.mark.parametrize("name", QUICK)
def test_hostile(problems: dict[str, str], name: str) -> None:
    assert not problems[name], problems[name]
