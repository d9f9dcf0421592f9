# SPDX-License-Identifier: Apache-2.0
"""One page of HTML that needs no network: data, plot library, script and style are inside it.

Its content policy lets nothing run but the scripts whose checksums it names, and loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.report.collect import Machine, Rows, page_data
from weft.report.columns import packed
from weft.report.operations import Ran
from weft.report.texts import in_html, script_json
from weft.tmodel.network import Network

FOLDER = Path(__file__).with_name("page")
LIBRARY = Path(__file__).with_name("library") / "plotly-cartesian.min.js"
SCRIPTS = ("numbers.js", "timeline.js", "plots.js", "picture.js", "views.js", "page.js")
"""The scripts in the order in which they run; each uses only those before it."""


def page(network: Network, machine: Machine, programs: Sequence[tuple[Ran, Rows]], totals: dict[str, Any]) -> str:
    """Return the whole page; for arguments see :func:`weft.report.collect.page_data`."""
    meaning, columns = packed([ran for ran, _ in programs])
    data = {**page_data(network, machine, programs, totals), "timeline": meaning}
    scripts = [plot_library(), "\n".join((FOLDER / name).read_text() for name in SCRIPTS)]
    parts = {
        "TITLE": in_html(network.name), "STYLE": (FOLDER / "page.css").read_text(),
        "HASHES": " ".join(map(_checksum, scripts)), "DATA": script_json(data),
        "COLUMNS": columns["columns"], "TEXTS": columns["texts"],
        "LIBRARY": scripts[0], "SCRIPT": scripts[1],
    }
    return _filled((FOLDER / "page.html").read_text(), parts)


def _filled(template: str, parts: dict[str, str]) -> str:
    """Return a template with each ``@NAME@`` replaced once, from left to right; inserted text is not searched."""
    found = []
    for number, piece in enumerate(template.split("@")):
        found.append(parts[piece] if number % 2 else piece)
    return "".join(found)


def _checksum(script: str) -> str:
    """Return a script's checksum as a content policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def plot_library() -> str:
    """Return the part of plotly.js that draws charts with axes."""
    return LIBRARY.read_text()
