# SPDX-License-Identifier: Apache-2.0
"""Dask clusters that nobody else can use, because whoever reaches a scheduler runs code there.

All connections are TLS in which both ends show a certificate. A cluster on this machine has keys of its own, made for
it and kept in memory. The HTTP servers that Dask would open beside, which need no key, are not opened. Its workers keep
data that do not fit memory in a folder of ours alone."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from distributed import Client, Nanny, Scheduler, SpecCluster, Worker
from distributed.security import Security

from weft.explore.workers import TLS, Keys, check_address
from weft.support.errors import WeftError, explain
from weft.support.files import reason

HERE = "127.0.0.1"
CONNECT_SECONDS = 10
SILENT = 50
"""The level of log messages: only critical ones."""


class _QuietScheduler(Scheduler):
    """A scheduler without an HTTP server."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start no server."""


class _QuietWorker(Worker):
    """A worker without an HTTP server."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start no server."""


@contextlib.contextmanager
def local(count: int) -> Iterator[Client]:
    """Run a cluster on this machine, of ``count`` workers with one thread, and yield its client."""
    common: dict[str, Any] = {"host": HERE, "protocol": TLS, "security": Security.temporary(), "dashboard": False}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-dask-"))
        worker = {"cls": Nanny, "options": {**common, "nthreads": 1, "worker_class": _QuietWorker,
                                            "silence_logs": SILENT, "local_directory": folder}}
        cluster = SpecCluster(workers=dict.fromkeys(range(count), worker), security=common["security"],
                              scheduler={"cls": _QuietScheduler, "options": {**common, "port": 0}},
                              silence_logs=SILENT)
        stack.callback(cluster.close)
        yield stack.enter_context(Client(cluster))


@contextlib.contextmanager
def remote(address: str, keys: Keys | None) -> Iterator[Client]:
    """Yield the client of a scheduler that somebody has started.

    Raise WeftError if it has no keys signed as ours are."""
    check_address(address)
    given = {} if keys is None else {"tls_ca_file": keys.authority, "tls_client_cert": keys.certificate,
                                     "tls_client_key": keys.key}
    try:
        security: Any = Security(require_encryption=True, **given)
        if not (security.tls_ca_file and security.tls_client_cert and security.tls_client_key):
            check_address(address, "no keys")
        client = Client(address, security=security, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise WeftError(explain("--scheduler", address, "the address of a Dask scheduler that has keys signed alike",
                                f"start one, or look at address and keys: {reason(error)[:200]}")) from None
    with client:
        yield client
