# SPDX-License-Identifier: Apache-2.0
"""The systolic array against its reference: latency, the wave rules, partial loads, edges of the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from weft.hw.array.systolic_array import SystolicArray, SystolicArrayReference
from weft.hw.contract import numerics
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY, array_latency, bias_interval, load_weight_cycles

TYPES = ("FP8BP4", "FP16BP8", "FP18BP10")
ROUNDINGS = ("once", "every_step")


def machine(size: int, data_type: str = "FP16BP8", mac_rounding: str = "once", dsp_packing: str = "none",
            weight_load_rows: int = 1) -> Arch:
    return Arch.load("tiny").replace(array_size=size, data_type=data_type, mac_rounding=mac_rounding,
                                     dsp_packing=dsp_packing, weight_load_rows=weight_load_rows)


def vectors(rng: np.random.Generator, arch: Arch, count: int, ends: tuple[int, int] | None = None) -> np.ndarray:
    """Random rows; every third one holds the ends of the range, the scalars' where nothing is said."""
    low, high = ends or (arch.number.minimum, arch.number.maximum)
    rows = rng.integers(low, high + 1, (count, arch.array_size))
    rows[::3] = rng.choice([low, high], rows[::3].shape)
    return rows


LARGEST_BYTE = 255
"""An activation minus its zero point, in magnitude."""


