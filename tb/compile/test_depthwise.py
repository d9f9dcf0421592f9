# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions in passes: every tap meets every pixel once, and networks of them mean the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import Convolution
from weft.compiler.layers.taps import Pass, Steps, covers_all, passes, rows
from weft.compiler.layers.var import Var
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.tiling.search import Search
from weft.hw.contract.arch import Arch
from weft.runtime.session import RTL, Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tmodel.manifest import TModel
from weft.tmodel.window import Window

TAPS = 3
DEEP = BASE.replace(depthwise_taps=TAPS)
DEEPER = BASE.replace(depthwise_taps=9, array_size=9)
MACHINES = {
    "lanes8": DEEP,
    "lanes3_tight": DEEP.replace(array_size=3, local_depth=90, accumulator_depth=14, stride1_depth=2),
    "lanes4_no_strides": DEEP.replace(array_size=4, stride0_depth=1, stride1_depth=1),
    "lanes4_every_step": DEEP.replace(array_size=4, mac_rounding="every_step"),
    "bytes6": DEEP.replace(data_type="INT8", array_size=6, local_depth=400, accumulator_depth=40),
    "lanes9_rows": DEEPER,
    "lanes10_tight_rows": DEEPER.replace(array_size=10, local_depth=120, accumulator_depth=16),
    "lanes9_rows_every_step": DEEPER.replace(mac_rounding="every_step"),
    "bytes18_rows": DEEPER.replace(data_type="INT8", array_size=18, dsp_packing="DSP48E2", weight_load_rows=2),
    "bytes8_packed": DEEP.replace(data_type="INT8", dsp_packing="DSP48E2", weight_load_rows=2),
}


def random_window(random: Random) -> Window:
    kernel = random.choice([1, 2, 3, 5, 7]), random.choice([1, 2, 3, 3, 4, 5, 7, 9])
    pads = random.randint(0, kernel[0] - 1), random.randint(0, 2 * kernel[1])
    return Window(kernel, (random.randint(1, 3), random.randint(1, 3)), pads,
                  (random.randint(1, 2), random.randint(1, 3)))


def random_convolution(random: Random) -> Convolution:
    window, size = random_window(random), (random.randint(1, 9), random.randint(1, 20))
    reach = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(window.kernel, window.dilations, strict=True)]
    result = [max(1, (length + pad + random.randint(0, 2 * pad) - span) // stride + 1) for length, pad, span, stride in
              zip(size, window.pads, reach, window.strides, strict=True)]
    return Convolution(Var("x", 8, *size), "w", "b", 8, window, (result[0], result[1]), 0)


def met(core: Convolution, part: Pass, results: tuple[int, int]) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    """As the machine means it: (result, tap) of all that a pass adds in columns ``results``, from a tile that has no
    more than they read; and how often each result is written."""
    window, steps = core.window, Steps.of(core.window)
    inputs = window.inputs(1, *results, core.input.width)
    added: Counter[tuple[int, int]] = Counter()
    written: Counter[int] = Counter()
    for row in rows(window, part, results, inputs):
        assert row.size >= 1 and 0 <= row.origin < part.taps and 0 <= row.dropped < TAPS
        assert inputs[0] <= row.near and row.near + (row.size - 1) * steps.inputs < inputs[1]
        for place in range(row.size - row.dropped):
            result = row.far + place * steps.results
            written[result] += 1
            for tap in range(part.taps):
                meets = place + tap - row.origin
                column = part.tap[1] + tap * steps.taps
                if 0 <= meets < row.size:
                    pixel = result * window.strides[1] - window.pads[1] + column * window.dilations[1]
                    assert pixel == row.near + meets * steps.inputs
                    added[result, column] += 1
    return added, written


@pytest.mark.parametrize("seed", range(300))
def test_every_tap_meets_every_pixel_of_the_image_once(seed: int) -> None:
    random = Random(seed)
    core = random_convolution(random)
    found = [part for part in passes(core, DEEP) if part.tap[0] == 0]
    width = core.size[1]
    cut = random.randint(0, width)
    for results in ((0, width), (0, cut), (cut, width)):
        if results[0] == results[1]:
            continue
        added: Counter[tuple[int, int]] = Counter()
        for part in found:
            own, written = met(core, part, results)
            assert set(written.values()) <= {1} and all(results[0] <= each < results[1] for each in written)
            added += own
            if covers_all(core, part):
                assert sorted(written) == [*range(*results)], "its bias comes with it"
        meant = {(result, tap): 1 for tap in range(core.window.kernel[1])
                 for result in range(*core.window.outputs(1, tap, *results, core.input.width))}
        assert not found or added == meant
    assert bool(found) == (Steps.of(core.window).inputs in (1, 2) and Steps.of(core.window).results in (1, 2))


@pytest.mark.parametrize("arch", [DEEP, DEEPER], ids=["taps3", "taps9"])
def test_accumulators_have_room_for_all_that_a_pass_drops(arch: Arch, tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 4, 12))
    maker.conv("x", 8, 8, (3, 3), group=8)
    products = after_all_steps(maker.save(tmp_path / "net.onnx"), arch, np.ones((1, 8, 4, 12)))
    (layer,), (consts,) = products[Layers], products[Consts].layers
    assert isinstance(layer.core, Convolution)
    width = layer.core.size[1]
    dropped = max(row.dropped for part in passes(layer.core, arch) for row in rows(
        layer.core.window, part, (0, width), (0, layer.core.input.width)))
    assert Search().shape(layer, consts, arch).overhang == dropped > 0


