# SPDX-License-Identifier: Apache-2.0
"""``Device`` on every kind of machine: the same outputs as the golden machine's, and an error that names its cause."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import Status, board_code
from weft.hw.contract.host_link import ROOM_BYTES
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.driver import register_machine
from weft.runtime.driver.device import Counters, Device
from weft.runtime.driver.etherbone import Etherbone
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.register_machine import DeviceTimeout
from weft.runtime.driver.registers import DeviceError, Registers, check_board
from weft.runtime.driver.transport import LinkError
from weft.runtime.driver.uartbone import UartBone
from weft.runtime.session import RunResult, Session
from weft.support.errors import WeftError
from weft.tb.bench.link_models import Faults, UartWire, UdpWire, Witnessed, flip_bits
from weft.tb.bench.register_model import RegisterModel, litex_model
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.unit.runtime.models import OUTPUT_BASE, SIZE, VECTORS, echo, model
from weft.tmodel.errors import ModelError
from weft.tmodel.manifest import TModel

TINY = lockstep_archs()["lanes2"]
WITNESS = 0x9100_0000
LINKS = ["serial", "udp", "witnessed serial", "witnessed udp"]
ODD = TINY.replace(array_size=3, data_type="FP8BP4")
"""A vector of three bytes: none begins where a word does but every fourth."""


def over(link: str, board: RegisterModel, faults: Faults | None = None, seconds: float = 60) -> Device:
    """A device behind a link of that kind, with or without a witness at its far end."""
    witnessed = link.startswith("witnessed")
    bus = Witnessed(board, WITNESS) if witnessed else board
    transport: UartBone | Etherbone
    if link.endswith("serial"):
        uart = UartWire(bus, faults, room=ROOM_BYTES if witnessed else 0)
        transport = UartBone("serial:model", uart.open, sleep=uart.sleep)
    else:
        udp = UdpWire(bus, faults)
        transport = Etherbone("udp:model", udp, udp.sleep)
    target = LinkTarget(transport, board.map, seconds)
    if witnessed:
        target.watch(WITNESS)
    return Device(target)


def adder(folder: Path, arch: Arch = TINY, consts_to_local: bool = False) -> TModel:
    """y = x + the constants of DRAM1; overwrites its input, and keeps an intermediate in DRAM0."""
    isa = Isa(arch)
    fetch = [] if consts_to_local else [isa.data_move(DataFlow.DRAM1_TO_LOCAL, 20, 2, SIZE)]
    program = [
        isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, SIZE), *fetch,
        isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, SIZE),
        isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 20 if not consts_to_local else 2, 0, SIZE),
        isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 4, 0, SIZE),
        isa.data_move(DataFlow.LOCAL_TO_DRAM0, 4, 0, SIZE),
        isa.data_move(DataFlow.LOCAL_TO_DRAM0, 4, OUTPUT_BASE, SIZE),
    ]
    consts = np.arange(SIZE * arch.array_size).reshape(SIZE, -1) + 5
    return model(folder, arch, program, [consts], "adder", (2,), consts_to_local)


def inputs_for(made: TModel, number: int = 0) -> dict[str, np.ndarray]:
    shape = (SIZE, made.arch.array_size)
    return {"x": (np.arange(np.prod(shape)).reshape(shape) + number) % 40}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("arch", [TINY, ODD], ids=["lanes2", "lanes3"])
@pytest.mark.parametrize("consts_to_local", [False, True])
def test_a_board_computes_what_golden_computes(link: str, arch: Arch, consts_to_local: bool, tmp_path: Path) -> None:
    made = adder(tmp_path, arch, consts_to_local)
    with over(link, litex_model(arch)) as device:
        device.load(made)
        for number in range(3):
            found = device.run(inputs_for(made, number), raw=True)
            expected = Session(made).run(inputs_for(made, number), raw=True).outputs
            assert found["y"].tolist() == expected["y"].tolist()
        assert device.counters.images == 3
        assert device.counters.instructions == 3 * (len(made.program) // Isa(arch).instruction_bytes)
        assert device.counters.cycles > 0


def test_what_is_there_is_not_sent_again(tmp_path: Path) -> None:
    made = adder(tmp_path)
    board = litex_model(TINY)
    wire = UdpWire(board)
    sent: list[bytes] = []
    send = wire.send

    def recording(content: bytes) -> int:
        sent.append(content)
        return send(content)

    wire.send = recording  # type: ignore[method-assign]
    device = Device(LinkTarget(Etherbone("udp:model", wire, wire.sleep), board.map))
    device.load(made)
    bytes_of = []
    for _ in range(3):
        sent.clear()
        device.run(inputs_for(made), raw=True)
        bytes_of.append(sum(packet[10] for packet in sent))
    assert bytes_of[1] == bytes_of[2] < bytes_of[0] / 2  # words written: program and constants only the first time


@pytest.mark.parametrize("link", LINKS)
def test_runs_through_link_faults(link: str, tmp_path: Path) -> None:
    made, board = adder(tmp_path), litex_model(TINY)
    faults = Faults(5, 150, 400 if link.endswith("serial") else 25, flip_bits, cut_seconds=0.2)
    device = over(link, board, faults)
    device.load(made)
    number = 0
    while faults.left:
        number += 1
        expected = Session(made).run(inputs_for(made, number), raw=True).outputs["y"]
        assert device.run(inputs_for(made, number), raw=True)["y"].tolist() == expected.tolist()
    assert number > 5


def test_a_run_that_was_started_again_is_repeated(tmp_path: Path) -> None:
    """A doubled start while the program runs sets the counters back: the run does not count."""
    made, board = adder(tmp_path), litex_model(TINY)
    device = over("udp", board)
    device.load(made)
    count = board._count

    def disturbed(instructions: int) -> None:
        count(instructions - 2 if board.programs == 1 and instructions else instructions)

    board._count = disturbed  # type: ignore[method-assign]
    expected = Session(made).run(inputs_for(made), raw=True).outputs["y"]
    assert device.run(inputs_for(made), raw=True)["y"].tolist() == expected.tolist()
    assert board.programs == 2


def test_a_board_that_lost_its_power_between_two_runs(tmp_path: Path) -> None:
    made, board = adder(tmp_path), litex_model(TINY)
    device = over("udp", board)
    device.load(made)
    before = device.run(inputs_for(made), raw=True)["y"]
    board.power_on()
    assert device.run(inputs_for(made), raw=True)["y"].tolist() == before.tolist()


# -- launches ----------------------------------------------------------------------------------------------------------
def test_launches_run_while_the_host_goes_on(tmp_path: Path) -> None:
    made = adder(tmp_path)
    ended: list[int] = []
    with over("udp", litex_model(TINY)) as device:
        device.load(made)
        launches = [device.launch(inputs_for(made, number), raw=True) for number in range(6)]
        for launch in launches:
            launch.then(lambda launch: ended.append(launches.index(launch)))
        device.synchronize()
        assert all(launch.done() for launch in launches) and sorted(ended) == list(range(6))
        for number, launch in enumerate(launches):
            expected = Session(made).run(inputs_for(made, number), raw=True).outputs
            assert launch.wait()["y"].tolist() == expected["y"].tolist()
            assert launch.result().cycles
        found = list(device.map((inputs_for(made, number) for number in range(5)), raw=True))
        assert [each["y"].tolist() for each in found] == [launch.wait()["y"].tolist() for launch in launches[:5]]


def test_a_run_that_has_ended_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the counting takes."""
    add = Counters.add

    def slow(counters: Counters, result: RunResult) -> None:
        time.sleep(0.05)
        add(counters, result)

    monkeypatch.setattr(Counters, "add", slow)
    with over("udp", litex_model(TINY)) as device:
        device.load(echo(tmp_path, arch=TINY))
        for number in range(1, 4):
            device.run({"x": VECTORS}, raw=True)
            assert device.counters.images == number


