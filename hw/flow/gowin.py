# SPDX-License-Identifier: Apache-2.0
"""Place and route for Gowin's chips."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.hw.flow.nextpnr import run
from weft.support.errors import WeftError, explain


@dataclass(frozen=True)
class Chip:
    """A chip as nextpnr is asked for it.

    ``family``: that of its tables, and of gowin_pack's. ``places``: its look-up tables, each with a flip-flop or a
    carry."""

    device: str
    family: str
    places: int


CHIPS = {"GW2AR-18-C8/I7": Chip("GW2AR-LV18QN88C8/I7", "GW2A-18C", 20_736)}
ROUTED = "routed.json"
MOST_PLACES = 0.87
"""The share of a chip's places above which nextpnr looks for free ones for a very long time.

83 % take it minutes; at 90 % it was still at it after ten."""
MEMORY_PLACES = 8
"""The places that a memory of 16 words of 4 bits takes in look-up tables."""


def nextpnr(folder: Path, chip: Chip, options: Sequence[str], tell: Callable[[str], None]) -> dict:
    """Run nextpnr on the netlist ``gowin.json`` and return its report; the routed design is left in ROUTED.

    Raise WeftError if the netlist takes too many places or nextpnr stops."""
    check_places(json.loads((folder / "gowin.json").read_text()), chip)
    return run(folder, "himbaechel_gowin", [
        "--device", chip.device, "--vopt", f"family={chip.family}", "--json", "gowin.json", "--write", ROUTED,
        "--timing-allow-fail", *options], tell)


def check_places(netlist: Mapping[str, Any], chip: Chip) -> None:
    """Raise WeftError for a netlist that takes more of the chip's places than nextpnr can find."""
    needed, allowed = places(netlist), int(MOST_PLACES * chip.places)
    if needed > allowed:
        raise WeftError(explain(
            f"places of look-up tables on {chip.device}", f"{needed} needed",
            f"{allowed} of its {chip.places}, that nextpnr finds them",
            "choose a smaller machine: --set local_banks=1, accumulator_banks=1, fewer SIMD registers, no loop"))


def places(netlist: Mapping[str, Any]) -> int:
    """Return the places that a netlist of yosys takes at least: one for each look-up table, carry and flip-flop.

    A flip-flop shares the place of the look-up table before it only if nothing else reads that table."""
    found = 0
    for module in netlist["modules"].values():
        if not int(module.get("attributes", {}).get("blackbox", "0"), 2):
            found += _places_of(module)
    return found


def _places_of(module: Mapping[str, Any]) -> int:
    """Return the places that the cells of one module take."""
    cells = module["cells"].values()
    readers = Counter(bit for cell in cells for port, bits in cell["connections"].items()
                      if cell["port_directions"][port] == "input" for bit in bits)
    readers.update(bit for port in module["ports"].values() if port["direction"] == "output" for bit in port["bits"])
    kinds = Counter(_kind(cell["type"]) for cell in cells)
    of_tables = {cell["connections"]["F"][0] for cell in cells if _kind(cell["type"]) == "LUT"}
    behind = sum(_kind(cell["type"]) == "DFF" and cell["connections"]["D"][0] in of_tables
                 and readers[cell["connections"]["D"][0]] == 1 for cell in cells)
    return kinds["LUT"] + kinds["ALU"] + kinds["DFF"] - behind + MEMORY_PLACES * kinds["RAM16"]


def _kind(cell: str) -> str:
    """Return the kind of a cell that takes places, or nothing for other cells."""
    return next((kind for kind in ("LUT", "ALU", "DFF", "RAM16") if cell.startswith(kind)), "")
