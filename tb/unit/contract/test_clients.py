# SPDX-License-Identifier: Apache-2.0
"""Which units read and write a memory: the table, written out by hand, and the ports that the units have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amaranth.lib.wiring import Component

from weft.hw.array.load_weight_unit import LoadWeightUnit
from weft.hw.array.mat_mul_unit import MatMulUnit
from weft.hw.bus.dram_reader import DramReader
from weft.hw.bus.dram_writer import DramWriter
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.units import UNIT_NAMES, Memory, clients, unit_names
from weft.hw.control.sync_unit import SyncUnit
from weft.hw.memory.move_in import MoveInUnit
from weft.hw.memory.move_out import MoveOutUnit
from weft.hw.memory.scaled_move_out import ScaledMoveOutUnit
from weft.hw.simd.simd_unit import SimdUnit

WITHOUT_TABLES = Arch.load("tiny").replace(lut_count=0)
WITH_TABLES = WITHOUT_TABLES.replace(simd_registers_depth=2, lut_count=1)
WITH_SCALES = WITHOUT_TABLES.replace(data_type="INT8")
ONE_PORT = WITHOUT_TABLES.replace(dram_ports=SHARED)
KINDS: dict[str, Callable[[Arch], Component]] = {
    "load_weight": LoadWeightUnit, "mat_mul": MatMulUnit, "simd": SimdUnit,
    "move_out": lambda arch: (ScaledMoveOutUnit if arch.data_type == "INT8" else MoveOutUnit)(arch),
         "move_in": MoveInUnit, "dram0_read": DramReader, "dram0_write": DramWriter, "dram1_read": DramReader,
         "dram1_write": DramWriter, "dram_read": DramReader, "dram_write": DramWriter, "sync": SyncUnit}


def test_clients_by_hand() -> None:
    """Only LoadLUT takes the SIMD unit to local memory, and only LoadScale makes the move-out unit read it."""
    assert clients(WITHOUT_TABLES, Memory.LOCAL, writes=False) == (
        "load_weight", "mat_mul", "move_in", "dram0_write", "dram1_write")
    assert clients(WITH_TABLES, Memory.LOCAL, writes=False) == (
        "load_weight", "mat_mul", "simd", "move_in", "dram0_write", "dram1_write")
    assert clients(WITH_SCALES, Memory.LOCAL, writes=False) == (
        "load_weight", "mat_mul", "move_out", "move_in", "dram0_write", "dram1_write")
    assert clients(WITHOUT_TABLES, Memory.LOCAL, writes=True) == ("move_out", "dram0_read", "dram1_read")
    assert clients(WITHOUT_TABLES, Memory.ACCUMULATORS, writes=False) == ("simd", "move_out")
    assert clients(WITHOUT_TABLES, Memory.ACCUMULATORS, writes=True) == ("mat_mul", "simd", "move_in")
    assert clients(WITHOUT_TABLES, Memory.DRAM0, writes=True) == ("dram0_write",)
    assert clients(ONE_PORT, Memory.LOCAL, writes=False) == ("load_weight", "mat_mul", "move_in", "dram_write")
    assert clients(ONE_PORT, Memory.LOCAL, writes=True) == ("move_out", "dram_read")
    assert clients(ONE_PORT, Memory.DRAM1, writes=False) == ("dram_read",)


@pytest.mark.parametrize("arch", [WITHOUT_TABLES, WITH_TABLES, WITH_SCALES, ONE_PORT],
                         ids=["without tables", "with tables", "with scales", "one port"])
def test_a_unit_has_a_port_exactly_where_it_is_a_client(arch: Arch) -> None:
    assert tuple(KINDS) == UNIT_NAMES
    for memory, port in ((Memory.LOCAL, "local"), (Memory.ACCUMULATORS, "accumulator")):
        for kind, writes in (("read", False), ("write", True)):
            having = tuple(name for name in unit_names(arch) if f"{port}_{kind}" in KINDS[name](arch).signature.members)
            assert having == clients(arch, memory, writes=writes), (memory, kind)
