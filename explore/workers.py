"""The workers that measure: this process, others beside it, or a Dask cluster, all with the interface of Executor."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from weft.support.errors import WeftError, explain
from weft.support.files import read_bytes
from weft.support.packages import no_package

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables that give each worker one thread, because there is one worker for each core."""


TLS = "tls://"
ADDRESS = re.compile(TLS + r"[A-Za-z0-9._:\[\]-]{1,255}:[0-9]{1,5}")
MOST_KEY_BYTES = 1 << 20


@dataclass(frozen=True)
class Keys:
    """TLS keys as texts in PEM: the authority's certificate, our own certificate, and its key."""

    authority: str
    certificate: str
    key: str

    @classmethod
    def read(cls, *paths: Path) -> Keys:
        """Return the keys in three files. Raise WeftError if one cannot be read."""
        return cls(*(read_bytes(path, "key file", "name a file in PEM", MOST_KEY_BYTES).decode("ascii", "replace")
                     for path in paths))


def check_address(scheduler: str, found: str = "") -> None:
    """Raise WeftError for a scheduler that does not ask for keys: whoever reaches it runs code there, and here."""
    if found or not ADDRESS.fullmatch(scheduler):
        wrong = "no HOST:PORT" if scheduler.startswith(TLS) else "no TLS"
        raise WeftError(explain(
            f"--scheduler {scheduler}", found or wrong, "a scheduler that knows its users: tls://HOST:PORT with "
            "--tls-ca, --tls-cert and --tls-key, or with these in Dask's configuration",
            "start one with TLS keys "
            "(docs/explore.md says how keys are made)"))


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
def processes(count: int) -> Iterator[Executor]:
    """Yield an executor with ``count`` processes on this machine; with 1, this process itself."""
    if count == 1:
        yield Here()
        return
    with pool(count) as executor:
        yield executor


@contextlib.contextmanager
def pool(count: int) -> Iterator[Executor]:
    """Yield an executor with ``count`` processes beside this one, each of one thread."""
    with _environment(ONE_THREAD):
        executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)
        try:
            yield executor
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def dask(count: int, scheduler: str | None, keys: Keys | None = None) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of a Dask scheduler at an address, or of ``count`` workers here, and how many workers it has.

    ``keys``: for a scheduler at an address; None: those of Dask's configuration. Raise WeftError if Dask is not
    installed, or nobody answers."""
    try:
        import cryptography  # noqa: F401  what makes a cluster's keys
        import distributed  # noqa: F401
    except ModuleNotFoundError as error:
        raise WeftError(no_package("--dask", error.name or "", "explore",
                                   "leave --dask and --scheduler out")) from None
    from weft.explore import cluster

    with contextlib.ExitStack() as stack:
        if scheduler is None:
            stack.enter_context(_environment(ONE_THREAD))
            client = stack.enter_context(cluster.local(count))
        else:
            client = stack.enter_context(cluster.remote(scheduler, keys))
        threads = sum(client.nthreads().values())
        if not threads:
            raise WeftError(explain(f"--scheduler {scheduler}", "a scheduler without workers", "at least one worker",
                                    f"start one: dask worker {scheduler}, with the same keys"))
        yield client.get_executor(pure=False), threads


def _begin() -> None:
    """Prepare a worker process: it ignores interrupts, and ends when the process that searches is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the parent process to end, then end this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
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
