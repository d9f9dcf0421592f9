# SPDX-License-Identifier: Apache-2.0
"""UARTBone: LiteX's bridge from a serial line to the bus.

A command is one byte (1 writes, 2 reads, to rising addresses), the number of words, the word address and, for a write,
the words. All numbers have their highest byte first. A read is answered by the words alone, a write by nothing. The
remote end gives up a command that is not whole after 100 ms."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft.hw.contract.host_link import ROOM_BYTES
from weft.runtime.driver.transport import WORD_BYTES, LinkError, LinkFault, Read, Write
from weft.support.errors import explain
from weft.support.files import reason
from weft.support.packages import no_package

WRITE, READ = 1, 2
ADDRESS_BYTES = 4
HEAD_BYTES = 2 + ADDRESS_BYTES
MOST_WORDS = 255
PATIENCE_SECONDS = 0.15
"""The host waits so long before it begins anew. The remote end forgets a command that is not whole after 0.1 s."""
EXCHANGE_SECONDS = 0.05
"""The longest exchange on the line, well below the time that the remote end waits."""
BITS_OF_A_BYTE = 10
"""The bits of a byte on the line, with start and stop bit."""
BAUD = 3_000_000


class Line(Protocol):
    """A serial line, as pyserial has it; its read returns less after its timeout."""

    @property
    def in_waiting(self) -> int:
        """The number of bytes that have arrived."""

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""

    def write(self, content: bytes) -> Any:
        """Send bytes."""

    def reset_input_buffer(self) -> None:
        """Drop all bytes that have arrived."""

    def close(self) -> None:
        """Close the line."""


class UartBone:
    """A transport over a line that ``open_line`` opens, again after it was unplugged.

    Creating it raises LinkError if the line cannot be opened. Only our own shells take several reads at once
    (ROOM_BYTES), and so :meth:`exchange`."""

    most_reads = 1 + ROOM_BYTES // HEAD_BYTES

    def __init__(self, name: str, open_line: Callable[[], Line], baud: int = BAUD,
                 sleep: Callable[[float], None] = time.sleep,
                 seconds: Callable[[], float] = time.monotonic) -> None:
        self.name, self._open_line, self._sleep, self.seconds = name, open_line, sleep, seconds
        self.window_words = max(1, int(baud * EXCHANGE_SECONDS) // (BITS_OF_A_BYTE * WORD_BYTES) - 2)
        self.most_words = min(MOST_WORDS, self.window_words)
        self._line: Line | None = open_line()
        self._why = ""

    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words. Raise LinkFault without a whole answer."""
        return self.exchange([], [(address, count)])[0]

    def write(self, address: int, words: np.ndarray) -> None:
        """Send words. Raise LinkFault if the line is lost."""
        self.exchange([(address, words)], [])

    def exchange(self, writes: Sequence[Write], reads: Sequence[Read]) -> list[np.ndarray]:
        """Send writes and reads; return the words of each read. Raise LinkFault without a whole answer."""
        line, counts = self._usable(), [count for _, count in reads]
        size = sum(counts) * WORD_BYTES
        try:
            if reads and line.in_waiting:
                raise LinkFault("bytes that nobody asked for")
            line.write(b"".join([*map(_write_command, writes), *(_head(READ, *each) for each in reads)]))
            answer = line.read(size) if reads else b""
            more = line.in_waiting if reads else 0
        except OSError as error:
            raise self._lost(line, error) from None
        if more or len(answer) != size:
            raise LinkFault(f"{len(answer) + more} of {size} bytes")
        return np.split(np.frombuffer(answer, ">u4").astype(np.uint32), np.cumsum(counts)[:-1]) if reads else []

    def resynchronise(self) -> bool:
        """Wait until the remote end forgets a command, and drop what has arrived.

        Return whether a lost line was opened again."""
        self._sleep(PATIENCE_SECONDS)
        opened = False
        if self._line is None:
            try:
                self._line, opened = self._open_line(), True
            except LinkError as error:
                self._why = str(error)
                return False
        try:
            self._line.reset_input_buffer()
        except OSError as error:
            self._lost(self._line, error)
        return opened

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)

    def close(self) -> None:
        """Close the line."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _usable(self) -> Line:
        """Return the line. Raise LinkFault if it is lost."""
        if self._line is None:
            raise LinkFault(self._why)
        return self._line

    def _lost(self, line: Line, error: OSError) -> LinkFault:
        """Close the line, which the next resynchronisation opens again, and return the fault to raise."""
        self._line, self._why = None, reason(error)
        with contextlib.suppress(OSError):
            line.close()
        return LinkFault(self._why)


def _write_command(write: Write) -> bytes:
    """Return the command that writes words."""
    address, words = write
    return _head(WRITE, address, len(words)) + words.astype(">u4").tobytes()


def _head(command: int, address: int, count: int) -> bytes:
    """Return the head of a command."""
    return bytes([command, count]) + (address // WORD_BYTES).to_bytes(ADDRESS_BYTES, "big")


def open_serial(port: str, baud: int = BAUD) -> UartBone:
    """Return the transport on a serial port.

    Raise LinkError without pyserial, without the port and without the permission to open it."""
    try:
        import serial  # an extra: only boards need it
    except ModuleNotFoundError:
        raise LinkError(no_package(f"serial port {port}", "pyserial", "board")) from None

    def open_line() -> Line:
        try:
            line = serial.Serial(port, baud, timeout=PATIENCE_SECONDS, write_timeout=1, exclusive=True)
        except (OSError, ValueError) as error:
            raise LinkError(_refused(port, error)) from None
        _answer_at_once(line)
        return line

    return UartBone(f"serial:{port}", open_line, baud)


def _answer_at_once(line: Any) -> None:
    """Ask a USB converter not to collect bytes for 16 ms; not every system can."""
    with contextlib.suppress(AttributeError, OSError, ValueError, NotImplementedError):
        line.set_low_latency_mode(True)


def _refused(port: str, error: Exception) -> str:
    """Return the message for a port that cannot be opened."""
    text = str(error).lower()
    if "permission" in text:
        return explain(f"serial port {port}", "no permission to open it", "a port that this user may open",
                       "join the port's group (sudo usermod -aG dialout $USER, then log in again)")
    if "exclusively lock" in text or "busy" in text or "temporarily unavailable" in text:
        return explain(f"serial port {port}", "a port that another program has open", "a free port",
                       "close the other program")
    return explain(f"serial port {port}", reason(error), "a serial port of this machine",
                   "plug the board in and look at ls /dev/serial/by-id")
