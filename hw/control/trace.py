# SPDX-License-Identifier: Apache-2.0
"""The trace port: when each operation is issued, started and finished. Simulation reads it; the product has none.

Units work in order, so an operation needs no number: the n-th ``started`` and the n-th ``finished`` of a unit belong
to its n-th ``issued``."""

from __future__ import annotations

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.units import number_width


class TracePort(wiring.Signature):
    """The signals of the trace port; ``begin``: a pulse, a new program is started.

    ``cycle``: the machine's own count of cycles, a cycle late: 0 in the cycle after the one in which it accepts the
    program's first instruction. ``issued``, ``started``, ``finished``: bit k is a pulse of unit k of ``UNIT_NAMES``,
    and 0 if the machine has no such unit. Issued: the interlock takes the instruction with ``program_counter`` (at most
    one unit a cycle). Started: the unit takes the operation, free of conflicts. Finished: the unit's ``done``.

    Every instruction but NoOp and Configure gives one operation. In a SIMD loop the header and each instruction of
    the body count as one operation each; the work of all of them ends when the last one finishes."""

    def __init__(self, arch: Arch) -> None:
        units = number_width(arch)
        super().__init__({"begin": Out(1), "cycle": Out(64), "issued": Out(units), "program_counter": Out(32),
                          "started": Out(units), "finished": Out(units)})
