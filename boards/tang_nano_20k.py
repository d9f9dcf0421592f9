# SPDX-License-Identifier: Apache-2.0
"""Sipeed Tang Nano 20K (GW2AR-18): the machine's memory is the chip's own, UART over the debugger's USB.

27 MHz are the oscillator's, and 27 clocks a bit of the UART.
"""

from weft.boards.board import Board, OnChip, Shell

BOARD = Board(
    key="tang_nano_20k", name="Sipeed Tang Nano 20K", arch="tang_nano_20k", part="GW2AR-18", speed_grade="C8/I7",
    family="gowin", routed={"tang_nano_20k": 117.74e6}, flash_name="tangnano20k",
    plug="USB-C (JTAG and UART of the BL616).",
    shell=Shell(
        platform="litex_boards.platforms.sipeed_tang_nano_20k:Platform",
        clocks="litex_boards.targets.sipeed_tang_nano_20k:_CRG", clock_hz=27e6, baud=1_000_000,
        memory=OnChip(program_bytes=32 << 10)))
