# SPDX-License-Identifier: Apache-2.0
"""What a fuzzer feeds: each reader of files as a function of bytes, and good files to begin with.

A reader answers or raises WeftError. Whatever else it raises is a fault, as is a hang or too much memory."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from onnx import TensorProto, external_data_helper

from weft.compiler.choices import VERSION, read_choices
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.golden.legality import first_stop
from weft.golden.machine import Machine, MachineStop
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.runtime.arrays import read_arrays
from weft.schedule.read import read_schedule
from weft.support.errors import WeftError
from weft.tb.compile.test_contributed import contributed
from weft.tb.hostile.case import good
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_program import random_program
from weft.tmodel.network import Network

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "models" / "digits" / "digits.onnx"
COMPILED = "WEFT_FUZZ_DIGITS"
"""The environment variable that names the folder of the compiled digits."""
TINY = lockstep_archs()["lanes4_lut"]
"""The machine of the programs."""


@dataclass(frozen=True)
class Target:
    """A reader of bytes, and good inputs for it."""

    read: Callable[[bytes], object]
    good: Callable[[], list[bytes]]


def prepare(compiled: Path) -> None:
    """Compile the digits into a folder, once. A fuzzer's process cannot: what it watches is no machine code."""
    if not (compiled / "digits.tmodel").exists():
        compile_model(DIGITS, Arch.load("tiny").replace(dram0_depth=1 << 14, dram1_depth=1 << 14), compiled)


@cache
def folder() -> Path:
    """Return a folder of this process, with what ``prepare`` made in it; it goes with the process."""
    found = Path(tempfile.mkdtemp(prefix="weft-fuzz-"))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return Path(shutil.copytree(os.environ[COMPILED], found / "digits"))


def of_file(suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes that hands them over as a file."""
    def reader(content: bytes) -> object:
        path = folder() / f"fuzzed{suffix}"
        path.write_bytes(content)
        try:
            return read(path)
        except WeftError:
            return None

    return reader


def programs_stop_alike(content: bytes) -> None:
    """Raise AssertionError unless the check of a whole program finds the stop that the golden machine comes to."""
    isa = Isa(TINY)
    program = content[:len(content) // isa.instruction_bytes * isa.instruction_bytes]
    foreseen = first_stop(program, TINY)
    try:
        Machine(TINY).run(program)
    except MachineStop as stop:
        assert foreseen is not None
        assert (foreseen.cause, foreseen.program_counter) == (stop.cause, stop.program_counter)
    else:
        assert foreseen is None


def files(*patterns: str) -> Callable[[], list[bytes]]:
    """Return what reads files of the checkout."""
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def made(name: str) -> Callable[[], list[bytes]]:
    """Return what reads a file of the compiled digits."""
    return lambda: [(folder() / name).read_bytes()]


def outside(content: bytes) -> object:
    """Read a network whose constants are in the file weights.bin beside it."""
    (folder() / "weights.bin").write_bytes(bytes(range(256)) * 16)
    return of_file(".onnx", read_model)(content)


def with_data_outside() -> list[bytes]:
    """Return good networks whose constants lie in weights.bin, at its start and further on."""
    found = []
    for offset in (0, 64):
        model = good()
        for tensor in model.graph.initializer:
            external_data_helper.set_external_data(tensor, "weights.bin", offset=offset, length=16)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
        found.append(model.SerializeToString())
    return found


CHOSEN = json.dumps({"choices": VERSION, "cycles": [9, 8], "parts": [{
    "residents": {"a": True}, "spread": {"b": False}, "copy": None, "tilings": {"0": {
        "grain": [1, 8, None], "outputs": 3, "inputs": 1, "taps": 1, "buffers": 2, "weight_slots": 5,
        "outputs_outer": False}}, "paces": {"0": 8}, "fetch_paces": {}, "fetch_pace": None, "stripes": {"1": 3},
    "order": {"2": 3, "3": 2}, "layers": ""}]})
"""Choices as a search writes them."""

TARGETS = {
    "tarch": Target(of_file(".tarch", Arch.load), files("arch/*.tarch")),
    "tmodel": Target(of_file(".tmodel", Network.load), made("digits.tmodel")),
    "onnx": Target(of_file(".onnx", read_model), lambda: [*files("models/digits/*.onnx")(), *contributed()]),
    "outside": Target(outside, with_data_outside),
    "tflite": Target(of_file(".tflite", read_model), lambda: [b"\x1c\x00\x00\x00TFL3" + bytes(32)]),
    "arrays": Target(of_file(".npz", lambda path: read_arrays(path, ["x"])), files("models/digits/*.npz")),
    "schedule": Target(of_file(".json", read_schedule), lambda: [b'{"-1": {"in": [], "out": []}, "0": []}']),
    "choices": Target(of_file(".json", read_choices), lambda: [CHOSEN.encode()]),
    "program": Target(programs_stop_alike, lambda: [Isa(TINY).assemble(random_program(TINY, seed, 20))
                                                    for seed in range(20)]),
}

