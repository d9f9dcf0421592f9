# SPDX-License-Identifier: Apache-2.0
"""The SIMD unit: plain instructions, loops and table loads, on the accumulators."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.contract.register_table import register_table
from weft.hw.contract.timing import INPUT_RESCALE_LATENCY, ROUNDED_READ_LATENCY, execute_latency, register_latency
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import field_registers
from weft.hw.parts.ports import InputRescalerPort, RequantizerPort, local_read_port
from weft.hw.parts.slices import sliced, stage
from weft.hw.simd.alu import Alu
from weft.hw.simd.issue import Issue
from weft.hw.simd.lut import LookupTables, TableLoader
from weft.hw.simd.micro import micro_layout
from weft.hw.simd.registers import Registers
from weft.hw.simd.sequencer import Sequencer


class SimdUnit(wiring.Component):
    """The SIMD unit; ``done`` pulses once for each ``operation``, in order.

    It pulses when the operation's write was taken by the accumulators or, without write, when its registers are
    written. The header of a SIMDLoop and all instructions of its body but the last pulse on their way; the last one
    pulses when the whole loop has ended.

    The meaning is the sequential one (``reference.SimdReference``). There is one micro-operation a cycle if none
    depends on one under way. Requests may be refused for any time; responses come the ports' latencies after the
    request was taken. ``local_read`` exists only with lookup tables. A reset clears registers and what is under way,
    not tables.

    ``latency``: cycles from a plain operation taken, while nothing hinders, to its write request or, without write,
    its ``done``. ``register_latency``, ``memory_latency``: cycles from an operation's issue to the first in which
    another can be issued that needs its register, or what it wrote to memory."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self.register_latency = register_latency(arch)
        after_issue = ROUNDED_READ_LATENCY + execute_latency(arch) + 1 + INPUT_RESCALE_LATENCY  # one in the queue
        self.memory_latency = after_issue + 1
        self.latency = Sequencer.LATENCY + arch.register_slices + Issue.LATENCY + after_issue
        members: dict[str, Any] = {
            "operation": In(stream.Signature(operation_layout(arch, "simd"))), "done": Out(1),
            "accumulator_read": Out(RequantizerPort(arch)), "accumulator_write": Out(InputRescalerPort(arch)),
        }
        if arch.lut_count:
            members["local_read"] = Out(local_read_port(arch))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit.

        Flow: operation -> sequencer -> issue -> (read) -> registers -> ALU, tables -> queue -> (enter)."""
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
        m.d.comb += sequencer.drained.eq(issue.drained)

        stages = self._stages(m, issue)
        read = self.accumulator_read
        m.d.comb += [
            read.request.valid.eq(issue.request.valid), issue.request.ready.eq(read.request.ready),
            read.request.payload.address.eq(issue.request.payload),
            read.request.payload.output_shift.eq(issue.o.output_shift), read.request.payload.relu.eq(0),
            registers.input.eq(read.response.payload),
        ]
        result = self._execute(m, registers, stages[ROUNDED_READ_LATENCY - 1], stages[ROUNDED_READ_LATENCY], stages[-1])
        m.d.comb += issue.retired.eq(self._write_back(m, result, *stages[-1]))
        return m

    def _stages(self, m: Module, issue: Issue) -> list[tuple[Value, Any]]:
        """Return (valid, micro-operation) k cycles after issue, up to its result. The pipeline never stalls."""
        stages: list[tuple[Value, Any]] = [(issue.issued, issue.o)]
        for k in range(1, ROUNDED_READ_LATENCY + execute_latency(self._arch) + 1):
            valid = Signal(name=f"valid_{k}")
            micro = Signal(micro_layout(self._arch), reset_less=True, name=f"micro_{k}")
            m.d.sync += [valid.eq(stages[-1][0]), micro.eq(stages[-1][1])]
            stages.append((valid, micro))
        return stages

    def _execute(self, m: Module, registers: Registers, coming: tuple, start: tuple, end: tuple) -> Value:
        """Join registers, ALU and tables; return the result, which belongs to the stage ``end``.

        ``coming``: the stage before ``start``, in which the ALU gets its arguments."""
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

    def _write_back(self, m: Module, result: Value, valid: Value, micro: Any) -> Value:
        """Queue the results, and write them to the accumulators; return whether a micro-operation is over."""
        enter = self.accumulator_write
        kind = data.StructLayout({"write": 1, "done": 1})
        queued, head = (Signal(data.StructLayout({"kind": kind, "request": enter.request.payload.shape()}), name=name)
                        for name in ("queued", "head"))
        m.submodules.queue = queue = SyncFIFO(width=len(queued.as_value()), depth=Issue.IN_FLIGHT)
        # What comes behind a write that is under way to the accumulators waits here, so that all end in order.
        passing = stage(m, self._arch, "passing", kind)
        leaves = passing.o.valid & passing.o.ready
        m.d.comb += [
            queued.request.address.eq(micro.write_address), queued.request.data.eq(result),
            *(queued.request[name].eq(micro[name]) for name in ("accumulate", "input_shift")),
            queued.kind.write.eq(micro.write), queued.kind.done.eq(micro.done),
            queue.w_data.eq(queued), queue.w_en.eq(valid),  # Issue never lets more in than fit
            head.eq(queue.r_data), enter.request.payload.eq(head.request), passing.i.payload.eq(head.kind),
            enter.request.valid.eq(queue.r_rdy & head.kind.write & passing.i.ready),
            passing.i.valid.eq(queue.r_rdy & (~head.kind.write | enter.request.ready)),
            queue.r_en.eq(passing.i.ready & (~head.kind.write | enter.request.ready)),
            passing.o.ready.eq(~passing.o.payload.write | enter.written),
            self.done.eq(leaves & passing.o.payload.done),
        ]
        # What a move into the accumulators rescales by is neutral here: registers after reset. The others stay zero.
        for name, register in field_registers(self._arch, "move_in").items():
            if name not in micro.shape().members and (reset := register_table(self._arch)[register].reset):
                m.d.comb += enter.request.payload[name].eq(reset)
        return leaves
