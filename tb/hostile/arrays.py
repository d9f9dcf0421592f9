# SPDX-License-Identifier: Apache-2.0
"""Arrays: ``.npz`` and ``.npy`` files as inputs of a run and for calibration."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.tb.hostile.case import COMPILE, RUN, RUN_RAW, SHAPE, Case, good_and, quick

GOOD = np.ones(SHAPE, np.float32)
TERA = 1 << 40


def npy(array: np.ndarray | np.generic) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def header(text: str, version: int = 1, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a ``.npy`` with any header, which says that it is ``length`` long."""
    content = text.encode("latin1")
    kind = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(kind, length or len(content)) + content + data


def shaped(shape: object, descr: object = "<f4", fortran: object = False, data: bytes = b"") -> bytes:
    return header(f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}, }}\n", data=data)


NPY: dict[str, bytes] = {
    "empty": b"", "one byte": b"\x93", "magic alone": b"\x93NUMPY", "version 9": b"\x93NUMPY\x09\x00" + bytes(100),
    "a text": b"1, 2, 3\n" * 8, "no header": header("", length=60_000),
    "4 GB of header": header("", 2, length=0xFFFFFFF0),
    "header of 60 kB": header(" " * 60_000), "header that is no dictionary": header("[1, 2]\n"),
    "header without a shape": header("{'descr': '<f4', 'fortran_order': False}\n"),
    "header of brackets": header("(" * 9000), "header of signs": header("-" * 9000 + "1"),
    "header that computes": header("{'descr': '<f4', 'fortran_order': False, 'shape': (9**9**9,)}\n"),
    "header of an escape": header("{'\x1b[31m': 1}\n"), "header of NUL": header("\0" * 100),
    "huge shape": shaped((TERA, 2, 4, 4)), "shape of 1e40": shaped((10**40,)), "shape of 5000 digits": header(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",), }\n"),
    "negative shape": shaped((-1, 2, 4, 4)), "two negative dimensions": shaped((-8, -16), data=bytes(512)),
    "float in the shape": shaped((1.0, 2)), "shape that is a list": shaped([1, 2]), "100 dimensions": shaped((1,) * 100,
                                                                                                            data=bytes(4)),
    "too little data": npy(GOOD)[:-4], "wrong byte order mark": shaped(SHAPE, "?<f4"), "no type": shaped(SHAPE, ""),
    "objects": npy(np.array([{}])), "objects of huge shape": shaped((TERA,), "|O"),
    "records": npy(np.zeros(4, [("a", np.int16), ("b", np.int32)])), "texts": npy(np.full(SHAPE, "a")),
    "dates": npy(np.zeros(SHAPE, "M8[s]")), "complex": npy(np.ones(SHAPE, complex)), "bytes": npy(np.full(SHAPE, b"a")),
    "texts of 2 GB each": shaped(SHAPE, "<U500000000"), "a type of no size": shaped((TERA,), "|V0"),
    "not a number": npy(np.full(SHAPE, np.nan, np.float32)), "infinite": npy(np.full(SHAPE, -np.inf)),
    "no images": npy(np.ones((0, 2, 4, 4), np.float32)), "a scalar": npy(np.float32(1)),
    "ten million images": shaped((10_000_000, 2, 4, 4), "|u1"),
}


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w", method) as archive:  # of names twice
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def _patched(content: bytes, offset: int, value: bytes, central: int | None = None) -> bytes:
    """Return a zip with bytes changed in two places.

    They are in the first member's local header, and in the directory's entry at ``central``."""
    changed = bytearray(content)
    changed[offset:offset + len(value)] = value
    if central is not None:
        at = content.index(b"PK\x01\x02") + central
        changed[at:at + len(value)] = value
    return bytes(changed)