def test_a_wait_that_takes_too_long(tmp_path: Path) -> None:
    with over("udp", litex_model(TINY, hangs=True), seconds=0.5) as device:
        device.load(echo(tmp_path, arch=TINY))
        launch = device.launch({"x": VECTORS}, raw=True)
        with pytest.raises(TimeoutError):
            launch.wait(0.01)
        with pytest.raises(TimeoutError):
            device.synchronize(0.01)
        with pytest.raises(DeviceTimeout):
            launch.wait()


def test_packing_overlaps_the_run(tmp_path: Path) -> None:
    """The second launch is packed while the first one runs."""
    made = echo(tmp_path, arch=TINY)
    packed = []

    class Slow(np.ndarray):
        """Notes when it is looked at."""

        def __array_finalize__(self, _: object) -> None:
            packed.append(time.monotonic())

    with over("udp", litex_model(TINY, hangs=True), seconds=0.6) as device:
        device.load(made)
        first = device.launch({"x": VECTORS}, raw=True)
        time.sleep(0.05)
        packed.clear()
        second = device.launch({"x": VECTORS.view(Slow)}, raw=True)
        with pytest.raises(DeviceTimeout):
            first.wait()
        ended = time.monotonic()
        with pytest.raises(DeviceTimeout):
            second.wait()
    assert any(moment < ended - 0.1 for moment in packed)


