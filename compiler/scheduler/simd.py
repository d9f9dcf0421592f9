# SPDX-License-Identifier: Apache-2.0
"""SIMD work on tiles in the accumulators: max pools, upper limits, leaky ReLUs. It needs one register."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.compiler.layers.stages import Abs, Elementwise, Gate, LeakyRelu, MaxPool, Minimum, Slopes, SteepSlopes
from weft.compiler.lir import ACCUMULATORS, Address, Operation, Settings, Simd, SimdLoop
from weft.compiler.quantize.slopes import FACTORS
from weft.compiler.tiling.spans import View, groups
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.walk import encodable

INPUT, REGISTER, SECOND, PRODUCT = 0, 1, 2, 3
"""SIMD sources: what the instruction reads, and the registers. One register is enough; more save reads."""

KEYS_AND_VALUES = 2
"""The number of tables of a function that has a key for every argument, so that it needs no slopes."""


def emit_pool(pool: MaxPool, source: View, result: View, settings: Settings, arch: Arch, *,
              continues: bool = False) -> Iterator[Operation]:
    """Yield the operations that write the maximum of every window in ``source`` to ``result``.

    Runs of pixels whose windows are clipped alike share one loop. Where that takes fewer operations, maxima of columns
    come first. They lie in the first row that the window reads: a later window that reads this row too reads all of
    these rows. With ``continues`` the maximum includes what ``result`` holds."""
    low_column, high_column = source.box.columns
    columns = _runs(pool, 1, result.box.columns, source.box.columns)
    for tile in range(*result.box.tiles):
        for row in range(*result.box.rows):
            rows = [source.address(tile, y, low_column) for y in pool.window.reads(0, row, source.box.rows)]
            if pool.separates and len(rows) > 1 and not continues:
                body = _maximum([(place, 1) for place in rows], rows[0], settings)
                yield from _repeat(body, high_column - low_column, arch)
                rows = rows[:1]
            for low, high, taps in columns:
                reads = [(place + x - low_column, pool.window.strides[1]) for place in rows for x in taps]
                write = result.address(tile, row, low)
                reads += [(write, 1)] if continues else []
                yield from _repeat(_maximum(reads, write, settings), high - low, arch)


def emit_elementwise(operation: Elementwise, operand: int, view: View, settings: Settings,
                     arch: Arch) -> Iterator[Operation]:
    """Yield an operation on every vector of a view; its constants lie at accumulator address ``operand``."""
    yield from BODIES[type(operation)](operand, view, settings, arch)


def _minimum(operand: int, view: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield the operations that limit every vector of a view to a constant from above."""
    address = Address(ACCUMULATORS, view.base)
    yield _fetch(operand, settings)
    body = [Simd(SimdOpcode.MIN, INPUT, REGISTER, 0, settings, address, address)]
    yield from _repeat(body, view.box.vectors, arch)


