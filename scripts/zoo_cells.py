# SPDX-License-Identifier: Apache-2.0
"""The measurements of a network on presets of one array size and data type: each thing once for all that share it.

How exact the outputs are depends on the layers and the constants; the cycles on the program, and on the machine but
for the depths of its DRAM windows. Whether a memory has room is asked of every machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import bench
import network_table

from weft.boards import board_of, clock_hz
from weft.cli.resources import around
from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.signals import LAST, signal_of
from weft.compiler.frontend.reader import read_model
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.pipeline import run_on, run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts, check_room
from weft.compiler.quantize.samples import random_inputs
from weft.compiler.request import Request
from weft.cycles.machine import machine_record
from weft.cycles.replay import estimate
from weft.cycles.system import cycles_an_image
from weft.explore.space import FREE_OF_CONSTANTS, without
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.hw.flow.parts import PARTS
from weft.hw.flow.resources import counted, fits
from weft.runtime.programs import image_a_core
from weft.support.errors import WeftError

T = TypeVar("T")
Row = dict[str, Any]
IMAGES = 2
"""The number of a network's own samples that are used."""
ROOM = 1 << 28
"""The vectors of a DRAM window in which every network has room."""


class Found(NamedTuple):
    """The result of a network on a machine; ``signal_to_noise`` in decibels, None if no output has an error."""

    cycles: int
    """Cycles of an image; on average if several cores work on one each."""
    macs: int
    """The multiply-accumulates of the network as drawn."""
    done_macs: int
    """The multiply-accumulates of these that the array does."""
    signal_to_noise: float | None


class Family:
    """One network on machines of one array size and data type."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._known: dict[Hashable, Any] = {}

    def found(self, arch: Arch) -> Found:
        """Return the results of compiler and estimator for this machine. Raise WeftError if the network is refused."""
        parts, signal_to_noise = self._constants(arch)
        for products in parts:
            check_room(len(products[Consts].vectors), arch)
        placed = [run_on(products.plus({Arch: arch}), LAST, "memory") for products in parts]
        machine = {key: value for key, value in arch.to_dict().items() if key not in ("dram0_depth", "dram1_depth")}
        key = ("cycles", *machine.items(), machine_record(arch, IdealDram()).tobytes(),
               *(products[text].text() for products in placed for text in (Layers, MemoryPlan)))
        macs = sum(layer.macs for products in parts for layer in products[Layers])
        done = sum(own.done_macs for products in parts for own in products[Consts].layers)
        return Found(self._once(key, lambda: sum(map(_cycles, placed))), macs, done, signal_to_noise)

    def _constants(self, arch: Arch) -> tuple[list[Products], float | None]:
        """Return each subgraph with its constants, and how exact the outputs are."""
        roomy = without(arch, FREE_OF_CONSTANTS).replace(dram0_depth=ROOM, dram1_depth=ROOM)
        narrow = roomy.replace(dram0_depth=arch.dram0_depth)  # images are packed as they fit into DRAM0
        layers = self._once(narrow, lambda: run_parts(self.request, narrow, last="layers")[1])

        def made() -> tuple[list[Products], float | None]:
            parts = [run_on(products.plus({Arch: roomy}), "layers", LAST) for products in layers]
            return parts, signal_of(parts)

        return self._once((roomy, *(products[Layers].text() for products in layers)), made)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value that ``make`` returned at its first call for this key."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found


def _cycles(placed: Products) -> int:
    """Return the cycles of one subgraph whose tensors all have their place.

    Programs are not verified: the benchmark and the tests do that."""
    program, arch = run_on(placed, "memory", without=("verify",))[MachineCode].content, placed[Arch]
    if arch.cores > 1:
        return cycles_an_image(image_a_core(program, arch), arch)
    return estimate(program, arch, IdealDram()).cycles


@lru_cache(1)
def request(path: Path) -> Request:
    """Return the request as the benchmark makes it, with the network's own samples if they are at hand.

    A detector makes nothing of noise, and has no signal there to be compared. Random inputs of whole numbers are
    those that calibration draws."""
    if path.stem in network_table.CASES and path.with_suffix(".npz").is_file():
        images, _ = network_table.samples_of(path.stem, path)
        own = {name: values[:IMAGES] for name, values in images.items()}
        return Request(path, own, outputs=bench.before_softmax(path))
    drawn = random_inputs(read_model(path))
    inputs = {name: values if drawn[name].dtype.kind == "f" else drawn[name][:1]
              for name, values in bench.sample(path).items()}
    return Request(path, inputs, outputs=bench.before_softmax(path))


def measured(name: str, path: Path, presets: Iterable[str], on_rtl: bool) -> tuple[dict[str, Row | str], float]:
    """Return each preset's row, or why the network does not run on it; and the CPU seconds of this process."""
    began = time.process_time()
    try:
        family = Family(request(path))
    except WeftError as error:  # a file that leaves sizes open, for example
        return dict.fromkeys(presets, str(error)), time.process_time() - began
    found: dict[str, Row | str] = {}
    for preset in presets:
        try:
            found[preset] = _row(name, path, preset, family.found(bench.machine(name, preset)), on_rtl)
        except WeftError as error:
            found[preset] = str(error)
    return found, time.process_time() - began


def _row(name: str, path: Path, preset: str, found: Found, on_rtl: bool) -> Row:
    """Return the row of a preset."""
    arch, clock = bench.machine(name, preset), clock_hz(preset)
    ran = bench.measure(name, path, preset, on_rtl=True) if on_rtl else None
    cycles = found.cycles if ran is None or ran.cycles_rtl is None else ran.cycles_rtl
    return {"network": name, "arch": preset, "clock_mhz": clock / 1e6, "cycles_rtl": ran and ran.cycles_rtl,
            "bit_exact": ran and ran.bit_exact, "cycles_estimated": found.cycles, "ms": 1e3 * cycles / clock,
            "macs": found.macs, "done_macs": found.done_macs,
            "utilization": found.done_macs / (arch.cores * arch.array_size**2 * cycles),
            "signal_to_noise": found.signal_to_noise, **_taken(arch, preset)}


def _taken(arch: Arch, preset: str) -> Row:
    """Return the resources of the board's chip that a machine takes, beside the rest of the board.

    It is empty if resources of such machines are not known."""
    board = board_of(preset)
    taken = fits(arch, PARTS[board.part], around=around(board)) if board and counted(arch, board.family) else None
    return {"lut": taken and taken["total"]["lut"], "fits": taken and taken["fits"]}
