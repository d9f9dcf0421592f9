# SPDX-License-Identifier: Apache-2.0
"""Workers on other machines: a Dask cluster, as an executor of the standard library's kind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from weft.support.errors import WeftError, explain
from weft.support.files import read_bytes
from weft.support.packages import no_package
from weft.support.processes import ONE_THREAD, environment

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
    """Raise WeftError for a scheduler's address without TLS keys, or if ``found`` says what is wrong.

    Whoever reaches a scheduler without keys can run code on its workers and here."""
    if found or not ADDRESS.fullmatch(scheduler):
        wrong = "no HOST:PORT" if scheduler.startswith(TLS) else "no TLS"
        raise WeftError(explain(
            f"--scheduler {scheduler}", found or wrong, "a scheduler that knows its users: tls://HOST:PORT with "
            "--tls-ca, --tls-cert and --tls-key, or with these in Dask's configuration",
            "start one with TLS keys "
            "(docs/explore.md says how keys are made)"))


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
            stack.enter_context(environment(ONE_THREAD))
            client = stack.enter_context(cluster.local(count))
        else:
            client = stack.enter_context(cluster.remote(scheduler, keys))
        threads = sum(client.nthreads().values())
        if not threads:
            raise WeftError(explain(f"--scheduler {scheduler}", "a scheduler without workers", "at least one worker",
                                    f"start one: dask worker {scheduler}, with the same keys"))
        yield client.get_executor(pure=False), threads
