# SPDX-License-Identifier: Apache-2.0
"""AXI4 memories behind the masters of a block, and the rules that a master must keep.

The memories are models of a block's bench. They take ``rng`` and ``rate``, the chance of each channel to move in a
cycle, and ``latency``, the range of the cycles from an accepted burst to its answer. A broken rule raises
AssertionError out of the simulation."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from weft.tb.bench.block_models import Sink, Source, Watched
from weft.tb.bench.block_ports import Ports, from_bits, to_bits

INCR, OKAY, SLVERR = 1, 0, 2
BOUNDARY_BYTES = 4096


class ByteMemory:
    """Bytes from address ``base`` on; an access outside raises. ``data`` starts random."""

    def __init__(self, size: int, rng: Random, base: int = 0) -> None:
        self.base, self.data = base, bytearray(rng.randbytes(size))

    def read(self, address: int, size: int) -> bytes:
        at = address - self.base
        assert at >= 0 and at + size <= len(self.data), f"access outside the memory: {address:#x}"
        return bytes(self.data[at:at + size])

    def write(self, address: int, content: bytes, strobe: int) -> None:
        self.read(address, len(content))
        for index, byte in enumerate(content):
            if strobe >> index & 1:
                self.data[address - self.base + index] = byte


@dataclass
class Burst:
    """An accepted address; ``due``: the cycle after which it may be answered."""

    address: int
    beats: int
    beat_bytes: int
    due: int = 0
    data: list[tuple[bytes, int]] = field(default_factory=list)


class AddressChannel(Watched):
    """A channel ``ar`` or ``aw``, with the rules of addresses.

    ``bursts``: (address, beats, cache) in order; ``taken``: their cycles; ``waiting``: bursts accepted and not
    finished."""

    def __init__(self, name: str, bus: str, max_burst: int, rng: Random, rate: float) -> None:
        super().__init__(name, rng, rate)
        self.bus, self.max_burst = bus, max_burst
        self.bursts: list[tuple[int, int, int]] = []
        self.taken: list[int] = []
        self.waiting: deque[Burst] = deque()

    def on_taken(self, ports: Ports, item: int) -> None:
        beat_bytes = ports.shapes[f"{self.bus}.payload"]["data"].width // 8
        got: dict[str, int] = from_bits(ports.shapes[f"{self.name}.payload"], item)
        address, beats = got["addr"], got["len"] + 1
        assert got["burst"] == INCR, f"{self.name}: not INCR"
        assert 1 << got["size"] == beat_bytes, f"{self.name}: not the full bus"
        assert address % beat_bytes == 0, f"{self.name}: beats not aligned: {address:#x}"
        assert beats <= self.max_burst, f"{self.name}: {beats} beats"
        last = address + beats * beat_bytes - 1
        assert address // BOUNDARY_BYTES == last // BOUNDARY_BYTES, f"{self.name}: {address:#x} crosses 4 KiB"
        assert got["lock"] == got["prot"] == got["qos"] == got["id"] == 0
        self.bursts.append((address, beats, got["cache"]))
        self.taken.append(ports.cycle)
        self.waiting.append(Burst(address, beats, beat_bytes))


class AxiMemory(Source):
    """What both directions share: the source of answers (channel ``name``), behind the addresses (``addresses``).

    ``errors``: addresses in bytes whose beats are answered with SLVERR. ``outstanding_most``: the most bursts that
    were accepted and not finished; there are never more than ``capacity``."""

    def __init__(self, name: str, addresses: AddressChannel, memory: ByteMemory, latency: tuple[int, int],
                 errors: range, capacity: int) -> None:
        super().__init__(name, [], addresses.rng, addresses.rate)
        self.addresses, self.memory, self.latency, self.errors = addresses, memory, latency, errors
        self.capacity, self.outstanding_most = capacity, 0

    @property
    def bursts(self) -> list[tuple[int, int, int]]:
        """(Address, beats, cache) of each burst."""
        return self.addresses.bursts

    @property
    def waiting(self) -> deque[Burst]:
        """The bursts that are accepted and not finished (reads), or without all their data (writes)."""
        return self.addresses.waiting

    def accept(self, burst: Burst, ports: Ports) -> None:
        """Accept a burst. The latency counts from here."""
        burst.due = ports.cycle + self.rng.randint(*self.latency)

    def response(self, address: int, size: int) -> int:
        return SLVERR if address < self.errors.stop and self.errors.start < address + size else OKAY


class AxiReadMemory(AxiMemory):
    """A memory behind ``ar`` and ``r``; ``taken``: cycles of the data handshakes."""

    def __init__(self, memory: ByteMemory, rng: Random, rate: float = 1.0, latency: tuple[int, int] = (1, 1), *,
                 max_burst: int, errors: range = range(0), capacity: int = 64) -> None:
        super().__init__("r", AddressChannel("ar", "r", max_burst, rng, rate), memory, latency, errors, capacity)
        self._unanswered: deque[Burst] = deque()

    def drive(self, ports: Ports) -> None:
        self.addresses.blocked = len(self.waiting) >= self.capacity
        self.addresses.drive(ports)
        while self._unanswered and self._unanswered[0].due < ports.cycle:
            self.items += self._beats(self._unanswered.popleft(), ports.shapes["r.payload"])
        super().drive(ports)

    def _beats(self, burst: Burst, layout: Any) -> list[int]:
        size = burst.beat_bytes
        starts = [burst.address + index * size for index in range(burst.beats)]
        return [to_bits(layout, {"data": int.from_bytes(self.memory.read(at, size), "little"),
                                 "resp": self.response(at, size), "last": at == starts[-1]}) for at in starts]

    def watch(self, ports: Ports) -> None:
        before = len(self.bursts)
        self.addresses.watch(ports)
        if len(self.bursts) > before:
            self.accept(self.waiting[-1], ports)
            self._unanswered.append(self.waiting[-1])
        self.outstanding_most = max(self.outstanding_most, len(self.waiting))
        super().watch(ports)
        self.finished = not self.waiting

    def on_taken(self, ports: Ports, item: int) -> None:
        self.waiting[0].beats -= 1
        if not self.waiting[0].beats:
            self.waiting.popleft()


class AxiWriteMemory(AxiMemory):
    """A memory behind ``aw``, ``w`` and ``b``; data may come before its address.

    ``taken``: cycles of the responses; ``data.taken``: of the data. ``data_waits``: no data is accepted before its
    address. ``address_waits``: no address is accepted before the first beat of its data. ``data_blocked``: no data
    is accepted at all. The rule of WLAST is checked. The memory changes when the response is taken, no earlier."""

    def __init__(self, memory: ByteMemory, rng: Random, rate: float = 1.0, latency: tuple[int, int] = (1, 1), *,
                 max_burst: int, errors: range = range(0), capacity: int = 64, data_waits: bool = False,
                 address_waits: bool = False) -> None:
        super().__init__("b", AddressChannel("aw", "w", max_burst, rng, rate), memory, latency, errors, capacity)
        self.data_waits, self.address_waits, self.data_blocked = data_waits, address_waits, False
        self.data = Sink("w", rng, rate=rate)
        self.answers: deque[Burst] = deque()  # complete, response not taken
        self._unanswered: deque[Burst] = deque()

    @property
    def beats(self) -> list[int]:
        """The beats that are taken and not yet matched with an address."""
        return self.data.items

    def drive(self, ports: Ports) -> None:
        full = len(self.waiting) + len(self.answers) >= self.capacity
        self.addresses.blocked = full or (self.address_waits and not self.beats)
        self.addresses.drive(ports)
        self.data.blocked = self.data_blocked or (self.data_waits and not self.waiting)
        self.data.drive(ports)
        while self._unanswered and self._unanswered[0].due < ports.cycle:
            burst = self._unanswered.popleft()
            self.items.append(to_bits(ports.shapes["b.payload"], {"resp": self._answer(burst)}))
        super().drive(ports)

    def _answer(self, burst: Burst) -> int:
        return self.response(burst.address, len(burst.data) * burst.beat_bytes)

    def watch(self, ports: Ports) -> None:
        self.addresses.watch(ports)
        self.data.watch(ports)
        self._match(ports)
        self.outstanding_most = max(self.outstanding_most, len(self.waiting) + len(self.answers))
        super().watch(ports)
        self.finished = not self.waiting and not self.answers and not self.beats

    def _match(self, ports: Ports) -> None:
        """Give data to the oldest burst that misses some; a complete burst waits for its response."""
        while self.waiting and self.beats:
            burst = self.waiting[0]
            beat = from_bits(ports.shapes["w.payload"], self.beats.pop(0))
            burst.data.append((beat["data"].to_bytes(burst.beat_bytes, "little"), beat["strb"]))
            assert beat["last"] == (len(burst.data) == burst.beats), "w: last on the last beat and only there"
            if beat["last"]:
                self.accept(burst, ports)
                self._unanswered.append(burst)
                self.answers.append(self.waiting.popleft())

    def on_taken(self, ports: Ports, item: int) -> None:
        burst = self.answers.popleft()
        for index, (content, strobe) in enumerate(burst.data if self._answer(burst) == OKAY else []):
            self.memory.write(burst.address + index * burst.beat_bytes, content, strobe)