def _abs(operand: int, view: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield the operations that take the magnitude of every vector of a view; they need no constant."""
    address = Address(ACCUMULATORS, view.base)
    yield from _repeat([Simd(SimdOpcode.ABS, INPUT, 0, 0, settings, address, address)], view.box.vectors, arch)


def _gate(operand: int, view: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield x * min(max(x + offset, 0), limit) on every vector of a view; the constants are offset and limit.

    The register holds the offset, and in each iteration what becomes the factor. The input of an instruction that reads
    nothing is 0."""
    address, limit = (Address(ACCUMULATORS, place) for place in (view.base, operand + 1))
    yield _fetch(operand, settings)
    body = [Simd(SimdOpcode.ADD, INPUT, REGISTER, REGISTER, settings, address),
            Simd(SimdOpcode.MAX, INPUT, REGISTER, REGISTER, settings),
            Simd(SimdOpcode.MIN, INPUT, REGISTER, REGISTER, settings, limit, hold=True),
            Simd(SimdOpcode.MULTIPLY, INPUT, REGISTER, 0, settings, address, address)]
    yield from _repeat(body, view.box.vectors, arch)


def _leaky_relu(operand: int, view: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield max(x, slope * x) on every vector of a view; the slope is a product of two constants, for precision.

    If both constants have a register, a vector is read twice. Otherwise the product overwrites the first one. In a loop
    every iteration finds it there again; without a loop it is fetched again."""
    loops = arch.simd_loop_depth >= 3
    apart = arch.simd_registers_depth >= (2 if loops else 3)
    product = PRODUCT if arch.simd_registers_depth >= 3 else REGISTER
    for low, high in [(0, view.box.vectors)] if apart or loops else groups(view.box.vectors, 1):
        address = Address(ACCUMULATORS, view.base + low)
        yield _fetch(operand, settings)
        second = Address(ACCUMULATORS, operand + 1)
        if apart:
            yield _fetch(operand + 1, settings, SECOND)
            body = [Simd(SimdOpcode.MULTIPLY, INPUT, REGISTER, product, settings, address),
                    Simd(SimdOpcode.MULTIPLY, product, SECOND, product, settings),
                    Simd(SimdOpcode.MAX, INPUT, product, 0, settings, address, address)]
        else:
            body = [Simd(SimdOpcode.MULTIPLY, INPUT, REGISTER, REGISTER, settings, address),
                    Simd(SimdOpcode.MULTIPLY, INPUT, REGISTER, REGISTER, settings, second, hold=True),
                    Simd(SimdOpcode.MAX, INPUT, REGISTER, 0, settings, address, address)]
        yield from _repeat(body, high - low, arch)


def _slopes(operand: int, view: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield max(x, slope * x) on every vector of a view, with the two factors of each channel's slope."""
    for tile, part in _by_tiles(view):
        yield from _leaky_relu(operand + FACTORS * tile, part, settings, arch)


def _steep_slopes(operand: int, view: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield x + (slope - 1) * min(x, 0) on every vector of a view; slope - 1 is a product of two factors.

    The first factor is positive, so that the minimum may follow it. The input of an instruction that reads nothing is
    0."""
    apart = arch.simd_registers_depth >= FACTORS
    product = PRODUCT if arch.simd_registers_depth >= 3 else REGISTER
    for tile, part in _by_tiles(view):
        first = operand + FACTORS * tile
        address, second = Address(ACCUMULATORS, part.base), Address(ACCUMULATORS, first + 1)
        yield _fetch(first, settings)
        if apart:
            yield _fetch(first + 1, settings, SECOND)
        yield from _repeat([
            Simd(SimdOpcode.MULTIPLY, INPUT, REGISTER, product, settings, address),
            Simd(SimdOpcode.MIN, INPUT, product, product, settings),
            Simd(SimdOpcode.MULTIPLY, SECOND, product, product, settings) if apart else
            Simd(SimdOpcode.MULTIPLY, INPUT, product, product, settings, second, hold=True),
            Simd(SimdOpcode.ADD, INPUT, product, 0, settings, address, address)], part.box.vectors, arch)


def _by_tiles(view: View) -> Iterator[tuple[int, View]]:
    """Yield the number of each channel tile of a view, and its part of the view."""
    for tile in range(*view.box.tiles):
        yield tile, View(view.address(tile, view.box.rows[0], view.box.columns[0]), view.box.of((tile, tile + 1)))


def emit_multiply(view: View, second: View, settings: Settings, arch: Arch) -> Iterator[Operation]:
    """Yield the product of two views, vector by vector, into ``view``; both lie densely."""
    left, right = (Address(ACCUMULATORS, entry.base) for entry in (view, second))
    body = [Simd(SimdOpcode.MOVE, INPUT, 0, REGISTER, settings, right),
            Simd(SimdOpcode.MULTIPLY, INPUT, REGISTER, 0, settings, left, left)]
    yield from _repeat(body, view.box.vectors, arch)


def emit_lookup(view: View, settings: Settings, tables: int, arch: Arch) -> Iterator[Operation]:
    """Yield a function by lookup table on every vector of a view.

    The result is the value at the nearest key plus the distance to it times the slope there. It is the value alone if
    ``tables`` is 2: keys and values."""
    address = Address(ACCUMULATORS, view.base)
    distance, value, slope = REGISTER, REGISTER + 1, REGISTER + 2
    body = [Simd(SimdOpcode.LOOKUP, INPUT, 0, distance, settings, address),
            Simd(SimdOpcode.MULTIPLY, distance, slope, distance, settings),
            Simd(SimdOpcode.ADD, distance, value, 0, settings, write=address)]
    if tables == KEYS_AND_VALUES:
        body = [body[0], Simd(SimdOpcode.MOVE, value, 0, 0, settings, write=address)]
    yield from _repeat(body, view.box.vectors, arch)


BODIES: dict[type, Callable[[int, View, Settings, Arch], Iterator[Operation]]] = {
    Minimum: _minimum, Abs: _abs, Gate: _gate, LeakyRelu: _leaky_relu, Slopes: _slopes, SteepSlopes: _steep_slopes}


def _fetch(operand: int, settings: Settings, register: int = REGISTER) -> Simd:
    """Return the operation that moves a constant from accumulator address ``operand`` into a register."""
    return Simd(SimdOpcode.MOVE, INPUT, 0, register, settings, Address(ACCUMULATORS, operand))


def _runs(pool: MaxPool, axis: int, outputs: tuple[int, int],
          limits: tuple[int, int]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return half-open ranges of outputs that read the same taps, each with the inputs of its first output."""
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    stride = pool.window.strides[axis]
    for output in range(*outputs):
        taps = pool.window.reads(axis, output, limits)
        if runs:
            low, _, first = runs[-1]
            if taps == tuple(tap + (output - low) * stride for tap in first):
                runs[-1] = (low, output + 1, first)
                continue
        runs.append((output, output + 1, taps))
    return runs


def _maximum(reads: list[tuple[int, int]], write: int, settings: Settings) -> list[Simd]:
    """Return the SIMD operations that write the largest scalars of some vectors, lane by lane, for one pixel.

    ``reads`` has the address of each vector and the step to its place for the next pixel, both in vectors of the
    accumulators. ``write`` is the address of the result there."""
    body = [Simd(SimdOpcode.MAX if number else SimdOpcode.MOVE, INPUT, REGISTER if number else 0, REGISTER, settings,
                 Address(ACCUMULATORS, address), read_stride=stride)
            for number, (address, stride) in enumerate(reads)]
    body[-1] = body[-1]._replace(write=Address(ACCUMULATORS, write))
    return body


def _repeat(body: list[Simd], count: int, arch: Arch) -> Iterator[Operation]:
    """Yield ``body`` for ``count`` pixels: as a loop if the machine has one, else written out."""
    if count > 1 and len(body) <= arch.simd_loop_depth and all(
            encodable(operation.read_stride, arch.stride1_depth) for operation in body):
        yield SimdLoop(count, len(body), body[0].settings)
        yield from body
        return
    for number in range(count):
        for operation in body:
            advance = 0 if operation.hold else number * operation.read_stride
            yield operation._replace(hold=False, read_stride=1, read=_advance(operation.read, advance),
                                     write=_advance(operation.write, number))


def _advance(address: Address | None, vectors: int) -> Address | None:
    """Return the address ``vectors`` further; None stays None."""
    return None if address is None else Address(address.memory, address.offset + vectors)
