# SPDX-License-Identifier: Apache-2.0
"""Programs with something broken: flipped bits, exchanged bytes, instructions taken out, doubled and moved."""

from __future__ import annotations

import numpy as np


def damaged(program: bytes, size: int, rng: np.random.Generator) -> bytes:
    """Return ``program``, of instructions of ``size`` bytes each, with one to three things broken.

    Its length stays whole instructions."""
    content = bytearray(program)
    for _ in range(rng.integers(1, 4)):
        if not content:
            break
        at, other = (size * int(where) for where in rng.integers(0, len(content) // size, 2))
        match rng.integers(0, 6):
            case 0 | 1:
                content[at + int(rng.integers(0, size))] ^= 1 << int(rng.integers(0, 8))
            case 2:
                content[at + int(rng.integers(0, size))] = int(rng.integers(0, 256))
            case 3:
                del content[at:at + size]
            case 4:
                content[at:at] = content[other:other + size]
            case 5:
                del content[at:]
    return bytes(content)
