# SPDX-License-Identifier: Apache-2.0
"""A layer that saves its result twice: as it is, and after a ReLU or a max pool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.layers.hir import Layers
from weft.compiler.layers.var import PIECE, Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.quantize.numbers import Numbers
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model

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


def test_one_layer_makes_both(tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    kinds = [layer.kind for layer in after_all_steps(path, BASE, samples)[Layers]]
    assert kinds.count("mat_mul+save+relu") == 1
    assert kinds.count("mat_mul+add+add+save+relu") == 1
    assert not [kind for kind in kinds if kind.startswith("load")]


@pytest.mark.wide_cases("arch2")
@pytest.mark.parametrize("arch", [BASE, BASE.replace(local_depth=40, accumulator_depth=12), TINY])
def test_both_are_right(arch: Arch, tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    check_model(path, arch, samples, 55)
    check_every_step(path, arch, samples)


def test_ranges_of_both(tmp_path: Path) -> None:
    """Large negative values of one do not cost the other its places behind the point."""
    maker = ModelMaker((1, 8, 4, 4), seed=4)
    made = maker.node("Conv", "x", maker.normal(8, 8, 1, 1), maker.constant(np.full(8, -40, np.float32)))
    last = maker.conv(maker.node("Relu", made), 8, 8, (1, 1))
    path = maker.save(tmp_path / "net.onnx", made, last)
    samples = maker.random.standard_normal((1, 8, 4, 4)) * 8
    check_model(path, BASE, samples, 60)
    raw, positive = after_all_steps(path, BASE, samples)[Numbers].layers[0].output_shifts
    assert raw > positive


# -- as it is and after a max pool -------------------------------------------------------------------------------------
HALVES = {"kernel_shape": (2, 2), "strides": (2, 2)}


def joined(tmp_path: Path, activation: str = "LeakyRelu", pool: Mapping[str, tuple[int, ...]] = HALVES,
           ) -> tuple[Path, np.ndarray]:
    """YOLOv4-tiny's way: a concatenation that only a pool reads, whose first part others read too."""
    maker = ModelMaker((1, 5, 6, 8), seed=5)
    limits = [maker.constant(np.float32(0)), maker.constant(np.float32(1))] if activation == "Clip" else []
    whole = maker.node(activation, maker.conv("x", 5, 13, (3, 3), pads=(1, 1, 1, 1)), *limits)
    fine = maker.node(activation, maker.conv(whole, 13, 11, (1, 1)), *limits)
    pooled = maker.node("MaxPool", maker.node("Concat", whole, fine, axis=1), **{**HALVES, **pool})
    maker.conv(pooled, 24, 4, (1, 1))
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, 5, 6, 8))


def test_parts_of_a_concatenation_are_pooled_where_they_are_made(tmp_path: Path) -> None:
    path, samples = joined(tmp_path)
    kinds = [layer.kind for layer in after_all_steps(path, BASE, samples)[Layers]]
    assert kinds == ["mat_mul+leaky_relu+save+max_pool", "mat_mul+leaky_relu+max_pool", "mat_mul"]


def test_pools_that_share_pixels_are_layers_of_their_own(tmp_path: Path) -> None:
    """Else pixels would be saved twice, or not at all."""
    pools: list[dict[str, tuple[int, ...]]] = [
        {"strides": (1, 1)}, {"strides": (3, 2)}, {"pads": (1, 0, 1, 0)}, {"dilations": (2, 2)},
        {"kernel_shape": (4, 4), "strides": (4, 4)}]
    for number, pool in enumerate(pools):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, samples = joined(folder, pool=pool)
        assert "load+max_pool" in [layer.kind for layer in after_all_steps(path, BASE, samples)[Layers]], pool
        check_model(path, BASE, samples, 55)


