# SPDX-License-Identifier: Apache-2.0
"""The geometry of copies in idle lanes: where moved copies of an image lie, and which taps of a kernel read them.

Copy number i of an image holds at pixel p what the image has at pixel p + shift i. So one tap over all copies is as
many taps of the kernel. Rows and columns are treated alike, one axis at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from weft.tmodel.window import Size, Window

MOST_TAPS = 64
"""The most taps along one axis of kernels that are searched."""


class Read(NamedTuple):
    """The place where ``tap`` of a kernel is read: tap number ``at`` of the new kernel, in copy number ``copy``."""

    tap: int
    at: int
    copy: int


@dataclass(frozen=True)
class AxisCopies:
    """The copies along one axis, and how a kernel reads them.

    Copy i holds at pixel q what the image has at pixel ``begin`` + q * ``step`` + ``shifts[i]``, for q < ``size``.
    ``reads`` has every tap of the kernel once. ``kernel``, ``stride``, ``pad`` and ``dilation`` are those of the window
    over the copies."""

    shifts: tuple[int, ...]
    reads: tuple[Read, ...]
    begin: int
    size: int
    step: int
    kernel: int
    stride: int
    pad: int
    dilation: int

    @property
    def taps(self) -> list[int]:
        """The taps of the new kernel that read anything."""
        return sorted({read.at for read in self.reads})

    @property
    def count(self) -> int:
        """The number of copies."""
        return len(self.shifts)

    @property
    def apart(self) -> int:
        """The pixels between neighbouring copies; 1 for a single one."""
        return self.shifts[1] - self.shifts[0] if self.count > 1 else 1

    @property
    def front(self) -> int:
        """The pixels before the image that the first copy begins with; negative if it leaves some of the image out."""
        return -(self.begin + self.shifts[0])

    def behind(self, image: int) -> int:
        """Return the pixels behind an image of so many that the last copy ends with; negative if it ends earlier."""
        return self.begin + (self.size - 1) * self.step + self.shifts[-1] + 1 - image

    def end(self, outputs: int) -> int:
        """Return the pixels behind the copies that the last of so many outputs reads; negative if it ends earlier."""
        return (outputs - 1) * self.stride + (self.kernel - 1) * self.dilation + 1 - self.size - self.pad

    def vectors(self, outputs: int) -> int:
        """Return the pairs of a tap that reads anything and one of so many output pixels, without padding."""
        window = Window((self.kernel, 1), (self.stride, 1), (self.pad, 0), (self.dilation, 1))
        spans = (window.outputs(0, tap, 0, outputs, self.size) for tap in self.taps)
        return sum(high - low for low, high in spans)


def as_it_is(window: Window, axis: int, image: int) -> AxisCopies:
    """Return a single copy along an axis: the image itself, of ``image`` pixels, under the kernel itself."""
    count = window.kernel[axis]
    return AxisCopies((0,), tuple(Read(tap, tap, 0) for tap in range(count)), 0, image, 1, count,
                      window.strides[axis], window.pads[axis], window.dilations[axis])


def in_place(window: Window, axis: int, image: int, outputs: int, count: int) -> AxisCopies | None:
    """Return ``count`` copies as large as the image, under the kernel's own window, with the fewest taps that read.

    A tap beside such a copy reads zero. So it serves only taps of the kernel that fall beside the image too. ``image``
    and ``outputs`` are pixels along the axis. Return None if there are no such copies."""
    if count == 1:
        return as_it_is(window, axis, image)
    dilation = window.dilations[axis]
    found = []
    for first in _first_shifts(window, axis, count):
        reads = _greedy(window, axis, image, outputs, range(first, first + count))
        if reads:
            found.append(AxisCopies(_shifts(first, count, dilation), reads, 0, image, 1, window.kernel[axis],
                                    window.strides[axis], window.pads[axis], dilation))
    return min(found, key=lambda copies: copies.vectors(outputs), default=None)


def of_their_own(window: Window, axis: int, image: int, outputs: int, count: int) -> AxisCopies | None:
    """Return ``count`` copies as large as they need be, with the fewest taps that read, and then the fewest pixels.

    ``image`` and ``outputs`` are pixels along the axis. Return None if there are no such copies."""
    if count == 1:
        return as_it_is(window, axis, image)
    tried = (_sized(window, axis, image, outputs, first, count, taps) for first in _first_shifts(window, axis, count)
             for taps in _spread(window.kernel[axis], first, count))
    return min((copies for copies in tried if copies is not None),
               key=lambda copies: copies.size * copies.count + copies.vectors(outputs), default=None)


def _first_shifts(window: Window, axis: int, count: int) -> list[int]:
    """Return the shifts, in taps, that the first of ``count`` copies may have: all forward, all back, or centred."""
    centred = -min(window.pads[axis] // window.dilations[axis], count - 1)
    return list(dict.fromkeys((centred, 0, 1 - count)))


def _shifts(first: int, count: int, dilation: int) -> tuple[int, ...]:
    """Return the shifts, in pixels, of ``count`` copies, of which that of the ``first`` is given in taps."""
    return tuple(dilation * (first + number) for number in range(count))


def _greedy(window: Window, axis: int, image: int, outputs: int, shifts: range) -> tuple[Read, ...]:
    """Return where each tap of the kernel is read in copies of the image's size; nothing if one cannot be.

    ``shifts`` of the copies, in taps. The taps of the kernel that a tap serves lie side by side, so that the one which
    reaches farthest is best."""
    reads: list[Read] = []
    while len(reads) < window.kernel[axis]:
        first = len(reads)
        runs = [_run(window, axis, image, outputs, at, first, shifts)
                for at in range(max(first - shifts[-1], 0), min(first - shifts[0] + 1, window.kernel[axis]))]
        best = max(runs, key=len, default=[])
        if not best:
            return ()
        reads += best
    return tuple(reads)


def _run(window: Window, axis: int, image: int, outputs: int, at: int, first: int, shifts: range) -> list[Read]:
    """Return the taps of the kernel from ``first`` on that the tap ``at`` can serve."""
    found: list[Read] = []
    for tap in range(first, window.kernel[axis]):
        if tap - at not in shifts or not _serves(window, axis, image, outputs, at, tap):
            break
        found.append(Read(tap, at, tap - at - shifts[0]))
    return found


def _serves(window: Window, axis: int, image: int, outputs: int, at: int, tap: int) -> bool:
    """Tell whether ``tap`` falls beside the image for every output for which the tap ``at`` does."""
    (low, high), (first, last) = (window.outputs(axis, number, 0, outputs, image) for number in (at, tap))
    return first == last or low <= first and last <= high


def _spread(taps: int, first: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the taps that read all ``taps`` of a kernel from ``count`` copies, the first of them shifted by ``first``.

    The last one may serve fewer, and so has some choice."""
    starts = [start - first for start in range(0, taps, count)]
    spare = len(starts) * count - taps
    for back in range(spare + 1 if len(starts) > 1 else 1):
        yield (*starts[:-1], starts[-1] - back)


