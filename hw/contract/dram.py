"""What stands behind the machine's DRAM ports, as numbers that decide how long it takes: the one record that boards
name and that estimator, simulation, compiler and reports read.

Times are in cycles of the machine, unless their name has another unit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IdealDram:
    """Memories that answer after the same time, each window and the program with a bus of its own.

    ``read_latency``: from an address taken to the first beat; ``write_latency``: from a burst's last beat to its
    response; ``bursts``: under way at most, each way, as the simulated memory takes them (simulate/sv/axi_dram.sv).
    """

    read_latency: int = 30
    write_latency: int = 30
    bursts: int = 16


EXPECTED = IdealDram()
"""What estimates and simulations take where nothing else is said, and what the compiler plans for."""


@dataclass(frozen=True, kw_only=True)
class LiteDram:
    """A chip behind LiteDRAM, which the host, the machine's DRAM ports and its program share.

    Numbers are those of LiteDRAM's chip and PHY at the clock of the board's shell. ``data_bits``: of the chip;
    ``word_bytes``: what one command moves; ``phases``: commands that the PHY takes in a cycle. ``read_latency``,
    ``write_latency``: of the PHY; ``column_write_latency``: from a write command to its data. The address is row, bank,
    column, from its top.
    """

    data_bits: int
    word_bytes: int
    phases: int
    banks: int
    rows: int
    row_bytes: int
    """Of one bank."""
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
        """Where the bank lies in an address of words."""
        return (self.row_bytes // self.word_bytes - 1).bit_length()

    @property
    def bytes(self) -> int:
        """Of the whole chip."""
        return self.banks * self.rows * self.row_bytes


DramModel = IdealDram | LiteDram
