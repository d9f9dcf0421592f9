# SPDX-License-Identifier: Apache-2.0
"""What a command writes replaces what it wrote before, and nothing else that lies there."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import typing
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import typer

from weft.cli import board, machines
from weft.cli.app import application
from weft.cli.main import exit_code
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError
from weft.support.outputs import Kind, check_output, replacing, write_text
from weft.tb.bench.file_faults import (
    DONE,
    FAULTS,
    KILLED,
    REFUSED,
    UNMET,
    changes_beside,
    ended,
    outcome,
    started,
)
from weft.tb.hostile.case import compiled
from weft.tb.unit.project.conftest import Weft

NOTES = b"milk, eggs\n"
NOTE = Kind.of_head("a note", "milk")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made() -> Callable[[Arch], str]:
    """The Verilog of a machine, made once."""
    return functools.cache(machines.verilog_of)


@pytest.fixture
def here(tmp_path: Path, made: Callable[[Arch], str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The good files of the hostile cases, in the current folder."""
    for file in compiled().iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(machines, "verilog_of", made)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMPILE = "compile net.onnx -a tiny -o out --calibrate x.npz"
RUN = "run net.tmodel --input x.npz --images 1"
WRITERS: dict[str, tuple[str, str]] = {
    "outputs": (f"{RUN} -o FILE", "out.npz"), "a trace": ("estimate net.tmodel --trace FILE", "t.json"),
    "a page": ("report net.tmodel -o FILE", "page.html"), "a page of compile": (f"{COMPILE} --html FILE", "page.html"),
    "rows": (f"{COMPILE} --report FILE", "rows.json"), "a dump": (f"{COMPILE} --dump-dir .", "00_frontend.txt"),
    "a dumped graph": (f"{COMPILE} --dump-dir .", "00_frontend.onnx"), "the model": (COMPILE, "out/net.tmodel"),
    "a schedule": ("schedule net.onnx -a tiny -o FILE", "schedule.json"),
    "choices": (f"{COMPILE} --tune-steps 0", "out/net.choices.json"),
    "the program": (COMPILE, "out/net.tprog"), "the constants": (COMPILE, "out/net.tdata"),
    **{f"verilog: {name}": ("verilog -a tiny -o . --fusesoc --vivado --c-driver", name) for name in machines.WRITTEN},
}
FOREIGN = {"notes": NOTES, "a picture": b"\x89PNG\r\n\x1a\n" + bytes(100), "JSON": b'{"milk": 1}\n',
           "a page": b"<!DOCTYPE html>\n<title>My page</title>\n", "zeros": bytes(100)}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.wide_cases("verilog: weft_top.v")
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_another_kind_stays_and_an_own_one_is_replaced(name: str, here: Path, weft: Weft) -> None:
    command, file = WRITERS[name]
    arguments = command.replace("FILE", file).split()
    path = here / file
    path.parent.mkdir(exist_ok=True)
    for content in FOREIGN.values():
        path.write_bytes(content)
        before = everything(here)
        answer = weft(*arguments)
        assert answer.code == 1 and answer.out == "" and answer.err.count("\n") == 1, answer
        assert "found a file of another kind" in answer.err and "way out: " in answer.err and file in answer.err
        assert everything(here) == before
    path.write_bytes(b"")
    assert weft(*arguments).code == 0
    first = path.read_bytes()
    assert first and weft(*arguments).code == 0
    assert path.read_bytes() == first or name == "outputs"  # an archive tells when


