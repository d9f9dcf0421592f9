# SPDX-License-Identifier: Apache-2.0
"""A page of registers behind an AXI4-Lite slave port: one read and one write at a time."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Module, Mux, Signal, Value

from weft.hw.bus import axi
from weft.hw.contract.csr import ADDRESS_WIDTH, ControlRegister


def answer_reads(m: Module, axil, registers: Mapping[str, ControlRegister], values: Mapping[str, Value]) -> None:
    """Answer reads: the first cycle registers the address, the second the data. An offset without register: SLVERR.

    ``values``: the value of each register, by name."""
    ar, r = axil.ar, axil.r
    address, pending = Signal(ADDRESS_WIDTH - 2), Signal()
    m.d.comb += ar.ready.eq(~pending & ~r.valid)
    m.d.sync += pending.eq(ar.valid & ar.ready)
    with m.If(ar.valid & ar.ready):
        m.d.sync += address.eq(ar.payload.addr[2:])
    with m.If(pending):
        m.d.sync += r.valid.eq(1)
        with m.Switch(address):
            for name, register in registers.items():
                with m.Case(register.offset >> 2):
                    m.d.sync += [r.payload.data.eq(values[name]), r.payload.resp.eq(axi.Response.OKAY)]
            with m.Default():
                m.d.sync += [r.payload.data.eq(0), r.payload.resp.eq(axi.Response.SLVERR)]
    with m.Elif(r.ready):
        m.d.sync += r.valid.eq(0)


def take_writes(m: Module, axil, registers: Mapping[str, ControlRegister]) -> tuple[dict[str, Signal], Value, Value]:
    """Take writes. Return (written, strobes, word).

    ``written``: register's name -> whether it is written in this cycle; ``strobes``: a bit for each byte of the
    ``word`` of 32 bits. An offset without register answers SLVERR."""
    aw, w, b = axil.aw, axil.w, axil.b
    address, has_address = Signal(ADDRESS_WIDTH - 2), Signal()
    word, strobes = Signal(32, reset_less=True), Signal(4, reset_less=True)
    has_data, write = Signal(), Signal()
    m.d.comb += [
        aw.ready.eq(~has_address & ~b.valid), w.ready.eq(~has_data & ~b.valid), write.eq(has_address & has_data),
    ]
    with m.If(aw.valid & aw.ready):
        m.d.sync += [has_address.eq(1), address.eq(aw.payload.addr[2:])]
    with m.If(w.valid & w.ready):
        m.d.sync += [has_data.eq(1), strobes.eq(w.payload.strb), word.eq(w.payload.data)]
    with m.If(write):
        m.d.sync += [has_address.eq(0), has_data.eq(0), b.valid.eq(1)]
    with m.Elif(b.ready):
        m.d.sync += b.valid.eq(0)
    written = {name: Signal(name=f"write_{name.lower()}") for name in registers}
    with m.Switch(address):
        for name, register in registers.items():
            with m.Case(register.offset >> 2):
                m.d.comb += written[name].eq(write)
                m.d.sync += b.payload.resp.eq(Mux(write, axi.Response.OKAY, b.payload.resp))
        with m.Default():
            m.d.sync += b.payload.resp.eq(Mux(write, axi.Response.SLVERR, b.payload.resp))
    return written, strobes, word
