# SPDX-License-Identifier: Apache-2.0
"""Swap the channels and pixels of a tensor, which the machine's lanes cannot do by themselves.

Two convolutions exchange a bit of the pixels' number with the same bit of the channels' number. Each has two taps:
pixel p, and the pixel whose number differs in that bit. After as many stages as the larger number has bits all are
exchanged: 2 * log2(64) convolutions for 64 x 64, where copying each pixel on its own takes 64 * 64. A stack of matrices
is swapped in as many."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.lowering.rewrite import PartPlace, Rewrite


def swap(state: Rewrite, node: Node, tensor: str, count: int = 1) -> str:
    """Return a tensor [1, channels, count * pixels, 1] as [1, pixels, count, channels]: ``count`` matrices swapped.

    A single matrix becomes [1, pixels, channels, 1]."""
    _, channels, rows, _ = state.shapes[tensor]
    pixels = rows // count
    half = (1 << (max(channels, pixels) - 1).bit_length()) // 2
    while half:
        tensor = _stage(state, node, tensor, half, (channels, pixels), count)
        half //= 2
    _, made, height, width = state.shapes[tensor]
    own = height * width // count
    assert made == pixels and own >= channels
    return state.view(node, tensor, (channels, 1) if count == 1 else (count, channels), 0, own if count > 1 else 1, 1)


def _stage(state: Rewrite, node: Node, tensor: str, half: int, size: tuple[int, int], stack: int) -> str:
    """Return the tensor of ``stack`` matrices after exchanging the bit ``half`` of all numbers.

    Higher bits are done before. ``size``: channels and pixels of a matrix at first. Numbers that cannot have the bit
    set are left out."""
    channels, pixels = size
    _, count, height, width = state.shapes[tensor]
    own = height * width // stack
    rows, columns = stack * max(own // (2 * half), 1), min(own, 2 * half)
    image = state.view(node, tensor, (rows, columns), 0, columns, 1)
    made = (pixels - 1) // half * half + min(half, channels)
    parts: list[tuple[str, PartPlace]] = []
    for bit in range(2 if channels > half else 1):
        weights = state.weights(node, (made, count, 1, 2))
        for lane in range(made):
            source = lane & ~half | bit * half
            if source < count:
                weights[lane, source, 0, lane // half % 2] = 1  # its own pixel, or the one whose bit differs
        taken = state.conv(node, image, weights, np.zeros(1), (rows, half), "exchanged", dilations=(1, half),
                           pads=(0, 0, 0, 2 * half - columns))
        parts.append((taken, PartPlace(0, bit * half, 2 * half, 1)))
    return parts[0][0] if len(parts) == 1 else state.assemble(node, parts, (1, made, 1, 2 * half * rows), "swapped")
