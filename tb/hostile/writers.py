# SPDX-License-Identifier: Apache-2.0
"""Where commands write: over inputs, over what others made, into places that are none; and places that never answer."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from weft.hw.contract.arch import Arch
from weft.tb.hostile.case import COMPILE, ESTIMATE, REPORT, RUN, Case, Recipe, good_and, quick

Make = Callable[[Path], Any]
EXPLORE = ["explore", "net.onnx", "--part", "xc7a35t", "--jobs", "1"]
DIGEST = "0123456789abcdef0123"
LINE = json.dumps({"what": "cycles", "network": DIGEST, "machine": f"{DIGEST}-100", "value": 7}).encode() + b"\n"

WRITERS: dict[str, list[str]] = {
    "outputs": [*RUN, "--output"], "trace": [*ESTIMATE, "--trace"], "page": [*REPORT, "-o"],
    "page of compile": [*COMPILE, "--html"], "rows": [*COMPILE, "--report"], "machine": [*EXPLORE, "--output"],
    "picture": [*EXPLORE, "--plot"], "results": [*EXPLORE, "--results"],
    "schedule": ["schedule", "net.onnx", "-a", "tiny", "-o"],
}
SUFFIXES = {"picture": ".svg"}


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "milk")
    return file.getvalue()


CONTENTS: dict[str, bytes] = {
    "notes": b"milk, eggs\n", "a photo": b"\x89PNG\r\n\x1a\n" + bytes(1000), "a document": _zip(),
    "a program": b"\x7fELF" + bytes(1000), "an archive": gzip.compress(b"milk", mtime=0),
    "an object": b'{"milk": 1}\n', "a list": b"[1, 2]\n", "a web page": b"<!DOCTYPE html>\n<title>Milk</title>\n",
    "a profile": b'{"traceEvents": []}\n', "zeros": bytes(1000), "one letter": b"x",
    "deep lists": b"[" * 100_000, "a drawing": b'<?xml version="1.0"?>\n<svg/>\n',
}


def _write(name: str, content: bytes) -> Make:
    return lambda folder: (folder / name).write_bytes(content)


# -- places ------------------------------------------------------------------------------------------------------------
def _socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(before)


def _read_only(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o444)


REFUSED: dict[str, tuple[str, Callable[[Path], Any] | None]] = {
    "nothing": ("", None), "NUL": ("a\0b", None), "300 letters": ("a" * 300, None), "a tilde": ("~/y", None),
    "a user's tilde": ("~root/y", None), "a folder": ("y", Path.mkdir), "the root": ("/", None), "up": ("..", None),
    "a pipe": ("y", os.mkfifo), "a socket": ("y", _socket), "a full device": ("/dev/full", None),
    "an endless device": ("y", lambda path: path.symlink_to("/dev/zero")), "memory": ("/proc/self/mem", None),
    "a link to itself": ("y", lambda path: path.symlink_to("y")), "read-only": ("y", _read_only),
    "a link to a folder": ("y", lambda path: path.symlink_to("/tmp")),
    "below a file": ("y/z", lambda path: path.parent.write_bytes(b"milk")),
    "below a link to nowhere": ("y/z", lambda path: path.parent.symlink_to("/proc/nowhere")),
}
LEGAL: dict[str, tuple[str, Callable[[Path], Any] | None]] = {
    "a minus": ("-", None), "the null device": ("/dev/null", None), "a newline": ("a\nb", None),
    "no UTF-8": ("a\udcff", None), "blanks": (" ", None), "an escape": ("\x1b[31m", None),
    "a link to nothing": ("y", lambda path: path.symlink_to("z")), "an empty file": ("y", Path.touch),
    "a link to the null device": ("y", lambda path: path.symlink_to("/dev/null")), "deep": ("a/b/c/y", None),
}


def _place(name: str, text: str, make: Callable[[Path], Any] | None, command: list[str]) -> Recipe:
    """Return a recipe; ``make`` makes what lies at ``text``, with the suffix that the writer ``name`` asks for."""
    suffix = SUFFIXES.get(name, "") if make is None and not text.startswith(("/", ".")) and text else ""
    return good_and([*command, text + suffix], None if make is None else lambda folder: make(folder / text))


def _outputs() -> list[Case]:
    found = [Case(f"write {name} over {what}", "outputs",
                  good_and([*command, f"y{SUFFIXES.get(name, '')}"],
                           _write(f"y{SUFFIXES.get(name, '')}", content)))
             for name, command in WRITERS.items() for what, content in CONTENTS.items()]
    found += [Case(f"write {name} to {place}", "outputs", _place(name, text, make, command))
              for name, command in WRITERS.items() for place, (text, make) in REFUSED.items()]
    found += [Case(f"legal: write {name} to {place}", "outputs", _place(name, text, make, WRITERS[name]), code=0)
              for name in ("outputs", "trace", "page", "rows") for place, (text, make) in LEGAL.items()]
    return found


# -- inputs as outputs -------------------------------------------------------------------------------------------------
OVER: dict[str, list[str]] = {
    "the input of a run": [*RUN, "-o", "x.npz"], "a link to it": [*RUN, "-o", "link"],
    "a second name": [*RUN, "-o", "hard"],
    "by a way around": [*RUN, "-o", "../here/./x.npz"], "the model of a run": [*RUN, "-o", "net.tmodel"],
    "its program": [*RUN, "-o", "net.tprog"], "its constants": [*RUN, "-o", "net.tdata"],
    "the model estimated": [*ESTIMATE, "--trace", "net.tmodel"], "the model reported": [*REPORT, "-o", "net.tmodel"],
    "the model compiled": [*COMPILE, "--html", "net.onnx"], "by --report": [*COMPILE, "--report", "net.onnx"],
    "the calibration": [*COMPILE, "--calibrate", "x.npz", "--report", "x.npz"],
    "the machine": ["compile", "net.onnx", "-a", "my.tarch", "-o", "out", "--html", "my.tarch"],
    "the machine searched from": [*EXPLORE, "-a", "my.tarch", "-o", "my.tarch"],
    "the model searched for": [*EXPLORE, "-o", "net.onnx"], "by --results": [*EXPLORE, "--results", "net.onnx"],
    "by --plot": [*EXPLORE, "--plot", "net.svg"], "two outputs in one": [*COMPILE, "--html", "y", "--report", "y"],
    "a page in place of the model": [*COMPILE, "--html", "out/net.tmodel"],
    "rows in place of the program": [*COMPILE, "--report", "out/net.tprog"],
    "a front in place of results": [*EXPLORE, "--results", "y.svg", "--plot", "y.svg"],
    "a machine in place of results": [*EXPLORE, "--results", "y", "-o", "./y"],
    "the graph compiled": ["compile", "00_frontend.onnx", "-a", "tiny", "-o", "out", "--dump-dir", "."],
    "the machine of a Verilog": ["verilog", "-a", "weft.tarch", "-o", "."],
}


def _links(folder: Path) -> None:
    (folder / "link").symlink_to("x.npz")
    os.link(folder / "x.npz", folder / "hard")
    (folder / "net.svg").symlink_to("net.onnx")
    for name in ("my.tarch", "weft.json"):
        (folder / name).write_text(json.dumps(Arch.load("tiny").to_dict()))
    (folder / "weft.tarch").symlink_to("weft.json")
    (folder / "00_frontend.onnx").write_bytes((folder / "net.onnx").read_bytes())


# -- files of results --------------------------------------------------------------------------------------------------
def _line(**changed: object) -> bytes:
    return json.dumps({**json.loads(LINE), **changed}).encode() + b"\n"


RESULTS: dict[str, bytes] = {
    "a foreign line behind": LINE + b"milk\n", "a foreign last line behind": LINE + b"milk",
    "a foreign object behind": LINE + b'{"milk": 1}', "a bracket": b"{", "NUL bytes behind": LINE + bytes(10),
    "deep lists": b"[" * 100_000 + b"\n", "deep objects": b'{"what":' * 100_000 + b"\n",
    "deep lists behind": LINE + b"[" * 100_000 + b"\n", "a deep value": _line(value="x").replace(
        b'"x"', b"[" * 100_000),
    "5000 digits": _line().replace(b"7}", b"9" * 5000 + b"}"), "NaN": _line().replace(b"7}", b"NaN}"),
    "minus": _line(value=-1), "a half": _line(value=0.5), "true": _line(value=True), "null": _line(value=None),
    "a refusal as cycles": _line(value="no"), "an unknown quantity": _line(what="milk"),
    "a key too many": _line(milk=1),
    "a path as network": _line(network="../../etc"), "an escape as machine": _line(machine="\x1b[31m"),
    "no UTF-8 behind": LINE + b"\xff\xfe\n", "UTF-16": LINE.decode().encode("utf-16"), "an empty line": LINE + b"\n",
    "one of 10 MB": b'{"what": "cycles", "network": "' + b"a" * (10 << 20), "two in one line": LINE[:-1] + LINE,
}


def _terabyte(folder: Path) -> None:
    (folder / "y").write_bytes(LINE)
    os.truncate(folder / "y", 1 << 40)


# -- sets of files -----------------------------------------------------------------------------------------------------
SETS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "compile": (COMPILE, ("out/net.tmodel", "out/net.tprog", "out/net.tdata")),
    "dump": ([*COMPILE, "--dump-dir", "out"], ("out/00_frontend.txt", "out/00_frontend.onnx", "out/02_divide.txt")),
    "verilog": (["verilog", "-a", "tiny", "-o", "out", "--fusesoc", "--vivado", "--c-driver"],
                ("out/weft_top.v", "out/weft.json", "out/weft.h", "out/weft_top.core", "out/package_ip.tcl")),
    "demo": (["demo", "-a", "tiny", "-o", "out"], ("out/digits.png",)),
    "board": (["board", "build", "pynq_z1", "-o", "out"], ("out/pynq_z1/notes", "out/pynq_z1/report.json",
                                                           "out/pynq_z1", "out/.pynq_z1-work/notes")),
}
IN_THE_WAY: dict[str, Callable[[Path], Any]] = {
    "notes": lambda path: path.write_bytes(b"milk\n"), "a photo": lambda path: path.write_bytes(CONTENTS["a photo"]),
    "a pipe": os.mkfifo, "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def _in_the_way(name: str, make: Callable[[Path], Any], folder: Path) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    make(folder / name)


# -- readers that could wait -------------------------------------------------------------------------------------------
def _linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("far"))
    path.symlink_to("far")


WAITING: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo, "a socket": _socket, "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "standard input": lambda path: path.symlink_to("/dev/stdin"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"), "a pipe behind a link": _linked_pipe,
}
TLS = ["--scheduler", "tls://127.0.0.1:1", "--tls-ca", "y", "--tls-cert", "y", "--tls-key", "y"]
READERS: dict[str, list[str]] = {
    "inputs": ["run", "net.tmodel", "--input", "y"], "a model": ["run", "y", "--input", "x.npz"],
    "a model to estimate": ["estimate", "y"], "a model to report": ["report", "y", "-o", "p.html"],
    "calibration": [*COMPILE, "--calibrate", "y"], "a machine": ["isa", "-a", "y"], "a program": ["disassemble", "y",
                                                                                                 "-a", "tiny"],
    "a network": ["compile", "y", "-a", "tiny", "-o", "out"], "a network to inspect": ["inspect", "y"],
    "a network to search for": ["explore", "y", "--part", "xc7a35t"],
    "calibration of a search": [*EXPLORE, "--calibrate", "y"], "results": [*EXPLORE, "--results", "y"],
    "keys": [*EXPLORE, *TLS],
}


# -- caches ------------------------------------------------------------------------------------------------------------
def _cache(mode: int, owner: int = -1) -> Make:
    def make(folder: Path) -> None:
        (folder / "kept" / "estimator").mkdir(parents=True)
        (folder / "kept").chmod(mode)
        if owner >= 0 and os.getuid() == 0:
            os.chown(folder / "kept", owner, owner)

    return make


CACHES: dict[str, Make] = {"writable for all": _cache(0o777), "of another user": _cache(0o755, 12345)}


def cases() -> list[Case]:
    found = _outputs()
    found += [Case(f"over an input: {name}", "outputs", good_and(command, _links)) for name, command in OVER.items()]
    search = [*EXPLORE, "--results", "y"]
    found += [Case(f"results file: {name}", "results files", good_and(search, _write("y", content)))
              for name, content in RESULTS.items()]
    found += [Case("results file: a terabyte", "results files", good_and(search, _terabyte))]
    found += [Case(f"{name} over {what} at {file}", "output sets",
                   good_and(command, partial(_in_the_way, file, make)))
              for name, (command, files) in SETS.items() for file in files for what, make in IN_THE_WAY.items()]
    found += [Case(f"read {name} from {place}", "waiting readers",
                   good_and(command, lambda folder, make=make: make(folder / "y")))  # type: ignore[misc]
              for name, command in READERS.items() for place, make in WAITING.items()
              if (name, place) != ("results", "standard input")]  # here /dev/null, which may be named
    found += [Case(f"legal: a cache {name}", "caches", good_and(ESTIMATE, make), code=0, cache="kept", seconds=300)
              for name, make in CACHES.items()]
    found += [Case(f"a cache {name} is not written", "caches", good_and(["estimate", "no.tmodel"], make), cache="kept")
              for name, make in CACHES.items()]
    return quick(found, "write results over notes", "write results over zeros", "write trace over a photo",
                 "write outputs over a document", "write machine to a pipe", "write page to a tilde",
                 "legal: write outputs to the null device", "legal: write trace to no UTF-8",
                 "over an input: a second name", "over an input: the machine searched from",
                 "results file: deep lists behind", "results file: a foreign last line behind",
                 "results file: a terabyte", "compile over a photo at out/net.tprog",
                 "board over notes at out/pynq_z1/notes", "read keys from a pipe",
                 "read results from an endless device", "a cache writable for all is not written")
