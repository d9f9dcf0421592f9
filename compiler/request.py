"""What a user asks of the compiler, besides the machine to compile for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

Sizes = Mapping[str, Sequence[int] | int]
"""Sizes that a file leaves open: all sizes of an input by its name, or one size by its own name."""

Values = Mapping[str, ArrayLike]
"""Input -> its constant value: an array, one number for all elements, or all elements in a row."""

NO_SHAPES: Sizes = {}
NO_VALUES: Values = {}


AUTO, BATCH = "auto", "batch"
CORES = (AUTO, BATCH)
"""How several cores share the work. ``batch``: an image a core; ``auto``: the best for throughput, which is batch."""


def known_cores(mode: str, arch: Arch) -> str:
    """Return the ``mode`` of ``arch``. Raise WeftError for an unknown one, and for a choice where there is none."""
    if mode not in CORES:
        raise WeftError(explain("--cores", mode, ", ".join(CORES), "name one of them, or leave it out"))
    if mode != AUTO and arch.cores == 1:
        raise WeftError(explain("--cores", f"{mode}, for a machine of one core", "a machine with the key cores above 1",
                                "leave it out, or take such a machine (-a zcu104_4x16)"))
    return mode


@dataclass(frozen=True)
class Request:
    """What to compile, and how.

    ``calibration``: input name -> [samples, ...], None for random ones. ``plain``: the data type's own point for
    everything. ``outputs``: tensors that the network ends at, empty for those that the file declares. ``ranges``: how
    INT8 machines find ranges (``quantize/narrow.py``). ``shapes``: sizes that the file leaves open, by input or by
    their names. ``fixed``: values of inputs that become constants. ``cores``: how several of them share the work, one
    of CORES. ``keep_tensors``: every tensor keeps its place in DRAM0 to the end of the program, so that it can be read
    after the run."""

    model: Path
    calibration: Mapping[str, np.ndarray] | None = None
    plain: bool = False
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    keep_tensors: bool = False
    ranges: str = "minmax"
    shapes: Sizes = field(default_factory=dict)
    fixed: Values = field(default_factory=dict)
    cores: str = AUTO
