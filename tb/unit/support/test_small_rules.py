# SPDX-License-Identifier: Apache-2.0
"""Small rules of what every room needs, each by itself: messages, files, locks, workers, digests."""

from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.support import cache, locks, plain_structs, processes, strict_json
from weft.support.errors import LONGEST, WeftError, explain, nearest
from weft.support.files import MOST_NAME_BYTES, file_name, read_bytes, reason, split_batch
from weft.support.outputs import Kind, check_output, replacing
from weft.support.signals import NO_SIGNAL, signal_to_noise
from weft.support.sources import sources_digest

TEXT = Kind.of_head("a text", "text: ")


# -- messages ----------------------------------------------------------------------------------------------------------
def test_a_long_part_of_a_message_keeps_its_head_and_its_tail() -> None:
    whole, long = "a" * LONGEST, "a" * 600 + "b" * 600
    assert explain(whole, "", "", "").startswith(f"{whole}: found")
    assert explain(long, "", "", "").startswith(f"{'a' * 500} ... (1200 characters) ... {'b' * 250}: found")


def test_a_name_that_is_near_is_told_as_it_is_spelled() -> None:
    assert nearest("xc7a35", ["XC7A35T", "LFE5U"], "no") == "did you mean XC7A35T?"
    assert nearest("milk", ["XC7A35T", "LFE5U"], "no") == "no"


@pytest.mark.parametrize(("error", "words"), [
    (OSError(2, "No such file"), "no such file"), (ValueError("Bad header.\nmore"), "bad header"),
    (ValueError("CRC is wrong"), "CRC is wrong"), (ValueError("JSON"), "JSON"), (KeyError(), "keyError")])
def test_an_exception_in_words(error: Exception, words: str) -> None:
    """A word that begins with several capitals keeps them."""
    assert reason(error) == (words if words != "keyError" else "KeyError")


@pytest.mark.parametrize(("signal", "noise", "decibels"), [
    (100.0, 1.0, 20.0), (2.0, 1.0, 3.0), (1.0, 0.0, None), (0.0, 1.0, NO_SIGNAL), (1.0, math.inf, NO_SIGNAL),
    (math.inf, math.inf, NO_SIGNAL)])
def test_decibels_of_sums_of_squares(signal: float, noise: float, decibels: float | None) -> None:
    assert signal_to_noise(signal, noise) == decibels


# -- files -------------------------------------------------------------------------------------------------------------
def test_a_file_of_the_most_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(9))
    assert read_bytes(tmp_path / "file", "file", "", 9) == bytes(9)
    with pytest.raises(WeftError, match="found 9 bytes; allowed: at most 8 bytes"):
        read_bytes(tmp_path / "file", "file", "", 8)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """To open it as a file waits for a writer; an alarm ends that."""
    def late(*_: object) -> None:
        raise RuntimeError("it waits")

    os.mkfifo(tmp_path / "pipe")
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        with pytest.raises(WeftError, match="found a pipe or a device"):
            read_bytes(tmp_path / "pipe", "file", "")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("name", "good"), [
    ("a" * MOST_NAME_BYTES, True), ("a" * (MOST_NAME_BYTES + 1), False), ("é" * (MOST_NAME_BYTES // 2), True),
    ("é" * (MOST_NAME_BYTES // 2) + "a", False), (".a", False), ("a.b", True), ("a/b", False), (" a", False),
    ("a\n", False), ("", False)])
def test_a_name_becomes_a_file_s(name: str, good: bool) -> None:
    if good:
        assert file_name(name, "--name") == name
    else:
        with pytest.raises(WeftError, match="--name: found"):
            file_name(name, "--name")


@pytest.mark.parametrize(("kind", "good"), [("i1", True), ("u2", True), ("f4", True), ("?", True), ("c8", False),
                                            ("U1", False), ("M8[s]", False)])
def test_inputs_are_numbers_or_truths(kind: str, good: bool) -> None:
    array = np.zeros((2,), kind)
    if good:
        assert split_batch("x", array, (2,), False).shape == (1, 2)
    else:
        with pytest.raises(WeftError, match="values of type"):
            split_batch("x", array, (2,), False)


def test_a_digest_changes_with_a_module_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "renamed_by_a_test").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "renamed_by_a_test" / "one.py"
    module.write_text("ONE = 1\n")
    before = sources_digest("renamed_by_a_test")
    module.rename(module.with_name("two.py"))
    assert sources_digest("renamed_by_a_test") != before


@pytest.mark.parametrize("content", [b'{"a": [1, 2, 3]}', b'{"a": [[[1]]]}', b'{"a": 1, "b": 2, "c": [1]}',
                                     b'{"a": {"b": {"c": 1}}}'])
def test_values_are_counted_by_what_stands_before_them(content: bytes) -> None:
    """Each of an object, a list, and one of several costs one."""
    count = sum(content.count(each) for each in (b"{", b"[", b","))
    strict_json.parse_object(content, count)
    with pytest.raises(ValueError, match=f"more than {count - 1} values"):
        strict_json.parse_object(content, count - 1)


def test_a_file_longer_than_the_most_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b'{"a": 1}   ')
    monkeypatch.setattr(strict_json, "MOST_BYTES", 8)
    with pytest.raises(WeftError, match="more than 8 bytes"):
        strict_json.read_object(tmp_path / "file", "file", "", "")
    (tmp_path / "file").write_bytes(b'{"a": 1}')
    assert strict_json.read_object(tmp_path / "file", "file", "", "") == {"a": 1}


@pytest.mark.parametrize("half", ["d800", "dBFF", "Dc00", "dfff", "dEad"])
def test_half_a_character_is_refused_as_an_escape(half: str) -> None:
    with pytest.raises(ValueError, match="a lone surrogate"):
        strict_json.parse_object(b'{"a": "\\u' + half.encode() + b'"}')


# -- who may write -----------------------------------------------------------------------------------------------------
def test_files_of_the_sources_owner_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "os", SimpleNamespace(
        geteuid=lambda: 10, stat=lambda path: SimpleNamespace(st_uid=11 if path == cache.__file__ else 12)))
    assert cache._trusted() == {0, 10, 11}


