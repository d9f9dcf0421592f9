# SPDX-License-Identifier: Apache-2.0
"""Proofs of what only INT8 machines have: two sums in one cascade, and requantization by a scale of every lane.

No multiplier is looked into: a product is anything, one lane's as good as the other's."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, LOCAL_READ_LATENCY, READ_STREAM_SPARE
from weft.hw.memory.scaled_move_out import ScaledMoveOutUnit
from weft.hw.memory.scaler import CLIPPED, PRODUCT, SATURATED, Scaler
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.walker import Walker
from weft.tb.bench.apart import Apart
from weft.tb.formal.archs import BYTES
from weft.tb.formal.harness import Broken, Harness, Inside, is_one, is_zero, ones, toggles
from weft.tb.formal.prove import Proof
from weft.tb.formal.streams import read_stream_counts, rules

LARGEST_PRODUCT = 127 * 255
BYTE, VECTORS, MULTIPLIER, BIAS = 8, 7, slice(0, 17), slice(24, 56)
"""The bits of a byte, the vectors of a LoadScale, and the bits of a lane's bytes that are multiplier and bias."""
MOST_SHIFT, SUM_WIDTH, PRODUCT_WIDTH = 42, 25, 43
OUTSTANDING = 2
"""The operations of the move-out unit that the interlock lets be under way."""


def limited(value: Value, width: int) -> Value:
    """Return a value clipped to signed ``width`` bits."""
    most = (1 << width - 1) - 1
    return Mux(value > most, Const(most), Mux(value < -most - 1, Const(-most - 1), value))


# -- two sums in one cascade -------------------------------------------------------------------------------------------
def pairs_apart(arch: Arch, bits: int) -> Any:
    """Return a function that makes the proof that two sums in one cascade are taken apart.

    The low sum is as large as a column's can be, and the high one is any."""
    def build(broken: Broken | None = None) -> Harness:
        assert arch.packing is not None and arch.residue_bits == bits
        harness, block = Harness(), Apart(arch)
        harness.block(block, leave=("sums",), broken=broken)
        width, most = len(block.low), arch.array_size * LARGEST_PRODUCT
        low, high = Signal(signed(width)), Signal(signed(width))
        harness.free(low, "low_free")
        harness.free(high, "high_free")
        harness.assume((low >= -most) & (low <= most), "low_is_a_sum")
        sums = harness.past(low, "low"), harness.past(high, "high")
        harness.m.d.comb += [block.sums.residue.eq(high),  # a cycle ahead
                             block.sums.cascade.eq((sums[1] << arch.packing.distance) + sums[0])]
        for found, told, name in ((block.low, sums[0], "low"), (block.high, sums[1], "high")):
            harness.always(found.as_signed() == harness.past(told, f"{name}_told"), f"{name}_comes_back")
        return harness
    return build


def packed(rows: int, block: str) -> Arch:
    return BYTES.replace(array_size=rows, dsp_packing=block)


# -- the scaler --------------------------------------------------------------------------------------------------------
def any_product(harness: Harness, path: str) -> tuple[Signal, Broken]:
    """Return a free signal in place of lane 0's product, and the break that puts it there."""
    product = Signal(signed(PRODUCT_WIDTH), name="any_product")
    harness.free(product, "product_free")
    return product, {path: lambda *_: product}


def rounded(value: Value, shift: Value) -> Value:
    """Return a signed value / 2**shift, rounded to the nearest integer, of two to the even one."""
    one = (Const(1, 1) << shift)[:MOST_SHIFT + 1]
    floor, rest = value >> shift, value.as_unsigned() & (one - 1)[:MOST_SHIFT + 1]
    return floor + ((rest + rest > one) | ((rest + rest == one) & floor[0]))


