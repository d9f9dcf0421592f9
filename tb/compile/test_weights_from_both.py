# SPDX-License-Identifier: Apache-2.0
"""Weights that are more than DRAM1 can bring in time come through DRAM0 as well."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from weft.compiler.lir import DRAM0, DRAM1, Address, DataMove
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products, Step
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.load import LOAD_VECTORS, WeightSource
from weft.compiler.scheduler.schedule import Schedule
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, check_model, run_golden
from weft.tmodel.manifest import TModel

NARROW = BASE.replace(axi_data_width=32)
"""Four cycles a vector."""


def network(tmp_path: Path, size: int) -> tuple[Path, np.ndarray]:
    maker = ModelMaker((1, 16, size, size))
    name = maker.conv("x", 16, 40, (3, 3))
    maker.conv(maker.node("Relu", name), 40, 24, (size - 2, size - 2))
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, 16, size, size))


def compiled(path: Path, samples: np.ndarray, **changes: int) -> tuple[Products, TModel]:
    states: list[Products] = []

    def watch(step: Step, state: Products) -> None:
        states.append(state)

    report = compile_model(path, NARROW.replace(**changes), path.parent, calibration={"x": samples}, watch=watch)
    return states[-1], TModel.load(report.model_path)


def weights_read(state: Products) -> tuple[int, int]:
    """Vectors of weights through DRAM0 and DRAM1."""
    copy = state[MemoryPlan].copy
    moves = [move for move in state[Schedule].operations if isinstance(move, DataMove) and move.to_local]
    dram0 = [move.size for move in moves if move.far.memory == DRAM0 and copy and move.far.offset >= copy.base]
    return sum(dram0), sum(move.size for move in moves if move.far.memory == DRAM1)


def test_a_dense_network_reads_both(tmp_path: Path) -> None:
    path, samples = network(tmp_path, 7)
    state, model = compiled(path, samples)
    dram0, dram1 = weights_read(state)
    assert dram0 + dram1 == len(state[Consts].vectors) and 0.25 < dram0 / dram1 <= 1
    copy = state[MemoryPlan].copy
    assert copy is not None
    entries = json.loads((path.parent / "net.tmodel").read_text())["consts"]
    assert entries[1] == {**entries[0], "base": copy.base, "memory": "dram0"}
    assert all("memory" not in entry for entry in entries[:1])
    check_model(path, NARROW, samples, 60)


def test_a_step_takes_its_weights_from_both(tmp_path: Path) -> None:
    """A load is no longer than the other port takes to catch up, so that both work on the same step's weights."""
    path, samples = network(tmp_path, 7)
    state, _ = compiled(path, samples)
    copy = state[MemoryPlan].copy
    assert copy is not None
    largest = max(plan.need.weights for plan in state[MemoryPlan].plans)
    loads = [move.size for move in state[Schedule].operations if isinstance(move, DataMove) and move.to_local
             and (move.far.memory == DRAM1 or move.far.offset >= copy.base)]
    assert max(loads) <= LOAD_VECTORS < largest
    alone, _ = compiled(path, samples, dram0_depth=1000)
    assert max(move.size for move in alone[Schedule].operations if isinstance(move, DataMove)) > LOAD_VECTORS


def test_every_image_finds_them(tmp_path: Path) -> None:
    path, samples = network(tmp_path, 7)
    _, model = compiled(path, samples)
    assert model.dram0_consts
    alone = [next(iter(run_golden(model, {"x": sample}).values())) for sample in samples]
    together = next(iter(Session(model).run({"x": samples}).outputs.values()))
    assert (np.reshape(together, (2, -1)) == np.reshape(alone, (2, -1))).all()


def test_not_where_the_array_takes_longer_or_dram0_is_full(tmp_path: Path) -> None:
    path, samples = network(tmp_path, 7)
    assert compiled(path, samples)[0][MemoryPlan].copy is not None
    assert compiled(path, samples, dram0_depth=1000)[0][MemoryPlan].copy is None
    maker = ModelMaker((1, 16, 16, 16))
    maker.conv(maker.conv("x", 16, 24, (3, 3)), 24, 24, (3, 3))
    state, model = compiled(maker.save(tmp_path / "wide.onnx"), maker.random.standard_normal((1, 16, 16, 16)))
    assert state[MemoryPlan].copy is None and not model.dram0_consts


def test_the_port_that_moved_less() -> None:
    source = WeightSource(100, read=Counter({DRAM0: 20}))
    spaces = [source.address(far, 10) for far in (0, 10, 20, 30, 40)]
    assert spaces == [Address(DRAM1, 0), Address(DRAM1, 10), Address(DRAM1, 20),
                      Address(DRAM0, 130), Address(DRAM1, 40)]
    alone = WeightSource(None)
    assert [alone.address(far, 10).memory for far in (0, 10)] == [DRAM1] * 2


def test_layers_of_few_pixels_share_what_the_ports_moved() -> None:
    """So that a port does not rest at the end of each layer; one of many pixels begins anew."""
    source = WeightSource(100).of_layer(1, 8)
    assert source.address(0, 10).memory == DRAM1
    following = source.of_layer(4, 8)
    assert following.address(10, 10) == Address(DRAM0, 110)
    assert following.of_layer(8, 8).address(20, 10).memory == DRAM1
    assert following.of_layer(8, 8).of_layer(1, 8).address(20, 10).memory == DRAM1
