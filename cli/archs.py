# SPDX-License-Identifier: Apache-2.0
"""The command ``weft archs``."""

from __future__ import annotations

import json
from typing import Any

from weft.boards import board_of, routing
from weft.cli import console
from weft.cli.options import JsonOption
from weft.hw.contract.arch import Arch
from weft.hw.contract.presets import presets

SHOWN = ("data_type", "array_size", "local_depth", "accumulator_depth", "dram0_depth", "lut_count")


def archs_command(as_json: JsonOption = False) -> None:
    """List the presets: machines that -a takes by name."""
    rows = {name: {**{key: getattr(Arch.load(name), key) for key in SHOWN}, **of_board(name)} for name in presets()}
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, "archs": rows}))
    else:
        titles = next(iter(rows.values()))
        console.print_columns([("preset", *titles), *(
            (name, *("" if value is None else str(value) for value in row.values())) for name, row in rows.items())])


def of_board(name: str) -> dict[str, Any]:
    """Return the board that a preset is made for, the clock that its build asks for, what open tools made of it."""
    board = board_of(name)
    return {"board": board and board.key, "mhz": board and board.clock_hz / 1e6,
            "place_and_route": routing(name) or None}
