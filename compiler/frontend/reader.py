"""Model file -> graph, whatever made it: ``.pb`` is a frozen TensorFlow graph, everything else ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_reader import load_onnx, to_graph
from weft.compiler.frontend.tensorflow_reader import load_frozen

FROZEN = ".pb"
"""The suffix of TensorFlow's frozen graphs."""


def read_model(path: Path, outputs: Sequence[str] = ()) -> Graph:
    """The network up to ``outputs`` (default: the model's own; a frozen graph has none).

    Raises CompileError for a file that is missing, broken or of an open shape, and for an output that it has not.
    """
    return to_graph(load_model(path, outputs), path.stem)


def load_model(path: Path, outputs: Sequence[str] = ()) -> onnx.ModelProto:
    """The same as ONNX. Raises CompileError."""
    if not path.is_file():
        raise refuse(f"model file {path}", "no such file", "an existing .onnx or .pb file", "check the path")
    return load_frozen(path, outputs) if path.suffix == FROZEN else load_onnx(path, outputs)
