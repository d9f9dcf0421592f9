# SPDX-License-Identifier: Apache-2.0
"""TUL PYNQ-Z2: the same as a PYNQ-Z1 for the machine, with the same chip and memory."""

from dataclasses import replace

from weft.boards import pynq_z1

BOARD = replace(pynq_z1.BOARD, key="pynq_z2", name="TUL PYNQ-Z2")
