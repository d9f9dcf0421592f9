"""Model file -> graph, whatever made it: ``.pb`` is a frozen TensorFlow graph, ``.tflite`` one of TensorFlow Lite,
everything else ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from weft.tmodel.onnx_engine import session

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_reader import load_onnx, to_graph
from weft.compiler.frontend.tensorflow_reader import load_frozen
from weft.compiler.frontend.tflite_reader import load_tflite
from weft.compiler.request import NO_SHAPES, NO_VALUES, Sizes, Values

FROZEN = ".pb"
"""The suffix of TensorFlow's frozen graphs."""

LOADERS = {FROZEN: load_frozen, ".tflite": load_tflite}
"""By suffix; what else there is, is ONNX."""


def read_model(path: Path, outputs: Sequence[str] = (), shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> Graph:
    """The network up to ``outputs`` (default: the model's own; a frozen graph has none), its inputs of ``shapes``;
    those that are ``fixed`` are constants.

    Raises CompileError for a file that is missing, broken or of an open shape, and for an output that it has not.
    """
    return to_graph(load_model(path, outputs, shapes, fixed), path.stem)


def must_run(path: Path, outputs: Sequence[str] = (), shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> None:
    """Raises CompileError where onnxruntime cannot run the model, on zeros."""
    try:
        model = load_model(path, outputs, shapes, fixed)
        model = onnx.shape_inference.infer_shapes(model)  # of outputs that were chosen
        weights = {tensor.name for tensor in model.graph.initializer}
        given = {value.name: _zeros(value) for value in model.graph.input if value.name not in weights}
        session(model).run(None, given)
    except CompileError:
        raise
    except Exception as error:  # of no common type
        raise refuse(f"model {path}", f"onnxruntime cannot run it either: {reason(error)}",
                     "a network that onnxruntime runs", "export the model again") from None


def _zeros(value: onnx.ValueInfoProto) -> np.ndarray:
    kind = value.type.tensor_type
    return np.zeros([entry.dim_value for entry in kind.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def load_model(path: Path, outputs: Sequence[str] = (),
               shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> onnx.ModelProto:
    """The same as ONNX. Raises CompileError."""
    if not path.is_file():
        raise refuse(f"model file {path}", "no such file", "an existing .onnx, .pb or .tflite file", "check the path")
    return LOADERS.get(path.suffix, load_onnx)(path, outputs, shapes, fixed)
