# SPDX-License-Identifier: Apache-2.0
"""Whole networks on the generated hardware: every word of both DRAMs as golden leaves it, guard words untouched."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from weft.cli.in_pieces import in_pieces
from weft.compiler.pipeline import compile_model
from weft.golden.dram import Dram, differences
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.dram import EXPECTED
from weft.runtime.session import RTL, Session
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import RtlResult, run_on_rtl
from weft.tb.compile.run_model import ModelMaker
from weft.tb.random import network_rule
from weft.tb.shared import shared
from weft.tmodel.manifest import TModel

GUARD_BYTE = 0xA5
GUARDED_BYTES = 4 << 20
"""The first bytes of both DRAMs hold guard bytes wherever neither inputs nor constants are."""
BEYOND_BYTES = 1 << 20
"""At the end of these nothing of a network of this size may be written."""

SETTINGS = {
    "undisturbed": MemorySettings(read_latency=EXPECTED.read_latency, write_latency=EXPECTED.read_latency),
    "stalls": MemorySettings(read_latency=17, write_latency=9, jitter=20, stall_ar=40, stall_r=60, stall_aw=40,
                             stall_w=60, stall_b=40),
}


def memories(model: TModel, image: dict[str, np.ndarray]) -> tuple[Dram, Dram]:
    """Both DRAMs before a run."""
    dram0, dram1 = Dram(model.arch), Dram(model.arch)
    for dram in (dram0, dram1):
        dram.fill(0, GUARDED_BYTES, GUARD_BYTE)
    for base, vectors in model.consts:
        dram1.write(base, vectors)
    for base, vectors in model.dram0_consts:
        dram0.write(base, vectors)
    for port in model.inputs:
        dram0.write(port.base, model.pack_input(port.name, image[port.name]))
    return dram0, dram1


def outputs(model: TModel, dram0: Dram) -> dict[str, np.ndarray]:
    found = {port.name: model.unpack_output(port.name, dram0.read(port.base, port.size)) for port in model.outputs}
    return model.run_host(found)


def assert_rtl_equals_golden(model: TModel, image: dict[str, np.ndarray], settings: MemorySettings) -> RtlResult:
    golden, hardware = memories(model, image), memories(model, image)
    Machine(model.arch, *golden).run(model.program)
    result = run_on_rtl(model.arch, model.program, *hardware, memory=settings, seed=7)
    assert result.error_cause is Cause.NONE
    assert result.instructions == len(model.program) // Machine(model.arch).isa.instruction_bytes
    for name, ours, theirs in zip(("dram0", "dram1"), golden, hardware, strict=True):
        assert differences(ours, theirs, 5) == [], f"{name}: (byte address, golden, hardware)"
        beyond = theirs.bytes[GUARDED_BYTES - BEYOND_BYTES:GUARDED_BYTES]
        assert (beyond == GUARD_BYTE).all(), f"{name}: guard bytes were written"
    assert max(end for _, end in hardware[0].extents()) <= GUARDED_BYTES
    return result


ARCHS = {"lanes3": network_rule.ARCHS["lanes3"], "arty": Arch.load("arty"), "pynq": Arch.load("pynq")}
"""The first is one that other tests simulate too; to build the presets' simulators takes two minutes."""
QUICK = {("mlperf_tiny_resnet8", "lanes3", "stalls"),
         ("mlperf_tiny_resnet8", "arty", "stalls"), ("mlperf_tiny_resnet8", "pynq", "undisturbed"),
         ("resnet20_cifar10", "arty", "undisturbed"), ("resnet20_cifar10", "pynq", "stalls")}
"""Each network, each preset and each setting, and each two of them together."""
RUNS = [pytest.param(*run, marks=pytest.mark.slow if run in QUICK else pytest.mark.long)
        for run in product(("mlperf_tiny_resnet8", "resnet20_cifar10"), ARCHS, SETTINGS)]


@pytest.mark.wide
@pytest.mark.parametrize(("network", "preset", "settings"), RUNS)
def test_network_leaves_every_word_as_golden(network: str, preset: str, settings: str, tmp_path: Path) -> None:
    inputs = np.load(shared(f"models/{network}.npz"))["input"]
    report = compile_model(shared(f"models/{network}.onnx"), ARCHS[preset], tmp_path,
                           calibration={"input": inputs}, host_fallback=True)
    result = assert_rtl_equals_golden(TModel.load(report.model_path), {"input": inputs[:1]}, SETTINGS[settings])
    print(f"{network} on {preset}, {settings}: {result.cycles} cycles, {result.seconds:.1f} s")


@pytest.mark.wide_cases("arty", "pynq")
@pytest.mark.slow
@pytest.mark.parametrize("preset", ARCHS)
def test_demo_network_leaves_every_word_as_golden(preset: str, tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "models" / "digits"
    data = np.load(digits / "held_out.npz")
    report = compile_model(digits / "digits.onnx", ARCHS[preset], tmp_path,
                           calibration={"image": data["calibration"]})
    for index in range(3):
        assert_rtl_equals_golden(TModel.load(report.model_path), {"image": data["image"][index:index + 1]},
                                 SETTINGS["stalls"])


def test_pieces_side_by_side_take_the_cycles_of_the_whole(tmp_path: Path) -> None:
    """Two images on the machine with lookup tables, cut at borders of layers: all words, and the same cycles."""
    arch = network_rule.ARCHS["lanes3"]
    maker = ModelMaker((1, 6, 9, 8))
    name = maker.node("Tanh", maker.node("Add", maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1)), "x"))
    maker.node("MaxPool", maker.conv(name, 6, 7, (2, 2)), kernel_shape=(2, 2), strides=(2, 2))
    samples = {"x": maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)}
    report = compile_model(maker.save(tmp_path / "model.onnx"), arch, tmp_path, calibration=samples)
    session = Session(TModel.load(report.model_path))
    whole = session.run(samples, on=RTL)
    pieces = session.run(samples, on=RTL, **in_pieces(4, arch))
    assert pieces.cycles == whole.cycles and pieces.comparison == whole.comparison
    for output, values in whole.outputs.items():
        assert np.array_equal(pieces.outputs[output], values)
