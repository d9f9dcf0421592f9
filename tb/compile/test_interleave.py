# SPDX-License-Identifier: Apache-2.0
"""Interleaving changes the order of operations, never what they leave in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.lir_machine import run_lir
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address
from weft.compiler.lir_table import LirTable
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.products import Products, Step
from weft.compiler.request import Request
from weft.compiler.scheduler import interleave as scheduler
from weft.compiler.scheduler.interleave import interleave, start_cycles
from weft.compiler.scheduler.schedule import Schedule
from weft.cycles.replay import estimate
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.key_values import SHARED
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tmodel.manifest import TModel

ARCH = BASE.replace(array_size=2, dram0_depth=32, dram1_depth=32, local_depth=24, accumulator_depth=16,
                    lut_count=1, lut_depth=4, simd_registers_depth=2)
DEPTHS = {DRAM0: 32, DRAM1: 32, LOCAL: 24, ACCUMULATORS: 16}
ENTER, BOTH = lir.Settings.of(input_shift=3), lir.Settings.of(input_shift=2, output_shift=2)
MOVED = {False: lir.Settings.of(input_shift=2), True: lir.Settings.of(output_shift=2)}
"""By whether vectors go to local memory."""


class LirMaker:
    """Random operations that are legal and get in each other's way as often as can be."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def below(self, end: int) -> int:
        return int(self.random.integers(end))

    def address(self, memory: str, last: int) -> Address:
        return Address(memory, self.below(DEPTHS[memory] - last))

    def walk(self) -> tuple[int, int, int, int]:
        """Size, stride, rows, pitch: at most 12 vectors from first to last."""
        size, stride, rows, pitch = (1 + self.below(end) for end in (4, 2, 2, 5))
        return size, stride, rows, pitch

    def mat_mul(self) -> list[lir.Operation]:
        size, stride, rows, pitch = self.walk()
        last = (size - 1) * stride + (rows - 1) * pitch
        local = None if self.below(5) == 0 else self.address(LOCAL, last)
        return [lir.MatMul(local, self.address(ACCUMULATORS, last), size, ENTER, bool(self.below(2)), stride,
                           stride, rows, pitch, pitch)]

    def load_weight(self) -> list[lir.Operation]:
        return [lir.LoadWeight(self.address(LOCAL, 2), 1 + self.below(3), bool(self.below(2)))]

    def data_move(self) -> list[lir.Operation]:
        size, stride, rows, pitch = self.walk()
        last = (size - 1) * stride + (rows - 1) * pitch
        far = (DRAM0, DRAM1, ACCUMULATORS)[self.below(3)]
        inside, to_local, extra = far is ACCUMULATORS, bool(self.below(2)), bool(self.below(2))
        return [lir.DataMove(to_local, self.address(LOCAL, last), self.address(far, last), size,
                             MOVED[to_local] if inside else lir.NO_SETTINGS, inside and extra and not to_local,
                             inside and extra and to_local, stride, stride, rows, pitch, pitch)]

    def simd(self, count: int = 1) -> lir.Operation:
        read, write = (None if self.below(4) == 0 else self.address(ACCUMULATORS, 2 * count) for _ in range(2))
        opcode = (SimdOpcode.MOVE, SimdOpcode.ADD, SimdOpcode.MAX, SimdOpcode.LOOKUP)[self.below(4)]
        destination = self.below(2 if opcode is SimdOpcode.LOOKUP else 3)
        return lir.Simd(opcode, self.below(3), self.below(3), destination, BOTH, read, write, 1 + self.below(2), 1)

    def loop(self) -> list[lir.Operation]:
        iterations, body = 2 + self.below(3), 1 + self.below(3)
        return [lir.SimdLoop(iterations, body, BOTH), *(self.simd(iterations) for _ in range(body))]

    def load_lut(self) -> list[lir.Operation]:
        return [lir.LoadLut(self.address(LOCAL, 4), self.below(2), 4)]

    def program(self, length: int) -> list[lir.Operation]:
        kinds = [self.mat_mul, self.load_weight, self.data_move, lambda: [self.simd()], self.loop, self.load_lut]
        chances = [0.25, 0.15, 0.4, 0.05, 0.1, 0.05]
        chosen = self.random.choice(len(kinds), length, p=chances)
        return [operation for kind in chosen for operation in kinds[kind]()]


