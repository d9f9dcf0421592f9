# SPDX-License-Identifier: Apache-2.0
"""The supervisor watches the machine: running, idle, done, stopped by an error, timeout, tracepoint, counters."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import CAUSE_WIDTH, Cause
from weft.hw.contract.units import dram_units
from weft.hw.control.status import MachineStatus
from weft.hw.parts.select import lowest_set

BUS_CAUSES = {
    "dram0_read": (Cause.DRAM0_READ_RESPONSE,), "dram0_write": (Cause.DRAM0_WRITE_RESPONSE,),
    "dram1_read": (Cause.DRAM1_READ_RESPONSE,), "dram1_write": (Cause.DRAM1_WRITE_RESPONSE,),
    "dram_read": (Cause.DRAM0_READ_RESPONSE, Cause.DRAM1_READ_RESPONSE),
    "dram_write": (Cause.DRAM0_WRITE_RESPONSE, Cause.DRAM1_WRITE_RESPONSE),
    "program": (Cause.PROGRAM_READ_RESPONSE,), "sync": (Cause.COUNTER_OVERFLOW,), "other": (Cause.OTHER_CORE,),
}
"""The cause that each unit raises when it meets an error response or reports an error.

If two windows share a port, it is the cause of each window."""


def bus_causes(arch: Arch) -> dict[str, tuple[Cause, ...]]:
    """Return ``BUS_CAUSES`` for the units that this machine has."""
    others = ("sync", "other") if arch.sync_counters else ()
    return {name: BUS_CAUSES[name] for name in (*dram_units(arch), "program", *others)}


class Supervisor(wiring.Component):
    """Keep the machine's status and counters, and stop it after an error.

    Inputs. ``fault``: the decoder met an illegal instruction, with its cause and program counter. ``{name}_error``:
    pulses from the buses; ``faulting`` (one-hot) answers which of them counts, and ``faulting_program_counter`` and on
    a shared port ``faulting_dram1`` (it is in DRAM1) tell of this one's instruction. ``fetching``, ``decoding``,
    ``executing``: levels, there is work. ``accepted``, ``retired``, ``finished``, ``moved``: pulses, an instruction
    came in or left the decoder, an operation was done, a vector was read or written. ``start``: a new program begins.
    ``abort``: stop as after an error, to be reset. With ``sync_counters`` ``sync_error`` tells of a full counter, and
    ``other_error`` of another core's error, which counts while the machine runs.

    Outputs: those of :class:`MachineStatus` except the program counter, which the decoder keeps. ``stop``: from the
    cycle after an error on nothing more is decoded, and the rest drains. ``quiet``: the machine is stopped, and the
    program's reads are drained too, so that a reset breaks no bus rule. A machine has timed out when it ran for
    ``timeout`` cycles (0: never) without any of those pulses."""

    def __init__(self, arch: Arch) -> None:
        self._causes = bus_causes(arch)
        self._of_dram = len(dram_units(arch))
        super().__init__({
            "fault": In(1), "fault_cause": In(CAUSE_WIDTH), "fault_program_counter": In(32),
            **{f"{name}_error": In(1) for name in self._causes},
            "faulting": Out(len(self._causes)), "faulting_program_counter": In(32),
            **({"faulting_dram1": In(1)} if arch.shared_dram else {}),
            "fetching": In(1), "decoding": In(1), "executing": In(1), "start": In(1), "abort": In(1),
            "accepted": In(1), "retired": In(1), "finished": In(1), "moved": In(1),
            "program_counter": In(32), "timeout": In(16), "tracepoint": In(32),
            "stop": Out(1), "quiet": Out(1),
            **{name: member for name, member in MachineStatus().members.items() if name != "program_counter"},
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the levels, the first error, progress, and the counters."""
        m = Module()
        working = self.executing | (~self.stop & (self.fetching | self.decoding))
        m.d.comb += [
            self.running.eq(working), self.idle.eq(~working),
            self.error.eq(self.stop & ~self.executing & (self.cause != Cause.NONE)),
            self.quiet.eq(self.stop & ~self.executing & ~self.fetching),
        ]
        self._errors(m)
        self._progress(m)
        self._count(m)
        return m

    def _errors(self, m: Module) -> None:
        """Keep the first error; of several in one cycle the one of the earliest instruction.

        An operation under way on a DRAM port comes first, of these the lowest cause. The decoder's instruction is next,
        then the program's next one, which is still being read. Counters and other cores come last."""
        told = {name: getattr(self, f"{name}_error") for name in self._causes}
        if "other" in told:  # nobody waits in a core at rest
            told["other"] = told["other"] & self.running
        errors = Cat(*told.values())
        decoded_first = self.fault & ~errors[:self._of_dram].any()
        m.d.comb += self.faulting.eq(lowest_set(errors))
        with m.If(self.abort):
            m.d.sync += self.stop.eq(1)
        with m.If(~self.stop):
            for index, causes in enumerate(self._causes.values()):
                with m.If(self.faulting[index]):
                    cause = causes[0] if len(causes) == 1 else Mux(self.faulting_dram1, causes[1], causes[0])
                    m.d.sync += self.cause.eq(cause)
            with m.If(self.faulting.any()):
                m.d.sync += [self.stop.eq(1), self.error_program_counter.eq(self.faulting_program_counter)]
            with m.If(decoded_first):
                m.d.sync += [self.stop.eq(1), self.cause.eq(self.fault_cause),
                             self.error_program_counter.eq(self.fault_program_counter)]

    def _progress(self, m: Module) -> None:
        """Set the flags done, timed out and traced."""
        was_running, quiet = Signal(), Signal.like(self.timeout)
        m.d.sync += was_running.eq(self.running)
        with m.If(self.accepted | self.start):
            m.d.sync += self.done.eq(0)
        with m.Elif(was_running & ~self.running & ~self.stop):
            m.d.sync += self.done.eq(1)
        progress = Signal()  # a cycle or two late, which a timeout does not mind
        m.d.sync += progress.eq(Cat(self.accepted, self.retired, self.finished, self.moved, ~was_running).any())
        overdue = (quiet >= self.timeout) & (self.timeout != 0)
        m.d.sync += quiet.eq(Mux(progress, 0, Mux(overdue, quiet, quiet + 1)))
        with m.If(self.start):
            m.d.sync += [self.timed_out.eq(0), self.traced.eq(0)]
        with m.Else():
            m.d.sync += [
                self.timed_out.eq(self.timed_out | (self.running & overdue)),
                self.traced.eq(self.traced | (self.accepted & (self.program_counter == self.tracepoint))),
            ]

    def _count(self, m: Module) -> None:
        """Count cycles and retired instructions, from registers, since 64 bits have to be carried."""
        accepted, retired, running = (Signal(name=f"was_{name}") for name in ("accepted", "retired", "running"))
        started, elapsed = Signal(), Signal(64)
        with m.If(self.start):
            m.d.sync += [each.eq(0) for each in (started, elapsed, self.cycles, self.instructions,
                                                 accepted, retired, running)]
        with m.Else():
            m.d.sync += [accepted.eq(self.accepted), retired.eq(self.retired), running.eq(self.running),
                         self.instructions.eq(self.instructions + retired)]
            with m.If(started | accepted):
                m.d.sync += [started.eq(1), elapsed.eq(elapsed + 1)]
                with m.If(running):
                    m.d.sync += self.cycles.eq(elapsed + 1)
