# SPDX-License-Identifier: Apache-2.0
"""Refuse programs that are too long to be loaded, as soon as their length is known.

The limit is the loader's, the same for the golden machine, RTL and boards; a board may have less room, which its driver
says. The weights tell a least length: a MatMul for every weight tile that is not all zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.errors import CompileError, refuse
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Convolution, MaxPool
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.presets import presets
from weft.tmodel.checks import MOST_PROGRAM_BYTES

MARGIN = 2
"""The ratio of the limit to a program's expected length on a machine that the error message recommends."""


def check_layers(layers: Layers, constants: Mapping[str, np.ndarray], arch: Arch) -> None:
    """Raise CompileError if weights and max pools alone make the program too long."""
    cores = [layer.core for layer in layers if isinstance(layer.core, Convolution)]
    maxima = sum(_maxima(layer, layer.pool, arch) for layer in layers if layer.pool is not None)
    if sum(_most_tiles(constants[core.weights].shape, arch) for core in cores) + maxima <= most_instructions(arch):
        return
    tiles = {core.weights: _weight_tiles(constants[core.weights], core.group, arch) for core in cores}
    check_length(sum(tiles[core.weights] for core in cores) + maxima, arch)


def most_instructions(arch: Arch) -> int:
    """Return how many instructions the longest program has."""
    return MOST_PROGRAM_BYTES // Isa(arch).instruction_bytes


def check_length(instructions: int, arch: Arch) -> None:
    """Raise CompileError if a program of so many instructions is too long."""
    size = instructions * Isa(arch).instruction_bytes
    if size > MOST_PROGRAM_BYTES:
        raise _too_long(size, arch)


def _most_tiles(shape: Sequence[int], arch: Arch) -> int:
    """Return the number of weight tiles of weights [out, in / group, height, width] if none is all zero."""
    return -(-shape[0] // arch.array_size) * -(-shape[1] // arch.array_size) * math.prod(shape[2:])


def _weight_tiles(weights: np.ndarray, group: int, arch: Arch) -> int:
    """Return the number of weight tiles [lanes, lanes] that are not all zero; for passes, the number of passes.

    ``weights`` is [out, in / group, height, width]. With groups several may share a tile; only tiles are counted then.
    A depthwise pass takes several taps."""
    (outputs, inputs), lanes = weights.shape[:2], arch.array_size
    if group > 1:
        height, width = weights.shape[2:]
        return -(-height // max(1, arch.kernel_rows)) * -(-width // max(1, arch.row_taps)) * -(-outputs // lanes)
    there = weights != 0
    for axis, size in ((0, outputs), (1, inputs)):
        there = np.logical_or.reduceat(there, np.arange(0, size, lanes), axis=axis)
    return int(there.sum())


def _maxima(layer: Layer, pool: MaxPool, arch: Arch) -> int:
    """Return the SIMD instructions of a max pool whose windows are too large for a loop; 0 if a loop fits.

    Each pixel of each window but the first takes one. Columns and rows apart are short, and count 0 too."""
    if pool.separates or pool.longest <= arch.simd_loop_depth:
        return 0
    maxima = pool.window.work(layer.core.size, pool.size) - math.prod(pool.size)
    return layer.outputs[-1].tiles(arch.array_size) * max(maxima, 0)


def _too_long(size: int, arch: Arch) -> CompileError:
    """Return the error for a program of ``size`` bytes.

    It names presets with the same number scheme whose larger arrays make the program short enough."""
    alike = {name: preset for name in presets()
             if (preset := Arch.load(name)).scheme.kind is arch.scheme.kind}
    fitting = [name for name, preset in alike.items()
               if MARGIN * size * (arch.array_size / preset.array_size) ** 2 < MOST_PROGRAM_BYTES
               and preset.local_depth >= arch.local_depth]
    way = f"compile for a machine with more lanes (-a {' or -a '.join(fitting)})" if fitting else "use a smaller model"
    return refuse("program", f"{size} bytes or more on {arch.array_size} lanes",
                  f"at most {MOST_PROGRAM_BYTES} bytes, which is what is loaded", way)
