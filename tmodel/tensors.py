# SPDX-License-Identifier: Apache-2.0
"""The inputs and outputs that the user of a network sees: name, type and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.tmodel.errors import refuse
from weft.tmodel.ports import Port
from weft.tmodel.scales import SHIFTS, TensorScale
from weft.tmodel.schema import NetworkEntry, TensorEntry


@dataclass(frozen=True)
class Tensor:
    """An input or output of a network.

    ``type`` is numpy's name of the type; ``type`` and ``shape`` are None if the file does not say them. With a
    ``scale`` its bytes encode real numbers (unsigned bytes larger by 128), and the network's parts read and make these
    real numbers."""

    name: str
    type: str | None = None
    shape: tuple[int, ...] | None = None
    scale: TensorScale | None = None

    @classmethod
    def from_entry(cls, entry: TensorEntry) -> Tensor:
        """Return the tensor of an entry of a ``.tmodel``."""
        scale = None if entry.scale is None else TensorScale(entry.scale, entry.zero)
        return cls(entry.name, entry.type, entry.shape, scale)

    @classmethod
    def of_port(cls, port: Port) -> Tensor:
        """Return the tensor of a port, without a type."""
        return cls(port.name, None, port.shape)

    def to_json(self) -> dict[str, Any]:
        """Return the entry in a ``.tmodel``."""
        return {"name": self.name, "type": self.type, "shape": self.shape,
                **({} if self.scale is None else self.scale._asdict())}

    def given(self, array: np.ndarray) -> np.ndarray:
        """Return a user's array in the numbers that the network's parts read.

        Real numbers stay, integers get the tensor's type, bytes with a scale are dequantised. Raise ModelError for
        numbers that its type does not have."""
        if self.type is None or np.dtype(self.type).kind == "f":
            return array
        kind = np.dtype(self.type)
        with np.errstate(invalid="ignore"):
            found = array.astype(kind)
        if not np.array_equal(found, array):
            raise refuse(f"values of input {self.name!r}", f"{array.dtype}, {array.min():.6g} .. {array.max():.6g}",
                         f"numbers of the type {self.type}", f"convert the array to {self.type}")
        return found if self.scale is None else self.scale.dequantize(found.astype(np.int64) - SHIFTS[self.type])

    def checked(self, array: np.ndarray) -> np.ndarray:
        """Return an array that a part made. Raise ModelError for another shape or type.

        Real numbers may have any precision; a tensor with a scale is made from them."""
        shape = array.shape if self.shape is None else self.shape
        kind = array.dtype if self.type is None else np.dtype(np.float32 if self.scale else self.type)
        if array.shape != shape or (array.dtype != kind and not array.dtype.kind == kind.kind == "f"):
            raise refuse(f"output {self.name!r}", f"{array.dtype} {list(array.shape)} from the host's part",
                         f"{self.type} {list(shape)}, as the .tmodel says", "compile the model again")
        return array

    def made(self, array: np.ndarray) -> np.ndarray:
        """Return an output in the tensor's own type."""
        if self.scale is not None and self.type is not None:
            array = self.scale.quantize(array) + SHIFTS[self.type]
        return array if self.type is None else array.astype(self.type)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a network."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def from_entry(cls, entry: NetworkEntry) -> Signature:
        """Return the signature of an entry of a ``.tmodel``."""
        return cls(tuple(map(Tensor.from_entry, entry.inputs)), tuple(map(Tensor.from_entry, entry.outputs)))

    def to_json(self) -> dict[str, Any]:
        """Return the entry in a ``.tmodel``."""
        return {"inputs": [tensor.to_json() for tensor in self.inputs],
                "outputs": [tensor.to_json() for tensor in self.outputs]}

    def results(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the network's outputs, among all tensors that the parts made.

        Raise ModelError if one is not what the file says."""
        return {tensor.name: tensor.made(tensor.checked(np.asarray(values[tensor.name]))) for tensor in self.outputs}
