# SPDX-License-Identifier: Apache-2.0
"""The bank policy of the banked memories: addresses are interleaved over banks on their low bits."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib.memory import Memory

from weft.hw.contract.numerics import bits_to_count


class Interleave:
    """An address split into bank (low bits) and row, for ``count`` banks (a power of two) and ``depth`` rows in all."""

    def __init__(self, count: int, depth: int) -> None:
        self.count = count
        self.bank_width = bits_to_count(count)
        self.rows = -(-depth // count)
        self.row_width = max(bits_to_count(self.rows), 1)

    def bank(self, address: Value) -> Value:
        """Return the number of an address's bank; it has no bits if there is one bank."""
        return address[:self.bank_width]

    def in_bank(self, address: Value, bank: int) -> Value:
        """Return whether an address is in this bank."""
        return self.bank(address) == bank

    def same_bank(self, left: Value, right: Value) -> Value:
        """Return whether two addresses are in the same bank."""
        return self.bank(left) == self.bank(right)

    def row(self, address: Value) -> Value:
        """Return the row of an address within its bank."""
        return address[self.bank_width:]


def block_ram(m: Module, name: str, rows: int, width: int):
    """Make a memory of ``width`` bits with one read and one write port; return (read port, data, write port).

    ``data`` follows the read port's address by two cycles: the block RAM and its output register."""
    memory = Memory(shape=unsigned(width), depth=rows, init=[])
    m.submodules[name] = memory
    read, write = memory.read_port(), memory.write_port()
    data = Signal(width, name=f"{name}_output", reset_less=True)
    m.d.sync += data.eq(read.data)
    return read, data, write
