# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions as passes: which taps of the kernel one MatMul takes, and how it walks along a row.

A pass takes up to ``row_taps`` taps of one row of the kernel, and the same taps of up to ``kernel_rows`` rows. Its
input advances by the same number of vectors from tap to tap and from result to result. With a stride of 2 it takes
every other tap, and with a dilation of 2 it makes every other result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from weft.compiler.layers.stages import Convolution
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import load_weight_cycles
from weft.hw.contract.walk import encodable
from weft.tmodel.window import Size, Window


class Pass(NamedTuple):
    """The taps of the kernel that one MatMul takes.

    They are ``tap`` (row, column) and those after it in its row, ``Steps.taps`` columns apart; ``taps`` of them in
    each of ``rows`` rows, that one and those below it."""

    tap: Size
    taps: int
    rows: int = 1


class Steps(NamedTuple):
    """The step of a pass from vector to vector, in input pixels, in results, and in taps of the kernel."""

    inputs: int
    results: int
    taps: int

    @classmethod
    def of(cls, window: Window) -> Steps:
        """Return the steps that a pass of a window with this stride and dilation needs."""
        stride, dilation = window.strides[1], window.dilations[1]
        inputs = math.lcm(stride, dilation)
        return cls(inputs, inputs // stride, inputs // dilation)


class Row(NamedTuple):
    """One walk of a pass along a row of the input: it reads ``size`` vectors, and makes as many results.

    The first vector is that of input column ``near``; the first result is that of output column ``far``. Tap number
    ``origin`` of the pass, from 0 on, takes the first vector for the first result. The last ``dropped`` results lie
    beyond the last output column, and are not written."""

    near: int
    far: int
    size: int
    origin: int
    dropped: int

    def covers(self, results: int) -> bool:
        """Tell whether the row writes all of ``results`` columns, from the first on."""
        return self.size - self.dropped == results


class Lines(NamedTuple):
    """Rows ``low`` to ``high`` (half open) of the result, to which ``rows`` of a pass add, counted from its first."""

    low: int
    high: int
    rows: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The value of the register TAP_ROWS: a bit for each of ``rows``."""
        return sum(1 << row for row in self.rows)


def lines(window: Window, part: Pass, results: tuple[int, int], height: int) -> list[Lines]:
    """Return the rows of the ``results`` (half open), grouped by which rows of the pass fall into the image.

    The image has ``height`` rows. Each group is a MatMul; results into which no row falls are left out."""
    def falls(result: int) -> tuple[int, ...]:
        first = result * window.strides[0] - window.pads[0] + part.tap[0] * window.dilations[0]
        return tuple(row for row in range(part.rows) if 0 <= first + row * window.dilations[0] < height)

    found = []
    for rows, group in itertools.groupby(range(*results), falls):
        alike = [*group]
        found += [Lines(alike[0], alike[-1] + 1, rows)] if rows else []
    return found


def rows(window: Window, part: Pass, results: tuple[int, int], inputs: tuple[int, int]) -> Iterator[Row]:
    """Yield the rows by which a pass makes the columns ``results`` from the input columns ``inputs`` (both half open).

    The image ends beyond ``inputs``, or no tap reaches there. Results that the step skips get rows of their own."""
    steps = Steps.of(window)
    for first in range(results[0], min(results[0] + steps.results, results[1])):
        count = -(-(results[1] - first) // steps.results)
        start = first * window.strides[1] - window.pads[1] + part.tap[1] * window.dilations[1]
        low = max(0, -((start - inputs[0]) // steps.inputs))  # places of input pixels, counted from ``start``
        high = min(count + part.taps - 1, (inputs[1] - 1 - start) // steps.inputs + 1)
        if low < high:
            origin = min(low, part.taps - 1)
            yield Row(start + low * steps.inputs, first + (low - origin) * steps.results, high - low, origin,
                      max(0, low - origin + high - low - count))


def makes_all(window: Window, part: Pass, width: int, source: int) -> bool:
    """Tell whether the rows of a pass reach every one of ``width`` results that one of its taps adds to.

    The image has ``source`` columns. A row has no more results than vectors: where taps overhang the image on both
    sides, only a pass of fewer taps reaches all."""
    step = Steps.of(window).results
    return all(row.origin == 0 or row.size - row.dropped == -(-(width - first) // step) - _before(row, first, step)
               for first, row in _by_first(window, part, width, source))


def covers_columns(window: Window, part: Pass, width: int, source: int) -> bool:
    """Tell whether a pass writes every column of the result (``width`` columns, from ``source`` columns)."""
    found = dict(_by_first(window, part, width, source))
    step = Steps.of(window).results
    return len(found) == min(step, width) and all(
        row.far == first and row.covers(-(-(width - first) // step)) for first, row in found.items())


def _by_first(window: Window, part: Pass, width: int, source: int) -> list[tuple[int, Row]]:
    """Return the rows of a pass over the whole image, each with the first result that it could have."""
    step = Steps.of(window).results
    return [(row.far % step, row) for row in rows(window, part, (0, width), (0, source))]


def _before(row: Row, first: int, step: int) -> int:
    """Return how many results come before a row's own first one, ``step`` apart from ``first`` on."""
    return (row.far - first) // step


def passes(core: Convolution, arch: Arch) -> list[Pass]:
    """Return all passes of a depthwise convolution, those that write every result first.

    The list is empty if the machine cannot walk along its rows."""
    window, steps = core.window, Steps.of(core.window)
    pixels = core.input.part.step if core.input.part else 1
    if not (encodable(steps.inputs * pixels, arch.stride0_depth) and encodable(steps.results, arch.stride1_depth)):
        return []
    width, source = core.size[1], core.input.size[1]
    found = []
    for phase in range(min(steps.taps, window.kernel[1])):
        columns = list(range(phase, window.kernel[1], steps.taps))
        while columns:
            count = next(count for count in range(min(arch.row_taps, len(columns)), 0, -1)
                         if makes_all(window, Pass((0, columns[0]), count), width, source))
            found.append((columns[0], count))
            columns = columns[count:]
    height = window.kernel[0]
    taken = [Pass((row, column), count, min(arch.kernel_rows, height - row))
             for row in range(0, height, arch.kernel_rows) for column, count in found]
    return sorted(taken, key=lambda part: not covers_all(core, part))


def covers_all(core: Convolution, part: Pass) -> bool:
    """Tell whether a pass writes every pixel of the result."""
    window, height = core.window, core.size[0]
    covered = sum(each.high - each.low for each in lines(window, part, (0, height), core.input.size[0]))
    return covered == height and covers_columns(window, part, core.size[1], core.input.size[1])


def paying_passes(core: Convolution, alike: bool, arch: Arch) -> list[Pass]:
    """Return the passes of a depthwise convolution if they take the array less time than one tap at a time.

    Otherwise return an empty list. ``alike``: all taps have the same weights, which are then loaded once."""
    if not arch.depthwise_taps:
        return []
    found, window = passes(core, arch), core.window
    spans = [[high - low for low, high in (window.outputs(axis, tap, 0, core.size[axis], core.input.size[axis])
                                           for tap in range(window.kernel[axis]))] for axis in range(2)]
    load = 1 if alike else load_weight_cycles(arch, arch.array_size + 1)
    apart = sum(max(down * along, load) for down in spans[0] for along in spans[1])
    together = sum(max(vectors(core, part), 1 if alike else load_cycles(part.rows, arch)) + arch.row_taps - 1
                   for part in found)
    return found if together < apart else []


def vectors(core: Convolution, part: Pass) -> int:
    """Return the vectors of one channel tile that a pass over the whole image sends through the array."""
    down = sum(each.high - each.low for each in lines(core.window, part, (0, core.size[0]), core.input.size[0]))
    return down * sum(row.size for row in rows(core.window, part, (0, core.size[1]), (0, core.input.size[1])))


def load_cycles(rows: int, arch: Arch) -> int:
    """Return the cycles that loading the weights of a pass over ``rows`` kernel rows and its bias row takes."""
    return load_weight_cycles(arch, rows * arch.row_taps * arch.tap_rows + 1)
