# SPDX-License-Identifier: Apache-2.0
"""A bridge to a far end that has a witness: every word goes over the link once (docs/decisions/host-link.md).

* Writes and commands are sent together, and reads behind them; then the witness says whether all of it was carried out,
  in this order, and nothing else. So they wait until somebody reads, or until there are enough of them.
* If something got lost, the witness says how far the writes came, and the rest is sent again.
* If it says something else, anything may be anywhere: a stray, as in ``bridge.py``. All that must be there is read, and
  written where it is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from weft.runtime.driver.bridge import ATTEMPTS, Bridge
from weft.runtime.driver.transport import WORD_BYTES, LinkError, LinkFault, Read, WindowTransport, Write
from weft.runtime.driver.witness import Witness


class CheckedBridge(Bridge):
    """Memory accesses that the witness at byte ``address`` confirms; it takes over what ``plain`` knows."""

    transport: WindowTransport

    def __init__(self, plain: Bridge, address: int) -> None:
        super().__init__(plain.transport)
        self.strays, self.faults, self._settled = plain.strays, plain.faults, plain._settled
        self.shadow, self.mark = plain.shadow, plain.mark
        self._witness = Witness(address)
        self._waiting: list[Write] = []
        self._look()

    # -- accesses --------------------------------------------------------------------------------------------------
    def read(self, address: int, count: int) -> np.ndarray:
        """Return words; all writes and commands before were carried out."""
        return np.concatenate([np.empty(0, np.uint32), *self._flush(self._pieces(address, count))])

    def write(self, address: int, words: np.ndarray) -> None:
        """Write words, at the latest when something is read; memory then holds them, and all that were written before.

        Words that were released are not among these."""
        words = np.ascontiguousarray(words, np.uint32)
        if self._sure and self.shadow.holds(address, words):
            return
        self.shadow.keep(address, words)
        self._wait_with(address, words.copy())

    def command(self, address: int, word: int) -> None:
        """Write a register that keeps nothing, at the latest when something is read: once, or not at all.

        It is not carried out if a stray was noticed before; the caller must check the effect."""
        self._wait_with(address, np.array([word], np.uint32))

    def _wait_with(self, address: int, words: np.ndarray) -> None:
        """Keep writes until somebody reads, or there are enough of them for a window."""
        for at, size in self._pieces(address, len(words)):
            first = (at - address) // WORD_BYTES
            self._waiting.append((at, words[first:first + size]))
        if sum(len(each) for _, each in self._waiting) >= self.transport.window_words:
            self._flush([])

    def settle(self) -> None:
        """Carry out what waits, and repair memory if anything may be wrong."""
        self._flush([])
        super().settle()

    def repair(self) -> None:
        """Carry out what waits, read all words that were written, and correct wrong ones."""
        self._flush([])
        super().repair()

    def pause(self, seconds: float) -> None:
        """Send all writes that wait, then let ``seconds`` pass."""
        self._flush([])
        self.transport.pause(seconds)

    def close(self) -> None:
        """Carry out what waits if the link allows it, and close the transport."""
        with contextlib.suppress(LinkError):
            self._flush([])
        self.transport.close()

    # -- exchanges -------------------------------------------------------------------------------------------------
    def _flush(self, reads: Sequence[Read]) -> list[np.ndarray]:
        """Carry out what waits, then reads; return the words of each."""
        waiting, self._waiting = self._waiting, []
        before, answers = self.strays, list[np.ndarray]()
        windows = list(self._windows(waiting))
        for writes in windows[:-1]:
            self._carry(writes if self.strays == before else [], [])
        writes = windows[-1] if windows and self.strays == before else []
        for some in self._read_windows(reads) or ([[]] if writes else []):
            answers += self._carry(writes, some)
            writes = []
        if self.strays != before:
            self.repair()
        return answers

    def _put(self, address: int, words: np.ndarray) -> None:
        """Read what is at an address, and write what differs until nothing does."""
        for at, size in self._pieces(address, len(words)):
            first = (at - address) // WORD_BYTES
            self._put_piece(at, words[first:first + size])

    def _put_piece(self, address: int, words: np.ndarray) -> None:
        """Write one piece until reading it returns ``words``. Raise LinkError after ATTEMPTS writes."""
        for _ in range(ATTEMPTS):
            if np.array_equal(self._carry([], [(address, len(words))])[0], words):
                return
            self._carry([(address, words)], [])
        raise self._broken(f"{ATTEMPTS} writes to address {address:#x} that are not there")

    def _carry(self, writes: Sequence[Write], reads: Sequence[Read]) -> list[np.ndarray]:
        """Carry out a window of writes, each once, then reads; return the words of each.

        After a stray, the rest of the writes is left out. Raise LinkError if nothing comes through."""
        fault = ""
        for _ in range(ATTEMPTS):
            marks = self._witness.after(writes)
            try:
                *answers, said = self.transport.exchange(writes, [*reads, self._witness.place])
            except LinkFault as error:
                fault = str(error)
            else:
                places = [(address, words) for (address, _), words in zip(reads, answers, strict=True)]
                if self._witness.confirms(marks[-1], places, said):
                    return answers
                fault = "a witness that saw something else"
            self._recover()
            self._look()
            if self._witness.writes in marks:
                writes = writes[marks.index(self._witness.writes):]
            else:
                self.strays, writes = self.strays + 1, []
        raise self._broken(f"no whole exchange, {ATTEMPTS} times, at last {fault}")

    def _look(self) -> None:
        """Learn from the witness what was carried out. Raise LinkError if it does not say the same twice."""
        fault = ""
        for _ in range(ATTEMPTS):
            try:
                if self._witness.agrees(*self.transport.exchange([], [self._witness.place] * 2)):
                    return
                fault = "a witness that changes"
            except LinkFault as error:
                fault = str(error)
            self._recover()
        raise self._broken(f"no whole answer, {ATTEMPTS} times, at last {fault}")

    def _windows(self, writes: Sequence[Write]) -> Iterator[list[Write]]:
        """Yield writes in windows of at most ``window_words`` words."""
        window: list[Write] = []
        words = 0
        for write in writes:
            if words + len(write[1]) > self.transport.window_words:
                yield window
                window, words = [], 0
            window.append(write)
            words += len(write[1])
        if window:
            yield window

    def _read_windows(self, reads: Sequence[Read]) -> list[list[Read]]:
        """Return reads in windows, each with room for the witness."""
        found: list[list[Read]] = []
        words = 0
        for read in reads:
            words += read[1]
            if not found or words > self.transport.window_words or len(found[-1]) + 1 == self.transport.most_reads:
                found.append([])
                words = read[1]
            found[-1].append(read)
        return found
