# SPDX-License-Identifier: Apache-2.0
"""Posts and waits put accesses of several cores in order: what that order is, and which programs are refused."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from weft.golden import order, races
from weft.golden.machine import Machine
from weft.golden.order import SignalError
from weft.golden.races import RaceError, check_races
from weft.golden.system import GoldenSystem
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import Register
from weft.support.errors import WeftError
from weft.tb.random.lockstep_archs import lockstep_archs

ARCH = lockstep_archs()["lanes2"].replace(dram_ports=SHARED, cores=3, sync_counters=4)
ISA = Isa(ARCH)


def load(first: int, size: int) -> Instruction:
    return ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, first, size)


def save(first: int, size: int) -> Instruction:
    return ISA.data_move(DataFlow.LOCAL_TO_DRAM0, 0, first, size)


def check(*cores: Sequence[Instruction]) -> None:
    check_races([ISA.assemble(core) for core in cores], ARCH)


# -- order -------------------------------------------------------------------------------------------------------------
def test_a_post_and_a_wait_put_a_load_behind_a_save() -> None:
    check([save(8, 4), ISA.post(0, [1], 8, 4)], [ISA.wait(0, 1, 8, 4), load(8, 4)])
    check([load(8, 4), ISA.post(0, [1], 11, 1)], [ISA.wait(0, 1, 0, 20), save(8, 4)])


def test_a_third_core_hears_of_it_from_the_second() -> None:
    check([save(8, 4), ISA.post(0, [1], 8, 4)], [ISA.wait(0, 1, 100, 1), ISA.post(2, [2], 101, 1)],
          [ISA.wait(2, 1, 8, 4), load(8, 4)])


def test_a_barrier_and_signals_for_nothing() -> None:
    """Every core writes a part and then reads all; one counter takes all posts, and a post to nobody adds a range."""
    check(*([save(8 * core, 8), load(100 + core, 1), ISA.post(3, [], 100, 3),
             ISA.post(0, {0, 1, 2} - {core}, 8 * core, 8), ISA.wait(0, 2, 0, 24), load(0, 24),
             ISA.wait(0, 0, 100, 3), *([save(100, 3)] if core == 1 else [])] for core in range(3)))


@pytest.mark.parametrize(("first", "second"), [
    ([save(8, 4)], [ISA.wait(0, 0, 8, 4), load(8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 12, 4)], [ISA.wait(0, 1, 8, 4), load(8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 8, 4)], [ISA.wait(0, 1, 12, 4), load(8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 4, 4)], [ISA.wait(0, 1, 8, 4), load(8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 8, 4)], [ISA.wait(0, 1, 4, 4), load(8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 8, 4, dram1=True)], [ISA.wait(0, 1, 8, 4), load(8, 4)]),
    ([ISA.post(0, [1], 8, 4), save(8, 4)], [ISA.wait(0, 1, 8, 4), load(8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 8, 4)], [load(8, 4), ISA.wait(0, 1, 8, 4)]),
    ([save(8, 4), ISA.post(0, [1], 8, 4), save(8, 1)], [ISA.wait(0, 1, 8, 4), load(8, 4)])],
    ids=["no post", "post behind", "wait behind", "post in front", "wait in front", "other DRAM", "post first",
         "load first", "saved again"])
def test_accesses_without_an_order_are_refused(first: list[Instruction], second: list[Instruction]) -> None:
    saved, read = (next(at for at, each in reversed(list(enumerate(code))) if each.opcode == 2)
                   for code in (first, second))
    with pytest.raises(RaceError, match=f"core 0, instruction {saved}, which writes.*core 1, instruction {read}, which "
                                        "reads.*a post behind the one and a wait before the other"):
        check(first, second)


@pytest.mark.parametrize("dram1", [False, True])
def test_a_signal_is_ordered_with_accesses_in_its_own_window(dram1: bool) -> None:
    """Windows are moved by Configures: the DRAM's own one, not the other's, says where a Signal's range lies."""
    there, away = (ISA.configure(Register.DRAM1_OFFSET if dram1 else Register.DRAM0_OFFSET, block) for block in (2, 1))
    flows = (DataFlow.LOCAL_TO_DRAM1, DataFlow.DRAM1_TO_LOCAL) if dram1 else (
        DataFlow.LOCAL_TO_DRAM0, DataFlow.DRAM0_TO_LOCAL)
    keep, take = (ISA.data_move(flow, 0, 8, 4) for flow in flows)
    post, wait = ISA.post(0, [1], 8, 4, dram1=dram1), ISA.wait(0, 1, 8, 4, dram1=dram1)
    check([there, keep, post], [there, wait, take])
    for cores in (([there, keep, away, post], [there, wait, take]), ([there, keep, post], [away, wait, there, take])):
        with pytest.raises(RaceError):
            check(*cores)


