# SPDX-License-Identifier: Apache-2.0
"""What blocks are made of: shapes, ports, walkers, arbiters, register slices, fixed-point arithmetic."""
