# SPDX-License-Identifier: Apache-2.0
"""Random programs, legal and illegal, with random stalls: the hardware leaves what the golden machine leaves."""

from __future__ import annotations

import pytest

from weft.simulate.rtl import build_rtl
from weft.tb.random.lockstep import Case, run_cases, shrink
from weft.tb.random.lockstep_archs import lockstep_archs

ARCHS = lockstep_archs()
BATCH = 25
QUICK = {"lanes2": 20, "lanes3_every_step": 20, "lanes4_lut": 20, "lanes4_slices": 15, "lanes8": 15, "lanes12": 10,
         "lanes2_int8": 20, "lanes4_int8": 20, "lanes10_taps9": 15}
"""Programs in `make test` and `make test-wide`: 155 in all."""
LONG_EACH = 300
"""Programs for each machine in `make test-all`: more than 2000 in all."""
LONG_FROM = 1000


def assert_equal(name: str, first: int, count: int) -> None:
    """Run seeds first.. on one machine; a mismatch is shrunk and printed with the command that repeats it."""
    simulation = build_rtl(ARCHS[name])
    for start in range(first, first + count, BATCH):
        seeds = range(start, min(start + BATCH, first + count))
        for mismatch in run_cases(simulation, [Case.of(ARCHS[name], seed) for seed in seeds]):
            pytest.fail(f"{shrink(simulation, mismatch)}\nrepeat with: .venv/bin/python scripts/random_programs.py "
                        f"--arch {name} --first {mismatch.case.seed} --count 1")


@pytest.mark.wide_cases("lanes8", "lanes12", "lanes4_slices", "lanes3_every_step", "lanes2_int8")
@pytest.mark.parametrize("name", QUICK)
def test_hardware_equals_golden_on_random_programs(name: str) -> None:
    assert_equal(name, 0, QUICK[name])


@pytest.mark.long
@pytest.mark.parametrize("name", ARCHS)
def test_hardware_equals_golden_on_many_random_programs(name: str) -> None:
    assert_equal(name, LONG_FROM, LONG_EACH)
