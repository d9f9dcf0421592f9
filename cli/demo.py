# SPDX-License-Identifier: Apache-2.0
"""The command ``weft demo``: handwritten digits, from the ONNX file to the generated hardware in simulation.

It prints what was measured and draws digits.png: every digit with the machine's answer."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from weft.boards import clock_hz
from weft.cli.console import print_table, progress
from weft.cli.front_plot import PICTURE
from weft.cli.options import FolderOption, make_folder, need_simulation
from weft.cli.outputs import Output, check_outputs
from weft.hw.contract.arch import Arch
from weft.support.outputs import replacing
from weft.support.packages import need_package

if TYPE_CHECKING:
    from weft.runtime.session import RunResult

COLUMNS = 24
HEADLINE, GAP = 4, 2
"""Pixels over each digit for the answer, and between digits."""
IMAGE_MAX = 16
RIGHT, WRONG = "#1a7f37", "#cf222e"


def demo_command(
    arch: Annotated[str, typer.Option("-a", "--arch", metavar="ARCH", help="A preset's name or a .tarch "
                                      "file.")] = "pynq",
    images: Annotated[int | None, typer.Option("--images", min=1, metavar="COUNT", help="At most the first so many "
                                               "images; default: all 360.", show_default=False)] = None,
    output: FolderOption = Path("build/demo"),
) -> None:
    """Run handwritten digits, from an ONNX file to the simulated hardware: accuracy, speed, and a picture of them."""
    demo(arch, output, images)


def demo(name: str, output: Path, most: int | None) -> None:
    """Run the demo on a machine. Raise WeftError, and Mismatch if RTL and golden machine differ."""
    from weft.compiler.pipeline import compile_model
    from weft.runtime.session import GOLDEN, RTL, Session
    from weft.tmodel.manifest import TModel

    check_outputs({"--arch": name}, [Output("--folder", output / "digits.png", PICTURE)])
    began = time.monotonic()
    arch = Arch.load(name)
    need_simulation()
    need_package("picture", "matplotlib", "sim")
    make_folder(output)
    shipped = resources.files("weft.models") / "digits"
    with resources.as_file(shipped / "held_out.npz") as file:
        held_out = dict(np.load(file))
    image, label, logits = (held_out[key][:most] for key in ("image", "label", "logits"))
    title = f"{len(image)} handwritten digits on {Path(name).stem}, {arch.array_size} x {arch.array_size} multipliers"
    with progress() as tell, resources.as_file(shipped / "digits.onnx") as model:
        compile_model(model, arch, output, name="digits",
                      calibration={"image": held_out["calibration"]}, progress=lambda step: tell(step, 0, 0))
        session = Session(TModel.load(output / "digits.tmodel"))
        golden = session.run({"image": image}, on=GOLDEN, progress=tell)
        rtl = session.run({"image": image}, on=RTL, progress=tell)
    said = np.argmax(rtl.outputs["logits"].reshape(len(image), -1), axis=1)
    print_table(title, rows(name, label, logits, golden, rtl))
    picture = draw(image, label, said, output / "digits.png")
    print(f"{picture}: every digit with what the machine said ({np.sum(said != label)} wrong)")
    print(f"{time.monotonic() - began:.0f} s in all")
    assert rtl.comparison
    rtl.comparison.insist()


def rows(name: str, label: np.ndarray, logits: np.ndarray, golden: RunResult, rtl: RunResult) -> dict[str, str]:
    """Return the lines of the demo's table."""
    assert rtl.comparison and rtl.cycles
    cycles, clock = rtl.cycles / rtl.images, clock_hz(name)
    answers = {"float (onnxruntime)": logits, "golden machine": golden.outputs["logits"], "RTL": rtl.outputs["logits"]}
    table = {f"accuracy, {who}": accuracy(values, label) for who, values in answers.items()}
    return table | {
        "RTL equals golden": f"{rtl.comparison.equal} of {rtl.comparison.words} words",
        "cycles an image": f"{cycles:.0f}",
        "utilization": f"{100 * (rtl.utilization or 0):.1f} % of the array's multipliers",
        "frames per second": f"{clock / cycles:.0f} at {clock / 1e6:.0f} MHz",
        "simulation": f"{rtl.seconds:.0f} s, {rtl.cycles / max(rtl.seconds, 1e-9) / 1e3:.0f} thousand cycles a second",
    }


def accuracy(values: np.ndarray, label: np.ndarray) -> str:
    """Return the share of right answers as text."""
    right = int(np.sum(np.argmax(values.reshape(len(label), -1), axis=1) == label))
    return f"{100 * right / len(label):.2f} % ({right} of {len(label)})"


def draw(image: np.ndarray, label: np.ndarray, said: np.ndarray, path: Path) -> Path:
    """Draw all digits on a sheet; over each the machine's answer, with the right one beside a wrong answer."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    height, width = image.shape[-2:]
    lines, row, column = -(-len(image) // COLUMNS), height + HEADLINE, width + GAP
    sheet = np.zeros((lines * row, COLUMNS * column))
    figure = pyplot.figure(figsize=(COLUMNS * 0.5, lines * 0.65))
    axis = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axis.set_axis_off()
    for index, (wanted, got) in enumerate(zip(label, said, strict=True)):
        y, x = index // COLUMNS * row + HEADLINE, index % COLUMNS * column
        sheet[y:y + height, x:x + width] = image[index].reshape(height, width)
        text, color = (str(got), RIGHT) if wanted == got else (f"{got} (is {wanted})", WRONG)
        axis.text(x + width / 2 - 0.5, y - 1, text, color=color, ha="center", va="bottom", fontsize=9)
    axis.imshow(sheet, cmap="gray_r", vmin=0, vmax=IMAGE_MAX)
    with replacing(path, PICTURE) as file:
        figure.savefig(file, dpi=110, format="png")
    pyplot.close(figure)
    return path
