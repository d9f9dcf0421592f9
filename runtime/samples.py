# SPDX-License-Identifier: Apache-2.0
"""Decode performance samples (docs/machine/samples.md): what units did during a program, and in which layers.

A sample is a look at one cycle: each handshake is idle (nothing offered), waits (offered and not taken) or is taken.
For a unit that is an operation to start; for the memory ports it is vectors read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.hw.contract.samples import COUNTER_BITS, FILLER, HANDSHAKES


@dataclass(frozen=True)
class Samples:
    """Decoded samples: ``program_counter`` [n]; ``valid`` and ``taken`` [n, handshakes]."""

    program_counter: np.ndarray
    valid: np.ndarray
    taken: np.ndarray

    @classmethod
    def decode(cls, words: np.ndarray) -> Samples:
        """Return the samples in words (uint64) of the sample port; fillers are skipped."""
        words = np.asarray(words, np.uint64)
        words = words[words != FILLER]
        shifts = COUNTER_BITS + 2 * np.arange(len(HANDSHAKES), dtype=np.uint64)
        valid = (words[:, None] >> shifts & np.uint64(1)).astype(bool)
        ready = (words[:, None] >> (shifts + np.uint64(1)) & np.uint64(1)).astype(bool)
        return cls((words & np.uint64((1 << COUNTER_BITS) - 1)).astype(np.int64), valid, valid & ready)

    def units(self) -> list[dict[str, Any]]:
        """Return a row for each handshake: shares of samples in which it was taken, waited, was idle."""
        count = max(len(self.program_counter), 1)
        taken, valid = self.taken.sum(axis=0) / count, self.valid.sum(axis=0) / count
        return [{"unit": name, "taken": float(taken[index]), "waits": float(valid[index] - taken[index]),
                 "idle": float(1 - valid[index])} for index, name in enumerate(HANDSHAKES)]

    def layers(self, layers: np.ndarray, names: list[str]) -> list[dict[str, Any]]:
        """Return a row for each layer: the samples while one of its instructions was the next one.

        ``layers`` [instructions] are indices into ``names``. After the last instruction the last layer counts."""
        here = layers[np.minimum(self.program_counter, len(layers) - 1)]
        counts = np.bincount(here, minlength=len(names))
        total = max(int(counts.sum()), 1)
        return [{"layer": name, "samples": int(count), "share": float(count / total)}
                for name, count in zip(names, counts, strict=True)]
