# SPDX-License-Identifier: Apache-2.0
"""The files of a compiled model, bound by checksums and written so that a kill leaves the old set or the new one."""

import dataclasses
import errno
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from weft.tb.unit.runtime.models import echo
from weft.tmodel.errors import ModelError
from weft.tmodel.manifest import TModel

KILLED = 66
FILE_EVENTS = ("open", "os.", "fcntl.flock", "shutil.")


def old(folder: Path) -> TModel:
    return echo(folder, consts=2, value=1)


def new(folder: Path) -> TModel:
    return echo(folder, consts=3, extra=5, value=7)


def signature(model: TModel) -> tuple[bytes, ...]:
    return tuple(model.contents[name] for name in sorted(model.contents))


def newest(folder: Path) -> TModel:
    return echo(folder, consts=1, extra=2, value=9)


OLD, NEW, NEWEST = (signature(made(Path())) for made in (old, new, newest))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a process that does it; a signal is its negative number."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def killed_at(number: int, model: TModel) -> Callable[[], None]:
    """Writes the set, and dies in front of the file operation of that number."""
    def work() -> None:
        done = 0

        def hook(event: str, _: object) -> None:
            nonlocal done
            if event.startswith(FILE_EVENTS):
                done += 1
                if done > number:
                    os._exit(KILLED)

        sys.addaudithook(hook)
        model.save()
    return work


def after_kills(folder: Path, make: Callable[[Path], TModel]) -> Iterator[tuple[Path, tuple[bytes, ...]]]:
    """Copies of ``folder`` in which a write was killed at each file operation in turn, and what then loads; at last
    one in which it came to its end."""
    for number in count():
        copy = folder.parent / f"{folder.name}.{number}"
        shutil.copytree(folder, copy)
        code = in_child(killed_at(number, make(copy)))
        assert code in (KILLED, 0)
        yield copy, signature(TModel.load(copy / "echo.tmodel"))
        if code == 0:
            return


def test_a_kill_at_any_file_operation_leaves_the_old_set_or_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    old(folder).save()
    found = [loads for _, loads in after_kills(folder, new)]
    switch = found.index(NEW)
    assert 3 < switch < len(found) - 2  # dies before and after the step that decides
    assert found == [OLD] * switch + [NEW] * (len(found) - switch)


@pytest.mark.wide
def test_a_kill_behind_a_kill_does_so_too_and_the_next_write_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    old(folder).save()
    for first, before in list(after_kills(folder, new))[3:]:
        ends = list(after_kills(first, newest))
        assert all(found in (before, NEWEST) for _, found in ends)
        whole, found = ends[-1]
        assert found == NEWEST and names(whole) == ["echo.tdata", "echo.tmodel", "echo.tprog"]


@pytest.mark.parametrize("limit", [0, 1, 10, 15, 600])
def test_a_kill_in_the_middle_of_a_file(tmp_path: Path, limit: int) -> None:
    old(tmp_path).save()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        new(tmp_path).save()

    assert in_child(work) == -signal.SIGXFSZ
    assert signature(TModel.load(tmp_path / "echo.tmodel")) == OLD
    assert len(names(tmp_path)) > 3
    old(tmp_path).save()
    assert len(names(tmp_path)) == 3


def test_a_full_disk_leaves_the_old_set_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old(tmp_path).save()

    def full(path: Path, content: bytes) -> int:
        with open(path, "wb") as file:
            file.write(content[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError, match="found no space left on device"):
        new(tmp_path).save()
    monkeypatch.undo()
    assert signature(TModel.load(tmp_path / "echo.tmodel")) == OLD
    assert names(tmp_path) == ["echo.tdata", "echo.tmodel", "echo.tprog"]


def test_other_files_of_the_folder_stay(tmp_path: Path) -> None:
    others = [".echo.tprog.new", ".other.tprog.0123456789abcdef.new", "notes", ".echo.tprog.0123.new"]
    for name in others:
        (tmp_path / name).write_text("mine")
    old(tmp_path).save()
    assert names(tmp_path) == sorted([*others, "echo.tdata", "echo.tmodel", "echo.tprog"])


@pytest.mark.parametrize("name", ["../evil", "a/b", "/tmp/evil", "a\0"])
def test_names_that_lead_out_of_the_folder_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="a plain name"):
        echo(tmp_path / "in", name=name).save()
    assert list(tmp_path.rglob("*")) == []


