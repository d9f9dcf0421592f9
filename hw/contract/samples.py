"""What a word of the sample port says (docs/architecture.md, "The edges"), for the sampler, decoders, the C header."""

from __future__ import annotations

HANDSHAKES = ("array", "accumulator", "dataflow", "dram1", "dram0", "memory_port_b", "memory_port_a", "instruction")
"""From bit COUNTER_BITS of a sample up, two bits each: valid, ready."""
SAMPLE_BITS, COUNTER_BITS = 64, 32
"""Of a word, and of the program counter in it."""
FILLER = (1 << COUNTER_BITS) - 1
"""A word that only fills up a packet: program counter all ones, no handshake."""
