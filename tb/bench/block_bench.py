"""Runs one block in Amaranth's simulator, cycle by cycle, from plain Python.

``simulate`` calls, in every cycle, ``drive`` of each model (sets inputs), then ``watch`` (reads outputs, settled,
before the clock edge). So what a model drives depends on earlier cycles only, like the output of a register; what it
sets in ``watch`` is driven from the next cycle on. Ports go by their dotted path (``i.payload``), values are integers;
``to_bits`` and ``from_bits`` translate structures. Steps that follow each other are a ``Script``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from random import Random
from typing import Any

from amaranth.hdl import Cat, ClockDomain, Const, Module, ResetInserter, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

RESET = "reset"
"""The input that resets the block."""


def to_bits(shape: Any, value: Any) -> int:
    """Nested dicts, lists and integers -> the raw bits of a layout or of a plain shape. Fields not given are zero."""
    if isinstance(shape, data.StructLayout):
        assert set(value) <= set(shape.members), f"unknown fields {set(value) - set(shape.members)}"
        return sum(to_bits(shape[name].shape, each) << shape[name].offset for name, each in value.items())
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        assert len(value) == shape.length
        return sum(to_bits(shape.elem_shape, each) << width * index for index, each in enumerate(value))
    shape, value = Shape.cast(shape), int(getattr(value, "value", value))
    low, high = (-(1 << shape.width >> 1), 1 << shape.width >> 1) if shape.signed else (0, 1 << shape.width)
    assert low <= value < high, f"{value} does not fit {shape}"
    return value & ((1 << shape.width) - 1)


def from_bits(shape: Any, raw: int) -> Any:
    """The reverse of :func:`to_bits`."""
    if isinstance(shape, data.StructLayout):
        return {name: from_bits(field.shape, raw >> field.offset & ((1 << field.width) - 1)) for name, field in shape}
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        mask = (1 << width) - 1
        return [from_bits(shape.elem_shape, raw >> width * index & mask) for index in range(shape.length)]
    shape = Shape.cast(shape)
    return raw - (1 << shape.width) if shape.signed and raw >> shape.width - 1 & 1 else raw


class Ports:
    """What a model sees of the block in one cycle."""

    def __init__(self, dut: Any) -> None:
        self.inputs: dict[str, Value] = {RESET: Signal(name=RESET)}
        self.outputs: dict[str, Value] = {}
        self.shapes: dict[str, Any] = {}
        for path, member, port in dut.signature.flatten(dut):
            name, value = ".".join(map(str, path)), Value.cast(port)
            self.shapes[name] = member.shape
            if not isinstance(value, Const):
                (self.inputs if member.flow is In else self.outputs)[name] = value
        # Amaranth works a value's width out anew each time it is asked for
        self._widths = {name: len(value) for name, value in (self.inputs | self.outputs).items()}
        self._joined: dict[tuple[str, ...], Value] = {}
        self._ctx: Any = None
        self.restart()

    def restart(self) -> None:
        """Cycle 0, nothing driven."""
        self.cycle = 0
        self._driven: dict[str, int] = {}
        self._seen = self._driven
        self._held: dict[str, int] = {}

    def __setitem__(self, name: str, value: int) -> None:
        assert name in self.inputs, name
        self._driven[name] = value & ((1 << self._widths[name]) - 1)

    def __getitem__(self, name: str) -> int:
        """Raw bits of an output, or of an input as driven in this cycle."""
        if name not in self.outputs:
            return self._seen.get(name, 0)
        return int(self._ctx.get(self.outputs[name]))

    def put(self, name: str, value: Any) -> None:
        """Drive a structure."""
        self[name] = to_bits(self.shapes[name], value)

    def get(self, name: str) -> Any:
        """Read a structure, or a number with its sign."""
        return from_bits(self.shapes[name], self[name] & ((1 << self._widths[name]) - 1))

    def _next_cycle(self) -> None:
        self.cycle += 1
        self._seen = self._driven

    async def _apply(self, ctx: Any) -> None:
        """Set what changed, at once: the simulator settles after each ``set``, and looks at all that it is given."""
        self._ctx, self._seen = ctx, dict(self._driven)
        changed = tuple(name for name in self.inputs if self._held.get(name) != self._driven.get(name, 0))
        raw = offset = 0
        for name in changed:
            self._held[name] = self._driven.get(name, 0)
            raw |= self._held[name] << offset
            offset += self._widths[name]
        if changed not in self._joined:
            self._joined[changed] = Cat(self.inputs[name] for name in changed)
        ctx.set(self._joined[changed], raw)


class Bench:
    """A block built and compiled once, to be run many times, each time from power-up."""

    def __init__(self, dut: Any) -> None:
        self._dut = dut
        self._models: tuple[Any, ...] = ()
        self._cycles, self._used = 0, False
        ports = self._ports = Ports(dut)
        top = Module()
        top.domains.sync = ClockDomain()
        top.submodules.dut = ResetInserter(ports.inputs[RESET])(dut)
        self._simulator = Simulator(top)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._bench)

    async def _bench(self, ctx: Any) -> None:
        models, ports = self._models, self._ports
        waiting = [model for model in models if isinstance(model, (Cycles, Script))] or [
            model for model in models if hasattr(model, "finished")]
        assert waiting, "nothing says when to stop"
        while not all(model.finished for model in waiting):
            assert ports.cycle < self._cycles, f"no end after {self._cycles} cycles"
            for model in models:
                model.drive(ports)
            await ports._apply(ctx)
            for model in models:
                model.watch(ports)
            await ctx.tick()
            ports._next_cycle()

    def run(self, *models: Any, cycles: int = 100_000) -> int:
        """Until all of type ``Cycles`` or ``Script`` are finished, without such a model all that have ``finished``.

        Returns the cycles it took.

        AssertionError after ``cycles``.
        """
        self._models, self._cycles = models, cycles
        self._ports.restart()
        if self._used:
            self._simulator.reset()
        self._used = True
        self._simulator.run()
        return self._ports.cycle


def simulate(dut: Any, *models: Any, cycles: int = 100_000) -> int:
    """Build and run once; see :meth:`Bench.run`."""
    return Bench(dut).run(*models, cycles=cycles)


def evaluate(function: Callable[..., Any], shapes: Iterable[Any], arguments: Iterable[tuple[int, ...]]) -> list[int]:
    """A combinational function of signals of the given shapes, for each tuple of arguments; signed results."""
    inputs = [Signal(shape) for shape in shapes]
    result = Value.cast(function(*inputs))
    output = Signal(signed(len(result)))
    top = Module()
    top.d.comb += output.eq(result)
    found: list[int] = []

    async def bench(ctx: Any) -> None:
        for values in arguments:
            for signal, value in zip(inputs, values, strict=True):
                ctx.set(signal, value)
            found.append(ctx.get(output))

    simulator = Simulator(top)
    simulator.add_testbench(bench)
    simulator.run()
    return found


class Model:
    """Does nothing; the base of models that only drive or only watch."""

    def drive(self, ports: Ports) -> None:
        """Set inputs."""

    def watch(self, ports: Ports) -> None:
        """Read outputs."""


class Cycles(Model):
    """Ends a simulation after a number of cycles."""

    def __init__(self, count: int) -> None:
        self.left = count

    def watch(self, ports: Ports) -> None:
        self.left -= 1

    @property
    def finished(self) -> bool:
        return self.left <= 0


class Script(Model):
    """Steps one after another; the simulation ends with them.

    ``steps`` is a generator: it sets inputs, ``yield``s for a cycle to pass (``yield from range(5)``: five), and then
    reads the outputs of that cycle. Put it behind the models whose results it asks for.
    """

    def __init__(self, steps: Callable[[Ports], Generator[Any, None, None]]) -> None:
        self.finished = False
        self._steps = steps
        self._running: Generator[Any, None, None] | None = None

    def _advance(self) -> None:
        assert self._running is not None
        try:
            next(self._running)
        except StopIteration:
            self.finished = True

    def drive(self, ports: Ports) -> None:
        if self._running is None:
            self._running = self._steps(ports)
            self._advance()

    def watch(self, ports: Ports) -> None:
        if not self.finished:
            self._advance()


class Source(Model):
    """Offers ``items`` (raw payloads) on the stream ``name``, each until it is taken, with random pauses.

    ``items`` may grow during the run. ``taken``: the cycle in which each was taken. While not valid the payload is
    noise.
    """

    def __init__(self, name: str, items: Iterable[int], rng: Random, rate: float = 1.0) -> None:
        self.name, self.rng, self.rate = name, rng, rate
        self.items = deque(items)
        self.taken: list[int] = []
        self.offered: int | None = None
        self.finished = False

    def drive(self, ports: Ports) -> None:
        if self.offered is None and self.items and self.rng.random() < self.rate:
            self.offered = self.items.popleft()
        ports[f"{self.name}.valid"] = self.offered is not None
        noise = self.rng.getrandbits(64) * 0x9E37_79B9_7F4A_7C15
        ports[f"{self.name}.payload"] = noise if self.offered is None else self.offered

    def watch(self, ports: Ports) -> None:
        if self.offered is not None and ports[f"{self.name}.ready"]:
            self.taken.append(ports.cycle)
            self.on_taken(ports, self.offered)
            self.offered = None
        self.finished = self.offered is None and not self.items

    def on_taken(self, ports: Ports, item: int) -> None:
        """Called in the cycle of the handshake."""


class Stable:
    """The rule of a stream that the block offers: what is valid stays, unchanged, until it is taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._held: int | None = None

    def check(self, ports: Ports) -> None:
        """Once in every cycle."""
        payload = ports[f"{self.name}.payload"] if ports[f"{self.name}.valid"] else None
        if self._held is not None:
            assert payload == self._held, f"{self.name} changed while it waited, cycle {ports.cycle}"
        self._held = None if ports[f"{self.name}.ready"] else payload


