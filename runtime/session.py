# SPDX-License-Identifier: Apache-2.0
"""Run a compiled network: place constants and inputs, let a device run, read the outputs, compare.

Many images run as one program, so that one simulation and one comparison of the memory serve them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.isa import Isa
from weft.hw.contract.keys import Compatibility
from weft.runtime import saturations
from weft.runtime.compare import Comparison, compare, compare_vectors
from weft.runtime.devices import GOLDEN, RTL, Backend, Done, Golden, Local, Progress, machine, no_progress
from weft.runtime.images import Values, Vectors, are_counted, stored_images, stored_outputs, together, user_images
from weft.runtime.programs import Batch, preload
from weft.runtime.saturations import Saturated
from weft.support.errors import Mismatch, WeftError, explain
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

__all__ = ["GOLDEN", "RTL", "Loaded", "Progress", "RunResult", "Session", "no_progress"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of a run: outputs, and sums over all images.

    ``cycles`` is None on the golden machine. ``seconds`` is the time of the machine alone. The program that runs once
    when the model is loaded is not included: ``preload_instructions`` (0: none), ``preload_cycles``."""

    outputs: dict[str, np.ndarray]
    images: int
    instructions: int
    cycles: int | None
    macs: int | None
    done_macs: int | None
    seconds: float
    array_size: int
    cores: int = 1
    comparison: Comparison | None = None
    operations: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """On rtl with ``trace_operations``, the cycles of each program and a row for each operation.

    Rows are of ``hw.contract.units.OPERATION``. Programs of a group stand in the order of their cores."""
    programs: list[tuple[TModel, bytes]] = field(default_factory=list)
    """The model and the program bytes of each entry of ``operations``.

    For several images the program is longer than the model's own."""
    groups: list[int] = field(default_factory=list)
    """The number of ``operations`` of each group of programs that ran side by side, one a core."""
    samples: list[np.ndarray] = field(default_factory=list)
    """Words of the sample port for each program (samples.py): on rtl with ``sample_interval``, on a board with its
    option ``sample_cycles``."""
    flags: tuple[str, ...] = ()
    """The flags that a device was asked for and saw: ``timeout``, ``tracepoint``."""
    preload_instructions: int = 0
    preload_cycles: int | None = None
    saturated: Saturated | None = None
    """Numbers that saturated against intention, in all images; the golden machine counts them if it ran."""
    narrowed: bool = False
    """Whether ``--ranges`` left less than calibration saw, so that numbers beyond saturate on purpose."""
    saturated_inputs: dict[str, int] = field(default_factory=dict)
    """Input -> number of values that its type has no room for."""

    @property
    def utilization(self) -> float | None:
        """Multiply-accumulates that the array does per multiplier and cycle, at most 1; None if not known."""
        if not self.cycles or self.done_macs is None:
            return None
        return min(self.done_macs / (self.cores * self.array_size**2 * self.cycles), 1.0)


@dataclass(frozen=True)
class _Ran:
    """The results of the images of one run.

    Their output vectors, how each group of programs ended, the preload before them, the model and the programs."""

    model: TModel
    outputs: list[Vectors]
    groups: list[list[Done]]
    preload: list[Done] | None
    comparison: Comparison | None
    saturated: Saturated | None
    programs: list[list[bytes]]

    @property
    def done(self) -> list[Done]:
        """The reports of all programs, group by group."""
        return [each for group in self.groups for each in group]

    @property
    def cycles(self) -> int | None:
        """The cycles of all groups, one after another, each as long as its slowest core; None if not counted."""
        return None if self.done[0].cycles is None else sum(map(_cycles, self.groups))


