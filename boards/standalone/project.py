# SPDX-License-Identifier: Apache-2.0
"""Write a boot image: what is flashed behind a bitstream of ``boards/shell/standalone.py``, and its sources."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.boards.board import Board, Memory
from weft.boards.driver import SOURCES as DRIVER
from weft.boards.shell import bitstream
from weft.boards.shell.delivery import READY, building, deliver
from weft.boards.standalone.headers import linker_memories, network_header, soc_header
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.flow.reports import c_header
from weft.runtime.driver.memory_map import MemoryMap, Region, place
from weft.runtime.driver.needs import needs_of
from weft.runtime.programs import preload
from weft.support.errors import WeftError, explain
from weft.support.packages import need_package
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

FIRMWARE = Path(__file__).parent / "firmware"
"""The folder of the firmware's sources."""
IMAGE = "image.bin"
"""The boot image."""
COMPILER = "riscv64-unknown-elf-gcc"
"""The cross compiler, of Debian's package gcc-riscv64-unknown-elf."""
PACKAGES = {"litex": ("the shell", "bitstream"), "litespi": ("the flash", "standalone"),
            "pythondata_cpu_vexriscv": ("the processor", "standalone")}
"""Python package -> what for, and the extra that brings it."""
MOST_ELEMENTS = 1 << 16
"""The most elements of an output, each of which has an entry in the boot image."""


def check_board(board: Board) -> None:
    """Raise WeftError if a board cannot boot without a host."""
    memory = board.shell.memory if board.shell else None
    if board.shell is None or board.shell.flash is None or not isinstance(memory, Memory) or memory.kind != "SDR":
        raise WeftError(explain(f"standalone on board {board.key}", "no SPI flash that is known, or memory that needs "
                                "leveling", "a board with SDR memory and a flash: ulx3s, colorlight_i9",
                                "name one of them, or drive the board from a host: weft run MODEL --on serial:auto"))


def check_tools() -> None:
    """Raise WeftError if the cross compiler or a package is missing."""
    for package, (purpose, extra) in PACKAGES.items():
        need_package(purpose, package, extra)
    for tool in (COMPILER, "make"):
        if shutil.which(tool) is None:
            raise WeftError(explain("firmware", f"a system without {tool}", "a cross compiler for RISC-V, and make",
                                    "sudo apt-get install -y gcc-riscv64-unknown-elf make"))


def program_of(network: Network) -> TModel:
    """Return the one program that a network is. Raise WeftError if it has work for a host, or for several cores."""
    parts = [f"{len(network.machines)} programs of the machine", f"{len(network.hosts)} parts of the host"]
    if len(network.machines) != 1 or network.hosts:
        raise WeftError(explain(f"model {network.name}", " and ".join(parts), "one program and no host",
                                "leave out of the network what runs on the host, such as the last Softmax"))
    if network.arch.cores > 1:
        raise WeftError(explain(f"cores of model {network.name}", network.arch.cores, "1", "compile it for one core"))
    model, = network.machines
    for port in model.outputs:
        if port.size * network.arch.array_size > MOST_ELEMENTS:
            raise WeftError(explain(f"output {port.name} of model {network.name}", f"{port.size} vectors",
                                    f"{MOST_ELEMENTS // network.arch.array_size} at most, for every element has an "
                                    "entry in the boot image", "end the network with a classifier"))
    return model


def describe(board: Board, arch: Arch, work: Path) -> dict[str, Any]:
    """Return ``soc.json`` of the board's shell around a machine; files go into ``work``."""
    (work / "weft.tarch").write_text(json.dumps(arch.to_dict(), indent=2) + "\n")
    bitstream.generate(board, work, standalone=True)
    return dict(json.loads((work / "soc.json").read_text()))


def write_sources(model: TModel, soc: Mapping[str, Any], images: Sequence[Mapping[str, np.ndarray]],
                  folder: Path) -> None:
    """Write all that ``make`` turns into the boot image; ``images``: the vectors of each image's inputs.

    Raise WeftError if the model does not fit into the board's memory."""
    arch, dram = model.arch, soc["memories"]["dram"]
    region = Region(dram["base"], 0, dram["bytes"])
    places = place(MemoryMap.shared(soc["machine_base"], region), needs_of(Network.of(model)), arch, model.name)
    first = preload(model, Isa(arch))
    storage = arch.number.storage_dtype
    vectors = [image[port.name] for image in images for port in model.inputs]
    contents = {"consts0.bin": [each for _, each in model.dram0_consts],
                "consts1.bin": [each for _, each in model.consts], "images.bin": vectors}
    for source in (*DRIVER.iterdir(), *FIRMWARE.iterdir()):
        shutil.copy(source, folder)
    for name, arrays in contents.items():
        (folder / name).write_bytes(b"".join(np.asarray(each).astype(storage).tobytes() for each in arrays))
    (folder / "preload.bin").write_bytes(first)
    (folder / "program.bin").write_bytes(model.program)
    (folder / "weft.h").write_text(c_header(arch))
    (folder / "soc.h").write_text(soc_header(soc))
    (folder / "network.h").write_text(network_header(model, places, len(images), first))
    (folder / "memory.ld").write_text(linker_memories(soc))


def make_image(folder: Path) -> Path:
    """Return the boot image that ``make`` makes of a folder's sources. Raise WeftError if the compiler fails."""
    done = subprocess.run(["make", "--silent", IMAGE], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WeftError(explain("firmware", done.stderr.strip()[-500:], "an image that fits into the flash",
                                "use fewer images or a smaller model"))
    return folder / IMAGE


def write(board: Board, network: Network, images: Sequence[Mapping[str, np.ndarray]], folder: Path) -> dict[str, Any]:
    """Write ``folder``: ``image.bin`` and its sources; return the report.

    ``images``: the vectors of each image's inputs. Raise WeftError if board, network or tools do not allow it, or the
    folder holds files of others."""
    check_board(board)
    model = program_of(network)
    check_tools()
    with building(folder) as work:
        soc = describe(board, network.arch, work)
        ready = work / READY
        write_sources(model, soc, images, ready)
        image = make_image(ready)
        (ready / "image.elf").unlink()
        found = {"schema": 1, "board": board.key, "model": network.name, "images": len(images),
                 "image": IMAGE, "bytes": image.stat().st_size, "flash_offset": soc["image"]["flash_offset"],
                 "baud": soc["baud"]}
        deliver(work, folder, found)
    return found
