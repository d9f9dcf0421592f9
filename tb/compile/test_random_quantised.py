# SPDX-License-Identifier: Apache-2.0
"""Random small networks, quantised by onnxruntime, by the rule of ``byte_networks.py``: read, given scales, computed
layer by layer. ``make test`` runs forty, ``make test-all`` five hundred; ``scripts/random_networks.py --arch int8`` as
many as wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.compiler.check import scaled
from weft.compiler.passes.propagate_quantizers import _Settler
from weft.compiler.quantize import scales
from weft.tb.random.byte_networks import judge_quantised

FOUND = {1: "an output is the input", 4: "a tensor is rounded for one reader only", 20: "an output is rounded nowhere",
         48: "a Pad of bytes", 53: "a Resize of bytes", 58: "PRelu is rounded once",
         63: "an input lies in another tensor", 87: "a Clip that became a narrower scale", 107: "PRelu and Relu",
         145: "two scales behind each other", 206: "a gate that its scale alone keeps from below 0",
         293: "an input that saturates for one reader only", 3343: "a limit that no value comes near",
         3520: "taps in the padding, not whole steps of the kept pixels apart", 4006: "a pixel of nothing but its bias",
         4314: "a slice has a narrower scale than the whole", 4549: "a function, and a max pool of it",
         5440: "a sample that leaves little of an output", 1000222: "PRelu and its Relu, each rounded"}
"""Seeds that found a fault."""

QUICK, CHUNK, LAST = 40 - len(FOUND), 50, 500


def insist_on(seed: int) -> None:
    verdict = judge_quantised(seed)
    assert not verdict.problem and not verdict.refusal, str(verdict)


@pytest.mark.parametrize("seed", sorted({*range(100, 100 + QUICK), *FOUND}))
def test_layers_give_the_bytes_of_onnxruntime(seed: int) -> None:
    insist_on(seed)


# -- the rule can fail -------------------------------------------------------------------------------------------------
def toward_zero(values: np.ndarray, steps: np.ndarray) -> Any:
    return np.trunc(values / steps.reshape(-1, *(1,) * (values.ndim - 1))).astype(np.int64)


BREAKS: dict[str, tuple[object, str, object]] = {
    "results are rounded down": (scaled, "round_half_even", lambda value, bits: value >> bits),
    "weights are rounded towards 0": (scales, "rounded_weights", toward_zero),
    "a scale serves readers that need more": (_Settler, "_holds", lambda self, scale, name: True),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_rule_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BREAKS[name])
    assert any(judge_quantised(seed).problem for seed in (100, 4314))


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, LAST, CHUNK))
def test_many(first: int) -> None:
    for seed in range(first, first + CHUNK):
        insist_on(seed)
