# SPDX-License-Identifier: Apache-2.0
"""Blocks around the accumulators with what stands between them, so that a test sees rows of accumulators."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY
from weft.hw.memory.accumulators import Accumulators
from weft.hw.memory.input_rescaler import InputRescaler
from weft.hw.memory.requantizer import Requantizer
from weft.hw.parts.delay import delayed
from weft.hw.parts.ports import accumulator_layout, accumulator_read_port, accumulator_write_port, sum_layout


class OnAccumulators(wiring.Component):
    """A unit with its requantizer and its input rescaler: its ports are those of the accumulators."""

    def __init__(self, arch: Arch, unit: Any) -> None:
        self._arch, self.unit = arch, unit
        gates = {"accumulator_read": Out(accumulator_read_port(arch)),
                 "accumulator_write": Out(accumulator_write_port(arch))}
        super().__init__({name: gates.get(name, member) for name, member in unit.signature.members.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        gates = {"accumulator_read": Requantizer, "accumulator_write": InputRescaler}
        for name, member in unit.signature.members.items():
            inner, outer = getattr(unit, name), getattr(self, name)
            if name in gates:
                gate: Any = gates[name](self._arch, ("unit",))
                m.submodules[name] = gate
                connect(m, inner, gate.unit)
                connect(m, getattr(gate, name), flipped(outer))
            elif member.is_signature:
                connect(m, inner, flipped(outer))
            else:
                m.d.comb += outer.eq(inner)
        return m


class RowsAtOnce(wiring.Component):
    """Accumulators whose clients give a row together with its request."""

    def __init__(self, arch: Arch, readers: tuple[str, ...], writers: tuple[str, ...]) -> None:
        self.accumulators = Accumulators(arch, readers, writers)

        def port(row: data.ArrayLayout) -> wiring.Signature:
            return wiring.Signature({"request": Out(stream.Signature(data.StructLayout(
                {"address": arch.accumulator_address_width, "accumulate": 1, "data": row})))})

        self._writers = {"mat_mul": sum_layout(arch), **{name: accumulator_layout(arch) for name in writers}}
        super().__init__({
            **{name: In(port(row)) for name, row in self._writers.items()},
            **{name: In(accumulator_read_port(arch)) for name in readers}, "contended": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.accumulators = inner = self.accumulators
        for name in self.signature.members:
            outer, port = getattr(self, name), getattr(inner, name)
            if name in self._writers:
                given, taken, late = outer.request, port.request, ACCUMULATE_DATA_LATENCY
                m.d.comb += [
                    taken.valid.eq(given.valid), given.ready.eq(taken.ready),
                    taken.payload.address.eq(given.payload.address),
                    taken.payload.accumulate.eq(given.payload.accumulate),
                    port.data.as_value().eq(delayed(m, given.payload.data, late, name=f"{name}_row")),
                ]
            elif name == "contended":
                m.d.comb += outer.eq(port)
            else:
                connect(m, flipped(outer), port)
        return m
