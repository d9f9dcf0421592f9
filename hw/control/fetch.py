# SPDX-License-Identifier: Apache-2.0
"""From beats of the instruction stream to instructions."""

from __future__ import annotations

import math

from amaranth.hdl import Module, Mux, ResetInserter, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.parts.gearbox import Gearbox, StreamFifo


class Fetch(wiring.Component):
    """Cut beats, first byte lowest, into instructions.

    ``stream``: the AXI4-Stream slave. ``program``: beats of the same form from the ProgramReader. ``last`` ends a
    program: bytes after its last whole instruction are dropped, and the next program starts aligned. ``keep`` counts
    only with ``last`` (contiguous low bytes). If both offer beats, the program goes first; once its first beat was
    taken, the stream waits for its last one. If a program comes while the stream's has not ended, it waits for a moment
    in which no byte is inside, so that it never cuts an instruction.

    ``discard``: all beats are taken and thrown away, and what is inside is forgotten (an instruction on offer is
    withdrawn). ``instruction``: one a cycle if a beat holds one or more, else one as soon as its last byte is there.
    ``busy``: a beat or a whole instruction is inside.

    Latency: 2 cycles from the beat that completes an instruction (1 if each beat is one instruction). ``ready`` of
    the beats depends on no other port but ``discard`` and the beats' valid in the same cycle."""

    def __init__(self, arch: Arch) -> None:
        self._beat_bytes, self._instruction_bytes = arch.stream_width // 8, Isa(arch).instruction_bytes
        super().__init__({
            "stream": In(axi.axi4_stream(arch.stream_width)), "program": In(axi.axi4_stream(arch.stream_width)),
            "discard": In(1), "busy": Out(1),
            "instruction": Out(stream.Signature(unsigned(8 * self._instruction_bytes))),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a FIFO of beats from program or stream, and a gearbox that makes instructions."""
        m = Module()
        unit_bytes = math.gcd(self._beat_bytes, self._instruction_bytes)
        beat_units = self._beat_bytes // unit_bytes
        forget = ResetInserter(self.discard)
        m.submodules.beats = beats = forget(StreamFifo(axi.beat_layout(8 * self._beat_bytes), 2))
        m.submodules.gearbox = gearbox = forget(
            Gearbox(8 * unit_bytes, beat_units, self._instruction_bytes // unit_bytes))
        self._select(m, beats.i, gearbox.empty & ~beats.o.valid)

        beat, word = beats.o.payload, gearbox.i.payload
        whole = sum((beat.keep[unit_bytes * (unit + 1) - 1] for unit in range(beat_units)), start=0)
        m.d.comb += [
            gearbox.i.valid.eq(beats.o.valid), beats.o.ready.eq(gearbox.i.ready),
            word.data.eq(beat.data), word.skip.eq(0), word.lead.eq(0), word.last.eq(beat.last),
            word.end.eq(Mux(beat.last, whole, beat_units)),
            self.instruction.valid.eq(gearbox.o.valid & ~self.discard),
            self.instruction.payload.eq(gearbox.o.payload.data), gearbox.o.ready.eq(self.instruction.ready),
            self.busy.eq(beats.o.valid | gearbox.o.valid),
        ]
        return m

    def _select(self, m: Module, beats, aligned) -> None:
        """Pass one beat a cycle from the program or the stream on to ``beats``. ``aligned``: no byte is inside."""
        inside_program, inside_stream, choose_program = Signal(), Signal(), Signal()
        m.d.comb += [
            choose_program.eq(inside_program | (self.program.valid & (aligned | ~inside_stream))),
            beats.payload.eq(Mux(choose_program, self.program.payload, self.stream.payload)),
            beats.valid.eq(Mux(choose_program, self.program.valid, self.stream.valid) & ~self.discard),
            self.program.ready.eq((beats.ready & choose_program) | self.discard),
            self.stream.ready.eq((beats.ready & ~choose_program) | self.discard),
        ]
        with m.If(beats.valid & beats.ready):
            with m.If(choose_program):
                m.d.sync += inside_program.eq(~beats.payload.last)
            with m.Else():
                m.d.sync += inside_stream.eq(~beats.payload.last)
        with m.If(self.discard):
            m.d.sync += [inside_program.eq(0), inside_stream.eq(0)]
