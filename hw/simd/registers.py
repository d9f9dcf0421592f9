# SPDX-License-Identifier: Apache-2.0
"""The SIMD registers, and their copies for iterations in flight."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.parts.ports import vector_layout
from weft.hw.simd.lut import values_layout
from weft.hw.simd.micro import Source, register_width, slot_count


class Registers(wiring.Component):
    """``left`` and ``right`` each read a source, a register's number and slot; the vector comes in the next cycle.

    It is a register, the ``input`` of that next cycle, or constants. If both sides read one register, they read one
    slot. ``write`` (number 0: none) puts ``result`` into a register, seen from the next cycle on. With lookup
    tables, ``write_values`` also puts the ``values`` of table 1, 2.. into the registers behind it; number 0 then
    writes only those. Slot 0 reads as zero after a reset; another slot must be written before it is read."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        number, slot, vector = (unsigned(register_width(arch)), unsigned(bits_to_count(slot_count(arch))),
                                vector_layout(arch))
        members: dict[str, Any] = {
            "input": In(vector), "left_source": In(Source), "right_source": In(Source),
            "left_number": In(number), "left_slot": In(slot), "left": Out(vector),
            "right_number": In(number), "right_slot": In(slot), "right": Out(vector),
            "write": In(1), "write_number": In(number), "write_slot": In(slot), "result": In(vector),
        }
        if arch.lut_count:
            members |= {"write_values": In(1), "values": In(values_layout(arch))}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: the registers, and the choice of each side."""
        m = Module()
        registers = [self._register(m, number) for number in range(1, self._arch.simd_registers_depth + 1)]
        for side in ("left", "right"):
            self._read(m, side, registers)
        return m

    def _read(self, m: Module, side: str, registers: list[tuple[Value, Value]]) -> None:
        """Make the choice of one side: a multiplexer of four."""
        number, slot, vector = getattr(self, f"{side}_number"), getattr(self, f"{side}_slot"), getattr(self, side)
        width, one = self._arch.number.width, self._arch.number.one
        value, chosen = Signal(len(vector.as_value()), name=f"{side}_value"), Signal.like(number, name=f"{side}_chosen")
        for index, (row, _) in enumerate(registers):
            with m.If((chosen == index + 1) | (len(registers) == 1)):
                m.d.comb += value.eq(row)
        defined = Cat(defined & (number == index) for index, (_, defined) in enumerate(registers, 1)).any()
        written = (slot != 0) | defined  # slot 0 is zero until then
        asked, source = Value.cast(getattr(self, f"{side}_source")), Signal(2, name=f"{side}_choice")
        m.d.sync += [
            chosen.eq(number),
            source.eq(Mux((asked == Source.REGISTER.value) & ~written, Source.ZERO.value, asked)),
        ]
        for lane, scalar in enumerate(self.input):
            register = value.word_select(lane, width)
            # Constants inside: outside yosys makes a clear of some bits of the registers behind, and the multiplier's
            # do not move into its DSP block.
            m.d.comb += vector[lane].eq(
                Mux(source[0], Mux(source[1], one, register), Mux(source[1], 0, scalar.as_unsigned())))

    def _register(self, m: Module, number: int) -> tuple[Value, Value]:
        """Return the vector that is read, and whether slot 0 will have been written since reset, by the next cycle."""
        vector = vector_layout(self._arch)
        memory = m.submodules[f"register_{number}"] = Memory(shape=vector, depth=slot_count(self._arch), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        enable, value = self._write(number)
        defined, slot = Signal(name=f"defined_{number}"), Signal.like(self.left_slot, name=f"slot_{number}")
        defines = defined | (enable & (self.write_slot == 0))
        m.d.sync += [defined.eq(defines), slot.eq(Mux(self.left_number == number, self.left_slot, self.right_slot))]
        m.d.comb += [
            write.addr.eq(self.write_slot), write.data.eq(value), write.en.eq(enable), read.addr.eq(slot),
        ]
        return read.data.as_value(), defines

    def _write(self, number: int) -> tuple[Value, Value]:
        """Return enable and data of one register's write port.

        The data are the result, or the value of the table whose number is the register's distance from the
        destination."""
        enable: Value = self.write & (self.write_number == number)
        value: Value = self.result.as_value()
        for table in range(1, self._arch.lut_count + 1):
            if table <= number:
                hit = self.write & self.write_values & (self.write_number == number - table)
                enable, value = enable | hit, Mux(hit, self.values[table - 1].as_value(), value)
        return enable, value
