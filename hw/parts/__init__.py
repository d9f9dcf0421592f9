# SPDX-License-Identifier: Apache-2.0
"""Parts of which blocks are made: shapes, ports, walkers, arbiters, register slices, fixed-point arithmetic."""
