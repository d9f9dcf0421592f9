# SPDX-License-Identifier: Apache-2.0
"""On-chip memory behind an AXI4 port of the machine, for boards without DRAM. The host's bus reaches it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litex.gen import If, LiteXModule, Memory, Mux, Signal
from litex.soc.interconnect import axi, stream, wishbone
from litex.soc.interconnect.axi.axi_common import BURST_FIXED, BURST_INCR
from litex.soc.interconnect.axi.axi_full import AXIBurst2Beat, ax_description
from migen.fhdl.specials import NO_CHANGE

from weft.boards.shell.machine import WORD_BITS, Window

WORD_BYTES = WORD_BITS // 8
DATA, PROGRAM = "data_windows", "program_window"
"""The beginnings of the names of these memories in the shell's Verilog."""


class BlockMemory(LiteXModule):
    """``windows`` of the machine's addresses, one after another, in block RAM with one port: a word a cycle.

    The host comes first, the machine's writes and reads alternate. ``port``: AXI4; ``bus``: Wishbone."""

    def __init__(self, windows: Mapping[str, Window], address_bits: int) -> None:
        self.port = port = axi.AXIInterface(data_width=WORD_BITS, address_width=address_bits, id_width=1)
        self.bus = bus = wishbone.Interface(data_width=WORD_BITS, address_width=32, addressing="word")
        memory = Memory(WORD_BITS, sum(window.size for window in windows.values()) // WORD_BYTES,
                        name=PROGRAM if "program" in windows else DATA)
        ram = memory.get_port(write_capable=True, has_re=True, we_granularity=8, mode=NO_CHANGE)
        self.specials += memory, ram
        writes, reads = self._beats("writes", port.aw), self._beats("reads", port.ar)
        host, write, read, wrote, fresh = (Signal() for _ in range(5))
        can_write = writes.valid & port.w.valid & (~port.b.valid | port.b.ready)
        can_read = reads.valid & (~port.r.valid | port.r.ready)
        address, kept = Signal(address_bits), Signal(WORD_BITS)
        self.comb += [
            host.eq(bus.cyc & bus.stb & ~bus.ack),
            write.eq(~host & can_write & ~(wrote & can_read)),
            read.eq(~host & ~write & can_read),
            address.eq(Mux(host, bus.adr * WORD_BYTES, Mux(write, writes.addr, reads.addr))),
            ram.adr.eq(place(windows, address)),
            ram.dat_w.eq(Mux(host, bus.dat_w, port.w.data)),
            If(host & bus.we, ram.we.eq(bus.sel)).Elif(write, ram.we.eq(port.w.strb)),
            ram.re.eq(read | (host & ~bus.we)),
            writes.ready.eq(write), port.w.ready.eq(write), reads.ready.eq(read),
            bus.dat_r.eq(ram.dat_r), port.r.data.eq(Mux(fresh, ram.dat_r, kept)),
        ]
        self.sync += [
            bus.ack.eq(host), fresh.eq(read), wrote.eq(write),
            If(fresh, kept.eq(ram.dat_r)),  # whoever reads next changes the memory's output
            If(port.r.ready, port.r.valid.eq(0)),
            If(read, port.r.valid.eq(1), port.r.last.eq(reads.last), port.r.id.eq(reads.id)),
            If(port.b.ready, port.b.valid.eq(0)),
            If(write & writes.last, port.b.valid.eq(1), port.b.id.eq(writes.id)),
        ]

    def _beats(self, name: str, bursts: Any) -> Any:
        """Return the words of the bursts of an address channel, which is taken before its data."""
        taken = stream.Buffer(bursts.description)
        self.add_module(name=f"{name}_buffer", module=taken)
        self.comb += bursts.connect(taken.sink)
        beats = axi.AXIStreamInterface(layout=ax_description(len(bursts.addr)), id_width=1)
        self.add_module(name=name, module=AXIBurst2Beat(taken.source, beats, {BURST_FIXED, BURST_INCR}))
        return beats


def place(windows: Mapping[str, Window], address: Any) -> Any:
    """Return the word of the memory that holds a byte address."""
    shift, end = 0, 0
    for window in windows.values():  # in order of their addresses
        shift = Mux(address >= window.start, (end - window.start) // WORD_BYTES, shift)
        end += window.size
    return (address >> 2) + shift