def scaler_rounds(broken: Broken | None = None) -> Harness:
    harness, block = Harness(), Scaler(BYTES)
    product, cut = any_product(harness, "product_0")
    harness.block(block, broken=cut | (broken or {}))
    harness.assume(block.shift <= MOST_SHIFT, "legal_shift")
    shift, zero, relu = (harness.late(value, PRODUCT - 1, name) for name, value in (
        ("shift", block.shift), ("zero", block.zero), ("relu", block.relu)))
    scalar = limited(rounded(product, shift) + zero.as_signed(), BYTE)
    expected = Mux(relu & (scalar < zero.as_signed()), zero.as_signed(), scalar)
    told = harness.late(expected[:BYTE], CLIPPED - PRODUCT + 1, "expected")
    # A product that is zero in the first cycles leaves as the zero point, which may be anything.
    harness.always(~harness.late(Const(1, 1), CLIPPED, "begun") | (block.scalars[0].as_unsigned() == told), "scalar")
    return harness


def scaler_sums(broken: Broken | None = None) -> Harness:
    """Prove what is multiplied: the row with its bias, saturated, and the multiplier of the same cycle."""
    harness, block = Harness(), Scaler(BYTES)
    inside = harness.block(block, broken=broken)
    scale = inside("scale_0")
    total = block.row[0] + scale[BIAS].as_signed()
    harness.always(inside("total_0") == harness.late(total, 1, "total_told").as_signed(), "total")
    told = limited(harness.late(total, SATURATED, "told").as_signed(), SUM_WIDTH)
    harness.always(inside("saturated_0") == told, "saturated")
    harness.always(inside("multiplier_2_0") == harness.late(scale[MULTIPLIER], SATURATED, "multiplier"), "multiplier")
    return harness


def scaler_takes(broken: Broken | None = None) -> Harness:
    """Prove that as many vectors as a LoadScale has, from any one on, are the scales until the next one comes."""
    harness, block = Harness(), Scaler(BYTES)
    inside, m = harness.block(block, broken=broken), harness.m
    scales = Cat(inside("scale_0"), inside("scale_1"))
    harness.always(harness.past(block.take, "take") | (scales == harness.past(scales, "scales")), "unchanged")
    begin, taken = Signal(name="begin"), Signal(range(VECTORS + 2), name="vectors_taken")
    harness.free(begin, "begin_free")
    with m.If(block.take & ((taken != 0) | begin) & (taken <= VECTORS)):
        m.d.sync += taken.eq(taken + 1)
    for lane in range(2):
        told = Signal(VECTORS * BYTE, name=f"told_{lane}")
        for index in range(VECTORS):
            with m.If(block.take & (taken == index)):
                m.d.sync += told[index * BYTE:(index + 1) * BYTE].eq(block.scale[lane])
        for count in range(1, VECTORS + 1):
            found = inside(f"scale_{lane}")[(VECTORS - count) * BYTE:]
            harness.always((taken != count) | (found == told[:count * BYTE]), f"lane{lane}_{count}")
    return harness


# -- the unit ----------------------------------------------------------------------------------------------------------
LATENCY = {"local_read": LOCAL_READ_LATENCY, "accumulator_read": ACCUMULATOR_READ_LATENCY}


class Moving:
    """The rows of the unit that are requested and not written, counted in ``rows`` and tied to what is inside.

    Assumed: no more operations than the interlock lets be under way, and that the ReadStream keeps its tags in order
    (``order_read_stream``). Asserted: everything else that says when all is written."""

    def __init__(self, harness: Harness, block: ScaledMoveOutUnit, inside: Inside, arch: Arch = BYTES) -> None:
        m, request, write = harness.m, block.accumulator_read.request, block.local_write.request
        in_memory = Cat(harness.under_way["accumulator_read_request"], inside("scaled"))
        read_stream_counts(harness, inside, "rows.", in_memory)
        walked = Walker.walked(operation_layout(arch, "move_out"), ("accumulator", "local"))
        walks, at = inside("walker.o__valid"), data.View(walked, inside("walker.at"))
        waiting, moving = inside("written.o__valid"), inside("moving")
        asked, written = request.valid & request.ready, write.valid & write.ready
        most = len(in_memory) + READ_STREAM_SPARE + 1
        self.rows = rows = harness.count(asked, written, most, "rows_not_written")
        lasts = Signal(most, name="lasts")  # whether each of them is its operation's last, the oldest first
        m.d.sync += lasts.eq((lasts >> written) | ((asked & at.last) << (rows - written)[:len(rows)]))
        running = harness.count(block.operation.valid & block.operation.ready, block.done, OUTSTANDING, "running")
        harness.assume(~block.operation.valid | (running < OUTSTANDING), "room_for_the_operation")
        harness.assume(~inside("rows.o__valid") | (inside("rows.o__payload")[-1] == lasts.bit_select(waiting, 1)),
                       "tags_in_order")
        harness.always(rows == inside("rows.under_way") + waiting, "rows_counted")
        harness.always(~waiting | (inside("written.payload")[-1] == lasts[0]), "the_oldest_waits")
        harness.always((lasts >> rows) == 0, "lasts_of_rows")
        harness.always(moving == ones(lasts), "a_last_row_each")
        harness.always((running == moving + walks) & (running <= OUTSTANDING), "operations_counted")
        whole = (rows == 0) | lasts.bit_select((rows - 1)[:len(rows)], 1)
        loads = at.operation.load_scale | (at.operation.load_table if arch.activation_tables else 0)
        harness.always(whole | (walks & ~loads), "more_of_the_newest_comes")


