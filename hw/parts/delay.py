# SPDX-License-Identifier: Apache-2.0
"""Shift registers: without a reset they become SRLs on Xilinx, elsewhere and with a reset plain flip-flops."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike


class DelayLine:
    """A value and its past: ``tap(k)`` is ``value`` k cycles ago, k = 0..cycles, as an unsigned value.

    ``reset`` is for control bits, which must come up and restart as zero; data paths go without."""

    def __init__(self, m: Module, value: ValueLike, cycles: int, *, name: str, reset: bool = False) -> None:
        self._value = value = Value.cast(value)
        self._past = Signal(len(value) * cycles, reset_less=not reset, name=name) if cycles else Const(0, 0)
        if cycles:
            m.d.sync += self._past.eq(Cat(value, self._past)[:len(self._past)])

    def tap(self, cycles: int) -> Value:
        """Return the value so many cycles ago."""
        width = len(self._value)
        return self._past[(cycles - 1) * width:cycles * width] if cycles else self._value[:]


def delayed(m: Module, value: ValueLike, cycles: int, *, name: str, reset: bool = False) -> Value:
    """Return ``value`` so many cycles ago."""
    return DelayLine(m, value, cycles, name=name, reset=reset).tap(cycles)
