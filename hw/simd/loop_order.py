# SPDX-License-Identifier: Apache-2.0
"""Whether the iterations of a SIMD loop may overlap."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import stride_log2_width


class LoopOrder(wiring.Component):
    """See the instructions of a loop body, and say whether its iterations have to run one after another.

    ``clear`` starts a body. ``access`` is an instruction of it that reads or writes the accumulators, taken in a
    cycle with ``access_valid`` and ``ready``; ``iterations_m1`` is the loop's. An access takes a cycle for each
    earlier one, at least one, and the next access is taken in the last of these cycles. When ``ready`` is high
    again, ``in_order`` tells of all accesses so far. It is high if a write of one instruction and a read or write of
    another go through addresses that overlap without being the same sequence. Then every iteration has to end before
    the next begins."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "clear": In(1), "access_valid": In(1), "access": In(operation_layout(arch, "simd")),
            "iterations_m1": In(arch.accumulator_address_width), "ready": Out(1), "in_order": Out(1),
        })

    @staticmethod
    def reference(instructions: list[tuple[list[int], list[int]]]) -> bool:
        """Return ``in_order`` for at least two iterations.

        ``instructions``: the (read, write) addresses of each instruction, one for each iteration."""
        def clash(one: list[int], other: list[int]) -> bool:
            if not one or not other or (one == other and one[0] != one[1]):
                return False
            return one[0] <= other[-1] and other[0] <= one[-1]

        return any(clash(instructions[k][1], addresses) for k in range(len(instructions))
                   for n in range(len(instructions)) if n != k for addresses in instructions[n])

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit.

        Flow: a body instruction's access -> compared with one before it a cycle -> in_order; then ready for the
        next."""
        m = Module()
        arch = self._arch
        width = arch.accumulator_address_width
        sequence = data.StructLayout({
            "used": 1, "moves": 1, "first": unsigned(width), "last": unsigned(width),
            "stride_log2": unsigned(stride_log2_width(arch)),
        })
        both = data.StructLayout({"read": sequence, "write": sequence})
        earlier = m.submodules.earlier = Memory(shape=both, depth=arch.simd_loop_depth, init=[])
        write, read = earlier.write_port(), earlier.read_port(domain="comb")
        count, position = (Signal(range(arch.simd_loop_depth + 1), name=name) for name in ("count", "position"))
        busy, clashes, clashed = (Signal(name=name) for name in ("busy", "clashes", "clashed"))
        new, old = Signal(both), read.data
        m.d.comb += [
            self.ready.eq(~busy | write.en), read.addr.eq(position), write.addr.eq(count), write.data.eq(new),
            write.en.eq(busy & (position + 1 >= count)), self.in_order.eq(clashed | clashes),
            clashes.eq(busy & (position != count) & (
                self._clash(new.write, old.write) | self._clash(new.write, old.read)
                | self._clash(new.read, old.write))),
        ]
        m.d.sync += clashed.eq(self.in_order)
        with m.If(busy):
            m.d.sync += position.eq(position + 1)
            with m.If(write.en):
                m.d.sync += [count.eq(count + 1), busy.eq(0)]
        with m.If(self.ready & self.access_valid):
            m.d.sync += [busy.eq(1), position.eq(0)]
            for name, moves in (("read", ~self.access.hold), ("write", 1)):
                first, stride = self.access[f"{name}_address"], self.access[f"{name}_stride_log2"]
                length = (self.iterations_m1 << stride)[:width]
                m.d.sync += [
                    new[name].used.eq(self.access[name]), new[name].moves.eq(moves),
                    new[name].first.eq(first), new[name].last.eq((first + Mux(moves, length, 0))[:width]),
                    new[name].stride_log2.eq(stride),
                ]
        with m.If(self.clear):
            m.d.sync += [count.eq(0), clashed.eq(0)]
        return m

    @staticmethod
    def _clash(one: Any, other: Any) -> Value:
        """Return whether two sequences of addresses overlap without being the same."""
        overlap = (one.first <= other.last) & (other.first <= one.last)
        same = (one.first == other.first) & (one.stride_log2 == other.stride_log2) & one.moves & other.moves
        return one.used & other.used & overlap & ~same