@pytest.mark.parametrize(("command", "text"), [
    (f"{RUN} -o x.npz", "--output x.npz: found the file that --input names"),
    (f"{RUN} -o ./link.npz", "--output link.npz: found the file that --input names"),
    (f"{RUN} -o hard.npz", "--output hard.npz: found the file that --input names"),
    ("estimate net.tmodel --trace net.tmodel", "--trace net.tmodel: found the file that MODEL names"),
    ("report net.tmodel -o net.tmodel", "--output net.tmodel: found the file that MODEL names"),
    (f"{COMPILE} --html net.onnx", "--html net.onnx: found the file that MODEL names"),
    (f"{COMPILE} --report x.npz", "--report x.npz: found the file that --calibrate names"),
    (f"{COMPILE} --schedule my.tarch --report my.tarch", "--report my.tarch: found the file that --schedule names"),
    (f"{COMPILE} --report x --html ./x", "--html x: found the file that --report names"),
    (f"{COMPILE} --report out/net.tmodel", "--report out/net.tmodel: found the file that --folder names"),
    ("compile net.onnx -a my.tarch -o out --html my.tarch", "--html my.tarch: found the file that --arch names"),
    ("explore net.onnx --part xc7a35t -a my.tarch -o my.tarch", "--output my.tarch: found the file that --arch names"),
    ("explore net.onnx --part xc7a35t --results net.onnx", "--results net.onnx: found the file that MODEL names"),
    ("explore net.onnx --part xc7a35t --results a -o a", "--results a: found the file that --output names"),
    ("explore net.onnx --part xc7a35t -o net.tmodel", "output file net.tmodel: found a file of another kind"),
    ("explore net.onnx --part xc7a35t --plot photo.png", "output file photo.png: found a file of another kind"),
    ("compile steps/00_frontend.onnx -a tiny -o out --dump-dir steps", "--dump-dir "),
    ("verilog -a out/weft.json -o out", "--folder out/weft.json: found the file that --arch names"),
])
def test_an_output_is_no_input_and_no_other_output(command: str, text: str, here: Path, weft: Weft) -> None:
    (here / "link.npz").symlink_to("x.npz")
    os.link(here / "x.npz", here / "hard.npz")
    (here / "photo.png").write_bytes(FOREIGN["a picture"])
    for name in ("my.tarch", "out/weft.json"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_bytes((ROOT / "arch" / "tiny.tarch").read_bytes())
    (here / "steps").mkdir()
    (here / "steps" / "00_frontend.onnx").write_bytes((here / "net.onnx").read_bytes())
    before = everything(here)
    answer = weft(*command.split())
    assert (answer.code, answer.out) == (1, "") and text in answer.err and answer.err.count("\n") == 1
    assert everything(here) == before


def test_every_option_that_writes_is_checked_here() -> None:
    """A new one has to be put into one of these lists, and into the tests above."""
    reads = {"model", "models", "inputs", "image", "calibrate", "program", "tls_ca", "tls_cert", "tls_key",
             "choices", "schedule", "script"}
    writes = {"output", "folder", "trace", "report_file", "html_file", "dump_dir", "plot", "results", "output_file"}
    hints = [typing.get_type_hints(command.callback) for command in (*application().registered_commands,
                                                                     *board.app.registered_commands)]
    found = {name for each in hints for name, hint in each.items() if Path in (hint, *typing.get_args(hint))}
    assert found == reads | writes


# -- the one way out ---------------------------------------------------------------------------------------------------
SEAM = [str(ROOT / file) for file in ("support/outputs.py", "tmodel/model_set.py", "explore/results.py",
                                      "boards/shell/delivery.py")]
"""Where files are replaced as a whole; ``test_write_faults.py`` lets each of them meet every fault."""
COMMANDS = {
    "compile": f"{COMPILE} --html page.html --report rows.json --dump-dir steps --tune-steps 0",
    "run": f"{RUN} -o o.npz", "estimate": "estimate net.tmodel --trace t.json",
    "report": "report net.tmodel -o page.html", "schedule": "schedule net.onnx -a tiny -o schedule.json",
    "verilog": "verilog -a tiny -o out --fusesoc --vivado --c-driver",
    "explore": "explore net.onnx --part xc7a35t --jobs 1 -o best.tarch --plot front.png --results results",
    "board": "board build pynq_z1 -a tiny -o out",
}
"""`weft demo` is left out: it builds a simulator, and removing that one's files tells names without their folder."""
WORKING = ".pynq_z1-work/"
"""A folder that becomes the result as a whole."""


@pytest.mark.wide_cases("explore", "board")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_nothing_beside_the_seam(name: str, here: Path) -> None:
    beside: list[str] = []

    def work() -> None:
        before = set(everything(here))
        assert exit_code(COMMANDS[name].split()) == 0
        assert set(everything(here)) > before
        assert [each for each in beside if WORKING not in each] == []

    def watch() -> list[str]:
        nonlocal beside
        beside = changes_beside(here, SEAM)
        return []

    assert ended(started(work, watch)) == UNMET


def contents(folder: Path, before: set[str]) -> dict[str, object]:
    """The new files of a folder; of archives, which tell when they were made, what they hold."""
    found = {name: content for name, content in everything(folder).items() if name not in before}
    return {name: dict(np.load(folder / name)) if name.endswith(".npz") and content else content
            for name, content in found.items()}


def is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_meets_a_fault_at_any_change(name: str, fault: str, here: Path, tmp_path_factory) -> None:
    """Each file is there as a whole or not at all, but for results of a search, which grow line by line."""

    def command(folder: Path) -> None:
        os.chdir(folder)
        if exit_code(COMMANDS[name].split()):
            raise WeftError("refused")

    def copied() -> Path:
        return shutil.copytree(here, tmp_path_factory.mktemp("copy"), dirs_exist_ok=True)

    before, good = set(everything(here)), copied()
    assert ended(started(lambda: command(good), list)) == UNMET
    new, ends = contents(good, before), {}
    for number in count():
        folder = copied()
        end = outcome(lambda folder=folder: command(folder), folder, number, FAULTS[fault])  # type: ignore[misc]
        for file, content in contents(folder, before).items():
            grows = file == "results" and new[file].startswith(content)  # type: ignore[attr-defined]
            assert is_hidden(file) or grows or repr(content) == repr(new[file]), (file, number)
        assert ended(started(lambda folder=folder: command(folder), list)) == UNMET  # type: ignore[misc]
        assert repr(contents(folder, before)) == repr(new), number
        ends[end] = number
        shutil.rmtree(folder)
        if end == UNMET:
            break
    assert ends.keys() <= {KILLED, REFUSED, DONE, UNMET} and ends[UNMET] > 2


# -- one file ----------------------------------------------------------------------------------------------------------
def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "note").write_bytes(NOTES)
    (tmp_path / "link").symlink_to("far/note")
    (tmp_path / "new").symlink_to("far/other")
    write_text(tmp_path / "link", "milk", NOTE)
    write_text(tmp_path / "new", "milk", NOTE)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "far" / "note").read_text() == "milk"
    assert (tmp_path / "new").is_symlink() and (tmp_path / "far" / "other").read_text() == "milk"


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_text(path, "milk", NOTE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o600)
    write_text(path, "milk and eggs", NOTE)
    assert path.read_text() == "milk and eggs" and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_dev_null_takes_everything_and_stays(here: Path, weft: Weft) -> None:
    before = everything(here)
    for command in (f"{RUN} -o /dev/null", "estimate net.tmodel --trace /dev/null", "report net.tmodel -o /dev/null"):
        assert weft(*command.split()).code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and everything(here) == before


