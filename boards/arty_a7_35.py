"""Digilent Arty A7-35T: 256 MB of DDR3, UART over USB. The chip has no room for Etherbone beside 8 lanes."""

from weft.boards.board import Board, Memory, Shell

SHELL = Shell(
    platform="litex_boards.platforms.digilent_arty:Platform", platform_options={"variant": "a7-35"},
    clocks="litex_boards.targets.digilent_arty:_CRG", clock_hz=100e6,
    memory=Memory(kind="DDR3", phy="A7DDRPHY", module="MT41K128M16", rate="1:4", phases=4))
BOARD = Board(
    key="arty_a7_35", name="Digilent Arty A7-35T", arch="arty", others=("arty_int8",),
    part="XC7A35T", speed_grade="1L", family="xc7",
    target_hz=150e6, platform="amaranth_boards.arty_a7:ArtyA7_35Platform", flash_name="arty_a7_35t", shell=SHELL,
    plug="Micro-USB (JTAG and UART of the FT2232).")
