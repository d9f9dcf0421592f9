"""The SIMD registers, and their copies for iterations in flight."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.arch import Arch, bits_to_count
from weft.hw.ports import vector_layout
from weft.hw.simd.lut import values_layout
from weft.hw.simd.micro import register_width, slot_count


class Registers(wiring.Component):
    """``left`` and ``right``: number and slot in, the register's vector out in the same cycle; 0 gives ``input``.

    ``write`` (number 0: none) puts ``result`` into a register, seen from the next cycle on. With lookup tables,
    ``write_values`` also puts the ``values`` of table 1, 2.. into the registers behind it; 0 then writes those only.
    Slot 0 reads as zero after a reset; another slot must be written before it is read.
    """

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        number, slot, vector = (unsigned(register_width(arch)), unsigned(bits_to_count(slot_count(arch))),
                                vector_layout(arch))
        members: dict[str, Any] = {
            "input": In(vector),
            "left_number": In(number), "left_slot": In(slot), "left": Out(vector),
            "right_number": In(number), "right_slot": In(slot), "right": Out(vector),
            "write": In(1), "write_number": In(number), "write_slot": In(slot), "result": In(vector),
        }
        if arch.lut_count:
            members |= {"write_values": In(1), "values": In(values_layout(arch))}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += [self.left.eq(self.input), self.right.eq(self.input)]
        for number in range(1, self._arch.simd_registers_depth + 1):
            self._register(m, number)
        return m

    def _register(self, m: Module, number: int) -> None:
        vector = vector_layout(self._arch)
        memory = m.submodules[f"register_{number}"] = Memory(shape=vector, depth=slot_count(self._arch), init=[])
        write = memory.write_port()
        enable, value = self._write(number)
        m.d.comb += [write.addr.eq(self.write_slot), write.data.eq(value), write.en.eq(enable)]
        defined = Signal(name=f"defined_{number}")  # slot 0 was written since reset
        with m.If(enable & (self.write_slot == 0)):
            m.d.sync += defined.eq(1)
        for side in ("left", "right"):
            read = memory.read_port(domain="comb")
            slot = getattr(self, f"{side}_slot")
            m.d.comb += read.addr.eq(slot)
            with m.If(getattr(self, f"{side}_number") == number):
                m.d.comb += getattr(self, side).eq(Mux(defined | (slot != 0), read.data.as_value(), 0))

    def _write(self, number: int) -> tuple[Value, Value]:
        """Enable and data of one register: the result, or the value of the table at its distance from the result."""
        enable: Value = self.write & (self.write_number == number)
        value: Value = self.result.as_value()
        for table in range(1, self._arch.lut_count + 1):
            if table <= number:
                hit = self.write & self.write_values & (self.write_number == number - table)
                enable, value = enable | hit, Mux(hit, self.values[table - 1].as_value(), value)
        return enable, value
