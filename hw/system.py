# SPDX-License-Identifier: Apache-2.0
"""Several cores behind shared memory ports, with AXI at their edges; or one core, as it is without a system."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.bus.axi import SYSTEM_USER_WIDTH, Axi4, Axi4Lite, Ports, axi4_stream, verilog_ports
from weft.hw.bus.page_router import PageRouter
from weft.hw.bus.port_arbiter import PortArbiter
from weft.hw.bus.system_registers import SystemRegisters
from weft.hw.contract import system
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import SYSTEM_ADDRESS_WIDTH
from weft.hw.control.trace import TracePort
from weft.hw.top import PORT_PREFIXES, Top, single_core


class System(wiring.Component):
    """The ``cores`` machines of a system; they share nothing but memory.

    ``axil``: a page of control registers for each core, and one of the system (csr.py). ``memory{p}``: AXI4 masters,
    each for the data and programs of the cores that ``contract.system.System.cores_of`` names. ``stream{k}``,
    ``samples{k}`` and with ``trace`` ``trace{k}``: those of core k. ``interrupt``: the interrupt of any core.
    ``board``: as Top takes it.

    A start by GROUP_START reaches all of its cores in the same cycle, and restarts the ports' arbitration with core
    0. Cores that stop with an error leave the others alone, which work on other images. With ``sync_counters`` others
    may wait for that core, so all that run stop too."""

    def __init__(self, arch: Arch, *, trace: bool = False, board: str = "") -> None:
        self._arch, self._trace, self._board, self._system = arch, trace, board, system.System(arch)
        memory = Axi4(arch.axi_address_width, arch.axi_data_width, SYSTEM_USER_WIDTH)
        super().__init__({
            "axil": In(Axi4Lite(SYSTEM_ADDRESS_WIDTH)),
            **{f"memory{p}": Out(memory) for p in self._system.ports},
            **{f"stream{k}": In(axi4_stream(arch.stream_width)) for k in self._system.cores},
            **{f"samples{k}": Out(axi4_stream(64)) for k in self._system.cores},
            "interrupt": Out(1),
            **({f"trace{k}": Out(TracePort(arch)) for k in self._system.cores} if trace else {}),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a page router, the system's registers, the cores, and an arbiter for each memory port."""
        m, arch = Module(), self._arch
        m.submodules.pages = pages = PageRouter(arch.cores)
        m.submodules.registers = registers = SystemRegisters(arch)
        connect(m, flipped(self.axil), pages.axil)
        connect(m, pages.system, registers.axil)
        cores = [Top(arch, trace=self._trace, board=self._board, grouped=True) for _ in self._system.cores]
        for k, core in enumerate(cores):
            m.submodules[f"core{k}"] = core
            connect(m, getattr(pages, f"page{k}"), core.axil)
            connect(m, flipped(getattr(self, f"stream{k}")), core.stream)
            for name in ("samples", *(("trace",) if self._trace else ())):
                connect(m, getattr(core, name), flipped(getattr(self, f"{name}{k}")))
            m.d.comb += [core.group_start.eq(registers.start[k]), core.group_reset.eq(registers.soft_reset[k])]
        m.d.comb += [
            *(getattr(registers, bit).eq(Cat(core.status[bit] for core in cores)) for bit in ("done", "error", "idle")),
            self.interrupt.eq(Cat(core.interrupt for core in cores).any()),
        ]
        if arch.sync_counters:
            self._signal(m, cores)
        members = self._members(m, registers) if arch.joins_reads else Const(0, arch.cores)
        for port in self._system.ports:
            behind = self._system.cores_of(port)
            m.submodules[f"port{port}"] = arbiter = PortArbiter(arch, len(behind))
            for place, k in enumerate(behind):
                connect(m, cores[k].dram, getattr(arbiter, f"data{place}"))
                connect(m, cores[k].program, getattr(arbiter, f"program{place}"))
            connect(m, arbiter.memory, flipped(getattr(self, f"memory{port}")))
            m.d.comb += arbiter.restart.eq(registers.start.any())
            if arch.joins_reads:
                m.d.comb += arbiter.members.eq(Cat(members[k] for k in behind))
        return m

    def _members(self, m: Module, registers: SystemRegisters) -> Value:
        """Return the cores that started together, a bit each, until all cores are idle again."""
        members, rested = Signal(self._arch.cores), Signal()
        m.d.sync += rested.eq(registers.idle.all())
        with m.If(registers.start.any()):
            m.d.sync += members.eq(registers.start)
        with m.Elif(registers.idle.all() & ~rested):
            m.d.sync += members.eq(0)
        return members

    def _signal(self, m: Module, cores: list[Top]) -> None:
        """Hand each core's posts to the cores that it names, and a new error to all."""
        errors = Cat(core.status["error"] for core in cores)
        before = Signal(len(cores), name="errors_before")
        m.d.sync += before.eq(errors)
        for k, core in enumerate(cores):
            m.d.comb += core.other_error.eq((errors & ~before).any())
            for source, incoming in zip(cores, core.posted, strict=True):
                m.d.comb += [incoming.valid.eq(source.post.valid & source.post.cores[k]),
                             incoming.counter.eq(source.post.counter)]


def with_ports(arch: Arch, *, trace: bool = False, board: str = "") -> tuple[Module, Ports]:
    """Return the machine inside a module, and its flat ports by name, as the Verilog writer takes them.

    The ports of several cores are ``s_axil``, ``m_axi_memory0`` and up, and ``interrupt``; the ports of
    ``PORT_PREFIXES`` that each core has carry the core's number behind their names."""
    if arch.cores == 1:
        return single_core(arch, trace=trace, board=board)
    m = Module()
    m.submodules.machine = made = System(arch, trace=trace, board=board)
    ports: Ports = verilog_ports(m, made.axil, PORT_PREFIXES["axil"])
    for p in range(arch.memory_ports):
        ports |= verilog_ports(m, getattr(made, f"memory{p}"), f"m_axi_memory{p}")
    for k in range(arch.cores):
        for name in ("stream", "samples"):
            ports |= verilog_ports(m, getattr(made, f"{name}{k}"), f"{PORT_PREFIXES[name]}{k}")
        if trace:
            own = getattr(made, f"trace{k}")
            ports |= {f"trace{k}_{name}": (getattr(own, name), None) for name in TracePort(arch).members}
    ports["interrupt"] = made.interrupt, None
    return m, ports
