# SPDX-License-Identifier: Apache-2.0
"""Place and route for Lattice's Nexus chips."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.hw.flow.nextpnr import run

NETLIST, READY, ROUTED = "nexus.json", "ready.json", "routed.fasm"
"""The files of yosys' netlist, of the one for nextpnr, and of the routed design, which prjoxide packs."""


@dataclass(frozen=True)
class Chip:
    """A chip as nextpnr is asked for it."""

    device: str


ROUTER = ("--router", "router1")
"""The option of nextpnr that chooses the router. router2 finds no way from the evaluation board's oscillator to its
clock buffer."""
CHIPS = {"LIFCL-40-9BG400C": Chip("LIFCL-40-9BG400C")}


def nextpnr(folder: Path, chip: Chip, options: Sequence[str], tell: Callable[[str], None]) -> dict:
    """Run nextpnr on the netlist ``nexus.json`` and return its report; the routed design is left in ROUTED.

    Raise WeftError if nextpnr stops."""
    netlist = json.loads((folder / NETLIST).read_text())
    open_carries(netlist)
    (folder / READY).write_text(json.dumps(netlist))
    return run(folder, "nexus", ["--device", chip.device, "--json", READY, "--fasm", ROUTED, "--timing-allow-fail",
                                 *ROUTER, *options], tell)


def open_carries(netlist: dict[str, Any]) -> None:
    """Disconnect the carry input of the first cell of each chain.

    yosys leaves it open, and later connects it to the constant 0. nextpnr takes only a carry cell there."""
    for module in netlist["modules"].values():
        cells = module.get("cells", {}).values()
        zeros = {cell["connections"]["Z"][0] for cell in cells if cell["type"] == "VLO"}
        for cell in cells:
            if cell["type"] == "CCU2" and cell["connections"].get("CIN", [None])[0] in zeros:
                del cell["connections"]["CIN"]
