# SPDX-License-Identifier: Apache-2.0
"""Digilent PYNQ-Z1: a Zynq-7020 with 512 MB of DDR3."""

from weft.boards.board import Board, Processor
from weft.boards.processor_memory import behind_ports

BOARD = Board(
    key="pynq_z1", name="Digilent PYNQ-Z1", arch="pynq",
    others=("pynq_3x8", "pynq_int8", "pynq_int8_taps3", "pynq_lut"),
    part="XC7Z020", speed_grade="1", family="xc7",
    target_hz=150e6, xray="xc7z020clg400-1",
    plug="An SD card with the PYNQ image, power, Ethernet.",
    processor=Processor(kind="zynq7", device="xc7z020clg400-1", clock_hz=100e6, memory_bytes=512 << 20,
                        memory=behind_ports(16, 1.05e9, 100e6)))
