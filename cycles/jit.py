# SPDX-License-Identifier: Apache-2.0
"""Compile the estimator's inner functions to machine code, and cache the result while their sources stay the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import types

from weft.cycles import kept_code
from weft.cycles.kept_code import KeptCode
from weft.support.locks import locked


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on numbers and numpy records that only other kernels call (a decorator).

    What Python needs to call it is left out, a third of the compile time. Python calls raise TypeError."""
    compiled = _compiled(function, no_cpython_wrapper=True)

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{function.__name__} is a kernel that only kernels call; make it an entry")

    # numba would go on with what it left out, and end the process
    compiled._insert, compiled._compile_for_args = (lambda *_: None), refuse
    return compiled


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that Python calls (a decorator). One process compiles it; others wait for that.

    While it runs, other threads run Python."""
    compiled = _compiled(function, nogil=True)
    make = compiled.compile

    def once(signature: Any) -> Any:
        with alone(kept_code.FOLDER):
            return make(signature)

    compiled.compile = once
    return compiled


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    """Return a function compiled by numba, with its result cached in the common folder."""
    njit: Any = numba.njit  # its types do not know all of its options
    compiled = njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    find = compiled.get_call_template
    # numba would compile a function anew for each constant that it is called with, such as the number of a unit
    compiled.get_call_template = lambda given, named: find(tuple(map(types.unliteral, given)), named)
    with contextlib.suppress(RuntimeError):  # a function that is in no file is not kept
        compiled._cache = KeptCode(function)
    return compiled


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a lock on a cache folder, so that one process compiles at a time; without lock if it cannot be written."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "lock").touch()
            stack.enter_context(locked(folder / "lock"))
        yield
