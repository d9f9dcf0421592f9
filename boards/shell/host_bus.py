# SPDX-License-Identifier: Apache-2.0
"""The host's side of the bus: a witness of all that the links do there, and room for commands of the UART.

LiteX's links answer no write and have no check sum. The witness has a CRC-32 of all writes and one of all reads, as
``runtime/driver/witness.py`` says, and the host compares them with its own."""

from __future__ import annotations

import zlib
from functools import reduce
from operator import xor
from typing import Any

from litex.gen import Cat, If, LiteXModule, Mux, Signal
from litex.soc.interconnect import stream, wishbone

from weft.hw.contract.host_link import ROOM_BYTES, WITNESS_WORDS

CRC_BITS, WORD_BITS = 32, 32
SETTLE_CYCLES = 4
"""The cycles that the witness waits before it answers, so that all accesses before are counted."""


def crc_terms() -> list[list[int]]:
    """Return for each bit of the next CRC register which bits of it, of the address and of the word it is the sum of.

    Bits 0 to 31 are the register's, then come the word address and the word. The register is the complement of the CRC
    (zlib's); a sum of bits has no constant then."""
    ones = zlib.crc32(bytes(8), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    assert not ones, "a register of zeros stays as it is while zeros come"
    found: list[list[int]] = [[] for _ in range(CRC_BITS)]
    for source in range(CRC_BITS + 2 * WORD_BITS):
        content, register = (1 << source) >> CRC_BITS, (1 << source) & 0xFFFF_FFFF
        after = zlib.crc32(content.to_bytes(8, "little"), register ^ 0xFFFF_FFFF) ^ 0xFFFF_FFFF
        for bit in range(CRC_BITS):
            if after >> bit & 1:
                found[bit].append(source)
    return found


class Witness(LiteXModule):
    """Both CRCs of the accesses on ``watched``, a Wishbone bus; ``bus``: where they are read, that of writes first."""

    def __init__(self, watched: wishbone.Interface) -> None:
        self.bus = bus = wishbone.Interface(data_width=WORD_BITS, address_width=32, addressing="word")
        writes, reads, count = (Signal(CRC_BITS, reset=0xFFFF_FFFF), Signal(CRC_BITS, reset=0xFFFF_FFFF),
                                Signal(max=SETTLE_CYCLES + 1))
        seen, written, address, word = Signal(), Signal(), Signal(WORD_BITS), Signal(WORD_BITS)
        self.sync += [
            seen.eq(watched.cyc & watched.stb & (watched.ack | watched.err)),
            written.eq(watched.we), address.eq(watched.adr),
            word.eq(Mux(watched.we, watched.dat_w, watched.dat_r)),
        ]
        sources, after = Cat(Mux(written, writes, reads), address, word), Signal(CRC_BITS)
        self.comb += [after[bit].eq(reduce(xor, (sources[source] for source in terms)))
                      for bit, terms in enumerate(crc_terms())]
        self.sync += If(seen, If(written, writes.eq(after)).Else(reads.eq(after)))
        self.comb += [bus.ack.eq(count == SETTLE_CYCLES),
                      bus.dat_r.eq(Mux(bus.adr[:(WITNESS_WORDS - 1).bit_length()] == 0, ~writes, ~reads))]
        self.sync += If(bus.cyc & bus.stb & ~bus.ack, count.eq(count + 1)).Else(count.eq(0))


class BufferedPhy(LiteXModule):
    """A UART's PHY behind which ROOM_BYTES of commands wait while the bridge answers one."""

    def __init__(self, phy: Any) -> None:
        self.phy, self.sink = phy, phy.sink
        self.fifo = stream.SyncFIFO([("data", 8)], ROOM_BYTES, buffered=True)
        self.comb += phy.source.connect(self.fifo.sink)
        self.source = self.fifo.source
