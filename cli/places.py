# SPDX-License-Identifier: Apache-2.0
"""Placement: which nodes of a network run on the machine and which on the host, and why, as data and as a table."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from weft.support.errors import one_line

if TYPE_CHECKING:
    from weft.compiler.partition import Partition, Place

MOST_ROWS = 40
"""The most rows of a table for people; --json has all."""

NARROWEST, LONGEST_NAME = 60, 32


def places_object(partition: Partition) -> dict[str, Any]:
    """Return ``parts`` (subgraphs) in the order in which they run, and ``places`` in the network's order."""
    parts = [[place for place in partition.places if place.part == number] for number in range(len(partition.parts))]
    return {"machine_share": partition.machine_share, "macs": partition.macs,
            "parts": [{"where": places[0].where, "nodes": len(places), "macs": sum(place.macs for place in places)}
                      for places in parts],
            "places": [dataclasses.asdict(place) for place in partition.places]}


def print_places(partition: Partition) -> None:
    """Print a row for each node of the host, and one for each run of nodes of the machine, then the machine's share.

    Without nodes on the host print only the share."""
    if partition.hosts:
        rows = _rows(partition)
        print_rich(("part", "node", "operator", "where", "why"), rows[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            print(f"and {len(rows) - MOST_ROWS} more rows (--json has every node)")
    print(textwrap.fill(share_text(partition), max(shutil.get_terminal_size((100_000, 24)).columns, NARROWEST)))


def share_text(partition: Partition) -> str:
    """Return the machine's share in words."""
    of = f"{partition.macs:,} multiply-accumulates" if partition.macs else f"{len(partition.places)} nodes"
    return f"on the machine: {100 * partition.machine_share:.1f} % of {of}, in {len(partition.graphs)} part" + (
        "s" if len(partition.graphs) > 1 else "")


def _rows(partition: Partition) -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    rows: list[tuple[str, ...]] = []
    for number in range(len(partition.parts)):
        places = [place for place in partition.places if place.part == number]
        if places[0].why:
            rows += [(str(number + 1), place.node[-LONGEST_NAME:], place.operator, "host", place.why)
                     for place in places]
        else:
            rows.append(_of_machine(number + 1, places))
    return rows


def _of_machine(number: int, places: list[Place]) -> tuple[str, ...]:
    """Return the row of a subgraph of the machine."""
    macs = sum(place.macs for place in places)
    half = LONGEST_NAME // 2
    name = " .. ".join(dict.fromkeys(place.node[-half:] for place in (places[0], places[-1])))
    return str(number), name, f"{len(places)} nodes", "machine", f"{macs:,} MACs"


def print_rich(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table as wide as the terminal; long words are folded."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    # Names are plain text here, not markup, and colours would be control characters.
    Console(width=max(shutil.get_terminal_size().columns, NARROWEST), markup=False, emoji=False, highlight=False,
            color_system=None).print(table)
