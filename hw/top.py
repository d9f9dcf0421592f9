# SPDX-License-Identifier: Apache-2.0
"""The machine with AXI at its edges: a core, its control registers, and ports by the names that tools know."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.bus.axi import Axi4Lite, Axi4Read, Ports, axi4_stream, verilog_ports
from weft.hw.bus.csr_slave import SHOWN, STATUS_LAYOUT, STATUS_SOURCES, CsrSlave
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import ADDRESS_WIDTH
from weft.hw.control.sync_unit import sync_ports
from weft.hw.control.trace import TracePort
from weft.hw.core import Core, dram_ports

PORT_PREFIXES = {
    "dram0": "m_axi_dram0", "dram1": "m_axi_dram1", "dram": "m_axi_dram", "program": "m_axi_program", "axil": "s_axil",
    "stream": "s_axis_instruction", "samples": "m_axis_sample",
}
"""Member of Top -> prefix of its Verilog ports. A machine has either ``dram0`` and ``dram1``, or ``dram``."""


class Top(wiring.Component):
    """A core with its control registers and a soft reset.

    ``axil``: control registers. ``dram0`` and ``dram1``, or ``dram`` for both, and ``program``: AXI4 masters.
    ``stream``: instruction beats. ``samples``: performance samples. ``interrupt``: see :class:`CsrSlave`.

    With ``trace`` there is also a :class:`TracePort`: simulation reads it, the product is made without. ``board``:
    the name that the register BOARD shows as a code. With ``grouped`` there are also ``group_start``,
    ``group_reset`` and ``status``, by which a system of several cores controls a core beside its registers.
    ``sync_ports``: see :class:`Core`. A soft reset lets transfers on the buses end, throws the rest away and resets
    the core; memories keep their contents. Until then STATUS is not idle, and a start is lost."""

    def __init__(self, arch: Arch, *, trace: bool = False, board: str = "", grouped: bool = False) -> None:
        self._arch, self._trace, self._board, self._grouped = arch, trace, board, grouped
        address = arch.axi_address_width
        super().__init__({
            "axil": In(Axi4Lite(ADDRESS_WIDTH)),
            **{name: Out(port) for name, port in dram_ports(arch).items()},
            "program": Out(Axi4Read(address, arch.stream_width)),
            "stream": In(axi4_stream(arch.stream_width)), "samples": Out(axi4_stream(64)),
            "interrupt": Out(1),
            **({"trace": Out(TracePort(arch))} if trace else {}),
            **({"group_start": In(1), "group_reset": In(1), "status": Out(STATUS_LAYOUT)} if grouped else {}),
            **sync_ports(arch),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: the control registers, and the core with its reset."""
        m = Module()
        core_reset, resetting = Signal(), Signal()
        m.submodules.csr = csr = CsrSlave(self._arch, self._board)
        core = Core(self._arch, trace=self._trace)
        m.submodules.core = ResetInserter(core_reset)(core)
        connect(m, flipped(self.axil), csr.axil)
        connect(m, flipped(self.stream), core.stream)
        for name in (*dram_ports(self._arch), "program", "samples", *(("trace",) if self._trace else ())):
            connect(m, getattr(core, name), flipped(getattr(self, name)))
        for name, port in sync_ports(self._arch).items():
            own, inner = (getattr(each, name) for each in (self, core))
            m.d.comb += own.eq(inner) if port.flow is Out else inner.eq(own)
        start, soft_reset = csr.start, csr.soft_reset
        if self._grouped:
            start, soft_reset = start | self.group_start, soft_reset | self.group_reset
            m.d.comb += self.status.eq(csr.status)
        m.d.comb += [
            core.start.eq(start), core.abort.eq(resetting),
            core.program_address.eq(csr.program_address), core.program_bytes.eq(csr.program_bytes),
            *(getattr(csr, name).eq(getattr(core, source)) for name, source in SHOWN.items()),
            self.interrupt.eq(csr.interrupt),
            *(csr.status[bit].eq(getattr(core, source)) for bit, source in STATUS_SOURCES.items() if bit != "idle"),
            # A program whose reads are still to drain takes no start, so whoever waits for idle waits for them too.
            csr.status.idle.eq(core.idle & ~resetting & ~core_reset),
        ]
        # A register of its own: it drives every flip-flop of the core. Nothing that is quiet starts again meanwhile.
        m.d.sync += [core_reset.eq(resetting & core.quiet & ~core_reset),
                     resetting.eq((resetting | soft_reset) & ~core_reset)]
        return m


def single_core(arch: Arch, *, trace: bool = False, board: str = "") -> tuple[Module, Ports]:
    """Return Top inside a module, and its flat ports by name, as the Verilog writer takes a machine of one core."""
    m = Module()
    m.submodules.machine = top = Top(arch, trace=trace, board=board)
    ports: Ports = {}
    for name, prefix in PORT_PREFIXES.items():
        if name in top.signature.members:
            ports |= verilog_ports(m, getattr(top, name), prefix)
    ports["interrupt"] = top.interrupt, None
    if trace:
        ports |= {f"trace_{name}": (getattr(top.trace, name), None) for name in TracePort(arch).members}
    return m, ports