# -- what goes wrong ---------------------------------------------------------------------------------------------------
def test_an_illegal_instruction_is_named(tmp_path: Path) -> None:
    isa = Isa(TINY)
    bad = isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, TINY.accumulator_depth - 1, 2)
    made = model(tmp_path, TINY, [isa.no_op(), isa.no_op(), bad], [np.ones((1, 2), int)])
    with over("udp", litex_model(TINY)) as device:
        device.load(made)
        with pytest.raises(MachineStop, match=r"instruction 2 \(DataMove local_to_accumulator local=0 far="
                           rf"{TINY.accumulator_depth - 1} size=2\)") as raised:
            device.run({"x": VECTORS}, raw=True)
    assert raised.value.cause is Cause.ACCUMULATOR_RANGE and raised.value.program_counter == 2


def test_a_silent_machine_is_named(tmp_path: Path) -> None:
    with over("udp", litex_model(TINY, hangs=True), seconds=0.2) as device:
        device.load(echo(tmp_path, arch=TINY))
        with pytest.raises(DeviceTimeout, match=r"no end after 0.2 s: status running, next instruction 0 \(DataMove "
                           r"dram0_to_local .*; way out: give it more time") as raised:
            device.run({"x": VECTORS}, raw=True)
        assert raised.value.program_counter == 0


@pytest.mark.parametrize("local_depth", [64, 2 * TINY.local_depth])
def test_another_machine_is_refused(local_depth: int, tmp_path: Path) -> None:
    says = f"LOCAL_DEPTH of device udp:model: found {local_depth:#x}; allowed: {TINY.local_depth:#x}"
    with over("udp", litex_model(TINY.replace(local_depth=local_depth))) as device, \
            pytest.raises(DeviceError, match=says):
        device.load(echo(tmp_path, arch=TINY))


def test_a_difference_that_no_single_register_shows(tmp_path: Path) -> None:
    """The depth of lookup tables changes what a program means; the sampler does not."""
    arch = lockstep_archs()["lanes4_lut"]
    made = echo(tmp_path, arch=arch)
    with over("udp", litex_model(arch.replace(lut_depth=2 * arch.lut_depth))) as device, \
            pytest.raises(DeviceError, match="ARCH_HASH of device udp:model"):
        device.load(made)
    with over("udp", litex_model(arch.replace(sampler=1 - arch.sampler))) as device:
        device.load(made)


def test_a_bitstream_for_another_board(tmp_path: Path) -> None:
    board = litex_model(TINY)
    board.values["BOARD"] = board_code("ulx3s")
    with over("udp", board) as device:
        assert isinstance(device.target, LinkTarget)
        check_board(device.target.registers, "ulx3s", device.name)
        with pytest.raises(DeviceError, match="BOARD of device udp:model: found 0x[0-9a-f]{8}; allowed: 0x[0-9a-f]{8}: "
                           "ecpix5; way out: name the board, or give the shell.json"):
            check_board(device.target.registers, "ecpix5", device.name)


def test_a_board_that_another_host_used_between_two_runs(tmp_path: Path) -> None:
    """It ran a program of the same length, and left other words behind."""
    made, board = adder(tmp_path), litex_model(TINY)
    device = over("udp", board)
    device.load(made)
    before = device.run(inputs_for(made), raw=True)["y"]
    board.dram.bytes[:1 << 20] = 0
    board.values["SCRATCH"] ^= 1
    assert device.run(inputs_for(made), raw=True)["y"].tolist() == before.tolist()


def test_no_machine_is_refused() -> None:
    board = litex_model(TINY)
    board.values["IDENTITY"] = 0
    with pytest.raises(DeviceError, match="0x00000000 in IDENTITY; allowed: 0x57454654: a weft machine"):
        over("udp", board)


def test_a_busy_machine_is_refused() -> None:
    board = litex_model(TINY, hangs=True)
    board.status = 1 << Status.RUNNING
    with pytest.raises(DeviceError, match="a program that runs; allowed: a machine that rests"):
        over("udp", board)


def test_a_machine_that_obeys_nothing(tmp_path: Path) -> None:
    board = litex_model(TINY)
    with over("udp", board) as device:
        device.load(echo(tmp_path, arch=TINY))
        board._command = lambda word: None  # type: ignore[method-assign]
        with pytest.raises(DeviceError, match="no effect of START, 5 times, STATUS 0x20"):
            device.run({"x": VECTORS}, raw=True)


def test_a_model_that_is_too_large(tmp_path: Path) -> None:
    with over("udp", litex_model(TINY, size=1 << 17)) as device, \
            pytest.raises(WeftError, match=r"model echo: found .* bytes \(dram0 48, .*; allowed: 131072 bytes"):
        device.load(echo(tmp_path, arch=TINY))


def test_a_window_out_of_the_machines_reach(tmp_path: Path) -> None:
    arch = TINY.replace(axi_address_width=17, dram0_depth=1 << 14, dram1_depth=1 << 15)
    with over("udp", litex_model(arch, size=1 << 20)) as device, \
            pytest.raises(WeftError, match="dram1 of model echo: found address 0x10000; allowed: up to 0x0"):
        device.load(echo(tmp_path, arch=arch))


