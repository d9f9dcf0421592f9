# SPDX-License-Identifier: Apache-2.0
"""Read numpy files (``.npz``, ``.npy``): only the arrays asked for, and none before its size is known.

A header states a shape, an archive the length of its members. Both may lie, and a small file may claim terabytes."""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from weft.support.errors import WeftError, explain
from weft.support.files import opened, reason
from weft.support.outputs import Kind, replacing

MOST_BYTES = 1 << 30
"""The most bytes of all arrays that are read from one file."""

MOST_FOR_FREE, MOST_RATIO = 64 << 20, 100
"""The size in bytes above which a compressed array must not exceed a ratio to its compressed size."""

MOST_READ = 4 << 20
"""The most bytes that zipfile may read at once, such as an archive's directory: a hundred thousand names."""

MOST_HEADER = 16384
"""The most bytes of a header, with what stands before it; numpy itself refuses longer ones."""

METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
"""The compression methods with which numpy writes the members of an archive."""

UNREADABLE = (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError, SyntaxError,
              MemoryError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error)
"""The exceptions that zipfile and numpy raise for damaged files."""


class _Archive:
    """A file for zipfile that bounds each read, because zipfile believes the lengths that an archive states."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes. Raise ValueError for more than MOST_READ."""
        if size > MOST_READ:
            raise ValueError(f"a directory of {size} bytes")
        return self._file.read(MOST_READ if size < 0 else size)


def read_arrays(path: Path, names: Sequence[str], what: str = "input file",
                optional: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return the arrays called ``names`` of a ``.npz`` or ``.npy``, and those of ``optional`` that it has.

    A lone array serves a lone name, whatever it is called. Raise WeftError if an array is missing, occurs twice, is not
    plain numbers or is too large, and if the file cannot be read."""
    with opened(path, what, "give an .npz or .npy file") as file:
        try:
            if file.read(2) == b"PK":
                return _from_archive(file, names, path, what, optional)
            if len(names) != 1:
                raise _missing(names, "one array without a name", path, what)
            file.seek(0)
            return {names[0]: _read(file, os.fstat(file.fileno()).st_size, MOST_BYTES)}
        except UNREADABLE as error:
            raise WeftError(explain(f"{what} {path}", f"something unreadable ({reason(error)})",
                                    ".npz or .npy of plain numbers", "write it with numpy.savez or numpy.save"
                                    )) from None


def _from_archive(file: IO[bytes], names: Sequence[str], path: Path, what: str,
                  optional: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the arrays called ``names``, and those of ``optional`` that exist, of a ``.npz`` file."""
    with zipfile.ZipFile(_Archive(file)) as archive:
        members: dict[str, list[zipfile.ZipInfo]] = {}
        for member in archive.infolist():
            members.setdefault(member.filename.removesuffix(".npy"), []).append(member)
        if len(members) == len(names) == 1:
            members = {names[0]: next(iter(members.values()))}
        names = [*names, *(name for name in optional if name in members)]
        missing = [name for name in names if name not in members]
        if missing:
            raise _missing(missing, "arrays " + (", ".join(members) or "none"), path, what, names)
        arrays: dict[str, np.ndarray] = {}
        for name in names:
            left = MOST_BYTES - sum(array.nbytes for array in arrays.values())
            arrays[name] = _member(archive, name, members[name], left)
        return arrays


def _missing(missing: Sequence[str], found: str, path: Path, what: str, names: Sequence[str] = ()) -> WeftError:
    """Return the error for arrays that a file does not have."""
    return WeftError(explain(f"{what} {path}", found, f"an array for each input: {', '.join(names or missing)}",
                             f"write it with numpy.savez({path.name!r}, **{{{missing[0]!r}: ...}})"))


def _member(archive: zipfile.ZipFile, name: str, members: Sequence[zipfile.ZipInfo], most: int) -> np.ndarray:
    """Return one array of an archive, of at most ``most`` bytes. Raise one of UNREADABLE."""
    member = members[0]
    if len(members) > 1:
        raise ValueError(f"array {name!r} stands in it {len(members)} times")
    if member.flag_bits & 1:
        raise ValueError(f"array {name!r} is encrypted")
    if member.compress_type not in METHODS:
        raise ValueError(f"array {name!r} is compressed by method {member.compress_type}, neither stored nor deflated")
    if member.file_size > max(MOST_FOR_FREE, MOST_RATIO * member.compress_size):
        raise ValueError(f"array {name!r} of {member.file_size} bytes in {member.compress_size} compressed ones: more "
                         f"than {MOST_RATIO} times")
    with archive.open(member) as file:
        array = _read(file, member.file_size, most)
        if file.read(1):  # reads the check sum too
            raise ValueError(f"array {name!r} goes on behind its end")
        return array


def _read(file: IO[bytes], size: int, most: int) -> np.ndarray:
    """Return the array of a ``.npy`` file of ``size`` bytes. Raise one of UNREADABLE."""
    start = io.BytesIO(file.read(MOST_HEADER))
    version = np.lib.format.read_magic(start)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format")
    head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings(action="ignore"):
        shape, fortran, dtype = head(start)
    if dtype.hasobject:
        raise ValueError("pickled objects or no numpy file")
    if any(type(size) is not int or size < 0 for size in shape):  # True is an int for numpy's reader
        raise ValueError(f"shape {list(shape)}")
    file.seek(start.tell())
    wanted, there = math.prod(shape) * dtype.itemsize, size - start.tell()
    if wanted > most:
        raise ValueError(f"shape {list(shape)}, {wanted} bytes: more than {most}")
    if wanted > there:
        raise ValueError(f"shape {list(shape)} needs {wanted} bytes, {there} are there")
    content = bytearray(wanted)
    _fill(file, memoryview(content))
    return np.ndarray(shape, dtype, content, order="F" if fortran else "C")


def _fill(file: IO[bytes], target: memoryview) -> None:
    """Fill ``target`` with bytes of ``file``. Raise EOFError if the file ends before."""
    done = 0
    while done < len(target):
        piece = file.read(min(len(target) - done, MOST_READ))
        if not piece:
            raise EOFError(f"the data end after {done} of {len(target)} bytes")
        target[done:done + len(piece)] = piece
        done += len(piece)


def _is_archive(file: BinaryIO) -> bool:
    """Tell whether a file is a zip file that holds only arrays."""
    try:
        with zipfile.ZipFile(_Archive(file)) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except UNREADABLE:
        return False


ARRAYS = Kind("outputs that a run wrote (.npz)", _is_archive)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays into an ``.npz``, under any names. Raise WeftError if the file cannot be written.

    numpy.savez refuses some names, such as ``file``."""
    with replacing(path, ARRAYS) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
