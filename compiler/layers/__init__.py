# SPDX-License-Identifier: Apache-2.0
"""Layers (HIR): the graph as layers of operations on memory objects."""
