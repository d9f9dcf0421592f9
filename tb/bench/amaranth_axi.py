"""AXI for Amaranth's simulator: memories behind AXI4 masters, stream ends, and the rules that a master must keep.

Every model is an object with ``run``, a coroutine for ``Simulator.add_testbench(model.run, background=True)``. Models
behave like registered hardware: what they drive changes after a clock edge. All randomness comes from the given
``rng``. A broken rule raises AssertionError out of the simulation.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from amaranth.hdl import ClockDomain, Module, Value
from amaranth.lib import data
from amaranth.sim import Simulator

__all__ = [
    "AxiReadMemory", "AxiWriteMemory", "ByteMemory", "Stalls", "StreamSink", "StreamSource", "pack", "simulate",
    "unpack",
]  # fmt: skip

INCR, OKAY, SLVERR = 1, 0, 2
BOUNDARY_BYTES = 4096


def unpack(layout: data.Layout, raw: int) -> dict[str, int]:
    """The fields of a struct as unsigned numbers."""
    return {name: raw >> part.offset & ((1 << part.width) - 1) for name, part in layout}


def pack(layout: data.Layout, **values: int) -> int:
    """The other way round; fields that are not given are 0."""
    raw = 0
    for name, value in values.items():
        assert 0 <= value < 1 << layout[name].width, f"{name}={value} does not fit"
        raw |= value << layout[name].offset
    return raw


def simulate(dut: Any, bench: Any, *models: Any, cycles: int = 100_000) -> None:
    """Runs ``bench`` until it returns, models (or plain coroutines) beside it; AssertionError after ``cycles``."""
    top = Module()
    top.domains.sync = ClockDomain()  # also for a block without a register
    top.submodules.dut = dut
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    for model in models:
        simulator.add_testbench(getattr(model, "run", model), background=True)

    async def watchdog(ctx: Any) -> None:
        for _ in range(cycles):
            await ctx.tick()
        raise AssertionError(f"no end after {cycles} cycles")

    simulator.add_testbench(watchdog, background=True)
    simulator.add_testbench(bench)
    simulator.run()


@dataclass
class Stalls:
    """How often, 0..1, a model rests, and the range of its latency in cycles."""

    rng: Random
    rate: float = 0.0
    latency: tuple[int, int] = (1, 1)

    def rests(self) -> bool:
        return self.rate > 0 and self.rng.random() < self.rate

    def delay(self) -> int:
        return self.rng.randint(*self.latency)


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


class Stable:
    """The rule of every channel: what is offered and not taken is offered again, unchanged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offer: int | None = None

    def check(self, valid: int, ready: int, payload: int) -> bool:
        """Looks at one cycle; returns whether there was a handshake."""
        if self.offer is not None:
            assert valid, f"{self.name}: valid withdrawn"
            assert payload == self.offer, f"{self.name}: payload changed while it waited"
        self.offer = payload if valid and not ready else None
        return bool(valid and ready)


class StreamSource:
    """Offers ``items`` (raw integers), one after another, into a stream's ``payload``, ``valid``, ``ready``."""

    def __init__(self, stream: Any, items: Iterable[int], stalls: Stalls) -> None:
        self.stream, self.items, self.stalls, self.sent = stream, deque(items), stalls, 0

    async def run(self, ctx: Any) -> None:
        stream, payload, offered = self.stream, Value.cast(self.stream.payload), False
        async for _, _, ready in ctx.tick().sample(stream.ready):
            if offered and ready:
                offered = False
                self.sent += 1
                ctx.set(stream.valid, 0)
            if not offered and self.items and not self.stalls.rests():
                offered = True
                ctx.set(payload, self.items.popleft())
                ctx.set(stream.valid, 1)