class Watched(Model):
    """A stream that the block offers: keeps the rule of :class:`Stable`, unless that is set to None.

    Nothing is taken while ``blocked``.
    """

    def __init__(self, name: str, rng: Random, rate: float = 1.0) -> None:
        self.name, self.rng, self.rate = name, rng, rate
        self.stable: Stable | None = Stable(name)
        self.blocked = False

    def drive(self, ports: Ports) -> None:
        ports[f"{self.name}.ready"] = not self.blocked and self.rng.random() < self.rate

    def watch(self, ports: Ports) -> None:
        if self.stable is not None:
            self.stable.check(ports)
        if ports[f"{self.name}.valid"] and ports[f"{self.name}.ready"]:
            self.on_taken(ports, ports[f"{self.name}.payload"])

    def on_taken(self, ports: Ports, item: int) -> None:
        """Called in the cycle of the handshake."""


class Sink(Watched):
    """Takes with random pauses and collects: ``items`` raw, ``taken`` their cycles. Finished after ``count`` items."""

    def __init__(self, name: str, rng: Random, count: int = 0, rate: float = 1.0) -> None:
        super().__init__(name, rng, rate)
        self.items: list[int] = []
        self.taken: list[int] = []
        self.count = count

    @property
    def finished(self) -> bool:
        return len(self.items) >= self.count

    def on_taken(self, ports: Ports, item: int) -> None:
        self.items.append(item)
        self.taken.append(ports.cycle)


class ReadServer(Watched):
    """A memory behind a read port that the block owns: refuses at random, answers ``rows[address]`` after ``latency``.

    Rows are raw bits; ``requests`` are (cycle, address). While there is no answer the response is zero.
    """

    def __init__(self, name: str, rows: Any, latency: int, rng: Random, rate: float = 1.0) -> None:
        super().__init__(f"{name}.request", rng, rate)
        self.port, self.rows = name, rows
        self.requests: list[tuple[int, int]] = []
        self._answers: deque[int | None] = deque([None] * latency, maxlen=latency)

    def drive(self, ports: Ports) -> None:
        super().drive(ports)
        answer = self._answers[0]
        ports[f"{self.port}.response.valid"] = answer is not None
        ports[f"{self.port}.response.payload"] = answer or 0
        self._answers.append(None)

    def on_taken(self, ports: Ports, item: int) -> None:
        self.requests.append((ports.cycle, item))
        self._answers[-1] = self.rows[item]


class Pulses(Model):
    """Records the cycles in which an output is high."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cycles: list[int] = []

    def watch(self, ports: Ports) -> None:
        if ports[self.name]:
            self.cycles.append(ports.cycle)
