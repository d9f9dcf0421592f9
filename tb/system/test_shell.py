"""A board's whole shell in simulation: bridge, LiteDRAM with its SDRAM model and refresh, and the machine; driven by
the driver through the protocol that it speaks to a board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.estimator.replay import estimate
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.driver.device import Device
from weft.runtime.driver.dram_start import DramController, check_memory
from weft.runtime.driver.links import LinkTarget, shell_map
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.network import Network
from weft.runtime.session import Session
from weft.tb.bench.simulated_shell import SimulatedShell, build_shell
from weft.tb.shared import shared

DIGITS = Path(__file__).parents[2] / "models" / "digits"
TESTED_BYTES = 1 << 20
"""Of the memory: to try all of it would take most of the test's time."""
MOST_TIMES = 1.25
"""Cycles with LiteDRAM, by those with ideal memories."""
SECONDS = 7200.0
"""How long a program may take."""
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["ulx3s"])
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """On a shell whose memory was started and tried."""
    folder = tmp_path_factory.mktemp("shell")
    arch = Arch.load(request.param)
    simulation, described = build_shell(request.param, arch, folder)
    shell = ShellFile.of(described)
    line = SimulatedShell(simulation, folder, shell.clock_hz)
    target = LinkTarget(line.transport(), shell_map(shell), SECONDS)
    target.arch = arch
    with Device(target) as device:
        controller = DramController(target.bridge, shell)
        assert not controller.started
        controller.start()
        assert controller.started
        check_memory(target.bridge, shell.memory.base, TESTED_BYTES)
        yield device
    assert target.bridge.strays == 0, "nothing went astray on a line without faults"


def run_as_golden(device: Device, model: Path, name: str, images: np.ndarray, samples: np.ndarray,
                  folder: Path) -> Network:
    """Every output of every image is golden's; the network as it was compiled."""
    arch = device.target.arch
    assert arch
    report = compile_model(model, arch, folder, calibration={name: samples}, host_fallback=True)
    made = Network.load(report.model_path)
    device.load(made)
    expected = Session(made).run({name: images})
    for number in range(len(images)):
        found = device.launch({name: images[number:number + 1]}).result()
        for output, values in found.outputs.items():
            assert np.array_equal(values, expected.outputs[output][number:number + 1]), (number, output)
    assert device.counters.images == len(images) and device.counters.cycles
    return made


def test_digits_through_bridge_and_dram(device: Device, tmp_path: Path) -> None:
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["image"][:3].astype(np.float32)
    run_as_golden(device, DIGITS / "digits.onnx", "image", images, images, tmp_path)


def test_resnet20_through_bridge_and_dram(device: Device, tmp_path: Path) -> None:
    """Refresh and shared rows cost something over memories that always answer after the same latency, but not much."""
    samples = np.load(shared("models/resnet20_cifar10.npz"))["input"]
    made = run_as_golden(device, shared("models/resnet20_cifar10.onnx"), "input", samples[:1], samples, tmp_path)
    ideal = sum(estimate(part.program, made.arch).cycles for part in made.machines)
    print(f"ResNet-20: {device.counters.cycles} cycles with LiteDRAM, {ideal} with ideal memories")
    assert ideal < device.counters.cycles < MOST_TIMES * ideal
