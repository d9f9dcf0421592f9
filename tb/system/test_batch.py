# SPDX-License-Identifier: Apache-2.0
"""A network's images on all cores of the simulated hardware: each word that golden leaves, and each cycle that
``weft estimate`` tells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.cycles.system import cycles_an_image, estimate_system
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import MODIFIABLE, Register
from weft.runtime.driver.device import Device
from weft.runtime.session import RTL, Session
from weft.tb.compile.run_model import ModelMaker
from weft.tb.compile.test_batch import ARCHS, IMAGES, alone, compiled
from weft.tb.system.test_system import JOINED, SYSTEMS
from weft.tmodel.network import Network

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
FOUR = Arch.load("arty").replace(array_size=4, local_depth=2048, accumulator_depth=512, dram_ports=SHARED, sampler=0,
                                 stream_width=64, cores=4, memory_ports=2)
"""Small cores, of which two share a port."""


def test_rtl_leaves_every_word_and_takes_every_cycle(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a full group and of one that leaves a core at rest."""
    arch = SYSTEMS["three on two ports"]
    network, samples = compiled(tmp_path, arch)
    session = Session(network)
    found = session.run({"x": samples}, on=RTL, trace_operations=True)
    assert found.comparison is not None
    found.comparison.insist()
    unlinked = ARCHS["three on two ports"]
    (tmp_path / "one").mkdir()
    one = Session(compiled(tmp_path / "one", unlinked)[0], alone(unlinked)).run({"x": samples})
    assert all(np.array_equal(found.outputs[name], values) for name, values in one.outputs.items())

    groups = session.machines[0].batch.groups(IMAGES)
    expected = [estimate_system(group, arch) for group in groups]
    assert found.cycles is not None
    assert found.utilization == pytest.approx(network.done_macs * IMAGES / (3 * arch.array_size**2 * found.cycles))
    assert found.groups == [3, 2] and found.cycles == sum(each.cycles for each in expected)
    assert [cycles for cycles, _ in found.operations] == [core.cycles for each in expected for core in each.cores]

    assert exit_code(["estimate", str(tmp_path / "net.tmodel"), "--json", "--trace", str(tmp_path / "t.json")]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["cycles"] == expected[0].cycles and told["images"] == 3
    assert told["cycles_an_image"] == expected[0].cycles / 3
    assert [row["cycles"] for row in told["cores"]] == [core.cycles for core in expected[0].cores]
    assert [row["cores"] for row in told["ports"]] == [[0, 2], [1]]
    tracks = {event["args"]["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
              if event["name"] == "process_name"}
    assert tracks == {f"estimated, core {core}: net" for core in range(3)}


def test_the_driver_runs_the_simulated_cores(tmp_path: Path) -> None:
    """Through their pages of registers, as on a board."""
    network, samples = compiled(tmp_path, SYSTEMS["three on two ports"])
    session = Session(network)
    with Device.open("sim") as device:
        device.load(network)
        found = device.launch({"x": samples}).result()
    expected = session.run({"x": samples})
    assert all(np.array_equal(found.outputs[name], values) for name, values in expected.outputs.items())
    groups = session.machines[0].batch.groups(IMAGES)
    assert found.images == IMAGES and found.cycles == sum(
        estimate_system(group, session.arch).cycles for group in groups)


@pytest.mark.wide
def test_a_trained_network_on_four_cores(tmp_path: Path) -> None:
    """Every word is golden's and one core's, every cycle the estimate's, and an image takes less than half of what it
    takes on one core of this kind alone."""
    images = np.random.default_rng(3).random((6, 1, 8, 8)).astype(np.float32)
    report = compile_model(DIGITS, FOUR, tmp_path, host_fallback=True)
    network = Network.load(report.model_path)
    session, one = Session(network), Session(network, alone(FOUR))
    name = session.network.signature.inputs[0].name
    found = session.run({name: images}, on=RTL)
    assert found.comparison is not None
    found.comparison.insist()
    expected = one.run({name: images})
    assert all(np.array_equal(found.outputs[output], values) for output, values in expected.outputs.items())
    machine, = session.machines
    groups = machine.batch.groups(len(images))
    assert [len(group) for group in groups] == [4, 2]
    assert found.cycles == sum(estimate_system(group, FOUR).cycles for group in groups)
    assert cycles_an_image(groups[0], FOUR) < estimate(machine.model.program, alone(FOUR)).cycles / 2


def joining(folder: Path, pixels: int) -> tuple[Network, np.ndarray, Arch]:
    """Three convolutions of so many rows and columns, two inputs, and two cores whose reads may be joined."""
    arch = JOINED.replace(join_cycles=500, cores=2, dram0_depth=8192)
    maker = ModelMaker((1, 8, pixels, pixels), seed=5)
    maker.conv(maker.conv(maker.conv("x", 8, 24, (1, 1)), 24, 24, (1, 1)), 24, 2, (1, 1))
    samples = maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)
    report = compile_model(maker.save(folder / "net.onnx"), arch, folder, calibration={"x": samples})
    return Network.load(report.model_path), samples, arch


@pytest.mark.parametrize("pixels", [1, 16])
def test_reads_are_joined_where_that_takes_fewer_cycles(pixels: int, tmp_path: Path) -> None:
    """On few pixels weights are nearly all that is read; on many, cores that wait for each other lose more."""
    network, _, arch = joining(tmp_path, pixels)
    loaded, = network.machines
    isa = Isa(arch)
    joins = isa.configure(Register.DRAM1_CACHE, MODIFIABLE) in [*isa.disassemble(loaded.program)]
    assert joins == (pixels == 1)
    group, = Session(network).machines[0].batch.groups(2)
    cycles, apart = (estimate_system(group, each).cycles for each in (arch, arch.replace(join_cycles=0)))
    assert cycles < 0.85 * apart if joins else cycles == apart


@pytest.mark.wide
def test_joined_reads_on_rtl(tmp_path: Path) -> None:
    network, samples, arch = joining(tmp_path, 1)
    session = Session(network)
    found = session.run({"x": samples}, on=RTL)
    assert found.comparison is not None
    found.comparison.insist()
    group, = session.machines[0].batch.groups(2)
    assert found.cycles == estimate_system(group, arch).cycles
