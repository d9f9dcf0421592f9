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

    A tap has ``tap_rows`` rows, one for each of as many neighbouring lanes. Row k x tap_rows + s of a column takes lane
    s of its group of neighbours, as it was k valid vectors before: the last tap has the first rows. The next row_taps
    taps take theirs of ``activation_1``, and so on. All of them act when the wave of a vector passes, as other
    activations do, so that pauses between vectors do not matter.

    ``array`` has the ports of :class:`SystolicArray`. While ``depthwise`` is high, ``taps`` says which taps count.
    The others meet zeros, and so do all rows beyond the taps."""

    def __init__(self, m: Module, arch: Arch, array: Any) -> None:
        self._m, self._arch = m, arch
        groups, size, sides = column_groups(arch), arch.array_size, arch.tap_rows
        self.rows = sides * arch.depthwise_taps
        self._each = sides * arch.row_taps
        self._depthwise = DelayLine(m, array.depthwise, size + groups - 2, name="depthwise_wave")
        self._valid = DelayLine(m, array.activation_valid, groups - 1 + self.rows, name="tap_valid_wave", reset=True)
        self._counts = [DelayLine(m, bit, self.rows + groups - 2, name=f"tap_{tap}_wave")
                        for tap, bit in enumerate(array.taps)]
        # A lane goes down the group of columns that has it; of two lanes side by side both go down either's.
        self._lanes = [DelayLine(m, array.activation[lane], max(lane, self._latest(lane)), name=f"lane_{lane}")
                       for lane in range(size)]
        further = [[DelayLine(m, getattr(array, f"activation_{row}")[lane], self._latest(lane) + row * self._each,
                              name=f"lane_{lane}_of_{row}") for lane in range(size)]
                   for row in range(1, arch.kernel_rows)]
        self._streams = [[met for row, lanes in enumerate([self._lanes, *further])
                          for met in self._stream(group, lanes, row * self._each)] for group in range(groups)]

    def _latest(self, lane: int) -> int:
        """Return the cycles after which the last group of columns meets a lane in the lane's first row of taps."""
        side, sides = lane % self._arch.tap_rows, self._arch.tap_rows
        return (lane - side + sides - 1) * column_groups(self._arch) // self._arch.array_size + side

    def _stream(self, group: int, lanes: list[DelayLine], first: int) -> list[tuple[Value, Value]]:
        """Return what one group of columns meets in each row with taps of one kernel row, and whether its tap counts.

        ``first``: the first of these rows. ``lanes``: what the kernel row meets, as late as the wave is there.

        A vector goes down one tap with each that comes after it, and reaches a row together with the wave."""
        m, taps, sides = self._m, self._arch.row_taps, self._arch.tap_rows
        column = group * self._arch.array_size // column_groups(self._arch)
        found: dict[int, tuple[Value, Value]] = {}
        for side in range(sides):
            met: Value = lanes[column // sides * sides + side].tap(group + first + side)
            for row, tap in zip(range(first + side, first + self._each, sides), reversed(range(taps)), strict=True):
                found[row] = met, self._counts[tap].tap(group + row)
                if tap:
                    before = Signal(len(met), reset_less=True, name=f"before_{row}_{group}")
                    with m.If(self._valid.tap(group + row)):
                        m.d.sync += before.eq(met)
                    met = delayed(m, before, sides, name=f"tap_skew_{row}_{group}")
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

    def chosen_inside(self, row: int, group: int) -> bool:
        """Return whether an element chooses by itself between its row's own stream and what passes from the left.

        The first columns' lanes come from the left anyway. Elements that share multipliers have no input for a tap."""
        return row < self.rows and (group > 0 or row >= self._arch.tap_rows) and not self._arch.packing

    def give(self, element: Any, row: int, group: int, left: Value) -> None:
        """Give an element what it meets: the activation ``left`` of it, or its row's own stream."""
        if row >= self.rows:
            self._m.d.comb += element.activation_i.eq(left)
            return
        (met, counts), depthwise = self._streams[group][row], self._depthwise.tap(row + group)
        if self.chosen_inside(row, group):
            self._m.d.comb += [element.activation_i.eq(left), element.tap_i.eq(met), element.tap_counts.eq(counts),
                               element.depthwise.eq(depthwise)]
        else:
            self._m.d.comb += element.activation_i.eq(Mux(depthwise, Mux(counts, met, 0), left))
