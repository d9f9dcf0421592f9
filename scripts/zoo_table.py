"""The zoo (``scripts/zoo.py``) as a table in Markdown and as a page of its own."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]

COLUMNS: dict[str, Callable[[Row], object]] = {
    "network": lambda row: row["network"], "machine": lambda row: row["arch"],
    "cycles, estimated": lambda row: _number(row["cycles_estimated"]),
    "cycles in RTL": lambda row: _number(row["cycles_rtl"]),
    "ms": lambda row: f"{row['ms']:.3f}", "of the array": lambda row: f"{row['utilization']:.1%}",
    "SNR of outputs, dB": lambda row: "exact" if row["signal_to_noise"] is None else f"{row['signal_to_noise']:.1f}",
    "LUT": lambda row: _number(row["lut"]),
    "fits its board": lambda row: {True: "yes", False: "no"}.get(row["fits"], ""),
}
"""Column of the tables -> its text."""
STYLE = ("body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem;color:#1a1a1a}table{border-collapse:collapse}"
         "div{overflow-x:auto}th,td{padding:.3rem .7rem;border-bottom:1px solid #ccc;text-align:right}"
         "th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}"
         "ul{overflow-wrap:anywhere;padding-left:1.2rem}")


def columns_of(rows: Sequence[Row]) -> dict[str, Callable[[Row], object]]:
    """Without those that are empty in every row."""
    return {name: text for name, text in COLUMNS.items() if not rows or any(str(text(row)) for row in rows)}


def markdown(rows: Sequence[Row], refused: Iterable[tuple[str, str, str]] = ()) -> str:
    columns = columns_of(rows)
    head = f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"
    lines = [f"| {' | '.join(str(text(row)) for text in columns.values())} |\n" for row in rows]
    left = [f"* {networks} on {machines}: {why}\n" for networks, machines, why in together(refused)]
    return head + "".join(lines) + ("\nNot measured:\n\n" + "".join(left) if left else "")


def page(rows: Sequence[Row], refused: Iterable[tuple[str, str, str]], title: str) -> str:
    """Needs nothing from elsewhere; every name is escaped."""
    def cells(tag: str, texts: Iterable[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(text))}</{tag}>" for text in texts) + "</tr>"

    columns = columns_of(rows)
    body = "".join(cells("td", [text(row) for text in columns.values()]) for row in rows)
    left = "".join(f"<li>{html.escape(f'{networks} on {machines}: {why}')}</li>"
                   for networks, machines, why in together(refused))
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1><div><table>"
            f"{cells('th', columns)}{body}</table></div>{f'<h2>Not measured</h2><ul>{left}</ul>' if left else ''}"
            "</html>\n")


def together(refused: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Networks, machines and why, one for each network and reason."""
    machines: dict[tuple[str, str], list[str]] = {}
    for network, machine, why in refused:
        machines.setdefault((network, why), []).append(machine)
    return [(network, ", ".join(names), why) for (network, why), names in machines.items()]


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
