# SPDX-License-Identifier: Apache-2.0
"""The request of a user to the compiler, besides the machine to compile for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from weft.compiler.cores import AUTO, THROUGHPUT, AssignedLayer

Sizes = Mapping[str, Sequence[int] | int]
"""Sizes that a file leaves open: all sizes of an input by its name, or one size by its own name."""

Values = Mapping[str, ArrayLike]
"""Input -> its constant value: an array, one number for all elements, or all elements in a row."""

NO_SHAPES: Sizes = {}
NO_VALUES: Values = {}


@dataclass(frozen=True)
class Request:
    """The options of a compilation.

    ``calibration``: input name -> [samples, ...], None for random ones. ``plain``: the data type's own point for
    everything. ``outputs``: tensors that the network ends at, empty for those that the file declares. ``ranges``: how
    INT8 machines find ranges (``quantize/narrow.py``). ``shapes``: sizes that the file leaves open, by input or by
    their names. ``fixed``: values of inputs that become constants. ``keep_tensors``: every tensor keeps its place in
    DRAM0 to the end of the program, so that it can be read after the run. ``input_cycles``: what a byte of an input
    takes on its way to the machine, in cycles of the machine. ``cores``: how several share the work, and ``goal``: what
    is to be small (``cores.py``). ``assigned``: layers whose boxes an outside schedule gave to cores. ``copies``:
    whether layers that only copy may fill idle lanes (``passes/pack_taps.py``)."""

    model: Path
    calibration: Mapping[str, np.ndarray] | None = None
    plain: bool = False
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    keep_tensors: bool = False
    input_cycles: float = 0.0
    ranges: str = "minmax"
    shapes: Sizes = field(default_factory=dict)
    fixed: Values = field(default_factory=dict)
    cores: str = AUTO
    goal: str = THROUGHPUT
    assigned: tuple[AssignedLayer, ...] = ()
    copies: bool = True
