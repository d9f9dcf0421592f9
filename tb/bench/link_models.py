# SPDX-License-Identifier: Apache-2.0
"""Far ends of a link, as LiteX has them, with memory and with a line that loses, doubles, flips and is cut.

Time is virtual: waiting costs nothing. Every fault is drawn from a seed.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from weft.runtime.driver.transport import LinkError

NOTHING = 0xFFFF_FFFF
"""The word that a bus answers where nobody is."""
WORDS = 1 << 30
"""The words of a Wishbone bus with 32 bits of byte address: higher bits of a word address have no wire."""
KINDS = ("drop", "flip", "duplicate", "cut")


class Bus(Protocol):
    """What a far end reads and writes: words at byte addresses."""

    def read(self, address: int) -> int: ...
    def write(self, address: int, word: int) -> None: ...


class Memory:
    """A Bus: words from byte ``base`` on; elsewhere is nothing."""

    def __init__(self, base: int, size: int) -> None:
        self.base, self.words = base, np.zeros(size, np.uint32)

    def read(self, address: int) -> int:
        index = (address - self.base) // 4
        return int(self.words[index]) if 0 <= index < len(self.words) else NOTHING

    def write(self, address: int, word: int) -> None:
        index = (address - self.base) // 4
        if 0 <= index < len(self.words):
            self.words[index] = word


class Witnessed:
    """A Bus with the witness of our shells at byte ``address``: it looks at every access."""

    def __init__(self, bus: Bus, address: int) -> None:
        self.bus, self.address, self.crcs = bus, address, {True: 0, False: 0}

    def read(self, address: int) -> int:
        place = (address - self.address) // 4
        word = self.crcs[place == 0] if 0 <= place < 2 else self.bus.read(address)
        self._saw(False, address, word)
        return word

    def write(self, address: int, word: int) -> None:
        self.bus.write(address, word)
        self._saw(True, address, word)

    def _saw(self, written: bool, address: int, word: int) -> None:
        self.crcs[written] = zlib.crc32(struct.pack("<II", address // 4 % (1 << 30), word), self.crcs[written])


class Faults:
    """Faults that strike single elements (bytes or packets) of what is carried, ``apart`` elements apart on average.

    ``left`` of them are still to come. ``now``: tells the time, for a cut lasts some."""

    def __init__(self, seed: int, count: int, apart: int, flip: Callable[[random.Random, bytes], bytes],
                 kinds: Iterable[str] = KINDS, cut_seconds: float = 0.3) -> None:
        self.random, self.left, self.apart, self.flip = random.Random(f"faults {seed}"), count, apart, flip
        self.kinds, self.cut_seconds, self.seen = tuple(kinds), cut_seconds, dict.fromkeys(kinds, 0)
        self._cut_until, self._next = -1.0, self._distance()

    def _distance(self) -> int:
        return self.random.randint(1, 2 * self.apart)

    def carry(self, element: bytes, now: float) -> list[bytes]:
        """Return what arrives of one element."""
        if now < self._cut_until:
            return []
        self._next -= 1
        if self._next > 0 or not self.left:
            return [element]
        self.left, self._next = self.left - 1, self._distance()
        kind = self.random.choice(self.kinds)
        self.seen[kind] += 1
        if kind == "cut":
            self._cut_until = now + self.random.uniform(0, self.cut_seconds)
        return {"drop": [], "cut": [], "duplicate": [element] * 2, "flip": [self.flip(self.random, element)]}[kind]


def flip_bits(rng: random.Random, element: bytes) -> bytes:
    """Return an element with one bit flipped or, one time in four, any other content of one byte."""
    where = rng.randrange(len(element))
    change = rng.randrange(1, 256) if rng.random() < 0.25 else 1 << rng.randrange(8)
    return element[:where] + bytes([element[where] ^ change]) + element[where + 1:]


# -- UARTBone ----------------------------------------------------------------------------------------------------------
class UartFarEnd:
    """LiteX's Stream2Wishbone, byte by byte; a command that is not whole after 100 ms is forgotten.

    While it sends an answer, at most ``room`` bytes wait for it; more are lost."""

    def __init__(self, memory: Bus, byte_seconds: float = 0.0, room: int = 0) -> None:
        self.memory, self.byte_seconds, self.room = memory, byte_seconds, room
        self._command = bytearray()
        self._began, self._written = 0.0, 0
        self.busy_until, self._waiting = 0.0, 0

    def arrive(self, byte: int, now: float) -> bytes:
        """Return what is sent for a byte that arrives now, at once or when it can be taken; nothing if it is lost."""
        if now >= self.busy_until:
            self._waiting = 0
        elif self._waiting == self.room:
            return b""
        else:
            self._waiting += 1
        answer = self.take(byte, max(now, self.busy_until))
        if answer:
            self.busy_until = max(now, self.busy_until) + len(answer) * self.byte_seconds
        return answer

    def take(self, byte: int, now: float) -> bytes:
        """Take a byte; return what is sent for it."""
        if self._command and now - self._began >= 0.1:
            self._forget()
        if not self._command:
            self._began = now
        self._command.append(byte)
        if len(self._command) < 6:
            return b""
        kind, count, address = self._command[0], self._command[1] or 256, int.from_bytes(self._command[2:6], "big")
        if kind in (2, 4):
            self._forget()
            places = [address + (index if kind == 2 else 0) for index in range(count)]
            return b"".join(self.memory.read(place % WORDS * 4).to_bytes(4, "big") for place in places)
        if kind not in (1, 3):
            self._forget()
        elif len(self._command) == 6 + 4 * (self._written + 1):
            word = int.from_bytes(self._command[-4:], "big")
            self.memory.write((address + (self._written if kind == 1 else 0)) % WORDS * 4, word)
            self._written += 1
            if self._written == count:
                self._forget()
        return b""

    def _forget(self) -> None:
        self._command.clear()
        self._written = 0


class UartLine:
    """A serial line to a far end, as pyserial shows it: the host's end."""

    def __init__(self, wire: UartWire) -> None:
        self._wire, self._input, self.lost = wire, deque[int](), False

    def write(self, content: bytes) -> int:
        self._insist()
        for byte in content:
            self._wire.now += self._wire.byte_seconds
            for arrived in self._wire.carry(byte):
                for answer in self._wire.far_end.arrive(arrived, self._wire.now):
                    self._input.extend(self._wire.carry(answer))
        return len(content)

    def read(self, size: int) -> bytes:
        self._insist()
        self._wire.now = max(self._wire.now, self._wire.far_end.busy_until) + self._wire.turnaround
        if len(self._input) < size:
            self._wire.now += 0.15
        return bytes(self._input.popleft() for _ in range(min(size, len(self._input))))

    @property
    def in_waiting(self) -> int:
        self._insist()
        return len(self._input)

    def reset_input_buffer(self) -> None:
        self._insist()
        self._input.clear()

    def close(self) -> None:
        self.lost = True

    def _insist(self) -> None:
        if self.lost or not self._wire.plugged:
            self.lost = True
            raise OSError(5, "Input/output error")