def test_a_lock_that_another_has_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with open(tmp_path / "file") as one, open(tmp_path / "file") as other:
        assert locks.hold(one.fileno())
        with pytest.raises(BlockingIOError):
            locks.hold(other.fileno())


def test_one_at_a_time_has_a_lock(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        with locks.locked(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(handle)


# -- outputs -----------------------------------------------------------------------------------------------------------
def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "new", TEXT) as file:
        file.write(b"text: ")
    (tmp_path / "other").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode
    (tmp_path / "new").chmod(0o751)
    with replacing(tmp_path / "new", TEXT) as file:
        file.write(b"text: ")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o751


def test_a_file_is_written_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte of it waits in a buffer when it gets its name."""
    sizes: list[int] = []
    before = Path.replace

    def replace(path: Path, to: Path) -> Path:
        sizes.append(path.stat().st_size)
        return before(path, to)

    monkeypatch.setattr(Path, "replace", replace)
    with replacing(tmp_path / "new", TEXT) as file:
        file.write(b"text: 1")
    assert sizes == [7]


@pytest.mark.parametrize(("content", "own"), [(b"text: 1", True), (b"", True), (b"a text: 1", False), (b"1", False)])
def test_a_kind_is_known_by_its_beginning(content: bytes, own: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    if own:
        assert check_output(tmp_path / "file", TEXT) == (tmp_path / "file").resolve()
    else:
        with pytest.raises(WeftError, match="a file of another kind"):
            check_output(tmp_path / "file", TEXT)


@pytest.mark.parametrize("name", ["~", "~/file", "~milk/file"])
def test_a_home_that_no_shell_expanded_is_refused(name: str) -> None:
    with pytest.raises(WeftError, match="a ~ that the shell did not expand"):
        check_output(Path(name), TEXT)


def test_only_the_null_device_takes_everything(tmp_path: Path) -> None:
    assert check_output(Path(os.devnull), TEXT) is None
    with pytest.raises(WeftError, match="a pipe or a device"):
        check_output(Path("/dev/zero"), TEXT)


# -- objects with checked keys -----------------------------------------------------------------------------------------
class Strict(plain_structs.Struct, forbid_unknown_fields=True):
    rows: list[int] = []  # noqa: RUF012


class Inner(Strict):
    count: int | None = None
    truth: bool = False


def test_a_class_forbids_what_the_one_before_forbids() -> None:
    with pytest.raises(plain_structs.ValidationError, match="unknown field `more`"):
        plain_structs.convert({"more": 1}, Inner)


def test_each_object_has_lists_of_its_own() -> None:
    one, other = Strict(), Strict()
    one.rows.append(1)
    assert other.rows == []


@pytest.mark.parametrize(("value", "good"), [(0, True), (1, True), (None, True), (True, False), (False, False),
                                             ("", False)])
def test_a_truth_is_no_integer_and_nothing_is_no_zero(value: Any, good: bool) -> None:
    if good:
        found = plain_structs.convert({"count": value}, Inner).count
        assert found == value and type(found) is type(value)
    else:
        with pytest.raises(plain_structs.ValidationError, match="Expected `int"):
            plain_structs.convert({"count": value}, Inner)


# -- workers -----------------------------------------------------------------------------------------------------------
def test_variables_are_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_THERE", "before")
    monkeypatch.delenv("WEFT_NEW", raising=False)
    with processes.environment({"WEFT_THERE": "1", "WEFT_NEW": "2"}):
        assert (os.environ["WEFT_THERE"], os.environ["WEFT_NEW"]) == ("1", "2")
    assert os.environ["WEFT_THERE"] == "before" and "WEFT_NEW" not in os.environ


@pytest.mark.parametrize("error", [ValueError("a"), KeyError("a"), WeftError("a")])
def test_an_error_here_belongs_to_who_asks_for_the_result(error: Exception) -> None:
    def task() -> None:
        raise error

    future = processes.Here().submit(task)
    assert future.exception() is error


def test_a_worker_is_prepared_and_ignores_interrupts() -> None:
    """In a process of its own: its first call, its handler, and the thread that ends it with its parent."""
    text = ("import signal, threading\nfrom weft.support import processes\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # who started this may ignore it\n"
            "processes._end_with_parent = threading.Event().wait\n"
            "processes._begin(lambda: print('prepared'))\n"
            "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, threading.active_count())\n")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["prepared", "True", "2"]


