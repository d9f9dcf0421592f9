# SPDX-License-Identifier: Apache-2.0
"""Draw docs/units.svg from the table of units that the hardware is built from.

A row for each unit says what memories it reads and which it writes."""

from __future__ import annotations

from pathlib import Path

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SEPARATE
from weft.hw.contract.units import UNITS, Memory, unit_names

FILE = Path(__file__).parents[1] / "docs" / "units.svg"
COLUMNS = {Memory.DRAM1: "DRAM1", Memory.DRAM0: "DRAM0", Memory.LOCAL: "local memory",
           Memory.ACCUMULATORS: "accumulators"}
LEFT, TOP, WIDE, HIGH = 150, 58, 130, 34
READS, WRITES = "#0072B2", "#D55E00"


def text() -> str:
    """Return the drawing, of a machine with a port for each DRAM."""
    units = [name for name in unit_names(Arch.load("pynq").replace(dram_ports=SEPARATE)) if name in UNITS]
    height = TOP + HIGH * len(units) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE * len(COLUMNS)} {height}" '
             'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="#fff"/>']
    for column, name in enumerate(COLUMNS.values()):
        x = LEFT + WIDE * column + WIDE // 2
        parts += [f'<rect x="{x - 56}" y="12" width="112" height="26" rx="5" fill="#57606a"/>',
                  f'<text x="{x}" y="30" fill="#fff" text-anchor="middle">{name}</text>',
                  f'<path d="M {x} 38 V {TOP + HIGH * len(units) - 8}" stroke="#d0d7de" stroke-width="2"/>']
    for row, unit in enumerate(units):
        parts += _unit(unit, TOP + HIGH * row + HIGH // 2)
    y = height - 10
    parts += [_dot(LEFT, y - 4), f'<text x="{LEFT + 12}" y="{y}">reads</text>', _arrow(LEFT + 76, y - 4),
              f'<text x="{LEFT + 90}" y="{y}">writes</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def _unit(unit: str, y: int) -> list[str]:
    """Return a line between all memories of a unit; both marks side by side if it reads and writes the same one."""
    places = {(LEFT + WIDE * list(COLUMNS).index(access.memory) + WIDE // 2, access.writes)
              for access in UNITS[unit].accesses}
    ends = sorted(x for x, _ in places)
    marks = [_arrow(x + 12, y) if writes and (x, False) in places else _arrow(x, y) if writes else _dot(x, y)
             for x, writes in sorted(places)]
    return [f'<text x="12" y="{y + 4}">{unit.replace("_", " ")}</text>',
            f'<path d="M {ends[0]} {y} H {ends[-1]}" stroke="#1b1f24" stroke-width="1.5"/>', *marks]


def _dot(x: int, y: int) -> str:
    """Return the mark of a memory that is read."""
    return f'<circle cx="{x}" cy="{y}" r="6" fill="#fff" stroke="{READS}" stroke-width="3"/>'


def _arrow(x: int, y: int) -> str:
    """Return the mark of a memory that is written."""
    return f'<path d="M {x} {y - 8} l 8 8 l -8 8 l -8 -8 z" fill="{WRITES}"/>'
