"""The number systems as circuits: the hardware twin of ``hw/contract/numbers``."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import ArchError
from weft.hw.parts.numbers.base import Circuits
from weft.hw.parts.numbers.every_step import EveryStepCircuits
from weft.hw.parts.numbers.once import OnceCircuits

CIRCUITS: dict[str, type[Circuits]] = {system.name: system for system in (OnceCircuits, EveryStepCircuits)}
"""By the name of the number system."""


def circuits(arch: Arch) -> Circuits:
    """Those of a machine's numbers. Raises ArchError where there are none."""
    if arch.numbers.name not in CIRCUITS:
        raise ArchError("data_type", arch.number.name, "a fixed-point type: the golden machine alone runs this one",
                        "run the program with --on golden, or use FP16BP8")
    return CIRCUITS[arch.numbers.name](arch)


__all__ = ["CIRCUITS", "Circuits", "circuits"]
