# SPDX-License-Identifier: Apache-2.0
"""The SIMD registers against a table of what was written to each slot: sources, resets, values of lookups."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from weft.hw.simd.micro import Source
from weft.hw.simd.registers import Registers

SLOTS = 4


@pytest.mark.parametrize("tables", [0, 2])
def test_a_slot_has_what_was_written_last_and_slot_0_zeros_after_a_reset(simd: SimpleNamespace, tables: int) -> None:
    """Writes to other slots do not bring back what slot 0 had before the reset."""
    arch = simd.machine(array_size=2, simd_registers_depth=3, **({"lut_count": tables} if tables else {}))
    dut, reset, rng = Registers(arch), Signal(), np.random.default_rng(seed=7)
    number, lanes = arch.number, arch.lane_count
    slots = {(register, 0): [0] * lanes for register in range(1, 4)}
    stale = 0

    def vector() -> list[int]:
        return rng.integers(number.minimum, number.maximum + 1, lanes).tolist()

    async def bench(ctx) -> None:
        nonlocal stale
        expected: dict[str, list[int] | None] = {}
        for _ in range(900):
            input = vector()
            ctx.set(dut.input, input)
            for side, value in expected.items():
                assert [ctx.get(scalar) for scalar in getattr(dut, side)] == (input if value is None else value)
            resets = bool(rng.random() < 0.05)
            ctx.set(reset, resets)
            result, values = vector(), [vector() for _ in range(tables)]
            target, slot = int(rng.integers(4 - tables)), int(rng.integers(SLOTS))
            writes, looks = bool(rng.random() < 0.4), bool(tables and rng.random() < 0.5)
            for name, given in (("write", writes), ("write_number", target), ("write_slot", slot), ("result", result)):
                ctx.set(getattr(dut, name), given)
            if tables:
                ctx.set(dut.write_values, looks)
                ctx.set(dut.values, values)
            if writes:
                written = {target: result} if target else {}
                written |= {target + 1 + table: row for table, row in enumerate(values)} if looks else {}
                slots.update({(register, slot): row for register, row in written.items()})
            expected = {}
            left = [0, 0]
            for side in ("left", "right"):
                source, register = Source(int(rng.integers(4))), int(rng.integers(1, 4))
                known = [place for place in range(SLOTS) if (register, place) in slots]
                at = left[1] if register == left[0] and left[1] in known else int(rng.choice(known))
                if side == "left":
                    left = [register, at]
                ctx.set(getattr(dut, f"{side}_source"), source)
                ctx.set(getattr(dut, f"{side}_number"), register)
                ctx.set(getattr(dut, f"{side}_slot"), at)
                expected[side] = {Source.INPUT: None, Source.ZERO: [0] * lanes, Source.ONE: [number.one] * lanes,
                                  Source.REGISTER: slots[register, at]}[source]
            if resets:
                stale += sum(any(row) for (_, place), row in slots.items() if place == 0)
                slots.clear()
                slots.update({(register, 0): [0] * lanes for register in range(1, 4)})
                expected = {}
            await ctx.tick()

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert stale > 20
