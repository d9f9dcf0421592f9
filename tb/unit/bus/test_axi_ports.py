# SPDX-License-Identifier: Apache-2.0
"""Interfaces become Verilog ports with the names and directions that other tools expect."""

import re
from random import Random

import pytest
from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.parts.gearbox import StreamFifo
from weft.simulate import toolchain
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Sink, Source

ADDRESS = ("addr", "len", "size", "burst", "lock", "cache", "prot", "qos", "id")
MASTER_OUT = (
    [f"{channel}{field}" for channel in ("ar", "aw") for field in (*ADDRESS, "valid")]
    + ["rready", "wdata", "wstrb", "wlast", "wvalid", "bready"])
MASTER_IN = ["arready", "rdata", "rresp", "rlast", "rid", "rvalid", "awready", "wready", "bresp", "bid", "bvalid"]
LITE_IN = ["awaddr", "awprot", "awvalid", "wdata", "wstrb", "wvalid", "bready", "araddr", "arprot", "arvalid", "rready"]
LITE_OUT = ["awready", "wready", "bresp", "bvalid", "arready", "rdata", "rresp", "rvalid"]


class Edges(wiring.Component):
    """A master, a slave and a stream that goes through, for their ports."""

    def __init__(self) -> None:
        super().__init__({
            "dram0": Out(axi.Axi4(32, 64)), "axil": In(axi.Axi4Lite(12)), "stream": In(axi.axi4_stream(64)),
            "sample": Out(axi.axi4_stream(64)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(axi.beat_layout(64), 2)
        wiring.connect(m, wiring.flipped(self.stream), fifo.i)
        wiring.connect(m, fifo.o, wiring.flipped(self.sample))
        return m


class Top:
    def __init__(self) -> None:
        self.ports: axi.Ports = {}
        self.edges = Edges()

    def module(self) -> Module:
        m = Module()
        m.submodules.edges = edges = self.edges
        for interface, prefix in ((edges.dram0, "m_axi_dram0"), (edges.axil, "s_axil"),
                                  (edges.stream, "s_axis_instruction"), (edges.sample, "m_axis_sample")):
            self.ports |= axi.verilog_ports(m, interface, prefix)
        return m


@pytest.fixture(scope="module")
def text() -> str:
    toolchain.setup()
    top = Top()
    return verilog.convert(top.module(), name="weft_top", ports=top.ports)


@pytest.mark.parametrize(("direction", "names"), [
    ("output", [f"m_axi_dram0_{name}" for name in MASTER_OUT] + [f"s_axil_{name}" for name in LITE_OUT]
     + ["s_axis_instruction_tready"] + [f"m_axis_sample_{name}" for name in ("tdata", "tkeep", "tlast", "tvalid")]),
    ("input", [f"m_axi_dram0_{name}" for name in MASTER_IN] + [f"s_axil_{name}" for name in LITE_IN]
     + ["m_axis_sample_tready"] + [f"s_axis_instruction_{name}" for name in ("tdata", "tkeep", "tlast", "tvalid")]),
])
def test_ports_have_standard_names_and_directions(text: str, direction: str, names: list[str]) -> None:
    top = text[text.index("module weft_top("):]
    found = re.findall(rf"^  {direction} (?:\[\d+:0\] )?(\w+);", top[:top.index("endmodule")], re.MULTILINE)
    assert sorted(set(found) - {"clk", "rst"}) == sorted(names)


class Joined(wiring.Component):
    """The ports of both streams of :class:`Edges`, as two streams of plain data."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(64)), "o": Out(stream.Signature(64))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.edges = edges = Edges()
        ports = axi.verilog_ports(m, edges.stream, "s") | axi.verilog_ports(m, edges.sample, "m")
        port = {name: signal for name, (signal, _) in ports.items()}
        m.d.comb += [
            port["s_tdata"].eq(self.i.payload), port["s_tvalid"].eq(self.i.valid), self.i.ready.eq(port["s_tready"]),
            self.o.payload.eq(port["m_tdata"]), self.o.valid.eq(port["m_tvalid"]), port["m_tready"].eq(self.o.ready),
        ]
        return m


def test_ports_are_joined_to_the_interface() -> None:
    """A beat given to the port of one stream leaves by the port of the other."""
    sink = Sink("o", Random(2), 50, 0.7)
    simulate(Joined(), Source("i", range(50), Random(1), 0.7), sink)
    assert sink.items == list(range(50))
