# SPDX-License-Identifier: Apache-2.0
"""From the SIMD unit's operations to micro-operations: plain ones as they are, loops unrolled in the best order."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.parts.fixed_point import add_with_carry
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import SimdKind
from weft.hw.simd.alu import BY_ONE, SWAPPED, opcode_is
from weft.hw.simd.loop_order import LoopOrder
from weft.hw.simd.lut import load_layout
from weft.hw.simd.micro import Source, micro_layout, register_width, slot_count


def pointer_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of the addresses that an instruction of a loop body reads and writes next."""
    return data.StructLayout({"read": arch.accumulator_address_width, "write": arch.accumulator_address_width})


class Sequencer(wiring.Component):
    """``i``: operations; ``o``: micro-operations, one a cycle, LATENCY cycles after their operation was taken.

    The micro-operations, executed in order, mean what the operations mean, and each operation has exactly one with
    ``done``. A loop runs in blocks of iterations: an instruction runs for a whole block before the next instruction
    does. If that could change the meaning (``LoopOrder``), a block is one iteration. The shifts of a loop are those of
    its last instruction: they are configured, and nothing can be configured within a loop.

    ``load`` (only with lookup tables) asks, while ``drained``, for a table to be filled, and is taken when it is
    full."""

    LATENCY = 1

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self._loops, self._tables = arch.simd_loop_depth > 0, arch.lut_count > 0
        members: dict[str, Any] = {
            "i": In(stream.Signature(operation_layout(arch, "simd"))), "o": Out(stream.Signature(micro_layout(arch))),
            "drained": In(1),
        }
        if self._tables:
            members["load"] = Out(stream.Signature(load_layout(arch)))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit.

        Flow: PLAIN: operation -> o; a loop: CAPTURE its body, CHECK its order, RUN: iterations of each instruction ->
        o."""
        m = Module()
        i, o = self.i, self.o
        self._micro = Signal(micro_layout(self._arch), reset_less=True)
        self._instruction(m)
        m.d.comb += o.payload.eq(self._micro)
        self._free = free = Signal()
        m.d.comb += free.eq(~o.valid | o.ready)
        with m.If(free):
            m.d.sync += o.valid.eq(0)
        if not self._loops:
            self._next_operation(m)  # an FSM of one state has a state of no bits, and yosys drops all of it
        else:
            self._loop_state(m)
            with m.FSM():
                with m.State("PLAIN"):
                    self._next_operation(m)
                self._loop(m)
            self._blocks(m)
        if self._tables:
            m.d.comb += [
                self.load.payload.table.eq(i.payload.table), self.load.payload.base.eq(i.payload.local_base),
                self.load.payload.stride_log2.eq(i.payload.local_stride_log2),
            ]
        return m

    # -- instructions ----------------------------------------------------------------------------------------------
    def _instruction(self, m: Module) -> None:
        """Make ``new``: the instruction on offer, as a loop keeps it, with its arguments in the ALU's form."""
        i, register = self.i.payload, self._micro.left.shape()
        layout = data.StructLayout({
            "read": 1, "write": 1, "accumulate": 1, "hold": 1, "opcode": 5,
            "read_stride_log2": i.read_stride_log2.shape(), "write_stride_log2": i.write_stride_log2.shape(),
            "left": register, "right": register, "destination": register,
            "left_source": Source, "right_source": Source,
            "left_own": 1, "right_own": 1,  # the register was written earlier in the body
        })
        self._new = new = Signal(layout)
        is_swapped, one = opcode_is(i.opcode, *SWAPPED), opcode_is(
            i.opcode, Op.MOVE, Op.NOT, Op.INCREMENT, Op.DECREMENT, Op.LOOKUP)
        m.d.comb += [
            *(new[name].eq(i[name]) for name in ("read", "write", "accumulate", "hold", "opcode", "read_stride_log2",
                                                 "write_stride_log2", "destination")),
            new.left.eq(Mux(is_swapped, i.right, i.left)), new.right.eq(Mux(is_swapped, i.left, i.right)),
        ]
        with m.If(opcode_is(i.opcode, Op.NO_OP)):
            m.d.comb += new.destination.eq(0)
        with m.If(opcode_is(i.opcode, Op.NO_OP, Op.ZERO, Op.ABS)):
            m.d.comb += new.left.eq(0)
        with m.If(opcode_is(i.opcode, Op.NO_OP, Op.ZERO) | one):
            m.d.comb += new.right.eq(0)
        for number, source in ((new.left, new.left_source), (new.right, new.right_source)):
            m.d.comb += source.eq(Mux(number != 0, Source.REGISTER, Mux(i.read, Source.INPUT, Source.ZERO)))
        with m.If(opcode_is(i.opcode, Op.ZERO, Op.ABS)):
            m.d.comb += new.left_source.eq(Source.ZERO)
        with m.If(opcode_is(i.opcode, *BY_ONE)):
            m.d.comb += new.right_source.eq(Source.ONE)

    # -- plain operations ------------------------------------------------------------------------------------------
    def _next_operation(self, m: Module) -> None:
        """Take a plain operation, the header of a loop, or a table load."""
        i = self.i
        with m.If(i.valid), m.Switch(i.payload.kind):
            with m.Case(SimdKind.INSTRUCTION):
                m.d.comb += i.ready.eq(self._free)
                with m.If(self._free):
                    self._plain(m)
            if self._loops:
                with m.Case(SimdKind.LOOP):
                    m.d.comb += i.ready.eq(self._free)
                    with m.If(self._free):
                        self._marker(m)
                        self._start_capture(m)
                        m.next = "CAPTURE"
            if self._tables:
                with m.Case(SimdKind.LOAD_LUT):
                    m.d.comb += self.load.valid.eq(self.drained & ~self.o.valid)
                    with m.If(self.load.valid & self.load.ready):
                        m.d.comb += i.ready.eq(1)
                        self._marker(m)

    def _marker(self, m: Module) -> None:
        """Emit a micro-operation that only carries ``done``."""
        o = self._micro
        m.d.sync += [self.o.valid.eq(1), o.done.eq(1),
                     *(o[name].eq(0) for name in ("read", "write", "opcode", "left", "right", "destination"))]

    def _emit(self, m: Module, source: Any) -> None:
        """Emit the fields that a plain instruction and one of a body have in common."""
        o = self._micro
        m.d.sync += [
            self.o.valid.eq(1),
            *(o[name].eq(source[name]) for name in ("read", "write", "accumulate", "opcode", "destination", "left",
                                                    "right", "left_source", "right_source")),
        ]

    def _plain(self, m: Module) -> None:
        """Emit the micro-operation of a plain instruction."""
        i, o = self.i.payload, self._micro
        self._emit(m, self._new)
        m.d.sync += [
            o.done.eq(1), o.read_address.eq(i.read_address), o.write_address.eq(i.write_address),
            o.slot.eq(0), o.left_slot.eq(0), o.right_slot.eq(0),
            o.input_shift.eq(i.input_shift), o.output_shift.eq(i.output_shift),
        ]

    # -- loops -----------------------------------------------------------------------------------------------------
    def _loop_state(self, m: Module) -> None:
        """Make the loop's registers and memories: the body as captured, and the next addresses of each instruction."""
        arch, depth = self._arch, self._arch.simd_loop_depth
        body = m.submodules.body = Memory(shape=self._new.shape(), depth=depth, init=[])
        pointers = m.submodules.pointers = Memory(shape=pointer_layout(arch), depth=depth, init=[])
        self._body_write, self._body_read = body.write_port(), body.read_port(domain="comb")
        self._pointer_write, self._pointer_read = pointers.write_port(), pointers.read_port(domain="comb")
        m.submodules.order = self._order = LoopOrder(arch)
        self._number = Signal(range(depth))                         # of the instruction in the body
        self._body_m1 = Signal(range(depth))
        self._iterations_m1 = Signal.like(self.i.payload.iterations_m1)
        # Iterations from the block's first on, - 1, as their complement: that counts up.
        self._not_left_m1 = Signal.like(self._iterations_m1)
        self._written = Signal(1 << register_width(arch))           # registers written so far in the body
        self._at = Signal(pointer_layout(arch))                     # where the current instruction stands
        self._place, self._block_m1 = (Signal(range(slot_count(arch) - 1), name=name) for name in ("place", "block_m1"))
        self._start, self._running = (Signal(name=name) for name in ("start_block", "running"))
        m.d.comb += [
            self._body_write.addr.eq(self._number), self._body_read.addr.eq(self._number),
            self._pointer_write.addr.eq(self._number),
        ]

    def _start_capture(self, m: Module) -> None:
        """Start to take a loop's body."""
        i = self.i.payload
        m.d.comb += self._order.clear.eq(1)
        m.d.sync += [
            self._number.eq(0), self._written.eq(0),
            self._body_m1.eq(i.body_m1), self._iterations_m1.eq(i.iterations_m1),
            self._not_left_m1.eq(~i.iterations_m1), self._block_m1.eq(0),
        ]

    def _loop(self, m: Module) -> None:
        """Make the loop's states: CAPTURE takes the body, CHECK waits for LoopOrder, RUN unrolls."""
        i, order = self.i, self._order
        last = self._number == self._body_m1
        with m.State("CAPTURE"):
            m.d.comb += i.ready.eq(self._free & order.ready)
            with m.If(i.valid & i.ready):
                self._capture(m)
                with m.If(~last):
                    self._marker(m)
                    m.d.sync += self._number.eq(self._number + 1)
                with m.Else():
                    m.d.sync += self._number.eq(0)
                    m.next = "CHECK"
        with m.State("CHECK"):
            # The number is 0, so that is where the pointers are read.
            m.d.comb += self._pointer_read.addr.eq(0)
            m.d.sync += self._at.eq(self._pointer_read.data)
            with m.If(order.ready):
                m.d.comb += self._start.eq(1)
                m.next = "RUN"
        with m.State("RUN"):
            m.d.comb += self._running.eq(1)
            with m.If(self._free):
                self._run(m, last)

    def _capture(self, m: Module) -> None:
        """Store an instruction of the body, and give it to LoopOrder."""
        i, new, body = self.i.payload, self._new, self._body_write.data
        # What a Lookup writes: its destination and as many registers behind it as there are lookup tables.
        spread = (1 << (self._arch.lut_count + 1)) - 1 if self._tables else 1
        span = Mux(i.opcode == Op.LOOKUP, spread, 1)
        m.d.comb += [
            self._body_write.en.eq(1), self._pointer_write.en.eq(1),
            body.eq(new),
            new.left_own.eq(self._written.bit_select(new.left, 1)),
            new.right_own.eq(self._written.bit_select(new.right, 1)),
            self._pointer_write.data.read.eq(i.read_address), self._pointer_write.data.write.eq(i.write_address),
            self._order.access_valid.eq(i.read | i.write), self._order.access.eq(i),
            self._order.iterations_m1.eq(self._iterations_m1),
        ]
        m.d.sync += [
            self._written.eq(self._written | (span << new.destination)[:len(self._written)]),
            self._micro.input_shift.eq(i.input_shift), self._micro.output_shift.eq(i.output_shift),
        ]

    def _blocks(self, m: Module) -> None:
        """Begin the next block of iterations with ``start``: the first one, or when ``running`` the one after this.

        A block has as many iterations as there are slots, or what is left, or one if the order counts. If what is
        left fills less than two blocks, it is halved: in a last block of an iteration or two the ALU's latency would
        show."""
        limit, width, left_m1 = slot_count(self._arch) - 2, len(self._block_m1), Signal.like(self._not_left_m1)
        not_left_m1 = add_with_carry(self._not_left_m1, Cat(self._block_m1, Const(0, len(left_m1)))[:len(left_m1)],
                                     self._running)[:len(left_m1)]  # before the first block_m1 is 0
        halves = Mux(left_m1 <= 2 * limit + 1, (left_m1 >> 1)[:width], limit)
        iterations_m1 = Mux(left_m1 <= limit, left_m1[:width], halves)
        m.d.comb += left_m1.eq(~not_left_m1)
        with m.If(self._start):
            m.d.sync += [
                self._place.eq(0), self._not_left_m1.eq(not_left_m1),
                self._block_m1.eq(Mux(self._order.in_order & (self._body_m1 != 0), 0, iterations_m1)),
            ]

    def _run(self, m: Module, last_instruction: Value) -> None:
        """Emit one micro-operation of the body, and go on to the next."""
        o, body, at = self._micro, self._body_read.data, self._at
        end_of_instruction = self._place == self._block_m1
        last_block = ~self._not_left_m1 == self._block_m1
        following = Signal.like(at)
        slot = Signal.like(o.slot)
        m.d.comb += [
            following.read.eq(at.read + Mux(body.hold, 0, 1 << body.read_stride_log2)),
            following.write.eq(at.write + (1 << body.write_stride_log2)),
            slot.eq(self._place + 1),
            self._pointer_write.data.eq(following), self._pointer_write.en.eq(end_of_instruction),
            self._pointer_read.addr.eq(Mux(last_instruction, 0, self._number + 1)),
        ]
        self._emit(m, body)
        m.d.sync += [
            o.done.eq(end_of_instruction & last_instruction & last_block),
            o.read_address.eq(at.read), o.write_address.eq(at.write),
            o.slot.eq(slot), o.left_slot.eq(Mux(body.left_own, slot, 0)), o.right_slot.eq(Mux(body.right_own, slot, 0)),
            at.eq(following), self._place.eq(self._place + 1),
        ]
        with m.If(end_of_instruction):
            m.d.sync += self._place.eq(0)
            # A body of one instruction goes on from where it is; its pointers in the memory are not up to date yet.
            with m.If(self._body_m1 != 0):
                m.d.sync += at.eq(self._pointer_read.data)
            m.d.sync += self._number.eq(Mux(last_instruction, 0, self._number + 1))
            with m.If(last_instruction):
                m.d.comb += self._start.eq(1)
                with m.If(last_block):
                    m.next = "PLAIN"
