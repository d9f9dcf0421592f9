"""What a user asks of the compiler, besides the machine to compile for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Request:
    """``calibration``: input name -> [samples, ...], None for random ones; ``plain``: the data type's own point for
    everything; ``outputs``: tensors that the network ends at, none for those that the file declares.

    ``ranges``: how those of eight-bit numbers are found (``quantize/narrow.py``).

    ``shapes``: by input, sizes that the file leaves open.

    ``keep_tensors``: every tensor has its place in DRAM0 to the end of the program, to be read when it has run.
    """

    model: Path
    calibration: Mapping[str, np.ndarray] | None = None
    plain: bool = False
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    keep_tensors: bool = False
    ranges: str = "minmax"
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
