# SPDX-License-Identifier: Apache-2.0
"""The tests of the C driver take every branch of it, and run every line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from weft.tb.bench.c_driver import SOURCE

TESTS = ["test_c_driver.py", "test_c_fault_matrix.py"]
GCOV = shutil.which("gcov")
Place = tuple[int, int]
"""A line and the number of one of its branches, or -1 for the line itself."""


def counts(folder: Path) -> Counter[Place]:
    """Return how often each line was run and each branch was taken, over all machines that the driver was built for."""
    found = Counter[Place]()
    for data in folder.rglob("*.gcda"):
        text = subprocess.run([str(GCOV), "--json-format", "--stdout", "--branch-probabilities", data], check=True,
                              capture_output=True, text=True, cwd=folder).stdout
        for file in json.loads(text)["files"]:
            if Path(file["file"]) == SOURCE / "weft_driver.c":
                for line in file["lines"]:
                    found[line["line_number"], -1] += line["count"]
                    for number, branch in enumerate(line["branches"]):
                        found[line["line_number"], number] += branch["count"]
    return found


@pytest.mark.skipif(GCOV is None, reason="needs gcov, which comes with gcc")
def test_every_branch_of_the_c_driver_is_taken(tmp_path: Path) -> None:
    tests = [str(Path(__file__).parent / name) for name in TESTS]
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'run'}",
                    "-m", "not slow and not wide and not long", "-k", "not cpp and not bytes", *tests],
                   check=True, timeout=600, env={**os.environ, "CFLAGS": "--coverage -O0"})
    found = counts(tmp_path)
    lines = (SOURCE / "weft_driver.c").read_text().splitlines()
    assert sum(branch >= 0 for _, branch in found) > 100
    assert not [f"{line}, branch {branch}: {lines[line - 1].strip()}"
                for (line, branch), count in sorted(found.items()) if not count]
