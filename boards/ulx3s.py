# SPDX-License-Identifier: Apache-2.0
"""Radiona ULX3S 85F: 32 MB of SDR SDRAM, UART over USB."""

from weft.boards.board import Board, Flash, Memory, Shell
from weft.hw.contract.dram import LiteDram

BOARD = Board(
    key="ulx3s", name="Radiona ULX3S 85F", arch="ulx3s", part="LFE5U-85F", speed_grade="6", family="ecp5",
    routed={"ulx3s": 66.41e6}, platform="amaranth_boards.ulx3s:ULX3S_85F_Platform", flash_name="ulx3s",
    plug="Micro-USB at US1 (JTAG and UART of the FT231X).",
    shell=Shell(
        platform="litex_boards.platforms.radiona_ulx3s:Platform",
        platform_options={"device": "LFE5U-85F", "revision": "2.0"},
        clocks="litex_boards.targets.radiona_ulx3s:_CRG", clock_hz=40e6,
        flash=Flash(module="IS25LP128"),
        memory=Memory(kind="SDR", phy="GENSDRPHY", module="MT48LC16M16", rate="1:1", phases=1, dram=LiteDram(
            data_bits=16, word_bytes=2, phases=1, banks=4, rows=8192, row_bytes=1024, read_latency=3, write_latency=0,
            column_write_latency=2, t_rp=1, t_rcd=1, t_wr=1, t_wtr=2, t_refi=313, t_rfc=3, t_ccd=1, t_rrd=1, t_rc=3,
            t_ras=2))))
