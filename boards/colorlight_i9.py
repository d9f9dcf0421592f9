# SPDX-License-Identifier: Apache-2.0
"""Colorlight i9 (LFE5U-45F) on its extension board: 8 MB of SDR SDRAM, UART over the debugger's USB."""

from weft.boards.board import Board, Flash, Memory, Shell
from weft.hw.contract.dram import LiteDram

BOARD = Board(
    key="colorlight_i9", name="Colorlight i9 v7.2", arch="colorlight_i9", part="LFE5U-45F", speed_grade="6",
    family="ecp5", routed={"colorlight_i9": 69.7e6}, flash_name="colorlight-i9",
    plug="The module in its extension board, and USB-C there (JTAG and UART of the DAPLink).",
    shell=Shell(
        platform="litex_boards.platforms.colorlight_i5:Platform", platform_options={"board": "i9", "revision": "7.2"},
        clocks="litex_boards.targets.colorlight_i5:_CRG", clock_hz=40e6,
        flash=Flash(module="W25Q64"),
        memory=Memory(kind="SDR", phy="GENSDRPHY", module="M12L64322A", rate="1:1", phases=1, dram=LiteDram(
            data_bits=32, word_bytes=4, phases=1, banks=4, rows=2048, row_bytes=1024, read_latency=3, write_latency=0,
            column_write_latency=2, t_rp=1, t_rcd=1, t_wr=1, t_wtr=2, t_refi=625, t_rfc=3, t_ccd=1, t_rrd=1, t_rc=3,
            t_ras=2))))
