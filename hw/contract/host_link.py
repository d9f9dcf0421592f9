# SPDX-License-Identifier: Apache-2.0
"""The contract of the link between a board's shell and the host's driver."""

ROOM_BYTES = 64
"""The bytes of commands that wait in the far end of a UART while it answers one."""
WITNESS_WORDS = 2
"""The words of the witness: the CRC of all writes, then that of all reads before the access that reads it."""

ETHERBONE_PORT = 1234
"""The UDP port of Etherbone at both ends: answers go to the port that they come from."""

# -- the ring of performance samples -----------------------------------------------------------------------------------
RING_SAMPLES = 512
"""The samples that wait for the host; later ones are lost until it takes some."""
RING_COUNT_BITS = RING_SAMPLES.bit_length()
"""The bits of its two counters, so that an empty ring differs from a full one."""
RING_TAKEN, RING_WRITTEN = 0, 4
"""The byte offsets of its registers: how many samples the host has taken, which it writes; and how many there were when
it wrote that. Both count modulo 2 ** RING_COUNT_BITS."""
RING_WORDS = 4096
"""The byte offset of the samples, of two words each: sample n at n modulo RING_SAMPLES, its low half first."""
RING_BYTES = 8192
"""The bytes of the bus that it takes."""
