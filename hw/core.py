# SPDX-License-Identifier: Apache-2.0
"""The machine, as a block diagram: what joins what. Blocks explain themselves in their own files.

    beats -> fetch -> decoder -> interlock -+-> load_weight --+   local memory -- dram0 / dram1 read, write
             program reader                 +-> mat_mul ------+-> systolic array
             supervisor, sampler            +-> simd ---------+-> accumulators, by requantizer and input_rescaler
                                            +-> move_out, move_in

The matrix unit holds load_weight, mat_mul and the systolic array. With ``repeat_depth`` a repeater stands between
fetch and decoder.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.array.mat_mul_unit import row_reads
from weft.hw.array.matrix_unit import MatrixUnit
from weft.hw.bus.axi import Axi4, Axi4Read, axi4_stream, user_width
from weft.hw.bus.dram_reader import DramReader
from weft.hw.bus.dram_writer import DramWriter
from weft.hw.bus.program_reader import ProgramReader
from weft.hw.contract.arch import Arch
from weft.hw.contract.units import UNIT_NAMES, Memory, clients, dram_units
from weft.hw.control.decoder import Decoder
from weft.hw.control.fetch import Fetch
from weft.hw.control.interlock import Interlock
from weft.hw.control.repeater import Repeater
from weft.hw.control.sampler import Sampler, watch
from weft.hw.control.status import MachineStatus
from weft.hw.control.supervisor import Supervisor
from weft.hw.control.sync_unit import SyncUnit, sync_ports
from weft.hw.control.trace import TracePort
from weft.hw.memory.accumulators import Accumulators
from weft.hw.memory.input_rescaler import InputRescaler
from weft.hw.memory.local import LocalMemory
from weft.hw.memory.move_in import MoveInUnit
from weft.hw.memory.move_out import MoveOutUnit
from weft.hw.memory.requantizer import Requantizer
from weft.hw.memory.scaled_move_out import ScaledMoveOutUnit
from weft.hw.parts.delay import delayed
from weft.hw.simd.simd_unit import SimdUnit


def dram_ports(arch: Arch) -> dict[str, Axi4]:
    """Return the AXI4 masters behind which the DRAM windows lie: name -> port."""
    port = Axi4(arch.axi_address_width, arch.axi_data_width, user_width(arch))
    return dict.fromkeys(("dram",) if arch.shared_dram else ("dram0", "dram1"), port)


class Core(wiring.Component):
    """One machine; it knows nothing of boards and can be instantiated many times.

    ``stream``: program beats that the host pushes. ``program``: AXI4 read port of the program reader, started by
    ``start`` with ``program_address`` and ``program_bytes``. ``dram0`` and ``dram1``, or ``dram``: AXI4 masters.
    ``samples``: AXI4-Stream of performance samples, silent on a machine without ``sampler``. ``trace``: only with
    the argument of that name, see :class:`TracePort`. ``abort``: stop, to be reset; from the cycle in which
    ``quiet`` is high a reset breaks no bus rule. ``sync_ports``: with ``sync_counters``, see :class:`SyncUnit`;
    ``other_error`` is a pulse, another core stopped with an error. The other outputs are those of
    :class:`MachineStatus`."""

    def __init__(self, arch: Arch, *, trace: bool = False) -> None:
        self._arch, self._trace = arch, trace
        address = arch.axi_address_width
        super().__init__({
            "stream": In(axi4_stream(arch.stream_width)),
            "program": Out(Axi4Read(address, arch.stream_width)),
            **{name: Out(port) for name, port in dram_ports(arch).items()},
            "samples": Out(axi4_stream(64)),
            "start": In(1), "abort": In(1), "quiet": Out(1), "program_address": In(address), "program_bytes": In(32),
            **dict(MachineStatus().members),
            **({"trace": Out(TracePort(arch))} if trace else {}),
            **sync_ports(arch),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the blocks, and what joins instructions, memories, array, buses, status and trace."""
        m, arch = Module(), self._arch
        m.submodules.program_reader = program = ProgramReader(arch)
        m.submodules.fetch = fetch = Fetch(arch)
        m.submodules.decoder = decoder = Decoder(arch)
        m.submodules.supervisor = supervisor = Supervisor(arch)
        m.submodules.matrix = matrix = MatrixUnit(arch)
        blocks = {
            "simd": SimdUnit(arch), "move_out": (ScaledMoveOutUnit if arch.scheme.per_lane else MoveOutUnit)(arch),
            "move_in": MoveInUnit(arch),
            **{name: (DramReader if name.endswith("read") else DramWriter)(arch) for name in dram_units(arch)},
            **({"sync": SyncUnit(arch)} if arch.sync_counters else {}),
        }
        units = {"load_weight": matrix.load_weight, "mat_mul": matrix.mat_mul, **blocks}
        layouts = {name: unit.operation.payload.shape() for name, unit in units.items()}
        m.submodules.interlock = interlock = Interlock(arch, layouts)
        reads = {"scales" if name == "move_out" else name: units[name].local_read  # beside the port that it writes by
                 for name in clients(arch, Memory.LOCAL, writes=False)}
        if arch.weight_load_rows == 2:
            reads["lower_weights"] = units["load_weight"].lower_read
        beside = row_reads(arch)[1:]
        reads |= {name: getattr(units["mat_mul"], name) for name in beside}
        ports_of = (*units, "scales", "lower_weights", *beside)
        writes = {name: units[name].local_write for name in clients(arch, Memory.LOCAL, writes=True)}
        m.submodules.local = local = LocalMemory(arch, tuple(reads), tuple(writes), "mat_mul", arch.scheme.writes_first,
                                                 beside)
        readers = clients(arch, Memory.ACCUMULATORS, writes=False)
        writers = tuple(name for name in clients(arch, Memory.ACCUMULATORS, writes=True) if name != "mat_mul")
        m.submodules.requantizer = requantizer = Requantizer(arch, readers)
        m.submodules.input_rescaler = rescaler = InputRescaler(arch, writers)
        m.submodules.accumulators = accumulators = Accumulators(arch, ("requantizer",), ("rescaler",))

        # instructions
        connect(m, flipped(self.stream), fetch.stream)
        connect(m, program.beats, fetch.program)
        instructions, fetching = self._expand(m, program, fetch, supervisor)
        connect(m, instructions, decoder.i)
        connect(m, decoder.o, interlock.i)
        m.d.comb += interlock.windows.eq(decoder.windows)
        for name, block in blocks.items():
            m.submodules[name] = block
        for name, unit in units.items():
            connect(m, getattr(interlock, name), unit.operation)
            # With register slices a cycle later, as errors are.
            m.d.comb += getattr(interlock, f"{name}_done").eq(
                delayed(m, unit.done, arch.register_slices, name=f"{name}_done", reset=True))
        # memories
        for name, port in (reads | writes).items():
            connect(m, port, getattr(local, name))
        connect(m, units["mat_mul"].accumulator_write, accumulators.mat_mul)
        m.d.comb += units["mat_mul"].contended.eq(local.contended | accumulators.contended)
        connect(m, requantizer.accumulator_read, accumulators.requantizer)
        connect(m, rescaler.accumulator_write, accumulators.rescaler)
        for name in readers:
            connect(m, units[name].accumulator_read, getattr(requantizer, name))
        for name in writers:
            connect(m, units[name].accumulator_write, getattr(rescaler, name))
        self._connect_buses(m, program, units)
        moving = [(reads | writes)[name] for name in ports_of if name in reads | writes]
        self._supervise(m, supervisor, program, fetch, fetching, decoder, interlock, units, moving)
        if arch.sampler:
            m.submodules.sampler = sampler = Sampler(arch)
            watch(m, sampler, instructions, {name: getattr(interlock, name) for name in units},
                  reads.values(), writes.values())
            m.d.comb += [sampler.program_counter.eq(decoder.program_counter),
                         sampler.interval.eq(decoder.sample_interval)]
            connect(m, sampler.samples, flipped(self.samples))
        if self._trace:
            m.d.comb += [
                self.trace.begin.eq(self.start), self.trace.cycle.eq(supervisor.cycles),
                self.trace.issued.eq(interlock.issued), self.trace.started.eq(interlock.started),
                self.trace.program_counter.eq(decoder.o.payload.program_counter),
                *(self.trace.finished[UNIT_NAMES.index(name)].eq(unit.done) for name, unit in units.items()),
            ]
        return m

    def _connect_buses(self, m: Module, program: ProgramReader, units: dict) -> None:
        """Join the program reader and the DRAM units to the core's AXI ports."""
        for channel in ("ar", "r"):
            connect(m, getattr(program, channel), flipped(getattr(self.program, channel)))
            for port in dram_ports(self._arch):
                connect(m, getattr(units[f"{port}_read"], channel), flipped(getattr(getattr(self, port), channel)))
        for channel in ("aw", "w", "b"):
            for port in dram_ports(self._arch):
                connect(m, getattr(units[f"{port}_write"], channel), flipped(getattr(getattr(self, port), channel)))
        m.d.comb += [program.start.eq(self.start), program.address.eq(self.program_address),
                     program.bytes.eq(self.program_bytes)]

    def _expand(self, m: Module, program: ProgramReader, fetch: Fetch, supervisor: Supervisor) -> tuple:
        """Return the stream of instructions with Repeats expanded, and whether something is before its end."""
        fetching = program.busy | fetch.busy
        if not self._arch.repeat_depth:
            return fetch.instruction, fetching
        m.submodules.repeater = repeater = ResetInserter(supervisor.stop)(Repeater(self._arch))
        connect(m, fetch.instruction, repeater.i)
        return repeater.o, fetching | repeater.busy

    def _supervise(self, m: Module, supervisor: Supervisor, program: ProgramReader, fetch: Fetch, fetching,
                   decoder: Decoder, interlock: Interlock, units: dict, moving: list) -> None:
        """Join the supervisor to what it watches. ``fetching``: of :meth:`_expand`; ``moving``: local memory ports."""
        behind_dram = dram_units(self._arch)
        for name in behind_dram:
            m.d.comb += getattr(supervisor, f"{name}_error").eq(units[name].error)
        buses_busy = Cat(*(units[name].busy for name in behind_dram)).any()
        if self._arch.sync_counters:
            sync = units["sync"]
            m.d.comb += [supervisor.sync_error.eq(sync.overflow), supervisor.other_error.eq(self.other_error),
                         sync.stop.eq(supervisor.stop), sync.posted.eq(self.posted), self.post.eq(sync.post)]
        if self._arch.shared_dram:
            m.d.comb += supervisor.faulting_dram1.eq(interlock.faulting_dram1)
        waves_busy = units["load_weight"].busy
        if self._arch.scheme.per_lane:
            waves_busy = waves_busy | units["move_out"].busy
        m.d.comb += [
            supervisor.program_error.eq(program.error), interlock.faulting.eq(supervisor.faulting),
            supervisor.faulting_program_counter.eq(Mux(
                interlock.faulting.any(), interlock.faulting_program_counter, decoder.program_counter)),
            supervisor.fault.eq(decoder.fault), supervisor.fault_cause.eq(decoder.cause),
            supervisor.fault_program_counter.eq(decoder.fault_program_counter),
            supervisor.fetching.eq(fetching), supervisor.decoding.eq(decoder.busy),
            supervisor.executing.eq(~interlock.idle | buses_busy | waves_busy),
            supervisor.start.eq(self.start), supervisor.abort.eq(self.abort), self.quiet.eq(supervisor.quiet),
            supervisor.accepted.eq(decoder.accepted),
            supervisor.retired.eq(decoder.retired),
            supervisor.finished.eq(Cat(*(unit.done for unit in units.values())).any()),
            supervisor.moved.eq(Cat(*(port.request.valid & port.request.ready for port in moving)).any()),
            supervisor.program_counter.eq(decoder.program_counter),
            supervisor.timeout.eq(decoder.timeout), supervisor.tracepoint.eq(decoder.tracepoint),
            decoder.halt.eq(supervisor.stop), decoder.drained.eq(interlock.idle),
            program.stop.eq(supervisor.stop), fetch.discard.eq(supervisor.stop),
            *(getattr(self, name).eq(getattr(decoder if name == "program_counter" else supervisor, name))
              for name in MachineStatus().members),
        ]
