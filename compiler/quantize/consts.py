# SPDX-License-Identifier: Apache-2.0
"""Lay out Consts: weights, biases and SIMD operands as vectors of DRAM1, in the order in which layers read them.

``weights.py`` cuts a layer's weights into tiles. INT8 machines have no bias vectors: multipliers and biases of the
requantizer lie in blocks of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Product
from weft.compiler.progress import each
from weft.compiler.quantize.numbers import LayerIntegers, Numbers
from weft.compiler.quantize.slopes import FACTORS
from weft.compiler.quantize.weights import OutputBlock, encode_weights, product_blocks
from weft.compiler.quantize.work import done_macs
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import KEY_ENTRIES
from weft.hw.contract.schemes.int8 import SCALE_VECTORS, Int8


@dataclass(frozen=True)
class LayerConsts:
    """The addresses of one layer's constants in DRAM1, in vectors.

    ``base`` of the weights, from which offsets in ``blocks`` count (those of a product count in its Var). ``operand``:
    address of the SIMD unit's ``operands`` constants or of its ``tables``, which take ``local_vectors`` vectors of
    local memory when they are loaded. ``scales``: for each output tile the offset from ``scale_base`` of the
    ``scale_size`` vectors that LoadScale reads, ascending; equal ones are stored once. It is empty on machines of fixed
    point, and counts in the Var if LoadScale reads one. ``done_macs``: useful multiply-accumulates of the array with
    these weights. ``fresh``: the numbers of the lookup tables that the SIMD unit does not hold from earlier layers."""

    base: int
    blocks: tuple[OutputBlock, ...]
    operand: int
    operands: int
    tables: int
    local_vectors: int
    scale_base: int = 0
    scales: tuple[int, ...] = ()
    scale_size: int = SCALE_VECTORS
    done_macs: int = 0
    fresh: tuple[int, ...] = ()

    def table_piece(self, number: int, depth: int) -> tuple[int, int]:
        """Return where lookup table ``number`` lies: the offset from ``operand`` and the size, in vectors."""
        return (KEY_ENTRIES + (number - 1) * depth, depth) if number else (0, KEY_ENTRIES)

    def scale_piece(self, tiles: tuple[int, int]) -> tuple[int, int]:
        """Return the offsets [start, end) of the scales of the output tiles ``tiles`` (half open)."""
        found = self.scales[slice(*tiles)]
        return (found[0], found[-1] + self.scale_size) if found else (0, 0)


@dataclass(frozen=True)
class Consts:
    """The content of DRAM1: ``vectors`` [size, lanes] of stored scalars, and for each layer where its constants lie."""

    vectors: np.ndarray
    layers: tuple[LayerConsts, ...]

    def reordered(self, order: Sequence[int], layers: Sequence[Layer], arch: Arch) -> Consts:
        """Return the same vectors for the layers at the places ``order``, which are ``layers``.

        Lookup tables are fresh where the layers before hold others now."""
        held: dict[int, tuple[int, ...]] = {}
        found = []
        for number, layer in zip(order, layers, strict=True):
            own = self.layers[number]
            if layer.lookup is not None:
                fresh = _fresh([self._table(own, table, arch.lut_depth) for table in range(own.tables)], held)
                own = own if fresh == own.fresh else replace(own, fresh=fresh)
            found.append(own)
        return Consts(self.vectors, tuple(found))

    def _table(self, own: LayerConsts, number: int, depth: int) -> tuple[int, ...]:
        """Return the values of a layer's lookup table."""
        offset, size = own.table_piece(number, depth)
        return tuple(self.vectors[own.operand + offset:own.operand + offset + size, 0].tolist())

    def text(self) -> str:
        """Return the size as text."""
        return f"{len(self.vectors)} vectors\n"


def encode_consts(layers: Sequence[Layer], constants: Mapping[str, np.ndarray], numbers: Numbers, arch: Arch) -> Consts:
    """Return every layer's constants, quantised and laid out. Raise CompileError if DRAM1 is too small."""
    store = _Store(arch)
    placed: list[LayerConsts] = []
    held: dict[int, tuple[int, ...]] = {}
    for number, layer in enumerate(each(layers)):
        own = numbers.integers(number, layer, constants, arch)
        vectors: list[np.ndarray] = []
        blocks: tuple[OutputBlock, ...] = ()
        if isinstance(layer.core, Convolution):
            vectors, blocks = encode_weights(layer.core, own, arch)
        elif isinstance(layer.core, Product):
            blocks = product_blocks(layer.core, arch.array_size)
        base = store.place(vectors)
        tables = own.tables if layer.lookup is None else (own.tables[0][:KEY_ENTRIES], *own.tables[1:])
        tiles = layer.output.tiles(arch.array_size)
        operand = store.place([np.repeat(np.array(values, np.int64).reshape(-1, 1), arch.array_size, axis=1)
                               for values in (own.operands, *tables)] + _encode_slopes(own, tiles, arch.array_size))
        scales, places = _encode_scales(own, tiles, arch, pools=layer.only_pools)
        scale_base = store.place(scales)
        scale_size = len(scales[0]) if scales else 0
        if layer.factors is not None:
            scale_size, places = SCALE_VECTORS, tuple(range(0, tiles * SCALE_VECTORS, SCALE_VECTORS))
        placed.append(LayerConsts(base, blocks, operand, _operand_count(own, tiles), len(own.tables),
                                  _on_the_way(own, tiles, layer, arch), scale_base, places, scale_size,
                                  done_macs(layer, own.weights, arch.array_size),
                                  _fresh(tables, held) if layer.lookup is not None else ()))
    check_room(store.size, arch)
    return Consts(np.concatenate(store.chunks), tuple(placed))


