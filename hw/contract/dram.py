# SPDX-License-Identifier: Apache-2.0
"""Models of the memory behind a machine's DRAM ports: the numbers that decide how long accesses take.

Boards name such a model, and estimator, simulation, compiler and reports read it. Times are in cycles of the machine,
unless a name has another unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IdealDram:
    """A memory that answers after a constant time, with a bus for each DRAM window and for the program.

    ``read_latency``: from an address taken to the first beat. ``write_latency``: from a burst's last beat to its
    response. ``bursts``: reads, and writes, under way at most, as the simulated memory takes them
    (simulate/sv/axi_dram.sv). ``bus_bytes``: bytes a cycle that all ports move together, 0 without such a limit; the
    program's go first, then DRAM0's."""

    read_latency: int = 30
    write_latency: int = 30
    bursts: int = 16
    bus_bytes: float = 0.0


EXPECTED = IdealDram()
"""The memory that estimates and simulations take by default, and that the compiler plans for."""


@dataclass(frozen=True)
class Spread:
    """A memory that is known by published numbers and assumptions only: the best, a typical and the worst case."""

    best: IdealDram
    typical: IdealDram
    worst: IdealDram

    @property
    def cases(self) -> dict[str, IdealDram]:
        """The memory of each case by its name: best, typical, worst."""
        return {"best": self.best, "typical": self.typical, "worst": self.worst}


@dataclass(frozen=True, kw_only=True)
class LiteDram:
    """A DRAM chip behind the controller LiteDRAM, shared by the host, the DRAM ports and the program.

    The numbers are those of LiteDRAM's chip and PHY at the clock of the board's shell. ``data_bits``: width of the
    chip. ``word_bytes``: bytes that one command moves. ``phases``: commands that the PHY takes in a cycle.
    ``read_latency`` and ``write_latency``: of the PHY. ``column_write_latency``: from a write command to its data. The
    address consists of row, bank and column, from its top."""

    data_bits: int
    word_bytes: int
    phases: int
    banks: int
    rows: int
    row_bytes: int
    """Bytes of a row of one bank."""
    read_latency: int
    write_latency: int
    column_write_latency: int
    t_rp: int
    t_rcd: int
    t_wr: int
    t_wtr: int
    t_refi: int
    t_rfc: int
    t_ccd: int
    t_rrd: int
    t_rc: int
    t_ras: int
    t_faw: int | None = None

    @property
    def bank_shift(self) -> int:
        """The lowest bit of the bank's number in an address of words."""
        return (self.row_bytes // self.word_bytes - 1).bit_length()

    def beat_cycles(self, beat_bytes: int) -> int:
        """Return the cycles in which the chip's bus moves a beat of so many bytes, one row and one direction given."""
        return -(-beat_bytes // self.word_bytes) * self.t_ccd

    @property
    def bytes(self) -> int:
        """Bytes of the whole chip."""
        return self.banks * self.rows * self.row_bytes


DramModel = IdealDram | LiteDram
