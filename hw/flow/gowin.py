"""Place and route for Gowin's chips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.hw.flow.nextpnr import run


@dataclass(frozen=True)
class Chip:
    """A part as nextpnr is asked for it. ``family``: what its tables and gowin_pack's are of."""

    device: str
    family: str


CHIPS = {"GW2AR-18-C8/I7": Chip("GW2AR-LV18QN88C8/I7", "GW2A-18C")}
ROUTED = "routed.json"


def nextpnr(folder: Path, chip: Chip, options: Sequence[str], tell: Callable[[str], None]) -> dict:
    """nextpnr's report on the netlist ``gowin.json``; what it routed is left in ROUTED. Raises WeftError."""
    return run(folder, "himbaechel_gowin", [
        "--device", chip.device, "--vopt", f"family={chip.family}", "--json", "gowin.json", "--write", ROUTED,
        "--timing-allow-fail", *options], tell)
