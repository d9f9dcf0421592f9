# SPDX-License-Identifier: Apache-2.0
"""The chips that counts are compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A chip's totals.

    ``bram``: blocks of 36 Kbit, for ECP5, Gowin and Nexus blocks of 18 Kbit. ``lut``: for these 4-input tables.
    ``uram``: UltraRAM blocks of 288 Kbit. ``family``: how it is counted; UltraScale+ counts as 7 series."""

    name: str
    lut: int
    ff: int
    dsp: int
    bram: int
    family: str = "xc7"
    uram: int = 0
    large_bram_bytes: int = 0
    """The bytes of large RAM blocks that hold a shell's DRAM windows in place of block RAM."""


PARTS = {
    "XC7A35T": Part("XC7A35T", 20_800, 41_600, 90, 50), "XC7A100T": Part("XC7A100T", 63_400, 126_800, 240, 135),
    "XC7Z020": Part("XC7Z020", 53_200, 106_400, 220, 140),
    "XCZU3EG": Part("XCZU3EG (counted as 7 series)", 70_560, 141_120, 360, 216),
    "XCZU7EV": Part("XCZU7EV (counted as 7 series)", 230_400, 460_800, 1_728, 312, uram=96),
    "XCKU040": Part("XCKU040 (counted as 7 series)", 242_400, 484_800, 1_920, 600),
    "LFE5U-25F": Part("LFE5U-25F", 24_288, 24_288, 28, 56, "ecp5"),
    "LFE5U-45F": Part("LFE5U-45F", 43_848, 43_848, 72, 108, "ecp5"),
    "LFE5U-85F": Part("LFE5U-85F", 83_640, 83_640, 156, 208, "ecp5"),
    "LFE5UM5G-85F": Part("LFE5UM5G-85F", 83_640, 83_640, 156, 208, "ecp5"),
    "LIFCL-40": Part("LIFCL-40", 32_256, 32_256, 56, 84, "nexus", large_bram_bytes=128 << 10),
    "GW2AR-18": Part("GW2AR-18", 20_736, 15_552, 48, 46, "gowin"),
}


def block_rams(counts: dict[str, int], family: str) -> int:
    """Return the block RAMs in the blocks that the part counts."""
    if family == "xc7":
        return counts.get("bram36", 0) + -(-counts.get("bram18", 0) // 2)
    return counts.get("bram18", 0)
