# SPDX-License-Identifier: Apache-2.0
"""The supervisor: errors are kept, done means drained, timeout, tracepoint and counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import combinations
from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.key_values import SEPARATE, SHARED
from weft.hw.control.supervisor import BUS_CAUSES, Supervisor, bus_causes
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.block_models import Cycles
from weft.tb.bench.block_ports import RESET, Ports

LEVELS = ("fetching", "decoding", "executing")
OUTPUTS = ("stop", "quiet", "error", "cause", "error_program_counter", "idle", "running", "done", "timed_out", "traced",
           "cycles", "instructions", "faulting")
Inputs = dict[str, int]


SEPARATE_PORTS, ONE_PORT = (Arch.load("tiny").replace(dram_ports=ports) for ports in (SEPARATE, SHARED))
BUSES = {name: causes[0] for name, causes in bus_causes(SEPARATE_PORTS).items()}


@cache
def bench(arch: Arch = SEPARATE_PORTS) -> Bench:
    return Bench(Supervisor(arch))


class Script(Cycles):
    """Drives what ``inputs(cycle)`` says (timeout and tracepoint out of reach unless it does); records all outputs."""

    def __init__(self, inputs: Callable[[int], Inputs], count: int) -> None:
        super().__init__(count)
        self.inputs = inputs
        self.seen: list[dict[str, int]] = []

    def drive(self, ports: Ports) -> None:
        given = {"timeout": 0xFFFF, "tracepoint": 0xFFFF_FFFF, **self.inputs(ports.cycle)}
        for name in ports.inputs:
            ports[name] = given.get(name, 0)
        assert set(given) <= set(ports.inputs)

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        self.seen.append({name: ports[name] for name in OUTPUTS})


def run(inputs: Callable[[int], Inputs], count: int = 40) -> list[Inputs]:
    """Outputs by cycle."""
    script = Script(inputs, count)
    bench().run(script)
    return script.seen


def only_in(cycle: int, given: Inputs, now: int) -> Inputs:
    return given if now == cycle else {}


ERRORS = {"decoder": ({"fault": 1, "fault_cause": Cause.LOOP_BODY, "fault_program_counter": 77}, Cause.LOOP_BODY),
          **{name: ({f"{name}_error": 1, "faulting_program_counter": 77}, cause) for name, cause in BUSES.items()}}
EARLIEST_FIRST = ("dram0_read", "dram0_write", "dram1_read", "dram1_write", "decoder", "program")
"""Of errors in one cycle the first here counts: operations under way are older than what is decoded, and that is older
than what is still read. Written out by hand; among the DRAM ports the order of Cause."""


@pytest.mark.parametrize("source", ERRORS)
def test_an_error_stops_and_the_first_one_is_kept(source: str) -> None:
    """Every later error, and the program counter moving on, change nothing until a reset."""
    given, cause = ERRORS[source]
    later = {key: 99 if key.endswith("counter") else value
             for each, _ in ERRORS.values() for key, value in each.items()}
    seen = run(lambda cycle: {"executing": 1, **(given if cycle == 5 else later if 6 <= cycle < 30 else {}),
                              RESET: int(cycle == 30)})
    assert not any(each["stop"] for each in seen[:6])
    for each in seen[6:31]:
        assert (each["stop"], each["cause"], each["error_program_counter"]) == (1, cause, 77)
    assert (seen[31]["stop"], seen[31]["cause"]) == (0, Cause.NONE)


def test_of_errors_on_several_buses_at_once_the_first_in_the_table_is_blamed() -> None:
    given = {"dram0_write_error": 1, "dram1_read_error": 1, "program_error": 1, "faulting_program_counter": 77}
    seen = run(lambda cycle: given if cycle == 5 else {})
    assert [cycle for cycle, each in enumerate(seen) if each["faulting"]] == [5]
    assert seen[5]["faulting"] == 1 << list(BUSES).index("dram0_write")
    assert (seen[6]["cause"], seen[6]["error_program_counter"]) == (Cause.DRAM0_WRITE_RESPONSE, 77)


@pytest.mark.parametrize(("name", "dram1"), [(name, dram1) for name in ("dram_read", "dram_write")
                                             for dram1 in (0, 1)])
def test_on_a_shared_port_the_cause_names_the_window(name: str, dram1: int) -> None:
    given = {f"{name}_error": 1, "faulting_program_counter": 77, "faulting_dram1": dram1}
    script = Script(partial(only_in, 5, given), 8)
    bench(ONE_PORT).run(script)
    causes = {"dram_read": (Cause.DRAM0_READ_RESPONSE, Cause.DRAM1_READ_RESPONSE),
              "dram_write": (Cause.DRAM0_WRITE_RESPONSE, Cause.DRAM1_WRITE_RESPONSE)}
    assert BUS_CAUSES[name] == causes[name]
    assert script.seen[5]["faulting"] == 1 << ("dram_read", "dram_write", "program").index(name)
    assert (script.seen[6]["cause"], script.seen[6]["error_program_counter"]) == (causes[name][dram1], 77)


@pytest.mark.parametrize("count", range(2, len(ERRORS) + 1))
def test_of_errors_in_one_cycle_the_earliest_instruction_counts(count: int) -> None:
    """Every choice of so many sources; cause and program counter are of the same one."""
    for sources in combinations(EARLIEST_FIRST, count):
        given = {key: value for source in sources for key, value in ERRORS[source][0].items()}
        given |= {"fault_program_counter": 88, "faulting_program_counter": 77}
        seen = run(partial(only_in, 5, given), 8)
        first = sources[0]
        found = seen[6]["stop"], seen[6]["cause"], seen[6]["error_program_counter"]
        assert found == (1, ERRORS[first][1], 88 if first == "decoder" else 77), sources


def test_error_is_raised_when_what_runs_is_drained_and_quiet_when_the_program_is_too() -> None:
    seen = run(lambda cycle: {**(ERRORS["dram0_read"][0] if cycle == 5 else {}), "executing": int(cycle < 12),
                              "decoding": 1, "fetching": int(cycle < 20)})
    assert [cycle for cycle, each in enumerate(seen) if each["error"]] == list(range(12, 40))
    assert [cycle for cycle, each in enumerate(seen) if each["quiet"]] == list(range(20, 40))
    assert [cycle for cycle, each in enumerate(seen) if each["running"]] == list(range(12))
    assert not any(each["done"] for each in seen), "a program that was stopped is not done"


def test_abort_stops_without_an_error() -> None:
    seen = run(lambda cycle: {"abort": int(cycle == 5), "fetching": 1})
    assert [each["stop"] for each in seen] == [0] * 6 + [1] * 34
    assert not any(each["error"] or each["cause"] for each in seen)


@pytest.mark.parametrize("level", ("fetching", "decoding", "executing"))
def test_done_when_all_work_is_gone_until_the_next_instruction(level: str) -> None:
    seen = run(lambda cycle: {level: int(3 <= cycle < 9), "accepted": int(cycle == 20)})
    assert [cycle for cycle, each in enumerate(seen) if each["running"]] == list(range(3, 9))
    assert all(each["idle"] == (not each["running"]) for each in seen)
    assert [cycle for cycle, each in enumerate(seen) if each["done"]] == list(range(10, 21))


def test_start_takes_done_timeout_tracepoint_and_counters_back() -> None:
    def inputs(cycle: int) -> Inputs:
        return {"fetching": int(cycle < 20), "accepted": int(cycle == 3), "retired": int(cycle == 4), "timeout": 5,
                "program_counter": 8, "tracepoint": 8, "start": int(cycle == 25)}

    seen = run(inputs)
    assert all(seen[25][name] for name in ("done", "timed_out", "traced", "cycles", "instructions"))
    assert not any(seen[26][name] for name in ("done", "timed_out", "traced", "cycles", "instructions"))


@pytest.mark.parametrize("progress", ("accepted", "retired", "finished"))
@pytest.mark.parametrize(("gap", "flagged"), ((7, False), (8, True)))
def test_timeout_after_so_many_cycles_without_progress(progress: str, gap: int, flagged: bool) -> None:
    """Timeout 8; ``gap`` cycles without progress between two pulses."""
    seen = run(lambda cycle: {"executing": 1, "timeout": 8, progress: int(cycle % (gap + 1) == 0)})
    assert any(each["timed_out"] for each in seen) == flagged


def test_an_idle_machine_does_not_time_out() -> None:
    assert not any(each["timed_out"] for each in run(lambda cycle: {"timeout": 3}))


def test_tracepoint_when_its_instruction_is_accepted() -> None:
    seen = run(lambda cycle: {"executing": 1, "tracepoint": 6, "program_counter": cycle // 2, "accepted": cycle % 2})
    assert [each["traced"] for each in seen] == [0] * 14 + [1] * 26


def test_cycles_run_from_the_first_instruction_to_the_last_work() -> None:
    """Pauses within count, the time before the first instruction and after the last work does not."""
    def inputs(cycle: int) -> Inputs:
        return {"fetching": int(2 <= cycle < 7), "executing": int(7 <= cycle < 12), "decoding": int(20 <= cycle < 30),
                "accepted": int(cycle in (5, 6, 20)), "retired": int(cycle in (8, 9, 23))}

    seen = run(inputs)
    assert seen[4]["cycles"] == 0
    assert seen[15]["cycles"] == 12 - 5
    assert seen[-1]["cycles"] == 30 - 5
    assert [seen[cycle]["instructions"] for cycle in (9, 10, 11, 39)] == [0, 1, 2, 3]


class Reference:
    """The docstring of Supervisor in Python, for random inputs."""

    def __init__(self) -> None:
        self.state = dict.fromkeys(("stop", "cause", "error_program_counter", "done", "timed_out", "traced", "cycles",
                                    "instructions"), 0)
        self.was_running = self.waited = self.progress = 0
        self.cycles = self.instructions = 0  # the outputs are a cycle behind
        self.since: int | None = None

    def step(self, given: Inputs) -> Inputs:
        """Outputs of this cycle; moves on to the next."""
        state = self.state
        running = given["executing"] or (not state["stop"] and (given["fetching"] or given["decoding"]))
        faulting = [index for index, name in enumerate(BUSES) if given.get(f"{name}_error")]
        outputs = {**state, "faulting": 1 << faulting[0] if faulting else 0, "running": running, "idle": not running,
                   "error": state["stop"] and not given["executing"] and state["cause"] != 0,
                   "quiet": state["stop"] and not given["executing"] and not given["fetching"]}
        after = dict(state)
        errors = [name for name in EARLIEST_FIRST if given.get("fault" if name == "decoder" else f"{name}_error")]
        if errors and not state["stop"]:
            name = errors[0]
            prefix = "fault" if name == "decoder" else "faulting"
            after["cause"] = given["fault_cause"] if name == "decoder" else BUSES[name]
            after["error_program_counter"] = given[f"{prefix}_program_counter"]
        after["stop"] = state["stop"] or bool(errors) or given["abort"]
        if given["accepted"] or given["start"]:
            after["done"] = 0
        elif self.was_running and not running and not state["stop"]:
            after["done"] = 1
        late = running and self.waited >= given["timeout"]
        after["timed_out"] = 0 if given["start"] else state["timed_out"] or late
        hit = given["accepted"] and given["program_counter"] == given["tracepoint"]
        after["traced"] = 0 if given["start"] else state["traced"] or hit
        self.waited = 0 if self.progress else self.waited + 1
        self.progress = given["accepted"] or given["retired"] or given["finished"] or not self.was_running
        if given["start"]:
            self.since, self.cycles, self.instructions = None, 0, 0
        after["cycles"], after["instructions"] = self.cycles, self.instructions
        if not given["start"]:
            self.instructions += given["retired"]
            if given["accepted"] or self.since is not None:
                self.since = (self.since or 0) + 1
                self.cycles = self.since if running else self.cycles
        self.was_running, self.state = running, after
        return outputs


@pytest.mark.parametrize("seed", range(6))
def test_random_inputs_follow_the_reference(seed: int) -> None:
    rng = Random(seed)
    given: list[Inputs] = []
    for _ in range(150):
        last = given[-1] if given else dict.fromkeys(LEVELS, 0)
        levels = {name: last[name] ^ (rng.random() < 0.15) for name in LEVELS}
        pulses = {name: int(rng.random() < 0.15) for name in ("accepted", "retired", "finished")}
        rare = {name: int(rng.random() < 0.02) for name in ("start", "abort")}
        errors = {key: 0 for each, _ in ERRORS.values() for key in each}
        if rng.random() < 0.02:
            for source in rng.sample(EARLIEST_FIRST, rng.choice([1, 1, 2, 3])):
                errors |= ERRORS[source][0]
            errors |= {key: rng.randrange(1000) for key in ("fault_program_counter", "faulting_program_counter")}
        given.append({**levels, **pulses, **rare, **errors, "timeout": 4, "tracepoint": 3,
                      "program_counter": rng.randrange(6)})
    reference = Reference()
    expected = [reference.step(each) for each in given]
    assert run(lambda cycle: given[cycle], len(given)) == expected


@pytest.mark.parametrize("level", [None, *LEVELS])
def test_another_cores_error_counts_while_there_is_work_of_any_kind(level: str | None) -> None:
    script = Script(lambda cycle: {**({level: 1} if level else {}), "other_error": cycle == 5}, 12)
    bench(ONE_PORT.replace(cores=2, sync_counters=4)).run(script)
    assert script.seen[-1]["cause"] == (Cause.OTHER_CORE if level else Cause.NONE)
    assert bool(script.seen[-1]["stop"]) == (level is not None)
