"""The part of a network that the host runs behind the machine, with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HostPart:
    """A small ONNX model: from outputs of the machine to outputs of the network.

    ``passes`` names the machine's outputs that are the network's too; ``operators`` and the names of their ``nodes``
    are for people.
    """

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passes: tuple[str, ...]
    operators: tuple[str, ...]
    nodes: tuple[str, ...] = ()

    def text(self) -> str:
        """Its nodes, and what of the machine they read."""
        return f"{named(self.nodes, self.operators)}; reads {', '.join(map(repr, self.inputs))}"


def named(nodes: Sequence[str], operators: Sequence[str]) -> str:
    return ", ".join(f"{name!r} ({op})" for name, op in zip(nodes, operators, strict=True))
