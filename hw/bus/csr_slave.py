# SPDX-License-Identifier: Apache-2.0
"""The AXI4-Lite slave with the control and status registers of ``csr.py``."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.bus.register_page import answer_reads, take_writes
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import (
    ADDRESS_WIDTH,
    CONTROL_REGISTERS,
    INTERRUPT_COUNT,
    Command,
    Status,
    board_code,
    parameter_values,
    stored_widths,
)

CAUSE_WIDTH = 8

STATUS_LAYOUT = data.StructLayout({status.name.lower(): 1 for status in sorted(Status)})
"""The bits of STATUS from bit 0 up: done, error, timeout, tracepoint, running, idle."""


STATUS_SOURCES = {"done": "done", "error": "error", "timeout": "timed_out", "tracepoint": "traced",
                  "running": "running", "idle": "idle"}
"""Bit of STATUS -> the member of ``control.status.MachineStatus`` that it shows."""
SHOWN = {"error_cause": "cause", "error_program_counter": "error_program_counter",
         "program_counter": "program_counter", "cycles": "cycles", "instructions": "instructions"}
"""Input of CsrSlave -> the member of MachineStatus that goes there, for a register of its own."""


class CsrSlave(wiring.Component):
    """The control registers of a core: reads do not wait for writes, nor writes for reads.

    ``axil``: 32 bits; the two low address bits are ignored. There is one read and one write at a time. A read is
    answered 2 cycles after it is taken, a write 1 cycle after the later of its address and data. Only bytes with their
    strobe are written, and of these only the bits of ``csr.stored_widths`` are kept. An offset that is not in the table
    answers SLVERR, reads as 0 and writes nothing. A write to a READ_ONLY register does nothing and answers OKAY. Each
    half of a 64-bit counter is read as it is at that moment: read the high half again to notice a carry.

    ``status``, ``error_cause`` (``Cause``), ``error_program_counter``, ``program_counter``, ``cycles`` and
    ``instructions`` are what the read-only registers show, see ``SHOWN``. ``start`` and ``soft_reset`` pulse in the
    cycle after the write was complete. ``program_address`` and ``program_bytes`` are as written. ``interrupt`` is
    high a cycle after a bit of INTERRUPT_STATUS that INTERRUPT_ENABLE lets pass. INTERRUPT_STATUS keeps each rise of
    status bits DONE..TRACEPOINT until 1 is written there; a rise in the same cycle wins. A soft reset leaves all of
    this as it is."""

    def __init__(self, arch: Arch, board: str = "") -> None:
        self._arch, self._board = arch, board
        super().__init__({
            "axil": In(axi.Axi4Lite(ADDRESS_WIDTH)),
            "status": In(STATUS_LAYOUT), "error_cause": In(CAUSE_WIDTH), "error_program_counter": In(32),
            "program_counter": In(32), "cycles": In(64), "instructions": In(64),
            "start": Out(1), "soft_reset": Out(1),
            "program_address": Out(arch.axi_address_width), "program_bytes": Out(32), "interrupt": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the registers, the commands, the interrupt, and their page."""
        m = Module()
        stored = {name: Signal(width, name=name.lower()) for name, width in stored_widths(self._arch).items()}
        interrupts = Signal(INTERRUPT_COUNT)
        commands = Signal(len(Command))
        written, strobes, word = take_writes(m, self.axil, CONTROL_REGISTERS)
        for name, register in stored.items():
            for low in range(0, len(register), 8):
                with m.If(written[name] & strobes[low // 8]):
                    m.d.sync += register[low:low + 8].eq(word[low:low + 8])
        first = Mux(strobes[0], word[:8], 0)  # the byte of commands and interrupts
        m.d.sync += commands.eq(Mux(written["CONTROL"], first, 0))

        status = self.status.as_value()[:INTERRUPT_COUNT]
        before = Signal(INTERRUPT_COUNT)
        clear = Mux(written["INTERRUPT_STATUS"], first, 0)[:INTERRUPT_COUNT]
        m.d.sync += [
            before.eq(status), interrupts.eq((interrupts & ~clear) | (status & ~before)),
            self.interrupt.eq((interrupts & stored["INTERRUPT_ENABLE"]).any()),
        ]
        m.d.comb += [
            self.start.eq(commands[Command.START]), self.soft_reset.eq(commands[Command.SOFT_RESET]),
            self.program_address.eq(Cat(stored["PROGRAM_ADDRESS_LOW"], stored["PROGRAM_ADDRESS_HIGH"])),
            self.program_bytes.eq(stored["PROGRAM_BYTES"]),
        ]
        answer_reads(m, self.axil, CONTROL_REGISTERS, {
            **self._shown(), **stored, "INTERRUPT_STATUS": interrupts, "CONTROL": Const(0, 32)})
        return m

    def _shown(self) -> dict[str, Value]:
        """Return the values of the read-only registers, by name."""
        return {
            **{name: Const(value, 32) for name, value in parameter_values(self._arch).items()},
            "BOARD": Const(board_code(self._board), 32),
            "STATUS": self.status.as_value(), "ERROR_CAUSE": self.error_cause,
            "ERROR_PROGRAM_COUNTER": self.error_program_counter, "PROGRAM_COUNTER": self.program_counter,
            "CYCLES_LOW": self.cycles[:32], "CYCLES_HIGH": self.cycles[32:],
            "INSTRUCTIONS_LOW": self.instructions[:32], "INSTRUCTIONS_HIGH": self.instructions[32:],
        }
