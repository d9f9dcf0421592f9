# SPDX-License-Identifier: Apache-2.0
"""Lookup: tables of each lane over evenly spaced keys, and the engine that fills them from local memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import KEY_ENTRIES
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.timing import LOOKUP_LATENCY
from weft.hw.parts import fixed_point
from weft.hw.parts.operations import stride_log2_width
from weft.hw.parts.ports import local_read_port, vector_layout


def values_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of the result of a lookup: a vector for each lookup table, table 1 first."""
    return data.ArrayLayout(vector_layout(arch), arch.lut_count)


class LookupTables(wiring.Component):
    """Find ``argument`` in the keys: ``difference`` to the nearest key and the ``values`` there, LATENCY cycles later.

    Free running, one lookup a cycle. ``load_valid`` puts ``load_vector`` at entry ``load_entry`` of ``load_table``;
    table 0 is the key index, of which only the first KEY_ENTRIES count. A lookup LOAD_LATENCY cycles after a load, or
    later, sees it. The tables survive a reset. Meaning: ``reference.LookupReference``."""

    LATENCY = LOOKUP_LATENCY
    LOAD_LATENCY = 2

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "argument": In(vector_layout(arch)),
            "difference": Out(vector_layout(arch)), "values": Out(values_layout(arch)),
            "load_valid": In(1), "load_table": In(unsigned(bits_to_count(arch.lut_count + 1))),
            "load_entry": In(range(arch.lut_depth)), "load_vector": In(vector_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: a lookup for each lane, side by side."""
        m = Module()
        for lane in range(self._arch.lane_count):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        """Make one lane: the nearest key's index, the difference to that key, and the tables."""
        width, depth = self._arch.number.width, self._arch.lut_depth

        def register(name: str, shape: Any) -> Signal:
            return Signal(shape, reset_less=True, name=f"{name}_{lane}")

        first_key, spacing_log2 = self._keys(m, lane)
        half = (Const(1, width) << spacing_log2)[1:width]
        # Stages 1 to 5; a difference to the first key needs one bit more than a scalar, with half a spacing two.
        argument = register("argument", signed(width))
        distance = register("distance", signed(width + 1))
        rounded = register("rounded", signed(width + 2))
        index = register("index", range(depth))
        nearest = register("nearest", signed(width + 2))
        distances = [distance, *(register(f"distance_{stage}", signed(width + 1)) for stage in (3, 4, 5))]
        raw = (rounded >> spacing_log2).as_signed()
        beyond = Mux(raw > depth - 1, Const(depth - 1, len(index)), raw[:len(index)])
        difference = register("difference", signed(width))
        m.d.sync += [
            argument.eq(self.argument[lane]),
            distance.eq(argument - first_key),
            rounded.eq(distance + Cat(half, 0).as_signed()),
            index.eq(Mux(raw < 0, 0, beyond)),
            nearest.eq((Cat(index, 0) << spacing_log2)[:width + 2].as_signed()),
            difference.eq(fixed_point.saturate(distances[3] - nearest, width)),
            *(after.eq(before) for before, after in zip(distances, distances[1:], strict=False)),
        ]
        m.d.comb += self.difference[lane].eq(difference)
        self._tables(m, lane, index)

    def _tables(self, m: Module, lane: int, index: Value) -> None:
        """Make one lane's tables. Stage 5 is the memory's own register, stage 6 the register behind it."""
        width, depth = self._arch.number.width, self._arch.lut_depth
        for table in range(self._arch.lut_count):
            memory = Memory(shape=signed(width), depth=depth, init=[])
            m.submodules[f"table_{table + 1}_{lane}"] = memory
            write, read = memory.write_port(), memory.read_port()
            value = Signal(signed(width), reset_less=True, name=f"value_{table + 1}_{lane}")
            m.d.comb += [
                write.addr.eq(self.load_entry), write.data.eq(self.load_vector[lane]),
                write.en.eq(self.load_valid & (self.load_table == table + 1)),
                read.addr.eq(index), read.en.eq(1), self.values[table][lane].eq(value),
            ]
            m.d.sync += value.eq(read.data)

    def _keys(self, m: Module, lane: int) -> tuple[Signal, Signal]:
        """Return the first key, and log2 of the spacing of keys: the number of trailing zeros of key 1 - key 0."""
        width = self._arch.number.width
        first_key = Signal(signed(width), reset_less=True, name=f"first_key_{lane}")
        step = Signal(width, reset_less=True, name=f"step_{lane}")
        spacing_log2 = Signal(range(width), reset_less=True, init=width - 1, name=f"spacing_log2_{lane}")
        zeros = Signal(range(width), init=width - 1, name=f"zeros_{lane}")
        for bit in reversed(range(width)):
            with m.If(step[bit]):
                m.d.comb += zeros.eq(bit)
        with m.If(self.load_valid & (self.load_table == 0)):
            with m.If(self.load_entry == 0):
                m.d.sync += first_key.eq(self.load_vector[lane])
            with m.If(self.load_entry == 1):
                m.d.sync += step.eq(self.load_vector[lane] - first_key)
        m.d.sync += spacing_log2.eq(zeros)
        return first_key, spacing_log2


def load_layout(arch: Arch) -> data.StructLayout:
    """Return the layout of a load: the table, and the walk over local memory that fills it."""
    return data.StructLayout({
        "table": unsigned(bits_to_count(arch.lut_count + 1)),
        "base": unsigned(arch.local_address_width), "stride_log2": unsigned(stride_log2_width(arch)),
    })


class TableLoader(wiring.Component):
    """Read lut_depth vectors of local memory into a table, into the key index only KEY_ENTRIES.

    ``operation`` is taken when the table is full."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "operation": In(stream.Signature(load_layout(arch))), "local_read": Out(local_read_port(arch)),
            "load_valid": Out(1), "load_table": Out(unsigned(bits_to_count(arch.lut_count + 1))),
            "load_entry": Out(range(arch.lut_depth)), "load_vector": Out(vector_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: requests one behind the other, and responses into the table."""
        m = Module()
        operation, request, response = self.operation, self.local_read.request, self.local_read.response
        running, asking = Signal(), Signal()
        address, asked = Signal.like(request.payload), Signal.like(self.load_entry)
        last = Mux(operation.payload.table == 0, KEY_ENTRIES - 1, self._arch.lut_depth - 1)
        full = response.valid & (self.load_entry == last)
        m.d.comb += [
            request.valid.eq(asking), request.payload.eq(address),
            self.load_valid.eq(response.valid), self.load_table.eq(operation.payload.table),
            self.load_vector.eq(response.payload), operation.ready.eq(full),
        ]
        with m.If(operation.valid & ~running):
            m.d.sync += [running.eq(1), asking.eq(1), asked.eq(0), address.eq(operation.payload.base)]
        with m.If(asking & request.ready):
            m.d.sync += [
                address.eq((address + (1 << operation.payload.stride_log2))[:len(address)]),
                asked.eq(asked + 1), asking.eq(asked != last),
            ]
        with m.If(response.valid):
            m.d.sync += self.load_entry.eq(Mux(full, 0, self.load_entry + 1))
        with m.If(full):
            m.d.sync += running.eq(0)
        return m
