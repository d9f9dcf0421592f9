# SPDX-License-Identifier: Apache-2.0
"""Front ends of speech networks: short-time spectra by convolution, powers or magnitudes, mel bands, logarithms.

Powers of speech span 90 dB, of which 16 bits at one point keep a third."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.frontend.graph import Graph, Limited
from weft.compiler.frontend.onnx_reader import to_graph
from weft.compiler.layers.hir import Layers
from weft.compiler.lowering.functions import FUNCTION
from weft.compiler.passes.fuse_functions import fuse_functions
from weft.compiler.passes.magnitudes import turn_magnitudes
from weft.compiler.passes.split_powers import parts_of
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.samples import choose_samples, whole_points
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.run_model import ModelMaker, after_all_steps, check_every_step, run_float
from weft.tmodel.network import Network

ARCH = Arch.load("ultra96")
LENGTH, WINDOW, HOP, BANDS = 1600, 64, 40, 10
BINS = WINDOW // 2 + 1
LEAST = 45
"""Decibels about the mean."""

BITS = 2.0 ** 15


def speech(count: int, seed: int = 0) -> np.ndarray:
    """Voices, hisses and pauses with the noise of a room [count, 1, LENGTH], as a recorder rounds them."""
    random, sounds = np.random.default_rng(seed), []
    for _ in range(count):
        sound = random.standard_normal(LENGTH) * 10 ** random.uniform(-4, -3)
        for begin in range(0, LENGTH, LENGTH // 4):
            time = np.arange(min(LENGTH // 4, LENGTH - begin))
            swell = np.hanning(len(time)) * 10 ** random.uniform(-2, -0.2)
            kind = random.integers(3)
            if kind == 0:
                tones = [np.sin(number * random.uniform(0.05, 0.1) * time) / number for number in range(1, 12)]
                sound[begin + time] += swell * np.sum(tones, axis=0) / 3
            elif kind == 1:
                sound[begin + time] += swell * 0.1 * np.diff(random.standard_normal(len(time) + 1))
        sounds.append(np.rint(sound.clip(-1, 1 - 1 / BITS) * BITS) / BITS)
    return np.array(sounds, np.float32)[:, None]


def noise(count: int, seed: int = 0) -> np.ndarray:
    """White noise [count, 1, LENGTH], not rounded."""
    return (0.1 * np.random.default_rng(seed).standard_normal((count, 1, LENGTH))).astype(np.float32)


def bands() -> np.ndarray:
    """Triangles over the bins [BANDS, BINS], wider and wider."""
    ends = np.geomspace(2, BINS + 3, BANDS + 2) - 2
    bins = np.arange(BINS)
    up, down = ((sign * (bins - end[:, None])) / np.diff(ends)[place, None] for sign, end, place in (
        (1, ends[:-2], slice(None, -1)), (-1, ends[2:], slice(1, None))))
    return np.maximum(np.minimum(up, down), 0).astype(np.float32) + np.eye(BANDS, BINS, dtype=np.float32)


def spectra(maker: ModelMaker) -> list[str]:
    """Real and imaginary parts [1, BINS, frames]."""
    angles = 2 * np.pi * np.arange(BINS)[:, None] * np.arange(WINDOW) / WINDOW
    filters = np.concatenate([np.cos(angles), -np.sin(angles)]) * np.hanning(WINDOW)
    made = maker.node("Conv", "x", maker.constant(filters[:, None].astype(np.float32)), strides=[HOP])
    axis = maker.constant(np.array([1]))
    return [maker.node("Slice", made, maker.constant(np.array([at])), maker.constant(np.array([at + BINS])), axis)
            for at in (0, BINS)]


def front_end(maker: ModelMaker, *, magnitude: bool = False, limit: bool = False, least: float = 1e-6) -> None:
    """``magnitude``: its root instead of the power; ``limit``: a lower limit instead of a sum."""
    power = maker.node("Add", *(maker.node("Mul", part, part) for part in spectra(maker)))
    mel = maker.node("MatMul", maker.constant(bands()), maker.node("Sqrt", power) if magnitude else power)
    raised = maker.node("Clip" if limit else "Add", mel, maker.constant(np.float32(least)))
    maker.node("Mul", maker.node("Log", raised), maker.constant(np.float32(0.4)))


def saved(folder: Path, **options: object) -> Path:
    maker = ModelMaker((1, 1, LENGTH))
    front_end(maker, **options)  # type: ignore[arg-type]
    return maker.save(folder / "model.onnx")


def worst(path: Path, calibration: np.ndarray, others: np.ndarray) -> float:
    """Decibels about the mean, of sounds that calibration has not seen."""
    report = compile_model(path, ARCH, path.parent, calibration={"x": calibration})
    assert report.warnings == () and report.partition is not None and report.macs == report.partition.macs
    session, found = Session(Network.load(report.model_path)), []
    for sound in others:
        (wanted,), (made,) = (each.values() for each in (
            run_float(path, {"x": sound[None]}), session.run({"x": sound}).outputs))
        found.append(10 * np.log10(np.square(wanted - wanted.mean()).sum() / np.square(wanted - made).sum()))
    return min(found)


@pytest.mark.parametrize("sounds", [speech, noise])
@pytest.mark.parametrize("options", [{}, {"magnitude": True}, {"limit": True, "least": 1e-10}],
                         ids=["power", "magnitude", "limited"])
@pytest.mark.wide_cases("*limited*")
def test_a_log_mel_front_end_keeps_its_bits(options: dict, sounds: object, tmp_path: Path) -> None:
    assert worst(saved(tmp_path, **options), sounds(6), sounds(2, 7)) > LEAST  # type: ignore[operator]


def test_no_step_changes_a_front_end(tmp_path: Path) -> None:
    check_every_step(saved(tmp_path), ARCH, speech(2))


def test_inputs_of_whole_numbers_keep_all_of_them(tmp_path: Path) -> None:
    """Recorded in 16 bits, no other sample goes beyond these; rounded again, pauses would have 6 dB less."""
    path, given = saved(tmp_path), speech(3)
    given[0, 0, 0] = 1 - 1 / BITS
    products = after_all_steps(path, ARCH, given)
    graph = products[Graph]
    assert products[Numbers].vars["x"] == 15
    assert whole_points(graph, choose_samples(graph, {"x": noise(2)}), 16) == {}
    assert whole_points(graph, choose_samples(graph, None), 16) == {}


def test_a_spectrum_that_is_split_is_packed_once(tmp_path: Path) -> None:
    """All convolutions of the sound read what the host packed for the first one."""
    products = after_all_steps(saved(tmp_path), ARCH, speech(2))
    layers = [layer for layer in products[Layers] if layer.core.input.root == "x"]
    assert len(layers) > 3 and all(layer.core.window.kernel[1] < WINDOW for layer in layers)
    assert products[Graph].inputs[0].packing is not None
    assert any(isinstance(bound, Limited) for bound in products[Graph].bounds.values())


def graph_of(maker: ModelMaker) -> object:
    return to_graph(onnx.shape_inference.infer_shapes(maker.model()), "made")


def test_a_limit_without_an_end_is_part_of_the_logarithm() -> None:
    """A clamp from below is written with an infinite upper limit; apart from the logarithm it would hide the powers."""
    maker = ModelMaker((1, 4, 8))
    maker.node("Log", maker.node("Clip", "x", *(maker.constant(np.float32(end)) for end in (1e-10, np.inf))))
    node, = fuse_functions(graph_of(maker), ARCH).nodes  # type: ignore[arg-type]
    assert node.op == FUNCTION and node.inputs == ("x",)


@pytest.mark.parametrize("last", ["Exp", "MatMul"])
def test_powers_that_no_logarithm_reads_stay_sums_of_squares(last: str) -> None:
    """A weight below 0 is no sum of powers, and a function that does not bend at 0 needs none of their small bits."""
    maker = ModelMaker((1, 1, LENGTH))
    power = maker.node("Add", *(maker.node("Mul", part, part) for part in spectra(maker)))
    mel = maker.node("MatMul", maker.constant(bands() - (last == "MatMul")), power)
    maker.node("Log" if last == "MatMul" else last, mel)
    graph = graph_of(maker)
    assert turn_magnitudes(graph) is graph  # type: ignore[arg-type]


def test_parts_end_where_a_function_tells_nothing_apart() -> None:
    """log(x + 1) over 0 .. 1000 needs no part for 1e-6; log(x) goes down to the least that was seen."""
    plus_one = (("Add", (0, 1.0), ()), ("Log", (1,), ()))
    parts = parts_of(plus_one, 20, 2, 1e-9, 1000.0)
    assert parts[0][0] == 0 and 2 < parts[0][1] < 64 and parts[-1][1] == 2000
    assert all(low[1] == high[0] for low, high in zip(parts, parts[1:], strict=False))
    assert len(parts_of((("Log", (0,), ()),), 20, 2, 1e-3, 1000.0)) > len(parts)
    assert parts_of(plus_one, 20, 2, 0.0, 1e-3) == [] == parts_of(plus_one, 20, 2, -1.0, 5.0)
