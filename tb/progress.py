# SPDX-License-Identifier: Apache-2.0
"""What the suite does while it runs: a line that stays at the foot of a terminal, or one every half minute in a log.

With workers (pytest-xdist) it runs in the process that hands out the tests. Failed tests are named as they fail, with
the command that repeats them; their reports come at the end, as always.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

LOG_SECONDS = 30
"""The seconds between two lines of a log."""
SLOW_SECONDS = 3
"""The seconds after which a running test is named."""
PYTHON = Path(".venv/bin/python")


class Progress:
    """A pytest plugin in the place of pytest's row of dots. ``collected()`` tells how many tests there are."""

    def __init__(self, session: pytest.Session, console: Console) -> None:
        self._session, self._console = session, console
        self._running: dict[str, float] = {}
        self._done, self._failed, self._begin = 0, 0, time.monotonic()
        self._stopped = threading.Event()
        self._live = Live(console=console, get_renderable=self._line, refresh_per_second=2, transient=True)
        self._thread = threading.Thread(target=self._log, daemon=True)

    def start(self) -> None:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._live.stop()

    def text(self) -> str:
        """Return the line.

        An example is ``  412 of 3021, 1 failed, 2:05 | tb/system/test_starvation.py::test_a[tiny] 14 s``."""
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self._begin), 60)
        slow = sorted(((now - begin, name) for name, begin in list(self._running.items())), reverse=True)
        names = ", ".join(f"{name} {age:.0f} s" for age, name in slow if age >= SLOW_SECONDS)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done:5d} of {self._session.testscollected}{failed}, {minutes}:{seconds:02d} | {names or '...'}"

    def _line(self) -> Text:
        return Text(self.text(), no_wrap=True, overflow="ellipsis", style="red" if self._failed else "")

    def _log(self) -> None:
        while not self._stopped.wait(LOG_SECONDS):
            self._say(self.text())

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    # -- what pytest tells ---------------------------------------------------------------------------------------------
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._done += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            python = PYTHON if PYTHON.exists() else "python"
            self._say(f"failed: {report.nodeid}; repeat with: {python} -m pytest '{report.nodeid}'")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport):
        """Count the test as ever, but print no letter."""
        category, _, word = yield
        return category, "", word

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.stop()


def wanted(config: pytest.Config) -> bool:
    """Return whether the line is wanted: not in a worker, nor with -v, -q, -s, --pdb or --collect-only."""
    option = config.option
    closer = option.verbose or option.capture == "no" or option.usepdb or option.collectonly
    return not closer and not hasattr(config, "workerinput")


def install(session: pytest.Session) -> None:
    """Put the line in the place of pytest's dots."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not wanted(config):
        return
    reporter.showfspath = False  # pytest's own list of files
    # A file of its own: a test's output is caught where sys.stdout points to meanwhile.
    progress = Progress(session, Console(file=os.fdopen(os.dup(1), "w"), highlight=False))
    config.pluginmanager.register(progress, "weft-progress")
    progress.start()
