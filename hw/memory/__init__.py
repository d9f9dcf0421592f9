# SPDX-License-Identifier: Apache-2.0
"""Local memory and accumulators, and the units that move between them."""
