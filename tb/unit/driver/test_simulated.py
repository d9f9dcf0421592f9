# SPDX-License-Identifier: Apache-2.0
"""The simulated machine, driven through its registers by the same driver as a board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import CONTROL_REGISTERS
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.runtime.driver.device import Device
from weft.runtime.driver.memory_map import MEMORIES, MemoryMap, Region
from weft.runtime.driver.register_machine import DeviceTimeout
from weft.runtime.driver.simulated import SimulatedTransport
from weft.runtime.session import Session
from weft.simulate.simulation import SimulationError
from weft.support.errors import Mismatch, WeftError
from weft.tb.bench.register_model import RegisterModel
from weft.tb.unit.driver.test_device import ODD, TINY, adder, inputs_for
from weft.tb.unit.runtime.models import OUTPUT_BASE, model


class Served(RegisterModel):
    """The simulator of a machine, of which only the registers' model is there."""

    def __init__(self, arch: Arch) -> None:
        super().__init__(arch, MemoryMap(0, {"dram0": Region(1 << 42, 0, 1 << 20)}), patience=6)
        self.memories = {name: Dram(arch) for name in MEMORIES}
        self.dram = self.memories["program"]
        self.machine = Machine(arch, self.memories["dram0"], self.memories["dram1"])
        self.cycles, self.closed = 0, False
        served.append(self)

    def run(self, cycles: int) -> None:
        self.cycles += cycles

    def close(self) -> None:
        self.closed = True


served: list[Served] = []
"""All simulators that were started."""


@pytest.fixture
def simulators(monkeypatch: pytest.MonkeyPatch) -> list[Served]:
    monkeypatch.setattr("weft.simulate.served.ServedMachine", Served)
    served.clear()
    return served


def test_a_simulator_is_driven_as_a_board_is(simulators: list[Served], tmp_path: Path) -> None:
    """Registers word by word, memories in place; and a model for another machine ends the simulation of this one."""
    made, other = adder(tmp_path), adder(tmp_path / "odd", ODD)
    with Device.open("sim") as device:
        for each in (made, made, other, made):
            device.load(each)
            expected = Session(each).run(inputs_for(each, 1), raw=True).outputs["y"]
            assert device.run(inputs_for(each, 1), raw=True)["y"].tolist() == expected.tolist()
            assert [one.closed for one in simulators] == [True] * (len(simulators) - 1) + [False]
    assert len(simulators) == 3 and all(one.closed and one.cycles for one in simulators)
    assert not SimulatedTransport(TINY).resynchronise(), "it does not lose its place"


def test_a_simulation_that_fails_is_said(simulators: list[Served], monkeypatch: pytest.MonkeyPatch,
                                         tmp_path: Path) -> None:
    class Fired(SimulationError):
        def __init__(self) -> None:
            Exception.__init__(self, "the watchdog fired")

    def refuse(*_: object) -> None:
        raise Fired

    with Device.open("sim") as device:
        device.load(adder(tmp_path))
        monkeypatch.setattr(simulators[0], "run", refuse)
        with pytest.raises(Mismatch, match="the simulation failed: the watchdog fired"):
            device.run(inputs_for(adder(tmp_path)), raw=True)
    monkeypatch.setattr("weft.simulate.served.ServedMachine", refuse)
    with pytest.raises(WeftError, match="the watchdog fired"):
        SimulatedTransport(TINY)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_program_that_takes_too_long(tmp_path: Path) -> None:
    isa = Isa(TINY)
    long = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, OUTPUT_BASE, 4)] * 20000
    with Device.open("sim?seconds=0") as device:
        device.load(model(tmp_path, TINY, long, [np.ones((1, 2), int)]))
        with pytest.raises(DeviceTimeout, match="status running"):
            device.run(inputs_for(adder(tmp_path)), raw=True)


@pytest.mark.slow
def test_a_pause_ends_on_a_machine_at_rest() -> None:
    """No interrupt comes: time alone ends it, in a simulation that made no progress at all before."""
    transport = SimulatedTransport(TINY)
    try:
        transport.pause(1e-5)
        assert transport.read(transport.memory_map.registers + CONTROL_REGISTERS["STATUS"].offset, 1)[0]
    finally:
        transport.close()
