# SPDX-License-Identifier: Apache-2.0
"""The ``README.txt`` of a Vivado project."""

from __future__ import annotations

from weft.boards.board import Board
from weft.boards.vivado.zynq import KINDS

_HEAD = """\
{name}: weft at {mhz:g} MHz

NOT RUN WITH VIVADO. These files were written without Vivado, and checked as far as that goes: every connection of the
block design is between pins that are there, addresses do not overlap, the Verilog was read and counted by yosys. Where
Vivado says otherwise, Vivado is right.

Build, in this folder:

    vivado -mode batch -source build.tcl

It stops with an error when the clock is missed (weft board build {key} --mhz LESS), and leaves ../{key}.bit.
"""
_ZYNQ = """
On the board, under Linux (such as the PYNQ image; boot and memory are its, this project sets no pin of the processors):

* {key}.bit and {key}.hwh onto the board, then: from pynq import Overlay; Overlay("{key}.bit"). It sets the clock too.
* Contiguous memory: the module u-dma-buf, such as `insmod u-dma-buf.ko udmabuf0=67108864`.
* As root: weft run MODEL.tmodel --on "mmio:{key}?registers={registers:#x}" --input x.npz
"""
_SHELL = """
Plug in USB. Then, in the folder where `weft board build {key}` was run: `weft board flash {key}`, and
`weft run MODEL.tmodel --on serial:auto --input x.npz`.
"""


def readme(board: Board, clock_hz: float) -> str:
    """Return the text of README.txt."""
    text = _HEAD.format(name=board.name, key=board.key, mhz=clock_hz / 1e6)
    if board.processor is not None:
        return text + _ZYNQ.format(key=board.key, registers=KINDS[board.processor.kind].registers)
    return text + _SHELL.format(key=board.key)
