# SPDX-License-Identifier: Apache-2.0
"""Proofs of the tap streams: whatever the pauses, each element of the array meets its lane of earlier vectors."""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.tap_streams import TapStreams
from weft.hw.contract.arch import Arch
from weft.hw.contract.packing import PAIR
from weft.hw.contract.timing import column_groups
from weft.hw.parts.ports import activation_layout
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness, Inside, toggles
from weft.tb.formal.prove import BOUNDED, Proof

LANES4 = SMALL.replace(array_size=4, depthwise_taps=3)
PACKED = SMALL.replace(array_size=6, data_type="INT8", dsp_packing="DSP48E1", depthwise_taps=3)
ROWS3 = SMALL.replace(array_size=9, depthwise_taps=9)


class Element:
    """What an element of the array does with activations: it chooses one, and hands on what passes from the left."""

    def __init__(self, m: Module, shape: signed, name: str) -> None:
        self.activation_i, self.tap_i = Signal(shape, name=f"{name}_left"), Signal(shape, name=f"{name}_tap")
        self.tap_counts, self.depthwise = Signal(name=f"{name}_counts"), Signal(name=f"{name}_depthwise")
        self.activation_o, self.met = (Signal(shape, name=f"{name}_{what}", reset_less=True) for what in ("on", "met"))
        m.d.sync += self.activation_o.eq(self.activation_i)
        m.d.comb += self.met.eq(Mux(self.depthwise, Mux(self.tap_counts, self.tap_i, 0), self.activation_i))


class Streams(wiring.Component):
    """The tap streams with their elements by (row, group of columns), as the array joins them."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self.elements: dict[tuple[int, int], Element] = {}
        super().__init__({
            "activation": In(activation_layout(arch)), "activation_valid": In(1), "depthwise": In(1),
            "taps": In(arch.row_taps),
            **{f"activation_{row}": In(activation_layout(arch)) for row in range(1, arch.kernel_rows)},
            "wave": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m, arch = Module(), self._arch
        streams = TapStreams(m, arch, self)
        m.d.comb += self.wave.eq(self.activation_valid)
        for row in range(arch.array_size):
            left = streams.first(row)
            for group in range(column_groups(arch)):
                element = Element(m, signed(arch.scheme.activation_width), f"element_{row}_{group}")
                streams.give(element, row, group, left)
                self.elements[row, group], left = element, element.activation_o
        return m


def expected(arch: Arch, block: Streams, before: list[list[list[Value]]], row: int, group: int) -> Value:
    """Return what the element must meet of the vector that is given now, by the definition of a depthwise pass.

    ``before`` [kernel row][lane][k]: the lane, k vectors ago."""
    per_tap = arch.tap_rows
    kernel_row, place = divmod(row, arch.row_taps * per_tap)
    tap, side = arch.row_taps - 1 - place // per_tap, place % per_tap
    own: Value = Const(0)
    if kernel_row < arch.kernel_rows:
        first = group * (PAIR if arch.packing else 1)
        lane = first // per_tap * per_tap + side
        own = Mux(block.taps[tap], before[kernel_row][lane][arch.row_taps - 1 - tap], 0)
    return Mux(block.depthwise, own, block.activation[row])


def tap_streams(arch: Arch) -> Callable[[Broken | None], Harness]:
    """Return the proof of a machine's tap streams."""
    def build(broken: Broken | None = None) -> Harness:
        harness, block = Harness(), Streams(arch)
        inside = harness.block(block, broken=broken)
        harness.assume(block.depthwise | (block.taps == 0), "taps_are_depthwise")
        m, valid = harness.m, block.activation_valid
        inputs = [block.activation, *(getattr(block, f"activation_{row}") for row in range(1, arch.kernel_rows))]
        before: list[list[list[Value]]] = []
        for number, vector in enumerate(inputs):
            before.append([])
            for lane in range(arch.array_size):
                shape = signed(arch.scheme.activation_width)
                times = [vector[lane], *(Signal(shape, name=f"before_{number}_{lane}_{k}")
                                         for k in range(1, arch.row_taps))]
                for newer, older in zip(times, times[1:], strict=False):
                    with m.If(valid):
                        m.d.sync += older.eq(newer)
                before[-1].append(times)
        for (row, group), element in block.elements.items():
            late = row + group
            there = harness.late(valid, late, f"valid_{row}_{group}")
            wanted = harness.late(expected(arch, block, before, row, group), late, f"wanted_{row}_{group}").as_signed()
            harness.always(~there | (element.met == wanted), f"met_{row}_{group}")
            harness.always(~element.tap_counts | element.depthwise, f"counts_{row}_{group}")
        keep_true(harness, arch, inside, before)
        last = arch.depthwise_taps * arch.tap_rows - 1  # the row that meets the oldest vector
        there = harness.late(valid & block.depthwise, last, "last_tap")
        harness.cover(there & (block.elements[last, 0].met != 0), "last_tap_met")
        return harness
    return build


def keep_true(harness: Harness, arch: Arch, inside: Inside, before: list[list[list[Value]]]) -> None:
    """Assert what keeps the proof true: a register between two taps holds its lane of the vector before."""
    sides, taps = arch.tap_rows, arch.row_taps
    for kernel_row in range(arch.kernel_rows):
        for group in range(column_groups(arch)):
            first = group * (PAIR if arch.packing else 1) // sides * sides
            for tap in range(1, taps):
                for side in range(sides):
                    row = kernel_row * taps * sides + (taps - 1 - tap) * sides + side
                    wanted = harness.late(before[kernel_row][first + side][taps - tap], row + group,
                                          f"between_{row}_{group}")
                    harness.always(inside(f"before_{row}_{group}") == wanted[:], f"between_{row}_{group}")


PROOFS = [
    Proof("tap_streams", "TapStreams: whatever the pauses, an element meets its lane of the vector that its tap wants, "
          "zero for a tap that does not count, and outside of depthwise passes what comes from the left",
          tap_streams(LANES4), {"before_0_1": toggles}, 8, reaches=True),
    Proof("tap_streams_packed", "TapStreams of an INT8 machine whose columns share multipliers: the same, with two "
          "rows for each tap", tap_streams(PACKED), {"before_1_1": toggles}, 10, fast=False, reaches=True),
    Proof("tap_streams_rows", "TapStreams with three rows of the kernel: the same, each with a row of the image",
          tap_streams(ROWS3), {"before_3_1": toggles}, 9, BOUNDED, fast=False, reaches=True),
]