def left_behind(operations: list[lir.Operation], seed: int) -> list[np.ndarray]:
    """Every memory, the weights and the tables after a program that begins with random data in DRAM."""
    drams = Dram(ARCH), Dram(ARCH)
    for dram in drams:
        dram.write(0, np.random.default_rng(seed).integers(-2000, 2000, (32, 2)))
    machine = Machine(ARCH, *drams)
    run_lir(operations, machine)
    return [*(dram.read(0, 32) for dram in drams), machine.local, machine.accumulators, machine.weights,
            machine.simd_registers, machine.luts]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_mean_the_same(seed: int) -> None:
    operations = LirMaker(seed).program(120)
    order = interleave(LirTable.of(operations), ARCH)
    assert sorted(order) == list(range(len(operations))) != list(order)
    changed = left_behind([operations[index] for index in order], seed)
    assert all((left == right).all() for left, right in zip(left_behind(operations, seed), changed, strict=True))


def test_loads_do_not_pass_the_scales_that_lie_there() -> None:
    """On an INT8 machine: what LoadScale has not read yet is not overwritten, and moves out keep their scales."""
    local, accumulators = Address(LOCAL, 0), Address(ACCUMULATORS, 0)
    arch = ARCH.replace(data_type="INT8", accumulator_width=None)
    fill = lir.DataMove(True, local, Address(DRAM1, 0), 7)
    leave = lir.DataMove(True, Address(LOCAL, 8), accumulators, 2,
                         lir.Settings.of(output_shift=1, output_zero_point=0))
    order = interleave(LirTable.of([fill, lir.LoadScale(local), leave, fill, lir.LoadScale(local), leave]), arch)
    assert list(order) == [0, 1, 2, 3, 4, 5] or list(order) == [0, 1, 3, 2, 4, 5]


def test_loads_pass_the_work_that_they_do_not_need() -> None:
    """A load of the next weights begins while the array is at work, and is placed there."""
    local, accumulators = Address(LOCAL, 0), Address(ACCUMULATORS, 0)
    first: list[lir.Operation] = [
        lir.LoadWeight(local, 2), lir.MatMul(local, accumulators, 8, ENTER), lir.MatMul(local, accumulators, 8, ENTER)]
    load = lir.DataMove(True, Address(LOCAL, 16), Address(DRAM1, 0), 2)
    order = interleave(LirTable.of([*first, load, lir.LoadWeight(load.local, 2)]), ARCH)
    assert list(order) == [0, 3, 1, 2, 4]


def waiting(settings: lir.Settings, *before: lir.Operation) -> list[lir.Operation]:
    """Work of the array, and three moves out with ``before`` in front of each. The first waits for the array.

    The last one writes where the first one does. So it stays behind."""
    mat_mul: lir.Operation = lir.MatMul(Address(LOCAL, 0), Address(ACCUMULATORS, 0), 8, ENTER)
    work: list[lir.Operation] = [lir.LoadWeight(Address(LOCAL, 0), 2), *[mat_mul] * 9]
    return [*work, *(each for near, far in ((12, 0), (16, 8), (12, 8)) for each in (
        *before, lir.DataMove(True, Address(LOCAL, near), Address(ACCUMULATORS, far), 4, settings)))]


def moves_of(order: np.ndarray) -> list[int]:
    """The places of the moves and their scales in an order, counted from the first behind the array's work."""
    return [int(place) - 10 for place in order if place >= 10]


def test_moves_pass_those_that_wait() -> None:
    assert moves_of(interleave(LirTable.of(waiting(MOVED[True])), ARCH)) == [1, 0, 2]


