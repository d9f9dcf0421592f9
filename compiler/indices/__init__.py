# SPDX-License-Identifier: Apache-2.0
"""Index algebra: which elements of a tensor an operator reads, as arrays of indices and as boxes."""
