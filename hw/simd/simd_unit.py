"""The SIMD unit: plain instructions, loops and table loads, on the accumulators."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import SimdOpcode as Op
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, ROUNDED_READ_LATENCY, execute_latency, register_latency
from weft.hw.memory.leave import Leave
from weft.hw.parts import fixed_point
from weft.hw.parts.numbers import circuits
from weft.hw.parts.operations import shift_width, simd_layout
from weft.hw.parts.ports import (
    accumulator_layout,
    accumulator_read_port,
    accumulator_write_port,
    local_read_port,
    vector_layout,
)
from weft.hw.parts.slices import sliced, stage
from weft.hw.simd.alu import Alu
from weft.hw.simd.issue import Issue
from weft.hw.simd.lut import LookupTables, TableLoader
from weft.hw.simd.micro import micro_layout
from weft.hw.simd.registers import Registers
from weft.hw.simd.sequencer import Sequencer


class SimdUnit(wiring.Component):
    """``operation`` in; ``done`` pulses once for each, in order, when its write was taken by the accumulators or,
    without write, when its registers are written. A SIMDLoop's header and all of its body but the last pulse on their
    way, the last one when the whole loop has ended.

    The meaning is the sequential one (``reference.SimdReference``). One micro-operation a cycle where none depends on
    one under way. Requests may be refused for any time; responses come the ports' latencies after the request was
    taken. ``local_read`` exists only with lookup tables. A reset clears registers and what is under way, not tables.

    ``latency``: cycles from a plain operation taken, while nothing hinders, to its write request or, without write, its
    ``done``. ``register_latency``, ``memory_latency``: cycles from an operation's issue to the first in which one that
    needs its register, or what it wrote to memory, can be issued.
    """

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self.register_latency = register_latency(arch)
        after_issue = ROUNDED_READ_LATENCY + execute_latency(arch) + 3  # queue, two stages of entering
        self.memory_latency = after_issue + 1
        self.latency = Sequencer.LATENCY + arch.register_slices + Issue.LATENCY + after_issue
        members: dict[str, Any] = {
            "operation": In(stream.Signature(simd_layout(arch))), "done": Out(1),
            "accumulator_read": Out(accumulator_read_port(arch)),
            "accumulator_write": Out(accumulator_write_port(arch)),
        }
        if arch.lut_count:
            members["local_read"] = Out(local_read_port(arch))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        # operation -> sequencer -> issue -> (read, leave) -> registers -> ALU, tables -> queue -> enter -> write
        m = Module()
        arch = self._arch
        m.submodules.sequencer = sequencer = Sequencer(arch)
        m.submodules.issue = issue = Issue(arch, self.register_latency)
        m.submodules.registers = registers = Registers(arch)
        if arch.lut_count:
            m.submodules.tables = self._tables = LookupTables(arch)
            m.submodules.loader = loader = TableLoader(arch)
            connect(m, sequencer.load, loader.operation)
            connect(m, loader.local_read, flipped(self.local_read))
            m.d.comb += [getattr(self._tables, name).eq(getattr(loader, name))
                         for name in ("load_valid", "load_table", "load_entry", "load_vector")]
        connect(m, flipped(self.operation), sequencer.i)
        connect(m, sliced(m, arch, "micro", sequencer.o), issue.i)
        connect(m, issue.request, flipped(self.accumulator_read.request))
        m.d.comb += sequencer.drained.eq(issue.drained)

        stages = self._stages(m, issue)
        m.submodules.leave = leave = Leave(arch)
        m.d.comb += [
            leave.row.eq(self.accumulator_read.response.payload),
            leave.shift.eq(stages[ACCUMULATOR_READ_LATENCY - 1][1].leave_shift), registers.input.eq(leave.rounded),
        ]
        result = self._execute(m, registers, stages[ROUNDED_READ_LATENCY - 1], stages[ROUNDED_READ_LATENCY], stages[-1])
        m.d.comb += issue.retired.eq(self._write_back(m, result, stages[-2][1].enter_shift, *stages[-1]))
        return m

    def _stages(self, m: Module, issue: Issue) -> list[tuple[Value, Any]]:
        """(valid, micro-operation) k cycles after issue, up to its result. The pipeline never stalls."""
        stages: list[tuple[Value, Any]] = [(issue.issued, issue.o)]
        for k in range(1, ROUNDED_READ_LATENCY + execute_latency(self._arch) + 1):
            valid = Signal(name=f"valid_{k}")
            micro = Signal(micro_layout(self._arch), reset_less=True, name=f"micro_{k}")
            m.d.sync += [valid.eq(stages[-1][0]), micro.eq(stages[-1][1])]
            stages.append((valid, micro))
        return stages

    def _execute(self, m: Module, registers: Registers, coming: tuple, start: tuple, end: tuple) -> Value:
        """Registers, ALU and tables; the result is the last stage's. ``coming``: the stage before ``start``."""
        arch = self._arch
        m.submodules.alu = alu = Alu(arch.number, arch.lane_count)
        valid, micro = end
        reads, start = coming[1], start[1]
        m.d.comb += [
            registers.left_source.eq(reads.left_source), registers.right_source.eq(reads.right_source),
            registers.left_number.eq(reads.left), registers.left_slot.eq(reads.left_slot),
            registers.right_number.eq(reads.right), registers.right_slot.eq(reads.right_slot),
            alu.opcode.eq(start.opcode), alu.left.eq(registers.left), alu.right.eq(registers.right),
        ]
        result: Value = alu.result.as_value()
        if arch.lut_count:
            for k in range(execute_latency(arch) - Alu.LATENCY):
                later = Signal(len(result), reset_less=True, name=f"result_{k}")
                m.d.sync += later.eq(result)
                result = later
            is_lookup = micro.opcode == Op.LOOKUP
            result = Mux(is_lookup, self._tables.difference.as_value(), result)
            m.d.comb += [
                self._tables.argument.eq(registers.left),
                registers.write_values.eq(is_lookup), registers.values.eq(self._tables.values),
            ]
        m.d.comb += [
            registers.write.eq(valid), registers.write_number.eq(micro.destination),
            registers.write_slot.eq(micro.slot), registers.result.eq(result),
        ]
        return result

    def _write_back(self, m: Module, result: Value, coming_shift: Value, valid: Value, micro: Any) -> Value:
        """Queue, entering, write request. ``coming_shift``: micro's enter shift, a cycle before it. Returns when an
        operation is over."""
        arch, request = self._arch, self.accumulator_write.request
        fields = data.StructLayout({
            "address": arch.accumulator_address_width, "write": 1, "accumulate": 1, "done": 1,
            "enter_shift": shift_width(arch), "fits": arch.number.width - 1,
        })
        entry = data.StructLayout({"fields": fields, "row": vector_layout(arch)})
        queued, first, head = Signal(entry), Signal(entry), Signal(fields, reset_less=True)
        fits = Signal(arch.number.width - 1, reset_less=True)
        m.d.sync += fits.eq(fixed_point.fitting(coming_shift, arch.number.width, arch.accumulator_bits))
        m.submodules.queue = queue = SyncFIFO(width=entry.size, depth=Issue.IN_FLIGHT)
        m.d.comb += [
            queued.fields.address.eq(micro.write_address), queued.row.eq(result),
            *(queued.fields[name].eq(micro[name]) for name in ("write", "accumulate", "done", "enter_shift")),
            queued.fields.fits.eq(fits),
            queue.w_data.eq(queued), queue.w_en.eq(valid),  # Issue never lets more in than fit
            first.eq(queue.r_data),
        ]
        head_valid = Signal()
        target = data.StructLayout({name: fields[name].shape for name in ("address", "write", "accumulate", "done")})
        out = stage(m, arch, "out", data.StructLayout(
            {"data": accumulator_layout(arch), "target": target}), "target")
        leaving, leaves = out.o.payload.target, out.o.valid & out.o.ready
        m.d.comb += [
            queue.r_en.eq(~head_valid | out.i.ready), out.i.valid.eq(head_valid),
            *(out.i.payload.target[name].eq(head[name]) for name in target.members),
            request.valid.eq(out.o.valid & leaving.write), request.payload.data.eq(out.o.payload.data),
            request.payload.address.eq(leaving.address), request.payload.accumulate.eq(leaving.accumulate),
            out.o.ready.eq(~leaving.write | request.ready), self.done.eq(leaves & leaving.done),
        ]
        with m.If(queue.r_en):
            m.d.sync += [head_valid.eq(queue.r_rdy), head.eq(first.fields)]
        # Entering: the first step on the way to the head, the second on the way out.
        shifts, width = (first.fields.enter_shift, head.enter_shift), arch.accumulator_bits
        numbers = circuits(arch)
        from_shift = Signal(width, reset_less=True)
        with m.If(queue.r_en):
            m.d.sync += from_shift.eq(fixed_point.reached(shifts[0], width))
        for lane in range(arch.lane_count):
            scalar = first.row[lane]
            step = numbers.turn(scalar, shifts[0], first.fields.fits)
            turned = Signal(len(step), reset_less=True, name=f"turned_{lane}")
            with m.If(queue.r_en):
                m.d.sync += turned.eq(step)
            m.d.comb += out.i.payload.data[lane].eq(
                numbers.place(turned, shifts[1], from_shift))
        return leaves
