"""The demo: handwritten digits, from the ONNX file to the generated hardware in simulation. Run it with `make demo`.

Prints what was measured and draws build/demo/digits.png: every digit with what the machine said.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from weft.boards import clock_hz
from weft.cli.console import print_table, progress
from weft.cli.main import need_simulation
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import WeftError
from weft.runtime.errors import Mismatch
from weft.runtime.manifest import TModel
from weft.runtime.session import GOLDEN, RTL, RunResult, Session

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "digits"
COLUMNS = 24
HEADLINE, GAP = 4, 2
"""Pixels over each digit for the answer, and between digits."""
IMAGE_MAX = 16
RIGHT, WRONG = "#1a7f37", "#cf222e"


def main() -> int:
    """Exit code as the command line's: 1 for a mistake, 2 for a mismatch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="pynq", help="a preset or a .tarch file (default: pynq)")
    parser.add_argument("--images", type=int, default=None, help="run only the first so many")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "demo", help="folder (default: build/demo)")
    arguments = parser.parse_args()
    try:
        demo(arguments.arch, arguments.output, arguments.images)
    except WeftError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except Mismatch as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    return 0


def demo(name: str, output: Path, most: int | None) -> None:
    began = time.monotonic()
    need_simulation()
    arch = Arch.load(name)
    held_out = np.load(MODEL / "held_out.npz")
    image, label, logits = (held_out[key][:most] for key in ("image", "label", "logits"))
    title = f"{len(image)} handwritten digits on {Path(name).stem}, {arch.array_size} x {arch.array_size} multipliers"
    with progress() as tell:
        compile_model(MODEL / "digits.onnx", arch, output, name="digits",
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
    """The table's lines."""
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
    right = int(np.sum(np.argmax(values.reshape(len(label), -1), axis=1) == label))
    return f"{100 * right / len(label):.2f} % ({right} of {len(label)})"


def draw(image: np.ndarray, label: np.ndarray, said: np.ndarray, path: Path) -> Path:
    """A sheet of all digits; over each what the machine said, the right answer beside it where that was wrong."""
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
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    sys.exit(main())
