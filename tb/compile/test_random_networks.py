# SPDX-License-Identifier: Apache-2.0
"""Random small networks by the rule of ``network_rule.py``, on roomy machines and on some that have to split.

``make test`` runs a handful on each machine, ``make test-all`` a thousand; ``scripts/random_networks.py`` runs as many
as wanted.
"""

from __future__ import annotations

from typing import Any

import pytest

from weft.compiler.quantize import scales, var_scales, weights
from weft.compiler.scheduler.pool import Buffer, Pool
from weft.tb.random import byte_networks
from weft.tb.random.network_rule import ARCHS, SMALL, judge, judge_on_rtl
from weft.tb.random.random_networks import Case
from weft.tmodel.window import Window

QUICK, CHUNK = 5, 25
LONG_SEEDS = range(QUICK, QUICK + CHUNK * 5)
FOUND = [Case("functions3", 66), Case("functions3", 1234), Case("functions8", 1234), Case("functions3", 1349),
         Case("tiny", 79)]
"""What failed once: a point chosen for what a table tells apart, where a leaky ReLU came before it; a split square root
of numbers near 0; an output that is 0 everywhere; a table whose keys could not lie beside its bend; a sum of the
input and of a layer that was taken for a copy of the input, and put in front of that layer."""


def insist(case: Case) -> None:
    verdict = judge(case)
    assert not verdict.problem and not verdict.refusal, str(verdict)


@pytest.mark.wide_cases("*-2", "*-3", "*-4", "*-1")
@pytest.mark.parametrize("case", [*(Case(arch, seed) for arch in ARCHS for seed in range(QUICK)), *FOUND],
                         ids=lambda case: f"{case.arch}-{case.seed}")
def test_network(case: Case) -> None:
    insist(case)


@pytest.mark.long
@pytest.mark.parametrize("first", LONG_SEEDS[::CHUNK])
@pytest.mark.parametrize("arch", ARCHS)
def test_many_networks(arch: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        insist(Case(arch, seed))


def insist_in_bytes(case: Case) -> None:
    verdict = byte_networks.judge(case)
    assert not verdict.problem and not verdict.refusal, str(verdict)


FOUND_IN_BYTES = [Case("bytes12", 340), Case("bytes12", 3348), Case("bytes3tight", 1087)]
"""What failed once: a sample that leaves little of an output; the smaller part of a tensor; a limit that no value comes
near."""


@pytest.mark.wide_cases("*-2")
@pytest.mark.parametrize("case", [*(Case(arch, seed) for arch in byte_networks.ARCHS for seed in range(3)),
                                  *FOUND_IN_BYTES], ids=lambda case: f"{case.arch}-{case.seed}")
def test_network_in_bytes(case: Case) -> None:
    insist_in_bytes(case)


@pytest.mark.long
@pytest.mark.parametrize("first", LONG_SEEDS[::CHUNK])
@pytest.mark.parametrize("arch", byte_networks.ARCHS)
def test_many_networks_in_bytes(arch: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        insist_in_bytes(Case(arch, seed))


@pytest.mark.slow
@pytest.mark.parametrize("case", [*(Case("lanes3", seed) for seed in range(3)), Case("functions3", 0)],
                         ids=lambda case: f"{case.arch}-{case.seed}")
def test_network_on_rtl(case: Case) -> None:
    verdict = judge_on_rtl(case)
    assert not verdict.problem and not verdict.refusal, str(verdict)


@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHS)
def test_networks_on_rtl(arch: str) -> None:
    for seed in range(10, 14):
        verdict = judge_on_rtl(Case(arch, seed))
        assert not verdict.problem and not verdict.refusal, str(verdict)


# -- the rule can fail -------------------------------------------------------------------------------------------------
def forget_the_last(self: Window, *arguments: Any, reads: Any = Window.reads) -> tuple[int, ...]:
    found = reads(self, *arguments)
    return found[:-1] if len(found) > 1 else found


def one_pixel_less(self: Window, axis: int, tap: int, low: int, high: int, size: int,
                     outputs: Any = Window.outputs) -> tuple[int, int]:
    """Taps that reach beyond the upper or left edge miss one more row or column."""
    first, last = outputs(self, axis, tap, low, high, size)
    return (min(first + 1, last), last) if first > low else (first, last)


BREAKS: dict[str, tuple[object, str, object]] = {
    "pools leave out a pixel": (Window, "reads", forget_the_last),
    "layers themselves are wrong at an edge": (Window, "outputs", one_pixel_less),
    "bias loaded with a tap that does not reach every pixel": (weights, "covers", lambda core, tap: True),
    "buffers overwritten while in use": (Pool, "take", lambda self, size: Buffer(0, size)),
}


def half_the_range(low: float, high: float, *limit: float, scale: Any = var_scales.tensor_scale) -> Any:
    return scale(low / 2, high / 2, *limit)


BREAKS_OF_BYTES: dict[str, tuple[object, str, object]] = {
    "scales of 16 steps": (var_scales, "STEPS", 16),
    "scales of half the range": (var_scales, "tensor_scale", half_the_range),
    "weights of 8 steps": (scales, "MOST_STEPS", 4),
}


@pytest.mark.parametrize("name", BREAKS_OF_BYTES)
def test_the_rule_in_bytes_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKS_OF_BYTES[name])
    assert any(byte_networks.judge(Case("bytes8", seed)).problem for seed in range(8))


@pytest.mark.parametrize("name", BREAKS)
def test_the_rule_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKS[name])
    assert any(judge(Case(arch, seed)).problem for seed in range(8) for arch in ("lanes2", *SMALL))
