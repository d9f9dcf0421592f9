"""One compiled model on one machine: places constants and inputs in DRAM, runs, collects outputs, compares.

Many images run as one program: each has a window of its own in DRAM0 (the Configure register DRAM0_OFFSET moves it),
so that one simulation and one comparison of the memory serve them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.golden.dram import MOST_ADDRESS_BITS, Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import WeftError, explain
from weft.hw.contract.isa import DRAM_OFFSET_BYTES, Cause, Isa, Opcode, Register
from weft.runtime.compare import Comparison, compare
from weft.runtime.errors import Mismatch
from weft.runtime.files import split_batch
from weft.runtime.manifest import TModel

GOLDEN, RTL = "golden", "rtl"

PROGRAM_LIMIT_BYTES = 8 << 20
"""Of many images' programs as one: the golden machine takes some hundred bytes for each instruction."""

MOST_IMAGES = 1 << 16
"""In one run: a small file may claim millions, and each is packed and kept."""

Progress = Callable[[str, int, int], None]
"""Told what happens now, how much of it is done, and of how much (0: not known)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """``cycles`` is None on the golden machine. ``seconds`` is the time of the machine alone; sums over all images."""

    outputs: dict[str, np.ndarray]
    images: int
    instructions: int
    cycles: int | None
    macs: int | None
    seconds: float
    array_size: int
    comparison: Comparison | None = None
    operations: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """On rtl with ``trace_operations``, of each program: its cycles, and ``OPERATION`` of tb/lib/trace.py."""

    @property
    def utilization(self) -> float | None:
        """Useful multiply-accumulates per multiplier and cycle."""
        if not self.cycles or self.macs is None:
            return None
        return self.macs / (self.array_size**2 * self.cycles)


@dataclass(frozen=True)
class _Group:
    """Images that run as one program: their packed inputs, and the memories before the run."""

    first: int
    packed: list[dict[str, np.ndarray]]
    program: bytes


@dataclass
class _Totals:
    vectors: list[dict[str, np.ndarray]] = field(default_factory=list)
    instructions: int = 0
    cycles: int = 0
    seconds: float = 0.0
    operations: list[tuple[int, np.ndarray]] = field(default_factory=list)
    comparison: Comparison | None = None


class Session:
    """Runs ``model`` on ``arch`` (default: the model's own machine, else one with the same instructions)."""

    def __init__(self, model: TModel, arch: Arch | None = None) -> None:
        self.model, self.arch = model, arch or model.arch
        _check_same_programs(model.arch, self.arch)
        self.isa = Isa(self.arch)
        self.window_blocks = -(-self.arch.dram0_depth * self.arch.vector_bytes // DRAM_OFFSET_BYTES)
        reach = min(self.isa.registers[Register.DRAM0_OFFSET].maximum, (1 << MOST_ADDRESS_BITS) // DRAM_OFFSET_BYTES)
        by_program = PROGRAM_LIMIT_BYTES // max(len(model.program), 1)
        self.images_per_run = max(min(reach // self.window_blocks, by_program), 1)

    # -- the one way in --------------------------------------------------------------------------------------------
    def run(self, inputs: Mapping[str, np.ndarray], *, on: str = GOLDEN, raw: bool = False, check: bool = True,
            most: int | None = None, progress: Progress = no_progress, **rtl_options: Any) -> RunResult:
        """Inputs by name, one image or many (at most ``most``); ``raw`` takes and gives vectors [size, array_size].

        On ``rtl`` with ``check`` the golden machine runs too and all of DRAM0 is compared. Raises WeftError for
        inputs that do not fit and for a program that this machine refuses, Mismatch when only the RTL
        refuses it or does not end; differences in memory are in the result.
        """
        images, many = self._images(inputs, raw, most)
        totals = _Totals()
        for group in self._groups(images):
            self._run_group(group, totals, on, check, progress, rtl_options)
        outputs = self._raw_outputs(totals.vectors, many) if raw else self._outputs(totals.vectors)
        return RunResult(outputs=outputs, images=len(images), instructions=totals.instructions,
                         cycles=totals.cycles if on == RTL else None,
                         macs=self.model.macs * len(images) or None, seconds=totals.seconds,
                         array_size=self.arch.array_size, comparison=totals.comparison,
                         operations=totals.operations)

    def _run_group(self, group: _Group, totals: _Totals, on: str, check: bool, progress: Progress,
                   rtl_options: dict[str, Any]) -> None:
        golden = result = None
        if on == GOLDEN or check:
            golden = self._memories(group)
            began = time.monotonic()
            self._run_golden(golden, group.program, progress)
            totals.seconds += time.monotonic() - began if on == GOLDEN else 0.0
            totals.instructions += self._count(group.program) if on == GOLDEN else 0
            result = golden
        if on == RTL:
            result = self._memories(group)
            self._run_rtl(result, group.program, totals, golden is not None, progress, rtl_options)
            if golden:
                window = self.window_blocks * DRAM_OFFSET_BYTES
                found = compare(self.arch, golden[0], result[0], window, group.first)
                totals.comparison = found if totals.comparison is None else totals.comparison + found
        assert result is not None
        totals.vectors += [self._read_outputs(result[0], image) for image in range(len(group.packed))]

    def _run_golden(self, memories: tuple[Dram, Dram], program: bytes, progress: Progress) -> None:
        machine = Machine(self.arch, *memories)
        machine.run(program, lambda done, total: progress("golden machine", done, total))

    def _run_rtl(self, memories: tuple[Dram, Dram], program: bytes, totals: _Totals, checked: bool,
                 progress: Progress, options: dict[str, Any]) -> None:
        from weft.simulate.build import BuildError, SimulationError
        from weft.simulate.rtl import run_on_rtl
        from weft.simulate.toolchain import ToolchainError

        try:
            done = run_on_rtl(self.arch, program, *memories, stage=lambda stage: progress(stage, 0, 0), **options)
        except (BuildError, ToolchainError) as error:
            raise WeftError(str(error)) from None
        except SimulationError as error:
            raise Mismatch(f"the simulation failed: {error}") from None
        if done.error_cause is not Cause.NONE:
            where = f"instruction {done.error_program_counter} with cause {done.error_cause.name}"
            raise Mismatch(f"the RTL stopped at {where}" + ("; golden ran to the end" if checked else ""))
        if done.operations is not None:
            totals.operations.append((done.cycles, done.operations))
        totals.cycles += done.cycles
        totals.instructions += done.instructions
        totals.seconds += done.seconds

    def _count(self, program: bytes) -> int:
        return len(program) // self.isa.instruction_bytes

    # -- programs and memories -------------------------------------------------------------------------------------
    def _groups(self, images: list[dict[str, np.ndarray]]) -> Iterator[_Group]:
        single = self.model.program
        rewind = self._rewind(single)
        for first in range(0, len(images), self.images_per_run):
            packed = images[first:first + self.images_per_run]
            parts = [self._prologue(index, rewind) + single for index in range(len(packed))]
            yield _Group(first, packed, b"".join(parts))

    def _rewind(self, program: bytes) -> list[Register]:
        """The registers of ours that the program sets: every image must find them as after reset."""
        opcode, _, register, *_ = self.isa.split(program)
        used = {int(number) for number in register[opcode == Opcode.CONFIGURE]}
        return [known for known in Register if known in used and known >= Register.MAT_MUL_ROWS]

    def _prologue(self, index: int, rewind: list[Register]) -> bytes:
        """What a driver does before each image; nothing before the first."""
        if index == 0:
            return b""
        window = self.isa.configure(Register.DRAM0_OFFSET, index * self.window_blocks)
        resets = [self.isa.configure(register, self.isa.registers[register].reset) for register in rewind]
        return self.isa.assemble([window, *resets])

    def _memories(self, group: _Group) -> tuple[Dram, Dram]:
        """DRAM0 with every image's input, DRAM1 with the constants; those of DRAM0 are every image's too."""
        dram0, dram1 = Dram(self.arch), Dram(self.arch)
        for base, vectors in self.model.consts:
            dram1.write(base, vectors)
        for index, packed in enumerate(group.packed):
            for base, vectors in self.model.dram0_consts:
                dram0.write(base, vectors, index * self.window_blocks)
            for spec in self.model.inputs:
                dram0.write(spec.base, packed[spec.name], index * self.window_blocks)
        return dram0, dram1

    def _read_outputs(self, dram0: Dram, index: int) -> dict[str, np.ndarray]:
        offset = index * self.window_blocks
        return {spec.name: dram0.read(spec.base, spec.size, offset) for spec in self.model.outputs}

    # -- inputs and outputs ----------------------------------------------------------------------------------------
    def _images(self, inputs: Mapping[str, np.ndarray], raw: bool,
                most: int | None) -> tuple[list[dict[str, np.ndarray]], bool]:
        """Packed vectors of each image, by input, of the first ``most`` images; and whether the caller counts images
        with an axis of its own."""
        arrays, many = {}, False
        for spec in self.model.inputs:
            given = inputs[spec.name]
            if raw:
                shape: tuple[int, ...] = (spec.size, self.arch.array_size)
                many = many or given.ndim == len(shape) + 1
                arrays[spec.name] = self._check_raw(spec.name, split_batch(spec.name, given, shape, batched=False))
            else:
                user = self._shape(spec)
                arrays[spec.name] = split_batch(spec.name, given, user, batched=user[:1] == (1,))
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} with {count} images" for name, count in counts.items())
            raise WeftError(explain("inputs", found, "the same number of images for all", "cut the longer ones"))
        count = min(next(iter(counts.values())), MOST_IMAGES + 1 if most is None else most)
        if count > MOST_IMAGES:
            raise WeftError(explain("inputs", f"{max(counts.values())} images", f"at most {MOST_IMAGES} in one run",
                                    f"add --images {MOST_IMAGES}, or cut the array"))
        return [{name: array[i] if raw else self.model.pack_input(name, array[i]) for name, array in arrays.items()}
                for i in range(count)], many

    def _shape(self, spec: Any) -> tuple[int, ...]:
        if spec.shape is None:
            raise WeftError(explain(f"model {self.model.name}", "no tensor shapes (made by the original tools)",
                                    "fixed-point vectors", "use --raw"))
        return tuple(spec.shape)

    def _check_raw(self, name: str, array: np.ndarray) -> np.ndarray:
        number = self.arch.number
        if array.dtype.kind not in "iu":
            raise WeftError(explain(f"raw input {name}", f"values of type {array.dtype}", "integers",
                                    "convert the array, or leave --raw out"))
        if array.min() < number.minimum or array.max() > number.maximum:
            raise WeftError(explain(f"raw input {name}", f"values {array.min()}..{array.max()}",
                                    f"{number.minimum}..{number.maximum} ({number.name})", "scale the values"))
        return array.astype(np.int64)

    def _raw_outputs(self, vectors: list[dict[str, np.ndarray]], many: bool) -> dict[str, np.ndarray]:
        dtype = np.dtype(f"i{self.arch.number.scalar_bytes}")
        stacked = {spec.name: np.stack([image[spec.name] for image in vectors]).astype(dtype)
                   for spec in self.model.outputs}
        return stacked if many else {name: array[0] for name, array in stacked.items()}

    def _outputs(self, vectors: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """What the model gives, the host's part included, images along the first axis."""
        images = []
        for image in vectors:
            tensors = {spec.name: self.model.unpack_output(spec.name, image[spec.name]) for spec in self.model.outputs}
            images.append(self.model.run_host(tensors))
        return {name: np.concatenate([np.asarray(image[name]) for image in images]) for name in images[0]}


def _check_same_programs(compiled: Arch, arch: Arch) -> None:
    """An override must not change what the program's bytes or the packed vectors mean."""
    fixed = ("data_type", "array_size", "dram0_depth", "dram1_depth", "local_depth", "accumulator_depth",
             "simd_registers_depth", "stride0_depth", "stride1_depth", "lut_count", "lut_depth")
    changed = [key for key in fixed if getattr(compiled, key) != getattr(arch, key)]
    if changed:
        raise WeftError(explain(f"architecture key {changed[0]}", f"{getattr(arch, changed[0])}",
                                f"{getattr(compiled, changed[0])}, which the model was compiled for",
                                "compile the model again for the other machine"))
