# SPDX-License-Identifier: Apache-2.0
"""Avnet Ultra96-V2: a Zynq UltraScale+ with 2 GB of LPDDR4."""

from weft.boards.board import Board, Processor
from weft.boards.processor_memory import behind_ports

BOARD = Board(
    key="ultra96_v2", name="Avnet Ultra96-V2", arch="ultra96",
    others=("ultra96_int8", "ultra96_int8_taps9", "ultra96_taps9"),
    part="XCZU3EG", speed_grade="1", family="xc7",
    target_hz=300e6,
    plug="An SD card with the PYNQ image, power, USB (its network) or WLAN.",
    processor=Processor(kind="zynqmp", device="xczu3eg-sbva484-1-i", clock_hz=100e6, memory_bytes=2 << 30,
                        memory=behind_ports(32, 2.133e9, 100e6)))
