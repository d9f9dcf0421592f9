"""Reading what a user gives (``.npz``, ``.npy``) and writing what comes out, with a message for every mistake."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from weft.hw.contract.errors import WeftError, explain

UNNAMED = ""
"""The name of the one array of a ``.npy`` file."""


def read_bytes(path: Path, what: str, way_out: str) -> bytes:
    """A file's content. Raises WeftError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise WeftError(explain(f"{what} {path}", _reason(error), "a file that can be read", way_out)) from None


def _reason(error: Exception) -> str:
    """An exception in words: the system's own for a file, else its first line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error).split("\n")[0]
    return (text or type(error).__name__).strip().rstrip(".").lower()


def read_arrays(path: Path, what: str = "input file") -> dict[str, np.ndarray]:
    """The arrays of a ``.npz`` by name, or the one of a ``.npy`` as UNNAMED. Raises WeftError."""
    content = read_bytes(path, what, "give an .npz or .npy file")
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {UNNAMED: loaded}
        return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        reason = "pickled objects or no numpy file" if "pickle" in str(error) else _reason(error)
        raise WeftError(explain(f"{what} {path}", f"something unreadable ({reason})", ".npz or .npy of plain numbers",
                                "write it with numpy.savez or numpy.save")) from None


def choose(arrays: Mapping[str, np.ndarray], names: Sequence[str], path: Path,
           what: str = "input file") -> dict[str, np.ndarray]:
    """The arrays called ``names``; a lone array serves a lone name whatever it is called. Raises WeftError."""
    if len(arrays) == len(names) == 1:
        return {names[0]: next(iter(arrays.values()))}
    missing = [name for name in names if name not in arrays]
    if missing:
        found = "one array without a name" if UNNAMED in arrays else "arrays " + (", ".join(arrays) or "none")
        raise WeftError(explain(f"{what} {path}", found, f"an array for each input: {', '.join(names)}",
                                f"write it with numpy.savez({path.name!r}, **{{{missing[0]!r}: ...}})"))
    return {name: arrays[name] for name in names}


def split_batch(name: str, array: np.ndarray, shape: tuple[int, ...], batched: bool) -> np.ndarray:
    """[images, *shape] from one image or many; ``batched``: shape has a leading 1 that counts images.

    Raises WeftError for another shape, for what is no number, and for values that are not finite.
    """
    rest = shape[1:] if batched else shape
    if array.dtype.kind not in "iufb":
        raise WeftError(explain(f"input {name}", f"values of type {array.dtype}", "integers or floats",
                                "convert the array"))
    if array.shape == shape:
        array = array[None]
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
    return "[" + ", ".join(map(str, shape)) + "]"


@contextlib.contextmanager
def replacing(path: Path, what: str = "output file") -> Iterator[io.BufferedWriter]:
    """A file to write that becomes ``path`` when all went well and leaves nothing otherwise. Raises WeftError."""
    if path.is_dir():
        raise WeftError(explain(f"{what} {path}", "a directory", "the name of a file", "add a file name"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise WeftError(explain(f"{what} {path}", _reason(error), "a place that can be written",
                                "choose another place")) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise WeftError(explain(f"{what} {path}", _reason(error), "a place that can be written",
                                "choose another place")) from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """All of the file or nothing. Raises WeftError."""
    with replacing(path) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An ``.npz`` with any names (numpy.savez itself refuses some, such as ``file``). Raises WeftError."""
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
