# SPDX-License-Identifier: Apache-2.0
"""The ring in which performance samples wait for the host (``hw/contract/host_link.py`` says its registers).

All reads may be repeated: nothing changes when it is read, and what is written only moves when the host says so."""

from __future__ import annotations

from litex.gen import If, LiteXModule, Memory, Mux, Signal
from litex.soc.interconnect import wishbone

from weft.hw.contract.host_link import RING_COUNT_BITS, RING_SAMPLES, RING_TAKEN, RING_WORDS
from weft.hw.contract.samples import SAMPLE_BITS

WORD_BITS, WORD_BYTES = 32, 4
INDEX_BITS = (RING_SAMPLES - 1).bit_length()


class SampleRing(LiteXModule):
    """Samples by ``data``, ``valid`` and ``ready``; ``bus``: Wishbone. A full ring is not ready."""

    def __init__(self) -> None:
        self.bus = bus = wishbone.Interface(data_width=WORD_BITS, address_width=32, addressing="word")
        self.data, self.valid, self.ready = Signal(SAMPLE_BITS), Signal(), Signal()
        memory = Memory(SAMPLE_BITS, RING_SAMPLES)
        put, get = memory.get_port(write_capable=True), memory.get_port()
        self.specials += memory, put, get
        written, seen, taken, room = (Signal(RING_COUNT_BITS) for _ in range(4))
        asked, samples, write = Signal(), Signal(), Signal()
        self.comb += [
            room.eq(taken + RING_SAMPLES - written), self.ready.eq(room != 0),
            put.adr.eq(written[:INDEX_BITS]), put.dat_w.eq(self.data), put.we.eq(self.valid & self.ready),
            asked.eq(bus.cyc & bus.stb & ~bus.ack), get.adr.eq(bus.adr[1:1 + INDEX_BITS]),
            samples.eq(bus.adr[(RING_WORDS // WORD_BYTES).bit_length() - 1]),
            write.eq(asked & bus.we & ~samples & (bus.adr[0] == RING_TAKEN // WORD_BYTES)),
            If(samples, bus.dat_r.eq(Mux(bus.adr[0], get.dat_r[WORD_BITS:], get.dat_r[:WORD_BITS]))
               ).Else(bus.dat_r.eq(Mux(bus.adr[0], seen, taken))),
        ]
        self.sync += [
            bus.ack.eq(asked), If(put.we, written.eq(written + 1)),
            If(write, taken.eq(bus.dat_w[:RING_COUNT_BITS]), seen.eq(written)),
        ]
