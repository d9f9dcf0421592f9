# SPDX-License-Identifier: Apache-2.0
"""Pictures of the pages as readers see them: the report, the site and the zoo, each wide and narrow.

    python scripts/screenshots.py [--page FILE.html] [--output DIR] [--deuteranopia] [--docs]

Without ``--page``: the report of the demo's network, the site in build/site and the zoo in build/zoo, as far as these
are built. ``--deuteranopia`` shows them as most colour-blind people see them. ``--docs`` writes docs/report.png, of the
page given. Needs Chromium (apt-get install chromium; another name in WEFT_CHROMIUM).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from playwright.sync_api import Browser, Page, sync_playwright

from weft.support.errors import WeftError, explain, run_script

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = (1280, 400)
PAGES = {"zoo": "zoo/zoo.html", "site": "site/index.html", "site_start": "site/start.html",
         "site_how_it_works": "site/how-it-works.html", "site_performance": "site/performance.html"}
"""Name of a picture -> its page below build/."""
IN_DOCS = ("#layers", "#timeline")
"""The parts of a report that docs/report.png shows."""
CHOSEN = 20
"""The layer that is selected in docs/report.png."""
MOST_HEIGHT = 12_000
"""The pixels at which a picture of a longer page ends."""
TIMEOUT_MS, SETTLING_MS = 180_000, 3000
MARGIN = 6


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield Chromium without a window. Raise WeftError if there is none."""
    place = shutil.which(os.environ.get("WEFT_CHROMIUM", "chromium"))
    if place is None:
        raise WeftError(explain("Chromium", "none", "a browser that takes pictures",
                                "sudo apt-get install -y chromium"))
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield started
        started.close()


def opened(started: Browser, path: Path, width: int, *, deuteranopia: bool = False) -> Page:
    """Return the page, with everything drawn that a reader comes to."""
    page = started.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(TIMEOUT_MS)
    if deuteranopia:
        page.context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": "deuteranopia"})
    page.goto(path.resolve().as_uri())
    if page.evaluate("typeof views !== 'undefined'"):
        page.evaluate("views.drawAll()")
    return page


def whole(page: Page, file: Path) -> None:
    """Write a picture of the whole page."""
    height = min(page.evaluate("document.documentElement.scrollHeight"), MOST_HEIGHT)
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": size["width"], "height": height})
    page.screenshot(path=file)


def for_docs(started: Browser, path: Path) -> Path:
    """Write the cycles of each layer and the timeline of one as one picture; return its path."""
    file = ROOT / "docs" / "report.png"
    page = opened(started, path, WIDTHS[0])
    page.set_viewport_size({"width": WIDTHS[0], "height": page.evaluate("document.documentElement.scrollHeight")})
    page.evaluate(f"select(Math.min({CHOSEN}, data.layers.length - 1))")
    page.wait_for_timeout(SETTLING_MS)
    boxes = [box for name in IN_DOCS if (box := page.locator(name).bounding_box())]
    top, bottom = boxes[0]["y"] - MARGIN, boxes[-1]["y"] + boxes[-1]["height"] + MARGIN
    page.screenshot(path=file, clip={"x": 0, "y": top, "width": WIDTHS[0], "height": bottom - top})
    return file


def main(
    page: Annotated[Path | None, typer.Option(help="a report; default: all that is in build/")] = None,
    output: Annotated[Path, typer.Option(help="folder")] = ROOT / "build" / "screenshots",
    deuteranopia: Annotated[bool, typer.Option("--deuteranopia", help="as colour-blind people see them")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="docs/report.png instead, of --page")] = False,
) -> None:
    """Take the pictures."""
    if page is not None and not page.is_file():
        raise WeftError(explain("--page", str(page), "a page of weft report", "weft report FILE.tmodel -o PAGE.html"))
    if docs and page is None:
        raise WeftError(explain("--docs", "no --page", "the page of a network", "add --page PAGE.html"))
    pages = {"report": page} if page else {name: ROOT / "build" / path for name, path in PAGES.items()}
    output.mkdir(parents=True, exist_ok=True)
    with browser() as started:
        if docs and page:
            print(for_docs(started, page))
            return
        for name, path in pages.items():
            for width in WIDTHS if path.is_file() else ():
                file = output / f"{name}_{width}{'_deuteranopia' if deuteranopia else ''}.png"
                whole(opened(started, path, width, deuteranopia=deuteranopia), file)
                print(file)


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
