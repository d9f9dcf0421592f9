# SPDX-License-Identifier: Apache-2.0
"""Control registers behind a bridge, and what they must say before a machine is used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import CONTROL_REGISTERS, IDENTITY, ControlRegister, Status, board_code, parameter_values
from weft.runtime.driver.bridge import Bridge
from weft.runtime.driver.transport import WORD_BYTES
from weft.support.errors import WeftError, explain

RESET_SECONDS = 1.0
LONGEST_PAUSE = 0.05
"""The longest seconds between two readings of STATUS."""


class DeviceError(WeftError):
    """The error for a device that is not the one meant, is busy, or does not do what it is told."""


class Registers:
    """Control registers by name, from byte ``base`` on: a core's, or those of a system of several."""

    def __init__(self, bridge: Bridge, base: int, table: Mapping[str, ControlRegister] = CONTROL_REGISTERS) -> None:
        self.bridge, self.base, self.table = bridge, base, table

    def read(self, name: str) -> int:
        """Return a register's value."""
        return int(self.bridge.read(self._at(name), 1)[0])

    def counters(self) -> tuple[int, int]:
        """Return the counters of cycles and of instructions, which must stand still."""
        names = ("CYCLES_LOW", "CYCLES_HIGH", "INSTRUCTIONS_LOW", "INSTRUCTIONS_HIGH")
        assert [self._at(name) - self._at(names[0]) for name in names] == [WORD_BYTES * at for at in range(len(names))]
        found = self.bridge.read(self._at(names[0]), len(names)).tolist()
        return found[0] | found[1] << 32, found[2] | found[3] << 32

    def write(self, name: str, value: int) -> None:
        """Write a register that keeps its value."""
        self.bridge.write(self._at(name), np.array([value], np.uint32))

    def command(self, name: str, value: int) -> None:
        """Write a register that acts when it is written."""
        self.bridge.command(self._at(name), value)

    def _at(self, name: str) -> int:
        """Return the byte address of a register."""
        return self.base + self.table[name].offset


def check_there(registers: Registers, name: str) -> None:
    """Raise DeviceError unless a weft machine answers that nobody else uses."""
    found = registers.read("IDENTITY")
    if found != IDENTITY:
        raise DeviceError(explain(f"device {name}", f"{found:#010x} in IDENTITY", f"{IDENTITY:#010x}: a weft machine",
                                  "load the bitstream, and check the address of the registers"))
    until = registers.bridge.transport.seconds() + RESET_SECONDS
    while registers.read("STATUS") >> Status.RUNNING & 1:
        if registers.bridge.transport.seconds() > until:
            raise DeviceError(explain(f"device {name}", "a program that runs", "a machine that rests",
                                      "wait for the other user, or reset the board"))
        registers.bridge.pause(LONGEST_PAUSE)


def check_machine(registers: Registers, arch: Arch, name: str) -> None:
    """Raise DeviceError if the machine does not run programs for ``arch``."""
    for register, wanted in parameter_values(arch).items():
        found = registers.read(register)
        if found != wanted:
            raise DeviceError(explain(f"{register} of device {name}", f"{found:#x}", f"{wanted:#x}, which the model "
                                      "was compiled for", "compile the model for the machine of this device, or load "
                                      "the bitstream of the model's"))


def check_cores(system: Registers, arch: Arch, name: str) -> None:
    """Raise DeviceError, which calls the device ``name``, if it has not as many cores as ``arch``."""
    found = system.read("CORES")
    if found != arch.cores:
        raise DeviceError(explain(f"CORES of device {name}", f"{found:#x}", f"{arch.cores:#x}, which the model was "
                                  "compiled for", "compile the model for the machine of this device, or load the "
                                  "bitstream of the model's"))


def check_board(registers: Registers, board: str, name: str) -> None:
    """Raise DeviceError if the bitstream is for another board; 0 names none, for designs made by other means."""
    found = registers.read("BOARD")
    if found not in (0, board_code(board)):
        raise DeviceError(explain(
            f"BOARD of device {name}", f"{found:#010x}", f"{board_code(board):#010x}: {board}", "name the board, or "
            f"give the shell.json, that the bitstream was made for; or load the bitstream of {board}"))
