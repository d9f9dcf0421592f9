# SPDX-License-Identifier: Apache-2.0
"""The layout of a performance sample's word (docs/machine/samples.md).

The sampler, decoders of samples and the C header read it."""

from __future__ import annotations

HANDSHAKES = ("array", "accumulator", "dataflow", "dram1", "dram0", "memory_port_b", "memory_port_a", "instruction")
"""Handshakes in a sample, from bit COUNTER_BITS up, two bits each: valid, ready."""
SAMPLE_BITS, COUNTER_BITS = 64, 32
"""Bits of a sample, and bits of the program counter at its bottom."""
FILLER = (1 << COUNTER_BITS) - 1
"""A word that only fills up a packet: program counter all ones, no handshake."""
