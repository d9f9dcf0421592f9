# SPDX-License-Identifier: Apache-2.0
"""A board without a host: the processor of its shell boots from the flash, and says what the network answers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.boards.standalone import project
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.unit.project.test_pages_run import run_page
from weft.tmodel.network import Network

DIGITS = Path(__file__).parents[2] / "models" / "digits"
IMAGES = 10
MOST_CYCLES = 20_000_000
SECONDS = 1800.0
pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which(project.COMPILER) is None, reason="needs gcc-riscv64-unknown-elf"),
]


def test_ten_digits_without_a_host(tmp_path: Path) -> None:
    """Every class is golden's, and nine of ten are the digit's; the flash holds what the command writes."""
    pytest.importorskip("litespi", reason="needs the extra standalone: make setup")
    pytest.importorskip("pythondata_cpu_vexriscv", reason="needs the extra standalone: make setup")
    from weft.tb.bench.simulated_standalone import build_standalone

    board, folder, sources = BOARDS["ulx3s"], tmp_path / "shell", tmp_path / "sources"
    for each in (folder, sources):
        each.mkdir()
    with np.load(DIGITS / "held_out.npz") as file:
        images, labels, samples = file["image"][:IMAGES], file["label"][:IMAGES], file["calibration"]
    arch = Arch.load(board.arch)
    network = Network.load(compile_model(DIGITS / "digits.onnx", arch, tmp_path / "model",
                                         calibration={"image": samples}).model_path)
    model = project.program_of(network)
    simulated = build_standalone(board.key, arch, folder)
    packed = [{"image": model.pack_input("image", image)} for image in images]
    project.write_sources(model, simulated.soc, packed, sources)
    image = project.make_image(sources).read_bytes()
    first, *said = simulated.run(image, tmp_path / "run", MOST_CYCLES, SECONDS)
    assert first == f"weft: digits on ulx3s, {IMAGES} images"
    found = [re.fullmatch(r"image (\d+): logits (\d+), (\d+) cycles", line) for line in said]
    assert all(found), said
    classes = [int(match[2]) for match in found if match]
    assert [int(match[1]) for match in found if match] == list(range(IMAGES))
    expected = np.asarray(Session(network).run({"image": images}).outputs["logits"]).argmax(1)
    assert classes == expected.tolist() == labels.tolist()


def test_the_page_of_boards_without_a_host_runs(tmp_path: Path) -> None:
    said = run_page("boards/standalone.md", tmp_path, False)
    assert re.search(r"\d{5} bytes for offset 0x200000 of the flash, 10 images", said), said
    assert (tmp_path / "build" / "boot" / "image.bin").stat().st_size > 50_000
