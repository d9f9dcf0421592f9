# SPDX-License-Identifier: Apache-2.0
"""The shell of a Zynq-7000 without Vivado: the processors' primitive PS7 around the machine. It needs LiteX.

::

    PS7 --M_AXI_GP0 (AXI3)-- RegistersBridge -- s_axil of the machine
    PS7 --S_AXI_HPn (AXI3)--------------------- an AXI4 master of the machine, in bursts of up to 16 beats
    PS7 --FCLK 0, its reset, interrupt 0

Memory, clock and boot are those of the image on the card; nothing here sets them. The pads of PS7 are fixed, so none
of its pins is constrained."""

from __future__ import annotations

from typing import Any

from litex.build.xilinx import Xilinx7SeriesPlatform
from litex.gen import (
    FSM,
    ClockDomain,
    ClockSignal,
    If,
    Instance,
    LiteXModule,
    NextState,
    NextValue,
    ResetSignal,
    Signal,
)
from litex.soc.interconnect import axi
from migen.genlib.resetsync import AsyncResetSynchronizer

from weft.boards.board import OPENXC7, Board
from weft.boards.shell.machine import MACHINE, Machine
from weft.boards.shell.soc import LITE_CHANNELS, joined
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

PORTS, PORT_BITS, PORT_BEATS = 4, 64, 16
"""The HP ports, their width as the primitive has it, and the longest burst of AXI3 in beats."""
INTERRUPTS = 20
"""The interrupts from the logic to the processors."""
ID_BITS, CONTROL_ID_BITS = 6, 12
"""The bits of an identifier on an HP port, and on M_AXI_GP0."""
ADDRESS = {"addr": 32, "burst": 2, "len": 4, "size": 2, "lock": 2, "cache": 4, "prot": 3, "qos": 4}
TO_MEMORY = {"aw": {**ADDRESS, "id": ID_BITS}, "ar": {**ADDRESS, "id": ID_BITS},
             "w": {"data": PORT_BITS, "strb": PORT_BITS // 8, "last": 1, "id": ID_BITS}}
"""Channel -> signal -> bits of what an HP port is asked."""
FROM_MEMORY = {"b": {"resp": 2, "id": ID_BITS}, "r": {"data": PORT_BITS, "resp": 2, "last": 1, "id": ID_BITS}}
"""Channel -> signal -> bits of what an HP port answers."""
ASKED = {"aw": (*ADDRESS, "id"), "w": ("data", "strb", "last", "id"), "ar": (*ADDRESS, "id")}
ANSWERED = {"b": ("resp", "id"), "r": ("data", "resp", "last", "id")}
"""Channel -> signals of M_AXI_GP0: what the processors ask, and what they are answered."""


def check_ports(board: Board, arch: Arch, machine: Machine) -> None:
    """Raise WeftError for a machine whose masters do not go to the HP ports as they are."""
    masters = machine.masters()
    if len(masters) > PORTS or any(machine.width(name) != PORT_BITS for name in masters):
        raise WeftError(explain(f"the machine's AXI4 masters on board {board.key}",
                                ", ".join(f"{name} of {machine.width(name)} bits" for name in masters),
                                f"up to {PORTS} of {PORT_BITS} bits",
                                f"set axi_data_width and stream_width to {PORT_BITS}, or take --toolchain vivado"))
    if arch.axi_max_burst > PORT_BEATS:
        raise WeftError(explain(f"axi_max_burst on board {board.key}", arch.axi_max_burst,
                                f"up to {PORT_BEATS} beats, the longest burst of AXI3",
                                f"set axi_max_burst to {PORT_BEATS}, or take --toolchain vivado"))


class RegistersBridge(LiteXModule):
    """The machine's registers behind M_AXI_GP0: one burst at a time, beat after beat; writes come first.

    ``port``: AXI3; ``registers``: AXI4-Lite, which may take a write's address and its data in either order. LiteX's
    own bridge answers a write when its data were taken, and drops an address that the slave takes later."""

    def __init__(self, port: axi.AXIInterface, registers: axi.AXILiteInterface) -> None:
        address, left, number = Signal(32), Signal(4), Signal(CONTROL_ID_BITS)
        has_address, has_data, last, failed = Signal(), Signal(), Signal(), Signal()
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
                NextValue(failed, 0),
                If(port.aw.valid, port.aw.ready.eq(1), NextValue(address, port.aw.addr),
                   NextValue(number, port.aw.id), NextState("WRITE")
                   ).Elif(port.ar.valid, port.ar.ready.eq(1), NextValue(address, port.ar.addr),
                          NextValue(left, port.ar.len), NextValue(number, port.ar.id), NextState("READ")))
        fsm.act("READ", registers.ar.valid.eq(1), registers.ar.addr.eq(address),
                If(registers.ar.ready, NextState("ANSWER")))
        fsm.act("ANSWER",
                port.r.valid.eq(registers.r.valid), registers.r.ready.eq(port.r.ready),
                port.r.data.eq(registers.r.data), port.r.resp.eq(registers.r.resp), port.r.last.eq(left == 0),
                If(registers.r.valid & port.r.ready, NextValue(left, left - 1), NextValue(address, address + 4),
                   If(left == 0, NextState("IDLE")).Else(NextState("READ"))))
        fsm.act("WRITE",
                registers.aw.valid.eq(port.w.valid & ~has_address), registers.aw.addr.eq(address),
                registers.w.valid.eq(port.w.valid & ~has_data), registers.w.data.eq(port.w.data),
                registers.w.strb.eq(port.w.strb),
                port.w.ready.eq((has_address | registers.aw.ready) & (has_data | registers.w.ready)),
                If(port.w.valid & port.w.ready, NextValue(has_address, 0), NextValue(has_data, 0),
                   NextValue(last, port.w.last), NextState("WRITTEN")
                   ).Elif(port.w.valid, NextValue(has_address, has_address | registers.aw.ready),
                          NextValue(has_data, has_data | registers.w.ready)))
        fsm.act("WRITTEN",
                registers.b.ready.eq(1),
                If(registers.b.valid, NextValue(failed, failed | (registers.b.resp != 0)),
                   NextValue(address, address + 4), If(last, NextState("RESPOND")).Else(NextState("WRITE"))))
        fsm.act("RESPOND", port.b.valid.eq(1), If(port.b.ready, NextState("IDLE")))
        self.comb += [port.b.resp.eq(failed << 1), port.b.id.eq(number), port.r.id.eq(number)]


class ZynqShell(LiteXModule):
    """The processors and the machine."""

    def __init__(self, board: Board, machine: Machine, platform: Any) -> None:
        self.cd_sys = ClockDomain()
        clocks, resets = Signal(4), Signal(4)
        self.specials += [Instance("BUFG", i_I=clocks[0], o_O=self.cd_sys.clk),
                          AsyncResetSynchronizer(self.cd_sys, ~resets[0])]
        platform.add_period_constraint(self.cd_sys.clk, 1e9 / board.clock_hz)
        interrupt, interrupts = Signal(), Signal(INTERRUPTS)
        self.comb += interrupts.eq(interrupt)
        processors: dict[str, Any] = {"o_FCLKCLK": clocks, "o_FCLKRESETN": resets, "i_IRQF2P": interrupts}
        pins: dict[str, Any] = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys"),
                                "o_interrupt": interrupt}
        registers = axi.AXILiteInterface(data_width=32, address_width=32)
        for channel, fields in LITE_CHANNELS.items():
            pins |= joined(machine, f"s_axil_{channel}", getattr(registers, channel), fields)
        processors |= self._control(registers)
        for number, name in enumerate(machine.masters()):
            asked, answered = self._port(machine, name, pins)
            processors |= {f"i_SAXIHP{number}{pin}": signal for pin, signal in asked.items()}
            processors |= {f"o_SAXIHP{number}{pin}": signal for pin, signal in answered.items()}
        unused = {f"i_{name}": machine.unused(name) for name in machine.ports
                  if machine.is_input(name) and name not in ("clk", "rst") and f"i_{name}" not in pins}
        self.specials += Instance("PS7", **processors), Instance(MACHINE, **pins, **unused)

    def _control(self, registers: axi.AXILiteInterface) -> dict[str, Any]:
        """Return the pins of M_AXI_GP0, connected to the machine's registers."""
        port = axi.AXIInterface(data_width=32, address_width=32, id_width=CONTROL_ID_BITS, version="axi3")
        self.bridge = RegistersBridge(port, registers)
        pins: dict[str, Any] = {"i_MAXIGP0ACLK": ClockSignal("sys")}
        for channels, payload, ready in ((ASKED, "o", "i"), (ANSWERED, "i", "o")):
            for name, fields in channels.items():
                channel, prefix = getattr(port, name), f"MAXIGP0{name.upper()}"
                pins |= {f"{payload}_{prefix}{field.upper()}": _narrowed(getattr(channel, field), ADDRESS.get(field))
                         for field in (*fields, "valid")}
                pins[f"{ready}_{prefix}READY"] = channel.ready
        return pins

    def _port(self, machine: Machine, name: str, pins: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Connect a master of the machine: add its ``pins``; return what its HP port is asked, and what it answers.

        Signals that the machine lacks, such as the writes of a master that only reads, are 0."""
        asked: dict[str, Any] = {"ACLK": ClockSignal("sys"), "RDISSUECAP1EN": 0, "WRISSUECAP1EN": 0}
        answered: dict[str, Any] = {}

        def join(signal: str, bits: int, towards: dict[str, Any]) -> None:
            pin, wire = f"{name}_{signal}", Signal(bits, name=f"{name}_{signal}")
            towards[signal.upper()] = wire
            if pin in machine.ports:
                own = Signal(machine.bits(pin))
                pins[("i_" if machine.is_input(pin) else "o_") + pin] = own
                self.comb += own.eq(wire) if machine.is_input(pin) else wire.eq(own)

        for channels, payload, ready in ((TO_MEMORY, asked, answered), (FROM_MEMORY, answered, asked)):
            for channel, fields in channels.items():
                for field, bits in {**fields, "valid": 1}.items():
                    join(channel + field, bits, payload)
                join(f"{channel}ready", 1, ready)
        return asked, answered


def _narrowed(signal: Any, bits: int | None) -> Any:
    """Return the low bits of a signal, where the primitive has fewer than LiteX; all of it for None."""
    return signal if bits is None or bits == len(signal) else signal[:bits]


def platform_of(board: Board) -> Xilinx7SeriesPlatform:
    """Return LiteX's platform of a Zynq, of which no pin is used."""
    assert board.processor is not None
    return Xilinx7SeriesPlatform(board.processor.device, [], toolchain=OPENXC7)
