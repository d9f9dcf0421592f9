# SPDX-License-Identifier: Apache-2.0
"""Xilinx ZCU104: a Zynq UltraScale+ with 2 GB of DDR4 at its processors."""

from weft.boards.board import Board, Processor
from weft.boards.processor_memory import behind_ports

BOARD = Board(
    key="zcu104", name="Xilinx ZCU104", arch="zcu104",
    others=("zcu104_4x16", "zcu104_int8", "zcu104_int8_4x24", "zcu104_int8_taps9", "zcu104_taps9"),
    part="XCZU7EV", speed_grade="2", family="xc7",
    plug="An SD card with the PYNQ image, power, Ethernet.",
    processor=Processor(kind="zynqmp", device="xczu7ev-ffvc1156-2-e", clock_hz=100e6, memory_bytes=2 << 30,
                        memory=behind_ports(64, 2.4e9, 100e6)))
