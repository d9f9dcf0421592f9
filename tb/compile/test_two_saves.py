"""A layer that saves its result twice: as it is, and after a ReLU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import State, Step, compile_model
from weft.compiler.run.check import Checker
from weft.hw.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, check_model

TINY = Arch.load("tiny").replace(dram0_depth=1 << 14, dram1_depth=1 << 14)


def network(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Two residual blocks: each sum is read as it is by the next, and after a ReLU by a convolution. The first sum's
    other reader stands before the ReLU, and the second sum is an output of the network."""
    maker = ModelMaker((1, 5, 6, 7), seed=3)
    first = maker.node("Add", maker.conv("x", 5, 9, (1, 1)), maker.conv("x", 5, 9, (3, 3), pads=(1, 1, 1, 1)))
    side = maker.node("Relu", maker.conv(first, 9, 9, (1, 1)))
    inner = maker.conv(maker.node("Relu", first), 9, 9, (3, 3), pads=(1, 1, 1, 1))
    second = maker.node("Add", first, maker.node("Add", side, inner))
    last = maker.conv(maker.node("Relu", second), 9, 4, (1, 1))
    return maker.save(tmp_path / "net.onnx", second, last), maker.random.standard_normal((2, 5, 6, 7))


def compiled(path: Path, arch: Arch, samples: np.ndarray) -> State:
    states: list[State] = []

    def watch(step: Step, state: State) -> None:
        states.append(state)

    compile_model(path, arch, path.parent, calibration={"x": samples}, watch=watch)
    return states[-1]


def test_one_layer_makes_both(tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    kinds = [layer.kind for layer in compiled(path, BASE, samples).layers]
    assert kinds.count("mat_mul+save+relu") == 1
    assert kinds.count("mat_mul+add+add+save+relu") == 1
    assert not [kind for kind in kinds if kind.startswith("load")]


@pytest.mark.parametrize("arch", [BASE, BASE.replace(local_depth=40, accumulator_depth=12), TINY])
def test_both_are_right(arch: Arch, tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    check_model(path, arch, samples, 55)
    checker = Checker()
    compile_model(path, arch, tmp_path, calibration={"x": samples}, watch=checker.after)
    checker.insist()


def test_ranges_of_both(tmp_path: Path) -> None:
    """Large negative values of one do not cost the other its places behind the point."""
    maker = ModelMaker((1, 8, 4, 4), seed=4)
    made = maker.node("Conv", "x", maker.normal(8, 8, 1, 1), maker.constant(np.full(8, -40, np.float32)))
    last = maker.conv(maker.node("Relu", made), 8, 8, (1, 1))
    path = maker.save(tmp_path / "net.onnx", made, last)
    samples = maker.random.standard_normal((1, 8, 4, 4)) * 8
    check_model(path, BASE, samples, 60)
    raw, positive = compiled(path, BASE, samples).points.layers[0].leave_shifts
    assert raw > positive
