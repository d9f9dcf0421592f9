# SPDX-License-Identifier: Apache-2.0
"""Proofs of activation tables: what was loaded last is what is looked up."""

from __future__ import annotations

from amaranth.hdl import Cat, Signal, signed

from weft.hw.contract.schemes import TABLE_ENTRIES
from weft.hw.contract.timing import ACTIVATION_TABLE_LATENCY
from weft.hw.memory.activation_tables import WRITTEN, ActivationTables
from weft.hw.memory.scaled_move_out import ScaledMoveOutUnit
from weft.tb.formal.archs import BYTES
from weft.tb.formal.harness import Broken, Harness, is_one
from weft.tb.formal.prove import Proof
from weft.tb.formal.scaled import LATENCY, Moving

TABLES = BYTES.replace(local_depth=TABLE_ENTRIES, activation_tables=2)
"""A machine of two lanes of bytes with two tables, which are as long as local memory."""
BYTE = 8
LANE = 1
"""The lane that is looked at: one is as good as the other."""


def activation_tables(broken: Broken | None = None) -> Harness:
    """Prove any entry of any table: a load of it is followed, whatever else is loaded and looked up."""
    harness, block = Harness(), ActivationTables(TABLES)
    inside = harness.block(block, broken=broken)
    table = harness.constant(range(TABLES.activation_tables + 1), "table")
    scalar = harness.constant(signed(BYTE), "scalar")
    harness.assume((table > 0) & (table <= TABLES.activation_tables), "a_table")
    harness.assume((block.load_table > 0) & (block.load_table <= TABLES.activation_tables), "a_load_table")
    place, value = Signal(range(TABLE_ENTRIES)), Signal(signed(BYTE), name="entry_value")
    harness.m.d.comb += place.eq(scalar + TABLE_ENTRIES // 2)  # byte -128 is the first
    entry, loads = inside("entry"), Signal(range(TABLE_ENTRIES), name="loads")
    written = Signal()
    harness.m.d.comb += written.eq(block.load & (block.load_table == table) & (loads == place))
    with harness.m.If(block.load):
        harness.m.d.sync += loads.eq(loads + 1)
    with harness.m.If(written):
        harness.m.d.sync += value.eq(block.vector[LANE])
    address = Cat(scalar[:-1], ~scalar[-1], table == TABLES.activation_tables)
    harness.always(loads == entry, "a_load_an_entry")
    harness.always(inside.watch(harness, f"table_{LANE}", address) == value.as_unsigned(), "stored")
    # a lookup in the cycle of a write may see either
    looks = (block.table == table) & (block.scalars[LANE] == scalar) & ~written
    looked_up = block.looked_up[LANE]
    for name, condition, expected in (("the_entry", looks, value),
                                      ("as_it_was", block.table == 0, block.scalars[LANE])):
        harness.always(~harness.late(condition, ACTIVATION_TABLE_LATENCY, name)
                       | (looked_up == harness.late(expected, ACTIVATION_TABLE_LATENCY, f"{name}_then").as_signed()),
                       name)
    return harness


def tables_in_order(broken: Broken | None = None) -> Harness:
    """Prove that the vectors of a table wait until those that were looked up before them are written."""
    harness, block = Harness(), ScaledMoveOutUnit(TABLES)
    inside = harness.block(block, rules=False, latency=LATENCY, broken=broken)
    harness.always(~block.local_read.request.valid | (Moving(harness, block, inside, TABLES).rows == 0),
                   "all_is_written")
    return harness


assert WRITTEN == 1, "what the proof excuses"

PROOFS = [
    Proof("activation_tables", "ActivationTables: a lookup gives what was loaded last, and table 0 the byte itself",
          activation_tables,
          {"entry": lambda _, entry: entry + 1}, ACTIVATION_TABLE_LATENCY + 2, fast=False),
    Proof("tables_in_order", "ScaledMoveOutUnit: scales and tables wait until all rows before them are written",
          tables_in_order, {"local_read__request__valid": is_one}, fast=False),
]
