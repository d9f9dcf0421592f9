"""What a user asks of the compiler, besides the machine to compile for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from weft.compiler.choices import Choices

Sizes = Mapping[str, Sequence[int] | int]
"""Sizes that a file leaves open: by input all of them, by the name of a size that one."""

Values = Mapping[str, ArrayLike]
"""By input, the value that it always has: its array, one number for all elements, or all elements in a row."""

NO_SHAPES: Sizes = {}
NO_VALUES: Values = {}


@dataclass(frozen=True)
class Request:
    """``calibration``: input name -> [samples, ...], None for random ones; ``plain``: the data type's own point for
    everything; ``outputs``: tensors that the network ends at, none for those that the file declares.

    ``ranges``: how those of eight-bit numbers are found (``quantize/narrow.py``).

    ``shapes``: sizes that the file leaves open, by input or by their names; ``fixed``: values of inputs that become
    constants.

    ``choices``: of each of the machine's parts, what is chosen already; none where the formulas choose.

    ``keep_tensors``: every tensor has its place in DRAM0 to the end of the program, to be read when it has run.
    """

    model: Path
    calibration: Mapping[str, np.ndarray] | None = None
    plain: bool = False
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    keep_tensors: bool = False
    ranges: str = "minmax"
    shapes: Sizes = field(default_factory=dict)
    fixed: Values = field(default_factory=dict)
    choices: tuple[Choices, ...] = ()