def test_a_program_that_moves_windows_itself(tmp_path: Path) -> None:
    isa = Isa(TINY)
    made = model(tmp_path, TINY, [isa.configure(Register.DRAM1_OFFSET, 1)], [np.ones((1, 2), int)])
    with over("udp", litex_model(TINY)) as device:
        device.load(made)
        with pytest.raises(WeftError, match="Configure DRAM1_OFFSET"):
            device.run({"x": VECTORS}, raw=True)


def test_a_dead_link_during_a_run(tmp_path: Path) -> None:
    made, board = echo(tmp_path, arch=TINY), litex_model(TINY)
    wire = UdpWire(board)
    device = Device(LinkTarget(Etherbone("udp:model", wire, wire.sleep), board.map))
    device.load(made)
    assert device.run({"x": VECTORS}, raw=True)["y"].tolist() == VECTORS.tolist()
    wire.plugged = False
    with pytest.raises(LinkError, match="link udp:model: found no whole answer"):
        device.run({"x": VECTORS + 1}, raw=True)
    wire.plugged = True
    board.power_on()
    assert device.run({"x": VECTORS + 2}, raw=True)["y"].tolist() == (VECTORS + 2).tolist()


def test_no_model() -> None:
    with Device.open("golden") as device, pytest.raises(WeftError, match="no model; allowed: one that was loaded"):
        device.run({"x": VECTORS})


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    with Device.open("golden") as device:
        device.load(echo(tmp_path))
        with pytest.raises(WeftError, match="input x: found shape"):
            device.run({"x": VECTORS[:2]}, raw=True)


def test_a_model_for_another_preset(tmp_path: Path) -> None:
    made = echo(tmp_path)
    with Device.open("golden:pynq") as device, pytest.raises(WeftError, match="the model was compiled for"):
        device.load(made)
    with Device.open("golden:tiny") as device:
        made.save()
        device.load(tmp_path / "echo.tmodel")
        assert device.run({"x": VECTORS}, raw=True)["y"].tolist() == VECTORS.tolist()


def test_a_missing_model() -> None:
    with Device.open("golden") as device, pytest.raises(ModelError, match="nowhere.tmodel"):
        device.load("nowhere.tmodel")


def test_constants_that_others_overwrote_in_part_are_written_again(tmp_path: Path) -> None:
    first, second = (np.full((4, TINY.array_size), value) for value in (3, 4))
    first.flags.writeable = second.flags.writeable = False  # as constants are
    with over("udp", litex_model(TINY)) as device:
        device.load(adder(tmp_path))
        backend = device.backend
        for base, vectors in ((40, first), (42, second), (40, first)):
            backend.write("dram1", base, vectors)
        assert backend.read("dram1", 40, 6)[:, 0].tolist() == [3] * 4 + [4] * 2


def test_what_is_known_of_programs_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(register_machine, "MOST_PROGRAMS", 2)
    board = litex_model(TINY)
    with over("udp", board) as device:
        device.load(adder(tmp_path))
        backend = device.backend
        assert isinstance(backend, register_machine.RegisterMachine)
        for extra in (0, 1, 2, 0):
            program = echo(tmp_path, arch=TINY, extra=extra).program
            (done,), = backend.run([[program]])
            assert done.instructions == len(program) // Isa(TINY).instruction_bytes
        assert len(backend._programs) == 2 and board.programs == 4


def test_a_map_has_one_launch_more_under_way_than_are_processed() -> None:
    """So the next images are packed while one runs, and no more of them than that are asked for."""
    asked, seen = [], []

    def images():
        for number in range(6):
            asked.append(number)
            yield number

    device = SimpleNamespace(launch=lambda inputs, raw: SimpleNamespace(wait=lambda: inputs))
    for output in Device.map(device, images()):  # type: ignore[arg-type]
        seen.append((output, len(asked)))
    assert seen == [(0, 3), (1, 4), (2, 5), (3, 6), (4, 6), (5, 6)]


def test_registers_as_words_say_counters_and_boards() -> None:
    """Both counters have 64 bits; a design that names no board may be any board's."""
    words = {0x024: [1, 2, 3, 4], 0x0A4: [0]}
    bridge = SimpleNamespace(read=lambda address, count: np.array(words[address][:count], np.uint32))
    registers = Registers(bridge, 0)  # type: ignore[arg-type]
    assert registers.counters() == (1 | 2 << 32, 3 | 4 << 32)
    check_board(registers, "ulx3s", "x")
    words[0x0A4] = [board_code("ulx3s")]
    check_board(registers, "ulx3s", "x")
    with pytest.raises(DeviceError, match="or load the bitstream of ecpix5"):
        check_board(registers, "ecpix5", "x")
