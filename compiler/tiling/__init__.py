"""Tiling: cut each layer into pieces that fit the memories, in the cheapest way."""
