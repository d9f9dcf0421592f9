# SPDX-License-Identifier: Apache-2.0
"""Write the generated parts of docs/: tables between markers, pages of the blocks, pages of the boards.

    python scripts/docs.py [--check] [--measured]

A table stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; ``TABLES`` has the function that makes it.
``--check`` writes nothing and ends with exit code 1 if a page is not current. ``--measured`` first takes over what the
benchmarks left. build/bench/ goes into docs/data/bench.json, with the commit that was measured. The reports of
bitstreams in build/boards/ go into docs/data/boards.json, and the zoo in build/zoo/ into docs/data/zoo.json."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import bins_table
import block_pages
import board_pages
import contract_tables
import coverage_table
import measured_tables
import schedule_tables
import typer
import units_picture
import verilog_coverage
import zoo_docs

from weft.support.errors import WeftError, explain, run_script

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARKED = re.compile(r"<!-- generated: ([a-z_]+) -->\n(.*?)<!-- end -->", re.S)
TABLES: dict[str, Callable[[], str]] = {**contract_tables.TABLES, **measured_tables.TABLES, **zoo_docs.TABLES,
                                       **schedule_tables.TABLES, **coverage_table.TABLES,
                                       **verilog_coverage.TABLES, **bins_table.TABLES}


def filled(text: str) -> str:
    """Return a page with every table between markers made anew."""
    return MARKED.sub(lambda found: f"<!-- generated: {found[1]} -->\n{TABLES[found[1]]()}<!-- end -->", text)


def pages() -> dict[Path, str]:
    """Return path -> text of every page that is generated, or holds a table that is."""
    marked = {path: filled(path.read_text()) for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
              if MARKED.search(path.read_text())}
    return {**marked, **block_pages.pages(), units_picture.FILE: units_picture.text(), **board_pages.pages()}


def main(
    check: Annotated[bool, typer.Option("--check", help="say which page is not current, write nothing")] = False,
    measured: Annotated[bool, typer.Option("--measured", help="take over what the benchmarks measured")] = False,
) -> None:
    """Write the generated pages and tables."""
    if measured:
        others = board_pages.take_over() + zoo_docs.take_over()
        if measured_tables.BENCH.is_dir() or not others:
            measured_tables.take_over()
    old = [(path, text) for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if check and old:
        raise WeftError(explain("docs", f"{', '.join(str(path.relative_to(ROOT)) for path, _ in old)}, not current",
                                "what scripts/docs.py writes", "run make docs"))
    for path, text in old:
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").replace(path)
        print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
