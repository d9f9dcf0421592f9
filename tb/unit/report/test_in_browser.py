# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium: no fault, zooms, selects, legible; hostile names run nothing.

Skipped where the system has no Chromium (Debian: apt-get install chromium).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from weft.cli.main import exit_code
from weft.report.page import plot_library
from weft.tmodel.network import Network

Made = Callable[[Network, Path], Path]
CHROMIUM = shutil.which(os.environ.get("WEFT_CHROMIUM", "chromium"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="skipped: needs Chromium (apt-get install "
                                                                           "chromium)")]
WIDTHS = (1280, 400)
BUSY_MACHINE = 180_000
"""Milliseconds that a machine on which other tests run may take."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(network: Network, hostile: Network, made: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: made(each, tmp_path_factory.mktemp(name)) for name, each in (("plain", network),
                                                                               ("hostile", hostile))}


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, files: dict[str, Path]) -> Iterator[Opened]:
    """Opens a page at a width, ``whole`` with every plot drawn; at the end nothing may have been said on its
    console, and nothing asked of a network."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(name: str = "plain", width: int = WIDTHS[0], *, whole: bool = True) -> Page:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(BUSY_MACHINE)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(files[name].as_uri())
        page.wait_for_selector("body[data-ready=yes]")
        if whole:
            page.evaluate("views.drawAll()")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == [] and not [address for address in asked if address.startswith("http")]


def window(page: Page) -> list[float]:
    """The cycles that the timeline shows."""
    found: list[float] = page.evaluate("document.getElementById('timeline-plot')._fullLayout.xaxis.range.map(Number)")
    return found


def settled(page: Page, what: str) -> None:
    """Waits until ``what`` is so. Not by the page itself: its policy lets no text become a script."""
    until = time.monotonic() + BUSY_MACHINE / 1000
    while not page.evaluate(f"(() => {{ try {{ return {what}; }} catch {{ return false; }} }})()"):
        assert time.monotonic() < until, what
        page.wait_for_timeout(50)


def test_what_is_out_of_sight_is_drawn_when_it_comes_into_view(opened: Opened) -> None:
    page = opened(whole=False)
    assert page.locator("#memory-plot .main-svg").count() == 0
    assert page.evaluate("state.tables.length") == 0 and page.evaluate("state.lines") is None
    tall = page.evaluate("document.documentElement.scrollHeight")
    page.locator("#memory-plot").scroll_into_view_if_needed()
    page.wait_for_selector("#memory-plot .main-svg")
    page.click("#layer-table tbody tr:nth-child(2)")
    page.locator("#timeline-plot").scroll_into_view_if_needed()
    settled(page, "document.getElementById('timeline-plot')._fullLayout.xaxis.range[0] > 0")
    page.evaluate("views.drawAll()")
    assert page.evaluate("document.documentElement.scrollHeight") == pytest.approx(tall, abs=120)


def test_timeline_zooms_to_single_operations_and_back(opened: Opened) -> None:
    page = opened()
    first, last = window(page)
    for _ in range(4):
        page.click("#zoom-in")
    settled(page, f"document.getElementById('timeline-plot')._fullLayout.xaxis.range[1] < {0.55 * last}")
    low, high = window(page)
    assert high - low == pytest.approx((last - first) / 16, rel=0.01)
    assert page.evaluate("document.getElementById('timeline-plot').data[1].type") == "bar"
    page.click("#zoom-all")
    settled(page, f"document.getElementById('timeline-plot')._fullLayout.xaxis.range[1] > {last - 1}")
    assert window(page) == [first, last]


def test_timeline_zooms_by_mouse(opened: Opened) -> None:
    page = opened()
    first, last = window(page)
    page.locator("#timeline-plot").scroll_into_view_if_needed()
    box = page.locator("#timeline-plot .nsewdrag").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    page.mouse.up()
    settled(page, f"document.getElementById('timeline-plot')._fullLayout.xaxis.range[1] < {0.9 * last}")
    assert window(page) == pytest.approx([first + (last - first) / 4, (first + last) / 2], rel=0.05)


def test_pointing_says_the_operation_and_a_click_selects_its_layer(opened: Opened) -> None:
    page = opened()
    page.click("#layer-table tbody tr:nth-child(2)")
    for _ in range(2):
        page.click("#zoom-in")
    box = page.locator("#timeline-plot .nsewdrag").bounding_box()
    assert box is not None
    units = page.evaluate("data.timeline.units")
    row = (units.index("mat_mul") + 0.5) / len(units)
    page.mouse.move(box["x"] + 0.5 * box["width"] - 3, box["y"] + row * box["height"])
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + row * box["height"])
    settled(page, "document.getElementById('operation').textContent.includes('MatMul')")
    said = page.locator("#operation").text_content() or ""
    assert "mat mul, cycles" in said and "layer 2" in said and "reads local" in said and "local=" in said
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + row * box["height"])
    assert (page.locator("#selected-name").text_content() or "").startswith("2 ")


