# SPDX-License-Identifier: Apache-2.0
"""Find the ``shell.json`` of a board that answers, among those that ``weft board build`` left.

The machine's registers say which board its bitstream is for (BOARD) and which machine it is (ARCH_HASH)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from weft.boards import BOARDS
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import arch_hash, board_code
from weft.runtime.driver.registers import DeviceError, Registers
from weft.runtime.driver.shell_file import BUILT, NAME, ShellFile
from weft.support.errors import WeftError, explain

MOST_FILES = 64


def built_shells() -> Iterator[tuple[Path, ShellFile | WeftError]]:
    """Yield every file below BUILT with its content, or with the error that says why it has none."""
    for path in sorted(BUILT.glob(f"*/{NAME}"))[:MOST_FILES]:
        try:
            yield path, ShellFile.load(path)
        except WeftError as error:
            yield path, error


def known_bauds() -> list[int]:
    """Return the rates of all boards' UARTs, the most usual one first."""
    shells = [shell for _, shell in built_shells() if isinstance(shell, ShellFile)]
    rates = [*(shell.baud for shell in shells), *(board.shell.baud for board in BOARDS.values() if board.shell)]
    return sorted(set(rates), key=lambda rate: (-rates.count(rate), rate))


def shell_of(registers: Registers, name: str) -> ShellFile | None:
    """Return the shell of the board behind ``registers``; None for a machine in a design that names no board.

    Raise DeviceError if no file belongs to that board, with the command that makes one."""
    code = registers.read("BOARD")
    if not code:
        return None
    machine, why = registers.read("ARCH_HASH"), f"no {NAME} of this board in {BUILT} of this folder"
    for path, shell in built_shells():
        if isinstance(shell, WeftError):
            why = f"{why}; {path} cannot be read"
        elif board_code(shell.board) == code:
            if _hash_of(shell) == machine and shell.machine_base == registers.base:
                return shell
            why = f"{path}, which is of another machine than the bitstream that is loaded"
    board = next((key for key in BOARDS if board_code(key) == code), None)
    make = f"weft board build {board}" if board else "weft board build"
    raise DeviceError(explain(
        f"shell of device {name}", why, f"the {NAME} that was made with the bitstream of {board or f'board {code:#x}'}",
        f"go to the folder in which {make} was run, give the file as ?shell=FILE, or make and load both: {make}"))


def _hash_of(shell: ShellFile) -> int | None:
    """Return the ARCH_HASH of a shell's machine, or None if it is no legal machine."""
    try:
        return arch_hash(Arch.from_dict(shell.arch))
    except WeftError:
        return None
