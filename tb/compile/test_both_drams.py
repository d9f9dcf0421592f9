# SPDX-License-Identifier: Apache-2.0
"""Tensors whose even channel tiles lie in DRAM0 and whose odd ones, or only one, lie in DRAM1, behind the constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.errors import Fault
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.var import Part, Var
from weft.compiler.lir import DRAM0, DRAM1, Address
from weft.compiler.lir_table import LirTable
from weft.compiler.lir_verifier import verify
from weft.compiler.memory.allocation import DramAddress
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.memory.variables import spread_vectors
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.moves import transfer
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.tiling.candidates import Tiling, single
from weft.compiler.tiling.costs import cost, traffic
from weft.compiler.tiling.cuts import Grain
from weft.compiler.tiling.spans import Box, View
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.runtime.devices import Done, Golden, Local, Progress, no_progress
from weft.runtime.session import Session
from weft.support.errors import Mismatch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model
from weft.tmodel.manifest import TModel

ARCH = BASE.replace(array_size=3, local_depth=220, accumulator_depth=90, axi_data_width=32)
"""Local memory has no room for a tensor of several tiles, and a vector takes two cycles of DRAM."""
DRAMS = DRAM0, DRAM1


def network(folder: Path) -> tuple[Path, np.ndarray]:
    """Tensors of three to seven tiles; a residual, a pool, and one that begins at an odd tile of another."""
    maker = ModelMaker((1, 3, 12, 12), seed=4)
    first = maker.node("Relu", maker.conv("x", 3, 9, (3, 3), pads=(1, 1, 1, 1)))
    second = maker.node("Add", maker.conv(first, 9, 9, (1, 1)), first)
    joined = maker.node("Concat", second, maker.node("Relu", maker.conv(second, 9, 12, (1, 1))), axis=1)
    pooled = maker.node("MaxPool", maker.conv(joined, 21, 15, (3, 3), pads=(1, 1, 1, 1)), kernel_shape=(2, 2),
                        strides=(2, 2))
    maker.conv(pooled, 15, 9, (1, 1))
    return maker.save(folder / "spread.onnx"), maker.random.standard_normal((3, 3, 12, 12)).astype(np.float32)


def narrow(folder: Path) -> tuple[Path, np.ndarray]:
    """Tensors of one tile, larger than local memory: a layer reads two of them."""
    maker = ModelMaker((1, 3, 20, 20), seed=4)
    first = maker.node("Relu", maker.conv("x", 3, 3, (1, 1)))
    second = maker.node("Relu", maker.conv(first, 3, 3, (3, 3), pads=(1, 1, 1, 1)))
    maker.conv(maker.node("Add", maker.conv(second, 3, 3, (1, 1)), first), 3, 3, (1, 1))
    return maker.save(folder / "narrow.onnx"), maker.random.standard_normal((3, 3, 20, 20)).astype(np.float32)


def compiled(folder: Path, **changes: Any) -> Products:
    path, samples = network(folder)
    return after_all_steps(path, ARCH.replace(**changes), samples)


def moves(state: Products, memory: str, to_local: bool | None = None) -> list[lir.DataMove]:
    return [move for move in state[Schedule].operations if isinstance(move, lir.DataMove) and move.far.memory == memory
            and to_local in (None, move.to_local)]


# -- places ------------------------------------------------------------------------------------------------------------
def test_even_tiles_lie_in_one_and_odd_ones_in_the_other() -> None:
    home = DramAddress(100, 1000)
    assert [home.address(tile, 10) for tile in range(5)] == [
        Address(DRAM0, 100), Address(DRAM1, 1000), Address(DRAM0, 110), Address(DRAM1, 1010),
        Address(DRAM0, 120)]
    assert [DramAddress(100).address(tile, 10) for tile in range(3)] == [Address(DRAM0, 100 + 10 * tile)
                                                                  for tile in range(3)]
    assert home.runs((1, 4)) == [(1, 2), (2, 3), (3, 4)] and DramAddress(100).runs((1, 4)) == [(1, 4)]


@pytest.mark.parametrize(("first", "tiles", "vectors"), [(0, 1, 15), (0, 2, 15), (0, 3, 15), (0, 4, 30), (1, 3, 30)])
def test_dram1_has_room_for_odd_tiles_or_the_only_one(first: int, tiles: int, vectors: int) -> None:
    """Of 3 x 5 pixels, on three lanes; the last begins at tile 1 of another tensor."""
    var = Var("a", channels=3 * tiles, height=3, width=5, part=Part("whole", first, 0, 5, 1, 15))
    assert spread_vectors(var, lanes=3) == vectors


def test_a_tensor_of_one_tile_lies_in_either() -> None:
    home = DramAddress(None, 1000)
    assert [home.address(tile, 10) for tile in range(2)] == [Address(DRAM1, 1000), Address(DRAM1, 1010)]
    assert home.runs((1, 4)) == [(1, 4)]


def test_two_tensors_of_one_tile_that_a_layer_reads_come_through_both_ports(tmp_path: Path) -> None:
    path, samples = narrow(tmp_path)
    state = after_all_steps(path, ARCH, samples)
    read = next(shape for shape in state[MemoryPlan].shapes if shape.layer.adds)
    assert {read.odd_tiles(var) for var in read.layer.inputs} == {0, 1}
    (name, place), = state[MemoryPlan].dram1.items()
    assert place.size == 400 and place.base >= len(state[Consts].vectors) and not state[MemoryPlan].dram0[name].size
    check_model(path, ARCH, samples, 40)
    check_every_step(path, ARCH, samples)


def test_what_is_moved_between_local_memory_and_both() -> None:
    """Tile by tile: a part of a tensor that begins at its second tile, every second pixel of four rows of two."""
    var = Var("part", 6, 4, 1, Part("whole", tile=1, offset=1, pitch=2, step=2, pixels=8))
    box, home = Box((0, 2), (1, 3), (0, 1)), DramAddress(100, 1000)
    found = [*transfer(True, box, View(50, box), var, home, ARCH)]
    assert [move.far for move in found] == [Address(DRAM1, 1003), Address(DRAM0, 111)]
    assert [move.local.offset for move in found] == [50, 52]
    assert all(move.far_walk.last == move.far.offset + 2 for move in found)


def test_only_what_is_neither_input_nor_output(tmp_path: Path) -> None:
    state = compiled(tmp_path)
    layout, consts = state[MemoryPlan], len(state[Consts].vectors)
    roots = {var.root: var for layer in state[Layers] for var in (*layer.inputs, *layer.outputs)}
    ends = {"x", state[Layers][-1].output.root}
    assert layout.dram1 and not {*layout.dram1} & {*ends, *layout.local}
    for name, place in layout.dram1.items():
        assert place.base >= consts
        tiles = state[MemoryPlan].dram0[name].size + place.size
        pixels = roots[name].tile_pixels
        assert (tiles // pixels) // 2 * pixels == place.size


@pytest.mark.parametrize("changes", [{"dram_ports": "shared"}, {"dram1_depth": 1200}], ids=["one port", "no room"])
def test_not_where_it_would_not_help(changes: dict[str, Any], tmp_path: Path) -> None:
    state = compiled(tmp_path, **changes)
    assert not state[MemoryPlan].dram1 and not moves(state, DRAM1, to_local=False)


# -- programs ----------------------------------------------------------------------------------------------------------
def test_no_step_changes_the_result_and_the_machine_computes_what_it_would_with_one_port(tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    check_every_step(path, ARCH, samples)
    outputs = []
    for name, arch in (("two", ARCH), ("one", ARCH.replace(dram_ports="shared"))):
        (tmp_path / name).mkdir()
        path, _ = network(tmp_path / name)
        outputs.append(Session(check_model(path, arch, samples, 40)).run({"x": samples}).outputs)
    assert all(np.array_equal(value, outputs[1][name]) for name, value in outputs[0].items())


def model_of(folder: Path) -> TModel:
    path, samples = network(folder)
    return check_model(path, ARCH, samples, 40)


def test_a_program_runs_again_on_what_it_left(tmp_path: Path) -> None:
    """The constants stay, whatever lies behind them."""
    model, samples = model_of(tmp_path), network(tmp_path)[1]
    machine = Machine(ARCH)
    for base, vectors in model.consts:
        machine.dram1.write(base, vectors)
    port, = model.inputs
    result, = model.outputs
    found = []
    for sample in (samples[0], samples[1], samples[0]):
        machine.soft_reset()
        machine.dram0.write(port.base, model.pack_input("x", sample))
        machine.run(model.program)
        found.append(machine.dram0.read(result.base, result.size))
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])
    (base, vectors), = model.consts
    assert np.array_equal(machine.dram1.read(base, len(vectors)), vectors)
    assert machine.dram1.read(len(vectors), 100).any()


# -- what knows of it --------------------------------------------------------------------------------------------------
def test_the_model_of_costs_knows_what_goes_where(tmp_path: Path) -> None:
    """Of whole layers: all that the program moves, but for constants that are no weights, is in the model."""
    state = compiled(tmp_path)
    consts = len(state[Consts].vectors)
    found: list[Counter[str]] = [Counter() for _ in state[Layers]]
    for operation, number in zip(state[Schedule].operations, state[Schedule].layers, strict=True):
        if isinstance(operation, lir.DataMove) and operation.far.memory in DRAMS:
            what = f"{operation.far.memory}_{'read' if operation.to_local else 'write'}"
            if operation.far.memory == DRAM1 and operation.far.offset < consts:
                what = "consts"
            found[number][what] += operation.size * operation.rows
    layout = state[MemoryPlan]
    for counted, shape, plan in zip(found, layout.shapes, layout.plans, strict=True):
        assert {key: value for key, value in traffic(shape, plan.tiling)._asdict().items() if value} == {
            "array": traffic(shape, plan.tiling).array, **counted}


def test_results_that_leave_tile_after_tile_keep_one_dram_busy(tmp_path: Path) -> None:
    """With regions as the inner loop all of the first tile leaves before the second: as if it lay in one DRAM. Two
    tiles at a time leave at once."""
    maker = ModelMaker((1, 3, 12, 12))
    maker.conv(maker.conv("x", 3, 9, (1, 1)), 9, 3, (1, 1))
    shape = after_all_steps(maker.save(tmp_path / "two.onnx"), ARCH, np.ones((1, 3, 12, 12)))[MemoryPlan].shapes[0]
    root = shape.layer.output.root
    first = Tiling(Grain(2, 12), 1, 1, 1, 2, 2, outputs_outer=True)

    def modelled(tiling: Tiling, *spread: str) -> float:
        placed = replace(shape, resident=frozenset({"x"}), spread=frozenset(spread))
        return float(cost(placed, single(placed, tiling))[0])

    gains = [modelled(tiling) - modelled(tiling, root) for tiling in
             (first, replace(first, outputs=2), replace(first, outputs_outer=False))]
    assert gains[0] <= 0 and min(gains[1:]) > 144  # pixels, half of the cycles in which one tile is written


def test_a_constant_that_is_overwritten_is_a_fault(tmp_path: Path) -> None:
    state = compiled(tmp_path)
    operations, consts = [*state[Schedule].operations], len(state[Consts].vectors)
    written = [state[MemoryPlan].dram0["x"]]
    verify(LirTable.of(operations), ARCH, written, consts)
    number = next(number for number, move in enumerate(operations)
                  if isinstance(move, lir.DataMove) and move.far.memory == DRAM1 and not move.to_local)
    move = operations[number]
    assert isinstance(move, lir.DataMove)
    operations[number] = move._replace(far=Address(DRAM1, consts - 1))
    with pytest.raises(Fault, match="overwrites a constant"):
        verify(LirTable.of(operations), ARCH, written, consts)


def test_tiles_that_nothing_wrote_are_a_fault(tmp_path: Path) -> None:
    state = compiled(tmp_path)
    operations = [move for move in state[Schedule].operations
                  if not (isinstance(move, lir.DataMove) and move.far.memory == DRAM1 and not move.to_local)]
    with pytest.raises(Fault, match="reads a vector that nothing wrote"):
        verify(LirTable.of(operations), ARCH, [state[MemoryPlan].dram0["x"]], len(state[Consts].vectors))


class Spoilt(Local):
    """A machine that leaves a vector of DRAM1 wrong."""

    name = "spoilt"

    def __init__(self, arch: Arch, address: int) -> None:
        super().__init__(arch)
        self.address = address

    def run(self, groups: Sequence[Sequence[bytes]], progress: Progress = no_progress) -> list[list[Done]]:
        golden = Golden(self.arch)
        golden.drams = self.drams
        done = golden.run(groups, progress)
        self.write("dram1", self.address, self.read("dram1", self.address, 1) ^ 1)
        return done


def test_a_word_of_dram1_that_differs_is_found(tmp_path: Path) -> None:
    model, samples = model_of(tmp_path), network(tmp_path)[1]
    place = len(model.consts[0][1]) + 3
    comparison = Session(model).run({"x": samples[0]}, on=Spoilt(ARCH, place)).comparison
    assert comparison is not None
    with pytest.raises(Mismatch, match=f"first at image 0, DRAM1 address {place}, lane 0"):
        comparison.insist()
