# SPDX-License-Identifier: Apache-2.0
"""Digilent Arty A7-35T: 256 MB of DDR3, UART over USB. The chip has no room for Etherbone beside 8 lanes."""

from weft.boards.board import Board, Memory, Shell
from weft.hw.contract.dram import LiteDram

SHELL = Shell(
    platform="litex_boards.platforms.digilent_arty:Platform", platform_options={"variant": "a7-35"},
    clocks="litex_boards.targets.digilent_arty:_CRG", clock_hz=100e6,
    memory=Memory(kind="DDR3", phy="A7DDRPHY", module="MT41K128M16", rate="1:4", phases=4, dram=LiteDram(
        data_bits=16, word_bytes=16, phases=4, banks=8, rows=16384, row_bytes=2048, read_latency=8, write_latency=1,
        column_write_latency=2, t_rp=3, t_rcd=3, t_wr=3, t_wtr=2, t_refi=782, t_rfc=32, t_ccd=1, t_rrd=2, t_rc=6,
        t_ras=5, t_faw=5)))
BOARD = Board(
    key="arty_a7_35", name="Digilent Arty A7-35T", arch="arty", others=("arty_int8",),
    part="XC7A35T", speed_grade="1L", family="xc7",
    target_hz=150e6, xray="xc7a35tcsg324-1", platform="amaranth_boards.arty_a7:ArtyA7_35Platform",
    flash_name="arty_a7_35t", shell=SHELL,
    plug="Micro-USB (JTAG and UART of the FT2232).")