class Session:
    """A compiled network on a machine; ``arch`` is the model's own, or another with the same instructions."""

    def __init__(self, model: TModel | Network, arch: Arch | None = None) -> None:
        """Prepare the network's programs. Raise WeftError if one would mean something else on ``arch``."""
        if not isinstance(model, Network | TModel):
            raise WeftError(explain("compiled network", f"a {type(model).__name__}", "a .tmodel that was loaded",
                                    "give the path of one to weft.Session, or Network.load of it"))
        self.network = model if isinstance(model, Network) else Network.of(model)
        self.arch = arch or self.network.arch
        _check_same_programs(self.network.arch, self.arch)
        self.parts = [part if isinstance(part, HostPart) else Loaded(part, self.arch) for part in self.network.parts]

    @property
    def machines(self) -> list[Loaded]:
        """The network's programs."""
        return [part for part in self.parts if isinstance(part, Loaded)]

    def run(self, inputs: Mapping[str, np.ndarray], *, on: str | Backend = GOLDEN, raw: bool = False,
            check: bool = True, most: int | None = None, progress: Progress = no_progress,
            **rtl_options: Any) -> RunResult:
        """Run the network on one image or many (at most ``most``), and return outputs and counts.

        ``inputs`` by name; outputs have the network's own types; images are joined along their
        leading 1, or stacked. ``raw``, of a single
        program, takes and gives vectors [size, array_size]. ``on``: golden, rtl or a device. With ``check`` the golden
        machine runs beside any other, and all of both DRAMs is compared; on a device with remote memory only the
        outputs are. Differences are in the result. Raise WeftError for inputs that do not fit and for a program that
        the machine refuses. Raise Mismatch if only the RTL refuses it or does not end."""
        how = _How(on, self.arch, check, progress, rtl_options)
        if raw:
            return self._run_raw(inputs, most, how)
        images, ran = user_images(self.network, inputs, most), []
        beyond = self._beyond(images)
        for part in self.parts:
            ran += self._run_part(part, images, how)
        results = together([self.network.signature.results(values) for values in images],
                           are_counted(self.network, inputs))
        return self._result(results, ran, len(images), beyond)

    def _run_part(self, part: HostPart | Loaded, images: list[Values], how: _How) -> list[_Ran]:
        """Run a part, add what it makes to the values of each image, and return the groups that ran on the machine."""
        if isinstance(part, HostPart):
            for values in images:
                values |= part.run(values, self.network.name)
            return []
        groups, made = part.run(images, how)
        for values, outputs in zip(images, made, strict=True):
            values |= outputs
        return groups

    def values_before(self, machine: Loaded, inputs: Mapping[str, np.ndarray]) -> Values:
        """Return every tensor that there is when a program starts, for the first image, by the golden machine.

        Raise WeftError for inputs that do not fit."""
        images = user_images(self.network, inputs, 1)
        for part in self.parts[:self.parts.index(machine)]:
            self._run_part(part, images, _How(GOLDEN, self.arch, False, no_progress, {}))
        return images[0]

    def _beyond(self, images: list[Values]) -> dict[str, int]:
        """Return, by input of the network, the number of values that its type has no room for, if not 0."""
        number = self.arch.number
        found: dict[str, int] = {}
        for port in (port for loaded in self.machines for port in loaded.model.inputs):
            values, held = [image[port.name] for image in images if port.name in image], port.numbers(number)
            with np.errstate(over="ignore"):  # of numbers near the largest float: infinity is beyond too
                scaled = np.concatenate([np.ravel(value) for value in values] or [np.zeros(0)]) / held.step + held.zero
            count = int(((scaled > number.maximum + 0.5) | (scaled < number.minimum - 0.5)).sum())
            found |= {port.name: count} if count else {}
        return found

    def _run_raw(self, inputs: Mapping[str, np.ndarray], most: int | None, how: _How) -> RunResult:
        """Run a single program on vectors, and return vectors."""
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
        """Return the result of all groups of images."""
        done, groups = [each for run in ran for each in run.done], [group for run in ran for group in run.groups]
        comparisons = [group.comparison for group in ran if group.comparison is not None]
        loaded = [group.preload for group in ran if group.preload is not None][:1]
        return RunResult(
            outputs=outputs, images=images, instructions=sum(each.instructions for each in done),
            cycles=None if done[0].cycles is None else sum(map(_cycles, groups)),
            macs=self.network.macs * images or None, done_macs=self.network.done_macs * images or None,
            seconds=sum(max(each.seconds for each in group) for group in groups),
            array_size=self.arch.array_size, cores=self.arch.cores,
            comparison=sum(comparisons[1:], comparisons[0]) if comparisons else None,
            operations=[(each.cycles or 0, each.operations) for each in done if each.operations is not None],
            programs=[(run.model.of_core(core), program) for run in ran if run.done[0].operations is not None
                      for programs in run.programs for core, program in enumerate(programs)],
            groups=[len(group) for group in groups if group[0].operations is not None],
            samples=[each.samples for each in done if each.samples is not None],
            flags=tuple(sorted({flag for each in done for flag in each.flags})),
            preload_instructions=loaded[0][0].instructions if loaded else 0,
            preload_cycles=_cycles(loaded[0]) if loaded and loaded[0][0].cycles is not None else None,
            saturated=saturations.together(group.saturated for group in ran),
            narrowed=any(saturations.narrowed(model) for model in self.network.machines),
            saturated_inputs=dict(inputs or {}))


