# SPDX-License-Identifier: Apache-2.0
"""The simulated machine, driven through its registers by the same driver as a board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import CONTROL_REGISTERS
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.runtime.driver.device import Device
from weft.runtime.driver.register_machine import DeviceTimeout
from weft.runtime.driver.simulated import SimulatedTransport
from weft.runtime.session import Session
from weft.tb.unit.driver.test_device import TINY, adder, inputs_for
from weft.tb.unit.runtime.models import OUTPUT_BASE, model

pytestmark = pytest.mark.slow


def test_the_simulated_machine_runs_models_one_after_another(tmp_path: Path) -> None:
    isa = Isa(TINY)
    bad = isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, TINY.accumulator_depth - 1, 2)
    broken = model(tmp_path / "broken", TINY, [isa.no_op(), bad], [np.ones((1, 2), int)])
    made = adder(tmp_path)
    kept = adder(tmp_path / "kept", consts_to_local=True)
    with Device.open("sim") as device:
        device.load(made)
        for number in range(3):
            found = device.launch(inputs_for(made, number), raw=True).result()
            expected = Session(made).run(inputs_for(made, number), raw=True)
            assert found.outputs["y"].tolist() == expected.outputs["y"].tolist()
            assert found.instructions == expected.instructions and found.cycles
        device.load(kept)
        found = device.launch(inputs_for(kept), raw=True).result()
        assert found.outputs["y"].tolist() == Session(kept).run(inputs_for(kept), raw=True).outputs["y"].tolist()
        assert found.preload_instructions == 1 and found.preload_cycles
        device.load(broken)
        with pytest.raises(MachineStop, match="instruction 1") as raised:
            device.run(inputs_for(made), raw=True)
        assert raised.value.cause is Cause.ACCUMULATOR_RANGE
        device.load(made)
        assert device.run(inputs_for(made, 7), raw=True)["y"].shape == (4, 2)


def test_a_program_that_takes_too_long(tmp_path: Path) -> None:
    isa = Isa(TINY)
    long = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, OUTPUT_BASE, 4)] * 20000
    with Device.open("sim?seconds=0") as device:
        device.load(model(tmp_path, TINY, long, [np.ones((1, 2), int)]))
        with pytest.raises(DeviceTimeout, match="status running"):
            device.run(inputs_for(adder(tmp_path)), raw=True)


def test_a_pause_ends_on_a_machine_at_rest() -> None:
    """No interrupt comes: time alone ends it, in a simulation that made no progress at all before."""
    transport = SimulatedTransport(TINY)
    try:
        transport.pause(1e-5)
        assert transport.read(transport.memory_map.registers + CONTROL_REGISTERS["STATUS"].offset, 1)[0]
    finally:
        transport.close()
