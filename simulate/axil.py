# SPDX-License-Identifier: Apache-2.0
"""AXI4-Lite register access from a cocotb test: one access at a time, by plain signals."""

from typing import Any

from cocotb.triggers import RisingEdge

__all__ = ["AxiLite", "AxiLiteError"]


class AxiLiteError(Exception):
    """The error that the slave answered with something other than OKAY."""


class AxiLite:
    """A master on the 32-bit AXI4-Lite slave port `prefix` of `dut`.

    An access takes a handful of clock edges of Python, so it is for configuration, not for polling. The master is
    always ready for responses; it offers address and data together."""

    def __init__(self, dut: Any, prefix: str = "s_axil", clock: str = "clk") -> None:
        self._dut = dut
        self._prefix = prefix
        self._clock = getattr(dut, clock)
        for channel in ("aw", "w", "ar"):
            self._signal(channel + "valid").value = 0
        self._signal("wstrb").value = 0xF
        self._signal("bready").value = 1
        self._signal("rready").value = 1

    async def write(self, address: int, value: int) -> None:
        """Write the register at byte `address`; return after the response."""
        self._signal("awaddr").value = address
        self._signal("wdata").value = value
        waiting = {"aw", "w"}
        for channel in waiting:
            self._signal(channel + "valid").value = 1
        response = None
        while waiting or response is None:
            await RisingEdge(self._clock)
            if self._high("bvalid"):
                response = int(self._signal("bresp").value)
            for channel in [name for name in waiting if self._high(name + "ready")]:
                waiting.remove(channel)
                self._signal(channel + "valid").value = 0
        self._check("write", address, response)

    async def read(self, address: int) -> int:
        """Return the register at byte `address`."""
        self._signal("araddr").value = address
        self._signal("arvalid").value = 1
        while True:
            await RisingEdge(self._clock)
            if self._high("rvalid"):
                self._check("read", address, int(self._signal("rresp").value))
                return int(self._signal("rdata").value)
            if self._high("arready"):
                self._signal("arvalid").value = 0

    def _signal(self, name: str) -> Any:
        """Return a signal of the port."""
        return getattr(self._dut, f"{self._prefix}_{name}")

    def _high(self, name: str) -> bool:
        """Tell whether a signal of the port is 1."""
        return bool(self._signal(name).value == 1)

    @staticmethod
    def _check(access: str, address: int, response: int) -> None:
        """Raise AxiLiteError unless the response is OKAY."""
        if response != 0:
            raise AxiLiteError(f"AXI-Lite {access} at {address:#05x} answered with response {response}, not OKAY")
