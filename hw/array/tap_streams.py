# SPDX-License-Identifier: Apache-2.0
"""Depthwise MatMuls in the array: each column meets its own lane, in the rows that hold its taps."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import column_groups
from weft.hw.parts.delay import DelayLine, delayed


class TapStreams:
    """The activations that go into the array's rows; the first ``rows`` rows hold taps.

    A tap has ``tap_rows`` rows, one for each of as many neighbouring lanes. Row t x tap_rows + s of a column takes lane
    s of its group of neighbours, as it was row_taps - 1 - t valid vectors before. The next row_taps taps take theirs of
    ``activation_1``, and so on. All of them act when the wave of a vector passes, as other activations do, so that
    pauses between vectors do not matter.

    ``array`` has the ports of :class:`SystolicArray`. While ``depthwise`` is high, ``taps`` says which taps count.
    The others meet zeros, and so do all rows beyond the taps."""

    def __init__(self, m: Module, arch: Arch, array: Any) -> None:
        self._m, self._arch = m, arch
        groups, size, sides = column_groups(arch), arch.array_size, arch.tap_rows
        self.rows = sides * arch.depthwise_taps
        self._each = sides * arch.row_taps
        self._depthwise = DelayLine(m, array.depthwise, size + groups - 2, name="depthwise_wave")
        last = (arch.kernel_rows - 1) * self._each  # the first of the array's rows that the last row of taps has
        self._valid = DelayLine(m, array.activation_valid, groups - 1 + last, name="tap_valid_wave", reset=True)
        self._counts = [DelayLine(m, bit, self.rows + groups - 2, name=f"tap_{tap}_wave")
                        for tap, bit in enumerate(array.taps)]
        # A lane goes down the group of columns that has it; of two lanes side by side both go down either's.
        self._lanes = [DelayLine(m, array.activation[lane], max(lane, self._last_group(lane)), name=f"lane_{lane}")
                       for lane in range(size)]
        further = [[DelayLine(m, getattr(array, f"activation_{row}")[lane], self._last_group(lane) + row * self._each,
                              name=f"lane_{lane}_of_{row}") for lane in range(size)]
                   for row in range(1, arch.kernel_rows)]
        self._streams = [[met for row, lanes in enumerate([self._lanes, *further])
                          for met in self._stream(group, lanes, row * self._each)] for group in range(groups)]

    def _last_group(self, lane: int) -> int:
        """Return the last group of columns that meets a lane."""
        sides = self._arch.tap_rows
        return (lane // sides * sides + sides - 1) * column_groups(self._arch) // self._arch.array_size

    def _stream(self, group: int, lanes: list[DelayLine], first: int) -> list[Value]:
        """Return the activation that one group of columns meets in each row with taps of one kernel row.

        ``first``: the first of these rows. ``lanes``: what the kernel row meets, as late as the wave is there."""
        m, taps, sides = self._m, self._arch.row_taps, self._arch.tap_rows
        column = group * self._arch.array_size // column_groups(self._arch)
        found: dict[int, Value] = {}
        for side in range(sides):
            newest: Value = lanes[column // sides * sides + side].tap(group + first)
            for tap in reversed(range(taps)):
                row = first + tap * sides + side
                met = delayed(m, newest, row - first, name=f"tap_skew_{row}_{group}")
                found[row] = Mux(self._counts[tap].tap(group + row), met, 0)
                if tap:
                    older = Signal(len(newest), reset_less=True, name=f"before_{row}_{group}")
                    with m.If(self._valid.tap(group + first)):
                        m.d.sync += older.eq(newest)
                    newest = older
        return [found[row] for row in range(first, first + self._each)]

    def first(self, row: int) -> Value:
        """Return the activation that enters the first column of a row: the row's lane, ``row`` cycles late.

        Rows beyond the taps get zero in a depthwise pass."""
        if row < self.rows:
            return self._lanes[row].tap(row)
        met = Signal(len(self._lanes[row].tap(0)), reset_less=True, name=f"activation_skew_{row}")
        self._m.d.sync += met.eq(self._lanes[row].tap(row - 1))
        with self._m.If(self._depthwise.tap(row - 1)):
            self._m.d.sync += met.eq(0)
        return met

    def choose(self, row: int, group: int, left: Value) -> Value:
        """Return the activation that a row meets in a group of columns: ``left`` of it, or the row's own stream."""
        if row >= self.rows:
            return left
        return Mux(self._depthwise.tap(row + group), self._streams[group][row], left)
