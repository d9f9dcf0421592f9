# SPDX-License-Identifier: Apache-2.0
"""Benches for single blocks in Amaranth's simulator: stream ends, memories, models of the blocks around."""
