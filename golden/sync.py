# SPDX-License-Identifier: Apache-2.0
"""The counters by which cores wait for each other."""

from __future__ import annotations

import numpy as np

from weft.golden.decode import Signal
from weft.hw.contract.arch import Arch


class SyncCounters:
    """The counters of all cores, zero at first: ``values`` [cores, sync_counters]."""

    def __init__(self, arch: Arch) -> None:
        self.values = np.zeros((arch.cores, arch.sync_counters), np.int64)

    def signal(self, core: int, signal: Signal) -> bool:
        """Run a Signal of a core: post, or take the amount of a wait. Tell whether it ran; a wait may have to wait."""
        if not signal.waits:
            mask = [signal.above >> other & 1 for other in range(len(self.values))]
            self.values[:, signal.counter] += mask
            return True
        if self.values[core, signal.counter] < signal.above:
            return False
        self.values[core, signal.counter] -= signal.above
        return True
