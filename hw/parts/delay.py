"""Shift registers: without a reset they become SRLs on Xilinx, elsewhere and with a reset plain flip-flops."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, ValueLike


class DelayLine:
    """``value`` and its past: ``tap(k)`` is ``value`` k cycles ago, k = 0..cycles, as an unsigned value.

    ``reset`` is for control bits, which must come up and restart as zero; data paths go without.
    """

    def __init__(self, m: Module, value: ValueLike, cycles: int, *, name: str, reset: bool = False) -> None:
        value = Value.cast(value)
        self._width = len(value)
        self._line: Value = value
        if cycles:
            line = Signal(len(value) * cycles, reset_less=not reset, name=name)
            self._line = Cat(value, line)
            m.d.sync += line.eq(self._line[:len(line)])

    def tap(self, cycles: int) -> Value:
        return self._line[cycles * self._width:(cycles + 1) * self._width]


def delayed(m: Module, value: ValueLike, cycles: int, *, name: str, reset: bool = False) -> Value:
    """``value`` some cycles ago."""
    return DelayLine(m, value, cycles, name=name, reset=reset).tap(cycles)
