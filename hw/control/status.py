# SPDX-License-Identifier: Apache-2.0
"""The status of a machine: the supervisor finds it out, the core hands it on, the control registers show it."""

from __future__ import annotations

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from weft.hw.contract.causes import CAUSE_WIDTH


class MachineStatus(wiring.Signature):
    """The signals that tell the state of a machine.

    ``error``: an error stopped it, and it has drained; ``cause`` (``Cause``) and ``error_program_counter`` say
    which. ``program_counter``: the number of the next instruction. ``idle``: nothing is under way; ``running``:
    something is. ``done``: a program ended and drained; it stays high until the next instruction. ``timed_out``,
    ``traced``: the timeout and tracepoint flags, kept until reset or start. ``cycles``: from the first instruction
    accepted since reset or start to the last cycle in which the machine ran. ``instructions``: those retired since
    then. Both counts are a cycle late."""

    def __init__(self) -> None:
        super().__init__({
            "error": Out(1), "cause": Out(CAUSE_WIDTH), "error_program_counter": Out(32), "program_counter": Out(32),
            "idle": Out(1), "running": Out(1), "done": Out(1), "timed_out": Out(1), "traced": Out(1),
            "cycles": Out(64), "instructions": Out(64),
        })