PLACES: dict[str, tuple[str, Callable[[Path], object] | None, str]] = {
    "a folder": ("x", Path.mkdir, "a directory"), "a pipe": ("x", os.mkfifo, "a pipe or a device"),
    "a device": ("x", lambda path: path.symlink_to("/dev/full"), "a pipe or a device"),
    "a link to itself": ("x", lambda path: path.symlink_to("x"), "symbolic links"),
    "below a file": ("x/y", lambda path: path.parent.write_bytes(NOTES), "not a directory"),
    "read-only": ("x", lambda path: os.close(os.open(path, os.O_CREAT, 0o444)), "read-only"),
    "a read-only program": ("x", lambda path: os.close(os.open(path, os.O_CREAT, 0o555)), "read-only"),
    "a tilde": ("~/x", None, "a ~ that the shell did not expand"), "nothing": ("", None, "a directory"),
    "NUL": ("a\0b", None, "null"), "a long name": ("a" * 300, None, "name too long"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_is_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, make, found = PLACES[name]
    if make:
        make(tmp_path / text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(WeftError, match=found), replacing(Path(text), NOTE) as file:
        file.write(b"milk")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_bytes(NOTES)
    text = ("import os, sys\nfrom pathlib import Path\nfrom weft.support.outputs import Kind, replacing\n"
            "with replacing(Path(sys.argv[1]), Kind.of_head('a note', 'milk')) as file:\n"
            "    file.write(bytes(1 << 20))\n    file.flush()\n    os.kill(os.getpid(), 9)\n")
    done = subprocess.run([sys.executable, "-c", text, path], cwd=ROOT, check=False)
    assert done.returncode == -9 and path.read_bytes() == NOTES


def test_a_place_is_looked_at_before_the_work(here: Path, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.runtime.session import Session

    monkeypatch.setattr(Session, "run", lambda *_, **__: pytest.fail("it ran"))
    (here / "notes").write_bytes(NOTES)
    assert weft(*f"{RUN} -o notes".split()).code == 1


def test_arrays_replace_only_archives_of_arrays(tmp_path: Path) -> None:
    from weft.runtime.arrays import ARRAYS

    np.savez(tmp_path / "x.npz", x=np.ones(3))
    assert check_output(tmp_path / "x.npz", ARRAYS)
    import zipfile

    with zipfile.ZipFile(tmp_path / "document.docx", "w") as archive:
        archive.writestr("word/document.xml", json.dumps("milk"))
    with pytest.raises(WeftError, match="of another kind; allowed: outputs"):
        check_output(tmp_path / "document.docx", ARRAYS)


def test_the_state_of_a_random_run_is_its_own(tmp_path: Path) -> None:
    from rich.console import Console

    from weft.tb.random.seeds import SeedRun

    (tmp_path / "notes.json").write_text('{"milk": "2 l"}')
    (tmp_path / "notes.tmp").write_bytes(NOTES)
    before = everything(tmp_path)
    with pytest.raises(typer.Exit):
        SeedRun(None, ["tiny"], 0, 2, tmp_path / "notes.json", Console(stderr=True))
    assert everything(tmp_path) == before
    run = SeedRun(None, ["tiny"], 0, 2, tmp_path / "notes", Console(stderr=True))
    assert [list(seeds) for seeds in run.batches("tiny", 1)] == [[0], [1]]
    assert SeedRun(None, ["tiny"], 0, 2, tmp_path / "notes", Console(stderr=True)).next_seed == {"tiny": 2}
    assert (tmp_path / "notes.tmp").read_bytes() == NOTES
