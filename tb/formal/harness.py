# SPDX-License-Identifier: Apache-2.0
"""The harness around a block in a proof: free inputs, assumptions about its neighbours, assertions about itself.

Assertions live here and never inside synthesizable code. There is no reset: the proof starts in the state after one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    ClockDomain,
    Const,
    Cover,
    Fragment,
    MemoryInstance,
    Module,
    Shape,
    ShapeLike,
    Signal,
    Value,
)
from amaranth.hdl._ast import AnyConst
from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class Harness:
    """The module ``m`` that a proof is about, to be converted with ``clk``. ``inputs``: free in every cycle.

    ``under_way``: name of a read port's request -> one bit for each cycle of latency: a read is there."""

    def __init__(self) -> None:
        self.m = Module()
        self.m.domains.sync = ClockDomain(reset_less=True)
        self.inputs: dict[str, Signal] = {}
        self.under_way: dict[str, Signal] = {}

    # -- what may be anything --------------------------------------------------------------------------------------
    def free(self, signal: Value, name: str) -> None:
        """Let ``signal`` (undriven so far) be anything in every cycle."""
        port = Signal(len(Value.cast(signal)), name=name)
        self.inputs[name] = port
        self.m.d.comb += Value.cast(signal).eq(port)

    def constant(self, shape: ShapeLike, name: str) -> Signal:
        """Return a signal of any value that is the same in all cycles: what is proved holds for every value."""
        signal = Signal(shape, name=name)
        self.m.d.comb += Value.cast(signal).eq(AnyConst(len(Value.cast(signal))))
        return signal

    # -- statements ------------------------------------------------------------------------------------------------
    def always(self, condition: Any, name: str) -> None:
        """Assert a condition; ``name`` is what a failure is called."""
        self.m.d.comb += Assert(self._named(condition, f"assert_{name}"))

    def assume(self, condition: Any, name: str) -> None:
        self.m.d.comb += Assume(self._named(condition, f"assume_{name}"))

    def cover(self, condition: Any, name: str) -> None:
        self.m.d.comb += Cover(self._named(condition, f"cover_{name}"))

    def _named(self, condition: Any, name: str) -> Signal:
        signal = Signal(name=name)
        self.m.d.comb += signal.eq(Value.cast(condition).bool())
        return signal

    def past(self, value: Any, name: str, *, init: int = 0) -> Signal:
        """Return the value of the cycle before, ``init`` in the first."""
        value = Value.cast(value)
        signal = Signal(value.shape(), name=f"past_{name}", init=init)
        self.m.d.sync += signal.eq(value)
        return signal

    def late(self, value: Any, cycles: int, name: str) -> Value:
        """Return the value of so many cycles before, 0 in the first ones."""
        for cycle in range(cycles):
            value = self.past(value, f"{name}_{cycle}")
        return Value.cast(value)

    def count(self, up: Any, down: Any, most: int, name: str, *, init: int = 0) -> Signal:
        """Return events ``up`` less events ``down``, with a spare bit above ``most``, so that too many show."""
        signal = Signal(range(2 * most + 2), name=name, init=init)
        self.m.d.sync += signal.eq(signal + up - down)
        return signal

    # -- streams ---------------------------------------------------------------------------------------------------
    def stable(self, port: Any, name: str, *, unless: Any = 0) -> Any:
        """Assert that what is offered stays the same and offered until it is taken, or ``unless`` excuses it."""
        waits = self.past(port.valid & ~port.ready, f"{name}_waits")
        before = self.past(port.payload, f"{name}_payload")
        return ~waits | Value.cast(unless).bool() | (port.valid & (Value.cast(port.payload) == before))

    def block(self, block: wiring.Component, *, name: str = "block", leave: tuple[str, ...] = (),
              unless: dict[str, Any] | None = None, latency: int | dict[str, int] = 0, rules: bool = True,
              broken: Broken | None = None) -> Inside:
        """Add the block under proof, and return what is inside.

        Its inputs become free, streams into it keep the stream rules, and (``rules``) its own streams are asserted
        to. ``leave``: members (dotted) to leave alone. ``unless``: excuses by member. ``latency``: the cycles after
        which read requests are answered, for all ports or by port. ``broken``: see :func:`sabotage`."""
        fragment = Fragment.get(block, "formal")  # the FIFOs of Amaranth bring their own invariants
        inside = Inside(fragment)
        sabotage(inside, broken or {})
        self.m.submodules[name] = fragment
        for path, port, flow in streams_and_signals(block):
            label = path.replace(".", "_")
            if any(path == left or path.startswith(left + ".") for left in leave):
                continue
            excuse = (unless or {}).get(path, 0)
            cycles = latency.get(path.rpartition(".")[0], 0) if isinstance(latency, dict) else latency
            if not is_stream(port):
                if flow is not Out:
                    self.free(port, label)
            elif flow is Out:
                if isinstance(port.ready, Signal):
                    self.free(port.ready, f"{label}_ready")
                if rules:
                    self.always(self.stable(port, label, unless=excuse), f"{label}_stable")
                if cycles and path.endswith(".request") and hasattr(parent(block, path), "response"):
                    self._answer(parent(block, path), label, cycles)
            elif not (cycles and path.endswith(".response")):
                self.free(port.payload, f"{label}_payload")
                self.free(port.valid, f"{label}_valid")
                if isinstance(port.ready, Signal):
                    self.assume(self.stable(port, label, unless=excuse), f"{label}_stable")
        return inside

    def _answer(self, port: Any, label: str, latency: int) -> None:
        """Answer read requests as a memory of the given latency with any contents."""
        self.under_way[label] = taken = Signal(latency, name=f"{label}_taken")
        self.m.d.sync += taken.eq(Cat(port.request.valid & port.request.ready, taken[:-1]))
        self.m.d.comb += port.response.valid.eq(taken[-1])
        self.free(port.response.payload, f"{label}_response")


