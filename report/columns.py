# SPDX-License-Identifier: Apache-2.0
"""Pack the operations of all programs as columns, from which the page's script draws the timeline."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.hw.contract.units import NEVER, UNIT_NAMES, unit_names
from weft.report.operations import Ran


def packed(programs: Sequence[Ran]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the meaning of the columns, and the columns: name -> base64 of gzip.

    ``columns``: int32, little-endian, one after the other, each of all operations: unit by unit, in the order of time;
    ``begin`` as the difference to the operation's predecessor in this order, ``length`` in cycles, ``layer`` (-1:
    none), ``text``: which line of ``texts`` it is. ``counts``: operations of each unit."""
    units = unit_names(programs[0].model.arch) if programs else ()
    parts: list[np.ndarray] = []
    numbers: dict[str, int] = {}
    offset = first_layer = 0
    for ran in programs:
        begins, ends = ran.spans
        known = (ran.layers >= 0) & (ran.layers < len(ran.model.layers))
        lines = [numbers.setdefault(f"{text}\t{addresses}", len(numbers))
                 for text, addresses in zip(ran.texts, ran.addresses, strict=True)]
        table = np.stack([ran.operations["unit"], begins + offset, ends - begins,
                          np.where(known, ran.layers + first_layer, -1), np.array(lines, np.int64)], 1)
        parts.append(table[ends != NEVER])
        offset += ran.cycles
        first_layer += len(ran.model.layers)
    rows = np.concatenate(parts) if parts else np.zeros((0, 5), np.int64)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    counts = [int((rows[:, 0] == UNIT_NAMES.index(unit)).sum()) for unit in units]
    begin, length, layer, text = rows[:, 1:].T
    columns = np.concatenate([np.diff(begin, prepend=0), length, layer, text]).astype("<i4")
    texts = "\n".join(numbers)
    return ({"units": list(units), "counts": counts, "operations": len(rows)},
            {"columns": _packed(columns.tobytes()), "texts": _packed(texts.encode())})


def _packed(content: bytes) -> str:
    """Return bytes compressed, in base64."""
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()
