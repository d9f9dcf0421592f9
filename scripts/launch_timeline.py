# SPDX-License-Identifier: Apache-2.0
"""Draw which thread works when while images are launched ahead, and measure the driver's cost for each image.

    python scripts/launch_timeline.py

Writes docs/data/launch.json, from which scripts/docs.py makes the table in docs/driver.md, and docs/launch.svg.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime import Device
from weft.runtime.session import Loaded, Session
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "models" / "digits"
DATA, PICTURE = ROOT / "docs" / "data" / "launch.json", ROOT / "docs" / "launch.svg"
DEVICES, PRESET, IMAGES, SHOWN = ("golden", "sim"), "ulx3s", 24, 4
WARM = 4
"""The images before those that count, during which modules are imported and results cached."""
PHASES = {"pack": "#0072B2", "write": "#56B4E9", "run": "#8c959f", "read": "#E69F00", "unpack": "#D55E00"}
COLORS = {"all": "#dde3ea", **PHASES}
"""Phase -> colour, in the order in which they are drawn."""
NAMES = {"all": "wait"}
LEFT, WIDE, ROW, BAR, TOP = 90, 800, 34, 22, 40


class Span(NamedTuple):
    """A phase of a launch: its seconds by ``time.perf_counter``, and of the thread's CPU.

    Launches run in threads of the driver."""

    thread: int
    phase: str
    begin: float
    end: float
    cpu: float


def timed(spans: list[Span], phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, with a span added for each call."""
    def call(*arguments: Any, **named: Any) -> Any:
        begin, cpu = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            spans.append(Span(threading.get_ident(), phase, begin, time.perf_counter(), time.thread_time() - cpu))
    return call


def watched(device: Device, work: Callable[[], Any]) -> list[Span]:
    """Return the spans of what was done during ``work``; the phase ``all`` is a launch from begin to end."""
    spans: list[Span] = []
    places = [(TModel, "pack_input", "pack"), (Loaded, "_place", "write"), (type(device.backend), "run", "run"),
              (Loaded, "_read", "read"), (TModel, "unpack_output", "unpack"), (Session, "run", "all")]
    with ExitStack() as stack:
        for owner, name, phase in places:
            stack.enter_context(patch.object(owner, name, timed(spans, phase, getattr(owner, name))))
        work()
    return sorted(spans, key=lambda span: span.begin)


def measure(where: str, made: Network, images: np.ndarray) -> tuple[dict[str, float], list[Span]]:
    """Return milliseconds for each image, one at a time, and the spans of some images that were launched ahead.

    The milliseconds are those of the machine's run, and of the driver's CPU by phase."""
    each = [{"image": image[None]} for image in images]
    with Device.open(f"{where}:{PRESET}") as device:
        device.load(made)
        for image in each[:WARM]:
            device.run(image)
        alone = watched(device, lambda: [device.run(image) for image in each[WARM:]])
        ahead = watched(device, lambda: list(device.map(each[:SHOWN])))
    count = len(each) - WARM

    def cpu(phase: str) -> float:
        return 1e3 * sum(span.cpu for span in alone if span.phase == phase) / count

    found = {phase: cpu(phase) for phase in PHASES if phase != "run"} | {
        "run": 1e3 * sum(span.end - span.begin for span in alone if span.phase == "run") / count,
        "driver": cpu("all") - cpu("run")}
    return {phase: round(value, 3) for phase, value in found.items()}, ahead


def picture(spans: dict[str, list[Span]]) -> str:
    """Return the drawing: a row for each thread of each device; each device has a scale of its own."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 20} {TOP + len(spans) * 3 * ROW}" '
             'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="#fff"/>']
    for number, (phase, color) in enumerate(COLORS.items()):
        x = LEFT + 90 * number
        parts.append(f'<rect x="{x}" y="12" width="14" height="14" fill="{color}"/>'
                     f'<text x="{x + 20}" y="24">{NAMES.get(phase, phase)}</text>')
    for number, (where, found) in enumerate(spans.items()):
        y, begin, end = TOP + 3 * ROW * number, found[0].begin, max(span.end for span in found)
        parts.append(f'<text x="8" y="{y + 16}">{where}</text>'
                     f'<text x="{LEFT}" y="{y + 2 * ROW + 14}" fill="#57606a">{1e3 * (end - begin):.1f} ms</text>')
        threads = list(dict.fromkeys(span.thread for span in found))
        for span in sorted(found, key=lambda each: list(COLORS).index(each.phase)):
            left, width = (WIDE * part / (end - begin) for part in (span.begin - begin, span.end - span.begin))
            parts.append(f'<rect x="{LEFT + left:.2f}" y="{y + ROW * threads.index(span.thread)}" '
                         f'width="{max(width, 1):.2f}" height="{BAR}" fill="{COLORS[span.phase]}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Measure the simulated devices, and write data and picture."""
    images = np.load(DIGITS / "held_out.npz")["image"][:IMAGES + WARM].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        report = compile_model(DIGITS / "digits.onnx", Arch.load(PRESET), Path(folder), calibration={"image": images})
        made = Network.load(report.model_path)
        found = {where: measure(where, made, images) for where in DEVICES}
    DATA.write_text(json.dumps({where: times for where, (times, _) in found.items()}, indent=1) + "\n")
    PICTURE.write_text(picture({where: spans for where, (_, spans) in found.items()}))
    print(DATA.read_text())


if __name__ == "__main__":
    main()
