"""What a network's file says of its numbers in eight bits, once no operator says it any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.runtime.scales import TensorScale


@dataclass(frozen=True)
class Quantization:
    """``tensors``: those that keep the scale and zero of the network's file, by their names in the graph that layers
    are built of; no layer may go on over one, but with a ReLU of the same scale and zero.

    Empty for a network of real numbers: then calibration alone decides.
    """

    tensors: Mapping[str, TensorScale] = field(default_factory=dict)

    def text(self) -> str:
        lines = [f"tensor {name}: scale {entry.scale:.9g} zero {entry.zero}" for name, entry in self.tensors.items()]
        return "\n".join(lines or ["nothing is quantised by the file"]) + "\n"
