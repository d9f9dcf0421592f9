# SPDX-License-Identifier: Apache-2.0
"""The description of a board: data, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, DramModel, LiteDram, Spread

VIVADO, OPENXC7 = "vivado", "openxc7"
TOOLCHAINS = {"ecp5": ("trellis",), "gowin": ("apicula",), "nexus": ("oxide",), "xc7": (VIVADO, OPENXC7)}
"""Family -> the toolchains for it, by LiteX's names; the first is what a build takes if none is asked for."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A DRAM chip as LiteDRAM knows it. ``phy`` and ``module``: classes of ``litedram.phy`` and ``litedram.modules``.

    ``rate``: the machine's clock to the chip's; ``phases``: commands that the PHY takes in one clock of the machine."""

    kind: str
    """The kind of memory: ``SDR`` or ``DDR3``."""
    phy: str
    module: str
    rate: str
    phases: int
    dram: LiteDram | None = None
    """The chip's timing in cycles, at the clock of the shell; None: estimates do not know it."""


@dataclass(frozen=True, kw_only=True)
class OnChip:
    """The chip's own block RAM in place of DRAM. Each window of DRAM is as large as the machine's."""

    program_bytes: int
    kind: str = "on-chip"


@dataclass(frozen=True, kw_only=True)
class Flash:
    """The board's SPI flash. ``module``: a class of ``litespi.modules``."""

    module: str
    image_offset: int = 2 << 20
    """The place of a boot image in bytes, behind the bitstream."""


@dataclass(frozen=True, kw_only=True)
class Shell:
    """The shell around the machine on a board: clocks, memory, links. Names are LiteX's, which knows the pins.

    ``platform`` and ``clocks`` are ``module:class``. ``clock_hz``: asked of place and route, missed clocks are
    errors."""

    platform: str
    clocks: str
    clock_hz: float
    memory: Memory | OnChip
    platform_options: Mapping[str, str] = field(default_factory=dict)
    clock_options: Mapping[str, object] = field(default_factory=dict)
    baud: int = 3_000_000
    ethernet: str | None = None
    """``module:class`` of the Ethernet PHY, None without Etherbone beside the UART."""
    ethernet_options: Mapping[str, object] = field(default_factory=dict)
    flash: Flash | None = None
    """The flash that a machine without a host boots from; None if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The processors beside the logic of a Zynq, which drive the machine. ``kind``: of ``boards/vivado/zynq.py``.

    ``device``: the chip as Vivado names it. ``clock_hz``: asked of place and route."""

    kind: str
    device: str
    clock_hz: float
    memory_bytes: int
    """The bytes of the DRAM that the logic's ports reach from address 0."""
    memory: Spread
    """The processors' memory behind the logic's ports, in cycles of ``clock_hz``."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board and its presets.

    ``key``: its name on the command line, in the register BOARD, and of its file. ``arch``: the preset made for it;
    ``others``: presets made for the same chip. ``part``: its chip as ``hw/flow/synthesis.py`` counts it, with
    ``speed_grade`` as the manufacturer writes it. ``target_hz``: a clock that the machine is aimed at, if its build
    does not ask for it yet; no time is reported at it. ``routed``: preset -> the clock that open tools reached for it
    beside the shell, None if they end without one; presets that are not there were not tried."""

    key: str
    name: str
    arch: str
    part: str
    speed_grade: str
    family: str
    """The synthesis flow: ``xc7``, ``ecp5``, ``gowin`` or ``nexus``. UltraScale+ parts are counted as 7 series."""
    plug: str
    """A sentence that says what to plug in."""
    platform: str | None = None
    """``module:class`` of amaranth-boards, which knows pins and oscillators; None if it lacks the board."""
    shell: Shell | None = None
    """The shell around the machine on boards without a processor."""
    processor: Processor | None = None
    others: tuple[str, ...] = ()
    uart_alone: tuple[str, ...] = ()
    """Presets that are built without the board's Ethernet, beside which they miss their clock or were not tried."""
    target_hz: float | None = None
    routed: Mapping[str, float | None] = field(default_factory=dict)
    flash_name: str | None = None
    """The board in openFPGALoader's list."""
    flash_variants: Mapping[str, str] = field(default_factory=dict)
    """Revisions with another cable, by what is printed on them -> name in openFPGALoader's list."""

    xray: str | None = None
    """The chip as Project X-Ray names it, for openXC7; None if it does not know the chip."""

    @property
    def toolchains(self) -> tuple[str, ...]:
        """The toolchains that make its bitstream, the usual one first."""
        return tuple(name for name in TOOLCHAINS[self.family] if name != OPENXC7 or self.xray)

    @property
    def clock_hz(self) -> float:
        """The machine's clock: the one that the board's build asks of place and route."""
        asked = self.shell or self.processor
        assert asked is not None, "every board has one of them"
        return asked.clock_hz

    def has_ethernet(self, arch: Arch) -> bool:
        """Return whether the shell around a machine has Ethernet."""
        has = self.shell is not None and self.shell.ethernet is not None
        return has and arch not in map(Arch.load, self.uart_alone)

    @property
    def chip(self) -> str:
        """Part and speed grade, as place and route asks for them."""
        return f"{self.part}-{self.speed_grade}"

    @property
    def dram(self) -> DramModel:
        """The memory behind the machine's DRAM ports if it is known; else the memory that is expected anywhere.

        Of a ``spread`` it is the typical one."""
        if self.spread:
            return self.spread.typical
        memory = self.shell.memory if self.shell else None
        return memory.dram or EXPECTED if isinstance(memory, Memory) else EXPECTED

    @property
    def spread(self) -> Spread | None:
        """The cases of a memory that is not known to the cycle; None for any other."""
        return self.processor.memory if self.processor else None

    @property
    def built(self) -> str:
        """The result of ``weft board build`` for it."""
        return "Vivado project" if self.family == "xc7" else "bitstream"
