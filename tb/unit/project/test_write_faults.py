# SPDX-License-Identifier: Apache-2.0
"""A full disk, a read-only folder or a kill at every change of a writer leaves the old file or the new one.

So do two writers at once. All commands write through the writers here, as ``test_outputs.py`` shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from weft.boards.shell.delivery import OLD as ASIDE
from weft.boards.shell.delivery import READY, building, deliver
from weft.explore.results import CYCLES, Results
from weft.runtime.arrays import read_arrays, write_arrays
from weft.support import outputs
from weft.support.errors import WeftError
from weft.support.locks import hold
from weft.support.outputs import Kind, write_text
from weft.tb.bench.file_faults import CRASHED, DONE, FAULTS, KILLED, REFUSED, UNMET, dawdle, ended, outcome, started
from weft.tb.unit.runtime.models import echo
from weft.tmodel.manifest import TModel

NOTE = Kind.of_head("a note", "milk")
OTHERS = {"notes": b"mine", ".note.new": b"mine", ".note.old_copy": b"mine"}
"""Files of others, which stay."""
Write = Callable[[Path, int], object]


@dataclass(frozen=True)
class Writer:
    """``write`` writes one of several versions into a folder, ``read`` returns what a reader then finds there.

    ``grows``: a version does not replace another one. ``leaves``: where a failed write leaves what it made."""

    write: Write
    read: Callable[[Path], object]
    grows: bool = False
    leaves: str = "nowhere"


def _note(name: str) -> Writer:
    return Writer(lambda folder, version: write_text(folder / name, f"milk {version}" * 3000 * version, NOTE),
                  lambda folder: (folder / name).read_bytes() if (folder / name).exists() else None)


def _link(folder: Path, version: int) -> None:
    if not (folder / "link").is_symlink():
        (folder / "link").symlink_to("far/note")
    _note("link").write(folder, version)


def _arrays(folder: Path, version: int) -> None:
    write_arrays(folder / "x.npz", {"x": np.full(4000, version), "y": np.ones(version)})


def _read_arrays(folder: Path) -> object:
    return {name: array.tolist() for name, array in read_arrays(folder / "x.npz", ["x", "y"]).items()}


def _set(folder: Path, version: int) -> None:
    echo(folder, consts=100 + version, extra=2000 * version, value=version).save()


def _read_set(folder: Path) -> object:
    return sorted(TModel.load(folder / "echo.tmodel").contents.items())


def _results(folder: Path, version: int) -> None:
    Results(folder / "results").add((CYCLES, "0" * 20, f"{version:020x}"), version)


def _read_results(folder: Path) -> object:
    copy = folder.parent / f"{folder.name}-copy"  # a reader mends the file
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    found = Results(copy / "results")
    return [found.get((CYCLES, "0" * 20, f"{version:020x}")) for version in (1, 2)]


def _board(folder: Path, version: int) -> None:
    with building(folder / "board") as work:
        for name in ("top.bit", "sub/log"):
            (work / READY / name).parent.mkdir(exist_ok=True)
            (work / READY / name).write_bytes(bytes([version]) * 20_000)
            (work / f"{version}-{name[:3]}").touch()
        deliver(work, folder / "board", {"version": version})


def _read_board(folder: Path) -> object:
    place = folder / "board" if (folder / "board").exists() else folder / ".board-work" / ASIDE
    return sorted((str(path.relative_to(place)), path.read_bytes()) for path in place.rglob("*") if path.is_file())


WRITERS = {
    "a file": _note("note"), "in new folders": _note("a/b/note"), "through a link": Writer(_link, _note("link").read),
    "arrays": Writer(_arrays, _read_arrays), "a set": Writer(_set, _read_set),
    "a board": Writer(_board, _read_board, leaves=".board-work/"),
    "results": Writer(_results, _read_results, grows=True),
}


def files(folder: Path) -> set[str]:
    """The files below a folder and its empty folders; those that killed writers leave are new to it."""
    return {os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names}


@dataclass(frozen=True)
class Versions:
    """A folder with the first version and files of others; what is read of it and of that with the second version."""

    folder: Path
    old: object
    new: object
    present: set[str]


def versions(writer: Writer, place: Path, first: int = 1) -> Versions:
    """``first`` = 0: nothing is written before."""
    folder = place / "good"
    folder.mkdir()
    for name, content in OTHERS.items():
        (folder / name).write_bytes(content)
    if first:
        writer.write(folder, first)
    copy = place / "new"
    shutil.copytree(folder, copy, symlinks=True)
    writer.write(copy, 2)
    return Versions(folder, writer.read(folder) if first else None, writer.read(copy), files(copy))


def after_faults(writer: Writer, made: Versions, fault: str) -> Iterator[tuple[str, Path]]:
    """How a write ended that met a fault at each change in turn, and its folder."""
    for number in count():
        folder = made.folder.parent / f"{fault}-{number}"
        shutil.copytree(made.folder, folder, symlinks=True)
        end = outcome(lambda folder=folder: writer.write(folder, 2), folder, number, FAULTS[fault])  # type: ignore[misc]
        yield end, folder
        shutil.rmtree(folder)
        if end == UNMET:
            return


@pytest.mark.wide_cases("in new folders-*", "through a link-*", "*at byte 1", "a set-*at byte*", "a board-*at byte*")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_fault_at_any_change_leaves_the_old_or_the_new(name: str, fault: str, tmp_path: Path) -> None:
    writer = WRITERS[name]
    made, ends = versions(writer, tmp_path), []
    assert made.old != made.new
    for end, folder in after_faults(writer, made, fault):
        ends.append(end)
        found, left = writer.read(folder), files(folder) - made.present
        assert end != CRASHED and (found == made.new if end in (DONE, UNMET) else found in (made.old, made.new))
        assert end == KILLED or fault == "read-only" or all(name.startswith(writer.leaves) for name in left), left
        writer.write(folder, 2)
        assert writer.read(folder) == made.new and files(folder) == made.present
        assert {name: (folder / name).read_bytes() for name in OTHERS} == OTHERS
    assert (KILLED if "killed" in fault else REFUSED) in ends or writer.grows and "9000" in fault


@pytest.mark.wide_cases("*-2", "*-3")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", WRITERS)
def test_two_writers_at_once_leave_what_one_of_them_wrote(name: str, seed: int, tmp_path: Path) -> None:
    writer = WRITERS[name]
    made = versions(writer, tmp_path)

    def writes(version: int) -> None:
        for _ in range(5):
            writer.write(made.folder, version)

    children = [started(lambda version=version: writes(version),  # type: ignore[misc]
                        lambda version=version: dawdle(made.folder, 2 * seed + version))  # type: ignore[misc]
                for version in (1, 2)]
    assert set(map(ended, children)) <= ({UNMET, REFUSED} if name == "a board" else {UNMET})
    assert writer.read(made.folder) in ([made.new] if writer.grows else [made.old, made.new])
    assert files(made.folder) == made.present


@pytest.mark.parametrize("held", [False, True])
def test_a_new_file_that_is_removed_before_it_has_its_lock_is_made_again(held: bool, tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """As by another writer that takes it for one of a killed writer; ``held``: that one still has its lock."""
    made: list[str] = []

    def robbed(handle: int) -> bool:
        made.append(os.readlink(f"/proc/self/fd/{handle}"))
        if len(made) == 1:
            other = os.open(made[0], os.O_RDONLY)
            hold(other)
            os.unlink(made[0])
            if not held:
                os.close(other)
        return hold(handle)

    monkeypatch.setattr(outputs, "hold", robbed)
    write_text(tmp_path / "note", "milk", NOTE)
    assert len(made) == 2 and (tmp_path / "note").read_text() == "milk" and files(tmp_path) == {"note"}


def test_a_second_build_of_a_board_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(WeftError, match=r"working folder .*\.board-work: found another build at work")
    with building(tmp_path / "board"), refused:
        _board(tmp_path, 1)
    _board(tmp_path, 1)
    assert _read_board(tmp_path)
