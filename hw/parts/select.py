"""Choosing among values: by a one-hot grant, by number, and the first of several."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Value


def select(grant, values: list):
    """The value whose grant bit is set, zero when none is: an AND-OR, shallower than a priority chain."""
    result = 0
    for index, value in enumerate(values):
        result = result | (value & grant[index].replicate(len(value)))
    return result


def pick(number: Value, values: list):
    """values[number] for as many values as ``number`` can tell apart: a multiplexer of four is one 6-input table."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return Mux(number[-1], pick(number[:-1], values[half:]), pick(number[:-1], values[:half]))


def lowest_set(bits):
    """The lowest set bit alone (one-hot), or zero. Without a carry chain: few bits, wanted early."""
    return Cat(bit & ~bits[:index].any() if index else bit for index, bit in enumerate(bits))
