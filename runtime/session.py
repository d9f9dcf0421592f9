"""The one way through a run: place constants and inputs, let a device run, read the outputs, compare.

Many images run as one program, so that one simulation and one comparison of the memory serve them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from weft.support.errors import Mismatch, WeftError, explain
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.isa import Isa
from weft.hw.contract.keys import Compatibility
from weft.runtime import saturations
from weft.runtime.compare import Comparison, compare, compare_vectors
from weft.runtime.devices import GOLDEN, RTL, Backend, Done, Golden, Local, Progress, machine, no_progress
from weft.runtime.images import Values, Vectors, stored_images, stored_outputs, together, user_images
from weft.runtime.programs import Batch, preload
from weft.runtime.saturations import Saturated

__all__ = ["GOLDEN", "RTL", "Loaded", "Progress", "RunResult", "Session", "no_progress"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """``cycles`` is None on the golden machine. ``seconds`` is the time of the machine alone; sums over all images.

    What runs once when the model is loaded is not in them: ``preload_instructions`` (0: nothing), ``preload_cycles``.
    """

    outputs: dict[str, np.ndarray]
    images: int
    instructions: int
    cycles: int | None
    macs: int | None
    done_macs: int | None
    seconds: float
    array_size: int
    comparison: Comparison | None = None
    operations: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """On rtl with ``trace_operations``, of each program: its cycles, and a row of ``hw.contract.units.OPERATION`` for
    each operation."""
    programs: list[tuple[TModel, bytes]] = field(default_factory=list)
    """Of each of ``operations``: the model, and the program that ran, of several images more than the model's own."""
    samples: list[np.ndarray] = field(default_factory=list)
    """On rtl with ``sample_interval``, of each program: words of the sample port (samples.py)."""
    preload_instructions: int = 0
    preload_cycles: int | None = None
    saturated: Saturated | None = None
    """Numbers that saturated and were not meant to, in all images: counted by the golden machine where it ran."""
    narrowed: bool = False
    """Whether ``--ranges`` left less than calibration saw, so that numbers beyond saturate on purpose."""
    saturated_inputs: dict[str, int] = field(default_factory=dict)
    """By input, values that its type has no room for."""

    @property
    def utilization(self) -> float | None:
        """Multiply-accumulates of the network that the array does, per multiplier and cycle: at most 1."""
        if not self.cycles or self.done_macs is None:
            return None
        return min(self.done_macs / (self.array_size**2 * self.cycles), 1.0)


@dataclass(frozen=True)
class _Ran:
    """One group of images: their output vectors, how the program ended, the preload before it, the model and the bytes
    of the program."""

    outputs: list[Vectors]
    done: Done
    preload: Done | None
    comparison: Comparison | None
    saturated: Saturated | None
    program: tuple[TModel, bytes]


