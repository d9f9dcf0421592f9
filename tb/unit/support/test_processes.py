# SPDX-License-Identifier: Apache-2.0
"""Executors of this machine: for one process nothing is started."""

from __future__ import annotations

import os

from weft.support.processes import processes


def test_one_process_is_this_one() -> None:
    """It is prepared once, before the first task."""
    calls: list[str] = []
    with processes(1, lambda: calls.append("setup")) as executor:
        assert executor.submit(os.getpid).result() == os.getpid()
        executor.submit(calls.append, "task").result()
    assert calls == ["setup", "task"]
