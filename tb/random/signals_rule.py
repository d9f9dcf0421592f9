# SPDX-License-Identifier: Apache-2.0
"""The rule for random programs of cores that wait for each other.

RTL, with stalls, leaves every word that golden leaves in a random order. What lacks a post and its wait, or one
of them, is refused."""

from __future__ import annotations

import random
from collections.abc import Mapping

from weft.golden.dram import Dram, differences
from weft.golden.order import SignalError
from weft.golden.races import RaceError, check_races
from weft.golden.system import GoldenSystem
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import run_groups_on_rtl
from weft.support.errors import WeftError
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_signals import SignalledPrograms, signalled_programs
from weft.tb.random.random_system import fill

CYCLE_LIMIT = 3_000_000
LENGTH = 60
"""Instructions of each core, before the Signals and the dump at the end."""


def systems() -> dict[str, Arch]:
    """Return name -> machine of several cores."""
    archs = lockstep_archs()
    return {
        "three on two ports": archs["lanes2"].replace(dram_ports=SHARED, cores=3, memory_ports=2, sync_counters=4),
        "two on one port": archs["lanes4_slices"].replace(cores=2, sync_counters=2),
    }


SYSTEMS = systems()


def stalls(seed: int) -> MemorySettings:
    """Return random latencies, stalls of each channel, and jitter."""
    rng = random.Random(seed)
    rests = {f"stall_{channel}": rng.choice([0, 20, 90, 200]) for channel in ("ar", "r", "aw", "w", "b")}
    return MemorySettings(read_latency=rng.randint(2, 60), write_latency=rng.randint(2, 60),
                          jitter=rng.choice([0, 10, 50]), **rests)


def filled(arch: Arch, seed: int) -> list[Dram]:
    """Return both DRAMs with random vectors in every core's windows."""
    drams = [Dram(arch), Dram(arch)]
    for number, dram in enumerate(drams):
        fill(arch, dram, 2 * seed + number)
    return drams


def assembled(arch: Arch, programs: list[list[Instruction]]) -> list[bytes]:
    """Return the programs as bytes."""
    return [Isa(arch).assemble(program) for program in programs]


def run_on_golden(arch: Arch, drams: list[Dram], groups: Mapping[int, list[bytes]]) -> None:
    """Run groups one behind the other on golden cores; each group by its seed, which draws the order of turns."""
    golden = GoldenSystem(arch, *drams)
    for seed, group in groups.items():
        golden.run(group, seed=seed)
        for core in golden.cores:
            core.soft_reset()


def judge(machine: str, seeds: range) -> list[str]:
    """Return what is wrong with the programs of some seeds, of each seed in words."""
    arch = SYSTEMS[machine]
    made = {seed: signalled_programs(arch, seed, LENGTH) for seed in seeds}
    found = [text for seed, each in made.items() for text in lacking(arch, seed, each)]
    groups = {seed: assembled(arch, each.programs) for seed, each in made.items()}
    if _differ(arch, groups):
        found += [text for seed, group in groups.items() if (text := _differ(arch, {seed: group}))] or [
            f"seeds {seeds}, one behind the other: memories differ"]
    return found


def lacking(arch: Arch, seed: int, made: SignalledPrograms) -> list[str]:
    """Return which links that are needed the programs of a seed may lack, of one that is drawn; none if all is well."""
    needed, found = [link for link in made.links if link.needed], []
    if not needed:
        return []
    link = random.Random(seed).choice(needed)
    tries: list[tuple[list[list[Instruction]], type[WeftError], str]] = [
        (made.without(link), RaceError, "a post and its wait")]
    for core, at in (link.post, link.wait):
        one = [list(program) for program in made.programs]
        del one[core][at]
        tries.append((one, SignalError, f"instruction {at} of core {core}"))
    for programs, error, what in tries:
        try:
            check_races(assembled(arch, programs), arch)
            found.append(f"seed {seed}: let through without {what}, {link}")
        except error:
            pass
    return found


def _differ(arch: Arch, groups: dict[int, list[bytes]]) -> str:
    """Run groups one behind the other on RTL and golden; return what differs, nothing if all is well."""
    ours, theirs = filled(arch, 5), filled(arch, 5)
    done = run_groups_on_rtl(arch, [*groups.values()], *theirs, memories=[stalls(seed) for seed in groups],
                             cycle_limit=CYCLE_LIMIT, timeout_seconds=300)
    run_on_golden(arch, ours, groups)
    wrong = [seed for seed, group in zip(groups, done, strict=True)
             if any(each.error_cause is not Cause.NONE for each in group)]
    apart = [differences(a, b, 3) for a, b in zip(ours, theirs, strict=True)]
    return f"seeds {[*groups]}: errors in {wrong}, differences {apart}" if wrong or any(apart) else ""
