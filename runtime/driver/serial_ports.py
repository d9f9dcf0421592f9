# SPDX-License-Identifier: Apache-2.0
"""Find the machine on a serial line: which port, and which rate, by reading the register IDENTITY."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from weft.hw.contract.csr import CONTROL_REGISTERS, IDENTITY
from weft.runtime.driver import uartbone
from weft.runtime.driver.transport import LinkError, LinkFault, Transport
from weft.support.errors import explain
from weft.support.packages import no_package

AUTO = "auto"
"""The word in place of a port's name: any port with a machine."""
TRIES = 2
"""The attempts to read IDENTITY, at each rate."""


def open_found(port: str, bauds: Sequence[int], registers: int) -> Transport:
    """Return the line to the machine: on ``port``, or with AUTO on any USB serial port, at one of ``bauds``.

    ``registers``: byte address of the machine's registers. Raise LinkError if nobody answers, or several do."""
    if port != AUTO:
        return uartbone.open_serial(port, bauds[0]) if len(bauds) == 1 else _asked(port, bauds, registers)
    found: list[Transport] = []
    silent: list[str] = []
    for each in usb_ports():
        try:
            found.append(_asked(each, bauds, registers, only_ours=True))
        except LinkError as error:
            silent.append(str(error))
    if len(found) == 1:
        return found[0]
    for transport in found:
        transport.close()
    if found:
        names = [transport.name for transport in found]
        raise LinkError(explain("device serial:auto", f"machines on {', '.join(names)}", "one machine",
                                f"name its port: {' or '.join(names)}"))
    raise LinkError(explain("device serial:auto", " and ".join(silent) or "no USB serial port", "one board with its "
                            "bitstream loaded", "plug the board in and load its bitstream: weft board flash BOARD"))


def usb_ports() -> list[str]:
    """Return the names of this machine's serial ports that are USB devices. Raises LinkError without pyserial."""
    try:
        from serial.tools.list_ports import comports
    except ModuleNotFoundError:
        raise LinkError(no_package("device serial:auto", "pyserial", "board")) from None
    return sorted(port.device for port in comports() if port.vid is not None)


def _asked(port: str, bauds: Sequence[int], registers: int, *, only_ours: bool = False) -> Transport:
    """Return the line at the first rate at which a machine answers; without ``only_ours`` any answer will do.

    Raise LinkError if nobody answers."""
    answers: list[int] = []
    for baud in bauds:
        transport = uartbone.open_serial(port, baud)
        answer = next(_answers(transport, registers), None)
        if answer == IDENTITY:
            return transport
        transport.close()
        answers += [baud] * (answer is not None)
    if answers and not only_ours:
        return uartbone.open_serial(port, answers[0])
    rates = ", ".join(map(str, bauds))
    raise LinkError(explain(f"device serial:{port}", f"no answer at {rates} baud", "a board with its bitstream loaded",
                            "look at cable and power, load the bitstream (weft board flash BOARD), or give another "
                            "rate as ?baud=N"))


def _answers(transport: Transport, registers: int) -> Iterator[int]:
    """Yield the answers to reading IDENTITY."""
    for _ in range(TRIES):
        with contextlib.suppress(LinkFault):
            yield int(transport.read(registers + CONTROL_REGISTERS["IDENTITY"].offset, 1)[0])
        transport.resynchronise()
