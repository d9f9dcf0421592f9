# SPDX-License-Identifier: Apache-2.0
"""Thin inputs are packed by the host: taps of the first kernel lie in lanes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import convert

from weft.compiler.check.evaluate import convolve
from weft.compiler.layers.stages import Convolution
from weft.compiler.layers.var import Var
from weft.compiler.passes.input_packings import input_packings
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, check_every_step, check_model, run_float, signal_to_noise
from weft.tmodel.manifest import TModel
from weft.tmodel.ports import packing_of
from weft.tmodel.schema import PackingEntry
from weft.tmodel.window import Window

WINDOWS = [Window((3, 3), (1, 1), (1, 1)), Window((5, 2), (2, 3), (2, 0)), Window((2, 3), (1, 2), (0, 3), (3, 2)),
           Window((1, 4), (1, 1), (0, 3))]


@pytest.mark.parametrize("window", WINDOWS)
def test_every_packing_is_the_same_convolution(window: Window) -> None:
    """Integers: packed image and weights under what is left of the window, against the window itself."""
    random = np.random.default_rng(1)
    image, weights = random.integers(-9, 9, (3, 9, 8)), random.integers(-9, 9, (4, 3, *window.kernel))
    rows, columns = (len([0 for output in range(20) if window.reads(axis, output, (0, size))])
                     for axis, size in enumerate((9, 8)))

    def run(image: np.ndarray, weights: np.ndarray, window: Window) -> np.ndarray:
        core = Convolution(Var("x", *image.shape), "w", "b", 1, window, (rows, columns), 0)
        return convolve(image, weights, core)

    expected = run(image, weights, window)
    found = input_packings(window, (3, 9, 8), (rows, columns))
    assert [entry.axes for entry in found] == [(), (1,), (0,), (0, 1)]
    for entry in found:
        packed = entry.packing.pack(image)
        assert packed.shape == entry.packing.layout
        assert np.array_equal(run(packed, entry.weights(weights), entry.window), expected)
        assert packing_of(convert(json.loads(json.dumps(entry.packing.to_json())), PackingEntry)) == entry.packing


def first_layer(tmp_path: Path, window: Window, channels: int = 3, lanes_last: bool = False) -> tuple[Path, np.ndarray]:
    maker = ModelMaker((1, 12, 11, channels) if lanes_last else (1, channels, 12, 11))
    source = maker.node("Transpose", "x", perm=(0, 3, 1, 2)) if lanes_last else "x"
    made = maker.conv(source, channels, 9, window.kernel, strides=window.strides, dilations=window.dilations,
                      pads=(*window.pads, *window.pads))
    maker.conv(maker.node("Relu", made), 9, 4, (1, 1))
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, *maker.shape[1:]))


@pytest.mark.parametrize(("window", "lanes"), list(itertools.product(WINDOWS, (4, 8, 12))))
def test_on_the_machine(window: Window, lanes: int, tmp_path: Path) -> None:
    path, samples = first_layer(tmp_path, window, channels=1 + lanes // 4)
    check_model(path, BASE.replace(array_size=lanes), samples, 55)


@pytest.mark.parametrize("lanes_last", [False, True])
def test_every_step_agrees(lanes_last: bool, tmp_path: Path) -> None:
    path, samples = first_layer(tmp_path, WINDOWS[0], lanes_last=lanes_last)
    check_every_step(path, BASE, samples)
    model = TModel.load(tmp_path / "net.tmodel")
    port, = model.inputs
    assert port.packing is not None and port.packing.source == (3, 12, 11)
    assert (port.layout, port.size) == ((27, 12, 11), 4 * 12 * 11)
    found = Session(model).run({"x": samples}, on="golden").outputs
    expected = [run_float(path, {"x": sample[None].astype(np.float32)}) for sample in samples]
    for name, value in found.items():
        assert signal_to_noise(np.concatenate([run[name] for run in expected]), value) > 55


def test_chosen_by_what_is_slower(tmp_path: Path) -> None:
    """Where DRAM would be slower than the array the taps stay apart, and where the packed input is too large."""
    def axes(arch: Arch, outputs: int, input_cycles: float = 0.0) -> tuple[int, ...]:
        maker = ModelMaker((1, 3, 12, 11))
        maker.conv("x", 3, outputs, (3, 3), pads=(1, 1, 1, 1))
        compile_model(maker.save(tmp_path / "net.onnx"), arch, tmp_path, input_cycles=input_cycles)
        packing = TModel.load(tmp_path / "net.tmodel").inputs[0].packing
        return () if packing is None else tuple(axis for axis in (0, 1) if packing.window.kernel[axis] > 1)

    # 4 tiles of 132 pixels: 528 vectors an output tile, 1 056 beats; rows packed: 744 vectors, 528 beats
    assert axes(BASE, 9) == (0, 1)
    assert axes(BASE, 5) == (0,)
    assert axes(BASE.replace(axi_data_width=32), 9) == (0,)
    assert axes(BASE.replace(array_size=32), 5) == (0, 1)  # DRAM takes longest, and as long for each
    assert axes(BASE.replace(dram0_depth=2000), 9) == (0,)
    assert axes(BASE.replace(dram0_depth=900), 9) == ()
    # each packing takes more bytes than the one before, and fewer vectors through the array
    assert axes(BASE, 9, input_cycles=0.1) == (0,)
    assert axes(BASE, 9, input_cycles=1) == ()


def test_ports_without_packing_stay_as_they_are(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 5, 5))
    maker.conv("x", 8, 5, (3, 3))
    compile_model(maker.save(tmp_path / "net.onnx"), BASE, tmp_path)
    values = json.loads((tmp_path / "net.tmodel").read_text())["inputs"][0]
    assert "packing" not in values and TModel.load(tmp_path / "net.tmodel").inputs[0].packing is None
