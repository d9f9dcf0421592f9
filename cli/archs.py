"""``weft archs``."""

from __future__ import annotations

import json

from weft.cli import console
from weft.cli.options import JsonOption
from weft.hw.contract.arch import Arch, presets

SHOWN = ("data_type", "array_size", "local_depth", "accumulator_depth", "dram0_depth", "lut_count")


def archs_command(as_json: JsonOption = False) -> None:
    """List the presets: machines that -a takes by name."""
    rows = {name: {key: getattr(Arch.load(name), key) for key in SHOWN} for name in presets()}
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, "archs": rows}))
    else:
        console.print_columns([("preset", *SHOWN), *((name, *map(str, row.values())) for name, row in rows.items())])
