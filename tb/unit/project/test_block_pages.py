# SPDX-License-Identifier: Apache-2.0
"""The pages of the blocks say what the blocks are."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_block_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "block_pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
