"""Who measures: this process, others beside it, or a Dask cluster. All are executors of the standard library's kind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import connection
from typing import Any

from weft.hw.contract.errors import WeftError, explain

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A worker is one thread: there is one for each core."""
CONNECT_SECONDS = 20


class Here(Executor):
    """Does what it is given at once."""

    def submit(self, task: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(task(*given, **named))
        except Exception as error:  # it belongs to whoever asks for the result
            future.set_exception(error)
        return future


@contextlib.contextmanager
def processes(count: int) -> Iterator[Executor]:
    """``count`` processes on this machine; for one, this process itself."""
    if count == 1:
        yield Here()
        return
    with pool(count) as executor:
        yield executor


@contextlib.contextmanager
def pool(count: int) -> Iterator[Executor]:
    """``count`` processes beside this one, each of one thread."""
    with _environment(ONE_THREAD):
        executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)
        try:
            yield executor
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def dask(count: int, scheduler: str | None) -> Iterator[tuple[Executor, int]]:
    """Workers of the Dask scheduler at an address, or ``count`` of a cluster on this machine; and how many they are.
    Raises WeftError where Dask is not installed, or nobody answers."""
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise WeftError(explain("--dask", "no Python package distributed", "an installation with the extra explore",
                                "pip install 'weft[explore]', or leave --dask and --scheduler out")) from None
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            stack.enter_context(_environment(ONE_THREAD))
            cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None, silence_logs=50)
            stack.callback(cluster.close)
            client = Client(cluster)
        else:
            client = _client(Client, scheduler)
        stack.callback(client.close)
        threads = sum(client.nthreads().values())
        if not threads:
            raise WeftError(explain(f"--scheduler {scheduler}", "a scheduler without workers", "at least one worker",
                                    f"start one: dask worker {scheduler}"))
        yield client.get_executor(pure=False), threads


def _client(kind: Any, scheduler: str) -> Any:
    try:
        return kind(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise WeftError(explain("--scheduler", scheduler, "the address of a Dask scheduler, such as tcp://host:8786",
                                f"start one (dask scheduler), or look at the address: {str(error)[:200]}")) from None


def _begin() -> None:
    """An interrupt is for the process that searches; when that is gone, killed or not, its workers end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
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
