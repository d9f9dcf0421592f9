# SPDX-License-Identifier: Apache-2.0
"""Tiling: cut each layer into pieces that fit the memories, in the cheapest way."""
