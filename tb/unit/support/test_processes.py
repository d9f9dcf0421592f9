# SPDX-License-Identifier: Apache-2.0
"""Executors of this machine: for one process nothing is started."""

from __future__ import annotations

import os

import pytest

from weft.support.errors import WeftError
from weft.support.processes import processes


def test_one_process_is_this_one() -> None:
    """It is prepared once, before the first task."""
    calls: list[str] = []
    with processes(1, lambda: calls.append("setup")) as executor:
        assert executor.submit(os.getpid).result() == os.getpid()
        executor.submit(calls.append, "task").result()
    assert calls == ["setup", "task"]


def test_a_process_that_the_system_ends_is_one_message() -> None:
    """As when memory is short; it was a traceback of the standard library."""
    with pytest.raises(WeftError, match="processes beside this one: found one that ended before its task"), \
            processes(2) as executor:
        executor.submit(os._exit, 9).result()
