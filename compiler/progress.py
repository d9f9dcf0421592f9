"""What the compiler is at, for whoever watches: steps say which layer they are at, and need not know who listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar


class Named(Protocol):
    """A layer, or what else is done one by one."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Inside, ``listener`` hears what :func:`each` says."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def each(entries: Sequence[N]) -> Iterator[N]:
    """``entries`` as they are; whoever listens hears the number and the name of each before it is worked on."""
    listener = _LISTENER.get()
    for number, entry in enumerate(entries, 1):
        if listener is not None:
            listener(f"{number} of {len(entries)}, {entry.name}")
        yield entry
