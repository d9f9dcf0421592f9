"""What banked memories share: addresses interleaved over banks on their low bits."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib.memory import Memory

from weft.hw.contract.numerics import bits_to_count


class Interleave:
    """Splits an address into bank (low bits) and row. ``count`` banks, a power of two; ``depth`` rows in all."""

    def __init__(self, count: int, depth: int) -> None:
        self.count = count
        self.bank_width = bits_to_count(count)
        self.rows = -(-depth // count)
        self.row_width = max(bits_to_count(self.rows), 1)

    def bank(self, address: Value) -> Value:
        """The number of its bank; no bits where there is one bank."""
        return address[:self.bank_width]

    def in_bank(self, address: Value, bank: int) -> Value:
        return self.bank(address) == bank

    def same_bank(self, left: Value, right: Value) -> Value:
        return self.bank(left) == self.bank(right)

    def row(self, address: Value) -> Value:
        return address[self.bank_width:]


def block_ram(m: Module, name: str, rows: int, width: int):
    """One read, one write memory of ``width`` bits with a registered output; returns (read port, data, write port).

    ``data`` follows the read port's address by two cycles: the block RAM and its output register.
    """
    memory = Memory(shape=unsigned(width), depth=rows, init=[])
    m.submodules[name] = memory
    read, write = memory.read_port(), memory.write_port()
    data = Signal(width, name=f"{name}_output", reset_less=True)
    m.d.sync += data.eq(read.data)
    return read, data, write
