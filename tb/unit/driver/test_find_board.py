# SPDX-License-Identifier: Apache-2.0
"""A board is found by what it answers: its port, its rate, and the ``shell.json`` that was made with its bitstream."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.cli.main import exit_code
from weft.hw.contract.csr import IDENTITY, arch_hash, board_code
from weft.runtime.driver import uartbone
from weft.runtime.driver.built_shells import built_shells, known_bauds, shell_of
from weft.runtime.driver.registers import DeviceError
from weft.runtime.driver.serial_ports import _asked
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.driver.transport import LinkError, LinkFault
from weft.runtime.session import Session
from weft.tb.bench.boards_at_hand import leave, plug_in
from weft.tb.bench.dram_model import BoardModel, board_description
from weft.tb.bench.link_models import Bus, Memory
from weft.tb.bench.pages import PAGES, commands
from weft.tb.bench.register_model import litex_model
from weft.tb.unit.driver.test_device import TINY, adder, inputs_for

Said = pytest.CaptureFixture[str]
PORT, OTHER = "/dev/ttyUSB1", "/dev/ttyUSB0"
DENIED = "serial port: found no permission to open it; allowed: a port; way out: join the port's group"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and its inputs, and the shell of an ulx3s."""
    monkeypatch.chdir(tmp_path)
    adder(tmp_path).save()
    np.save("x.npy", inputs_for(adder(tmp_path))["x"])
    leave(board_description(TINY, "ulx3s"), "ulx3s")
    return tmp_path


def run(where: str, capfd: Said, *more: str) -> tuple[int, str, str]:
    """Exit code, and what is said, of the adder on a device."""
    code = exit_code(["run", "adder.tmodel", "--input", "x.npy", "--raw", "--json", "--on", where, *more])
    return code, *capfd.readouterr()


def right(folder: Path, said: str) -> bool:
    made = adder(folder)
    return json.loads(said)["outputs"]["y"] == Session(made).run(inputs_for(made), raw=True).outputs["y"].tolist()


# -- the shell ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", [f"serial:{PORT}", "serial:auto", "udp:192.168.1.50"])
def test_a_board_says_which_shell_is_its_own(where: str, here: Path, monkeypatch: pytest.MonkeyPatch,
                                             capfd: Said) -> None:
    """Memory works only when it was started, which only the shell tells how."""
    board = BoardModel(TINY, "ulx3s")
    leave(board_description(TINY, "ecpix5"), "ecpix5")
    leave("{", "colorlight_i9")
    plug_in(monkeypatch, {PORT: board, OTHER: Memory(0, 4)}, udp={"192.168.1.50": board})
    assert not board.started
    code, out, err = run(where, capfd)
    assert code == 0, err
    assert board.started and right(here, out)


def test_a_machine_that_names_no_board_has_no_shell(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    plug_in(monkeypatch, {PORT: litex_model(TINY)})
    code, out, err = run(f"serial:{PORT}?bytes=0x100000", capfd)
    assert code == 0, err
    assert right(here, out)


@pytest.mark.parametrize(("name", "arch", "says"), [
    ("ecpix5", TINY, "found no shell.json of this board in build/boards of this folder; allowed: the shell.json that "
     "was made with the bitstream of ecpix5; way out: go to the folder in which weft board build ecpix5 was run"),
    ("ulx3s", TINY.replace(local_depth=64), "found build/boards/ulx3s/shell.json, which is of another machine than"),
    ("somebody's own", TINY, "the bitstream of board 0x")])
def test_without_its_shell_a_board_is_refused(name: str, arch: object, says: str, here: Path,
                                              monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    plug_in(monkeypatch, {PORT: BoardModel(arch, name)})  # type: ignore[arg-type]
    code, out, err = run(f"serial:{PORT}", capfd)
    assert (code, out) == (1, "") and says in err and "weft board build" in err
    assert err.count("\n") == 1


def test_a_damaged_shell_is_named_where_it_may_be_the_one(here: Path, monkeypatch: pytest.MonkeyPatch,
                                                          capfd: Said) -> None:
    plug_in(monkeypatch, {PORT: BoardModel(TINY, "ulx3s")})
    path = leave("{", "ulx3s")
    code, _, err = run(f"serial:{PORT}", capfd)
    assert code == 1 and f"{path} cannot be read" in err


def test_a_shell_of_a_machine_that_cannot_be_is_of_another_one(here: Path, monkeypatch: pytest.MonkeyPatch,
                                                               capfd: Said) -> None:
    plug_in(monkeypatch, {PORT: BoardModel(TINY, "ulx3s")})
    shell = board_description(TINY, "ulx3s")
    path = leave({**shell, "arch": {**shell["arch"], "array_size": 0}}, "ulx3s")
    code, _, err = run(f"serial:{PORT}", capfd)
    assert code == 1 and f"{path}, which is of another machine" in err


# -- the port and its rate ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", [f"serial:{PORT}", "serial:auto",
                                   f"serial:{PORT}?shell=build/boards/tang_nano_20k/shell.json"])
