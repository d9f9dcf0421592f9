# SPDX-License-Identifier: Apache-2.0
"""A device of several cores: an image on each of them, and an error that names its core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.races import RaceError
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.runtime.driver.device import Device
from weft.runtime.driver.etherbone import Etherbone
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.register_machine import DeviceTimeout
from weft.runtime.driver.registers import DeviceError
from weft.runtime.driver.uartbone import UartBone
from weft.runtime.programs import Batch
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.bench.link_models import Faults, UartWire, UdpWire, flip_bits
from weft.tb.bench.register_model import CYCLES_OF_AN_INSTRUCTION, RegisterModel, SystemModel, litex_model, litex_system
from weft.tb.system.test_system import SYSTEMS
from weft.tb.unit.driver.test_device import adder, inputs_for
from weft.tb.unit.runtime.models import OUTPUT_BASE, SIZE, model
from weft.tmodel.manifest import TModel

ARCH = SYSTEMS["three on two ports"].replace(dram0_depth=1 << 15, sync_counters=0)
"""Programs of it run on a core alone. A window of all of DRAM0 is two blocks long."""
IMAGES = 5


def over(link: str, board: SystemModel | RegisterModel, faults: Faults | None = None, seconds: float = 60) -> Device:
    if link == "serial":
        uart = UartWire(board, faults)
        return Device(LinkTarget(UartBone("serial:model", uart.open, sleep=uart.sleep), board.map, seconds))
    udp = UdpWire(board, faults)
    return Device(LinkTarget(Etherbone("udp:model", udp, udp.sleep), board.map, seconds))


def images(made: TModel) -> dict[str, np.ndarray]:
    return {"x": np.stack([inputs_for(made, 3 * number)["x"] for number in range(IMAGES)])}


@pytest.mark.parametrize("link", ["serial", "udp"])
@pytest.mark.parametrize("consts_to_local", [False, True])
def test_every_image_has_a_core(link: str, consts_to_local: bool, tmp_path: Path) -> None:
    """The last group leaves a core at rest; what copies constants to local memory runs on all of them first."""
    made, board = adder(tmp_path, ARCH, consts_to_local), litex_system(ARCH)
    one = Session(made, ARCH.replace(cores=1, memory_ports=1))
    expected = [one.run({"x": image}, raw=True).outputs["y"].tolist() for image in images(made)["x"]]
    with over(link, board) as device:
        device.load(made)
        found = device.launch(images(made), raw=True).result()
    assert found.outputs["y"].tolist() == expected
    assert board.groups == ([0b111, 0b111, 0b111, 0b011] if consts_to_local else [0b111, 0b011])
    words = len(made.program) // Isa(ARCH).instruction_bytes
    assert found.images == IMAGES and found.instructions == IMAGES * words + 3  # two images move no window
    assert [core.programs for core in board.cores] == ([4, 4, 3] if consts_to_local else [2, 2, 1])
    assert found.cycles == 2 * CYCLES_OF_AN_INSTRUCTION * (words + 3)  # where dram0 and dram1 are, and a counter


@pytest.mark.parametrize("seed", range(4))
def test_faults_of_the_link_change_no_word(seed: int, tmp_path: Path) -> None:
    made, board = adder(tmp_path, ARCH), litex_system(ARCH)
    faults = Faults(seed, 12, 40, flip_bits)
    expected = Session(made).run(images(made), raw=True).outputs["y"]
    with over("serial", board, faults) as device:
        device.load(made)
        assert device.run(images(made), raw=True)["y"].tolist() == expected.tolist()
    assert sum(faults.seen.values())


@pytest.mark.parametrize(("said", "blocks"), [(DRAM_OFFSET_BYTES, 1), (None, 2)])
def test_windows_lie_as_far_apart_as_the_model_says(said: int | None, blocks: int, tmp_path: Path) -> None:
    """Else by the whole of DRAM0. Of the last window only what the program reaches has to be there."""
    made, board = replace(adder(tmp_path, ARCH), window_bytes=said), litex_system(ARCH)
    with over("udp", board) as device:
        device.load(made)
        found = device.run(images(made), raw=True)["y"]
    dram = board.cores[0].dram
    for core, image in enumerate((3, 4, 2)):  # what ran there last
        assert dram.read(OUTPUT_BASE, SIZE, core * blocks).tolist() == found[image].tolist()
    small = litex_system(ARCH, (2 * blocks + 2) * DRAM_OFFSET_BYTES)
    with over("udp", small) as device, pytest.raises(WeftError, match=f"dram0 {2 * blocks * DRAM_OFFSET_BYTES + 48},"):
        device.load(made)


def run_on(board: SystemModel, folder: Path, programs: list[bytes], seconds: float = 60) -> None:
    """Run programs as they are, side by side."""
    with over("udp", board, seconds=seconds) as device:
        device.load(adder(folder, ARCH))
        device.backend.run([programs])


def test_an_error_names_its_core(tmp_path: Path) -> None:
    isa = Isa(ARCH)
    good = isa.assemble([isa.no_op()] * 3)
    bad = isa.assemble([isa.no_op(), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, ARCH.accumulator_depth - 1, 2)])
    with pytest.raises(MachineStop, match=r"core 1, instruction 1 \(DataMove local_to_accumulator .*") as raised:
        run_on(litex_system(ARCH), tmp_path, [good, bad, good])
    assert (raised.value.core, raised.value.cause) == (1, Cause.ACCUMULATOR_RANGE)
    window = Batch(isa, bad).groups(2)[0][1]  # moved by its own first instruction
    with pytest.raises(MachineStop, match=r"core 1, instruction 2 \(DataMove local_to_accumulator .*"):
        run_on(litex_system(ARCH), tmp_path, [good, window, good])


def test_a_core_that_does_not_end_is_named(tmp_path: Path) -> None:
    isa, board = Isa(ARCH), litex_system(ARCH)
    board.cores[2].hangs = True
    with pytest.raises(DeviceTimeout, match="program of core 2 on device udp:model: found no end after 0 s"):
        run_on(board, tmp_path, [isa.assemble([isa.no_op()])] * 3, seconds=0)


def test_a_machine_of_other_cores_is_refused(tmp_path: Path) -> None:
    made = adder(tmp_path, ARCH)
    with over("udp", litex_system(ARCH.replace(cores=2))) as device, pytest.raises(
            DeviceError, match="CORES of device udp:model: found 0x2; allowed: 0x3, which the model was compiled for"):
        device.load(made)
    alone = litex_model(ARCH.replace(cores=1, memory_ports=1))
    with over("udp", alone) as device, pytest.raises(DeviceError, match="CORES of device udp:model: found 0xffffffff"):
        device.load(made)


def test_a_core_alone_runs_what_is_for_one(tmp_path: Path) -> None:
    """By the registers of core 0, which are where a machine of one core has them."""
    one = ARCH.replace(cores=1, memory_ports=1)
    made, board = adder(tmp_path, one), litex_system(ARCH)
    with over("udp", board) as device:
        device.load(made)
        found = device.run(images(made), raw=True)["y"]
    assert found.tolist() == Session(made).run(images(made), raw=True).outputs["y"].tolist()
    assert board.groups == [] and [core.programs for core in board.cores] == [IMAGES, 0, 0]


def test_images_of_two_cores_that_write_one_place_are_refused(tmp_path: Path) -> None:
    """DRAM1 is that of all cores: two programs that write there never reach a board, one alone does."""
    arch = ARCH.replace(cores=2)
    isa = Isa(arch)
    made = model(tmp_path, arch, [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, SIZE),
                                  isa.data_move(DataFlow.LOCAL_TO_DRAM1, 0, 40, SIZE),
                                  isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, OUTPUT_BASE, SIZE)],
                 [np.ones((2, arch.array_size), int)])
    board = litex_system(arch)
    with over("udp", board) as device:
        device.load(made)
        images = np.ones((2, SIZE, arch.array_size), int)
        assert device.run({"x": images[0]}, raw=True)["y"].tolist() == images[0].tolist()
        ran = len(board.groups)
        with pytest.raises(RaceError, match="a race in dram1"):
            device.run({"x": images}, raw=True)
        assert len(board.groups) == ran
