"""What is known of a board: data, nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Board:
    """``arch``: the preset made for it. ``part``: its chip as ``hw/flow/synthesis.py`` counts it, with ``speed_grade``
    as the manufacturer writes it. ``clock_hz``: the clock that the machine is meant for, not the oscillator's."""

    name: str
    arch: str
    part: str
    speed_grade: str
    family: str
    """``xc7`` or ``ecp5``: the synthesis flow. UltraScale+ parts are counted as 7 series."""
    clock_hz: float
    platform: str | None = None
    """``module:class`` of amaranth-boards, which knows pins and oscillators; None where it does not have the board."""

    @property
    def chip(self) -> str:
        """Part and speed grade, as place and route asks for them."""
        return f"{self.part}-{self.speed_grade}"
