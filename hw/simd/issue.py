# SPDX-License-Identifier: Apache-2.0
"""The gate of the SIMD pipeline: a micro-operation enters when what it reads has been written."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.contract.timing import SIMD_IN_FLIGHT
from weft.hw.simd.micro import micro_layout


class Issue(wiring.Component):
    """``i``: micro-operations in order; ``issued`` is high in the cycle in which ``o`` enters the pipeline.

    A micro-operation with read enters in the cycle in which its ``request`` is taken. It waits until all earlier writes
    to its read address have been taken by the memory, and until its source registers have been written. An operation
    finds a register's value if it is issued ``register_latency`` cycles after the one that writes it. It also waits
    until fewer than IN_FLIGHT are under way in the pipeline and the queue behind it. ``retired`` tells that the oldest
    has left. ``drained``: none is here or under way. LATENCY: from ``i`` taken to ``issued``, unhindered."""

    LATENCY = 1
    IN_FLIGHT = SIMD_IN_FLIGHT

    def __init__(self, arch: Arch, register_latency: int) -> None:
        self._arch, self._register_latency = arch, register_latency
        super().__init__({
            "i": In(stream.Signature(micro_layout(arch))),
            "request": Out(stream.Signature(unsigned(arch.accumulator_address_width))),
            "o": Out(micro_layout(arch)), "issued": Out(1), "retired": In(1), "drained": Out(1),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: one micro-operation waits in a register, the door, until it may enter the pipeline.

        What it conflicts with is known from its arrival on. It is issued when nothing is left of that, fewer than
        IN_FLIGHT operations are under way, and its request, if it reads, is taken. From then until ``retired`` it has a
        place in a ring, with which later ones are compared."""
        m = Module()
        valid = Signal()
        self._waiting = waiting = Signal(micro_layout(self._arch), reset_less=True)  # the operation at the door
        self._head, self._tail = (Signal(range(self.IN_FLIGHT), name=name) for name in ("head", "tail"))
        self._live = Signal(self.IN_FLIGHT)  # places of the operations under way, in a ring
        full = Signal()
        under_way = Signal(range(self.IN_FLIGHT + 1))
        memory_blocks = self._memory_conflicts(m)
        register_blocks = self._register_conflicts(m)
        clear = valid & ~full & ~memory_blocks & ~register_blocks
        m.d.comb += [
            self.o.eq(waiting), self.request.payload.eq(waiting.read_address),
            self.request.valid.eq(clear & waiting.read),
            self.issued.eq(clear & (~waiting.read | self.request.ready)),
            self.i.ready.eq(~valid | self.issued),
            self.drained.eq(~valid & ~self.i.valid & ~self._live.any()),
        ]
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), waiting.eq(self.i.payload)]
        m.d.sync += under_way.eq(under_way + self.issued - self.retired)
        with m.If(self.retired):
            m.d.sync += full.eq(0)
        with m.Elif(self.issued):
            m.d.sync += full.eq(under_way == self.IN_FLIGHT - 1)
        with m.If(self.issued):
            m.d.sync += [self._tail.eq(self._tail + 1), self._live.bit_select(self._tail, 1).eq(1)]
        with m.If(self.retired):
            m.d.sync += [self._head.eq(self._head + 1), self._live.bit_select(self._head, 1).eq(0)]
        return m

    def _memory_conflicts(self, m: Module) -> Value:
        """Return whether an operation under way will write the address that the waiting operation reads.

        There is a bit for each operation under way. Addresses are compared once, when the waiting operation arrives."""
        arriving, waiting = self.i.payload, self._waiting
        addresses = Array(Signal(unsigned(self._arch.accumulator_address_width), reset_less=True, name=f"address_{k}")
                          for k in range(self.IN_FLIGHT))
        writes = Signal(self.IN_FLIGHT, reset_less=True)
        conflicts = Signal(self.IN_FLIGHT)
        left = Signal(self.IN_FLIGHT)  # still under way after this cycle
        m.d.comb += left.eq(self._live & ~Mux(self.retired, (1 << self._head)[:self.IN_FLIGHT], 0))
        with m.If(self.issued):
            m.d.sync += [addresses[self._tail].eq(waiting.write_address),
                         writes.bit_select(self._tail, 1).eq(waiting.write)]
        with m.If(self.i.ready):
            same = Cat(address == arriving.read_address for address in addresses)
            door = self.issued & waiting.write & (waiting.write_address == arriving.read_address)
            found = (same & writes & left) | Mux(door, (1 << self._tail)[:self.IN_FLIGHT], 0)
            m.d.sync += conflicts.eq(Mux(arriving.read, found, 0))
        with m.Else():
            m.d.sync += conflicts.eq(conflicts & left)
        return conflicts.any()

    def _register_conflicts(self, m: Module) -> Value:
        """Return whether source registers of the waiting operation are still to be written.

        The cycles to wait are kept as that many ones from bit 0 up. They are worked out when the operation arrives,
        from the destinations of the operations issued last."""
        arriving, waiting, depth = self.i.payload, self._waiting, self._register_latency
        fields = data.StructLayout({"first": waiting.destination.shape(), "last": waiting.destination.shape(),
                                    "slot": waiting.slot.shape(), "live": 1})
        door = Signal(fields)
        spread = self._arch.lut_count
        is_lookup = (waiting.opcode == Op.LOOKUP) if spread else 0
        m.d.comb += [
            door.first.eq(waiting.destination), door.last.eq(waiting.destination + Mux(is_lookup, spread, 0)),
            door.slot.eq(waiting.slot), door.live.eq(self.issued),
        ]
        lately = [door]  # k: issued k cycles ago
        for k in range(1, depth - 1):
            stage = Signal(fields, name=f"destination_{k}")
            m.d.sync += stage.eq(lately[-1])
            lately.append(stage)
        wait = Signal(depth - 1)

        def hit(writer: Any) -> Value:
            def source(number: Value, slot: Value) -> Value:
                return (number != 0) & (writer.first <= number) & (number <= writer.last) & (writer.slot == slot)
            return writer.live & (source(arriving.left, arriving.left_slot)
                                  | source(arriving.right, arriving.right_slot))

        with m.If(self.i.ready):
            # Behind a writer issued k cycles ago the operation, at the door from now on, waits depth - 1 - k cycles.
            rows = [Mux(hit(writer), (1 << (depth - 1 - k)) - 1, 0) for k, writer in enumerate(lately)]
            total = rows[0]
            for row in rows[1:]:
                total = total | row
            m.d.sync += wait.eq(total)
        with m.Else():
            m.d.sync += wait.eq(wait >> 1)
        return wait[0]
