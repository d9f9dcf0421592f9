# SPDX-License-Identifier: Apache-2.0
"""Digilent Arty A7-100T: the Arty A7-35T with a larger chip, and so with Ethernet."""

from dataclasses import replace

from weft.boards import arty_a7_35

BOARD = replace(
    arty_a7_35.BOARD, key="arty_a7_100", name="Digilent Arty A7-100T", part="XC7A100T", speed_grade="1",
    xray="xc7a100tcsg324-1",
    platform="amaranth_boards.arty_a7:ArtyA7_100Platform", flash_name="arty_a7_100t",
    others=("arty_int8", "arty100_3x8", "arty100_lut"),
    plug="Micro-USB (JTAG and UART of the FT2232); Ethernet if wanted, the board is 192.168.1.50.",
    shell=replace(arty_a7_35.SHELL, platform_options={"variant": "a7-100"}, ethernet="liteeth.phy.mii:LiteEthPHYMII"))
