# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's controller of a board alone, without PHY and chip: it decides when data move, others provide them.

    python -m weft.boards.shell.controller BOARD FOLDER NAME=BITS...
    python -m weft.boards.shell.controller BOARD                        # prints the ``dram`` of its file

It runs in a process of its own, as ``generate.py``. The crossbar gives data after a fixed time, whatever the PHY does,
so that this takes the cycles of the whole. ``NAME=BITS``: the machine's AXI4 masters, in the order of the shell."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from litedram.core import LiteDRAMCore
from litedram.phy import dfi
from litex.gen import LiteXModule
from litex.gen.fhdl.verilog import convert
from migen import ClockDomain, Signal

from weft.boards import BOARDS
from weft.boards.board import Board, Memory
from weft.boards.shell.dram_port import DramPort
from weft.boards.shell.soc import CHANNELS, chip_of, named, phy_of
from weft.hw.contract.dram import LiteDram

CONTROLLER = "dram_controller"
"""The name of the module and of its file."""
DATE = re.compile(r"^//.*$", re.MULTILINE)
ANSWERS = {"aw": ("ready",), "w": ("ready",), "b": ("valid",), "ar": ("ready",), "r": ("valid", "last")}
"""The signals of each channel that the controller drives, without data and responses."""
ASKED = {"aw": ("valid", "addr", "len", "size", "burst"), "w": ("valid", "last"), "b": ("ready",),
         "ar": ("valid", "addr", "len", "size", "burst"), "r": ("ready",)}


def settings_of(board: Board) -> Any:
    """Return the settings of the board's own PHY on its own pins: widths, phases, latencies."""
    assert board.shell is not None and isinstance(board.shell.memory, Memory)
    platform = named(board.shell.platform)(toolchain=board.toolchains[0], **board.shell.platform_options)
    return phy_of(board.shell.memory, platform, int(board.shell.clock_hz)).settings


def record_of(board: Board) -> LiteDram:
    """Return LiteDRAM's parameters of the board's memory, as the board's file must state them."""
    assert board.shell is not None and isinstance(board.shell.memory, Memory)
    phy, chip = settings_of(board), chip_of(board.shell.memory, int(board.shell.clock_hz))
    geometry, timing = chip.geom_settings, chip.timing_settings
    return LiteDram(
        data_bits=phy.databits, word_bytes=phy.dfi_databits * phy.nphases // 8, phases=phy.nphases,
        banks=1 << geometry.bankbits, rows=1 << geometry.rowbits, row_bytes=(phy.databits << geometry.colbits) // 8,
        read_latency=phy.read_latency, write_latency=phy.write_latency,
        column_write_latency=-(-phy.cwl // phy.nphases), t_rp=timing.tRP, t_rcd=timing.tRCD, t_wr=timing.tWR,
        t_wtr=timing.tWTR, t_refi=timing.tREFI, t_rfc=timing.tRFC, t_ccd=timing.tCCD, t_rrd=timing.tRRD,
        t_rc=timing.tRC, t_ras=timing.tRAS, t_faw=timing.tFAW)


class NoPhy(LiteXModule):
    """The PHY's settings and its interface, with nothing behind."""

    def __init__(self, settings: Any, chip: Any) -> None:
        self.settings = settings
        geometry = chip.geom_settings
        self.dfi = dfi.Interface(geometry.addressbits, geometry.bankbits, settings.nranks, settings.dfi_databits,
                                 settings.nphases)


class Controller(LiteXModule):
    """The controller with its ports. ``masters``: the data bits of each."""

    def __init__(self, board: Board, masters: dict[str, int]) -> None:
        assert board.shell is not None and isinstance(board.shell.memory, Memory)
        clock = int(board.shell.clock_hz)
        chip = chip_of(board.shell.memory, clock)
        self.phy = NoPhy(settings_of(board), chip)
        self.core = LiteDRAMCore(self.phy, chip.geom_settings, chip.timing_settings, clock)
        self.cd_sys = ClockDomain()
        self.core.crossbar.get_port()  # the host's
        self.ports = {}
        for name, width in masters.items():
            port = DramPort(self.core.crossbar, width)
            self.add_module(name, port)
            self.ports[name] = port.axi
        self.refresh_count = Signal(16, name="refresh_count")
        self.comb += self.refresh_count.eq(self.core.controller.refresher.timer.count)

    def pins(self) -> set[Any]:
        """Return the module's ports."""
        found = {self.cd_sys.clk, self.cd_sys.rst, self.refresh_count}
        for name, axi in self.ports.items():
            for channel in CHANNELS:
                for field in (*ANSWERS[channel], *ASKED[channel]):
                    signal = getattr(getattr(axi, channel), field)
                    signal.name_override = f"{name}_{channel}{field}"
                    found.add(signal)
        return found


def generate(board: Board, folder: Path, masters: dict[str, int]) -> None:
    """Write ``dram_controller.v``; the same board and masters give the same text."""
    design = Controller(board, masters)
    text = convert(design, design.pins(), name=CONTROLLER).main_source
    (folder / f"{CONTROLLER}.v").write_text(DATE.sub("", text))


if __name__ == "__main__" and len(sys.argv) == 2:
    print(record_of(BOARDS[sys.argv[1]]))
elif __name__ == "__main__":
    generate(BOARDS[sys.argv[1]], Path(sys.argv[2]),
             {name: int(bits) for name, _, bits in (each.partition("=") for each in sys.argv[3:])})
