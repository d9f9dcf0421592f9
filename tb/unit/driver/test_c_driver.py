# SPDX-License-Identifier: Apache-2.0
"""The C driver, compiled as strictly as the compiler can, against the golden machine behind registers."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from ctypes import POINTER, byref, c_int32, c_size_t, c_uint32, c_uint64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import CONTROL_REGISTERS, Command, Status
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.samples import FILLER
from weft.hw.contract.system import page_address
from weft.hw.flow.reports import c_header
from weft.runtime.driver.simulated import SimulatedTransport
from weft.runtime.session import Session
from weft.tb.bench.c_driver import (
    BUSY,
    LOST,
    NO_MACHINE,
    NOT_WRITTEN,
    OK,
    OTHER_MACHINE,
    PLACES,
    REGISTERS,
    SILENT,
    SOURCE,
    STOPPED,
    STRICT,
    TIMEOUT,
    UNALIGNED,
    Board,
    CachedBus,
    CDevice,
    CProfile,
    CSample,
    Result,
    board_of,
    compiled,
)
from weft.tb.bench.register_model import litex_model, litex_system
from weft.tb.compile.run_model import ModelMaker
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.system.test_system import SYSTEMS
from weft.tb.unit.driver.test_device import ODD, TINY, adder, inputs_for
from weft.tb.unit.runtime.models import OUTPUT_BASE, SIZE
from weft.tmodel.elements import pack
from weft.tmodel.manifest import TModel

CORES = SYSTEMS["three on two ports"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled(tmp_path_factory.mktemp("c"), TINY)


def run_adder(board: Board, made: TModel, number: int) -> list[list[int]]:
    """Everything that a user of the driver does for one image."""
    arch = made.arch
    base, vectors = made.consts[0]
    assert board.call("weft_write", "dram1", base, vectors.tobytes(), len(vectors)) == OK
    image = inputs_for(made, number)["x"].astype(arch.number.storage_dtype)
    assert board.call("weft_write", "dram0", 0, image.tobytes(), SIZE) == OK
    result, size = board.load(made.program)
    assert result == OK
    assert board.run(size) == OK
    answer = ctypes.create_string_buffer(SIZE * arch.vector_bytes)
    assert board.call("weft_read", "dram0", OUTPUT_BASE, answer, SIZE) == OK
    return np.frombuffer(answer.raw, arch.number.storage_dtype).reshape(SIZE, -1).tolist()


@pytest.mark.parametrize("arch", [TINY, ODD], ids=["lanes2", "lanes3"])
def test_the_c_driver_computes_what_golden_computes(arch: Arch, tmp_path: Path) -> None:
    made = adder(tmp_path, arch)
    board = board_of(compiled(tmp_path, arch), litex_model(arch))
    assert board.open(REGISTERS, *PLACES) == OK
    for number in range(3):
        expected = Session(made).run(inputs_for(made, number), raw=True).outputs["y"]
        assert run_adder(board, made, number) == expected.tolist()
        assert board.device.cycles
        assert board.device.instructions == len(made.program) // Isa(arch).instruction_bytes + 3


def test_the_c_driver_runs_a_group_of_cores(tmp_path: Path) -> None:
    """Each core a device of its own, with its page of registers and its places of memory."""
    arch, step = CORES, DRAM_OFFSET_BYTES
    made, model = adder(tmp_path, arch), litex_system(arch)
    library = compiled(tmp_path, arch)
    devices, sizes, failed = (CDevice * arch.cores)(), (c_uint32 * arch.cores)(), c_size_t()
    boards = []
    for core in range(arch.cores):
        board = Board(library, model.read, model.write)
        places = [(0x4000_0000 + at * step, at * step) for at in (core, arch.cores, arch.cores + 1 + core)]
        assert board.open(REGISTERS + core * page_address(1), *places) == OK
        boards.append(board)
        image = inputs_for(made, 3 * core)["x"].astype(arch.number.storage_dtype)
        assert board.call("weft_write", "dram0", 0, image.tobytes(), SIZE) == OK
        result, sizes[core] = board.load(made.program)
        assert result == OK
    base, vectors = made.consts[0]
    assert boards[0].call("weft_write", "dram1", base, vectors.tobytes(), len(vectors)) == OK

    def run(count: int) -> int:
        for core, board in enumerate(boards):
            devices[core] = board.device
        library.weft_run_group.argtypes = [POINTER(CDevice), POINTER(c_uint32), c_size_t, POINTER(c_size_t)]
        return library.weft_run_group(devices, sizes, count, byref(failed))

    assert run(arch.cores) == OK and model.groups == [0b111]
    for core, board in enumerate(boards):
        answer = ctypes.create_string_buffer(SIZE * arch.vector_bytes)
        assert board.call("weft_read", "dram0", OUTPUT_BASE, answer, SIZE) == OK
        expected = Session(made).run(inputs_for(made, 3 * core), raw=True).outputs["y"]
        assert np.frombuffer(answer.raw, arch.number.storage_dtype).reshape(SIZE, -1).tolist() == expected.tolist()
        count = len(made.program) // Isa(arch).instruction_bytes + 3
        assert devices[core].cycles and devices[core].instructions == count
    isa = Isa(arch)
    bad = isa.assemble([isa.no_op(), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, arch.accumulator_depth - 1, 2)])
    sizes[1] = boards[1].load(bad)[1]
    assert run(2) == STOPPED and model.groups == [0b111, 0b011] and failed.value == 1
    assert (devices[1].cause, devices[1].program_counter) == (Cause.ACCUMULATOR_RANGE, 1)
    assert run(arch.cores + 1) == UNALIGNED and run(0) == UNALIGNED
    sizes[1] = boards[1].load(made.program)[1]
    lost = [4]  # starts without effect

    def late(command: Callable[[int], None]) -> Callable[[int], None]:
        return lambda word: command(word if len(model.groups) > lost[0] else word & ~(1 << Command.START))

    for each in model.cores:
        each._command = late(each._command)  # type: ignore[method-assign, assignment]
    model.groups.clear()
    assert run(2) == OK
    lost[0] = 5
    model.groups.clear()
    assert run(2) == SILENT and failed.value == 0 and len(model.groups) == 5
    lost[0] = 0
    model.cores[1].values["SCRATCH"] = 0
    assert run(2) == LOST and failed.value == 1, "each core has a mark of its own"
    assert run(1) == OK
    for each in model.cores:
        each._command = lambda word: None  # type: ignore[method-assign]
    assert run(1) == SILENT and failed.value == 0


def test_a_program_runs_while_the_c_driver_does_something_else(tiny: Any, tmp_path: Path) -> None:
    """An end takes back the interrupt that told of it."""
    model, made = litex_model(TINY), adder(tmp_path)
    model.patience = 4
    board = board_of(tiny, model)
    assert board.open(REGISTERS, *PLACES) == OK
    base, vectors = made.consts[0]
    assert board.call("weft_write", "dram1", base, vectors.tobytes(), len(vectors)) == OK
    _, size = board.load(made.program)
    assert board.start(size) == OK
    assert board.poll() == BUSY
    assert model.programs == 0 and not board.device.cycles
    model.values["INTERRUPT_STATUS"] = 1 << Status.DONE
    assert board.wait() == OK
    assert model.programs == 1 and board.device.cycles and not model.values["INTERRUPT_STATUS"]
    assert board.poll() == OK, "an end stays an end"
    model.values["INTERRUPT_STATUS"] = 1 << Status.DONE | 1 << Status.ERROR
    assert board.stop() == OK and not model.values["INTERRUPT_STATUS"], "so does a stop"


# -- what a bus has besides --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bulk", [False, True], ids=["words", "bulk"])
@pytest.mark.parametrize("arch", [TINY, ODD], ids=["lanes2", "lanes3"])
def test_a_cache_is_kept_coherent(arch: Arch, bulk: bool, tmp_path: Path) -> None:
    """Of 3 lanes a vector ends within a word, of which the machine writes the rest."""
    made = adder(tmp_path, arch)
    bus = CachedBus(litex_model(arch))
    board = Board(compiled(tmp_path, arch), bus.read, bus.write, clean=bus.clean, invalidate=bus.invalidate,
                  barrier=bus.barrier, **({"read_bulk": bus.read_bulk, "write_bulk": bus.write_bulk} if bulk else {}))
    assert board.open(REGISTERS, *PLACES) == OK
    for number in range(3):
        expected = Session(made).run(inputs_for(made, number), raw=True).outputs["y"]
        assert run_adder(board, made, number) == expected.tolist()
    assert bus.log == ["barrier", "start", "barrier"] * 3
    assert (bus.bulk_bytes > 6 * len(made.program)) == bulk  # written, and read back


def test_a_word_that_the_machine_wrote_in_part_is_read_again(tmp_path: Path) -> None:
    """A vector of 3 lanes ends within a word, whose rest is not taken from the cache. No word beyond is touched."""
    size = ODD.vector_bytes
    assert size % 4
    bus, asked = CachedBus(litex_model(ODD)), list[tuple[int, int]]()

    def told(hook: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def asks(address: int, size: int) -> None:
            asked.append((address - PLACES[0][0], size))
            hook(address, size)

        return asks

    board = Board(compiled(tmp_path, ODD), bus.read, bus.write, clean=told(bus.clean), invalidate=told(bus.invalidate))
    assert board.open(REGISTERS, *PLACES) == OK
    for first, count in ((0, 4), (1, 1), (4, 1), (2, 6), (0, 2)):
        asked.clear()
        assert board.call("weft_write", "dram0", first, bytes(range(count * size)), count) == OK
        start, end = first * size // 4 * 4, -(-(first + count) * size // 4) * 4
        assert asked == [(start, end - start)] * 3, "invalidated, cleaned, invalidated"
    bus.lines |= {place: bus.model.read(place) for place in range(PLACES[0][0], PLACES[0][0] + 2 * size, 4)}
    bus.model.dram.bytes[size:2 * size] = 77  # by the machine
    assert board.call("weft_write", "dram0", 0, bytes(size), 1) == OK
    assert bus.model.dram.bytes[:2 * size].tolist() == [0] * size + [77] * size


@pytest.mark.parametrize("bulk", [False, True], ids=["words", "bulk"])
def test_what_memory_does_not_hold_is_noticed(bulk: bool, tiny: Any) -> None:
    """In whichever piece that is read back, and however long the last one is."""
    model, wrong = litex_model(TINY), PLACES[0][0] + 4 * 200
    bus, write = CachedBus(model), model.write
    model.write = lambda address, word: write(address, word ^ (address == wrong))  # type: ignore[method-assign]
    board = Board(tiny, bus.read, bus.write, clean=bus.clean, invalidate=bus.invalidate,
                  **({"read_bulk": bus.read_bulk, "write_bulk": bus.write_bulk} if bulk else {}))
    assert board.open(REGISTERS, *PLACES) == OK
    content = bytes(range(250)) * 4
    for count, result in ((200, OK), (201, NOT_WRITTEN), (250, NOT_WRITTEN)):
        assert board.call("weft_write", "dram0", 0, content, count) == result
    assert board.call("weft_write", "dram0", 200, content, 0) == OK, "nothing"
    answer = ctypes.create_string_buffer(800)
    assert board.call("weft_read", "dram0", 0, answer, 200) == OK
    assert answer.raw == content[:800]


def test_the_c_driver_serves_a_program_in_cpp(tmp_path: Path) -> None:
    (tmp_path / "weft.h").write_text(c_header(TINY))
    (tmp_path / "main.cpp").write_text(
        '#include "weft_driver.h"\n#include <cstring>\n'
        'int main() { return std::strcmp(weft_error(WEFT_BUSY), "busy") || weft_vectors(3, 2, 2) != 8; }\n')
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", f"-I{SOURCE}"]
    subprocess.run(["gcc", *STRICT, *flags, "-c", SOURCE / "weft_driver.c", "-o", "driver.o"], check=True, cwd=tmp_path)
    subprocess.run(["g++", *flags, "main.cpp", "driver.o", "-o", "main"], check=True, cwd=tmp_path)
    subprocess.run([tmp_path / "main"], check=True)


@pytest.mark.slow
def test_the_c_driver_drives_the_simulated_machine(tmp_path: Path, tiny: Any) -> None:
    made, machine = adder(tmp_path), SimulatedTransport(TINY)

    def write(address: int, word: int) -> None:
        machine.write(address, np.array([word], np.uint32))

    try:
        board = Board(tiny, lambda address: int(machine.read(address, 1)[0]), write, lambda: machine.pause(1e-3))
        regions = machine.memory_map.regions
        assert board.open(0, *((regions[name].bus, 0) for name in ("dram0", "dram1", "program"))) == OK
        expected = Session(made).run(inputs_for(made, 1), raw=True).outputs["y"]
        assert run_adder(board, made, 1) == expected.tolist()
        assert board.device.cycles > 50
    finally:
        machine.close()


@pytest.mark.parametrize(("beyond", "result"), [(0, NOT_WRITTEN), (1, UNALIGNED)])
def test_a_program_and_what_goes_before_it_have_a_size_of_32_bits(beyond: int, result: int, tiny: Any) -> None:
    """Memory that keeps nothing tells of the longest program before any of it is read."""
    model, keeps, size = litex_model(TINY), True, Isa(TINY).instruction_bytes
    board = Board(tiny, model.read, lambda address, word: model.write(address, word) if keeps else None)
    assert board.open(REGISTERS, *PLACES) == OK
    keeps = False
    most = ((1 << 32) - 1) // size - 3
    board.load(b"")
    assert tiny.weft_load(ctypes.byref(board.device), b"", (most + beyond) * size, ctypes.byref(ctypes.c_uint32())) == (
        result)


def test_errors_of_the_c_driver(tiny: Any, tmp_path: Path) -> None:
    model = litex_model(TINY)
    board = board_of(tiny, model)
    assert board.open(REGISTERS, (0x4000_0002, 0), *PLACES[1:]) == UNALIGNED
    assert board.open(REGISTERS, (0x4000_0000, 0x8000), *PLACES[1:]) == UNALIGNED
    assert board.open(0x4000_0000, *PLACES) == NO_MACHINE
    model.values["SIMD"] += 1
    assert board.open(REGISTERS, *PLACES) == OTHER_MACHINE
    model.values["SIMD"] -= 1
    model.status = 1 << Status.RUNNING
    model.hangs = True
    assert board.open(REGISTERS, *PLACES) == BUSY
    model.status = 0
    assert board.open(REGISTERS, *PLACES) == OK
    made = adder(tmp_path)
    board.device.looks = 10
    assert board.load(b"1234")[0] == UNALIGNED
    assert board.run(board.load(made.program)[1]) == TIMEOUT
    model.hangs = False
    isa = Isa(TINY)
    bad = isa.assemble([isa.no_op(), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, TINY.accumulator_depth - 1, 2)])
    assert board.run(board.load(bad)[1]) == STOPPED
    assert (board.device.cause, board.device.program_counter) == (Cause.ACCUMULATOR_RANGE, 1)
    assert board.run(board.load(made.program)[1]) == OK
    assert (board.device.cause, board.device.program_counter) == (0, 0), "of this run"
    assert board.call("weft_write", "dram0", 1 << 20, b"1234", 1) == NOT_WRITTEN  # behind the end of memory
    model._command = lambda word: None  # type: ignore[method-assign]
    assert board.run(5) == SILENT
    tiny.weft_error.restype = ctypes.c_char_p
    names = [tiny.weft_error(number).decode() for number in [*Result, -1, len(Result)]]
    assert names[OK] == "ok" and names[LOST] == "lost" and len(set(names)) == len(Result) + 1
    assert names[-2:] == ["unknown"] * 2


def test_a_start_without_effect_and_a_register_that_keeps_nothing(tiny: Any, tmp_path: Path) -> None:
    model, made = litex_model(TINY), adder(tmp_path)
    command, write = model._command, model.write
    board = Board(tiny, model.read, lambda address, word: model.write(address, word))
    for wrong in range(3):  # each place of memory, and of the program's for the machine
        places = [(bus + 2 * (at == wrong), machine) for at, (bus, machine) in enumerate(PLACES)]
        assert board.open(REGISTERS, *places) == UNALIGNED
        places = [(bus, int(at == wrong)) for at, (bus, _) in enumerate(PLACES)]
        assert board.open(REGISTERS, *places) == UNALIGNED
    assert board.open(REGISTERS, *PLACES) == OK
    result, size = board.load(made.program)
    assert result == OK
    model._command = lambda word: command(word & ~1)  # type: ignore[method-assign]
    assert board.start(size) == SILENT
    model._command = command  # type: ignore[method-assign]
    lost = REGISTERS + CONTROL_REGISTERS["PROGRAM_BYTES"].offset
    model.write = lambda address, word: write(address, word) if address != lost else None  # type: ignore[method-assign]
    assert board.start(size + 8) == NOT_WRITTEN
    model.write = write  # type: ignore[method-assign]
    assert board.start(size) == OK and board.wait() == OK
    model.write = lambda address, word: None  # type: ignore[method-assign]
    model.dram.bytes[:model.region.size] = 0
    assert board.load(made.program)[0] == NOT_WRITTEN


@pytest.mark.parametrize(("channels", "zero"), [(1, 0), (2, 0), (5, -3)])
def test_packing_in_c(tiny: Any, channels: int, zero: int) -> None:
    tensor = np.random.default_rng(channels).integers(-32768, 32768, (channels, 3, 4)).astype(np.int32)
    tiny.weft_vectors.restype = c_size_t
    size = tiny.weft_vectors(c_size_t(channels), c_size_t(3), c_size_t(4))
    content = ctypes.create_string_buffer(size * TINY.vector_bytes)
    sizes = [c_size_t(channels), c_size_t(3), c_size_t(4)]
    tiny.weft_pack(tensor.ctypes.data_as(POINTER(c_int32)), *sizes, c_int32(zero), content)
    assert np.frombuffer(content.raw, "<i2").reshape(-1, 2).tolist() == pack(tensor, 2, zero).tolist()
    back = np.zeros_like(tensor)
    tiny.weft_unpack(content, *sizes, back.ctypes.data_as(POINTER(c_int32)))
    assert back.tolist() == tensor.tolist()


def test_numbers_narrower_than_their_bytes_in_c(tmp_path: Path) -> None:
    """18 bits in four bytes: the sign is that of the bytes."""
    arch, tensor = TINY.replace(data_type="FP18BP10"), np.array([[[-1, -131072, 131071]]], np.int32)
    library, sizes = compiled(tmp_path, arch), [c_size_t(1), c_size_t(1), c_size_t(3)]
    content, back = ctypes.create_string_buffer(3 * arch.vector_bytes), np.zeros_like(tensor)
    library.weft_pack(tensor.ctypes.data_as(POINTER(c_int32)), *sizes, c_int32(0), content)
    assert np.frombuffer(content.raw, "<i4")[::2].tolist() == tensor.ravel().tolist()
    library.weft_unpack(content, *sizes, back.ctypes.data_as(POINTER(c_int32)))
    assert back.tolist() == tensor.tolist()


def test_a_network_of_bytes_in_c(tmp_path: Path) -> None:
    """One channel on four lanes: the others hold the zero point, for weights have no rows there."""
    arch = lockstep_archs()["lanes4_int8"]
    maker = ModelMaker((1, 1, 4, 4))
    maker.conv("x", 1, 1, (1, 1))
    samples = maker.random.random((2, 1, 4, 4)).astype(np.float32)  # from 0: a zero point of -128
    report = compile_model(maker.save(tmp_path / "net.onnx"), arch, tmp_path, calibration={"x": samples})
    made, library = TModel.load(report.model_path), compiled(tmp_path, arch)
    board = board_of(library, litex_model(arch))
    assert board.open(REGISTERS, *PLACES) == OK
    (source,), (output,) = made.inputs, made.outputs
    assert source.scale is not None and source.scale.zero == -128 and output.scale is not None
    for base, vectors in made.consts:
        assert board.call("weft_write", "dram1", base, vectors.astype(np.int8).tobytes(), len(vectors)) == OK
    tensor = source.scale.quantize(samples[0]).astype(np.int32)
    content = ctypes.create_string_buffer(source.size * arch.vector_bytes)
    library.weft_pack(tensor.ctypes.data_as(POINTER(c_int32)), *map(c_size_t, tensor.shape),
                      c_int32(source.scale.zero), content)
    assert board.call("weft_write", "dram0", source.base, content, source.size) == OK
    assert board.run(board.load(made.program)[1]) == OK
    content = ctypes.create_string_buffer(output.size * arch.vector_bytes)
    assert board.call("weft_read", "dram0", output.base, content, output.size) == OK
    found = np.zeros((1, 4, 4), np.int32)
    library.weft_unpack(content, *map(c_size_t, found.shape), found.ctypes.data_as(POINTER(c_int32)))
    expected = Session(made).run({"x": samples[0]}).outputs["conv0"]
    assert np.allclose(output.scale.dequantize(found), expected.reshape(found.shape), rtol=1e-6)


def test_samples_in_c(tiny: Any) -> None:
    sample, profile = CSample(), CProfile()
    word = 77 | 0b11 << 32 | 0b01 << 34 | 0b10 << 46  # array runs, accumulators wait, nothing for the decoder
    assert tiny.weft_decode_sample(c_uint64(word), byref(sample)) == 1
    assert (sample.program_counter, sample.valid, sample.ready) == (77, 0b11, 0b1000_0001)
    tiny.weft_profile_add(byref(profile), byref(sample))
    assert (profile.samples, list(profile.offered), list(profile.taken)) == (
        1, [1, 1, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0])
    assert tiny.weft_decode_sample(c_uint64(FILLER), byref(sample)) == 0
    assert tiny.weft_decode_sample(c_uint64(FILLER | 1 << 40), byref(sample)) == 1  # the last program counter


def test_no_heap() -> None:
    assert not re.search(r"\b(malloc|calloc|realloc|free|alloca)\b", (SOURCE / "weft_driver.c").read_text())
