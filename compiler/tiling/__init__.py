"""Tilings: how each layer is cut into pieces that fit the memories, and which way of that is cheapest."""
