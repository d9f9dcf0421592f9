# SPDX-License-Identifier: Apache-2.0
"""The files of a compiled model as one set: NAME.tmodel, and the files that it names (NAME.tprog, NAME.tdata).

A write that is killed at any moment leaves the old set or the new one:

1. the new program and constants are written beside the old ones, under hidden names that end in their SHA-256;
2. ``NAME.tmodel`` is replaced: the one step that decides, for it says which contents belong to it;
3. the hidden files are renamed to what they are called.

A reader takes the file of the name if its content is the one that the ``.tmodel`` wants, else the hidden file of that
content. So a set whose renaming did not come to its end is whole. The next write ends the renaming, and removes other
leftovers. Against a loss of power nothing is promised but that a broken set is refused."""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from weft.support.errors import WeftError
from weft.support.files import MOST_BYTES
from weft.support.locks import locked
from weft.support.outputs import Kind, check_output
from weft.support.strict_json import parse_object
from weft.tmodel.errors import ModelError, refuse
from weft.tmodel.schema import FileEntry, convert_any

COMPILE_AGAIN = "compile the model again, and keep its files together"
SHOWN_DIGITS = 16
"""The hexadecimal digits of a SHA-256 in names and messages."""


def file_entry(content: bytes) -> FileEntry:
    """Return the length and checksum of a file, as the ``.tmodel`` states them."""
    return FileEntry(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def is_plain(name: str) -> bool:
    """Tell whether ``name`` names a file of a folder, and nothing outside of it."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _hidden(name: str, sha256: str) -> str:
    """Return the hidden name of a new file until it is renamed."""
    return f".{name}.{sha256[:SHOWN_DIGITS]}.new"


# -- writing -----------------------------------------------------------------------------------------------------------
def write_set(folder: Path, name: str, contents: Mapping[str, bytes], manifest: bytes) -> None:
    """Write ``contents`` and ``manifest``, which has their checksums, as ``name``: all or nothing.

    Raise ModelError if the folder cannot be written, or if a name is not that of a file in it."""
    for file in (name, *contents):
        if not is_plain(file):
            raise refuse("name of the files to write", repr(file), "a plain name, without a folder", "choose another")
    check_set(folder, name, contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            try:
                _replace(folder, name, contents, manifest)
            except OSError:
                with contextlib.suppress(OSError):
                    settle(folder, name, contents)
                raise
    except OSError as error:
        raise refuse(f"output folder {folder}", (error.strerror or str(error)).lower(), "a place that can be written",
                     "choose another place, or make room") from None


def _replace(folder: Path, name: str, contents: Mapping[str, bytes], manifest: bytes) -> None:
    """Replace the set ``name`` by the one of ``contents`` and ``manifest``. Raise OSError."""
    settle(folder, name, contents)
    before = _entries(folder / name)
    hidden = {file: folder / _hidden(file, file_entry(content).sha256) for file, content in contents.items()}
    for file, content in contents.items():
        hidden[file].write_bytes(content)
    decisive = folder / _hidden(name, file_entry(manifest).sha256)
    decisive.write_bytes(manifest)
    decisive.replace(folder / name)
    for file, path in hidden.items():
        path.replace(folder / file)
    _remove(folder, {file: entry for file, entry in before.items() if file not in contents})


def check_set(folder: Path, name: str, files: Iterable[str]) -> None:
    """Raise ModelError if writing would replace a file that does not belong to the set.

    That is if ``name`` exists and is no ``.tmodel``, or if one of ``files`` exists and that ``.tmodel`` does not name
    it."""
    named: set[str] = set()

    def is_manifest(file: BinaryIO) -> bool:
        found = parse_object(file.read(MOST_BYTES))
        named.update(_file_names(found))
        return "arch" in found and ("prog" in found or "parts" in found)

    model = Kind("a compiled model (.tmodel)", is_manifest)
    other = Kind(f"a file that {name} names", lambda file: Path(file.name).name in named)
    for file in (name, *files):
        try:
            target = check_output(folder / file, model if file == name else other)
        except WeftError as error:
            raise ModelError(str(error)) from None
        if target is None:
            raise refuse(f"output file {folder / file}", "a device", "a regular file", "choose another place")


def _file_names(value: Any) -> Iterator[str]:
    """Yield the files that a ``.tmodel`` names, in whatever version of it."""
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _file_names(each)
    if isinstance(value, dict) and isinstance(value.get("file_name"), str):
        yield value["file_name"]


def _remove(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Remove files that the set had before and has no longer, unless somebody has changed them. Raise OSError."""
    for file, entry in files.items():
        path = folder / file
        if is_plain(file) and path.is_file() and file_entry(path.read_bytes()) == entry:
            path.unlink()


def settle(folder: Path, name: str, others: Mapping[str, object]) -> None:
    """Finish a killed write: rename hidden files of the present set, and remove other hidden files of the set.

    Raise OSError if that fails."""
    wanted = _entries(folder / name)
    pattern = "|".join(map(re.escape, (name, *others)))
    for path in [path for path in folder.iterdir() if re.fullmatch(rf"\.({pattern})\.[0-9a-f]{{16}}\.new", path.name)]:
        file = path.name[1:-len(_hidden("", "0" * SHOWN_DIGITS)) + 1]
        entry = wanted.get(file)
        if entry and path.name == _hidden(file, entry.sha256) and file_entry(path.read_bytes()) == entry:
            path.replace(folder / file)
        else:
            path.unlink()


def _entries(path: Path) -> Mapping[str, FileEntry]:
    """Return the checksums in a ``.tmodel``, empty if it cannot be read."""
    try:
        return convert_any(parse_object(path.read_bytes())).files or {}
    except (OSError, ValueError, WeftError):
        return {}


# -- reading -----------------------------------------------------------------------------------------------------------
def read_file(folder: Path, name: str, size: int, entry: FileEntry | None, owner: str) -> bytes:
    """Return the content of ``name``, of ``size`` bytes, with the checksum that the ``.tmodel`` ``owner`` states.

    Raise ModelError if there is no such file."""
    try:
        content = _read(folder, name, size, owner)
        if entry is None or file_entry(content) == entry:
            return content
        found = refuse(f"content of {folder / name}", f"SHA-256 {file_entry(content).sha256[:SHOWN_DIGITS]}...",
                       f"{entry.sha256[:SHOWN_DIGITS]}..., as {owner} says", COMPILE_AGAIN)
    except ModelError as error:
        found = error
    if entry is not None:
        with contextlib.suppress(ModelError):
            content = _read(folder, _hidden(name, entry.sha256), size, owner)
            if file_entry(content) == entry:
                return content
    raise found


def _read(folder: Path, name: str, size: int, owner: str) -> bytes:
    """Return a file's content. Raise ModelError if it lies outside the folder, is missing or has another size."""
    path = folder / name
    what = f"file {path}, named by {owner}"
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise refuse(what, f"a link to {path.resolve()}", "a file in the model's own folder", COMPILE_AGAIN)
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise refuse(what, "no regular file", "an existing file", COMPILE_AGAIN)
        if status.st_size != size:
            raise refuse(f"size of {path}", f"{status.st_size} bytes", f"{size} bytes, as the .tmodel says",
                         COMPILE_AGAIN)
        return path.read_bytes()
    except FileNotFoundError:
        raise refuse(what, "no such file", "an existing file", COMPILE_AGAIN) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise refuse(what, getattr(error, "strerror", None) or str(error), "a file that can be read",
                     COMPILE_AGAIN) from None
