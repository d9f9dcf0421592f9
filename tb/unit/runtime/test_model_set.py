"""The files of a compiled model, bound by checksums and written so that a kill leaves the old set or the new one."""

import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.runtime.errors import ModelError
from weft.runtime.manifest import TModel
from weft.tb.unit.runtime.models import echo

KILLED = 66
FILE_EVENTS = ("open", "os.", "fcntl.flock", "shutil.")


def old(folder: Path) -> TModel:
    return echo(folder, consts=2, value=1)


def new(folder: Path) -> TModel:
    return echo(folder, consts=3, extra=5, value=7)


def signature(model: TModel) -> tuple[bytes, ...]:
    return tuple(model.contents[name] for name in sorted(model.contents))


OLD, NEW = signature(old(Path())), signature(new(Path()))


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


def killed_at(number: int, folder: Path) -> Callable[[], None]:
    """Writes the new set, and dies in front of the file operation of that number."""
    def work() -> None:
        model, count = new(folder), 0

        def hook(event: str, _: object) -> None:
            nonlocal count
            if event.startswith(FILE_EVENTS):
                count += 1
                if count > number:
                    os._exit(KILLED)

        sys.addaudithook(hook)
        model.save()
    return work


def operations(folder: Path) -> int:
    """How many file operations a write has."""
    number = 0
    while in_child(killed_at(number, folder)) == KILLED:
        number += 1
    return number


def test_a_kill_at_any_file_operation_leaves_the_old_set_or_the_new_one(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    old(scratch).save()
    found = []
    for number in range(operations(scratch) + 1):
        folder = tmp_path / str(number)
        old(folder).save()
        code = in_child(killed_at(number, folder))
        found.append(signature(TModel.load(folder / "echo.tmodel")))
        assert (code, found[-1]) in ((KILLED, OLD), (KILLED, NEW), (0, NEW))
        again = in_child(killed_at(3, folder))  # and once more, while it cleans up behind the first
        assert again == KILLED
        assert signature(TModel.load(folder / "echo.tmodel")) == found[-1]
        new(folder).save()
        assert names(folder) == ["echo.tdata", "echo.tmodel", "echo.tprog"]
        assert signature(TModel.load(folder / "echo.tmodel")) == NEW
    switch = found.index(NEW)
    assert 3 < switch < len(found) - 2  # dies before and after the step that decides
    assert found == [OLD] * switch + [NEW] * (len(found) - switch)


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
