# SPDX-License-Identifier: Apache-2.0
"""The page's own script without a browser: the functions that the timeline is drawn from, in the node that playwright
brings, against the same in Python."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from functools import cache
from typing import Any

import numpy as np
from playwright._impl._driver import compute_driver_executable

from weft.hw.contract.units import UNIT_NAMES
from weft.report.columns import packed
from weft.report.operations import Ran
from weft.report.page import FOLDER, SCRIPTS

HARNESS = ("\nconst given = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
           "console.log(JSON.stringify((() => { %s })()));")


@cache
def node() -> str:
    return str(compute_driver_executable()[0])


def result(code: str, given: object = None, files: tuple[str, ...] = ("numbers.js", "timeline.js")) -> Any:
    """What ``code`` returns behind the page's functions; it finds ``given``."""
    script = "\n".join((FOLDER / name).read_text() for name in files) + HARNESS % code
    done = subprocess.run([node(), "-e", script], input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_every_script_is_read_without_a_fault() -> None:
    for name in SCRIPTS:
        subprocess.run([node(), "--check", str(FOLDER / name)], check=True)


def tables(ran: Ran) -> dict[str, Any]:
    meaning, columns = packed([ran])
    values = np.frombuffer(gzip.decompress(base64.b64decode(columns["columns"])), "<i4")
    return {"meaning": meaning, "packed": values.tolist()}


TABLES = "const tables = unitTables(Int32Array.from(given.packed), given.meaning);"


def test_shares_are_how_long_a_unit_works(ran: Ran) -> None:
    first, last, bins = 100, 1500, 70
    found = result(f"{TABLES} return tables.map((table) => busyShares(table, {first}, {last}, {bins}));", tables(ran))
    begins, ends = ran.spans
    step = (last - first) / bins
    for name, shares in zip(tables(ran)["meaning"]["units"], found, strict=True):
        mine = ran.operations["unit"] == UNIT_NAMES.index(name)
        for number, share in enumerate(shares):
            low, high = first + number * step, first + (number + 1) * step
            busy = np.clip(np.minimum(ends[mine], high) - np.maximum(begins[mine], low), 0, None).sum()
            assert abs(share - busy / step) < 1e-9, (name, number)


def test_operation_under_the_pointer(ran: Ran) -> None:
    """Of every cycle of every unit: the one that runs, or the next within reach."""
    found = result(f"""{TABLES} return tables.map((table) => Array.from({{ length: 300 }},
        (_, step) => operationAt(table, 7 * step + 0.5, 20)));""", tables(ran))
    begins, ends = ran.spans
    for name, indices in zip(tables(ran)["meaning"]["units"], found, strict=True):
        mine = ran.operations["unit"] == UNIT_NAMES.index(name)
        spans = sorted(zip(begins[mine].tolist(), ends[mine].tolist(), strict=True))
        for step, index in enumerate(indices):
            cycle = 7 * step + 0.5
            expected = next((place for place, (begin, end) in enumerate(spans) if cycle < end and begin <= cycle + 20),
                            -1)
            assert index == expected, (name, cycle)


def test_layers_of_operations_are_kept(ran: Ran) -> None:
    busy = result(f"{TABLES} return tables.map((table) => ofLayer(table, 2).busy.at(-1));", tables(ran))
    begins, ends = ran.spans
    assert sum(busy) == (ends - begins)[ran.layers == 2].sum() > 0


def test_window_stays_inside() -> None:
    windows = [[-5, 50], [90, 130], [40, 41], [-1e9, 1e9]]
    assert result("return given.map(([from, to]) => clamped(from, to, 100));", windows) == [
        [0, 55], [60, 100], [35.5, 45.5], [0, 100]]


def test_numbers_read_well() -> None:
    code = ("return [count(1234567), percent(0.123), bytes(1536), duration(150, 1e8), significant(-0.000123456), "
            "count(null)];")
    assert result(code) == ["1,234,567", "12.3 %", "1.5 KB", "1.5 µs", "-0.0001235", "–"]


def test_points_and_scales_read_well() -> None:
    assert result("return given.map(held);", [{"point": 7, "scale": None}, {"point": None, "scale": [0.0123456, -128]},
                                              {"point": None, "scale": None}]) == ["7", "0.01235, -128", "–"]


def test_names_are_no_markup_for_the_plot_library() -> None:
    assert result("return plain(given);", '<a href="x">&lt;b>') == '&lt;a href="x"&gt;&amp;lt;b&gt;'