def test_moves_pass_together_with_their_scales() -> None:
    """On an INT8 machine; a move without scales of its own passes nothing, and nothing passes it."""
    arch = ARCH.replace(data_type="INT8", accumulator_width=None)
    settings = lir.Settings.of(output_shift=1, output_zero_point=0)
    scaled = waiting(settings, lir.LoadScale(Address(LOCAL, 4)))
    assert moves_of(interleave(LirTable.of(scaled), arch)) == [2, 3, 0, 1, 4, 5]
    assert moves_of(interleave(LirTable.of(waiting(settings)), arch)) == [0, 1, 2]
    scaled.insert(13, lir.DataMove(False, Address(LOCAL, 20), Address(ACCUMULATORS, 12), 1, ENTER))  # between the two
    assert [place for place in moves_of(interleave(LirTable.of(scaled), arch)) if place != 3] == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("window", [DRAM0, DRAM1])
def test_signals_hold_the_moves_of_their_range(window: str) -> None:
    """A post comes behind the save that it tells of, and a load behind its wait; other vectors hold neither."""
    arch, size = ARCH.replace(cores=2, dram_ports=SHARED, sync_counters=2), 8
    save, load = (lir.DataMove(to_local, Address(LOCAL, 8 * to_local), Address(window, 8 * to_local), size)
                  for to_local in (False, True))
    for apart in (0, 16):
        post, wait = (lir.Signal(each is load, 0, 1, Address(window, each.far.offset + apart), size)
                      for each in (save, load))
        saved, posted = start_cycles(LirTable.of([save, post]), arch)
        waited, loaded = start_cycles(LirTable.of([wait, load]), arch)
        assert (posted - saved >= size) == (loaded > waited) == (apart == 0)


def test_what_the_simd_unit_makes_is_fetched_when_it_is_there() -> None:
    local, accumulators = Address(LOCAL, 0), Address(ACCUMULATORS, 0)
    loop: list[lir.Operation] = [
        lir.SimdLoop(12, 1, BOTH), lir.Simd(SimdOpcode.MOVE, 0, 0, 0, BOTH, accumulators, accumulators)]
    out = lir.DataMove(True, local, accumulators, 12, MOVED[True])
    load, begin, leave = start_cycles(LirTable.of([*loop, out]), ARCH)
    assert load == begin and leave - load > 2 * 12


def test_a_layer_with_simd_work_is_shorter_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Than where a cycle is planned for a vector, as if there were no MatMuls."""
    maker = ModelMaker((1, 8, 24, 24))
    made = maker.node("LeakyRelu", maker.conv("x", 8, 32, (3, 3), pads=(1, 1, 1, 1)), alpha=0.1)
    maker.node("MaxPool", made, kernel_shape=(2, 2), strides=(2, 2))
    path = maker.save(tmp_path / "net.onnx")

    def cycles() -> int:
        report = compile_model(path, BASE, tmp_path)
        return estimate(TModel.load(report.model_path).program, BASE).cycles

    planned = cycles()
    monkeypatch.setattr(scheduler, "SIMD_CYCLES", 1)
    assert planned < 0.97 * cycles()


def test_layers_stay_with_their_operations(tmp_path: Path) -> None:
    maker = ModelMaker((1, 12, 9, 8))
    name = maker.conv("x", 12, 12, (3, 3), pads=(1, 1, 1, 1))
    maker.conv(name, 12, 4, (2, 2))
    path, samples = maker.save(tmp_path / "model.onnx"), maker.random.standard_normal((2, 12, 9, 8))
    layers = {}

    def watch(step: Step, made: Products) -> None:
        if Schedule in step.makes:
            schedule = made[Schedule]
            layers[step.name] = list(zip(map(lir.text, schedule.operations), schedule.layers, strict=True))

    made = run_steps(Request(path, {"x": samples}), BASE, watch=watch)
    assert layers["schedule"] != layers["interleave"] and sorted(layers["schedule"]) == sorted(layers["interleave"])
    assert len(made[MachineCode].layers) == len(made[MachineCode].content) // 8
