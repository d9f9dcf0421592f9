# SPDX-License-Identifier: Apache-2.0
"""The contract of the link between a board's shell and the host's driver."""

ROOM_BYTES = 64
"""The bytes of commands that wait in the far end of a UART while it answers one."""
WITNESS_WORDS = 2
"""The words of the witness: the CRC of all writes, then that of all reads before the access that reads it."""