def scales_in_order(broken: Broken | None = None) -> Harness:
    """Prove that scales are requested only when all rows before them are written, and meet the right rows.

    When a row comes to the scaler, those scales have come that were requested before it, and no others."""
    harness, block = Harness(), ScaledMoveOutUnit(BYTES)
    inside = harness.block(block, rules=False, latency=LATENCY, broken=broken)
    moving, request = Moving(harness, block, inside), block.local_read.request
    harness.always(~request.valid | (moving.rows == 0), "all_is_written")
    asked, came = Signal(8, name="scales_asked"), Signal(8, name="scales_came")
    harness.m.d.sync += [asked.eq(asked + (request.valid & request.ready)), came.eq(came + inside("take"))]
    scales, rows = (harness.under_way[f"{name}_request"] for name in LATENCY)
    harness.always(asked == (came + ones(scales))[:len(asked)], "scales_counted")
    before: Value = asked
    for cycles in range(1, ACCUMULATOR_READ_LATENCY + 1):  # ago a row was requested: no scale since
        before = harness.past(before, f"asked_{cycles}")
        none_since = (before == asked) & ~scales[:cycles].any()
        harness.always(~rows[cycles - 1] | none_since, f"no_scale_for_{cycles}")
    harness.always(~block.accumulator_read.response.valid | (came == before), "scales_of_the_row")
    return harness


PAIRS: tuple[tuple[str, str, int, int, Broken], ...] = (
    ("dsp48e1", "DSP48E1", 16, 3, {"residue_pair": is_zero}),
    ("dsp48e2", "DSP48E2", 24, 2, {"residue_pair": is_zero}),
    ("no_residue", "DSP48E2", 8, 0, {"high_pair": toggles}))
"""The cascades of pairs. The first two are those of ``pynq_int8`` and ``ultra96_int8``."""

PROOFS = [
    *(Proof(f"pairs_apart_{name}",
            f"paired columns: both sums come back, {rows} rows of {block}, {bits} bits of residue",
            pairs_apart(packed(rows, block), bits), broken)
      for name, block, rows, bits, broken in PAIRS),
    Proof("scaler_rounds", "Scaler: any product leaves rounded half to even, with its zero point, ReLU, saturated",
          scaler_rounds, {"passed_0": lambda inside, _: inside("product_0") + 1}, CLIPPED + 2, fast=False),
    Proof("scaler_sums", "Scaler: row + bias, saturated, meets the multiplier of its own cycle",
          scaler_sums, {"saturated_0": lambda inside, _: inside("total_0")}),
    Proof("scaler_takes", "Scaler: as many vectors as a LoadScale has become the scales; without one they stay",
          scaler_takes, {"scale_0": lambda _, scale: scale}),
    rules("scaled_move_out", "reads and writes of the ScaledMoveOutUnit", lambda: ScaledMoveOutUnit(BYTES),
          {"walker.o__valid": toggles}, latency=LATENCY, invariants=Moving, fast=False),
    Proof("scales_in_order",
          "ScaledMoveOutUnit: rows leave by the scales before them, which wait for all written before",
          scales_in_order, {"local_read__request__valid": is_one}, fast=False),
]
