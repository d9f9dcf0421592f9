# SPDX-License-Identifier: Apache-2.0
"""Etherbone over UDP, as LiteEth answers it: one record in a packet, addresses and data of 32 bits.

A packet is a header and a record. The record's header has the numbers of writes and reads, and for each of the two
follow a base address and its words or addresses. All numbers have their highest byte first. A read is answered by a
packet that writes the words to the base address in the question. So each question has a number, and late answers are
recognised. No record has both writes and reads: LiteEth takes the base address of the answer for the first address to
read then, and is a word behind ever after (its state ``RECEIVE_BASE_RET_ADDR`` leaves that word in the buffer)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from weft.hw.contract.host_link import ETHERBONE_PORT
from weft.runtime.driver.transport import WORD_BYTES, LinkError, LinkFault, Read, Write
from weft.support.errors import explain
from weft.support.files import reason

HEADER = struct.Struct(">HBB4x")
RECORD = struct.Struct(">BBBB")
MAGIC, VERSION = 0x4E6F, 1 << 4
SIZES = 4 << 4 | 4
"""The bytes of an address and of a word, as the header states them."""
ALL_BYTES = 0xF
MOST_WORDS = 255
"""The most words of a record: with their base address, as many as the far end keeps."""
PATIENCE_SECONDS = 0.1
SETTLE_SECONDS = 0.02
"""The time after a fault in which packets under way arrive, and are dropped."""
MOST_FOREIGN = 64
"""The packets without the answer after which a question counts as not answered."""
LARGEST_PACKET = 2048


class Datagrams(Protocol):
    """A connected UDP socket."""

    def send(self, content: bytes, /) -> int:
        """Send a packet."""
    def recv(self, size: int, /) -> bytes:
        """Return the next packet."""
    def settimeout(self, seconds: float | None, /) -> None:
        """Set the time to wait for a packet."""
    def close(self) -> None:
        """Close the socket."""


class Record(NamedTuple):
    """The record of a packet: ``words`` to write from ``base`` on, or ``asked``, the addresses to read."""

    base: int = 0
    words: np.ndarray = np.empty(0, np.uint32)
    asked: np.ndarray = np.empty(0, np.int64)


class Etherbone:
    """A transport over a UDP socket."""

    most_words = MOST_WORDS
    window_words = MOST_WORDS
    """A packet: where two are on the way and the first is lost, the second is carried out without it."""
    most_reads = MOST_WORDS

    def __init__(self, name: str, link: Datagrams, sleep: Callable[[float], None] = time.sleep,
                 seconds: Callable[[], float] = time.monotonic) -> None:
        self.name, self._link, self._sleep, self.seconds = name, link, sleep, seconds
        self._number = 0

    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words (uint32). Raise LinkFault without an answer."""
        return self.exchange([], [(address, count)])[0]

    def write(self, address: int, words: np.ndarray) -> None:
        """Send words. Raise LinkFault if they cannot be sent."""
        self._send(_packet(Record(address, words)))

    def exchange(self, writes: Sequence[Write], reads: Sequence[Read]) -> list[np.ndarray]:
        """Send writes, then reads behind them; return the words of each read. Raise LinkFault without an answer."""
        for record in _records(writes):
            self._send(_packet(record))
        counts = [count for _, count in reads]
        asked = np.concatenate([np.empty(0, np.int64), *(at + WORD_BYTES * np.arange(count) for at, count in reads)])
        answers = [self._ask(Record(asked=asked[at:at + MOST_WORDS])) for at in range(0, len(asked), MOST_WORDS)]
        return np.split(np.concatenate(answers), np.cumsum(counts)[:-1]) if reads else []

    def _ask(self, question: Record) -> np.ndarray:
        """Send a record with reads; return the words that answer it. Raise LinkFault without an answer."""
        self._number = (self._number + 1) % (1 << 32)
        self._send(_packet(question, self._number))
        self._link.settimeout(PATIENCE_SECONDS)
        for _ in range(MOST_FOREIGN):
            try:
                words = _answer(self._link.recv(LARGEST_PACKET), self._number)
            except TimeoutError:
                raise LinkFault("no answer") from None
            except OSError as error:
                raise self._fault(error) from None
            if words is not None and len(words) == len(question.asked):
                return words
        raise LinkFault("answers to other questions")

    def resynchronise(self) -> bool:
        """Drop all packets that arrive; return False, because a socket is never reopened."""
        self._sleep(SETTLE_SECONDS)
        self._link.settimeout(0)
        for _ in range(MOST_FOREIGN):
            try:
                self._link.recv(LARGEST_PACKET)
            except OSError:
                break
        return False

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)

    def close(self) -> None:
        """Close the socket."""
        self._link.close()

    def _send(self, packet: bytes) -> None:
        """Send a packet. Raise LinkFault if it cannot be sent."""
        try:
            self._link.send(packet)
        except OSError as error:
            raise self._fault(error) from None

    def _fault(self, error: OSError) -> LinkFault:
        """Wait as long as for an answer, because the system refuses at once, and return the fault to raise.

        So a cable that is out for a second does not use up all attempts."""
        self._sleep(PATIENCE_SECONDS)
        return LinkFault(reason(error))


def _records(writes: Sequence[Write]) -> list[Record]:
    """Return records of at most MOST_WORDS words, each of writes that follow each other in memory."""
    found: list[Record] = []
    for address, words in writes:
        last = found[-1] if found else Record()
        if len(last.words) and last.base + last.words.nbytes == address and len(last.words) + len(words) <= MOST_WORDS:
            found[-1] = last._replace(words=np.concatenate([last.words, words]))
        else:
            found.append(Record(address, words))
    return found


def _packet(record: Record, number: int = 0) -> bytes:
    """Return the packet of a record; the answer to its reads has ``number``."""
    head = HEADER.pack(MAGIC, VERSION, SIZES) + RECORD.pack(0, ALL_BYTES, len(record.words), len(record.asked))
    writes = record.base.to_bytes(4, "big") + record.words.astype(">u4").tobytes() if len(record.words) else b""
    return head + writes + (number.to_bytes(4, "big") + record.asked.astype(">u4").tobytes()
                            if len(record.asked) else b"")


def _answer(packet: bytes, number: int) -> np.ndarray | None:
    """Return the words of the answer to question ``number``; None for any other packet."""
    start = HEADER.size + RECORD.size + 4
    if len(packet) < start or HEADER.unpack_from(packet) != (MAGIC, VERSION, SIZES):
        return None
    _, _, writes, reads = RECORD.unpack_from(packet, HEADER.size)
    base = int.from_bytes(packet[start - 4:start], "big")
    if reads or writes * WORD_BYTES != len(packet) - start or base != number:
        return None
    return np.frombuffer(packet, ">u4", offset=start).astype(np.uint32)


def open_udp(host: str, port: int = ETHERBONE_PORT) -> Etherbone:
    """Return the transport to a board by its host name or address.

    Raise LinkError if the name is unknown or the port taken."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        link.bind(("", port))
        link.connect((host, port))
    except (OSError, UnicodeError) as error:
        link.close()
        raise LinkError(explain(f"device udp:{host}", reason(error), "a board's address, and UDP port "
                                f"{port} of this machine free", "look at the address, and whether another program "
                                "talks to the board")) from None
    return Etherbone(f"udp:{host}", link)
