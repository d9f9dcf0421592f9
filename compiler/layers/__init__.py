"""Layers (HIR): the graph as layers of operations on memory objects."""
