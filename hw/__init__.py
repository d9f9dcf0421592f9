# SPDX-License-Identifier: Apache-2.0
"""The hardware: the contract (arch, numerics, isa, csr, timing) and the Amaranth blocks that keep it."""