class Session:
    """A compiled network on a machine: ``arch`` by default the model's own, else one with the same instructions."""

    def __init__(self, model: TModel | Network, arch: Arch | None = None) -> None:
        """Raises WeftError where a program would mean something else on ``arch``."""
        self.network = model if isinstance(model, Network) else Network.of(model)
        self.arch = arch or self.network.arch
        _check_same_programs(self.network.arch, self.arch)
        self.parts = [part if isinstance(part, HostPart) else Loaded(part, self.arch) for part in self.network.parts]

    @property
    def machines(self) -> list[Loaded]:
        """The programs alone."""
        return [part for part in self.parts if isinstance(part, Loaded)]

    def run(self, inputs: Mapping[str, np.ndarray], *, on: str | Backend = GOLDEN, raw: bool = False,
            check: bool = True, most: int | None = None, progress: Progress = no_progress,
            **rtl_options: Any) -> RunResult:
        """Inputs by name, one image or many (at most ``most``); outputs in the network's own types, images along the
        first axis. ``raw``, of a single program, takes and gives vectors [size, array_size].

        On anything but golden with ``check`` the golden machine runs too and all of both DRAMs is compared, of a
        backend whose memory is not here the outputs. Raises WeftError for inputs that do not fit and for a program that
        this machine refuses, Mismatch when only the RTL refuses it or does not end; differences in memory are in the
        result.
        """
        how = _How(on, self.arch, check, progress, rtl_options)
        if raw:
            return self._run_raw(inputs, most, how)
        images, ran = user_images(self.network, inputs, most), []
        beyond = self._beyond(images)
        for part in self.parts:
            if isinstance(part, HostPart):
                for values in images:
                    values |= part.run(values, self.network.name)
            else:
                groups, made = part.run(images, how)
                ran += groups
                for values, outputs in zip(images, made, strict=True):
                    values |= outputs
        results = together([self.network.signature.results(values) for values in images])
        return self._result(results, ran, len(images), beyond)

    def _beyond(self, images: list[Values]) -> dict[str, int]:
        """By input of the network, the values that a program has no room for, where there are some."""
        number = self.arch.number
        found: dict[str, int] = {}
        for port in (port for loaded in self.machines for port in loaded.model.inputs):
            values, held = [image[port.name] for image in images if port.name in image], port.numbers(number)
            scaled = np.concatenate([np.ravel(value) for value in values] or [np.zeros(0)]) / held.step + held.zero
            count = int(((scaled > number.maximum + 0.5) | (scaled < number.minimum - 0.5)).sum())
            found |= {port.name: count} if count else {}
        return found

    def _run_raw(self, inputs: Mapping[str, np.ndarray], most: int | None, how: _How) -> RunResult:
        if len(self.machines) > 1 or not isinstance(self.parts[0], Loaded):
            raise WeftError(explain("--raw", f"a network of {len(self.parts)} parts, of host and machine",
                                    "a single program", "leave --raw out"))
        loaded, = self.machines
        images, many = stored_images(loaded.model, inputs, most)
        ran = loaded.run_stored(images, how)
        vectors = [image for group in ran for image in group.outputs]
        return self._result(stored_outputs(loaded.model, vectors, many), ran, len(images))

    def _result(self, outputs: dict[str, np.ndarray], ran: list[_Ran], images: int,
                inputs: Mapping[str, int] | None = None) -> RunResult:
        done = [group.done for group in ran]
        comparisons = [group.comparison for group in ran if group.comparison is not None]
        loaded = [group.preload for group in ran if group.preload is not None][:1]
        return RunResult(
            outputs=outputs, images=images, instructions=sum(each.instructions for each in done),
            cycles=None if done[0].cycles is None else sum(each.cycles or 0 for each in done),
            macs=self.network.macs * images or None, done_macs=self.network.done_macs * images or None,
            seconds=sum(each.seconds for each in done),
            array_size=self.arch.array_size,
            comparison=sum(comparisons[1:], comparisons[0]) if comparisons else None,
            operations=[(each.cycles or 0, each.operations) for each in done if each.operations is not None],
            programs=[group.program for group in ran if group.done.operations is not None],
            samples=[each.samples for each in done if each.samples is not None],
            preload_instructions=sum(each.instructions for each in loaded),
            preload_cycles=loaded[0].cycles if loaded else None,
            saturated=saturations.together(group.saturated for group in ran),
            narrowed=any(saturations.narrowed(model) for model in self.network.machines),
            saturated_inputs=dict(inputs or {}))


@dataclass(frozen=True)
class _How:
    """Options of a run."""

    on: str | Backend
    arch: Arch
    check: bool
    progress: Progress
    rtl_options: dict[str, Any]

    def backend(self) -> Backend:
        """The one given, or a new one: its memories are empty, as golden's are that it is compared with."""
        return machine(self.on, self.arch, self.rtl_options)


