# SPDX-License-Identifier: Apache-2.0
"""ReLU6, Clip and LeakyReLU where results leave the accumulators, on machines with output_maximum and output_slope."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.pipeline import compile_model
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import EVERY_STEP
from weft.runtime.session import RTL, Session
from weft.tb.compile.run_model import ModelMaker, after_all_steps, check_every_step, run_golden
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tmodel.manifest import TModel

BASE = Arch.load("tiny").replace(array_size=4, local_depth=256, accumulator_depth=64, dram0_depth=4096,
                                 dram1_depth=4096, simd_registers_depth=2)
MACHINES = {
    "both": BASE.replace(output_maximum=1, output_slope=1),
    "maximum": BASE.replace(output_maximum=1),
    "slope": BASE.replace(output_slope=1),
    "every_step": BASE.replace(output_maximum=1, output_slope=1, mac_rounding=EVERY_STEP),
    "no_registers": BASE.replace(output_maximum=1, output_slope=1, simd_registers_depth=0),
}


def activation(maker: ModelMaker, random: Random, source: str) -> str:
    """Add one that may or may not lie on output, of values about -3 to 3."""
    kind = random.choice(["Relu", "LeakyRelu", "Clip", "Clip", "nothing"])
    if kind == "Relu":
        return maker.node("Relu", source)
    if kind == "LeakyRelu":
        return maker.node("LeakyRelu", source, alpha=random.choice([0.1, 0.01, 0.5, 0.3]))
    if kind == "Clip":
        low, high = random.choice([(0.0, 1.5), (0.0, 6.0), (-1.0, 0.7), (0.3, 1.1)])
        return maker.node("Clip", source, maker.constant(np.float32(low)), maker.constant(np.float32(high)))
    return source


def network(path: Path, random: Random, pools: bool) -> tuple[Path, np.ndarray]:
    """A chain of convolutions with activations, residuals, results that several nodes read, and max pools."""
    maker = ModelMaker((1, 6, 8, 7), random.randrange(1 << 30))
    source = "x"
    for _ in range(random.randint(1, 3)):
        made = maker.conv(source, 6, 6, (3, 3), pads=[1] * 4)
        if random.random() < 0.4:
            made = maker.node("Add", made, source)
        active = activation(maker, random, made)
        if pools and random.random() < 0.3:
            active = maker.node("MaxPool", active, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        source = maker.node("Add", active, made) if random.random() < 0.3 else active
    return maker.save(path / "net.onnx"), maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", MACHINES)
def test_no_step_changes_what_a_network_means(name: str, seed: int, tmp_path: Path) -> None:
    arch = MACHINES[name]
    path, samples = network(tmp_path, Random(f"{name} {seed}"), bool(arch.simd_registers_depth))
    check_every_step(path, arch, samples)


@pytest.mark.slow
def test_hardware_leaves_what_golden_leaves(tmp_path: Path) -> None:
    arch = lockstep_archs()["lanes10_taps9"]
    assert arch.output_maximum and arch.output_slope
    for seed in range(4):
        path, samples = network(tmp_path, Random(f"rtl {seed}"), pools=True)
        report = compile_model(path, arch, tmp_path, calibration={"x": samples})
        found = Session(TModel.load(report.model_path)).run({"x": samples[:1]}, on=RTL).comparison
        assert found is not None
        found.insist()


def compiled(arch: Arch, path: Path, op: str, *bounds: float, **attributes: float) -> tuple[lir.Operation, ...]:
    maker = ModelMaker((1, 4, 6, 6))
    made = maker.conv("x", 4, 4, (1, 1))
    maker.node(op, made, *(maker.constant(np.float32(bound)) for bound in bounds), **attributes)
    samples = 3 * np.ones((1, 4, 6, 6), np.float32)
    return after_all_steps(maker.save(path / "net.onnx"), arch, samples)[Schedule].operations


@pytest.mark.parametrize(("key", "op", "bounds", "attributes"), [
    ("output_maximum", "Clip", (0, 6), {}), ("output_maximum", "Clip", (-1, 1), {}),
    ("output_slope", "LeakyRelu", (), {"alpha": 0.1})])
def test_the_simd_unit_has_nothing_to_do(key: str, op: str, bounds: tuple[float, ...], attributes: dict[str, float],
                                         tmp_path: Path) -> None:
    """And is not needed: the machine may be without its registers."""
    without = compiled(BASE, tmp_path, op, *bounds, **attributes)
    assert any(isinstance(each, lir.Simd) for each in without)
    found = compiled(BASE.replace(**{key: 1}, simd_registers_depth=0), tmp_path, op, *bounds, **attributes)
    assert not any(isinstance(each, lir.Simd) for each in found)
    assert any(each.relu for each in found if isinstance(each, lir.DataMove))


def test_a_slope_is_exact_to_a_part_in_thousands(tmp_path: Path) -> None:
    """On average, rounding aside. As a number of the type's own point it would be wrong by up to 19 %."""
    maker = ModelMaker((1, 4, 8, 8))
    maker.node("LeakyRelu", "x", alpha=0.0105)
    samples = -maker.random.uniform(1, 2, (1, 4, 8, 8)).astype(np.float32)
    path = maker.save(tmp_path / "net.onnx")
    model = TModel.load(compile_model(path, MACHINES["both"], tmp_path, calibration={"x": samples}).model_path)
    (found,) = run_golden(model, {"x": samples}).values()
    assert abs(found.sum() / samples.sum() / 0.0105 - 1) < 0.002
