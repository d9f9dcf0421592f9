# SPDX-License-Identifier: Apache-2.0
"""The activation tables, in which a move out may look its bytes up, on machines that have them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.schemes import TABLE_ENTRIES
from weft.hw.contract.timing import ACTIVATION_TABLE_LATENCY
from weft.hw.parts.delay import delayed
from weft.hw.parts.operations import register_fields
from weft.hw.parts.ports import vector_layout

WRITTEN = 1
"""A lookup sees a ``load`` so many cycles later."""


class ActivationTables(wiring.Component):
    """``looked_up`` is ``scalars`` through a table, ACTIVATION_TABLE_LATENCY cycles later; a vector a cycle.

    ``table`` comes with its vector: 1..activation_tables, or 0 to let the vector pass as it is. ``load`` puts
    ``vector`` at the next entry of ``load_table``, beginning with the entry of byte -128; TABLE_ENTRIES of them make
    a table. A lookup WRITTEN cycles later, or more, sees it. Tables are zero at power-up and stay over a reset,
    after which loads begin at the first entry again. Meaning: ``Int8.move_out``."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        table = register_fields(arch)["activation_table"]
        super().__init__({
            "scalars": In(vector_layout(arch)), "table": In(table), "looked_up": Out(vector_layout(arch)),
            "load": In(1), "load_table": In(table), "vector": In(vector_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: block RAM, its output register, and the choice of the entry or the scalar as it was."""
        m = Module()
        entry = Signal(range(TABLE_ENTRIES))
        looks = delayed(m, self.table != 0, ACTIVATION_TABLE_LATENCY, name="looks")
        passed = data.View(vector_layout(self._arch), delayed(m, self.scalars, ACTIVATION_TABLE_LATENCY, name="passed"))
        with m.If(self.load):
            m.d.sync += entry.eq(entry + 1)
        for lane in range(self._arch.array_size):
            width = self._arch.number.width
            memory = Memory(shape=signed(width), depth=self._arch.activation_tables * TABLE_ENTRIES, init=[])
            m.submodules[f"table_{lane}"] = memory
            write, read = memory.write_port(), memory.read_port()
            value = Signal(signed(width), reset_less=True, name=f"value_{lane}")
            scalar = self.scalars[lane]
            m.d.comb += [
                write.addr.eq(Cat(entry, self._place(self.load_table))), write.data.eq(self.vector[lane]),
                write.en.eq(self.load),
                read.addr.eq(Cat(scalar[:-1], ~scalar[-1], self._place(self.table))), read.en.eq(1),
                self.looked_up[lane].eq(Mux(looks, value, passed[lane])),
            ]
            m.d.sync += value.eq(read.data)
        return m

    def _place(self, table):
        """Return the place of a table in the memory; table 1 is the first."""
        return (table - 1)[:bits_to_count(self._arch.activation_tables)]
