# SPDX-License-Identifier: Apache-2.0
"""Layers (HIR): the graph as layers, each a core with stages and saves."""
