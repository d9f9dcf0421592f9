"""The clock each preset is meant for: the one place, until a board's own file says it."""

from __future__ import annotations

from pathlib import Path

CLOCK_HZ = {"arty": 150e6, "ecpix5": 90e6, "pynq": 150e6, "ultra96": 300e6, "zcu104": 100e6}
ASSUMED_HZ = 100e6
"""For machines without a board."""


def clock_hz(arch: str | Path) -> float:
    """Of a preset by its name; of any other machine ASSUMED_HZ."""
    return CLOCK_HZ.get(str(arch), ASSUMED_HZ)