class StreamSink:
    """Takes what a stream offers: ``items`` and, for each, its cycle in ``times``. ``stable``: check that rule."""

    def __init__(self, stream: Any, stalls: Stalls, *, name: str = "stream", stable: bool = True) -> None:
        self.stream, self.stalls, self.stable = stream, stalls, Stable(name) if stable else None
        self.items: list[int] = []
        self.times: list[int] = []

    async def run(self, ctx: Any) -> None:
        stream, ready, cycle = self.stream, 0, 0
        async for _, _, valid, payload in ctx.tick().sample(stream.valid, Value.cast(stream.payload)):
            if self.stable is not None:
                self.stable.check(valid, ready, payload)
            if valid and ready:
                self.items.append(payload)
                self.times.append(cycle)
            next_ready = int(not self.stalls.rests())
            if next_ready != ready:
                ready = next_ready
                ctx.set(stream.ready, ready)
            cycle += 1


@dataclass
class _Burst:
    address: int
    beats: int
    cache: int
    due: int = 0
    data: list[tuple[bytes, int]] = field(default_factory=list)


class _AxiMemory:
    """What both directions share: the rules of addresses, and the record of bursts.

    ``bursts``: (address, beats, cache) in order. ``outstanding_most``: of bursts accepted and not finished.
    ``errors``: addresses (bytes) whose beats are answered with SLVERR.
    """

    def __init__(self, bus: Any, memory: ByteMemory, stalls: Stalls, *, max_burst: int, errors: range = range(0),
                 capacity: int = 64) -> None:
        self.bus, self.memory, self.stalls, self.max_burst, self.errors = bus, memory, stalls, max_burst, errors
        self.capacity, self.cycle, self.outstanding_most = capacity, 0, 0
        self.bursts: list[tuple[int, int, int]] = []

    def burst(self, channel: str, layout: data.Layout, raw: int, beat_bytes: int) -> _Burst:
        """Checks what an address channel asks for."""
        got = unpack(layout, raw)
        address, beats = got["addr"], got["len"] + 1
        assert got["burst"] == INCR, f"{channel}: not INCR"
        assert 1 << got["size"] == beat_bytes, f"{channel}: not the full bus"
        assert address % beat_bytes == 0, f"{channel}: beats not aligned: {address:#x}"
        assert beats <= self.max_burst, f"{channel}: {beats} beats"
        last = address + beats * beat_bytes - 1
        assert address // BOUNDARY_BYTES == last // BOUNDARY_BYTES, f"{channel}: {address:#x} crosses 4 KiB"
        assert got["lock"] == got["prot"] == got["qos"] == got["id"] == 0
        self.bursts.append((address, beats, got["cache"]))
        return _Burst(address, beats, got["cache"])

    def response(self, address: int, size: int) -> int:
        return SLVERR if address < self.errors.stop and self.errors.start < address + size else OKAY