# -- signals -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("cores", "told"), [
    ([[ISA.wait(1, 2, 0, 1)], [ISA.post(1, [0], 0, 1)]],
     "core 0, instruction 0, which waits for 2 in counter 1, that gets 1 (no core posts more)"),
    ([[load(0, 1), ISA.wait(1, 1, 0, 1), ISA.post(0, [1], 0, 1)], [ISA.wait(0, 1, 0, 1), ISA.post(1, [0], 0, 1)]],
     "core 0, instruction 1, which waits for 1 in counter 1, that gets 0 (core 1 would post, behind a wait); core 1, "),
    ([[ISA.wait(0, 1, 0, 1), ISA.wait(0, 1, 0, 1)], [ISA.post(0, [0], 0, 1)], [ISA.post(0, [0], 0, 1)]],
     "filled in two ways, core 0, instruction 0, counter 0: by the post of core 1, instruction 0, or sooner by that"),
    ([[], [ISA.post(0, [0, 2], 0, 1)], [ISA.wait(0, 1, 0, 1)]],
     "1 posts to counter 0 of core 0 that no wait takes, the last of them by core 1, instruction 0"),
    ([[ISA.post(2, [1], 0, 1)] * 256, [ISA.wait(2, 128, 0, 1)] * 2],
     "256 posts that could stand in counter 2 of core 1, before the wait at core 1, instruction 0")],
    ids=["never", "a cycle", "two ways", "left over", "overflow"])
def test_signals_that_do_not_fit_are_refused(cores: list[list[Instruction]], told: str) -> None:
    with pytest.raises(SignalError, match=re.escape(told)):
        check(*cores)


def test_a_counter_may_hold_all_that_its_bits_count() -> None:
    """255 posts before the first wait, and again before the next one."""
    post = ISA.post(2, [1], 0, 1)
    check([post] * 255, [ISA.wait(2, 255, 0, 1)])
    check([*[post] * 255, ISA.wait(0, 1, 0, 1), *[post] * 255],
          [ISA.wait(2, 255, 0, 1), ISA.post(0, [0], 0, 1), ISA.wait(2, 255, 0, 1)])


def test_more_signals_than_can_be_ordered_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MOST_SIGNALS", 2)
    both = [ISA.wait(0, 1, 0, 1)], [ISA.post(0, [0], 0, 1)]
    check(*both)
    with pytest.raises(SignalError, match="found 3 Signals; allowed: at most 2"):
        check(*both, [ISA.post(1, [], 0, 1)])


def test_more_pairs_of_signals_and_accesses_than_a_check_may_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = [save(8, 4), ISA.post(0, [1], 8, 4)], [ISA.wait(0, 1, 8, 4), load(8, 4)]
    monkeypatch.setattr(races, "MOST_PAIRS", 1)
    check(*cores)
    monkeypatch.setattr(races, "MOST_PAIRS", 0)
    with pytest.raises(WeftError, match="found 1 Signals and 1 accesses of a core; allowed: at most 0 pairs"):
        check(*cores)


def test_a_core_that_runs_alone_says_that_nobody_posts() -> None:
    with pytest.raises(WeftError, match="instruction 1: found a wait whose counter is not filled"):
        Machine(ARCH).run(ISA.assemble([ISA.no_op(), ISA.wait(0, 1, 0, 1)]))


def test_a_counter_of_several_posters_may_have_phases() -> None:
    """Posts of the second phase come behind what the first wait lets go on."""
    poster = [ISA.post(0, [0], 0, 1), ISA.wait(1, 1, 0, 1), ISA.post(0, [0], 0, 1)]
    check([ISA.wait(0, 2, 0, 1), ISA.post(1, [1, 2], 0, 1), ISA.wait(0, 2, 0, 1)], poster, poster)


def test_golden_cores_wait_for_each_other_in_any_order() -> None:
    """A vector goes round three times, each core adding nothing but its turn."""
    rounds = 3
    cores = [[each for turn in range(rounds) for each in (
        *([ISA.wait(0, 1, 0, 8)] if turn or core else []), load(max(3 * turn + core - 1, 0), 1),
        save(3 * turn + core, 1), *([ISA.post(0, [(core + 1) % 3], 0, 16)] if (turn, core) != (rounds - 1, 2) else []),
    )] for core in range(3)]
    for seed in (None, *range(20)):
        system = GoldenSystem(ARCH)
        system.drams["dram0"].write(0, system.drams["dram0"].read(0, 1) + 5)
        system.run([ISA.assemble(core) for core in cores], seed=seed)
        assert (system.drams["dram0"].read(0, 9) == 5).all() and not system.sync.values.any()


# -- against all orders ------------------------------------------------------------------------------------------------
Step = tuple[str, int, int, int]
"""Post: counter, cores; wait: counter, amount; load, save: address; and a Signal's address last."""