def ones(bits: Value) -> Value:
    """Return how many bits are set."""
    return sum((bits[index] for index in range(len(bits))), start=Const(0, 1))


def at_most_one(bits: Any) -> Value:
    """Return whether no two bits are set."""
    bits = Value.cast(bits)
    return (bits & (bits - 1)) == 0


def one_hot(bits: Any) -> Value:
    """Return whether exactly one bit is set."""
    return Value.cast(bits).any() & at_most_one(bits)


def parent(block: Any, path: str) -> Any:
    """Return the interface that holds the member ``path``."""
    for name in path.split(".")[:-1]:
        block = getattr(block, name)
    return block


def streams_and_signals(interface: Any, prefix: str = "") -> Any:
    """Yield (dotted path, stream or signal, flow as the block sees it) of everything at a block's edge."""
    for name, member in interface.signature.members.items():
        value, path = getattr(interface, name), f"{prefix}{name}"
        if member.is_port or is_stream(value):
            yield path, value, member.flow
        else:
            yield from streams_and_signals(value, f"{path}.")


def is_stream(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("payload", "valid", "ready"))


class Inside:
    """An elaborated block: its signals by their dotted path through submodules (``inside("walker.vectors_left")``)."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment

    def driver(self, path: str) -> tuple[Fragment, str, Signal]:
        """Return where a signal is driven: fragment, domain, and the signal."""
        fragment, (*parents, name) = self._fragment, path.split(".")
        for step in parents:
            fragment = fragment.find_subfragment(step)
        for domain, statements in fragment.statements.items():
            for signal in statements._lhs_signals():
                if signal.name == name:
                    return fragment, domain, signal
        raise KeyError(path)

    def __call__(self, path: str) -> Signal:
        return self.driver(path)[2]

    def reads(self, path: str) -> Signal:
        """Return a signal that a submodule only reads: an input of it."""
        fragment, (*parents, name) = self._fragment, path.split(".")
        for step in parents:
            fragment = fragment.find_subfragment(step)
        for statements in fragment.statements.values():
            for signal in statements._rhs_signals():
                if signal.name == name:
                    return signal
        raise KeyError(path)

    def watch(self, harness: Harness, path: str, address: Value) -> Signal:
        """Return what a memory inside holds at ``address``, through a read port of the harness's own."""
        fragment = self._fragment
        for step in path.split("."):
            fragment = fragment.find_subfragment(step)
        assert isinstance(fragment, MemoryInstance)
        label = path.replace(".", "_")
        row = Signal(Shape.cast(fragment._data.shape).width, name=f"{label}_watched")
        place = Signal(range(fragment._data.depth), name=f"{label}_watched_at")
        harness.m.d.comb += place.eq(address)
        fragment.read_port(domain="comb", addr=place, data=row, en=Const(1), transparent_for=())
        return row


def is_zero(inside: Inside, signal: Signal) -> int:
    """Break a signal: it is stuck at zero."""
    return 0


def is_one(inside: Inside, signal: Signal) -> int:
    """Break a signal: it is stuck at one."""
    return 1


def toggles(inside: Inside, signal: Signal) -> Value:
    """Break a register: it is inverted in every cycle."""
    return ~signal


Broken = dict[str, Callable[[Inside, Signal], Any]]
"""Path of a signal inside a block -> the function that makes its value in place of the block."""


def sabotage(inside: Inside, broken: Broken) -> None:
    """Break a block on purpose: the last assignment to a signal wins."""
    for path, instead in broken.items():
        fragment, domain, signal = inside.driver(path)
        fragment.add_statements(domain, signal.eq(instead(inside, signal)))