def test_selecting_a_layer_shows_it_everywhere(opened: Opened) -> None:
    page = opened()
    page.locator("#picture .node.machine").nth(2).click()
    page.locator("#timeline-plot").scroll_into_view_if_needed()
    name = page.evaluate("data.layers[2].name")
    assert page.locator("#selected-name").text_content() == f"3 {name}"
    assert page.locator("#picture .chosen").count() == page.locator("#layer-table tr.chosen").count() == 1
    span = page.evaluate("[data.layers[2].begin, data.layers[2].end]")
    settled(page, f"document.getElementById('timeline-plot')._fullLayout.xaxis.range[0] > {span[0] / 2}")
    low, high = window(page)
    assert low <= span[0] < span[1] <= high and high - low < 1.1 * (span[1] - span[0])
    assert page.evaluate("document.getElementById('layers-plot')._fullLayout.shapes.length") == 1
    page.locator("#roof-plot").scroll_into_view_if_needed()
    settled(page, "document.getElementById('roof-plot').data.at(-1).customdata.at(-1) === 2")


@pytest.mark.parametrize("width", WIDTHS)
def test_legible(opened: Opened, width: int) -> None:
    """Nothing is wider than the page, letters are no smaller than 9 pixels, no label of an axis lies on another."""
    page = opened(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("""Math.min(...[...document.querySelectorAll('body *')].filter((each) =>
        [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())
        && !each.closest('script, title')).map((each) => parseFloat(getComputedStyle(each).fontSize)))""") >= 9
    for plot in ("layers-plot", "timeline-plot", "roof-plot", "memory-plot"):
        boxes: list[list[Any]] = page.evaluate("""(plot) => [...document.querySelectorAll(
            `#${plot} .xtick text, #${plot} .ytick text, #${plot} .xtitle, #${plot} .ytitle, #${plot} .y2title, `
            + `#${plot} .y3title, #${plot} .legendtext`)].map((each) => {
                const box = each.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom,
                each.textContent]; })""", plot)
        assert len(boxes) > 5
        for number, (left, top, right, bottom, text) in enumerate(boxes):
            for other in boxes[:number]:
                apart = left >= other[2] - 1 or other[0] >= right - 1 or top >= other[3] - 1 or other[1] >= bottom - 1
                assert apart, (plot, text, other[4])


def test_the_numbers_of_a_narrow_table_stay_beside_their_layer(opened: Opened) -> None:
    page = opened(width=WIDTHS[1])
    layers = "document.getElementById('layer-table').parentElement"
    assert page.evaluate(f"{layers}.scrollWidth") > page.evaluate(f"{layers}.clientWidth")
    page.evaluate(f"{layers}.scrollLeft = 10000")
    left = page.evaluate(f"{layers}.getBoundingClientRect().left")
    for cell in ("thead th", "tbody td"):
        assert page.evaluate(f"document.querySelector('#layer-table {cell}').getBoundingClientRect().left") == left
    page.evaluate("document.getElementById('layer-table').scrollIntoView()")
    assert page.evaluate("""(() => { const cell = document.querySelector('#layer-table thead th');
        const box = cell.getBoundingClientRect();
        return document.elementFromPoint(box.left + 5, box.bottom - 5) === cell; })()""")


@pytest.mark.wide_cases("400")
@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_run_nothing(opened: Opened, width: int) -> None:
    page = opened("hostile", width)
    for number in range(page.locator("#layer-table tbody tr").count()):
        page.locator("#layer-table tbody tr").nth(number).click()
        assert page.locator("#selected-name").text_content() == page.evaluate(
            f"'{number + 1} ' + data.layers[{number}].name")
    assert page.title() != "mine" and page.title().startswith("</script>")
    assert page.locator("body img, body iframe, body object").count() == 0
    assert page.locator("script").count() == 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_is_small(files: dict[str, Path]) -> None:
    assert files["plain"].stat().st_size < len(plot_library()) + 300_000


@pytest.mark.long
def test_a_large_network_s_page_loads_in_time(browser: Browser, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-50 on 16 lanes, up to the first plot. The renderer's own time: a clock would say what else runs."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    from networks import NETWORKS

    model, file = tmp_path / "net.onnx", tmp_path / "page.html"
    NETWORKS["resnet50v2_224"](model)
    assert exit_code(["compile", str(model), "-a", "ultra96", "-o", str(tmp_path), "--html", str(file)]) == 0
    assert file.stat().st_size < 15e6
    page = browser.new_page()
    page.set_default_timeout(BUSY_MACHINE)
    renderer = page.context.new_cdp_session(page)
    renderer.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri())
    page.locator("#layers-plot").scroll_into_view_if_needed()
    page.wait_for_selector("#layers-plot .main-svg")
    took = {each["name"]: each["value"] for each in renderer.send("Performance.getMetrics")["metrics"]}
    assert 0 < took["TaskDuration"] < 3