@pytest.mark.wide_cases("arch3-*", "arch1-*")
@pytest.mark.parametrize("activation", ["LeakyRelu", "Relu", "Clip"])
@pytest.mark.parametrize("arch", [BASE, BASE.replace(local_depth=40, accumulator_depth=12),
                                  BASE.replace(local_depth=14, accumulator_depth=4, accumulator_banks=1), TINY])
def test_both_sizes_are_right(arch: Arch, activation: str, tmp_path: Path) -> None:
    path, samples = joined(tmp_path, activation)
    check_model(path, arch, samples, 55)
    check_every_step(path, arch, samples)


def test_a_tensor_that_is_an_output_is_pooled_too(tmp_path: Path) -> None:
    """Both with a residual sum before them."""
    maker = ModelMaker((1, 8, 4, 6), seed=6)
    total = maker.node("Add", maker.conv("x", 8, 8, (3, 3), pads=(1, 1, 1, 1)), "x")
    path = maker.save(tmp_path / "net.onnx", total, maker.node("MaxPool", total, **HALVES))
    samples = maker.random.standard_normal((2, 8, 4, 6))
    assert [layer.kind for layer in after_all_steps(path, BASE, samples)[Layers]] == ["mat_mul+add+save+max_pool"]
    check_model(path, BASE, samples, 60)


# -- as a piece of an output, and for its readers ----------------------------------------------------------------------
TABLES = BASE.replace(lut_count=2, lut_depth=256, simd_registers_depth=3)


def state(tmp_path: Path, made: str, width: int = 3) -> tuple[Path, np.ndarray]:
    """A tensor that ``made`` makes is half of an output, as states are, and others read it."""
    maker = ModelMaker((1, 8, 1, width), seed=7)
    left, right = maker.conv("x", 8, 16, (1, 1)), maker.conv("x", 8, 16, (1, 1))
    new = maker.node(made, left, *([right] if made in ("Add", "Mul") else []))
    whole = maker.node("Concat", maker.node("Mul", right, maker.constant(np.full((1, 16, 1, 1), 3, np.float32))), new,
                       axis=1)
    last = maker.conv(maker.node("Tanh", new), 16, 4, (1, 1))
    return maker.save(tmp_path / "net.onnx", whole, last), maker.random.standard_normal((2, 8, 1, width))


@pytest.mark.parametrize("made", ["Add", "Mul", "Sigmoid", "Conv"])
def test_a_piece_of_an_output_is_saved_for_its_readers(made: str, tmp_path: Path) -> None:
    """It is not read back from DRAM, where it would hold up weights."""
    path, samples = state(tmp_path, made) if made != "Conv" else split(tmp_path)
    built = after_all_steps(path, TABLES, samples)
    twice = [layer for layer in built[Layers] if len(layer.saves) == 2]
    assert len(twice) == 1
    own, piece = twice[0].outputs
    assert own.part is None and piece.part is not None and piece.tensor == own.name
    assert own in {var for layer in built[Layers] for var in layer.inputs}
    assert own.root in built[MemoryPlan].residents
    check_model(path, TABLES, samples, 45)
    check_every_step(path, TABLES, samples)


def split(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """The same where a convolution makes it."""
    maker = ModelMaker((1, 8, 1, 3), seed=8)
    new = maker.conv("x", 8, 16, (1, 1))
    whole = maker.node("Concat", new, maker.conv("x", 8, 16, (1, 1)), axis=1)
    last = maker.conv(maker.node("Tanh", new), 16, 4, (1, 1))
    return maker.save(tmp_path / "net.onnx", whole, last), maker.random.standard_normal((2, 8, 1, 3))


def test_a_large_piece_of_an_output_is_saved_once(tmp_path: Path) -> None:
    path, samples = state(tmp_path, "Add", width=80)
    assert all(len(layer.saves) == 1 for layer in after_all_steps(path, TABLES, samples)[Layers])


def test_names_of_pieces_are_no_tensors_of_a_file() -> None:
    assert Var("pad/piece", 1, 1, 1).tensor == "pad/piece"
    assert Var("state" + PIECE, 1, 1, 1).tensor == "state"
