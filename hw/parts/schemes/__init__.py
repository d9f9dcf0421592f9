# SPDX-License-Identifier: Apache-2.0
"""The number schemes as circuits: the hardware twin of ``hw/contract/schemes``."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.parts.schemes.base import Circuits
from weft.hw.parts.schemes.every_step import EveryStepCircuits
from weft.hw.parts.schemes.int8 import Int8Circuits
from weft.hw.parts.schemes.once import OnceCircuits

CIRCUITS: dict[str, type[Circuits]] = {
    system.name: system for system in (OnceCircuits, EveryStepCircuits, Int8Circuits)}
"""Name of the number scheme -> its circuits."""


def circuits(arch: Arch) -> Circuits:
    """Return the circuits of a machine's number scheme."""
    return CIRCUITS[arch.scheme.name](arch)


__all__ = ["CIRCUITS", "Circuits", "circuits"]