class Schedule:
    """What is given to the array in each cycle; all arrays are indexed by the cycle. ``apart``: ``shift`` is not
    ``through``, on machines of two rows of weights a cycle."""

    def __init__(self, arch: Arch, cycles: int, seed: int = 0) -> None:
        self.arch, rng = arch, np.random.default_rng(seed)
        ends = (-LARGEST_BYTE, LARGEST_BYTE) if arch.scheme.per_lane else None
        self.activation, self.weight = vectors(rng, arch, cycles, ends), vectors(rng, arch, cycles)
        self.input_shift = rng.integers(0, arch.accumulator_bits, cycles) if arch.scheme.chooses_points else \
            np.full(cycles, arch.number.point)
        self.lower_weight = vectors(rng, arch, cycles) if arch.weight_load_rows == 2 else None
        self.valid, self.swap, self.shift, self.enter, self.apart, self.depthwise = np.zeros((6, cycles), bool)
        self.taps = np.zeros(cycles, np.int64)
        further = [vectors(rng, arch, cycles, ends) for _ in range(1, arch.kernel_rows)]
        self.further = np.stack(further, axis=1) if further else np.zeros(0)

    def settle(self) -> None:
        """Swaps and other shifts no sooner than the bias may enter again; each enters it."""
        since = bias_interval(self.arch)
        shift = 0 if self.arch.scheme.chooses_points else int(self.input_shift[0])
        for cycle in range(len(self.valid)):
            may = self.valid[cycle] and since >= bias_interval(self.arch)
            self.swap[cycle] &= may or not self.valid[cycle]
            self.enter[cycle] = may and (self.swap[cycle] or self.input_shift[cycle] > self.arch.accumulator_bits // 2)
            shift = int(self.input_shift[cycle]) if self.enter[cycle] else shift
            self.input_shift[cycle] = shift if self.valid[cycle] else self.input_shift[cycle]
            since = 1 if self.enter[cycle] else since + 1

    def expected(self) -> dict[int, list[int]]:
        """Cycle -> result, for the cycles with a valid result."""
        reference, results = SystolicArrayReference(self.arch), {}
        for cycle in range(len(self.valid)):
            if self.valid[cycle]:
                results[cycle + array_latency(self.arch)] = reference.compute(
                    self.activation[cycle], int(self.input_shift[cycle]), swap=self.swap[cycle],
                    taps=int(self.taps[cycle]) if self.depthwise[cycle] else None,
                    further=self.further[cycle] if len(self.further) else None).tolist()
            if self.shift[cycle] and self.apart[cycle] and self.lower_weight is not None:
                reference.shift_apart(self.weight[cycle], self.lower_weight[cycle])
            elif self.shift[cycle]:
                reference.shift(self.weight[cycle])
        return results

    def check(self) -> None:
        """Run the hardware; every result must come in its cycle and in no other."""
        dut, arch = SystolicArray(self.arch), self.arch
        self.settle()
        expected, seen, coming = self.expected(), {}, set()

        async def bench(ctx) -> None:
            for cycle in range(len(self.valid) + array_latency(arch) + 1):
                given = min(cycle, len(self.valid) - 1)
                live = cycle < len(self.valid)
                ctx.set(dut.activation, self.activation[given].tolist())
                ctx.set(dut.weight, self.weight[given].tolist())
                ctx.set(dut.input_shift, int(self.input_shift[given]))
                ctx.set(dut.activation_valid, int(live and self.valid[given]))
                ctx.set(dut.swap, int(live and self.swap[given]))
                ctx.set(dut.rescale_bias, int(live and self.enter[given]))
                ctx.set(dut.shift, int(live and self.shift[given]))
                if self.lower_weight is not None:
                    ctx.set(dut.through, int(live and not self.apart[given]))
                    ctx.set(dut.lower_weight, self.lower_weight[given].tolist())
                if arch.depthwise_taps:
                    ctx.set(dut.depthwise, int(self.depthwise[given]))
                    ctx.set(dut.taps, int(self.taps[given]))
                for row in range(1, arch.kernel_rows):
                    ctx.set(getattr(dut, f"activation_{row}"), self.further[given, row - 1].tolist())
                if ctx.get(dut.result_coming):
                    coming.add(cycle + ACCUMULATE_DATA_LATENCY)
                if cycle in coming:
                    seen[cycle] = [ctx.get(dut.result[j]) for j in range(arch.array_size)]
                await ctx.tick()

        simulator = Simulator(dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        assert seen == expected


@pytest.mark.wide_cases("8-every_step")
@pytest.mark.parametrize("mac_rounding", ROUNDINGS)
@pytest.mark.parametrize("size", (2, 3, 8))
def test_random_waves_match_reference(size: int, mac_rounding: str) -> None:
    """Valid, swap and shift at random in every cycle, in every combination; partial loads among them."""
    schedule = Schedule(machine(size, mac_rounding=mac_rounding), 60 + 20 * size, seed=size)
    rng = np.random.default_rng(seed=size + 100)
    schedule.valid, schedule.shift = rng.random((2, len(schedule.valid))) < 0.6
    schedule.swap = rng.random(len(schedule.valid)) < 0.3
    schedule.check()


@pytest.mark.parametrize("mac_rounding", ROUNDINGS)
@pytest.mark.parametrize("data_type", TYPES)
def test_types(data_type: str, mac_rounding: str) -> None:
    schedule = Schedule(machine(3, data_type, mac_rounding), 120, seed=7)
    schedule.shift[:4] = True
    schedule.valid[4:] = True
    schedule.swap[4::4] = True
    schedule.shift[10:] = np.random.default_rng(8).random(110) < 0.3
    schedule.check()


@pytest.mark.parametrize("size", (2, 3, 8))
def test_weights_change_without_a_bubble(size: int) -> None:
    """MatMul after MatMul of array_size + 1 vectors: a load starts with one swap and ends right before the next."""
    rows, matmuls = size + 1, 5
    schedule = Schedule(machine(size), rows * (matmuls + 1))
    schedule.shift[:rows * matmuls] = True     # the last shift of each load lies one cycle before the swap,
    schedule.swap[rows::rows] = True           # the first of the next load in the cycle of the swap
    schedule.valid[rows:] = True
    schedule.check()


@pytest.mark.parametrize("rows", (1, 2, 3))
def test_partial_load_keeps_the_rest(rows: int) -> None:
    schedule = Schedule(machine(3), 40)
    schedule.shift[:4] = True
    schedule.valid[5:] = True
    schedule.swap[5] = True
    schedule.shift[10:10 + rows] = True
    schedule.swap[10 + rows] = True
    schedule.swap[30] = True  # a second swap without a load changes nothing
    schedule.check()


def test_swap_without_a_vector_is_no_swap() -> None:
    schedule = Schedule(machine(2), 20)
    schedule.shift[:3] = True
    schedule.swap[4] = True
    schedule.valid[6:] = True
    schedule.check()
    assert not np.array(list(schedule.expected().values())).any()


PACKED = ((2, "DSP48E1"), (4, "DSP48E1"), (6, "DSP48E1"), (4, "DSP48E2"))


@pytest.mark.parametrize(("size", "dsp_packing"), [(3, "none"), *PACKED])
def test_random_waves_of_bytes_match_reference(size: int, dsp_packing: str) -> None:
    schedule = Schedule(machine(size, "INT8", dsp_packing=dsp_packing), 60 + 20 * size, seed=size)
    rng = np.random.default_rng(seed=size + 200)
    schedule.valid, schedule.shift = rng.random((2, len(schedule.valid))) < 0.6
    schedule.swap = rng.random(len(schedule.valid)) < 0.3
    schedule.check()


@pytest.mark.parametrize(("size", "keys"), [
    *((size, {}) for size in (2, 3, 4, 8)), (5, {"mac_rounding": "every_step"}), (3, {"data_type": "INT8"}),
    *((size, {"data_type": "INT8", "dsp_packing": block}) for size, block in PACKED)])
def test_random_waves_of_two_rows_match_reference(size: int, keys: dict[str, str]) -> None:
    """Rows for both parts and through both, at random in every cycle, with swaps among them."""
    schedule = Schedule(machine(size, weight_load_rows=2, **keys), 100 + 30 * size, seed=size)
    rng = np.random.default_rng(seed=size + 300)
    schedule.valid, schedule.shift = rng.random((2, len(schedule.valid))) < 0.6
    schedule.apart = np.repeat(rng.random(len(schedule.valid)) < 0.6, 4)[:len(schedule.valid)]
    schedule.swap = rng.random(len(schedule.valid)) < 0.3
    schedule.check()


@pytest.mark.parametrize(("size", "dsp_packing"), [(3, "none"), (8, "none"), *PACKED])
def test_two_rows_a_cycle_change_weights_without_a_bubble(size: int, dsp_packing: str) -> None:
    """MatMul after MatMul of as many vectors as a load takes cycles."""
    arch = machine(size, "INT8", dsp_packing=dsp_packing, weight_load_rows=2)
    rows, matmuls = load_weight_cycles(arch, size + 1), 5
    assert rows == -(-(size + 1) // 2)
    schedule = Schedule(arch, rows * (matmuls + 1))
    schedule.shift[:rows * matmuls] = schedule.apart[:] = True
    schedule.swap[rows::rows] = schedule.valid[rows:] = True
    schedule.check()


@pytest.mark.parametrize(("size", "dsp_packing"), PACKED)
def test_largest_sums_of_two_columns_come_apart(size: int, dsp_packing: str) -> None:
    """Columns of weights all at one end, of every two signs side by side, against rows of activations at theirs."""
    rows = [np.full(size, value) for value in (LARGEST_BYTE, -LARGEST_BYTE, 1, -1, 0)]
    step = size + 1 + len(rows)
    schedule = Schedule(machine(size, "INT8", dsp_packing=dsp_packing), 4 * step)
    for load in range(4):
        start = load * step
        columns = np.where(np.arange(size) % 2, load & 1, load >> 1)
        schedule.weight[start:start + size + 1] = np.where(columns, 127, -128)  # which counts as -127
        schedule.shift[start:start + size + 1] = True
        schedule.activation[start + size + 1:start + step] = rows
        schedule.valid[start + size + 1:start + step] = True
        schedule.swap[start + size + 1] = True
    schedule.check()
    most = size * 127 * LARGEST_BYTE
    assert {abs(total) for row in schedule.expected().values() for total in row} == {most, size * 127, 0}


@pytest.mark.parametrize("sign", (-1, 1))
def test_largest_sum_fits(sign: int) -> None:
    """All products at their largest magnitude and the bias saturated at the accumulator's end: nothing wraps."""
    arch = machine(8, "FP8BP4")
    schedule = Schedule(arch, 30)
    number = arch.number
    schedule.weight[:] = number.minimum
    schedule.weight[8] = number.maximum if sign > 0 else number.minimum
    schedule.activation[:] = number.minimum if sign > 0 else number.maximum
    schedule.input_shift[:] = arch.accumulator_bits - 1
    schedule.shift[:9] = True
    schedule.valid[9:] = True
    schedule.swap[9] = True
    schedule.check()
    end = numerics.maximum(16) if sign > 0 else numerics.minimum(16)
    product = 128 * 128 if sign > 0 else -128 * 127
    assert schedule.expected()[9 + array_latency(arch)] == [end + 8 * product] * 8


def test_reset_drops_vectors_and_keeps_weights() -> None:
    arch = machine(2)
    dut, reset = SystolicArray(arch), Signal()

    async def results(ctx, cycles: int) -> list[list[int]]:
        seen, coming = [], set()
        for cycle in range(cycles):
            if ctx.get(dut.result_coming):
                coming.add(cycle + ACCUMULATE_DATA_LATENCY)
            if cycle in coming:
                seen.append([ctx.get(dut.result[j]) for j in range(2)])
            await ctx.tick()
        return seen

    async def vector(ctx, *, swap: bool) -> None:
        ctx.set(dut.activation, [3, 5])
        ctx.set(dut.activation_valid, 1)
        ctx.set(dut.swap, int(swap))
        ctx.set(dut.rescale_bias, int(swap))
        await ctx.tick()
        ctx.set(dut.activation_valid, 0)

    async def bench(ctx) -> None:
        ctx.set(dut.shift, 1)
        ctx.set(dut.weight, [1, 2])
        await ctx.tick().repeat(3)
        ctx.set(dut.shift, 0)
        await vector(ctx, swap=True)
        assert await results(ctx, 20) == [[9, 18]]
        await vector(ctx, swap=False)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert await results(ctx, 20) == []
        await vector(ctx, swap=False)
        assert await results(ctx, 20) == [[9, 18]]

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.wide_cases("10-*", "12-*", "18-*", "4-*")
@pytest.mark.parametrize(("arch", "taps"), (
    (machine(3), 3), (machine(8), 3), (machine(4, mac_rounding="every_step"), 3), (machine(6, "INT8"), 3),
    (machine(8, "INT8", dsp_packing="DSP48E1"), 3),
    (machine(12, "INT8", dsp_packing="DSP48E2", weight_load_rows=2), 3),
    (machine(9), 9), (machine(10, mac_rounding="every_step"), 9),
    (machine(18, "INT8", dsp_packing="DSP48E2", weight_load_rows=2), 9)),
    ids=lambda value: f"{value.array_size}-{value.data_type}-{value.mac_rounding}-{value.dsp_packing}" if (
        isinstance(value, Arch)) else str(value))
def test_lanes_that_keep_to_themselves(arch: Arch, taps: int) -> None:
    """Depthwise vectors and others in turn, with pauses, shifts and swaps between them."""
    size = arch.array_size
    schedule = Schedule(arch.replace(depthwise_taps=taps), 100 + 20 * size, seed=size)
    rng = np.random.default_rng(seed=size + 200)
    schedule.valid, schedule.shift = rng.random((2, len(schedule.valid))) < 0.6
    schedule.swap = rng.random(len(schedule.valid)) < 0.3
    schedule.depthwise = np.repeat(rng.random(len(schedule.valid) // 5 + 1) < 0.6, 5)[:len(schedule.valid)]
    schedule.taps = rng.integers(0, 8, len(schedule.valid)) * schedule.depthwise
    schedule.check()
