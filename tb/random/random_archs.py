# SPDX-License-Identifier: Apache-2.0
"""Random machines, each decided by a seed: a machine that is tested anyway, with some of its keys changed."""

from __future__ import annotations

import random

from weft.hw.contract.arch import Arch
from weft.support.errors import ArchError
from weft.tb.random.lockstep_archs import lockstep_archs

MOST_CHANGES = 5
TRIES = 200
VALUES: dict[str, tuple[int | str, ...]] = {
    "array_size": (2, 3, 4, 5, 6, 8, 10), "local_depth": (40, 64, 77, 128, 300), "accumulator_depth": (20, 33, 64, 100),
    "local_banks": (1, 2, 4, 8), "accumulator_banks": (1, 2, 4), "axi_data_width": (32, 64, 128),
    "axi_max_burst": (1, 2, 4, 16, 64), "stream_width": (32, 64, 128), "stride0_depth": (1, 2, 3, 5, 8),
    "stride1_depth": (1, 2, 4, 8), "simd_registers_depth": (0, 1, 2, 3, 7), "simd_loop_depth": (0, 2, 3, 5, 8),
    "lut_count": (0, 1, 2), "lut_depth": (8, 16, 37, 64), "register_slices": (0, 1), "deep_queues": (0, 1),
    "dram_ports": ("separate", "shared"), "mac_rounding": ("once", "every_step"), "weight_load_rows": (1, 2),
    "depthwise_taps": (0, 3, 9), "repeat_depth": (0, 16, 64), "sampler": (0, 1), "decoder_multipliers": (0, 1),
    "data_type": ("FP8BP4", "FP12BP5", "FP16BP8", "FP18BP10", "FP32BP16", "INT8"), "activation_tables": (0, 2, 8),
}
"""Key -> the values that it is changed to. What one machine cannot have together is refused by ``Arch``."""


def random_arch(seed: int) -> Arch:
    """Return a machine that is small enough to simulate in a moment."""
    chance = random.Random(f"arch {seed}")
    bases = [arch for arch in lockstep_archs().values() if arch.array_size <= 10 and arch.local_depth <= 400]
    for _ in range(TRIES):
        keys = chance.sample(sorted(VALUES), chance.randint(1, MOST_CHANGES))
        try:
            return chance.choice(bases).replace(**{key: chance.choice(VALUES[key]) for key in keys})
        except ArchError:
            continue
    raise AssertionError(f"no machine among {TRIES} of seed {seed}")