def random_step(rng: random.Random) -> Step:
    kind = rng.choice(["post", "post", "wait", "wait", "load", "save"])
    return kind, rng.randrange(2), rng.randint(1, 3) if kind == "post" else rng.choice([0, 1, 1, 2]), rng.randrange(2)


def instruction(step: Step) -> Instruction:
    kind, counter, value, at = step
    if kind == "post":
        return ISA.post(counter, [core for core in range(3) if value >> core & 1], at, 1)
    if kind == "wait":
        return ISA.wait(counter, value, at, 1)
    return (load if kind == "load" else save)(at, 1)


class AllOrders:
    """All states that two cores may be in, by how far each has come: what can be, and what surely comes first."""

    def __init__(self, cores: list[list[Step]]) -> None:
        self.cores = cores
        start = (0,) * len(cores)
        self.reached, todo = {start}, [start]
        while todo:
            state = todo.pop()
            for core in range(len(cores)):
                if self.can_step(state, core):
                    then = tuple(at + (k == core) for k, at in enumerate(state))
                    todo += [then] if then not in self.reached else []
                    self.reached.add(then)

    def posts(self, state: tuple[int, ...], core: int, counter: int) -> list[tuple[int, int]]:
        return [(k, at) for k, own in enumerate(self.cores) for at, step in enumerate(own[:state[k]])
                if step[0] == "post" and step[1] == counter and step[2] >> core & 1]

    def taken(self, at: int, core: int, counter: int) -> int:
        return sum(step[2] for step in self.cores[core][:at] if step[:2] == ("wait", counter))

    def can_step(self, state: tuple[int, ...], core: int) -> bool:
        at = state[core]
        if at == len(self.cores[core]):
            return False
        kind, counter, value, _ = self.cores[core][at]
        return kind != "wait" or len(self.posts(state, core, counter)) - self.taken(at, core, counter) >= value

    def ends(self) -> bool:
        return tuple(map(len, self.cores)) in self.reached

    def one_way(self) -> bool:
        for core, own in enumerate(self.cores):
            for at, (kind, counter, value, _) in enumerate(own):
                filled = self.taken(at + 1, core, counter)
                if kind == "wait" and value:
                    ways = {tuple(posts) for state in self.reached if state[core] <= at
                            and len(posts := self.posts(state, core, counter)) == filled}
                    if len(ways) > 1:
                        return False
        return True

    def balanced(self) -> bool:
        end = tuple(map(len, self.cores))
        return all(len(self.posts(end, core, counter)) == self.taken(end[core], core, counter)
                   for core, counter in product(range(len(self.cores)), range(2)))

    def surely(self, first: tuple[int, int], second: tuple[int, int]) -> bool:
        return not any(state[second[0]] > second[1] and state[first[0]] <= first[1] for state in self.reached)

    def signals(self, core: int, at: int, ahead: bool) -> Iterator[tuple[int, int]]:
        places = range(at + 1, len(self.cores[core])) if ahead else range(at)
        return ((core, k) for k in places if self.cores[core][k][0] in ("post", "wait")
                and self.cores[core][k][3] == self.cores[core][at][3])

    def races(self) -> bool:
        accesses = [(core, at) for core, own in enumerate(self.cores) for at, step in enumerate(own)
                    if step[0] in ("load", "save")]
        kinds = {(core, at): self.cores[core][at] for core, at in accesses}
        return any(a[0] < b[0] and kinds[a][3] == kinds[b][3] and "save" in (kinds[a][0], kinds[b][0])
                   and not self.comes_first(a, b) and not self.comes_first(b, a) for a in accesses for b in accesses)

    def comes_first(self, a: tuple[int, int], b: tuple[int, int]) -> bool:
        return any(self.surely(mine, theirs) for mine in self.signals(*a, True) for theirs in self.signals(*b, False))


def test_the_checker_says_what_all_orders_show() -> None:
    """Random Signals and accesses of two cores: refused for the right reason, or run."""
    rng, counts = random.Random(1), dict.fromkeys(("stuck", "two ways", "left over", "race", "fine"), 0)
    while min(counts.values()) < 25:
        cores = [[random_step(rng) for _ in range(rng.randint(1, 6))] for _ in range(2)]
        if any(step[0] == "post" and not step[2] < 4 for own in cores for step in own):
            continue
        orders = AllOrders(cores)
        expected = ("stuck" if not orders.ends() else "two ways" if not orders.one_way()
                    else "left over" if not orders.balanced() else "race" if orders.races() else "fine")
        found = "fine"
        try:
            check(*([instruction(step) for step in own] for own in cores), [])
        except RaceError:
            found = "race"
        except SignalError as error:
            text = str(error)
            found = "stuck" if "no post fills" in text else "two ways" if "two ways" in text else "left over"
        told = {expected} if expected != "two ways" or orders.balanced() else {"two ways", "left over"}
        assert found in told, cores
        counts[expected] += 1