class AxiReadMemory(_AxiMemory):
    """A memory behind ``bus.ar`` and ``bus.r``. ``times``: cycles of data handshakes; ``ar_times``: of addresses."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.times: list[int] = []
        self.ar_times: list[int] = []
        self.waiting: deque[_Burst] = deque()

    async def run(self, ctx: Any) -> None:
        ar, r, stable = self.bus.ar, self.bus.r, Stable("AR")
        layout, r_payload = r.payload.shape(), Value.cast(r.payload)
        beat_bytes = layout["data"].width // 8
        ar_ready, r_valid, beat = 0, False, 0
        async for _, _, ar_valid, address, r_ready in ctx.tick().sample(ar.valid, Value.cast(ar.payload), r.ready):
            self.cycle += 1
            if stable.check(ar_valid, ar_ready, address):
                burst = self.burst("AR", ar.payload.shape(), address, beat_bytes)
                burst.due = self.cycle + self.stalls.delay()
                self.waiting.append(burst)
                self.ar_times.append(self.cycle)
                self.outstanding_most = max(self.outstanding_most, len(self.waiting))
            if r_valid and r_ready:
                self.times.append(self.cycle)
                r_valid, beat = False, beat + 1
                if beat == self.waiting[0].beats:
                    self.waiting.popleft()
                    beat = 0
                ctx.set(r.valid, 0)
            if not r_valid and self.waiting and self.waiting[0].due <= self.cycle and not self.stalls.rests():
                at, r_valid = self.waiting[0].address + beat * beat_bytes, True
                ctx.set(r_payload, pack(
                    layout, data=int.from_bytes(self.memory.read(at, beat_bytes), "little"),
                    resp=self.response(at, beat_bytes), last=int(beat == self.waiting[0].beats - 1)))
                ctx.set(r.valid, 1)
            ready = int(len(self.waiting) < self.capacity and not self.stalls.rests())
            if ready != ar_ready:
                ar_ready = ready
                ctx.set(ar.ready, ready)


class AxiWriteMemory(_AxiMemory):
    """A memory behind ``bus.aw``, ``bus.w`` and ``bus.b``; data may come before its address.

    ``times``: cycles of the data handshakes. ``data_waits``: no data is accepted before its address;
    ``address_waits``: no address before the first beat of its data. The rule of WLAST is checked.
    """

    def __init__(self, *arguments: Any, data_waits: bool = False, address_waits: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.data_waits, self.address_waits = data_waits, address_waits
        self.times: list[int] = []
        self.aw_times: list[int] = []
        self.b_times: list[int] = []
        self.blocked = False  # accepts no data while true
        self.waiting: deque[_Burst] = deque()  # address here, data not complete
        self.beats: deque[tuple[int, int, int]] = deque()  # data, strobe, last, not yet matched with an address
        self.answers: deque[_Burst] = deque()

    async def run(self, ctx: Any) -> None:
        aw, w, b, stable_aw, stable_w = self.bus.aw, self.bus.w, self.bus.b, Stable("AW"), Stable("W")
        beat_bytes, w_layout = w.payload.shape()["data"].width // 8, w.payload.shape()
        aw_ready, w_ready, b_valid = 0, 0, False
        async for _, _, aw_valid, address, w_valid, beat, b_ready in ctx.tick().sample(
                aw.valid, Value.cast(aw.payload), w.valid, Value.cast(w.payload), b.ready):
            self.cycle += 1
            if stable_aw.check(aw_valid, aw_ready, address):
                self.waiting.append(self.burst("AW", aw.payload.shape(), address, beat_bytes))
                self.aw_times.append(self.cycle)
            if stable_w.check(w_valid, w_ready, beat):
                content, strobe, last = unpack(w_layout, beat).values()
                self.beats.append((content, strobe, last))
                self.times.append(self.cycle)
            self._match(beat_bytes)
            self.outstanding_most = max(self.outstanding_most, len(self.waiting) + len(self.answers))
            if b_valid and b_ready:
                b_valid = False
                self.b_times.append(self.cycle)
                ctx.set(b.valid, 0)
            if not b_valid and self.answers and self.answers[0].due <= self.cycle and not self.stalls.rests():
                ctx.set(b.payload.resp, self._finish(beat_bytes))
                ctx.set(b.valid, 1)
                b_valid = True
            room = len(self.waiting) + len(self.answers) < self.capacity
            aw_ready = self._drive(ctx, aw.ready, aw_ready, room and not (self.address_waits and not self.beats))
            data_room = not self.blocked and not (self.data_waits and not self.waiting)
            w_ready = self._drive(ctx, w.ready, w_ready, data_room)

    def _drive(self, ctx: Any, signal: Any, now: int, allowed: bool) -> int:
        ready = int(allowed and not self.stalls.rests())
        if ready != now:
            ctx.set(signal, ready)
        return ready

    def _match(self, beat_bytes: int) -> None:
        """Gives data to the oldest burst that misses some; a complete burst waits for its response."""
        while self.waiting and self.beats:
            burst = self.waiting[0]
            content, strobe, last = self.beats.popleft()
            burst.data.append((content.to_bytes(beat_bytes, "little"), strobe))
            assert last == (len(burst.data) == burst.beats), "W: last on the last beat and only there"
            if last:
                burst.due = self.cycle + self.stalls.delay()
                self.answers.append(self.waiting.popleft())

    def _finish(self, beat_bytes: int) -> int:
        """Writes the oldest complete burst; its response. The memory changes no earlier than this."""
        burst = self.answers.popleft()
        response = self.response(burst.address, burst.beats * beat_bytes)
        for index, (content, strobe) in enumerate(burst.data):
            if response == OKAY:
                self.memory.write(burst.address + index * beat_bytes, content, strobe)
        return response
