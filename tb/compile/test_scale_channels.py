# SPDX-License-Identifier: Apache-2.0
"""Gates of channels in bytes, as squeeze and excitation has them: the multipliers with which results leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.layers.hir import Layers
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import GOLDEN, RTL, Session
from weft.tb.compile.layer_bytes import Checked, together
from weft.tb.compile.run_model import BASE, run_float
from weft.tb.compile.test_quantised_variants import SAMPLES, SHAPE, Maker
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tmodel.network import Network

ROOMY = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)
ARCHS = {"8 lanes": ROOMY, "3 lanes": ROOMY.replace(array_size=3),
         "from DRAM": ROOMY.replace(array_size=4, local_depth=256, accumulator_depth=64),
         "packed": ROOMY.replace(array_size=12, dsp_packing="DSP48E1")}
CHANNELS, INNER, SCALE = SHAPE[1], 13, 0.06


def excited(maker: Maker, function: str = "Sigmoid", zero: int = -128, scale: float = 1 / 255,
            **given: Any) -> str:
    """A tensor of INNER channels, and its product with the gate that is made of its means."""
    inner = maker.rounded(maker.conv(maker.x, CHANNELS, INNER, pads=(1, 1, 1, 1)), SCALE)
    mean = maker.rounded(maker.node("GlobalAveragePool", inner), 0.01)
    squeezed = maker.rounded(maker.conv(mean, INNER, INNER, 1), 0.02)
    gate = maker.rounded(maker.node(function, squeezed, **given), scale, zero)
    return maker.rounded(maker.node("Mul", inner, gate), SCALE, -3)


def judge(path: Path, arch: Arch, calibration: np.ndarray = SAMPLES) -> Checked:
    """One part, in which no step changes the result, layers give onnxruntime's bytes, and the answer is near."""
    watch = Checked()
    report = compile_model(path, arch, path.parent, calibration={"x": calibration}, watch=watch.after)
    watch.checker.insist()
    assert len(watch.parts) == 1
    session = Session(Network.load(report.model_path))
    for sample in SAMPLES:
        found = watch.differences({"x": sample})
        assert any("Mul" in name for name in found)
        assert together([found]).max() <= 1 and (together([found]) > 0).mean() <= 0.005
        wanted, = run_float(path, {"x": sample[None]}).values()
        made, = session.run({"x": sample}).outputs.values()
        assert np.abs(made - wanted).max() <= 3.1 * SCALE
    return watch


@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
def test_gates_are_exact_on_any_machine(arch: Arch, tmp_path: Path) -> None:
    maker = Maker()
    watch = judge(maker.save(tmp_path / "model.onnx", excited(maker)), arch)
    assert [layer.kind for layer in watch.parts[1][Layers]][-2:] == ["mat_mul+round+lookup", "load+scale_channels"]


@pytest.mark.parametrize(("function", "zero", "scale", "given"), [
    ("Sigmoid", 0, 1 / 127, {}), ("Sigmoid", -128, 1 / 300, {}), ("HardSigmoid", -100, 1 / 200, {"alpha": 0.3}),
    ("Relu", -128, 0.00223, {}), ("Relu", 5, 0.01, {}), ("Exp", -128, 0.013, {})])
def test_any_function_that_is_never_negative(function: str, zero: int, scale: float, given: dict[str, float],
                                             tmp_path: Path) -> None:
    """Whatever the gate's zero point is, saturated or not, above 1 or not."""
    maker = Maker(17, np.uint8)
    judge(maker.save(tmp_path / "model.onnx", excited(maker, function, zero, scale, **given)), ROOMY)


def test_a_gate_of_two_tensors_in_either_place(tmp_path: Path) -> None:
    maker = Maker()
    mean = maker.rounded(maker.node("GlobalAveragePool", maker.x), 0.01)
    gate = maker.rounded(maker.node("Sigmoid", mean), 1 / 256, -128)
    both = [maker.rounded(maker.node("Mul", *pair), SCALE) for pair in ((gate, maker.x), (maker.rounded(
        maker.conv(maker.x, CHANNELS, CHANNELS, pads=(1, 1, 1, 1)), SCALE), gate))]
    total = maker.rounded(maker.node("Add", both[0], maker.node("Relu", both[1])), 0.1)
    watch = judge(maker.save(tmp_path / "model.onnx", total), ROOMY)
    kinds = [layer.kind for layer in watch.parts[1][Layers]]
    assert sum("scale_channels" in kind for kind in kinds) == 2 and sum("lookup" in kind for kind in kinds) == 2


