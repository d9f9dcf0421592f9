"""A board's whole shell in simulation: bridge, LiteDRAM with its SDRAM model and refresh, and the machine; driven by
the driver through the protocol that it speaks to a board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.driver.device import Device
from weft.runtime.driver.dram_start import DramController, check_memory
from weft.runtime.driver.links import LinkTarget, shell_map
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.network import Network
from weft.runtime.session import Session
from weft.tb.bench.simulated_shell import SimulatedShell, build_shell

ROOT = Path(__file__).parents[2]
TESTED_BYTES = 1 << 20
"""Of the memory: to try all of it would take most of the test's time."""

pytestmark = pytest.mark.long


@pytest.mark.parametrize("board", ["ulx3s"])
def test_digits_through_bridge_and_dram(board: str, tmp_path: Path) -> None:
    arch = Arch.load(board)
    with np.load(ROOT / "models" / "digits" / "held_out.npz") as file:
        images = file["image"][:3].astype(np.float32)
    name = "image"
    report = compile_model(ROOT / "models" / "digits" / "digits.onnx", arch, tmp_path, calibration={name: images})
    made = Network.load(report.model_path)
    simulation, described = build_shell(board, arch, tmp_path)
    shell = ShellFile.of(described)
    line = SimulatedShell(simulation, tmp_path, shell.clock_hz)
    target = LinkTarget(line.transport(), shell_map(shell), 600.0)
    with Device(target) as device:
        controller = DramController(target.bridge, shell)
        assert not controller.started
        controller.start()
        assert controller.started
        check_memory(target.bridge, shell.memory.base, TESTED_BYTES)
        device.load(made)
        expected = Session(made).run({name: images})
        for number, image in enumerate(images):
            found = device.launch({name: image}).result()
            for output, values in found.outputs.items():
                assert np.array_equal(values, expected.outputs[output][number:number + 1]), (number, output)
        assert device.counters.images == len(images) and device.counters.cycles
        assert target.bridge.strays == 0, "nothing went astray on a line without faults"
