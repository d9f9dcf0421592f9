# SPDX-License-Identifier: Apache-2.0
"""``weft run`` warns of numbers that saturated where the network did not mean it, and its cure works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cli.poor import saturations
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime import Network, RunResult, Session
from weft.runtime.programs import Batch
from weft.runtime.saturations import Saturated, saturated
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.random.network_rule import TABLES
from weft.tmodel.manifest import BY_RANGES

WORDS = BASE.replace(**TABLES)
BYTES = Arch.load("arty_int8")
GENERATOR = np.random.default_rng(4)


def functions(maker: ModelMaker) -> None:
    """A sigmoid of large numbers, normalised values of wide variances, a softmax that is sure."""
    rows = maker.node("LayerNormalization", "x", maker.constant(np.ones(6, np.float32)), axis=-1)
    far = maker.node("Sigmoid", maker.node("Mul", rows, maker.constant(np.float32(40))))
    sure = maker.node("Softmax", maker.node("MatMul", far, maker.constant(60 * np.eye(6, dtype=np.float32))))
    maker.node("Add", sure, far)


def clipped(maker: ModelMaker) -> None:
    """A Clip far below what comes to it, then a ReLU."""
    made = maker.node("Conv", "x", maker.normal(8, 3, 3, 3), pads=[1, 1, 1, 1])
    made = maker.node("Clip", made, maker.constant(np.float32(0)), maker.constant(np.float32(1)))
    maker.node("Relu", maker.node("Conv", made, maker.normal(4, 8, 1, 1)))


def plain(maker: ModelMaker) -> None:
    maker.node("Relu", maker.node("Conv", "x", maker.constant(np.ones((4, 3, 1, 1), np.float32))))


CASES: dict[str, tuple[Callable[[ModelMaker], None], Arch, tuple[int, ...], int]] = {
    "functions": (functions, WORDS, (5, 6), 17), "clipped": (clipped, WORDS, (3, 6, 6), 13),
    "clipped in bytes": (clipped, BYTES, (3, 6, 6), 13), "plain": (plain, WORDS, (3, 6, 6), 13),
    "plain in bytes": (plain, BYTES, (3, 12, 12), 13)}


def compiled(case: str, folder: Path, samples: np.ndarray, **options: str) -> Network:
    draw, arch, shape, opset = CASES[case]
    maker = ModelMaker([1, *shape], opset=opset)
    draw(maker)
    path = maker.save(folder / "m.onnx")
    return Network.load(compile_model(path, arch, folder, calibration={"x": samples}, **options).model_path)  # type: ignore[arg-type]


def drawn(case: str, count: int = 6) -> np.ndarray:
    """Samples whose sizes differ by a factor of 30."""
    shape = CASES[case][2]
    sizes = np.geomspace(0.1, 3, count).reshape(-1, *[1] * len(shape))
    return (sizes * GENERATOR.standard_normal((count, *shape))).astype(np.float32)


def ran(network: Network, samples: np.ndarray) -> tuple[RunResult, list[str]]:
    result = Session(network).run({"x": samples})
    return result, saturations(result, network.arch)


@pytest.mark.parametrize("case", CASES)
def test_samples_of_the_calibration_do_not_saturate(case: str, tmp_path: Path) -> None:
    samples = drawn(case)
    result, said = ran(compiled(case, tmp_path, samples), samples)
    assert not said and result.saturated and not result.saturated.beyond


@pytest.mark.parametrize("case", ["plain", "plain in bytes"])
def test_the_cure_of_a_warning_works(case: str, tmp_path: Path) -> None:
    """Calibration saw a channel at a time; two samples have all three, so that their sums have no room."""
    channel = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2], :, None, None]
    seen = GENERATOR.uniform(0.9, 1, (6, *CASES[case][2])).astype(np.float32) * channel
    given = np.concatenate([seen, seen[:3].sum(0, keepdims=True).repeat(2, 0)])
    result, said = ran(compiled(case, tmp_path, seen), given)
    assert result.saturated and result.saturated.beyond and set(result.saturated.images) == {6, 7}
    assert len(said) == 1 and "beyond what calibration saw" in said[0] and "in samples 6, 7;" in said[0]
    assert not ran(compiled(case, tmp_path, given), given)[1]


def test_narrower_ranges_saturate_as_they_are_meant_to(tmp_path: Path) -> None:
    """A value far out is not worth the steps of all others: no calibration cures that, and none is called for."""
    samples = drawn("plain in bytes", 32)
    samples[0, 0, 0, 0] = 40
    result, said = ran(compiled("plain in bytes", tmp_path, samples, ranges="error"), samples)
    assert result.saturated and not result.saturated.beyond and result.saturated_inputs
    assert said and all("--ranges minmax" in line and "--calibrate" not in line for line in said)
    result, said = ran(compiled("plain in bytes", tmp_path, samples), samples)
    assert not said and not result.saturated_inputs


def test_instructions_of_a_batch_are_found_in_the_program_of_one_image(tmp_path: Path) -> None:
    network = compiled("clipped", tmp_path, drawn("clipped"))
    session = Session(network)
    batch, size = session.machines[0].batch, session.machines[0].isa.instruction_bytes
    program, count = network.machines[0].program, 3
    stream, = batch.groups(count)[0]
    whole = len(program) // size
    for at in range(len(stream) // size):
        image, number = batch.place(0, 0, at)
        assert 0 <= image < count and number < whole
        if number >= 0:
            assert stream[at * size:(at + 1) * size] == program[number * size:(number + 1) * size]
    assert isinstance(batch, Batch) and batch.place(0, 0, len(stream) // size - 1) == (count - 1, whole - 1)


def test_each_count_is_of_its_image_core_and_layer() -> None:
    """Core 1 has other layers. What is before an image's program, or of no known layer, nobody meant."""
    rows = [{"saturates": "a lookup table"}, {"saturates": BY_RANGES}, {}]
    ways = [np.array([0, 1, 2, 3]), np.array([2, 2, 2, 2])]
    model: Any = SimpleNamespace(of_core=lambda core: SimpleNamespace(instruction_layers=ways[core], layers=rows))
    batch: Any = SimpleNamespace(place=lambda group, core, instruction: (2 * group + core, instruction))

    def found(*groups: list[dict[int, int]]) -> Saturated:
        return saturated(model, batch, groups, 10)

    assert found([{0: 5}, {}]) == Saturated() and found() == Saturated()
    assert found([{1: 5}, {}]) == Saturated(narrowed=5)
    assert found([{2: 5}, {}]) == Saturated(5, images=(10,))
    assert found([{}, {0: 5, 1: 2}], [{2: 1}]) == Saturated(8, images=(11, 12))
    for unknown in (3, 4, -1, -3):
        assert found([{unknown: 5}, {}]) == Saturated(5, images=(10,)), unknown