def test_a_gate_that_its_scale_alone_keeps_from_below_0(tmp_path: Path) -> None:
    """As quantisers leave a ReLU out: means below 0 are bytes of 0. Graphs that do not round have them as they are."""
    maker = Maker()
    inner = maker.rounded(maker.conv(maker.x, CHANNELS, INNER, pads=(1, 1, 1, 1)), SCALE)
    gate = maker.rounded(maker.node("GlobalAveragePool", inner), 0.0017, -128)
    judge(maker.save(tmp_path / "model.onnx", maker.rounded(maker.node("Mul", inner, gate), SCALE, -3)), ROOMY)


@pytest.mark.parametrize("repeated", [True, False])
def test_a_gate_that_is_rounded_again(repeated: bool, tmp_path: Path) -> None:
    """To a second scale, while others read it in its first: none of the two roundings is left out. Where nothing is
    repeated, that copy is not taken for what repeats a gate."""
    maker = Maker()
    mean = maker.rounded(maker.node("GlobalAveragePool", maker.x), 0.01)
    gate = maker.rounded(maker.node("Sigmoid", mean), 0.02, -128)
    spread = maker.node("Expand", gate, maker.value(np.array(SHAPE, np.int64))) if repeated else gate
    other = maker.rounded(maker.node("GlobalMaxPool", maker.x), 0.05)
    product = maker.node("Mul", maker.x if repeated else other, maker.rounded(spread, 0.0051, -128))
    total = maker.rounded(maker.node("Add", maker.rounded(product, SCALE), gate), 0.1)
    path = maker.save(tmp_path / "model.onnx", total)
    if repeated:
        judge(path, ROOMY)
        return
    with pytest.raises(CompileError, match="two computed tensors to multiply"):
        compile_model(path, ROOMY, tmp_path, calibration={"x": SAMPLES})


@pytest.mark.parametrize("bits", [24, 25, 32])
def test_no_sum_outgrows_the_accumulators(bits: int, tmp_path: Path) -> None:
    """Of bytes that all lie above the real 0: a product with a gate, and the sum of two tensors."""
    maker = Maker()
    positive = maker.rounded(maker.node("Relu", maker.x), 0.012, -128)
    mean = maker.rounded(maker.node("GlobalAveragePool", positive), 0.01, -128)
    gate = maker.rounded(maker.node("Sigmoid", mean), 1 / 256, -128)
    product = maker.rounded(maker.node("Mul", positive, gate), 0.0113, -128)
    path = maker.save(tmp_path / "model.onnx", maker.rounded(maker.node("Add", product, positive), 0.0231, -128))
    given = np.linspace(0, 3, int(np.prod(SHAPE)), dtype=np.float32).reshape(SHAPE)
    report = compile_model(path, ROOMY.replace(accumulator_width=bits), tmp_path, calibration={"x": given})
    made, = Session(Network.load(report.model_path)).run({"x": given[0]}).outputs.values()
    wanted, = run_float(path, {"x": given}).values()
    assert np.abs(made - wanted).max() <= 1.01 * 0.0231


def test_what_may_be_negative_is_the_hosts(tmp_path: Path) -> None:
    maker = Maker()
    path = maker.save(tmp_path / "model.onnx", excited(maker, "Tanh", 0, 1 / 127))
    with pytest.raises(CompileError, match="two computed tensors to multiply.*INT8.*--host-fallback"):
        compile_model(path, ROOMY, tmp_path, calibration={"x": SAMPLES})
    report = compile_model(path, ROOMY, tmp_path, calibration={"x": SAMPLES}, host_fallback=True)
    made, = Session(Network.load(report.model_path)).run({"x": SAMPLES[0]}).outputs.values()
    wanted, = run_float(path, {"x": SAMPLES[:1]}).values()
    assert np.abs(made - wanted).max() <= 3.1 * SCALE


@pytest.mark.slow
def test_in_hardware(tmp_path: Path) -> None:
    """On DRAM1's odd tiles too: three tiles, of which memory does not hold all."""
    arch = lockstep_archs()["lanes4_int8"]
    maker = Maker()
    report = compile_model(maker.save(tmp_path / "model.onnx", excited(maker)), arch, tmp_path,
                           calibration={"x": SAMPLES})
    session = Session(Network.load(report.model_path))
    golden, hardware = (session.run({"x": SAMPLES[:1]}, on=on).outputs for on in (GOLDEN, RTL))
    for name, value in golden.items():
        assert np.array_equal(value, hardware[name])