class _Store:
    """The vectors of DRAM1 in the making; equal ones of several layers, such as a step's weights, are kept once."""

    def __init__(self, arch: Arch) -> None:
        self.dtype = arch.number.storage_dtype
        self.chunks = [np.zeros((0, arch.array_size), self.dtype)]
        self.size = 0
        self.known: dict[tuple[int, int, bytes], list[tuple[np.ndarray, int]]] = {}
        """Size, sum and some vectors of chunks -> those chunks, and their addresses; no digest is as soon there."""

    def place(self, parts: Sequence[np.ndarray]) -> int:
        """Return the address of these vectors [n, lanes], one part after another; store them if they are new."""
        chunk = np.concatenate([self.chunks[0], *parts], dtype=self.dtype, casting="unsafe")
        if not len(chunk):
            return self.size
        alike = self.known.setdefault((len(chunk), int(chunk.sum()), chunk[[0, len(chunk) // 2, -1]].tobytes()), [])
        base = next((base for other, base in alike if np.array_equal(other, chunk)), self.size)
        if base == self.size:
            alike.append((chunk, base))
            self.chunks.append(chunk)
            self.size += len(chunk)
        return base


def _fresh(tables: Sequence[tuple[int, ...]], held: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the numbers of ``tables`` that differ from those ``held`` by number, and hold them instead."""
    found = tuple(number for number, values in enumerate(tables) if held.get(number) != values)
    held |= dict(enumerate(tables))
    return found


def _encode_slopes(own: LayerIntegers, tiles: int, lanes: int) -> list[np.ndarray]:
    """Return the factors of the slopes, the vectors of each output channel tile together; 0 beyond the last channel."""
    if own.slopes is None:
        return []
    full = np.pad(own.slopes, ((0, 0), (0, tiles * lanes - own.slopes.shape[1])))
    return [full.reshape(FACTORS, tiles, lanes).swapaxes(0, 1).reshape(-1, lanes)]


def _operand_count(own: LayerIntegers, tiles: int) -> int:
    """Return how many vectors of constants the SIMD unit reads."""
    return len(own.operands) if own.slopes is None else FACTORS * tiles


def _on_the_way(own: LayerIntegers, tiles: int, layer: Layer, arch: Arch) -> int:
    """Return the vectors of local memory that a layer's SIMD operands or lookup tables need while loading.

    Tables get separate places if there is room, as a load into the place of a table that is still unread would wait and
    keep weights behind it waiting."""
    if layer.lookup is None:
        return len(own.tables[0]) if own.tables else _operand_count(own, tiles)
    together = KEY_ENTRIES + (len(own.tables) - 1) * arch.lut_depth
    return together if together <= arch.local_depth else arch.lut_depth


def check_room(vectors: int, arch: Arch) -> None:
    """Raise CompileError if DRAM1 cannot hold so many vectors."""
    if vectors > arch.dram1_depth:
        raise refuse("dram1_depth for weights and biases", arch.dram1_depth, f"at least {vectors} vectors",
                     "raise dram1_depth or use a larger array")


def _encode_scales(own: LayerIntegers, tiles: int, arch: Arch, *,
                   pools: bool) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Return the vectors that LoadScale reads, and for each output tile its offset among them.

    Lanes beyond the last channel get its multiplier and no bias: their accumulators hold 0, or the byte that a table
    gives. Where the layer only ``pools``, they hold the zero point of what it loads, and get the bias too. Both results
    are empty on machines of fixed point."""
    if own.multipliers is None:
        return [], ()
    assert isinstance(arch.scheme, Int8) and own.bias is not None
    beyond = (0, 0), (0, tiles * arch.array_size - own.multipliers.shape[1])
    multipliers, biases = np.pad(own.multipliers, beyond, mode="edge"), np.pad(own.bias, beyond,
                                                                               mode="edge" if pools else "constant")
    blocks: list[np.ndarray] = []
    places = []
    for lanes in np.arange(tiles * arch.array_size).reshape(tiles, -1):
        block = np.concatenate([arch.scheme.scale_vectors(*way)
                                for way in zip(multipliers[:, lanes], biases[:, lanes], strict=True)])
        if not blocks or (blocks[-1] != block).any():
            blocks.append(block)
        places.append((len(blocks) - 1) * len(block))
    return blocks, tuple(places)
