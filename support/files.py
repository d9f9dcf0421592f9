# SPDX-License-Identifier: Apache-2.0
"""Read the files that a user gives, with a message for every mistake. ``outputs.py`` writes files."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from weft.support.errors import WeftError, explain

MOST_BYTES = 256 << 20
"""The most bytes of a file that is read whole: more than any program or architecture has."""

MOST_NAME_BYTES = 200
"""The most bytes of a name that becomes a file's, so that suffixes and temporary names fit too."""


@contextlib.contextmanager
def opened(path: Path, what: str, way_out: str) -> Iterator[io.BufferedReader]:
    """Open a file to read. Raise WeftError if it cannot be read or is not a regular file.

    A pipe may never end, and a device has no end."""
    try:
        file = _open(path)
    except (OSError, ValueError) as error:
        raise WeftError(explain(f"{what} {path}", reason(error), "a file that can be read", way_out)) from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise WeftError(explain(f"{what} {path}", "a pipe or a device", "a regular file", way_out))
        yield file


def _open(path: Path) -> io.BufferedReader:
    """Open a file without waiting; opening a pipe otherwise waits until somebody writes into it."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))


def read_bytes(path: Path, what: str, way_out: str, most: int = MOST_BYTES) -> bytes:
    """Return a file's content. Raise WeftError if it cannot be read or has more than ``most`` bytes."""
    with opened(path, what, way_out) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise WeftError(explain(f"{what} {path}", f"{size} bytes", f"at most {most} bytes", way_out))
        try:
            return file.read(most)
        except OSError as error:
            raise WeftError(explain(f"{what} {path}", reason(error), "a file that can be read", way_out)) from None


def reason(error: Exception) -> str:
    """Return an exception in words, in lower case: the system's message for a file, else its first line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error).split("\n")[0]
    text = (text or type(error).__name__).strip().rstrip(".")
    first, space, others = text.partition(" ")
    return (first.lower() if first[1:].islower() else first) + space + others


def file_name(name: str, option: str) -> str:
    """Return ``name``, which is to begin the names of files in a folder. Raise WeftError if it cannot."""
    plain = name.isprintable() and "/" not in name and name == name.strip() and not name.startswith(".")
    if not name or not plain or len(name.encode(errors="replace")) > MOST_NAME_BYTES:
        raise WeftError(explain(option, repr(name), f"a name of at most {MOST_NAME_BYTES} bytes without slashes and "
                                "control characters, which does not begin with a point",
                                "give another name (--name), and the folder with -o"))
    return name


def split_batch(name: str, array: np.ndarray, shape: tuple[int, ...], batched: bool) -> np.ndarray:
    """Return [images, *shape] from an array with one image or many.

    ``batched``: ``shape`` has a leading 1, which images may have or leave out. Raise WeftError for another shape, for
    types other than numbers, and for values that are not finite."""
    rest = shape[1:] if batched else shape
    if array.dtype.kind not in "iufb":
        raise WeftError(explain(f"input {name}", f"values of type {array.dtype}", "integers or floats",
                                "convert the array"))
    if array.shape in (shape, rest):
        array = array.reshape(1, *shape)
    elif array.shape[1:] == shape and len(array):
        pass
    elif array.ndim == len(rest) + 1 and array.shape[1:] == rest and len(array):
        array = array[:, None] if batched else array
    else:
        raise WeftError(explain(f"input {name}", f"shape {list(array.shape)}",
                                f"{_shape(shape)} for one run, {_shape(('N', *rest))} for N runs",
                                "reshape the array (the first axis counts images)"))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise WeftError(explain(f"input {name}", "values that are not finite (NaN or infinity)", "finite numbers",
                                "clean the array"))
    return array


def _shape(shape: Sequence[object]) -> str:
    """Return a shape as text, such as ``[1, 3, 8]``."""
    return "[" + ", ".join(map(str, shape)) + "]"
