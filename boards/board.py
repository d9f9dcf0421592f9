"""What is known of a board: data, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A DRAM chip as LiteDRAM knows it. ``phy`` and ``module``: classes of ``litedram.phy`` and ``litedram.modules``.
    ``rate``: the machine's clock to the chip's, and ``phases``: commands that the PHY takes in one clock of the
    machine."""

    kind: str
    """``SDR`` or ``DDR3``."""
    phy: str
    module: str
    rate: str
    phases: int


@dataclass(frozen=True, kw_only=True)
class Shell:
    """What surrounds the machine on a board: clocks, memory, links. Names are LiteX's; it knows the pins.

    ``platform`` and ``clocks`` are ``module:class``. ``clock_hz``: asked of place and route, missed clocks are errors.
    """

    platform: str
    clocks: str
    clock_hz: float
    memory: Memory
    platform_options: Mapping[str, str] = field(default_factory=dict)
    clock_options: Mapping[str, object] = field(default_factory=dict)
    baud: int = 3_000_000
    ethernet: str | None = None
    """``module:class`` of the Ethernet PHY, where Etherbone can be had beside the UART."""


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
    shell: Shell | None = None
    """None: no bitstream of ours yet."""
    flash_name: str | None = None
    """The board in openFPGALoader's list."""

    @property
    def chip(self) -> str:
        """Part and speed grade, as place and route asks for them."""
        return f"{self.part}-{self.speed_grade}"
