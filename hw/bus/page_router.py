# SPDX-License-Identifier: Apache-2.0
"""One AXI4-Lite slave port for the pages of registers of several cores."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.contract.csr import ADDRESS_WIDTH, SYSTEM_ADDRESS_WIDTH, SYSTEM_PAGE
from weft.hw.parts.select import select

NOWHERE = (1 << ADDRESS_WIDTH) - 4
"""An offset at which no page has a register."""


class PageRouter(wiring.Component):
    """Hand reads and writes to the page that their address is in: ``page{k}`` of core k, or ``system``.

    ``axil``: byte addresses of SYSTEM_ADDRESS_WIDTH bits. There is one read and one write at a time, and neither
    waits for the other; data to be written waits for its address. For an address in no page the system's page
    answers SLVERR. Nothing is added to a page's latency but that a write's data comes a cycle after its address."""

    def __init__(self, cores: int) -> None:
        self._pages = [*range(cores), SYSTEM_PAGE]
        page = axi.Axi4Lite(ADDRESS_WIDTH)
        super().__init__({"axil": In(axi.Axi4Lite(SYSTEM_ADDRESS_WIDTH)),
                          **{f"page{k}": Out(page) for k in range(cores)}, "system": Out(page)})

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: addresses, answers and data, each between the port and the pages."""
        m = Module()
        slaves = [getattr(self, "system" if page == SYSTEM_PAGE else f"page{page}") for page in self._pages]
        reading, to = self._address(m, "read", self.axil.ar, [slave.ar for slave in slaves])
        self._answer(m, reading, to, self.axil.r, [slave.r for slave in slaves])
        writing, to = self._address(m, "write", self.axil.aw, [slave.aw for slave in slaves])
        self._answer(m, writing, to, self.axil.b, [slave.b for slave in slaves])
        self._data(m, writing, to, [slave.w for slave in slaves])
        return m

    def _address(self, m: Module, name: str, port, slaves: list) -> tuple[Signal, Signal]:
        """Hand an address to its page. Return whether one is under way, and the page, one-hot."""
        busy, to = Signal(name=f"{name}_busy"), Signal(len(slaves), name=f"{name}_to")
        page, target = port.payload.addr[ADDRESS_WIDTH:], Signal(len(slaves), name=f"{name}_target")
        cores = Cat(page == number for number in self._pages[:-1])
        m.d.comb += [
            target.eq(Cat(cores, ~cores.any())),
            port.ready.eq(~busy & (target & Cat(slave.ready for slave in slaves)).any()),
        ]
        for k, slave in enumerate(slaves):
            last = k == len(slaves) - 1
            known = page == SYSTEM_PAGE if last else Const(1)
            m.d.comb += [
                slave.valid.eq(port.valid & ~busy & target[k]), slave.payload.prot.eq(port.payload.prot),
                slave.payload.addr.eq(Mux(known, port.payload.addr[:ADDRESS_WIDTH], NOWHERE)),
            ]
        with m.If(port.valid & port.ready):
            m.d.sync += [busy.eq(1), to.eq(target)]
        return busy, to

    def _answer(self, m: Module, busy: Signal, to: Signal, port, slaves: list) -> None:
        """Hand back the answer of the page that was asked."""
        m.d.comb += [
            port.valid.eq(busy & (to & Cat(slave.valid for slave in slaves)).any()),
            Value.cast(port.payload).eq(select(to, [Value.cast(slave.payload) for slave in slaves])),
            *(slave.ready.eq(busy & to[k] & port.ready) for k, slave in enumerate(slaves)),
        ]
        with m.If(port.valid & port.ready):
            m.d.sync += busy.eq(0)

    def _data(self, m: Module, writing: Signal, to: Signal, slaves: list) -> None:
        """Hand data to the page whose address came before."""
        port, sent, open_to = self.axil.w, Signal(), Signal(len(slaves))
        m.d.comb += [
            open_to.eq(to & (writing & ~sent).replicate(len(slaves))),
            port.ready.eq((open_to & Cat(slave.ready for slave in slaves)).any()),
        ]
        for k, slave in enumerate(slaves):
            m.d.comb += [slave.valid.eq(port.valid & open_to[k]), slave.payload.eq(port.payload)]
        m.d.sync += sent.eq(writing & (sent | (port.valid & port.ready)) & ~(self.axil.b.valid & self.axil.b.ready))
