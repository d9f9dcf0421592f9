# SPDX-License-Identifier: Apache-2.0
"""A board without a host: the processor of its shell boots from the flash, and says what the network answers."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.boards.standalone import project
from weft.boards.standalone.headers import c_string, positions
from weft.cli.main import exit_code
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import ModelMaker
from weft.tb.unit.project.test_pages_run import run_page
from weft.tmodel.host_part import HostPart
from weft.tmodel.network import Network

DIGITS = Path(__file__).parents[2] / "models" / "digits"
IMAGES = 10
MOST_CYCLES = 20_000_000
SECONDS = 1800.0
needs_compiler = pytest.mark.skipif(shutil.which(project.COMPILER) is None, reason="needs gcc-riscv64-unknown-elf")


@pytest.mark.wide
@needs_compiler
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


@pytest.mark.wide
@needs_compiler
def test_the_page_of_boards_without_a_host_runs(tmp_path: Path) -> None:
    pytest.importorskip("litespi", reason="needs the extra standalone: make setup")
    said = run_page("boards/standalone.md", tmp_path, False)
    assert re.search(r"\d{5} bytes for offset 0x200000 of the flash, 10 images", said), said
    assert (tmp_path / "build" / "boot" / "image.bin").stat().st_size > 50_000


@pytest.mark.parametrize(("board", "says"), [
    ("ecpix5", "a board with SDR memory and a flash: ulx3s, colorlight_i9"), ("moon", "name one of them")])
def test_a_board_that_cannot_boot_alone_is_refused(board: str, says: str, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    maker = ModelMaker((1, 2, 4, 4))
    maker.conv("x", 2, 2, (1, 1))
    samples = maker.random.random((2, 2, 4, 4)).astype(np.float32)
    model = compile_model(maker.save(tmp_path / "net.onnx"), Arch.load("tiny"), tmp_path, calibration={"x": samples})
    np.savez(tmp_path / "x.npz", x=samples)
    command = ["board", "standalone", str(model.model_path), "--board", board, "--input", str(tmp_path / "x.npz")]
    assert exit_code([*command, "-o", str(tmp_path / "boot")]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "boot").exists()


def test_a_network_with_work_for_a_host_is_refused(tmp_path: Path) -> None:
    maker = ModelMaker((1, 2, 4, 4))
    maker.conv("x", 2, 2, (1, 1))
    samples = maker.random.random((2, 2, 4, 4)).astype(np.float32)
    report = compile_model(maker.save(tmp_path / "net.onnx"), Arch.load("tiny"), tmp_path, calibration={"x": samples})
    network = Network.load(report.model_path)
    assert project.program_of(network).program
    with pytest.raises(WeftError, match="found 2 programs of the machine and 0 parts of the host"):
        project.program_of(replace(network, parts=network.parts * 2))
    host = object.__new__(HostPart)
    with pytest.raises(WeftError, match="found 1 programs of the machine and 1 parts of the host"):
        project.program_of(replace(network, parts=(*network.parts, host)))
    several = replace(network, arch=network.arch.replace(cores=2, dram_ports="shared"))
    with pytest.raises(WeftError, match="found 2; allowed: 1; way out: compile it for one core"):
        project.program_of(several)


def test_an_element_is_where_the_header_says(tmp_path: Path) -> None:
    """Five channels on lanes of fewer, in the order of the user's array."""
    maker = ModelMaker((1, 2, 3, 2))
    maker.conv("x", 2, 5, (1, 1))
    samples = maker.random.random((2, 2, 3, 2)).astype(np.float32)
    report = compile_model(maker.save(tmp_path / "net.onnx"), Arch.load("tiny"), tmp_path, calibration={"x": samples})
    model = project.program_of(Network.load(report.model_path))
    port, = model.outputs
    vectors = np.random.default_rng(1).integers(-9, 9, (port.size, model.arch.array_size))
    found = vectors.ravel()[positions(model, port.name)]
    expected = model.unpack_output(port.name, vectors).ravel()
    assert np.array_equal(found, np.round(expected * 2.0**(port.point or 0)))


def test_names_are_no_code() -> None:
    assert c_string('a"b\\c??d\né') == '"a.b.c..d.."'
