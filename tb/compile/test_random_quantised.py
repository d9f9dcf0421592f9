"""Random small networks, quantised by onnxruntime, by the rule of ``byte_networks.py``: read, given scales, computed
layer by layer. ``make test`` runs forty, ``make test-all`` five hundred; ``scripts/random_networks.py --arch int8`` as
many as wanted."""

from __future__ import annotations

import pytest

from weft.tb.random.byte_networks import judge_quantised

FOUND = {1: "an output is the input", 4: "a tensor is rounded for one reader only", 20: "an output is rounded nowhere",
         48: "a Pad of bytes", 53: "a Resize of bytes", 58: "PRelu is rounded once",
         63: "an input lies in another tensor", 87: "a Clip that became a narrower scale", 107: "PRelu and Relu",
         145: "two scales behind each other", 206: "a gate that its scale alone keeps from below 0",
         293: "an input that saturates for one reader only"}
"""Seeds that found a fault."""

QUICK, CHUNK, LAST = 40 - len(FOUND), 50, 500


def insist_on(seed: int) -> None:
    verdict = judge_quantised(seed)
    assert not verdict.problem and not verdict.refusal, str(verdict)


@pytest.mark.parametrize("seed", sorted({*range(100, 100 + QUICK), *FOUND}))
def test_layers_give_the_bytes_of_onnxruntime(seed: int) -> None:
    insist_on(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, LAST, CHUNK))
def test_many(first: int) -> None:
    for seed in range(first, first + CHUNK):
        insist_on(seed)