def _bomb(size: int) -> bytes:
    """Return a deflated array of so many zeros."""
    file = io.BytesIO()
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("x.npy", "w", force_zip64=True) as member:
        member.write(shaped((size // 128, 2, 4, 4)))
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return file.getvalue()


def _many(count: int) -> bytes:
    return zipped(*((f"{number}.npy", b"") for number in range(count)))


PLAIN = zipped(("x.npy", npy(GOOD)))
DEFLATED = zipped(("x.npy", npy(GOOD)), method=zipfile.ZIP_DEFLATED)

NPZ: dict[str, Callable[[], bytes]] = {
    "two bytes": lambda: b"PK", "cut": lambda: PLAIN[:100], "without a directory": lambda: PLAIN[:-70],
    "no member": lambda: zipped(), "a folder as member": lambda: zipped(("x/", b"")),
    "encrypted": lambda: _patched(PLAIN, 6, b"\x01\x00", 8), "encrypted in the directory": lambda: _patched(
        PLAIN, 6, b"\x00\x00", None).replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00",
        b"PK\x01\x02\x14\x03\x14\x00\x01\x00"),
    "lzma": lambda: zipped(("x.npy", npy(GOOD)), method=zipfile.ZIP_LZMA),
    "bzip2": lambda: zipped(("x.npy", npy(GOOD)), method=zipfile.ZIP_BZIP2),
    "an unknown method": lambda: _patched(PLAIN, 8, b"\x63\x00", 10),
    "a wrong check sum": lambda: _patched(PLAIN, 14, b"\x00\x00\x00\x00", 16),
    "a member that claims 4 GB": lambda: _patched(PLAIN, 22, b"\xf0\xff\xff\xff", 24),
    "a directory that claims 4 GB": lambda: _patched(PLAIN, 0, b"PK")[:-10] + b"\xf0\xff\xff\xff" + PLAIN[-6:],
    "a member behind the end": lambda: _patched(PLAIN, 0, b"PK", None)[:-6] + b"\xff\xff\xff\x00" + PLAIN[-2:],
    "damaged deflate": lambda: DEFLATED[:60] + b"\xff" * 8 + DEFLATED[68:],
    "a bomb of 300 MB": lambda: _bomb(300 << 20), "a bomb of 2 GB": lambda: _bomb(2 << 30),
    "a name twice": lambda: zipped(("x.npy", npy(GOOD)), ("x.npy", npy(2 * GOOD)), ("y.npy", npy(GOOD))),
    "a name with and without suffix": lambda: zipped(("x", npy(GOOD)), ("x.npy", npy(GOOD)), ("y", npy(GOOD))),
    "an absolute name": lambda: zipped(("/x.npy", npy(GOOD)), ("/y.npy", npy(GOOD))),
    "a name up": lambda: zipped(("../x.npy", npy(GOOD)), ("y.npy", npy(GOOD))),
    "escapes in names": lambda: zipped(("\x1b[31mred.npy", npy(GOOD)), ("\u202ey.npy", npy(GOOD))),
    "a long name": lambda: zipped(("a" * 60_000, npy(GOOD)), ("b" * 60_000, npy(GOOD))),
    "20000 members": lambda: _many(20_000), "200000 members": lambda: _many(200_000),
    "a text as member": lambda: zipped(("x.npy", b"hello")), "an empty member": lambda: zipped(("x.npy", b"")),
    "data behind the array": lambda: zipped(("x.npy", npy(GOOD) + b"x")),
}


def _write(name: str, content: bytes | Callable[[], bytes]) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content())


def _unasked(folder: Path) -> None:
    """Write a good array, and one of 4 GB that nobody asks for."""
    (folder / "x.npz").write_bytes(zipped(("x.npy", npy(GOOD)), ("huge.npy", shaped((1 << 30,)))))


def _sparse(name: str, head: bytes = b"") -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.write(head)
            file.truncate(TERA)

    return change


def _replace(name: str, make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


PLACES: dict[str, Callable[[Path], Any]] = {
    "a folder": lambda path: path.mkdir(), "a pipe": os.mkfifo, "nothing": lambda path: None,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "unreadable memory": lambda path: path.symlink_to("/proc/self/mem"),
}

LEGAL: dict[str, np.ndarray] = {
    "big-endian": np.ones(SHAPE, ">f4"), "Fortran order": np.asfortranarray(np.ones((3, 2, 4, 4))),
    "bools": np.ones(SHAPE, bool), "halves": np.ones(SHAPE, np.float16),
}


def cases() -> list[Case]:
    run_npy, calibrate = ["run", "net.tmodel", "--input", "x.npy"], [*COMPILE, "--calibrate", "c.npz"]
    found = [Case(f"npy: {name}", ".npy", good_and(run_npy, _write("x.npy", content))) for name, content in NPY.items()]
    found += [Case(f"npz: {name}", ".npz", good_and(RUN, _write("x.npz", content))) for name, content in NPZ.items()
              if name not in ("a name twice", "a name with and without suffix")]
    found += [Case(f"npz: {name}", ".npz", good_and(RUN, _write("x.npz", NPZ[name])))
              for name in ("a name twice", "a name with and without suffix")]
    found += [Case(f"calibration: {name}", ".npz", good_and(calibrate, _write("c.npz", NPZ[name])))
              for name in ("encrypted", "lzma", "a bomb of 300 MB", "cut", "escapes in names", "20000 members")]
    found += [Case(f"calibration: {name}", ".npy", good_and(calibrate, _write("c.npz", NPY[name])))
              for name in ("huge shape", "objects", "not a number", "header of brackets", "no images")]
    found += [Case(f"raw: {name}", ".npy", good_and(RUN_RAW, _write("x.npy", content))) for name, content in {
        "too large": npy(np.full((4, 2), 40_000)), "halves": npy(np.full((4, 2), 0.5)),
        "2**64 - 1": npy(np.full((4, 2), 2**64 - 1, np.uint64)), "bools": npy(np.ones((4, 2), bool))}.items()]
    found += [Case(f"input: {name}", "input places", good_and(RUN, _replace("x.npz", make)))
              for name, make in PLACES.items()]
    found += [Case("npz: a terabyte", ".npz", good_and(RUN, _sparse("x.npz", b"PK\x03\x04"))),
              Case("npy: a terabyte", ".npy", good_and(run_npy, _sparse("x.npy", shaped((TERA // 128, 2, 4, 4)))))]
    found += [Case(f"legal npy: {name}", ".npy", good_and(run_npy, _write("x.npy", npy(array))), code=0)
              for name, array in LEGAL.items()]
    found += [Case("legal npz: an array of 4 GB that nobody asks for", ".npz", good_and(RUN, _unasked), code=0)]
    return quick(found, "npy: 4 GB of header", "npy: huge shape", "npy: header of brackets",
                 "npy: objects of huge shape",
                 "npy: ten million images", "npz: encrypted", "npz: lzma", "npz: a bomb of 300 MB", "npz: a name twice",
                 "npz: a directory that claims 4 GB", "npz: escapes in names", "calibration: lzma", "input: a pipe",
                 "input: an endless device", "npz: a terabyte", "legal npy: big-endian", "legal npy: Fortran order",
                 "legal npz: an array of 4 GB that nobody asks for")
