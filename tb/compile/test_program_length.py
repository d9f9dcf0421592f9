# SPDX-License-Identifier: Apache-2.0
"""A program that the loader would refuse is refused by the compiler, early, with a way out that works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from weft.cli.options import override
from weft.compiler.errors import CompileError
from weft.compiler.layers.stages import Convolution
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products, Step
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.length import _weight_tiles
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tmodel.errors import ModelError
from weft.tmodel.manifest import TModel

TINY = override(Arch.load("tiny"), ["local_depth=600", "accumulator_depth=300",
                                      "dram0_depth=8000", "dram1_depth=40000"])


def network(tmp_path: Path, group: int = 1) -> Path:
    maker = ModelMaker((1, 32, 6, 6))
    hidden = maker.conv("x", 32, 32, (3, 3), pads=(1, 1, 1, 1), group=group)
    maker.conv(maker.node("Relu", hidden), 32, 10, (1, 1))
    return maker.save(tmp_path / "model.onnx")


def limit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Of the compiler and of the loader."""
    for module in ("weft.compiler.scheduler.length", "weft.tmodel.checks"):
        monkeypatch.setattr(f"{module}.MOST_PROGRAM_BYTES", size)


def test_the_loader_has_the_same_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = compile_model(network(tmp_path), TINY, tmp_path)
    size = len(TModel.load(report.model_path).program)
    limit(monkeypatch, size)
    compile_model(network(tmp_path), TINY, tmp_path)
    TModel.load(report.model_path)
    limit(monkeypatch, size - 1)
    with pytest.raises(ModelError, match=f"a program of {size} bytes, more than {size - 1}"):
        TModel.load(report.model_path)
    with pytest.raises(CompileError, match=f"program: found {size} bytes or more on 2 lanes; .* at most {size - 1} "):
        compile_model(network(tmp_path), TINY, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_alone_tell_it_before_any_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """16 x 16 x 9 + 16 x 5 tiles."""
    seen: list[str] = []
    tiles = 16 * 16 * 9 + 16 * 5
    limit(monkeypatch, tiles * Isa(TINY).instruction_bytes - 1)
    with pytest.raises(CompileError, match=f"program: found {tiles * Isa(TINY).instruction_bytes} bytes or more"):
        compile_model(network(tmp_path), TINY, tmp_path / "out", progress=seen.append)
    assert seen[-1] == "layers"


def test_the_way_out_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every machine that the message names."""
    limit(monkeypatch, 8000)
    with pytest.raises(CompileError) as error:
        compile_model(network(tmp_path), TINY, tmp_path / "out")
    machines = re.findall(r"-a (\w+)", str(error.value))
    assert len(machines) >= 2
    for machine in machines:
        TModel.load(compile_model(network(tmp_path), Arch.load(machine), tmp_path / machine).model_path)


@pytest.mark.parametrize("lanes", [2, 3, 8])
@pytest.mark.parametrize("group", [1, 4, 32])
def test_never_more_than_are_stored(lanes: int, group: int, tmp_path: Path) -> None:
    """What is counted of weights is at most what becomes a tile, and just that without groups."""
    found: list[tuple[int, int]] = []

    arch = BASE.replace(array_size=lanes)

    def watch(step: Step, products: Products) -> None:
        from weft.compiler.frontend.graph import Graph
        from weft.compiler.layers.hir import Layers

        if step.name != "consts":
            return
        graph = products[Graph]
        for layer, own in zip(products[Layers], products[Consts].layers, strict=True):
            if isinstance(layer.core, Convolution):
                counted = _weight_tiles(graph.constants[layer.core.weights], layer.core.group, arch)
                found.append((counted, sum(len(tiles) for block in own.blocks for tiles in block.tiles)))

    compile_model(network(tmp_path, group), arch, tmp_path,
                  calibration={"x": np.ones((1, 32, 6, 6))}, watch=watch)
    assert len(found) == 2 and all(counted <= stored for counted, stored in found)
    assert found[1][0] == found[1][1] and (group > 1 or found[0][0] == found[0][1])


def test_windows_that_are_too_large_for_loops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """9 pixels of each of 100 windows, which share no column, on a machine whose loops have 4 instructions."""
    maker = ModelMaker((1, 8, 12, 30))
    maker.node("MaxPool", "x", kernel_shape=(3, 3), strides=(1, 3))
    path, arch = maker.save(tmp_path / "model.onnx"), BASE.replace(simd_loop_depth=4)
    size = len(TModel.load(compile_model(path, arch, tmp_path).model_path).program)
    seen: list[str] = []
    limit(monkeypatch, least := 100 * 8 * Isa(arch).instruction_bytes - 1)
    with pytest.raises(CompileError, match=f"program: found {least + 1} bytes or more"):
        compile_model(path, arch, tmp_path / "out", progress=seen.append)
    assert seen[-1] == "layers" and least < size


def test_a_schedule_ends_where_it_is_too_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not a layer further: what the weights need is half of it. The MatMuls of a pass of 9 taps are emitted at once."""
    seen: list[str] = []
    tiles, taps, size = 16 * 16 * 9 + 16 * 5, 9, Isa(TINY).instruction_bytes
    limit(monkeypatch, tiles * size)
    with pytest.raises(CompileError, match="program: found [0-9]+ bytes or more") as caught:
        compile_model(network(tmp_path), TINY, tmp_path / "out", progress=lambda step: seen.append(step.split()[0]))
    found = int(str(caught.value).partition("found ")[2].split()[0])
    assert seen[-1] == "schedule" and tiles * size < found <= (tiles + taps) * size