def test_the_rate_is_found(where: str, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    leave(board_description(TINY, "tang_nano_20k", baud=1_000_000), "tang_nano_20k")
    plug_in(monkeypatch, {PORT: BoardModel(TINY, "tang_nano_20k")}, baud=1_000_000)
    code, out, err = run(where, capfd)
    assert code == 0, err
    assert right(here, out)


class Line:
    """A serial line on which a word is answered, or nothing."""

    def __init__(self, baud: int, answer: int | None) -> None:
        self.baud, self.answer = baud, answer

    def read(self, address: int, count: int) -> list[int]:
        if self.answer is None:
            raise LinkFault("silence")
        return [self.answer]

    def resynchronise(self) -> bool:
        return True

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("answers", "rate"), [
    ([None, IDENTITY], 200), ([7, IDENTITY], 200), ([None, 7], 200), ([7, 9], 100), ([None, None], None)])
def test_at_a_port_that_is_named_any_answer_will_do_if_no_machine_answers(
        answers: list[int | None], rate: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a machine of another version is told, and not called silent; where machines are looked for, none is."""
    monkeypatch.setattr(uartbone, "open_serial", lambda port, baud: Line(baud, answers[(100, 200).index(baud)]))
    for only_ours in (False, True):
        if rate is None or only_ours and IDENTITY not in answers:
            with pytest.raises(LinkError, match="no answer at 100, 200 baud"):
                _asked(PORT, (100, 200), 0, only_ours=only_ours)
        else:
            found = _asked(PORT, (100, 200), 0, only_ours=only_ours)
            assert isinstance(found, Line) and found.baud == rate


def test_rates_are_those_of_the_boards(here: Path) -> None:
    assert known_bauds() == [3_000_000, 1_000_000]
    leave(board_description(TINY, "own", baud=115_200), "own")
    assert set(known_bauds()) == {3_000_000, 1_000_000, 115_200}
    assert {board.shell.baud for board in BOARDS.values() if board.shell} <= set(known_bauds())


@pytest.mark.parametrize(("boards", "says"), [
    ({}, "device serial:auto: found no USB serial port; allowed: one board"),
    ({PORT: DENIED}, "no permission to open it"),
    ({PORT: Memory(0, 4), OTHER: DENIED}, f"{PORT}: found no answer at 3000000, 1000000 baud"),
    ({PORT: BoardModel(TINY, "ulx3s"), OTHER: BoardModel(TINY, "ulx3s")},
     f"found machines on serial:{OTHER}, serial:{PORT}; allowed: one machine; way out: name its port")])
def test_auto_that_finds_none_or_several(boards: dict[str, Bus | str], says: str, here: Path,
                                         monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    plug_in(monkeypatch, boards)
    code, out, err = run("serial:auto", capfd)
    assert (code, out) == (1, "") and says in err, err


# -- weft board memory -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arguments", [["serial:auto"], [f"serial:{PORT}"], [f"serial:{PORT}", "--board", "ulx3s"]])
def test_weft_board_memory_finds_the_board(arguments: list[str], here: Path, monkeypatch: pytest.MonkeyPatch,
                                           capfd: Said) -> None:
    plug_in(monkeypatch, {PORT: BoardModel(TINY, "ulx3s")})
    for _ in range(2):  # the second time it is started again, for the map
        assert exit_code(["board", "memory", *arguments]) == 0
        said = capfd.readouterr().out
        assert "byte lane 1, bitslip 0: .....#O#" in said and "ulx3s: 1 MiB tested at every address bit: fine" in said


def test_weft_board_memory_of_a_machine_that_names_no_board(here: Path, monkeypatch: pytest.MonkeyPatch,
                                                            capfd: Said) -> None:
    plug_in(monkeypatch, {PORT: litex_model(TINY)})
    assert exit_code(["board", "memory", "serial:auto"]) == 1
    assert "way out: name it: --board BOARD" in capfd.readouterr().err
    assert exit_code(["board", "memory", "golden"]) == 1
    assert "device: found golden; allowed: serial:auto" in capfd.readouterr().err


# -- what the pages tell to type ---------------------------------------------------------------------------------------
ON_BOARDS = [command for page in PAGES for command in commands(page) if command.on_a_board]


def test_pages_tell_how_to_run_on_a_board() -> None:
    assert len(ON_BOARDS) >= 15
    assert {command.page for command in ON_BOARDS} >= {"docs/cli.md", "docs/tutorial.md", "docs/boards/ecpix5.md"}


@pytest.mark.parametrize("command", ON_BOARDS, ids=lambda command: f"{command.page}: {command.text}")
def test_what_a_page_tells_to_type_works_on_that_board(command: object, here: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capfd: Said) -> None:
    """On the page's board, or where it is for any on an ulx3s, just after its bitstream was loaded."""
    page = Path(command.page).stem  # type: ignore[attr-defined]
    name = page if page in BOARDS else "ulx3s"
    shell = BOARDS[name].shell
    assert shell
    baud = shell.baud
    leave(board_description(TINY, name, baud=baud), name)
    board = BoardModel(TINY, name)
    assert board.values["BOARD"] == board_code(name)
    plug_in(monkeypatch, {"/dev/ttyUSB0": board}, baud=baud, udp={"192.168.1.50": board})
    words = list(command.words[1:])  # type: ignore[attr-defined]
    if words[0] == "run":
        words[1], words[words.index("--input") + 1] = "adder.tmodel", "x.npy"
        words.append("--raw")
    code = exit_code(words)
    assert code == 0, capfd.readouterr().err
    assert board.started


def test_a_shell_is_its_boards_if_machine_and_base_of_the_registers_are(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bitstream of the same machine, made with the registers elsewhere, has another shell."""
    monkeypatch.chdir(tmp_path)
    leave(board_description(TINY, "ulx3s"), "ulx3s")
    shell, = [each for _, each in built_shells() if isinstance(each, ShellFile)]

    def asked(base: int, board: str, machine: int) -> ShellFile | None:
        says = {"BOARD": board_code(board), "ARCH_HASH": machine}
        return shell_of(SimpleNamespace(read=says.__getitem__, base=base), "serial:x")  # type: ignore[arg-type]

    own = arch_hash(TINY)
    assert asked(shell.machine_base, "ulx3s", own) == shell
    assert asked(shell.machine_base, "", own) is None
    for base, board, machine in ((shell.machine_base + 4096, "ulx3s", own), (shell.machine_base, "ulx3s", own ^ 1),
                                 (shell.machine_base, "ecpix5", own)):
        with pytest.raises(DeviceError, match=f"bitstream of {board}"):
            asked(base, board, machine)
