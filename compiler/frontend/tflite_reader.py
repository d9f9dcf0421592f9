# SPDX-License-Identifier: Apache-2.0
"""Convert a TensorFlow Lite file (``.tflite``) to an ONNX model (``tflite/``).

Quantised tensors become QuantizeLinear and DequantizeLinear. Names are those of the file's tensors, without
TensorFlow's ``:0``; inputs keep the file's shapes, channels last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from weft.compiler.errors import refuse
from weft.compiler.frontend.inputs import settle_inputs
from weft.compiler.frontend.known import drop_unread_nodes
from weft.compiler.request import NO_SHAPES, NO_VALUES, Sizes, Values
from weft.support.files import read_bytes

MOST_BYTES = 256 << 20
"""The most bytes of a model's file: more constants than any preset's DRAM holds."""


def load_tflite(path: Path, outputs: Sequence[str] = (),
                shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> onnx.ModelProto:
    """Return the network up to ``outputs`` (default: the file's own), its inputs of fixed sizes or ``fixed`` values.

    Raise WeftError for a file that is damaged or of another kind, unknown outputs, and unsupported operators."""
    from weft.compiler.frontend.tflite.model import to_model  # brings the schema: a fifth of a second to import
    from weft.compiler.frontend.tflite.schema import CONVERT_AGAIN, Damaged

    content = read_bytes(path, "model file", "give a .tflite file", MOST_BYTES)
    try:
        with np.errstate(all="ignore"):  # constants of a file may be anything
            model = to_model(content, path.stem, outputs, shapes)
    except Damaged as error:
        raise refuse(f"model file {path}", f"not a TensorFlow Lite model, or a damaged one ({error})",
                     "a TensorFlow Lite model", CONVERT_AGAIN) from None
    drop_unread_nodes(model.graph)
    settle_inputs(model.graph, shapes, fixed)
    return model
