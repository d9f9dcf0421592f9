# SPDX-License-Identifier: Apache-2.0
"""Depthwise MatMuls over several rows of the kernel: what each row of taps reads of local memory, and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.memory.banks import Interleave


def arriving_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of what comes with each step, a bit for each row of taps.

    ``count``: whether the row counts. ``asked``: whether it read something in this step. ``before``: whether that was
    served before the step's last read."""
    return data.StructLayout(dict.fromkeys(("count", "asked", "before"), arch.kernel_rows))


def any_of(bits: Iterable[Value]) -> Value:
    """Return whether any of the bits is high."""
    return Cat(*bits).any()


class KernelRows:
    """The reads of a MatMul, one for each row of taps.

    ``at``: the vector that the first row of taps that counts meets; the others meet those that lie TAP_PITCH apart
    behind it. ``follows``: this step comes after the operation's last vector.

    Row k of a depthwise MatMul reads k steps late, so that three rows of an even pitch go round four banks without
    meeting. A step is over when the last of its reads is served: those that lie in one bank of local memory wait for
    each other. ``served``: nothing is left to be read in this step."""

    def __init__(self, m: Module, arch: Arch, at: Any, follows: Value, requests: list) -> None:
        self._m, self._arch, self._requests, operation = m, arch, requests, at.operation
        rows, depthwise = range(arch.kernel_rows), operation.tap_origin != 0
        count, self._before, asked = (Signal(len(rows), name=name) for name in ("count", "before", "asked"))
        m.d.comb += count.eq(Mux(depthwise, operation.tap_rows, 1))
        self._late: list[list[tuple[Value, Value]]] = []  # of each row: address and whether there is one, a step older
        self._asks: list[Value] = []
        banks = Interleave(arch.local_banks, arch.local_depth)
        missing = []
        taps, pitch = operation.tap_rows, operation.tap_pitch
        beyond = [0, Mux(taps[0], pitch, 0), Mux(taps[0], pitch << 1, Mux(taps[1], pitch, 0))]
        for row, request in zip(rows, requests, strict=True):
            address, there = self._read((at.local + beyond[row])[:len(at.local)], ~follows, row)
            wants = asked[row] & ~self._before[row]
            meets = any_of(asks & banks.same_bank(address, other.payload)
                           for asks, other in zip(self._asks, requests, strict=False))
            asks = Signal(name=f"asks_{row}")
            m.d.comb += [asked[row].eq(count[row] & ~operation.zeroes & there),
                         asks.eq(wants & ~meets), request.payload.eq(address)]
            missing.append(wants & ~(asks & request.ready))
            self._asks.append(asks)
        self.served = ~any_of(missing)
        self.arriving = Signal(arriving_layout(arch))
        m.d.comb += [self.arriving.count.eq(count), self.arriving.asked.eq(asked),
                     self.arriving.before.eq(self._before)]

    def _read(self, address: Value, there: Value, row: int) -> tuple[Value, Value]:
        """Return the address that a row of taps reads in this step, that of ``row`` steps ago, and if it is one."""
        chain: list[tuple[Value, Value]] = [(address, there)]
        for step in range(1, row + 1):
            chain.append((Signal(len(address), reset_less=True, name=f"late_{row}_{step}"),
                          Signal(name=f"late_{row}_{step}_there")))
        self._late.append(chain)
        return chain[-1]

    def step(self, asking: Value, taken: Value, ends: Value) -> None:
        """Ask for the reads of a step, and move on.

        ``asking``: reads may be asked for in this cycle. ``taken``: the step is over with this cycle. ``ends``: so is
        the operation."""
        m = self._m
        m.d.comb += [request.valid.eq(asking & asks) for request, asks in zip(self._requests, self._asks, strict=True)]
        served = Cat(request.valid & request.ready for request in self._requests)
        m.d.sync += self._before.eq(Mux(taken, 0, self._before | served))
        with m.If(taken):
            for chain in self._late:
                for (newer, there), (older, was) in zip(chain, chain[1:], strict=False):
                    m.d.sync += [older.eq(newer), was.eq(there & ~ends)]

    def waits(self) -> Value:
        """Return whether a read is offered that is not taken."""
        return any_of(request.valid & ~request.ready for request in self._requests)


def arrived_rows(m: Module, arch: Arch, responses: list, arriving: Any, arrived: Value,
                 depthwise: Value) -> list[list[Value]]:
    """Return the scalars of each row of taps that go into the array in a step.

    ``arrived``: the last of the step's reads is answered. ``arriving``: of :func:`arriving_layout`.

    A row meets what it read as many steps ago as rows lie behind it. Its last reads stand in a row of registers, which
    moves on with each answer, and in a step without one. So what is met lies a place further on in a step whose answer
    came before."""
    found = []
    for row, response in enumerate(responses):
        packed, ago = Value.cast(response.payload), arch.kernel_rows - 1 - row
        window: list[Value] = [packed]
        for place in range(ago + 1):
            older = Signal(len(packed), reset_less=True, name=f"row_{row}_{place}")
            with m.If(response.valid | (arrived & ~arriving.asked[row])):
                m.d.sync += older.eq(window[-1])
            window.append(older)
        met: Value = Mux(arriving.before[row], window[ago + 1], window[ago])
        chosen = Signal(response.payload.shape(), name=f"met_{row}")
        m.d.comb += Value.cast(chosen).eq(met if row else Mux(depthwise, met, packed))
        found.append(list(chosen))
    return found
