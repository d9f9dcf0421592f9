# SPDX-License-Identifier: Apache-2.0
"""The systolic array: weight-stationary, one vector in and one vector out a cycle."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.paired_element import PairedElement, taken_apart
from weft.hw.array.processing_element import ProcessingElement, ShadowWeight
from weft.hw.array.tap_streams import TapStreams
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY, array_latency, column_groups, upper_places
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.operations import shift_width
from weft.hw.parts.ports import activation_layout, sum_layout, vector_layout
from weft.hw.parts.schemes import circuits


class SystolicArray(wiring.Component):
    """``result`` = bias + ``activation`` @ weights, for a vector every cycle; free running, without back-pressure.

    On INT8 machines the array adds no bias: the requantizer does. Columns whose products share DSP blocks act in pairs.

    * ``activation`` counts where ``activation_valid`` is high. The vector's sums are ``result``, ``latency``
      (``timing.array_latency``) cycles later; ``result_coming`` is high ACCUMULATE_DATA_LATENCY cycles before them.
    * ``shift`` shifts ``weight`` into the shadow weight column: it becomes the bias row, what was there moves one row
      down, and the last row is lost. Fewer than array_size + 1 shifts keep the rest.
    * ``swap``, with ``activation_valid``: this vector is the first that uses what the shadow column holds after all
      shifts of earlier cycles. The shadow column stays as it is.
    * With ``weight_load_rows`` 2 the column has two parts, the upper one of ``timing.upper_places``. ``shift`` without
      ``through`` shifts ``lower_weight`` into the first place of the lower part, and the upper part's last row is lost.
    * ``rescale_bias``, with ``activation_valid``: from this vector on the bias is rescaled with ``input_shift``. It
      comes with each swap, and at least ``timing.bias_interval`` cycles after the one before.
    * ``depthwise``, with ``activation_valid``, on machines with ``depthwise_taps``: each column meets its own lanes of
      the last vectors, see :class:`TapStreams`; ``taps`` says which of them count, bit 0 the oldest, and none without
      ``depthwise``. ``activation_1`` and so on: what further rows of the kernel meet.

    Everything travels as a wave, so nothing else needs to be kept apart. A shift may come in the cycle of a swap, which
    does not see it, or in any later one. A swap may come in the cycle after the last shift. Reset clears the valids and
    waves under way; the weight columns keep their values. All weights are zero at power-up."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self.latency = array_latency(arch)
        super().__init__({
            "activation": In(activation_layout(arch)), "activation_valid": In(1), "swap": In(1),
            "rescale_bias": In(1), "input_shift": In(unsigned(shift_width(arch))),
            "weight": In(vector_layout(arch)), "shift": In(1),
            **({"through": In(1), "lower_weight": In(vector_layout(arch))} if arch.weight_load_rows == 2 else {}),
            **({"depthwise": In(1), "taps": In(arch.row_taps)} if arch.depthwise_taps else {}),
            **{f"activation_{row}": In(activation_layout(arch)) for row in range(1, arch.kernel_rows)},
            "result": Out(sum_layout(arch)), "result_coming": Out(1),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit.

        Flow: activations skewed by lane -> rows of elements, top to bottom -> sums deskewed by column -> result."""
        m = Module()
        size, groups = self._arch.array_size, column_groups(self._arch)
        each, width = size // groups, size // groups * self._arch.number.width  # columns of a group, bits of a weight
        # Row r of column j, or pair j, acts r + j cycles after the wave's start, the bias row together with row 0.
        shifts = DelayLine(m, self.shift, size + groups - 2, name="shift_wave", reset=True)
        swaps = DelayLine(m, self.swap & self.activation_valid, size + groups - 2, name="swap_wave", reset=True)
        m.d.comb += self.result_coming.eq(delayed(
            m, self.activation_valid, self.latency - ACCUMULATE_DATA_LATENCY, name="valid_wave", reset=True))

        # Where the column of weights has two parts, from this row on it is the lower one.
        cut = upper_places(self._arch) - 1 if self._arch.weight_load_rows == 2 else size
        if cut < size:
            throughs = DelayLine(m, self.through, cut + groups - 1, name="through_wave")
        streams = TapStreams(m, self._arch, self) if self._arch.depthwise_taps else None
        activations: list[Value] = [
            streams.first(r) if streams else delayed(m, self.activation[r], r, name=f"activation_skew_{r}")
            for r in range(size)]
        columns, biases = [], []
        for j in range(groups):
            m.submodules[f"bias_{j}"] = bias = ShadowWeight(width)
            weight = self._of_group(self.weight, j)
            m.d.comb += [
                bias.link_i.eq(delayed(m, weight, j, name=f"weight_skew_{j}")),
                bias.shift.eq(shifts.tap(j)),
            ]
            active_bias = Signal(signed(width), reset_less=True, name=f"active_bias_{j}")
            with m.If(swaps.tap(j)):
                m.d.sync += active_bias.eq(bias.shadow)
            column = [self._element(r, tap=streams is not None and streams.chosen_inside(r, j)) for r in range(size)]
            for r, element in enumerate(column):
                m.submodules[f"pe_{r}_{j}"] = element
                above = column[r - 1].link_o if r else bias.shadow
                if r == cut:
                    late = delayed(m, self._of_group(self.lower_weight, j), r + j, name=f"lower_weight_skew_{j}")
                    above = Mux(throughs.tap(r + j), above, late)
                m.d.comb += [
                    element.link_i.eq(above),
                    element.shift.eq(shifts.tap(r + j)), element.swap.eq(swaps.tap(r + j)),
                ]
                if streams:
                    streams.give(element, r, j, activations[r])
                else:
                    m.d.comb += element.activation_i.eq(activations[r])
                activations[r] = element.activation_o
            for upper, element in pairwise(column):
                m.d.comb += element.partial_sum_i.eq(upper.partial_sum_o)
            columns.append(column)
            biases.append(active_bias)
        if self._arch.packing:
            totals = [total for j, column in enumerate(columns)
                      for total in taken_apart(m, self._arch, column[-1].partial_sum_o, str(j))]
        else:
            totals = circuits(self._arch).add_biases(
                m, biases, self.rescale_bias & self.activation_valid, self.input_shift, columns)
        for j, total in enumerate(totals):
            m.d.comb += self.result[j].eq(delayed(m, total, groups - 1 - j // each, name=f"deskew_{j}").as_signed())
        return m

    def _element(self, row: int, *, tap: bool) -> PairedElement | ProcessingElement:
        """Return an element of a row. ``tap``: it has an input of its own for a tap."""
        return PairedElement(self._arch, row) if self._arch.packing else ProcessingElement(self._arch, row, tap=tap)

    def _of_group(self, row, j: int) -> Value:
        """Return the weights of a row that the columns of group ``j`` take."""
        each = self._arch.array_size // column_groups(self._arch)
        return Cat(circuits(self._arch).weight(row[k]) for k in range(j * each, (j + 1) * each))


class SystolicArrayReference:
    """The meaning of :class:`SystolicArray` without waves: for each cycle call ``compute`` first, then ``shift``."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self.shadow = np.zeros((arch.array_size + 1, arch.array_size), np.int64)  # row 0 is the bias row
        self.active = self.shadow.copy()
        # Vectors of each row of the kernel, the newest at the end.
        self.last = np.zeros((arch.kernel_rows, arch.row_taps, arch.array_size), np.int64)

    def shift(self, weight: np.ndarray) -> None:
        """Shift one row of weights into the shadow column."""
        self.shadow = np.vstack([weight, self.shadow[:-1]])

    def shift_apart(self, weight: np.ndarray, lower_weight: np.ndarray) -> None:
        """Shift a row of weights into each of the column's two parts."""
        places = upper_places(self._arch)
        self.shadow = np.vstack([weight, self.shadow[:places - 1], lower_weight, self.shadow[places:-1]])

    def compute(self, activation: np.ndarray, input_shift: int, *, swap: bool = False,
                taps: int | None = None, further: np.ndarray | None = None) -> np.ndarray:
        """Return the sums [array_size] of one vector of activations.

        ``swap``: the shadow weights become the weights first. ``taps``: the pass is depthwise, and bit t says
        whether tap t counts. ``further`` [kernel rows - 1, lanes]: what further rows of the kernel meet."""
        if swap:
            self.active = self.shadow
        numbers = self._arch.scheme
        bias = numbers.rescale_bias(self.active[0], input_shift)
        if len(self.last):
            met = activation[None] if further is None else np.vstack([activation, further])
            self.last = np.concatenate([self.last, met[:, None]], axis=1)[:, 1:]
        if taps is None:
            return numbers.mac(activation[None], self.active[1:], bias)[0]
        counts = np.array([taps >> tap & 1 for tap in range(self._arch.row_taps)])[:, None]
        sides, count = self._arch.tap_rows, self._arch.depthwise_taps
        newest_first = (self.last * counts)[:, ::-1].reshape(count, -1, sides)
        met = newest_first.transpose(0, 2, 1).reshape(count * sides, -1)
        columns = [numbers.mac(met[None, :, lane // sides], self.active[1:len(met) + 1, lane:lane + 1],
                               bias[lane:lane + 1])[0, 0] for lane in range(self._arch.array_size)]
        return np.array(columns)