class Loaded:
    """A single program, ready to run."""

    def __init__(self, model: TModel, arch: Arch) -> None:
        self.model, self.arch = model, arch
        self.isa = Isa(arch)
        self.batch = Batch(self.isa, model.program)
        self.preload = preload(model, self.isa)

    def run(self, images: list[Values], how: _How) -> tuple[list[_Ran], list[Values]]:
        """What each image's values are in the program's outputs, in single precision's range."""
        packed = [{port.name: self.model.pack_input(port.name, values[port.name]) for port in self.model.inputs}
                  for values in images]
        ran = self.run_stored(packed, how)
        return ran, [{name: self.model.unpack_output(name, vectors) for name, vectors in image.items()}
                     for group in ran for image in group.outputs]

    def run_stored(self, images: list[Vectors], how: _How) -> list[_Ran]:
        """The same of vectors."""
        most = how.backend().most_images
        return [self._run_group(first, group, how) for first, group in self._groups(images, most)]

    def _groups(self, images: list[Vectors], most: int) -> Iterator[tuple[int, list[Vectors]]]:
        """Images that run as one program, at most ``most``, and the number of the first."""
        most = min(most, self.batch.most_images)
        for first in range(0, len(images), most):
            yield first, images[first:first + most]

    def _run_group(self, first: int, images: list[Vectors], how: _How) -> _Ran:
        programs = [*filter(None, [self.preload]), self.batch.of(len(images))]
        device = how.backend()
        golden = Golden(self.arch) if how.check and not isinstance(device, Golden) else None
        if golden is not None:
            self._place(golden, images)
            counted = golden.run(programs, how.progress)
        with device.fair_lock:
            self._place(device, images)
            done = device.run(programs, how.progress)
            _insist(done, golden is not None)
            outputs = [self._read(device, image) for image in range(len(images))]
        comparison = None if golden is None else self._compare(golden, device, outputs, first)
        counts = (counted if golden is not None else done)[-1].saturated
        saturated = None if counts is None else saturations.saturated(self.model, self.batch, counts, first)
        return _Ran(outputs, done[-1], done[0] if self.preload else None, comparison, saturated,
                    (self.model, programs[-1]))

    def _compare(self, golden: Golden, device: Backend, outputs: list[Vectors], first: int) -> Comparison:
        if isinstance(device, Local):
            windows = {"dram0": self.batch.window_bytes, "dram1": golden.drams["dram1"].size}  # images share DRAM1
            dram0, dram1 = (compare(self.arch, memory, golden.drams[memory], device.drams[memory], size, first)
                            for memory, size in windows.items())
            return dram0 + dram1
        bases = {port.name: port.base for port in self.model.outputs}
        found = [compare_vectors(self._read(golden, image)[name], vectors, first + image, bases[name], device.name)
                 for image, given in enumerate(outputs) for name, vectors in given.items()]
        return sum(found[1:], found[0])

    def _place(self, device: Backend, images: list[Vectors]) -> None:
        """Every image's input in its window of DRAM0, constants in DRAM1; those of DRAM0 are every image's too."""
        for base, vectors in self.model.consts:
            device.write("dram1", base, vectors)
        for index, image in enumerate(images):
            window = index * self.batch.window_blocks
            for base, vectors in self.model.dram0_consts:
                device.write("dram0", base, vectors, window)
            for port in self.model.inputs:
                device.write("dram0", port.base, image[port.name], window)

    def _read(self, device: Backend, image: int) -> Vectors:
        window = image * self.batch.window_blocks
        return {port.name: device.read("dram0", port.base, port.size, window) for port in self.model.outputs}


def _insist(programs: list[Done], checked: bool) -> None:
    for done in programs:
        if done.cause is not Cause.NONE:
            where = f"instruction {done.program_counter} with cause {done.cause.name}"
            raise Mismatch(f"the RTL stopped at {where}" + ("; golden ran to the end" if checked else ""))


def _check_same_programs(compiled: Arch, arch: Arch) -> None:
    """Raise WeftError where an override changes what the program's bytes or the packed vectors mean."""
    changed = [name for name, row in KEYS.items() if row.compatibility is Compatibility.REFUSED
               and getattr(compiled, name) != getattr(arch, name)]
    if changed:
        raise WeftError(explain(f"architecture key {changed[0]}", f"{getattr(arch, changed[0])}",
                                f"{getattr(compiled, changed[0])}, which the model was compiled for",
                                "compile the model again for the other machine"))
