# SPDX-License-Identifier: Apache-2.0
"""Choosing among values: by a one-hot grant, by number, and the first of several."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Value


def select(grant, values: list):
    """Return the value whose grant bit is set, zero if none is: an AND-OR, shallower than a priority chain."""
    result = 0
    for index, value in enumerate(values):
        result = result | (value & grant[index].replicate(len(value)))
    return result


def pick(number: Value, values: list):
    """Return values[number], for as many values as ``number`` can tell apart.

    A multiplexer of four is one 6-input look-up table."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return Mux(number[-1], pick(number[:-1], values[half:]), pick(number[:-1], values[:half]))


def lowest_set(bits):
    """Return the lowest set bit alone (one-hot), or zero. It needs no carry chain: bits are few and wanted early."""
    return Cat(bit & ~bits[:index].any() if index else bit for index, bit in enumerate(bits))
