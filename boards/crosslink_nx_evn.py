# SPDX-License-Identifier: Apache-2.0
"""Lattice CrossLink-NX evaluation board (LIFCL-40): the machine's memory is the chip's own, UART over USB.

The DRAM windows lie in the chip's two blocks of 64 KiB, the program in block RAM."""

from weft.boards.board import Board, OnChip, Shell

BOARD = Board(
    key="crosslink_nx_evn", name="Lattice CrossLink-NX Evaluation Board", arch="crosslink_nx", part="LIFCL-40",
    speed_grade="9BG400C", family="nexus", routed={"crosslink_nx": 71.09e6}, flash_name="crosslinknx_evn",
    plug="Mini-USB (JTAG and UART of the FT2232H), with the jumper JP2 (oscillator) and the links R15 and R17 (UART) "
         "in place.",
    shell=Shell(
        platform="litex_boards.platforms.lattice_crosslink_nx_evn:Platform",
        platform_options={"device": "LIFCL-40-9BG400C"},
        clocks="weft.boards.shell.clocks:CrossLinkClocks", clock_hz=40e6,
        memory=OnChip(program_bytes=64 << 10)))