class UartWire:
    """The line, its faults, and whether it is ``plugged``.

    ``room``: of the far end (UartFarEnd). ``turnaround``: seconds that an answer takes besides its bytes."""

    def __init__(self, memory: Bus, faults: Faults | None = None, baud: int = 3_000_000, room: int = 0,
                 turnaround: float = 0.0) -> None:
        self.faults, self.byte_seconds, self.turnaround = faults, 10 / baud, turnaround
        self.far_end = UartFarEnd(memory, self.byte_seconds, room)
        self.now, self.plugged = 0.0, True

    def open(self) -> UartLine:
        if not self.plugged:
            raise LinkError("serial port: found nothing; allowed: a port; way out: plug it in")
        return UartLine(self)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def seconds(self) -> float:
        return self.now

    def carry(self, byte: int) -> list[int]:
        if self.faults is None:
            return [byte]
        return [arrived[0] for arrived in self.faults.carry(bytes([byte]), self.now)]


# -- Etherbone ---------------------------------------------------------------------------------------------------------
class UdpWire:
    """A connected socket to LiteEth's Etherbone. Damaged packets arrive: LiteEth passes on frames with a wrong CRC.

    ``byte_seconds`` of line for each byte of a packet, ``turnaround`` seconds for an answer."""

    def __init__(self, memory: Bus, faults: Faults | None = None, byte_seconds: float = 0.0,
                 turnaround: float = 0.0) -> None:
        self.memory, self.faults, self.now, self.plugged = memory, faults, 0.0, True
        self.byte_seconds, self.turnaround = byte_seconds, turnaround
        self._input = deque[bytes]()
        self._patience = 0.0

    def send(self, content: bytes, /) -> int:
        self.now += len(content) * self.byte_seconds
        for packet in self._carry(content):
            for answer in self._answers(packet):
                self._input.extend(self._carry(answer))
        return len(content)

    def recv(self, size: int, /) -> bytes:
        if not self._input:
            self.now += self._patience
            raise TimeoutError("timed out") if self._patience else BlockingIOError(11, "nothing there")
        packet = self._input.popleft()[:size]
        self.now += len(packet) * self.byte_seconds + self.turnaround
        return packet

    def settimeout(self, seconds: float | None, /) -> None:
        self._patience = seconds or 0.0

    def close(self) -> None:
        self.plugged = False

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def seconds(self) -> float:
        return self.now

    def _carry(self, packet: bytes) -> list[bytes]:
        if not self.plugged:
            return []
        return [packet] if self.faults is None else self.faults.carry(packet, self.now)

    def _answers(self, packet: bytes) -> list[bytes]:
        if packet[:2] != b"\x4e\x6f" or len(packet) < 16:
            return []
        writes, reads = packet[10], packet[11]
        if writes and reads:
            return []  # LiteEth answers other addresses, if at all (tb/unit/boards/test_ethernet.py)
        words = [int.from_bytes(packet[at:at + 4], "big") for at in range(12, len(packet) - 3, 4)]
        if writes:
            base, data, words = words[0], words[1:writes + 1], words[writes + 1:]
            for index, word in enumerate(data):
                self.memory.write(base // 4 * 4 + 4 * index, word)
        if not reads or not words:
            return []
        found = [self.memory.read(address // 4 * 4) for address in words[1:reads + 1]]
        head = struct.pack(">HBB4xBBBBI", 0x4E6F, 0x10, 0x44, 0, 0xF, len(found), 0, words[0])
        return [head + struct.pack(f">{len(found)}I", *found)]
