# SPDX-License-Identifier: Apache-2.0
"""Ports of LiteDRAM for masters narrower than the word of one command, as DDR3's is.

LiteDRAM's own converter takes the data of a write before its command. LiteDRAMAXI2Native, which counts the beats that
commands stand for, then counts below zero and never asks again: writes hang. Reads wait for each other there, some 25
cycles a word. Here each beat is a command of its own, with the number of its part of the word beside it."""

from __future__ import annotations

from typing import Any

from litedram.common import LiteDRAMNativePort
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import Case, Cat, If, Replicate

UNDER_WAY = 32
"""The most beats asked for and not yet moved, each way: LiteDRAMAXI2Native's buffers hold 17."""


class NarrowPort(LiteXModule):
    """A port of ``width`` bits in front of ``wide``, a port of the controller's word."""

    def __init__(self, wide: Any, width: int) -> None:
        parts = wide.data_width // width
        part_bits = parts.bit_length() - 1
        self.port = port = LiteDRAMNativePort("both", wide.address_width + part_bits, width)
        self.reads = reads = stream.SyncFIFO([("part", part_bits)], UNDER_WAY)
        self.writes = writes = stream.SyncFIFO([("part", part_bits)], UNDER_WAY)
        part, taken = port.cmd.addr[:part_bits], port.cmd.valid & port.cmd.ready
        self.comb += [
            wide.cmd.valid.eq(port.cmd.valid), wide.cmd.we.eq(port.cmd.we), wide.cmd.last.eq(port.cmd.last),
            wide.cmd.addr.eq(port.cmd.addr[part_bits:]), port.cmd.ready.eq(wide.cmd.ready),
            reads.sink.valid.eq(taken & ~port.cmd.we), reads.sink.part.eq(part),
            writes.sink.valid.eq(taken & port.cmd.we), writes.sink.part.eq(part),
            wide.wdata.valid.eq(port.wdata.valid), port.wdata.ready.eq(wide.wdata.ready),
            wide.wdata.data.eq(Replicate(port.wdata.data, parts)),
            wide.wdata.we.eq(Cat(*(Replicate(writes.source.part == each, width // 8) & port.wdata.we
                                   for each in range(parts)))),
            writes.source.ready.eq(wide.wdata.ready & port.wdata.valid),
            port.rdata.valid.eq(wide.rdata.valid), wide.rdata.ready.eq(port.rdata.ready),
            Case(reads.source.part, {each: port.rdata.data.eq(wide.rdata.data[each * width:(each + 1) * width])
                                     for each in range(parts)}),
            If(wide.rdata.valid, reads.source.ready.eq(1)),
        ]


def native_port(module: Any, crossbar: Any, width: int) -> Any:
    """Return a port of ``width`` bits on LiteDRAM's crossbar; its parts become submodules of ``module``."""
    wide = crossbar.controller.data_width
    if width >= wide:
        return crossbar.get_port(data_width=width)
    narrow = NarrowPort(crossbar.get_port(), width)
    module.add_module(name="narrow", module=narrow)
    return narrow.port
