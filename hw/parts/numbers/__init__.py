"""The number systems as circuits: the hardware twin of ``hw/contract/numbers``."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.parts.numbers.base import Circuits
from weft.hw.parts.numbers.every_step import EveryStepCircuits
from weft.hw.parts.numbers.int8 import Int8Circuits
from weft.hw.parts.numbers.once import OnceCircuits

CIRCUITS: dict[str, type[Circuits]] = {
    system.name: system for system in (OnceCircuits, EveryStepCircuits, Int8Circuits)}
"""By the name of the number system."""


def circuits(arch: Arch) -> Circuits:
    """Those of a machine's numbers."""
    return CIRCUITS[arch.numbers.name](arch)


__all__ = ["CIRCUITS", "Circuits", "circuits"]
