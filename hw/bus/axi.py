# SPDX-License-Identifier: Apache-2.0
"""AXI4, AXI4-Lite and AXI4-Stream as Amaranth streams, and how they become named Verilog ports.

Each channel is a stream whose payload has the standard field names. All signatures are written as the master (for
AXI4-Stream: the transmitter) sees them; a slave has them as ``In``. Identifiers have one bit and are always 0: every
response comes in order."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.hdl._ir import PortDirection
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch

BOUNDARY_BYTES = 4096
"""No burst crosses a multiple of this."""


class Burst(enum.Enum, shape=2):
    """The values of AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(enum.Enum, shape=2):
    """The values of RRESP and BRESP."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


def size_log2(data_width: int) -> int:
    """Return AxSIZE of a beat that fills the bus: log2 of its bytes."""
    return (data_width // 8).bit_length() - 1


def user_width(arch: Arch) -> int:
    """Return the bits of AxUSER on a DRAM port: if both windows share it, AxUSER says which one a burst is in."""
    return int(arch.shared_dram)


SYSTEM_USER_WIDTH = 2
"""The bits of AxUSER on a memory port of a system: a core's window, or that a burst is of a program."""
DRAM1_USER, PROGRAM_USER = 1, 2
"""AxUSER of DRAM1, and of a program on a memory port of a system; DRAM0 has 0."""


# -- channels ----------------------------------------------------------------------------------------------------------
def address_layout(address_width: int, user_width: int = 0) -> data.StructLayout:
    """Return the payload of AR and AW.

    ``len`` is beats - 1, ``size`` log2 of the bytes of a beat; ``user`` is there if it has bits."""
    return data.StructLayout({
        "addr": unsigned(address_width), "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4,
        "id": 1, **({"user": unsigned(user_width)} if user_width else {}),
    })


def read_data_layout(data_width: int) -> data.StructLayout:
    """Return the payload of R."""
    return data.StructLayout({"data": unsigned(data_width), "resp": 2, "last": 1, "id": 1})


def write_data_layout(data_width: int) -> data.StructLayout:
    """Return the payload of W; ``strb`` has one bit for each byte."""
    return data.StructLayout({"data": unsigned(data_width), "strb": unsigned(data_width // 8), "last": 1})


def write_response_layout() -> data.StructLayout:
    """Return the payload of B."""
    return data.StructLayout({"resp": 2, "id": 1})


def beat_layout(data_width: int) -> data.StructLayout:
    """Return the payload of an AXI4-Stream.

    ``keep`` has one bit for each byte, contiguous from bit 0, and may be partial only with ``last``."""
    return data.StructLayout({"data": unsigned(data_width), "keep": unsigned(data_width // 8), "last": 1})


# -- signatures --------------------------------------------------------------------------------------------------------
class Axi4Read(wiring.Signature):
    """The read channels of AXI4: ``ar`` out, ``r`` in."""

    def __init__(self, address_width: int, data_width: int, user_width: int = 0) -> None:
        super().__init__({
            "ar": Out(stream.Signature(address_layout(address_width, user_width))),
            "r": In(stream.Signature(read_data_layout(data_width))),
        })


class Axi4Write(wiring.Signature):
    """The write channels of AXI4: ``aw`` and ``w`` out, ``b`` in."""

    def __init__(self, address_width: int, data_width: int, user_width: int = 0) -> None:
        super().__init__({
            "aw": Out(stream.Signature(address_layout(address_width, user_width))),
            "w": Out(stream.Signature(write_data_layout(data_width))),
            "b": In(stream.Signature(write_response_layout())),
        })


class Axi4(wiring.Signature):
    """All five channels of AXI4."""

    def __init__(self, address_width: int, data_width: int, user_width: int = 0) -> None:
        super().__init__({
            **dict(Axi4Write(address_width, data_width, user_width).members.items()),
            **dict(Axi4Read(address_width, data_width, user_width).members.items()),
        })


class Axi4Lite(wiring.Signature):
    """The five channels of AXI4-Lite, with single beats of 32 bits.

    ``aw`` and ``ar`` have {addr, prot}, ``w`` {data, strb}, ``b`` {resp}, ``r`` {data, resp}."""

    def __init__(self, address_width: int) -> None:
        address = data.StructLayout({"addr": unsigned(address_width), "prot": 3})
        super().__init__({
            "aw": Out(stream.Signature(address)),
            "w": Out(stream.Signature(data.StructLayout({"data": 32, "strb": 4}))),
            "b": In(stream.Signature(data.StructLayout({"resp": 2}))),
            "ar": Out(stream.Signature(address)),
            "r": In(stream.Signature(data.StructLayout({"data": 32, "resp": 2}))),
        })


def axi4_stream(data_width: int) -> stream.Signature:
    """Return the signature of an AXI4-Stream: one stream of beats {data, keep, last}."""
    return stream.Signature(beat_layout(data_width))


# -- Verilog ports -----------------------------------------------------------------------------------------------------
Ports = dict[str, tuple[Signal, PortDirection]]
"""The ports as ``amaranth.back.verilog.convert(ports=...)`` takes them: name -> (signal, direction)."""


def verilog_ports(m: Module, interface: Any, prefix: str) -> Ports:
    """Return ports with standard names for an interface of one of the signatures above, joined to it in ``m``.

    ``m_axi_dram0`` with ``ar`` becomes ``m_axi_dram0_araddr``, ``..._arvalid``, ...; a stream becomes
    ``<prefix>_tdata``, ``_tkeep``, ``_tlast``, ``_tvalid``, ``_tready``. Directions are those of the interface: what
    it drives is an output. Tools find the buses by these names. Attributes would not do: Amaranth gives those of one
    port to every other port with the same nets, such as all constant ones."""
    members = dict(interface.signature.members.items())
    if isinstance(interface.signature, stream.Signature) or set(members) == {"payload", "valid", "ready"}:
        return _channel_ports(m, interface, prefix, "t", members["payload"].flow is Out)
    ports: Ports = {}
    for name, member in members.items():
        ports |= _channel_ports(m, getattr(interface, name), prefix, name, member.flow is Out)
    return ports


def _channel_ports(m: Module, channel: Any, prefix: str, letter: str, drives: bool) -> Ports:
    """Return the ports of one stream; ``drives``: payload and valid are outputs, and ready is an input."""
    values = {field: channel.payload[field] for field, _ in channel.payload.shape()}
    ports: Ports = {}
    for field, value in (*values.items(), ("valid", channel.valid), ("ready", channel.ready)):
        name = f"{prefix}_{letter}{field}"
        port = Signal(len(value), name=name)
        outward = drives != (field == "ready")
        m.d.comb += port.eq(value) if outward else value.eq(port)
        ports[name] = port, PortDirection.Output if outward else PortDirection.Input
    return ports
