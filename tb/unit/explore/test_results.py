# SPDX-License-Identifier: Apache-2.0
"""A file of results: what an earlier search left is read, what else a user names stays as it is, byte for byte."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.explore.results import CYCLES, LEAST, Results
from weft.support.errors import WeftError

KEY = (CYCLES, "0123456789abcdef0123", "fedcba98765432100123-100")
REFUSED = (LEAST, KEY[1], KEY[1])


def line(**changed: object) -> bytes:
    entry = {"what": CYCLES, "network": KEY[1], "machine": KEY[2], "value": 7, **changed}
    return json.dumps(entry).encode() + b"\n"


FOREIGN: dict[str, bytes] = {
    "a line without an end": b"milk", "a line": b"milk\n", "a number": b"7\n", "an object": b"{}\n", "a bracket": b"{",
    "deep lists": b"[" * 100_000 + b"\n", "deep lists without an end": b"[" * 100_000,
    "deep objects": b'{"what":' * 100_000 + b"\n", "no UTF-8": b"\xff\xfe\n", "NUL bytes": bytes(100),
    "a foreign last line behind ours": line() + b"buy milk", "a foreign line behind ours": line() + b"milk\n",
    "an object behind ours": line() + b'{"milk": 1}', "an unknown quantity": line(what="milk"),
    "a key too many": line(milk=1), "a float": line(value=1.5), "true": line(value=True), "minus": line(value=-1),
    "5000 digits": line().replace(b"7}", b"9" * 5000 + b"}"), "a network of another kind": line(network="../x"),
    "a machine that is a list": line(machine=[1]), "a refusal as cycles": line(value="no"),
    "a last line that begins like ours": line() + b'{"what": "cycles", "network": "my laptop',
    "10 MB without an end": b'{"what": "cycles", "network": "' + b"a" * (10 << 20),
    "an empty line": line() + b"\n", "blanks": b"   ",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_ours_stays_as_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(WeftError, match="results file .*notes.txt: found .*way out"):
        Results(path)
    assert path.read_bytes() == FOREIGN[name]


@pytest.mark.parametrize("cut", [1, 5, 20, 60, 100, len(line()) - 1])
def test_half_a_line_of_ours_is_mended(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line() + line(value=8)[:cut])
    found = Results(path)
    assert found.found_before == 1 and found.get(KEY) == 7
    found.add(REFUSED, "too small")
    again = Results(path)
    assert again.get(KEY) == 7 and again.get(REFUSED) == "too small"
    assert path.read_bytes().startswith(line()) and path.read_bytes().count(b"\n") == 2


def test_an_empty_file_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.touch()
    Results(path).add(KEY, 7)
    assert path.read_bytes() == line()


PLACES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "a full device": lambda path: path.symlink_to("/dev/full"), "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte": lambda path: [path.touch(), os.truncate(path, 1 << 40)],  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_is_no_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / "results"
    PLACES[name](path)
    began, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, of tests before too
    with pytest.raises(WeftError, match="results file"):
        Results(path)
    assert time.monotonic() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + (1 << 20)


def test_dev_null_keeps_nothing() -> None:
    Results(Path("/dev/null")).add(KEY, 7)
    assert Results(Path("/dev/null")).get(KEY) is None


def test_a_full_disk_leaves_what_can_be_read_again(tmp_path: Path) -> None:
    """The line that did not fit whole is mended by the next search."""
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.add(KEY, 7)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(line()) + 30, before[1]))
    try:
        with pytest.raises(WeftError, match="results file"):
            results.add(REFUSED, "too small")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    again = Results(path)
    assert again.found_before == 1 and again.get(KEY) == 7
