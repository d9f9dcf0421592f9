# SPDX-License-Identifier: Apache-2.0
"""Progress of the compiler: steps report the layer that they work on to whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar


class Named(Protocol):
    """A layer, or another thing with a name that is processed one by one."""

    @property
    def name(self) -> str:
        """The name that is reported."""


N = TypeVar("N", bound=Named)

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Let ``listener`` hear what :func:`each` reports, within a with statement."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def each(entries: Sequence[N]) -> Iterator[N]:
    """Yield ``entries``; report the number and the name of each before it is processed."""
    listener = _LISTENER.get()
    for number, entry in enumerate(entries, 1):
        if listener is not None:
            listener(f"{number} of {len(entries)}, {entry.name}")
        yield entry
