# SPDX-License-Identifier: Apache-2.0
"""The zoo (``scripts/zoo.py``) as a table in Markdown and as a page of its own."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from weft.boards import routing
from weft.compiler.quantize.quality import POOR_DECIBELS

Row = dict[str, Any]

COLUMNS: dict[str, Callable[[Row], object]] = {
    "network": lambda row: row["network"], "machine": lambda row: row["arch"],
    "cycles, estimated": lambda row: _number(row["cycles_estimated"]),
    "cycles in RTL": lambda row: _number(row["cycles_rtl"]),
    "MHz asked": lambda row: f"{row['clock_mhz']:g}", "routed": lambda row: routing(row["arch"]),
    "ms": lambda row: f"{row['ms']:.3f}", "of the array": lambda row: f"{row['utilization']:.1%}",
    "left out": lambda row: f"{1 - row['done_macs'] / row['macs']:.1%}" if row["done_macs"] < row["macs"] else "",
    "SNR of outputs, dB": lambda row: decibels(row["signal_to_noise"]),
    "LUT": lambda row: _number(row["lut"]),
    "fits its board": lambda row: {True: "yes", False: "no"}.get(row["fits"], ""),
}
"""Column of the tables -> the function from a row to its text."""


def decibels(found: float | None) -> str:
    """Return the signal-to-noise ratio of a network's outputs in words."""
    if found is None:
        return "exact"
    return f"{found:.1f}" + (", poor numbers" if found < POOR_DECIBELS else "")


STYLE = ("body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem;color:#1a1a1a}h1{font-size:1.5rem}"
         "table{border-spacing:0}div{overflow-x:auto;"
         "background:linear-gradient(to left,#fff 16px,transparent) right/32px 100% no-repeat local,"
         "linear-gradient(to left,#0003,transparent) right/12px 100% no-repeat}"
         "th,td{padding:.3rem .7rem;border-bottom:1px solid #ccc;text-align:right;vertical-align:bottom}"
         "th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:#fff}"
         "tbody th{padding-top:1.2rem}ul{overflow-wrap:anywhere;padding-left:1.2rem}"
         "@media(max-width:800px){body{margin:.6rem}table{font-size:.8rem}th,td{padding:.2rem .35rem}}")
"""The style of the page.

If the table is wider than the window, a row's first cell stays in sight, and a shadow says that there is more."""


def columns_of(rows: Sequence[Row]) -> dict[str, Callable[[Row], object]]:
    """Return the columns that are not empty in every row."""
    return {name: text for name, text in COLUMNS.items() if not rows or any(str(text(row)) for row in rows)}


def markdown(rows: Sequence[Row], refused: Iterable[tuple[str, str, str]] = ()) -> str:
    """Return the tables in Markdown."""
    columns = columns_of(rows)
    marks = " | ".join("---" if name in ("network", "machine") else "---:" for name in columns)
    head = f"| {' | '.join(columns)} |\n| {marks} |\n"
    lines = [f"| {' | '.join(str(text(row)) for text in columns.values())} |\n" for row in rows]
    left = [f"* {networks} on {machines}: {why}\n" for networks, machines, why in together(refused)]
    unmeasured = f"\nNot measured, for the machine alone does not compute them:\n\n{''.join(left)}" if left else ""
    return head + "".join(lines) + unmeasured


def page(rows: Sequence[Row], refused: Iterable[tuple[str, str, str]], title: str) -> str:
    """Return the page; it needs nothing from elsewhere, and every name is escaped.

    A network's name has a row of its own: a column of names would leave no room for numbers on a narrow screen."""
    def cells(tag: str, texts: Iterable[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(text))}</{tag}>" for text in texts) + "</tr>"

    columns = columns_of(rows)
    del columns["network"]
    body = ""
    for network, each in groupby(rows, COLUMNS["network"]):
        body += f'<tbody><tr><th colspan="{len(columns)}">{html.escape(str(network))}</th></tr>'
        body += "".join(cells("td", [text(row) for text in columns.values()]) for row in each) + "</tbody>"
    left = "".join(f"<li>{html.escape(f'{networks} on {machines}: {why}')}</li>"
                   for networks, machines, why in together(refused))
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1><div><table>"
            f"<thead>{cells('th', columns)}</thead>{body}</table></div>"
            f"{f'<h2>Not measured</h2><ul>{left}</ul>' if left else ''}"
            "</html>\n")


def together(refused: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return networks, machines and reasons, one row for each network and reason."""
    machines: dict[tuple[str, str], list[str]] = {}
    for network, machine, why in refused:
        machines.setdefault((network, why), []).append(machine)
    return [(network, ", ".join(names), why) for (network, why), names in machines.items()]


def _number(value: int | None) -> str:
    """Return a number as text, nothing for None."""
    return "" if value is None else f"{value:,}"
