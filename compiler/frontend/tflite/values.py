# SPDX-License-Identifier: Apache-2.0
"""A tensor of a TensorFlow Lite file while it is converted, and the layouts that it may have."""

from __future__ import annotations

from typing import Literal

import numpy as np
from onnx import helper

from weft.compiler.errors import refuse
from weft.compiler.frontend.inputs import NUMBERS
from weft.compiler.frontend.tflite.numbers import BYTES, QUANTISE_AGAIN, WORDS, Quantization
from weft.compiler.frontend.tflite.schema import Tensor

Layout = Literal["", "/planes"]
"""A layout, which is also the suffix of a tensor's name in that layout."""

FILE: Layout = ""
PLANES: Layout = "/planes"
ORDER: dict[Layout, tuple[int, ...]] = {FILE: (0, 2, 3, 1), PLANES: (0, 3, 1, 2)}
"""Layout -> the permutation that makes it from the other one."""

REAL_TYPES = ("float32", "float16", "float64", "bfloat16")


class Value:
    """A tensor while it is converted.

    ``shape``: that of the file, or of the sizes that were told. ``real`` and ``bytes``: the names of its forms by
    layout; ``constant``: the real numbers of a known one; ``native``: the layout in which it was made; ``variable``:
    the variable for which it is a handle."""

    def __init__(self, tensor: Tensor, name: str) -> None:
        self.tensor, self.name, self.shape = tensor, name, tensor.shape
        self.real: dict[Layout, str] = {}
        self.bytes: dict[Layout, str] = {}
        self.native: Layout = FILE
        self.variable = ""
        self.constant: np.ndarray | None = None
        if tensor.data is not None:
            known = tensor.quantization.real(tensor.data) if tensor.quantization else tensor.data
            self.constant = known.astype(np.float32) if tensor.type in REAL_TYPES else known

    @property
    def is_bytes(self) -> bool:
        """Whether the file holds the tensor as bytes of one scale."""
        return self.tensor.quantization is not None and self.tensor.type in BYTES

    @property
    def is_made(self) -> bool:
        """Whether an operator has made the tensor, or it is a constant."""
        return bool(self.real or self.bytes or self.variable) or self.constant is not None

    @property
    def quantization(self) -> Quantization:
        """The tensor's scale and zero point. Raise CompileError if it has several."""
        found = self.tensor.quantization
        assert found is not None
        if found.scales.size > 1:
            raise refuse(f"scales of tensor {self.name!r}", f"{found.scales.size} numbers",
                         "one for the tensor: only constants may have one a channel", QUANTISE_AGAIN)
        return found

    @property
    def numpy_type(self) -> np.dtype:
        """The type of its real form, or of its bytes if it has these. Raise CompileError for no numbers."""
        kind = self.tensor.type
        if kind in REAL_TYPES or (kind == WORDS and self.tensor.quantization is not None):
            return np.dtype(np.float32)
        if kind not in NUMBERS.values():
            raise refuse(f"type of tensor {self.name!r}", kind, "numbers", "end the network before it with --end, or "
                         "convert it again without it")
        return np.dtype(kind)

    @property
    def onnx_type(self) -> int:
        """The ONNX number of :attr:`numpy_type`."""
        return int(helper.np_dtype_to_tensor_dtype(self.numpy_type))
