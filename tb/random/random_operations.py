# SPDX-License-Identifier: Apache-2.0
"""Random macro-operations for the units: walks that stay inside a memory, as the decoder guarantees."""

from __future__ import annotations

from random import Random
from typing import Any


def random_tile(rng: Random, size: int, rows: int, strides: int, **depths: int) -> dict[str, Any]:
    """Return ``size_m1``, ``rows_m1`` and a walk for each name -> depth; at most ``size`` vectors and ``rows`` rows."""
    count, row_count = rng.randint(1, min(size, *depths.values())), rng.choice([1, rng.randint(1, rows)])
    walks = {name: random_walk(rng, count, row_count, strides, depth) for name, depth in depths.items()}
    return {"size_m1": count - 1, "rows_m1": row_count - 1, **walks}


def random_walk(rng: Random, count: int, rows: int, strides: int, depth: int) -> dict[str, int]:
    """Return a walk: base + (count - 1) x stride + (rows - 1) x pitch is below ``depth``, often just below."""
    stride_log2 = rng.choice([k for k in range(strides) if (count - 1) << k < depth])
    room = depth - 1 - ((count - 1) << stride_log2)
    if rows == 1:
        pitch = rng.randrange(depth)  # means nothing
    else:
        most = room // (rows - 1)
        pitch = rng.choice([0, min(1, most), most, rng.randint(0, most)])
        room -= (rows - 1) * pitch
    return {"base": rng.choice([0, room, rng.randint(0, room)]), "stride_log2": stride_log2, "pitch": pitch}