def test_a_file_that_no_model_names_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "echo.tdata").write_bytes(bytes(100))
    with pytest.raises(ModelError, match=r"echo.tdata: found a file of another kind; allowed: a file that echo.tmodel"):
        old(tmp_path).save()
    assert names(tmp_path) == ["echo.tdata"] and (tmp_path / "echo.tdata").read_bytes() == bytes(100)


def test_files_that_the_new_set_has_no_more_go_unless_somebody_changed_them(tmp_path: Path) -> None:
    first = old(tmp_path)
    parts = {f"echo.{number}.tprog": bytes(number) for number in (1, 2)}
    dataclasses.replace(first, contents={**first.contents, **parts}).save()
    (tmp_path / "echo.2.tprog").write_bytes(b"mine")
    new(tmp_path).save()
    assert names(tmp_path) == ["echo.2.tprog", "echo.tdata", "echo.tmodel", "echo.tprog"]
    assert signature(TModel.load(tmp_path / "echo.tmodel")) == NEW


def test_a_folder_in_the_way_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "echo.tprog").mkdir()
    with pytest.raises(ModelError, match=r"echo.tprog: found a directory"):
        old(tmp_path).save()
    assert names(tmp_path) == ["echo.tprog"]


# -- reading -----------------------------------------------------------------------------------------------------------
def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        TModel.load(folder / "echo.tmodel")
    assert "way out: " in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", ["tprog", "tdata"])
def test_every_flipped_bit_is_refused(tmp_path: Path, suffix: str) -> None:
    old(tmp_path).save()
    path = tmp_path / f"echo.{suffix}"
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        spoilt = bytearray(content)
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        assert f"content of {path}: found SHA-256" in refusal(tmp_path)
    path.write_bytes(content)
    assert signature(TModel.load(tmp_path / "echo.tmodel")) == OLD


def test_constants_of_another_compilation_are_refused(tmp_path: Path) -> None:
    echo(tmp_path / "a", value=1).save()
    echo(tmp_path / "b", value=2).save()
    (tmp_path / "b" / "echo.tdata").replace(tmp_path / "a" / "echo.tdata")
    assert "content of" in refusal(tmp_path / "a")


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    old(inside).save()
    (inside / "echo.tdata").rename(tmp_path / "elsewhere")
    (inside / "echo.tdata").symlink_to("../elsewhere")
    assert "a file in the model's own folder" in refusal(inside)
    (inside / "echo.tdata").unlink()
    (inside / "echo.tdata").symlink_to("echo.tdata")
    assert "echo.tdata" in refusal(inside)
    (inside / "echo.tdata").unlink()
    (tmp_path / "elsewhere").rename(inside / "kept")
    (inside / "echo.tdata").symlink_to("kept")
    assert signature(TModel.load(inside / "echo.tmodel")) == OLD


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    old(tmp_path).save()
    (tmp_path / "echo.tdata").unlink()
    os.mkfifo(tmp_path / "echo.tdata")
    assert "no regular file" in refusal(tmp_path)


def test_files_of_the_original_tools_have_no_checksums_and_load(tmp_path: Path) -> None:
    old(tmp_path).save()
    assert TModel.load(tmp_path / "echo.tmodel").checksums
    values = json.loads((tmp_path / "echo.tmodel").read_text())
    del values["files"]
    (tmp_path / "echo.tmodel").write_text(json.dumps(values))
    assert not TModel.load(tmp_path / "echo.tmodel").checksums