def network(path: Path, random: Random) -> tuple[Path, np.ndarray]:
    """One or two depthwise convolutions, of one dimension or two; sometimes with a product of channels between."""
    channels = random.randint(2, 20)
    size: tuple[int, ...] = random.choice([1, random.randint(1, 9)]), random.randint(2, 18)
    maker, source = ModelMaker((1, channels, *size), seed=random.randrange(1000)), "x"
    for number in range(random.randint(1, 2)):
        window = random_window(random)
        kernel = tuple(min(each, length) for each, length in zip(window.kernel, size, strict=True))
        dilations = tuple(each if (reach - 1) * each < length else 1 for each, reach, length in
                          zip(window.dilations, kernel, size, strict=True))
        pads = [random.randint(0, reach) for reach in (*kernel, *kernel)]
        strides = window.strides
        if number and random.random() < 0.5:
            source = maker.conv(source, channels, channels, (1, 1))
        source = maker.conv(source, channels, channels, (kernel[0], kernel[1]), group=channels, pads=pads,
                            strides=strides, dilations=dilations, bias=random.random() < 0.7)
        size = tuple((length + pads[axis] + pads[axis + 2] - (kernel[axis] - 1) * dilations[axis] - 1)
                     // strides[axis] + 1 for axis, length in enumerate(size))
        if random.random() < 0.5:
            source = maker.node("Relu", source)
    return maker.save(path / "net.onnx"), maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", MACHINES)
def test_no_step_changes_what_a_network_means(name: str, seed: int, tmp_path: Path) -> None:
    path, samples = network(tmp_path, Random(f"{name} {seed}"))
    check_every_step(path, MACHINES[name], samples)


@pytest.mark.slow
@pytest.mark.wide_cases("lanes4_slices", "lanes12_int8")
@pytest.mark.parametrize("name", ["lanes4_slices", "lanes12_int8", "lanes10_taps9"])
def test_hardware_leaves_what_golden_leaves(name: str, tmp_path: Path) -> None:
    """Small memories, register slices; of bytes two in a DSP block; rows of taps."""
    arch = lockstep_archs()[name]
    for seed in range(4):
        path, samples = network(tmp_path, Random(f"rtl {seed}"))
        report = compile_model(path, arch, tmp_path, calibration={"x": samples})
        found = Session(TModel.load(report.model_path)).run({"x": samples[:1]}, on=RTL).comparison
        assert found is not None
        found.insist()


def compiled(arch: Arch, path: Path, kernel: tuple[int, int], **attributes: list[int]) -> Products:
    """A depthwise convolution of 8 channels, 8 x 30 pixels."""
    maker = ModelMaker((1, 8, 8, 30))
    maker.node("Conv", "x", maker.normal(8, 1, *kernel), maker.normal(8), group=8, **attributes)
    return after_all_steps(maker.save(path / "net.onnx"), arch, np.ones((1, 8, 8, 30), np.float32))


@pytest.mark.parametrize(("arch", "kernel", "attributes", "count"), [
    (DEEP, (3, 3), {"pads": [1, 1, 1, 1]}, 3),  # a pass for each row of the kernel
    (DEEP, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, 6),  # columns 0 and 2 together, 1 alone
    (DEEP, (5, 5), {"pads": [2, 2, 2, 2]}, 10),
    (DEEP, (1, 3), {"dilations": [1, 2]}, 1),  # even results and odd ones
    (DEEP, (1, 7), {"pads": [0, 3, 0, 3]}, 3),
    (DEEPER, (3, 3), {"pads": [1, 1, 1, 1]}, 1),
    (DEEPER, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, 2),
    (DEEPER, (3, 3), {"dilations": [3, 2]}, 1),
    (DEEPER, (5, 5), {"pads": [2, 2, 2, 2]}, 4)])
def test_so_many_passes(arch: Arch, kernel: tuple[int, int], attributes: dict[str, list[int]], count: int,
                        tmp_path: Path) -> None:
    products = compiled(arch, tmp_path, kernel, **attributes)
    (block,) = products[Consts].layers[0].blocks
    (tiles,) = block.tiles
    assert len(tiles) == count
    assert block.size == 1 + sum(tile.kernel_rows for tile in tiles) * TAPS, "rows of weights are dense"
    assert all(each.tap_origin for each in products[Schedule].operations if isinstance(each, lir.MatMul) and each.local)


@pytest.mark.parametrize(("kernel", "attributes"), [
    ((3, 3), {"strides": [3, 3]}),  # a stride that has no code
    ((1, 3), {"pads": [0, 2, 0, 2]}),  # more results than vectors, so that taps go one by one
    ((1, 1), {}), ((3, 1), {})])  # nothing to gain
def test_lanes_are_joined_where_that_is_as_good(kernel: tuple[int, int], attributes: dict[str, list[int]],
                                                tmp_path: Path) -> None:
    plain, deep = (compiled(arch, tmp_path, kernel, **attributes) for arch in (BASE, DEEP))
    assert plain[Consts].layers[0].blocks == deep[Consts].layers[0].blocks
    assert not any(each.tap_origin for each in deep[Schedule].operations if isinstance(each, lir.MatMul))
