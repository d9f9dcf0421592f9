# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine that work beside this one. All are executors of the standard library's kind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import connection
from typing import Any

from weft.support.errors import WeftError, explain

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A worker is one thread: there is one for each core."""

Setup = Callable[[], object]
"""The first call in a process: a function of a module, perhaps with its arguments (functools.partial)."""


class Here(Executor):
    """An executor that runs each task at once in this process."""

    def submit(self, task: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Run a task; return a future that has its result or its error."""
        future: Future[Any] = Future()
        try:
            future.set_result(task(*given, **named))
        except Exception as error:  # it belongs to whoever asks for the result
            future.set_exception(error)
        return future


@contextlib.contextmanager
def processes(count: int, setup: Setup | None = None) -> Iterator[Executor]:
    """Yield an executor with ``count`` processes on this machine; with 1, this process itself."""
    if count == 1:
        if setup is not None:
            setup()
        yield Here()
        return
    with pool(count, setup) as executor:
        yield executor


@contextlib.contextmanager
def pool(count: int, setup: Setup | None = None) -> Iterator[Executor]:
    """Yield an executor with ``count`` processes beside this one, each of one thread.

    Raise WeftError if one of them ended before its task, as the system ends one when memory is short."""
    with environment(ONE_THREAD):
        executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (setup,))
        try:
            yield executor
        except BrokenExecutor:
            raise WeftError(explain("processes beside this one", "one that ended before its task",
                                    "all of them to the end",
                                    "look whether memory was short, then start again")) from None
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _begin(setup: Setup | None) -> None:
    """Prepare a worker process: it ignores interrupts, and ends when the process that searches is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if setup is not None:
        setup()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
