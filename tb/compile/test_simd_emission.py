# SPDX-License-Identifier: Apache-2.0
"""SIMD work on tiles, on machines with loops and registers of every depth, against the function in plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from weft.compiler.check.lir_machine import run_lir
from weft.compiler.layers.stages import (
    Abs,
    Elementwise,
    Gate,
    LeakyRelu,
    MaxPool,
    Minimum,
    Slopes,
    SteepSlopes,
)
from weft.compiler.lir import Operation, Settings, Simd, SimdLoop
from weft.compiler.scheduler.simd import emit_elementwise, emit_multiply, emit_pool
from weft.compiler.tiling.spans import Box, View
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE
from weft.tmodel.window import Window

SETTINGS = Settings.of(input_shift=0, output_shift=0)
NUMBER = BASE.number
BOX = Box((1, 3), (0, 2), (0, 3))
CONSTANTS = 40
"""Where the constants of a stage lie, two vectors a channel tile from tile 0 on."""
MACHINES = [(loop, registers) for loop in (0, 1, 2, 3, 4, 9) for registers in (1, 2, 3)]


def machine_of(arch: Arch) -> Machine:
    made = Machine(arch)
    made.accumulators[...] = np.random.default_rng(2).integers(-900, 900, made.accumulators.shape)
    made.accumulators[CONSTANTS:] %= 256  # factors from 0 to 1
    return made


def legal(operations: Iterable[Operation], arch: Arch) -> list[Operation]:
    """The operations, of which none asks for more than the machine has."""
    found, left = [*operations], 0
    for operation in found:
        if isinstance(operation, SimdLoop):
            assert not left and operation.body <= arch.simd_loop_depth and operation.iterations > 1
            left = operation.body
            continue
        assert isinstance(operation, Simd) and (left or not operation.hold)
        assert max(operation.left, operation.right, operation.destination) <= arch.simd_registers_depth
        left = max(left - 1, 0)
    return found


def after(operations: Iterable[Operation], arch: Arch) -> np.ndarray:
    """The accumulators behind legal operations."""
    machine = machine_of(arch)
    run_lir(legal(operations, arch), machine)
    return machine.accumulators


def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray(NUMBER.multiply(left, right))


def leaky(value: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return np.maximum(value, multiply(multiply(value, factors[0]), factors[1]))


def steep(value: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return value + multiply(np.minimum(multiply(value, factors[0]), 0), factors[1])


STAGES: dict[Elementwise, tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], bool]] = {
    Minimum(1.0): (lambda value, own: np.minimum(value, own[0]), False),
    Abs(): (lambda value, own: np.abs(value), False),
    Gate("x", 0.5, 1.0): (lambda value, own: multiply(value, np.clip(value + own[0], 0, own[1])), False),
    LeakyRelu(0.1): (leaky, False), Slopes("x", "s"): (leaky, True), SteepSlopes("x", "s"): (steep, True)}
"""The function of a stage, and whether each channel tile has constants of its own."""


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: type(stage).__name__)
def test_a_stage_is_its_function_on_every_machine(stage: Elementwise) -> None:
    """One vector at a time and many; a loop is taken wherever the body has room in it.

    Gates and steep slopes are only for machines whose loops have room for them."""
    function, by_tile = STAGES[stage]
    body = {Gate: 4, SteepSlopes: 4, LeakyRelu: 3, Slopes: 3}.get(type(stage), 1)
    for loop, registers in MACHINES if body < 4 else MACHINES[-6:]:
        arch = BASE.replace(simd_loop_depth=loop, simd_registers_depth=registers)
        for box in (BOX, Box((0, 1), (0, 1), (0, 1))):
            operations = [*emit_elementwise(stage, CONSTANTS, View(5, box), SETTINGS, arch)]
            wanted, own = machine_of(arch).accumulators, box.pixels
            for place, tile in enumerate(range(*box.tiles)):
                first = CONSTANTS + (2 * tile if by_tile else 0)
                part = slice(5 + place * own, 5 + (place + 1) * own)
                wanted[part] = function(wanted[part], wanted[first:first + 2])
            assert np.array_equal(after(operations, arch), wanted), (loop, registers)
            loops = any(isinstance(operation, SimdLoop) for operation in operations)
            assert loops == (loop >= body and box.pixels > 1), (loop, registers)


def test_constants_are_read_as_rarely_as_registers_allow() -> None:
    """A leaky ReLU reads a vector twice if both of its factors have a register, with a third one for the product."""
    for stage in (LeakyRelu(0.1), Slopes("x", "s"), SteepSlopes("x", "s")):
        counts = []
        for registers in (1, 2, 3):
            arch = BASE.replace(simd_loop_depth=4, simd_registers_depth=registers)
            operations = [*emit_elementwise(stage, CONSTANTS, View(5, Box((0, 1), (0, 2), (0, 3))), SETTINGS, arch)]
            place = next(number for number, one in enumerate(operations) if isinstance(one, SimdLoop))
            counts.append(sum(isinstance(one, Simd) and one.read is not None for one in operations[place:]))
        assert counts == [3, 2, 2]


def test_a_product_of_two_views() -> None:
    for loop, registers in MACHINES:
        arch = BASE.replace(simd_loop_depth=loop, simd_registers_depth=registers)
        wanted = machine_of(arch).accumulators
        wanted[2:14] = multiply(wanted[2:14], wanted[20:32])
        assert np.array_equal(after(emit_multiply(View(2, BOX), View(20, BOX), SETTINGS, arch), arch), wanted)


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("window", [
    Window((3, 3), (1, 1), (1, 1)), Window((3, 3), (2, 2), (1, 1)), Window((2, 2), (2, 2)), Window((1, 3), (1, 2)),
    Window((3, 1), (2, 1), (1, 0)), Window((2, 2), (1, 1), (0, 0), (2, 3))], ids=str)
def test_a_pool_is_the_maximum_of_its_windows_on_every_machine(window: Window, continues: bool) -> None:
    """Of what is in the image. With ``continues`` of what the result has too."""
    source, result = Box((0, 1), (0, 5), (0, 6)), Box((0, 1), (0, 2), (0, 3))
    for loop, strides in ((0, 1), (2, 2), (9, 1), (9, 2)):
        arch = BASE.replace(simd_loop_depth=loop, simd_registers_depth=1, stride1_depth=strides)
        given = machine_of(arch).accumulators
        operations = emit_pool(MaxPool(window, (2, 3)), View(0, source), View(60, result), SETTINGS, arch,
                               continues=continues)
        found, image = after(operations, arch)[60:66], given[:30].reshape(5, 6, -1)
        for row in range(2):
            for column in range(3):
                taps = [image[y, x] for y in window.reads(0, row, (0, 5)) for x in window.reads(1, column, (0, 6))]
                taps += [given[60 + 3 * row + column]] * continues
                assert np.array_equal(found[3 * row + column], np.max(taps, axis=0)), (loop, strides, row, column)
