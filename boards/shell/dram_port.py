# SPDX-License-Identifier: Apache-2.0
"""AXI4 ports of LiteDRAM for the masters of a machine."""

from __future__ import annotations

from typing import Any

from litedram.frontend.axi import LiteDRAMAXI2Native, LiteDRAMAXIPort
from litex.gen import LiteXModule
from litex.soc.interconnect import stream

from weft.boards.shell.narrow import native_port

ID_BITS = 1


class DramPort(LiteXModule):
    """A port ``axi`` of ``width`` bits on LiteDRAM's crossbar.

    Each address channel has a spare register. It takes the address that LiteDRAM does not, so ``ready`` comes straight
    from a flip-flop. Without it LiteDRAM's arbiters and the machine's burst counters are one path, the longest of a
    shell. An address that LiteDRAM takes at once is not later for it."""

    def __init__(self, crossbar: Any, width: int) -> None:
        inner, self.axi = (LiteDRAMAXIPort(data_width=width, address_width=32, id_width=ID_BITS) for _ in range(2))
        for channel in ("aw", "ar"):
            outside = getattr(self.axi, channel)
            spare = stream.PipeReady(outside.description)
            self.add_module(name=f"{channel}_spare", module=spare)
            self.comb += [outside.connect(spare.sink), spare.source.connect(getattr(inner, channel))]
        self.comb += [self.axi.w.connect(inner.w), inner.b.connect(self.axi.b), inner.r.connect(self.axi.r)]
        self.adapter = LiteDRAMAXI2Native(inner, native_port(self, crossbar, width))
