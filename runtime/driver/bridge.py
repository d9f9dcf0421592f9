# SPDX-License-Identifier: Apache-2.0
"""Memory and registers at byte addresses, over a link that may lose, double or damage what it carries.

LiteX's links answer no write and have no check sums, so the bridge checks for itself (docs/decisions/host-link.md):

* Only words that differ are written, and they are read before and after. So a write that went elsewhere shows: what it
was meant for is as before.
* A caller's read is repeated until two readings agree.
* One exchange at a time: a remote end that lost its place gets no bytes that it could take for others.
* After a write that was not seen to arrive, any address may hold anything. That is counted (``strays``), and everything
written before is read again and corrected."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np

from weft.runtime.driver.shadow import Shadow
from weft.runtime.driver.transport import WORD_BYTES, LinkError, LinkFault, Transport
from weft.support.errors import explain

ATTEMPTS = 12
"""The attempts of one exchange before the link counts as broken."""
SILENT_ATTEMPTS = 3
"""The attempts of one exchange after which the far end may have been off and lost what was written."""
REPAIRS = 6
"""The rounds through all that was written, after a stray."""


class Bridge:
    """Checked memory accesses over a transport; every method raises LinkError if nothing helps.

    ``strays``: how often something may have been written to a wrong place, or lost; ``faults``: how often an exchange
    had to be repeated."""

    def __init__(self, transport: Transport) -> None:
        self.transport, self.name = transport, transport.name
        self.strays = self.faults = self._settled = 0
        self.shadow = Shadow()
        """The words that were written and not released: memory has them."""
        self.mark = secrets.randbits(32)
        """The number of this bridge, which a register stores.

        Another number there says that the far end lost its memory, or that somebody else used it."""

    # -- reading ---------------------------------------------------------------------------------------------------
    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words (uint32) from byte ``address``, a multiple of 4."""
        pieces = [self._agreed(at, size) for at, size in self._pieces(address, count)]
        return np.concatenate([np.empty(0, np.uint32), *pieces])

    def _agreed(self, address: int, count: int) -> np.ndarray:
        """Return words once two readings in a row are equal."""
        before = self._once(address, count)
        for _ in range(ATTEMPTS):
            found = self._once(address, count)
            if np.array_equal(before, found):
                return found
            self._recover()
            before = found
        raise self._broken(f"{ATTEMPTS} readings of address {address:#x} that all differ")

    def _once(self, address: int, count: int) -> np.ndarray:
        """Return the words of one reading, right or wrong."""
        return self._persist(lambda: self.transport.read(address, count))

    # -- writing ---------------------------------------------------------------------------------------------------
    def write(self, address: int, words: np.ndarray) -> None:
        """Write words; afterwards memory holds them, and all that were written before and not released."""
        words = np.ascontiguousarray(words, np.uint32)
        if self._sure and self.shadow.holds(address, words):
            return
        self.shadow.keep(address, words)
        self._put(address, words)
        self.settle()

    @property
    def _sure(self) -> bool:
        """Whether nothing went astray since all written words were last seen to be there."""
        return self.strays == self._settled

    def settle(self) -> None:
        """Repair memory if anything may be wrong."""
        if not self._sure:
            self.repair()

    def repair(self) -> None:
        """Read all words that were written, and correct wrong ones."""
        for _ in range(REPAIRS):
            strays = self.strays
            for address, words in self.shadow.kept():
                self._put(address, words)
            if strays == self.strays:
                self._settled = strays
                return
        raise self._broken(f"writes that go astray, {REPAIRS} rounds in a row")

    def _put(self, address: int, words: np.ndarray) -> None:
        """Write words piece by piece, each checked."""
        for at, size in self._pieces(address, len(words)):
            first = (at - address) // WORD_BYTES
            self._put_piece(at, words[first:first + size])

    def _put_piece(self, address: int, words: np.ndarray) -> None:
        """Write one piece and check it; a reading that would end the work without a write must agree with a second."""
        doubtful = False
        for _ in range(ATTEMPTS):
            found = self._agreed(address, len(words)) if doubtful else self._once(address, len(words))
            differing = np.flatnonzero(found != words)
            if not len(differing):
                if doubtful or np.array_equal(self._once(address, len(words)), words):
                    return
                self._recover()
                doubtful = True
                continue
            first, last = int(differing[0]), int(differing[-1])
            if self._write_and_look(address, words, slice(first, last + 1)):
                return
            self._stray()
            doubtful = True
        raise self._broken(f"{ATTEMPTS} writes to address {address:#x} that are not there")

    def _write_and_look(self, address: int, words: np.ndarray, part: slice) -> bool:
        """Write the words ``part`` of a piece; tell whether a first reading shows the whole piece as wanted."""
        try:
            self.transport.write(address + part.start * WORD_BYTES, words[part])
            return np.array_equal(self.transport.read(address, len(words)), words)
        except LinkFault:
            return False

    # -- registers that keep nothing -------------------------------------------------------------------------------
    def command(self, address: int, word: int) -> None:
        """Write a register that does not keep what is written: once, unchecked.

        The caller must check the effect, and call :meth:`doubt` if there is none."""
        try:
            self.transport.write(address, np.array([word], np.uint32))
        except LinkFault:
            self._stray()

    def doubt(self) -> None:
        """Note that a command had no effect, or that memory has changed.

        Something may have been written elsewhere, or lost."""
        self._stray()

    def release(self, address: int, count: int) -> None:
        """Stop keeping these words, because others may write them from now on."""
        self.shadow.release(address, count)

    def pause(self, seconds: float) -> None:
        """Wait, while the far end works."""
        self.transport.pause(seconds)

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()

    # -- faults ----------------------------------------------------------------------------------------------------
    def _stray(self) -> None:
        """Note a stray, and recover the link."""
        self.strays += 1
        self._recover()

    def _recover(self) -> None:
        """Resynchronise the link; a far end that may have been off counts as a stray, as its memory is lost."""
        self.faults += 1
        self.strays += self.transport.resynchronise()

    def _persist(self, exchange: Callable[[], np.ndarray]) -> np.ndarray:
        """Repeat an exchange until it succeeds. Raise LinkError after ATTEMPTS."""
        fault = ""
        for attempt in range(ATTEMPTS):
            try:
                words = exchange()
                self.strays += attempt >= SILENT_ATTEMPTS
                return words
            except LinkFault as error:
                fault = str(error)
                self._recover()
        raise self._broken(f"no whole answer, {ATTEMPTS} times, at last {fault}")

    def _broken(self, found: str) -> LinkError:
        """Return the LinkError to raise when the link fails.

        Also mark everything written as doubtful, since the device may have been switched off."""
        self.strays += 1
        return LinkError(explain(f"link {self.name}", found, "a device that answers", "look at cable and power, then "
                                 "at baud rate or address; load the bitstream again"))

    def _pieces(self, address: int, count: int) -> list[tuple[int, int]]:
        """Return (address, words) of the exchanges that an access needs."""
        most = self.transport.most_words
        return [(address + first * WORD_BYTES, min(most, count - first)) for first in range(0, count, most)]


# -- bytes -------------------------------------------------------------------------------------------------------------
def write_bytes(bridge: Bridge, address: int, content: bytes) -> None:
    """Write any bytes at any address; words at the ends keep their other bytes."""
    start, end = address - address % WORD_BYTES, -(-(address + len(content)) // WORD_BYTES) * WORD_BYTES
    if start == end:
        return
    head = address - start
    tail = end - address - len(content)
    before = bridge.read(start, 1).tobytes()[:head] if head else b""
    after = bridge.read(end - WORD_BYTES, 1).tobytes()[WORD_BYTES - tail:] if tail else b""
    bridge.write(start, np.frombuffer(before + content + after, np.dtype("<u4")))


def read_bytes(bridge: Bridge, address: int, size: int) -> bytes:
    """Return any bytes from any address."""
    start, end = address - address % WORD_BYTES, -(-(address + size) // WORD_BYTES) * WORD_BYTES
    content = bridge.read(start, (end - start) // WORD_BYTES).astype("<u4").tobytes()
    return content[address - start:address - start + size]
