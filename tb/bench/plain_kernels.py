# SPDX-License-Identifier: Apache-2.0
"""Kernels of the estimator as plain Python functions, on numpy's records: nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from weft.cycles.state import new_state
from weft.hw.contract.arch import Arch


@cache
def plain(kernel: Any) -> Callable[..., Any]:
    """Return a kernel whose calls of other kernels are plain too."""
    source = kernel.py_func
    names = dict(source.__globals__)
    made = FunctionType(source.__code__, names, source.__name__)
    for name in source.__code__.co_names:
        if hasattr(names.get(name), "py_func") and names[name] is not kernel:
            names[name] = plain(names[name])
        elif isinstance(names.get(name), ModuleType):
            names[name] = Plain(names[name])
    return made


class Plain:
    """A module whose kernels are plain."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        """Return what the module has by that name, and keep it."""
        found = getattr(self._module, name)
        found = plain(found) if hasattr(found, "py_func") else found
        self.__dict__[name] = found
        return found


WITH_FIELDS: dict[int, tuple[np.dtype, np.dtype]] = {}
"""Kinds of records, and the same with fields as attributes, by the identity of the first."""


class Fields(np.record):  # type: ignore[misc]  # final in numpy's types alone
    """A record whose fields are attributes, also those that have the name of one of numpy's own, such as size."""

    def __getattribute__(self, name: str) -> Any:
        """Return a field, or what numpy has by that name."""
        try:
            found = np.void.__getitem__(self, name)
        except ValueError:  # no field
            return super().__getattribute__(name)
        if type(found) is np.void or type(found) is np.ndarray and found.dtype.names:
            kind = found.dtype
            made = WITH_FIELDS.get(id(kind))
            if made is None or made[0] is not kind:
                made = WITH_FIELDS[id(kind)] = kind, np.dtype((Fields, kind))
            return found.view(made[1])
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field."""
        self[name] = value


def records(kind: np.dtype, count: int = 1, **values: Any) -> Any:
    """Return ``count`` records of a kind, whose fields are attributes, with ``values`` in all of them; one alone."""
    made = np.zeros(count, np.dtype((Fields, kind)))
    for name, value in values.items():
        made[name] = value
    return made[0] if count == 1 else made


def machine_at_rest(arch: Arch) -> Any:
    """Return the state of a machine at rest, whose fields are attributes."""
    state = new_state(arch, 4)
    return np.array(state).reshape(1).view(np.dtype((Fields, state.dtype)))[0]
