# SPDX-License-Identifier: Apache-2.0
"""Layers on memories that hold next to nothing: they are split until they fit, or the refusal names the least."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.check.checker import Checker
from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tb.random.network_rule import TABLES, judge, save
from weft.tb.random.random_networks import Case

SMALLEST = BASE.replace(local_depth=2, accumulator_depth=2, simd_registers_depth=3, local_banks=1, accumulator_banks=1)


def large_dense(maker: ModelMaker) -> None:
    maker.node("Gemm", maker.node("Flatten", "x"), maker.normal(6 * 15 * 14, 5), maker.normal(5))


def average_of_an_image(maker: ModelMaker) -> None:
    maker.node("GlobalAveragePool", maker.conv("x", 6, 7, (3, 3)))


def large_kernel(maker: ModelMaker) -> None:
    maker.conv("x", 6, 5, (9, 8), pads=(4, 4, 4, 3), strides=(3, 2))


def wide_dilations(maker: ModelMaker) -> None:
    maker.conv("x", 6, 6, (3, 3), pads=(6, 5, 6, 5), dilations=(6, 5), group=2)


def maximum_of_an_image(maker: ModelMaker) -> None:
    maker.node("GlobalMaxPool", maker.conv("x", 6, 7, (3, 3)))


def large_pool(maker: ModelMaker) -> None:
    name = maker.node("Add", maker.conv("x", 6, 6, (1, 1)), "x")
    maker.node("MaxPool", maker.node("Relu", name), kernel_shape=(7, 9), strides=(3, 2), pads=(3, 4, 2, 1))


def dilated_pool(maker: ModelMaker) -> None:
    maker.node("MaxPool", "x", kernel_shape=(3, 4), dilations=(4, 3), pads=(2, 2, 2, 2))


def limited_pool(maker: ModelMaker) -> None:
    name = maker.node("Clip", maker.conv("x", 6, 6, (1, 1)), maker.constant(np.float32(0)),
                      maker.constant(np.float32(1)))
    maker.node("MaxPool", name, kernel_shape=(5, 5))


NETWORKS: list[Callable[[ModelMaker], None]] = [
    large_dense, average_of_an_image, large_kernel, wide_dilations, maximum_of_an_image, large_pool, dilated_pool,
    limited_pool]

TINY = Arch.load("tiny").replace(dram0_depth=1 << 16, dram1_depth=1 << 16)
ARCHS = {"tiny": TINY, "3 lanes": TINY.replace(array_size=3, local_depth=64, accumulator_depth=16),
         "next to nothing": TINY.replace(array_size=4, local_depth=8, accumulator_depth=3, accumulator_banks=1)}


@pytest.mark.wide_cases("*-tiny", "large_pool-*", "limited_pool-*", "large_kernel-*")
@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_a_layer_is_split(network: Callable[[ModelMaker], None], arch: Arch, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 15, 14), seed=2)
    network(maker)
    samples = maker.random.standard_normal((1, 6, 15, 14)).astype(np.float32)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples, 60)


def asked_for(refusal: str) -> dict[str, int]:
    """The depths that a refusal says would do, by key."""
    return {key: int(value) for key, value in re.findall(r"raise (\w+) to (\d+)", refusal)}


def random_arch(seed: int) -> Arch:
    """Legal, odd, and most often too small."""
    random = np.random.default_rng(seed)
    tables = {**TABLES, "lut_depth": 16} if random.integers(2) else {"simd_registers_depth": 1}
    local, accumulators, strides0, strides1, loop = (int(random.integers(low, high)) for low, high in
                                                     ((2, 40), (2, 12), (1, 4), (1, 4), (0, 6)))
    return BASE.replace(array_size=int(random.integers(2, 10)), local_depth=local, accumulator_depth=accumulators,
                        stride0_depth=strides0, stride1_depth=strides1, simd_loop_depth=loop, local_banks=1,
                        accumulator_banks=1, **tables)


@pytest.mark.wide_cases("4", "5", "6", "7", "8", "9", "10", "11")
@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 200))])
def test_any_machine_compiles_or_says_what_would_do(seed: int) -> None:
    case, arch = Case("odd", seed), random_arch(seed)
    verdict = judge(case, arch)
    if verdict.refusal:
        verdict = judge(case, arch.replace(**asked_for(verdict.refusal)))
    assert not verdict.problem and not verdict.refusal, f"{verdict}\n{arch}"


def least_named(path: Path, arch: Arch) -> dict[str, int]:
    """What the refusal asks for, by key; its text says so in all four parts."""
    with pytest.raises(CompileError) as refusal:
        compile_model(path, arch, path.parent)
    text = str(refusal.value)
    least = asked_for(text)
    assert least and all(f"{key} of at least {value} vectors" in text and str(getattr(arch, key)) in text
               for key, value in least.items())
    return least


@pytest.mark.wide_cases("2-*", "1-*", "0-5", "0-8")
@pytest.mark.parametrize("lanes", [2, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_least_named_does_and_one_less_does_not(seed: int, lanes: int, tmp_path: Path) -> None:
    arch = SMALLEST.replace(array_size=lanes, **({**TABLES, "lut_depth": 16} if lanes == 5 else {}))
    path, samples = save(Case(f"least{lanes}", seed), arch, tmp_path)
    least = least_named(path, arch)
    checker = Checker()
    compile_model(path, arch.replace(**least), tmp_path, calibration={"x": samples}, watch=checker.after)
    assert not [verdict for verdict in checker.verdicts if verdict.problem and verdict.step != "points"]
    for key, depth in least.items():
        assert least_named(path, arch.replace(**{**least, key: depth - 1})) == {key: depth}


def test_both_memories_are_named(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    maker.node("MaxPool", maker.node("LeakyRelu", maker.conv("x", 6, 5, (3, 3))), kernel_shape=(2, 2))
    least = least_named(maker.save(tmp_path / "model.onnx"), SMALLEST)
    assert least == {"local_depth": 6 + 1 + 1 + 1, "accumulator_depth": 1 + 1 + 2}
