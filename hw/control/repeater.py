# SPDX-License-Identifier: Apache-2.0
"""From the words of a program to the instructions that they stand for: ``hw/contract/repeats.py`` in hardware."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.contract.arch import Arch, bits_to_count
from weft.hw.contract.instructions import Opcode, operand_of
from weft.hw.contract.isa import Isa
from weft.hw.contract.repeats import KINDS
from weft.hw.contract.timing import REPEAT_LATENCY
from weft.hw.control.checks import InstructionView
from weft.hw.parts.slices import RegisterSlice, Stage


class Repeater(wiring.Component):
    """Expand each legal Repeat; every other word goes through as it is, an illegal Repeat too.

    ``i``: words. ``o``: instructions. ``busy``: a Repeat is under way, or an instruction is on offer. A reset forgets
    all earlier instructions.

    A word goes through in 1 cycle, one a cycle. The first instruction of a Repeat is on offer REPEAT_LATENCY after
    the Repeat was taken, then one comes a cycle. The next word is taken in the cycle after the last of them entered
    the output register. ``i.ready`` follows ``o.ready`` in the same cycle, with ``register_slices`` a cycle later."""

    def __init__(self, arch: Arch) -> None:
        self._arch, self.isa = arch, Isa(arch)
        words = stream.Signature(unsigned(8 * self.isa.instruction_bytes))
        super().__init__({"i": In(words), "o": Out(words), "busy": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: a word, or a step of the history -> the instruction -> give -> o -> its step -> history."""
        m = Module()
        shape = self.i.payload.shape()
        m.submodules.history = history = StepHistory(self._arch)
        m.submodules.give = give = RegisterSlice(shape) if self._arch.register_slices else Stage(shape)
        connect(m, give.o, flipped(self.o))
        word, again = InstructionView(self.isa, self.i.payload), history.o.valid
        repeat = Signal()  # a legal one
        distance_m1 = word.field(Opcode.REPEAT, "distance")
        m.d.comb += [
            repeat.eq(word.opcode_is(Opcode.REPEAT) & (word.flags == 0) & (word.operands[2] == 0)
                      & (distance_m1 < history.kept)),
            history.start.eq(self.i.valid & repeat & ~history.busy),
            history.distance_m1.eq(distance_m1), history.count_m1.eq(word.field(Opcode.REPEAT, "count")),
            history.o.ready.eq(give.i.ready),
            give.i.valid.eq(again | (self.i.valid & ~repeat & ~history.busy)),
            self.i.ready.eq(~history.busy & (repeat | give.i.ready)),
            history.keep.eq(give.i.valid & give.i.ready),
            self.busy.eq(history.busy | give.o.valid),
        ]
        source = InstructionView(self.isa, Mux(again, history.o.payload, self.i.payload))
        latest = self._latest(m, source, history.keep, give.i.payload)
        instruction, step = [], []
        for operand, before in zip(source.operands[:2], latest, strict=True):
            instruction.append(Mux(again, (operand + before)[:len(operand)], operand))
            step.append(Mux(again, operand, (operand - before)[:len(operand)]))
        rest = source.raw[self.isa.operand_offsets[2]:]
        m.d.comb += [give.i.payload.eq(Cat(*instruction, rest)), history.step.eq(Cat(*step, rest))]
        return m

    def _latest(self, m: Module, source: InstructionView, keep, instruction) -> list:
        """Return operands 0 and 1 of the latest instruction of this one's kind.

        They are zeros for the first of a kind, and for Configure. If ``keep``, ``instruction`` is the latest of its
        kind from now on."""
        steps = ~source.opcode_is(Opcode.CONFIGURE)
        kind, known = Signal(range(KINDS)), Signal(KINDS)
        width, both = self.isa.operand_offsets[1], self.isa.operand_offsets[2]
        m.submodules.latest = memory = Memory(shape=unsigned(both), depth=KINDS, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            kind.eq(Mux(source.opcode_is(Opcode.DATA_MOVE), Cat(source.flags, Const(1, 1)), source.opcode)),
            read.addr.eq(kind), write.addr.eq(kind), write.en.eq(keep & steps), write.data.eq(instruction[:both]),
        ]
        with m.If(write.en):
            m.d.sync += known.bit_select(kind, 1).eq(1)
        before = Mux(known.bit_select(kind, 1) & steps, read.data, 0)
        return [before[:width], before[width:]]


class StepHistory(wiring.Component):
    """The latest ``repeat_depth`` steps, and the reading of those that a Repeat uses again.

    ``keep``: ``step`` is added. ``kept``: the number of steps that there are. ``start``, only while not ``busy``:
    ``o`` gives ``count_m1`` + 1 steps, from the one ``distance_m1`` + 1 steps back on. Each of these must be kept
    again in the cycle in which it is taken, since later ones of the same Repeat may read it."""

    def __init__(self, arch: Arch) -> None:
        isa = Isa(arch)
        self._depth, self._step = arch.repeat_depth, unsigned(8 * isa.instruction_bytes)
        distance, count = (isa.operand_widths[operand_of(Opcode.REPEAT, name)] for name in ("distance", "count"))
        super().__init__({
            "keep": In(1), "step": In(self._step), "kept": Out(range(self._depth + 1)),
            "start": In(1), "distance_m1": In(distance), "count_m1": In(count),
            "o": Out(stream.Signature(self._step)), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: an address that advances a place a cycle, and the memory's output, which is ``o``."""
        m = Module()
        m.submodules.steps = memory = Memory(shape=self._step, depth=self._depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        place = unsigned(bits_to_count(self._depth))
        head, at = Signal(place), Signal(place)
        left, reading, fetched = Signal.like(self.count_m1), Signal(), Signal()
        output = Signal(self._step, reset_less=True)
        moves = ~self.o.valid | self.o.ready
        m.d.comb += [
            write.addr.eq(head), write.data.eq(self.step), write.en.eq(self.keep),
            read.addr.eq(at), read.en.eq(moves), self.o.payload.eq(output),
            self.busy.eq(reading | fetched | self.o.valid),
        ]
        with m.If(self.keep):
            m.d.sync += [head.eq(head + 1), self.kept.eq(self.kept + (self.kept != self._depth))]
        # A step is read REPEAT_LATENCY - 1 cycles before the one that takes it is kept. That is too early for the two
        # steps nearest to it, which come in turn as they were. A memory of a power of two keeps them where they belong.
        assert REPEAT_LATENCY == 4, "the two nearest steps are too new to be read"
        one, two, second = Signal(), Signal(), Signal()
        with m.If(moves):
            m.d.sync += [self.o.valid.eq(fetched), output.eq(read.data), fetched.eq(reading)]
            with m.If(reading):
                m.d.sync += [at.eq(Mux(one, at, Mux(two & second, at - 1, at + 1))), second.eq(~second),
                             left.eq(left - 1), reading.eq(left != 0)]
        with m.If(self.start):
            m.d.sync += [at.eq(head - self.distance_m1 - 1), left.eq(self.count_m1), reading.eq(1), second.eq(0),
                         one.eq(self.distance_m1 == 0), two.eq(self.distance_m1 == 1)]
        return m
