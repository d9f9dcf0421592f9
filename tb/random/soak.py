# SPDX-License-Identifier: Apache-2.0
"""The jobs of a long random run: each a kind of case, a machine and seeds, and what failed of them in words.

Seeds begin where no test of the suite goes, so that a soak run always tries what is new."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from weft.simulate.rtl import build_rtl
from weft.tb.random import byte_networks, network_rule, signals_rule, unordered_rule
from weft.tb.random.lockstep import Case, run_cases, shrink
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_archs import random_arch
from weft.tb.random.random_networks import Case as NetworkCase
from weft.tb.random.random_program import random_program

FIRST_SEED = 1_000_000
MOST_CYCLES_BEFORE_RESET = 1500
BROKEN_OFF = 40
"""Instructions of a program that a reset breaks off."""
CASES_OF_AN_ARCH = 20


@dataclass(frozen=True)
class Job:
    """Some seeds of one kind of case on one machine."""

    kind: str
    machine: str
    seeds: range

    @property
    def name(self) -> str:
        """Return what the next seed is kept under."""
        return f"{self.kind} {self.machine}"


def programs(machine: str, seeds: range) -> list[str]:
    """Random programs on the hardware against golden."""
    arch = lockstep_archs()[machine]
    return _lockstep([Case.of(arch, seed) for seed in seeds])


def resets(machine: str, seeds: range) -> list[str]:
    """Random programs behind one that a reset broke off in a random cycle."""
    arch = lockstep_archs()[machine]
    return _lockstep([Case(arch, seed, Case.of(arch, seed).program, reset_after=1 + seed % MOST_CYCLES_BEFORE_RESET,
                           broken_off=tuple(random_program(arch, seed + 1, BROKEN_OFF))) for seed in seeds])


def architectures(_: str, seeds: range) -> list[str]:
    """Random programs on random machines."""
    return [text for seed in seeds for arch in [random_arch(seed)]
            for text in _lockstep([Case.of(arch, CASES_OF_AN_ARCH * seed + k) for k in range(CASES_OF_AN_ARCH)])]


def _lockstep(cases: list[Case]) -> list[str]:
    """Return the first mismatch of cases of one machine, made small."""
    simulation = build_rtl(cases[0].arch)
    return [str(mismatch if mismatch.case.broken_off else shrink(simulation, mismatch))
            for mismatch in run_cases(simulation, cases)[:1]]


def cores(machine: str, seeds: range) -> list[str]:
    """Random programs of cores that wait for each other, and what of them must be refused."""
    return signals_rule.judge(machine, seeds)


def cores_without_order(machine: str, seeds: range) -> list[str]:
    """Programs that lack a post and its wait, run all the same: where RTL differs they had been refused."""
    return unordered_rule.judge(machine, seeds)


def networks(machine: str, seeds: range) -> list[str]:
    """Random networks, compiled and run on golden, against onnxruntime."""
    return _verdicts(network_rule.judge(NetworkCase(machine, seed)) for seed in seeds)


def byte_scheme(machine: str, seeds: range) -> list[str]:
    """Random networks in bytes."""
    return _verdicts(byte_networks.judge(NetworkCase(machine, seed)) for seed in seeds)


def quantised(_: str, seeds: range) -> list[str]:
    """Random networks that onnxruntime quantised."""
    return _verdicts(byte_networks.judge_quantised(seed) for seed in seeds)


def hardware(machine: str, seeds: range) -> list[str]:
    """Random networks on the hardware against golden."""
    return _verdicts(network_rule.judge_on_rtl(NetworkCase(machine, seed)) for seed in seeds)


def _verdicts(verdicts: Iterator[network_rule.Verdict]) -> list[str]:
    """Return the verdicts that tell of a problem or a refusal."""
    return [str(verdict) for verdict in verdicts if verdict.problem or verdict.refusal]


@dataclass(frozen=True)
class Kind:
    """A kind of case: what runs it, on which machines, and how many seeds make a job of about a minute."""

    run: Callable[[str, range], list[str]]
    machines: tuple[str, ...]
    seeds: int


KINDS = {
    "programs": Kind(programs, tuple(lockstep_archs()), 100),
    "resets": Kind(resets, tuple(lockstep_archs()), 50),
    "cores": Kind(cores, tuple(signals_rule.SYSTEMS), 100),
    "cores without order": Kind(cores_without_order, tuple(signals_rule.SYSTEMS), 40),
    "networks": Kind(networks, tuple(network_rule.ARCHS), 10),
    "byte networks": Kind(byte_scheme, tuple(byte_networks.ARCHS), 10),
    "quantised networks": Kind(quantised, ("int8",), 10),
    "networks in RTL": Kind(hardware, tuple(network_rule.ARCHS), 2),
    "architectures": Kind(architectures, ("random",), 1),
}


def jobs(kinds: list[str], next_seed: dict[str, int], only: Collection[str] = ()) -> Iterator[Job]:
    """Yield jobs without end, kind by kind and machine by machine, each behind the seeds of the one before.

    ``next_seed``: "KIND MACHINE" -> the first seed that is still to run; it grows with each job. ``only``: machines,
    all of a kind unless it has some of them."""
    turns = dict.fromkeys(kinds, 0)
    while True:
        for kind in kinds:
            count = KINDS[kind].seeds
            machines = [name for name in KINDS[kind].machines if name in only] or KINDS[kind].machines
            machine = machines[turns[kind] % len(machines)]
            turns[kind] += 1
            first = next_seed.get(f"{kind} {machine}", FIRST_SEED)
            next_seed[f"{kind} {machine}"] = first + count
            yield Job(kind, machine, range(first, first + count))


def run(job: Job) -> list[str]:
    """Return what failed. Any exception is a failure too, with its traceback: a long run goes on behind it."""
    try:
        return KINDS[job.kind].run(job.machine, job.seeds)
    except Exception:
        return [f"{job.name}, a seed of {job.seeds}:\n{traceback.format_exc()}"]
