# SPDX-License-Identifier: Apache-2.0
"""Links on which one chosen message suffers one chosen fault: a question to the far end, or its answer.

Time is virtual, as in ``link_models.py``. A test arms the fault for the message that it means."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.tb.bench.link_models import Bus, UartLine, UartWire, UdpWire

FOREVER = 1e9
OFF_SECONDS = 1.0
"""The seconds for which a cable is out, or the far end says nothing: longer than any host waits for one answer."""
WORD_BYTES = 4


def _doubled(message: bytes, _: random.Random) -> list[bytes]:
    return [message, message]


def _damaged(message: bytes, chance: random.Random) -> list[bytes]:
    where = chance.randrange(len(message))
    return [message[:where] + bytes([message[where] ^ 1 << chance.randrange(8)]) + message[where + 1:]]


def _stray(message: bytes, chance: random.Random) -> list[bytes]:
    return [chance.randbytes(chance.randrange(1, 9)), message]


def _wrong_length(message: bytes, chance: random.Random) -> list[bytes]:
    return [message[:-WORD_BYTES]] if chance.random() < 0.5 else [message + chance.randbytes(WORD_BYTES)]


def _wrong_flags(message: bytes, chance: random.Random) -> list[bytes]:
    """Change a byte of the head: on the line the command or its length, in a packet its magic, version or sizes."""
    where = chance.randrange(min(len(message), 4 if message[:2] == b"\x4e\x6f" else 2))
    return [message[:where] + bytes([message[where] ^ 3]) + message[where + 1:]]


CHANGES: dict[str, Callable[[bytes, random.Random], list[bytes]]] = {
    "lost": lambda message, _: [], "doubled": _doubled, "damaged": _damaged, "stray": _stray,
    "wrong length": _wrong_length, "wrong flags": _wrong_flags}
"""The parts of a message that arrive."""
FAULTS = (*CHANGES, "late", "silent", "unplugged")


@dataclass
class Fault:
    """A fault that strikes the next message once it is ``armed``: a question, or an answer if ``in_answer``.

    ``silent`` and ``unplugged`` last ``off_seconds``. ``power``: is called as they begin, such as to lose memory."""

    kind: str
    in_answer: bool = False
    seed: int = 0
    off_seconds: float = OFF_SECONDS
    power: Callable[[], None] = lambda: None
    armed: bool = False
    struck: int = 0
    off_until: float = -1.0
    held: list[tuple[float, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.kind} {self.in_answer} {self.seed}")

    def carried(self, message: bytes, is_answer: bool, now: float) -> list[bytes]:
        """Return what arrives of a message at once; ``held`` keeps what is late, with the time when it arrives."""
        if self.off(now):
            return []
        if not self.armed or is_answer != self.in_answer or not message:
            return [message]
        self.armed, self.struck = False, self.struck + 1
        if self.kind in CHANGES:
            return CHANGES[self.kind](message, self.random)
        if self.kind == "late":
            self.held.append((now + self.random.uniform(0.05, 0.4), message))
        else:
            self.off_until = now + self.off_seconds
            self.power()
        return []

    def off(self, now: float) -> bool:
        """Tell whether nothing comes through."""
        return now < self.off_until

    def unplugged(self, now: float) -> bool:
        """Tell whether the host notices that nothing is plugged in."""
        return self.kind == "unplugged" and self.off(now)

    def due(self, now: float) -> list[bytes]:
        """Return the late messages that arrive by now."""
        found = [message for at, message in self.held if at <= now]
        self.held = [each for each in self.held if each[0] > now]
        return found


class FaultyUart(UartWire):
    """A serial line with one fault."""

    def __init__(self, bus: Bus, fault: Fault, room: int = 0) -> None:
        super().__init__(bus, room=room)
        self.fault = fault

    def open(self) -> FaultyLine:
        """Return the host's end. Raise LinkError while it is unplugged."""
        self.plugged = not self.fault.unplugged(self.now)
        super().open()
        return FaultyLine(self, self.fault)


class FaultyLine(UartLine):
    """The host's end of a serial line with one fault."""

    def __init__(self, wire: FaultyUart, fault: Fault) -> None:
        super().__init__(wire)
        self._fault = fault

    def write(self, content: bytes) -> int:
        """Send a question; what is late arrives before it."""
        self._insist()
        late = self._fault.due(self._wire.now) if not self._fault.in_answer else []
        for message in [*late, *self._fault.carried(content, False, self._wire.now)]:
            before = bytes(self._input)
            super().write(message)
            answer = bytes(self._input)[len(before):]
            self._input.clear()
            self._input.extend(before + b"".join(self._fault.carried(answer, True, self._wire.now)))
        self._insist()
        return len(content)

    def _insist(self) -> None:
        """Raise OSError if nothing is plugged in; take what is late."""
        self._wire.plugged = not self._fault.unplugged(self._wire.now)
        super()._insist()
        if self._fault.in_answer:
            self._input.extend(b"".join(self._fault.due(self._wire.now)))


class FaultyUdp(UdpWire):
    """A connected socket with one fault."""

    def __init__(self, bus: Bus, fault: Fault) -> None:
        super().__init__(bus)
        self.fault = fault

    def send(self, content: bytes, /) -> int:
        """Send a question; what is late arrives before it. Raise OSError while nothing is plugged in."""
        if self.fault.unplugged(self.now):
            raise OSError(101, "Network is unreachable")
        late = self.fault.due(self.now) if not self.fault.in_answer else []
        for message in [*late, *self.fault.carried(content, False, self.now)]:
            before = list(self._input)
            super().send(message)
            answers = list(self._input)[len(before):]
            self._input.clear()
            self._input.extend(before)
            for answer in answers:
                self._input.extend(self.fault.carried(answer, True, self.now))
        return len(content)

    def recv(self, size: int, /) -> bytes:
        """Return the next packet, late ones among them."""
        if self.fault.in_answer:
            self._input.extend(self.fault.due(self.now))
        return super().recv(size)
