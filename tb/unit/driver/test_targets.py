# SPDX-License-Identifier: Apache-2.0
"""Device strings, and what a user is told when a port, a package or a right is missing."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.runtime.driver import targets, uartbone
from weft.runtime.driver.device import Device
from weft.runtime.driver.etherbone import open_udp
from weft.runtime.driver.registers import DeviceError
from weft.runtime.driver.targets import KINDS, read_device
from weft.runtime.driver.transport import LinkError, LinkFault
from weft.runtime.driver.uartbone import open_serial
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.bench.link_models import UartFarEnd
from weft.tb.bench.register_model import RegisterModel, litex_model
from weft.tb.unit.driver.test_device import TINY, adder, inputs_for


@pytest.mark.parametrize(("where", "text"), [
    ("silicon", r"device: found 'silicon'; allowed: golden\[:PRESET\]"), ("serial", r"allowed: .*serial:auto\|PORT"),
    ("", "allowed: "), (":x", "allowed: "), ("golden?fast=1", "option of device golden: found fast; allowed: none"),
    ("serial:/dev/ttyUSB0?baud=fast", "device option baud: found 'fast'; allowed: a number"),
    ("serial:/dev/ttyUSB0?bits=8", "found bits; allowed: baud, registers"),
    ("udp:h?port=-1", "found '-1'"), ("udp:h?seconds=nan", "found 'nan'"), ("udp:h?memory=0x1g", "found '0x1g'")])
def test_wrong_device_strings(where: str, text: str) -> None:
    with pytest.raises(WeftError, match=text):
        read_device(where)


def test_options_of_a_device_string() -> None:
    kind, place, options = read_device("serial:/dev/tty?baud=115200&memory=0x80000000", {"seconds": 3})
    assert (kind, place) == (KINDS["serial"], "/dev/tty")
    assert (options["baud"], options["memory"], options["seconds"]) == (115200, 1 << 31, 3.0)


@pytest.mark.parametrize("where", ["golden:nope", "sim:nope"])
def test_unknown_presets(where: str) -> None:
    with pytest.raises(WeftError, match="found nope; allowed: a preset"):
        Device.open(where)


def test_pyserial_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(LinkError, match=r"found no Python package pyserial; .* way out: .* pip install .pyserial>=3"):
        Device.open("serial:/dev/ttyUSB0")
    monkeypatch.setitem(sys.modules, "serial.tools.list_ports", None)
    with pytest.raises(LinkError, match=r"device serial:auto: found no Python package pyserial"):
        Device.open("serial:auto")


def test_the_runtime_alone_has_no_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "find_spec", lambda name: None)
    with pytest.raises(WeftError, match=r"device sim: found .* alone; allowed: golden, serial, udp and mmio"):
        Device.open("sim")


def test_port_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="serial port .*nothing: found .*No such file.* allowed: a serial port"):
        Device.open(f"serial:{tmp_path}/nothing")


@pytest.mark.parametrize(("error", "text"), [
    (PermissionError(13, "could not open port: [Errno 13] Permission denied: '/dev/ttyUSB0'"),
     "no permission to open it; .* way out: join the port's group"),
    (OSError("Could not exclusively lock port /dev/ttyUSB0: [Errno 11] Resource temporarily unavailable"),
     "another program has open; allowed: a free port")])
def test_port_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, error: OSError, text: str) -> None:
    import serial

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(serial, "Serial", refuse)
    with pytest.raises(LinkError, match=text):
        Device.open("serial:/dev/ttyUSB0")


def test_host_that_nobody_knows() -> None:
    with pytest.raises(LinkError, match="device udp:no.such.host.invalid: found .* allowed: a board's address"):
        Device.open("udp:no.such.host.invalid?port=1")


def test_a_board_by_its_address() -> None:
    """A socket of its own port, to be given back."""
    for _ in range(2):
        link = open_udp("127.0.0.1", 41234)
        assert link.name == "udp:127.0.0.1"
        with pytest.raises(LinkFault):
            link.read(0, 1)
        link.close()


def test_udp_port_that_is_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", 0))
        with pytest.raises(LinkError, match="UDP port [0-9]+ of this machine free"):
            Device.open(f"udp:127.0.0.1?port={other.getsockname()[1]}")


# -- a real serial port ------------------------------------------------------------------------------------------------
class Terminal:
    """A pseudo-terminal with a board at its other end."""

    def __init__(self, board: RegisterModel) -> None:
        self._master, self._slave = os.openpty()
        self.port = os.ttyname(self._slave)
        self._far_end, self._bytes = UartFarEnd(board), 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                content = os.read(self._master, 4096)
            except OSError:
                return
            answer = b"".join(self._far_end.take(byte, 0.0) for byte in content)
            os.write(self._master, answer)

    def close(self) -> None:
        os.close(self._slave)
        os.close(self._master)


def test_weft_run_on_a_serial_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capfd: pytest.CaptureFixture[str]) -> None:
    """The whole way: command line, pyserial, a terminal, the protocol, registers, the machine."""
    monkeypatch.setattr(uartbone, "PATIENCE_SECONDS", 2.0)  # this machine may be busy
    made = adder(tmp_path)
    made.save()
    np.save(tmp_path / "x.npy", np.stack([inputs_for(made, 1)["x"], inputs_for(made, 2)["x"]]))
    terminal = Terminal(litex_model(TINY))
    arguments = ["run", str(tmp_path / "adder.tmodel"), "--input", str(tmp_path / "x.npy"), "--raw", "--json", "--on"]
    assert exit_code([*arguments, f"serial:{terminal.port}"]) == 0
    found = json.loads(capfd.readouterr().out)
    expected = [Session(made).run(inputs_for(made, number), raw=True).outputs["y"].tolist() for number in (1, 2)]
    assert found["outputs"]["y"] == expected and found["images"] == 2 and found["cycles"]
    assert found["check"]["equal"] == found["check"]["words"] == 2 * 8
    assert exit_code([*arguments, "sim?nonsense=1"]) == 1
    terminal.close()


def test_a_device_that_computes_wrong_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(uartbone, "PATIENCE_SECONDS", 2.0)
    made, board = adder(tmp_path), litex_model(TINY)
    made.save()
    np.save(tmp_path / "x.npy", inputs_for(made)["x"])
    run = board._run

    def wrong() -> None:
        run()
        board.dram.bytes[8 * 4 + 2] ^= 1

    board._run = wrong  # type: ignore[method-assign]
    terminal = Terminal(board)
    where = f"serial:{terminal.port}"
    arguments = ["run", str(tmp_path / "adder.tmodel"), "--input", str(tmp_path / "x.npy"), "--raw", "--on", where]
    assert exit_code(arguments) == 2
    assert f"{where} and golden differ in 1 of 8 words, first at image 0, DRAM0 address 8, lane 1: {where} " in (
        capfd.readouterr().err)
    terminal.close()


def test_a_terminal_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uartbone, "PATIENCE_SECONDS", 0.01)
    master, slave = os.openpty()
    with pytest.raises(LinkError, match="no answer at 3000000, 1000000 baud; allowed: a board with its bitstream"):
        Device.open(f"serial:{os.ttyname(slave)}")
    os.close(master)
    os.close(slave)


def test_something_else_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uartbone, "PATIENCE_SECONDS", 2.0)
    board = litex_model(TINY)
    board.values["IDENTITY"] = 0x1234
    terminal = Terminal(board)
    with pytest.raises(DeviceError, match="0x00001234 in IDENTITY"):
        Device.open(f"serial:{terminal.port}")
    assert open_serial(terminal.port).most_words == 255
    terminal.close()
