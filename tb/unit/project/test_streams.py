# SPDX-License-Identifier: Apache-2.0
"""What reaches a terminal: no control characters; and what happens where nothing can be written."""

import io
import json
import os
import subprocess
import sys

import pytest

from weft.cli import streams
from weft.cli.streams import Stream, printable
from weft.support.errors import LONGEST, WeftError, explain


@pytest.mark.parametrize(("text", "shown"), [
    ("plain text\n\tfor people: größe, 漢字, 🙂\n", "plain text\n\tfor people: größe, 漢字, 🙂\n"),
    ("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m"), ("\x9b31m", "\\u009b31m"),
    ("a\rb\x07\x7f\x00", "a\\u000db\\u0007\\u007f\\u0000"),
    ("\u202eevil", "\\u202eevil"), ("\udcff", "\\udcff"),
])
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert json.loads(f'"{printable(json.dumps(text)[1:-1])}"') == text  # JSON stays what it says


def test_an_encoding_that_lacks_characters() -> None:
    assert printable("größe \x1b", "ascii") == "gr\\xf6\\xdfe \\u001b"


def test_a_full_disk_is_a_message() -> None:
    with open("/dev/full", "w") as full, pytest.raises(WeftError, match="standard output: found no space left on dev"):
        stream = Stream(full, "standard output")
        stream.write("x" * 100_000)
        stream.flush()
    with pytest.raises(WeftError, match="closed"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        with streams.guarded():
            pass


def test_streams_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with pytest.raises(KeyError), streams.guarded():
        print("\x1b")
        raise KeyError
    assert sys.stdout is file and file.getvalue() == "\\u001b\n"


WEFT = [sys.executable, "-m", "weft.cli.main"]
PRINTS = pytest.mark.parametrize("command", [["isa", "-a", "tiny"], ["--version"]], ids=["much", "little"])
"""More than a buffer holds, which fails as it is written, and less, which stays in the buffer and fails as it ends."""
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@PRINTS
def test_a_full_disk_is_told_once(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*WEFT, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                              env=BUFFERED)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("weft: standard output: found no space left on device; allowed: ")


@PRINTS
def test_who_has_seen_enough_is_told_nothing(command: list[str]) -> None:
    start, end = os.pipe()
    os.close(start)
    done = subprocess.run([*WEFT, *command], stdout=end, stderr=subprocess.PIPE, text=True, check=False, env=BUFFERED)
    os.close(end)
    assert done.returncode == 1 and done.stderr == ""


def test_long_parts_of_a_message_are_shortened() -> None:
    assert explain("a", "b" * LONGEST, "c", "d") == f"a: found {'b' * LONGEST}; allowed: c; way out: d"
    text = explain("a", "b" * 100_000, "c", "d")
    assert len(text) < LONGEST + 100 and "(100000 characters)" in text