@dataclass(frozen=True)
class _How:
    """The options of a run."""

    on: str | Backend
    arch: Arch
    check: bool
    progress: Progress
    rtl_options: dict[str, Any]

    def backend(self, model: TModel) -> Backend:
        """Return the backend that was given, or a new one with empty memories, for the programs of ``model``."""
        return machine(self.on, self.arch, self.rtl_options, model)


class Loaded:
    """A single program, ready to run."""

    def __init__(self, model: TModel, arch: Arch) -> None:
        self.model, self.arch = model, arch
        self.isa = Isa(arch)
        self.batch = Batch(self.isa, model.program, model.window_bytes, model.programs[1:])
        self.preload = preload(model, self.isa)

    def run(self, images: list[Values], how: _How) -> tuple[list[_Ran], list[Values]]:
        """Run the program on images; return the groups that ran, and the outputs of each image as real numbers."""
        ran = self.run_stored([self.packed(values) for values in images], how)
        return ran, [{name: self.model.unpack_output(name, vectors) for name, vectors in image.items()}
                     for group in ran for image in group.outputs]

    def packed(self, values: Values) -> Vectors:
        """Return the vectors of an image's inputs."""
        return {port.name: self.model.pack_input(port.name, values[port.name]) for port in self.model.inputs}

    def run_stored(self, images: list[Vectors], how: _How) -> list[_Ran]:
        """Run the program on images given as vectors, as many at once as machine and program take.

        Return what each of these runs left, in order."""
        most = how.backend(self.model).most_images
        return [self._run_group(first, group, how) for first, group in self._groups(images, most)]

    def _groups(self, images: list[Vectors], most: int) -> Iterator[tuple[int, list[Vectors]]]:
        """Yield the images of each run, at most ``most``, with the number of the first."""
        most = min(most, self.batch.most_images)
        for first in range(0, len(images), most):
            yield first, images[first:first + most]

    def _run_group(self, first: int, images: list[Vectors], how: _How) -> _Ran:
        """Run a group of images as one program, compared with golden if asked."""
        programs = self.batch.groups(len(images))
        if len(programs[0]) > 1:
            self._check_side_by_side(programs[0])
        before = [[self.preload] * self.arch.cores] if self.preload else []
        device = how.backend(self.model)
        golden = device.reference if isinstance(device, Local) else None
        counted: list[list[Done]] | None = None
        if golden is None and how.check and not isinstance(device, Golden):
            golden = Golden(self.arch)
            self.place(golden, images)
            counted = golden.run([*before, *programs], how.progress)[len(before):]
        with device.fair_lock:
            self.place(device, images)
            done = device.run([*before, *programs], how.progress)
            _insist(done, golden is not None)
            outputs = [self._read(device, image) for image in range(len(images))]
        comparison = None if golden is None else self._compare(golden, device, outputs, first)
        groups = done[len(before):]
        counts = [[each.saturated for each in group] for group in counted or groups]
        known = [[each for each in group if each is not None] for group in counts]
        saturated = saturations.saturated(self.model, self.batch, known, first) if known == counts else None
        return _Ran(self.model, outputs, groups, done[0] if before else None, comparison, saturated, programs)

    def _check_side_by_side(self, programs: list[bytes]) -> None:
        """Raise the error with which a machine would stop, and RaceError if the order of the cores would matter.

        Only the first group is checked: the others are the same programs, with all windows moved alike."""
        from weft.golden.legality import first_stop
        from weft.golden.races import check_races

        for core, program in enumerate(self.model.programs):
            stop = first_stop(program, self.arch)
            if stop is not None:
                raise stop.of_core(core) if self.model.others else stop
        check_races(programs, self.arch)

    def _compare(self, golden: Golden, device: Backend, outputs: list[Vectors], first: int) -> Comparison:
        """Compare both DRAMs of a device with golden's, or only the outputs if its memory is remote."""
        if isinstance(device, Local):
            windows = {"dram0": self.batch.window_bytes, "dram1": golden.drams["dram1"].size}  # images share DRAM1
            dram0, dram1 = (compare(self.arch, memory, golden.drams[memory], device.drams[memory], size, first)
                            for memory, size in windows.items())
            return dram0 + dram1
        bases = {port.name: port.base for port in self.model.outputs}
        found = [compare_vectors(self._read(golden, image)[name], vectors, first + image, bases[name], device.name)
                 for image, given in enumerate(outputs) for name, vectors in given.items()]
        return sum(found[1:], found[0])

    def place(self, device: Backend, images: list[Vectors]) -> None:
        """Write every image's input into its window of DRAM0, constants into DRAM1 and into every window."""
        for base, vectors in self.model.consts:
            device.write("dram1", base, vectors)
        for index, image in enumerate(images):
            window = index * self.batch.window_blocks
            for base, vectors in self.model.dram0_consts:
                device.write("dram0", base, vectors, window)
            for port in self.model.inputs:
                device.write("dram0", port.base, image[port.name], window)

    def _read(self, device: Backend, image: int) -> Vectors:
        """Return the output vectors of an image."""
        window = image * self.batch.window_blocks
        return {port.name: device.read("dram0", port.base, port.size, window) for port in self.model.outputs}


def _cycles(group: list[Done]) -> int:
    """Return the cycles of the core that takes longest, of programs that start together."""
    return max(each.cycles or 0 for each in group)


def _insist(groups: list[list[Done]], checked: bool) -> None:
    """Raise Mismatch if a program stopped before its end; ``checked``: golden ran it to the end."""
    for core, done in (pair for group in groups for pair in enumerate(group)):
        if done.cause is not Cause.NONE:
            whose = f"core {core}, " if max(map(len, groups)) > 1 else ""
            where = f"{whose}instruction {done.program_counter} with cause {done.cause.name}"
            raise Mismatch(f"the RTL stopped at {where}" + ("; golden ran to the end" if checked else ""))


def _check_same_programs(compiled: Arch, arch: Arch) -> None:
    """Raise WeftError if another architecture changes the meaning of the program or the packed vectors."""
    changed = [name for name, row in KEYS.items() if row.compatibility is Compatibility.REFUSED
               and getattr(compiled, name) != getattr(arch, name)]
    if changed:
        raise WeftError(explain(f"architecture key {changed[0]}", f"{getattr(arch, changed[0])}",
                                f"{getattr(compiled, changed[0])}, which the model was compiled for",
                                "compile the model again for the other machine"))
