# SPDX-License-Identifier: Apache-2.0
"""The tasks of a worker: each function needs nothing but its arguments, so that it can run anywhere.

The cost of a network on a machine has three parts. Its constants are shared by all machines of a size and a type, and
its program by all of these with the same memories. How long the program takes is each machine's own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.compiler.digest import tool_digest
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Convolution
from weft.compiler.layers.taps import Pass, vectors
from weft.compiler.pipeline import run_on, run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts, LayerConsts
from weft.compiler.request import Request
from weft.cycles.origin import apart
from weft.cycles.replay import estimate_within
from weft.cycles.system import cycles_an_image
from weft.explore.space import FREE_OF_CONSTANTS, FREE_OF_PROGRAM, without
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import DramModel, IdealDram
from weft.runtime.arrays import read_arrays
from weft.runtime.programs import image_a_core
from weft.support.errors import WeftError, explain
from weft.support.files import read_bytes

KEPT = 24
"""The number of networks' constants that a worker caches, for different sizes and types of machines."""
MOST_MODEL_BYTES = 2 << 30
DIGEST_LENGTH = 20
"""The hexadecimal digits of a network's digest in the results."""


@dataclass(frozen=True)
class Network:
    """A model file, the ``digest`` of its content, and how it is compiled.

    Workers on other machines read the same path."""

    path: Path
    digest: str
    calibrate: Path | None = None
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...] | int], ...] = field(default=())
    fixed: tuple[tuple[str, tuple[float, ...]], ...] = field(default=())

    @property
    def name(self) -> str:
        """The model file's name without suffix."""
        return self.path.stem

    @cached_property
    def key(self) -> str:
        """A digest of the content and of how it is compiled, by which results are known again."""
        how = repr((self.digest, self.host_fallback, self.outputs, self.shapes, self.fixed))
        return hashlib.sha256(how.encode()).hexdigest()[:DIGEST_LENGTH]

    def request(self) -> Request:
        """Return the request to compile it. Raise WeftError if the file has changed."""
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
    """The reason why a network does not run on a machine."""

    why: str


def digest_of(*paths: Path | None) -> str:
    """Return a digest of files and of the tool, because another compiler gives other results."""
    found = hashlib.sha256(tool_digest().encode())
    for path in filter(None, paths):
        found.update(read_bytes(path, "model file", "name a file that every worker can read", MOST_MODEL_BYTES))
    return found.hexdigest()[:DIGEST_LENGTH]


# -- tasks -------------------------------------------------------------------------------------------------------------
def least_cycles(network: Network, arch: Arch) -> int | Refused:
    """Return the cycles that every program of this network takes at least: the vectors through the array.

    On several cores these are the average cycles an image. Return Refused if the compiler refuses the network."""
    try:
        made = constants(network, without(arch, FREE_OF_CONSTANTS))
        return -(-sum(map(_least_vectors, made)) // arch.cores)
    except WeftError as error:
        return Refused(str(error))


def programs(network: Network, arch: Arch) -> list[bytes] | Refused:
    """Return a program for each subgraph of the network, for ``arch`` and all that differ only in FREE_OF_PROGRAM."""
    machine = without(arch, FREE_OF_PROGRAM)
    try:
        made = [run_on(products.plus({Arch: machine}), "consts", without=("verify",))
                for products in constants(network, without(arch, FREE_OF_CONSTANTS))]
    except WeftError as error:
        return Refused(str(error))
    return [products[MachineCode].content for products in made]


def cycles(contents: list[bytes], arch: Arch, dram: DramModel, most: int | None = None) -> int | None:
    """Return the cycles of all programs, one after another; None if they are certainly more than ``most``.

    On several cores these are the average cycles an image."""
    if arch.cores > 1:
        assert isinstance(dram, IdealDram), "what a board's memory does behind ports that cores share is not modelled"
        return sum(cycles_an_image(image_a_core(content, arch), arch, dram) for content in contents)
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
    """Return each subgraph of the machine with its layers, parameters and constants. Raise WeftError."""
    return run_parts(network.request(), arch, last="consts")[1]


def _least_vectors(products: Products) -> int:
    """Return the vectors that the array takes at least for a subgraph."""
    stored = products[Consts].layers
    return sum(_of_layer(layer, own) for layer, own in zip(products[Layers], stored, strict=True))


def _of_layer(layer: Layer, own: LayerConsts) -> int:
    """Return the vectors of a layer: each weight tile meets every pixel for which its tap falls into the image."""
    core = layer.core
    if not isinstance(core, Convolution):
        return sum(len(part) for block in own.blocks for part in block.tiles) * int(np.prod(core.size))
    spans = [[core.window.outputs(axis, tap, 0, core.size[axis], core.input.size[axis])
              for tap in range(core.window.kernel[axis])] for axis in range(2)]
    pixels = [[high - low for low, high in axis] for axis in spans]
    tiles = [tile for block in own.blocks for part in block.tiles for tile in part]
    return sum(vectors(core, Pass(tile.tap, tile.taps)) if tile.taps else
               pixels[0][tile.tap[0]] * pixels[1][tile.tap[1]] for tile in tiles)
