"""What a worker does: each function is a task that needs nothing but its arguments, so that it can run anywhere.

A network on a machine costs three things, of which each is shared by more machines than the next: its constants (all
machines of a size and a type), its program (all with the same memories), and how long that takes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from weft.cycles.origin import apart
from weft.cycles.replay import estimate_within
from weft.support.errors import WeftError, explain
from weft.support.files import read_bytes

import weft.compiler
from weft.compiler.backend.encode import MachineCode
from weft.compiler.layers.hir import Convolution, Layer, Layers
from weft.compiler.layers.taps import Pass, vectors
from weft.compiler.pipeline import run_on, run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts, LayerConsts
from weft.compiler.request import Request
from weft.explore.space import FREE_OF_CONSTANTS, FREE_OF_PROGRAM, without
from weft.hw.contract import arch as contract
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import DramModel
from weft.runtime.arrays import read_arrays

KEPT = 24
"""Networks' constants that a worker keeps, of so many sizes and types of machines."""
MOST_MODEL_BYTES = 2 << 30


@dataclass(frozen=True)
class Network:
    """A model file, its content's ``digest`` and how it is compiled. Workers on other machines read the same path."""

    path: Path
    digest: str
    calibrate: Path | None = None
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...] | int], ...] = field(default=())
    fixed: tuple[tuple[str, tuple[float, ...]], ...] = field(default=())

    @property
    def name(self) -> str:
        return self.path.stem

    def request(self) -> Request:
        """Raises WeftError where the file is not the one that was meant."""
        if digest_of(self.path, self.calibrate) != self.digest:
            raise WeftError(explain(f"model {self.path}", "another content than where the search began",
                                    "the same files on every worker", "share the folder, or copy the files"))
        shapes, fixed = dict(self.shapes), dict(self.fixed)
        arrays = None
        if self.calibrate is not None:
            from weft.compiler.frontend.reader import read_model

            names = [port.name for port in read_model(self.path, self.outputs, shapes, fixed).inputs]
            arrays = read_arrays(self.calibrate, names, "calibration file")
        return Request(self.path, arrays, False, self.host_fallback, self.outputs, shapes=shapes,
                       fixed=fixed)


@dataclass(frozen=True)
class Refused:
    """Why a network does not run on a machine."""

    why: str


def digest_of(*paths: Path | None) -> str:
    """Of files, and of the tool: what another compiler makes is another result."""
    found = hashlib.sha256(tool_digest().encode())
    for path in filter(None, paths):
        found.update(read_bytes(path, "model file", "name a file that every worker can read", MOST_MODEL_BYTES))
    return found.hexdigest()[:20]


@lru_cache(1)
def tool_digest() -> str:
    """Of the sources of compiler and contract."""
    found = hashlib.sha256()
    for folder in (Path(next(iter(weft.compiler.__path__))), Path(contract.__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:20]


# -- tasks -------------------------------------------------------------------------------------------------------------
def least_cycles(network: Network, arch: Arch) -> int | Refused:
    """Below which no program of this network ends on ``arch``: the vectors that its array takes, one a cycle."""
    try:
        return sum(_least_vectors(products) for products in constants(network, without(arch, FREE_OF_CONSTANTS)))
    except WeftError as error:
        return Refused(str(error))


def programs(network: Network, arch: Arch) -> list[bytes] | Refused:
    """One for each part of the network, for ``arch`` and all that differ from it in FREE_OF_PROGRAM."""
    machine = without(arch, FREE_OF_PROGRAM)
    try:
        made = [run_on(products.plus({Arch: machine}), "consts", without=("verify",))
                for products in constants(network, without(arch, FREE_OF_CONSTANTS))]
    except WeftError as error:
        return Refused(str(error))
    return [products[MachineCode].content for products in made]


def cycles(contents: list[bytes], arch: Arch, dram: DramModel, most: int | None = None) -> int | None:
    """Of all parts, one after another; None where these are certainly more than ``most``."""
    total, origin = 0, apart(arch)
    for content in contents:
        left = None if most is None else most - total
        found = estimate_within(content, arch, left, dram, origin=origin)
        if found is None:
            return None
        total += found.cycles
    return total


@lru_cache(KEPT)
def constants(network: Network, arch: Arch) -> list[Products]:
    """Each of the machine's parts with its layers, points and constants. Raises WeftError."""
    return run_parts(network.request(), arch, last="consts")[1]


def _least_vectors(products: Products) -> int:
    stored = products[Consts].layers
    return sum(_of_layer(layer, own) for layer, own in zip(products[Layers], stored, strict=True))


def _of_layer(layer: Layer, own: LayerConsts) -> int:
    """Each weight tile meets every pixel of the result for which its tap falls into the image."""
    core = layer.core
    if not isinstance(core, Convolution):
        return sum(len(part) for block in own.blocks for part in block.tiles) * int(np.prod(core.size))
    spans = [[core.window.outputs(axis, tap, 0, core.size[axis], core.input.size[axis])
              for tap in range(core.window.kernel[axis])] for axis in range(2)]
    pixels = [[high - low for low, high in axis] for axis in spans]
    tiles = [tile for block in own.blocks for part in block.tiles for tile in part]
    return sum(vectors(core, Pass(tile.tap, tile.taps)) if tile.taps else
               pixels[0][tile.tap[0]] * pixels[1][tile.tap[1]] for tile in tiles)