def _sized(window: Window, axis: int, image: int, outputs: int, first: int, count: int,
           taps: tuple[int, ...]) -> AxisCopies | None:
    """Return copies of which the new kernel reads ``taps``, as small as they can be; None if they read nothing."""
    stride, pad, dilation = window.strides[axis], window.pads[axis], window.dilations[axis]
    served = [(tap, at, tap - at - first) for number, at in enumerate(taps)
              for tap in range(number * count, min((number + 1) * count, window.kernel[axis]))]
    apart = math.gcd(*(after - before for before, after in pairwise(taps)))
    step = math.gcd(stride, apart * dilation)
    spans = {tap: window.outputs(axis, tap, 0, outputs, image) for tap, _, _ in served}
    pixels = [at * dilation - pad + output * stride for tap, at, _ in served for low, high in [spans[tap]] if low < high
              for output in (low, high - 1)]
    if not pixels:
        return None
    begin, end = min(pixels), max(pixels) + 1
    before = begin - (taps[0] * dilation - pad)  # of the first window, beside the copies
    reads = tuple(Read(tap, (at - taps[0]) // max(apart, 1), copy) for tap, at, copy in served)
    made = AxisCopies(_shifts(first, count, dilation), reads, begin, (end - 1 - begin) // step + 1, step,
                      reads[-1].at + 1, stride // step, before // step, apart * dilation // step or 1)
    return made if made.front >= 0 and made.behind(image) > -step else None


@dataclass(frozen=True)
class TapCopies:
    """Copies of an image along both axes (``rows``, ``columns``): each of one is there for each of the other."""

    rows: AxisCopies
    columns: AxisCopies

    @property
    def count(self) -> int:
        """The number of copies; copy (i, j) is number i * (copies along columns) + j."""
        return self.rows.count * self.columns.count

    @property
    def size(self) -> Size:
        """The rows and columns of a copy."""
        return self.rows.size, self.columns.size

    def vectors(self, outputs: Size) -> int:
        """Return the vectors of a channel tile that a convolution with so many outputs sends through the array."""
        return self.rows.vectors(outputs[0]) * self.columns.vectors(outputs[1])


def tap_copies(window: Window, image: Size, outputs: Size, most: int, whole: bool) -> list[TapCopies]:
    """Return the ways to lay two to ``most`` copies of an ``image`` under the kernel of a ``window``.

    With ``whole`` the copies are as large as the image, and the window stays."""
    if max(window.kernel) > MOST_TAPS:
        return []
    along = in_place if whole else of_their_own
    rows, columns = ([along(window, axis, image[axis], outputs[axis], count)
                      for count in range(1, min(most, window.kernel[axis]) + 1)] for axis in range(2))
    return [TapCopies(down, across) for down in rows for across in columns
            if down is not None and across is not None and 2 <= down.count * across.count <= most]
