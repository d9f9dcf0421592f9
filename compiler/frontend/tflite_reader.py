"""TensorFlow Lite file (``.tflite``) -> ONNX model, by tf2onnx: the extra ``tensorflow``.

Quantised tensors become QuantizeLinear and DequantizeLinear. Names are those of the file's tensors, without
TensorFlow's ``:0``; inputs keep the file's shapes, channels last.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from weft.compiler.errors import reason, refuse
from weft.compiler.frontend.inputs import NO_SHAPES, fix_shapes
from weft.compiler.frontend.onnx_reader import MOST_BYTES, unknown_output
from weft.compiler.frontend.tensorflow_reader import OPSET, convertible, mend_converted, need_tensorflow
from weft.runtime.files import read_bytes

ALLOWED, WAY_OUT = "a TensorFlow Lite model", "convert the network again with TFLiteConverter"
FIRST_OUTPUT = ":0"


def load_tflite(path: Path, outputs: Sequence[str] = (),
                shapes: Mapping[str, Sequence[int]] = NO_SHAPES) -> onnx.ModelProto:
    """The network up to ``outputs`` (default: the file's own), its inputs of fixed sizes.

    Raises CompileError without the extra, for a file that is none or damaged, unknown outputs, and what tf2onnx cannot
    convert.
    """
    content = read_bytes(path, "model file", "give a .tflite file", MOST_BYTES)
    model = onnx.ModelProto.FromString(_convert(content, path, tuple(outputs)))
    fix_shapes(model.graph, shapes)
    return model


@functools.lru_cache(maxsize=1)
def _convert(content: bytes, path: Path, outputs: tuple[str, ...]) -> bytes:
    """ONNX bytes; a command may ask for the same model several times."""
    tensorflow = need_tensorflow("TensorFlow Lite file")
    from tf2onnx.convert import from_tflite

    known = _tensors(tensorflow, content, path)
    names = [_full_name(name, known) for name in outputs]
    with tempfile.TemporaryDirectory() as folder, convertible(path, ALLOWED, WAY_OUT):
        file = Path(folder) / "model.tflite"  # what was checked, whatever becomes of the path
        file.write_bytes(content)
        model, _ = from_tflite(str(file), output_names=names or None, opset=OPSET)
    ends = [value.name for value in (*model.graph.input, *model.graph.output)]
    mend_converted(path, model, {name: name.removesuffix(FIRST_OUTPUT) for name in ends})
    return bytes(model.SerializeToString())


def _tensors(tensorflow: Any, content: bytes, path: Path) -> list[str]:
    """The names of its tensors, as TensorFlow's own reader says that nothing in the file points astray."""
    try:
        interpreter = tensorflow.lite.Interpreter(model_content=content)
        return [entry["name"] for entry in interpreter.get_tensor_details()]
    except (ValueError, RuntimeError) as error:
        raise refuse(f"model file {path}", f"not a TensorFlow Lite model, or a damaged one ({reason(error)})", ALLOWED,
                     WAY_OUT) from None


def _full_name(name: str, names: Sequence[str]) -> str:
    """A tensor as the file names it."""
    found = next((full for full in (name, name + FIRST_OUTPUT) if full in names), None)
    if found is None:
        raise unknown_output(name, names[-1:], names)
    return found
