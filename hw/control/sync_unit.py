# SPDX-License-Identifier: Apache-2.0
"""The sync unit: the posts that a core sends, and the counters by which it waits for those of others."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import COUNT_WIDTH, COUNTER_WIDTH
from weft.hw.control.reach import sum_of
from weft.hw.parts.operation_table import operation_layout


def post_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a post on its way: in a cycle in which it is ``valid``, 1 for ``counter`` of ``cores``."""
    return data.StructLayout({"valid": 1, "counter": COUNTER_WIDTH, "cores": arch.cores})


def posted_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of the posts that reach a core: one of each core."""
    return data.ArrayLayout(data.StructLayout({"valid": 1, "counter": COUNTER_WIDTH}), arch.cores)


def sync_ports(arch: Arch) -> dict[str, wiring.Member]:
    """Return the ports by which a core of a machine with ``sync_counters`` hears of others: name -> member."""
    if not arch.sync_counters:
        return {}
    return {"post": Out(post_layout(arch)), "posted": In(posted_layout(arch)), "other_error": In(1)}


class SyncUnit(wiring.Component):
    """Run Signals in order. An operation comes when what it must follow is done, of saves their last response.

    ``operation``: taken when the one before is done. ``post``: of the operation under way, in its cycle. ``posted``:
    posts of all cores to this one, any number in a cycle, which count from the next cycle on. A wait lasts until its
    counter holds its amount, which is then taken from it. ``done``: a pulse for each operation in its last cycle.
    ``overflow``: a pulse, a counter gets more than it can hold, and then holds less. ``stop``: nothing is posted or
    waited for any more, so that the core drains.

    Latency: ``done`` and ``post`` 1 cycle after the operation was taken, if the counter is filled then; a post that
    comes in a cycle ends a wait in the next one."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        ports = {name: port for name, port in sync_ports(arch).items() if name != "other_error"}
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "sync"))), **ports,
            "stop": In(1), "done": Out(1), "overflow": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the operation under way, and the counters."""
        m = Module()
        busy = Signal()
        held = Signal.like(self.operation.payload, reset_less=True)
        counters = [Signal(COUNT_WIDTH, name=f"counter{k}") for k in range(self._arch.sync_counters)]
        counter, above = held.target[:COUNTER_WIDTH], held.target[COUNTER_WIDTH:]
        filled = Array(counters)[counter] >= above
        acts = Signal()  # while nothing has stopped the core
        m.d.comb += [
            self.operation.ready.eq(~busy), acts.eq(busy & ~self.stop),
            self.done.eq(busy & (~held.wait | filled | self.stop)),
            self.post.valid.eq(acts & ~held.wait), self.post.counter.eq(counter), self.post.cores.eq(above),
        ]
        with m.If(~busy):
            m.d.sync += [busy.eq(self.operation.valid), held.eq(self.operation.payload)]
        with m.If(self.done):
            m.d.sync += busy.eq(0)
        over = []
        for number, value in enumerate(counters):
            come = sum_of([each.valid & (each.counter == number) for each in self.posted])
            taken = Mux(acts & held.wait & filled & (counter == number), above[:COUNT_WIDTH], 0)
            then = Signal(COUNT_WIDTH + 1, name=f"counter{number}_then")
            m.d.comb += then.eq(value + come - taken)
            m.d.sync += value.eq(then)
            over.append(then[-1])
        m.d.comb += self.overflow.eq(Cat(*over).any())
        return m
