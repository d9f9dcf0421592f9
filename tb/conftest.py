# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests: their order, the progress line, and the last lines of a run.

These tell of the outside oracle and of what did not run."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from weft.simulate.make import BUILD_FAST
from weft.tb import generators, progress, shared, skipped, wide

ORACLE = ("outside oracle", "ran")
"""The property in the report of a test that opened published vectors."""
FIRST = ("e2e", "system")
"""The folders whose tests build simulators, a minute each: they go first, so that workers end together."""


def pytest_configure() -> None:
    gc.set_threshold(50_000, 20, 100)  # elaboration makes many objects and few circles: a twentieth of the suite's time
    os.environ.setdefault("WEFT_SIMULATOR_FLAGS", BUILD_FAST)
    settings.register_profile("weft", deadline=None)  # a busy machine is no fault of an example
    settings.load_profile("weft")


def pytest_sessionstart(session: pytest.Session) -> None:
    progress.install(session)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what builds simulators, then what takes long otherwise; the rest stays as it is."""
    wide.mark(items)
    generators.keep({item.module for item in items if isinstance(item, pytest.Function)})
    items.sort(key=lambda item: (item.path.parent.name not in FIRST, not item.get_closest_marker("slow")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    shared.opened.clear()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Rewind what the module's fixtures may draw from."""
    if isinstance(item, pytest.Function):
        generators.rewind(item.module)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Rewind what the test draws from: a fixture that others have asked for already draws nothing."""
    if isinstance(item, pytest.Function):
        generators.rewind(item.module)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    report: Any = yield
    if report.when == "call" and shared.published(shared.opened):
        report.user_properties.append(ORACLE)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell of the outside oracle and of what did not run.

    If tests ran in workers, their reports hold the property."""
    properties = [each for found in terminalreporter.stats.values() for report in found
                  for each in getattr(report, "user_properties", ())]
    terminalreporter.write_line(shared.oracle_line(sum(tuple(each) == ORACLE for each in properties)))
    terminalreporter.write_line(skipped.line(terminalreporter.stats.get("skipped", ())))
