"""Benches for single blocks in Amaranth's simulator: stream ends, memories, models of the blocks around."""
