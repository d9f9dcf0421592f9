"""Value tables: a function as straight pieces around evenly spaced keys.

``Lookup`` gives the distance to the nearest key, the value there and the slope there; the result is value + distance *
slope. The pieces run through the middle between the function and its chord, which halves the largest error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft.compiler.errors import refuse
from weft.compiler.frontend.onnx_writer import IR_VERSION
from weft.compiler.layers.hir import Lookup
from weft.compiler.passes.operators import OPERATORS
from weft.compiler.quantize.calibrate import Range
from weft.hw.contract.arch import Arch
from weft.runtime.onnx_engine import session

Function = Callable[[np.ndarray], np.ndarray]
MARGIN = 0.05
"""The keys reach this much of the calibrated range beyond it."""


@dataclass(frozen=True)
class Pieces:
    """Real numbers: keys, values and slopes there, and the largest error within the calibrated range. ``zero``: the
    piece that must make 0 of 0, where there is one."""

    first: int
    spacing_log2: int
    values: np.ndarray
    slopes: np.ndarray
    error: float
    zero: int | None = None


def function_of(lookup: Lookup, opset: int) -> Function:
    """The ONNX operator as a function of an array."""
    node = helper.make_node(lookup.function, ["x"], ["y"], **dict(lookup.attributes))
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])
    graph = helper.make_graph([node], "table", [value], [onnx.ValueInfoProto(name="y")])
    engine = session(onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)))
    return lambda x: np.asarray(engine.run(None, {"x": x.astype(np.float32)})[0], np.float64)


def make_pieces(layer: str, lookup: Lookup, seen: Range, point: int, arch: Arch, opset: int) -> Pieces:
    """Pieces for inputs at ``point``. Raises CompileError where the function is not finite."""
    function = function_of(lookup, opset)
    table = OPERATORS[lookup.function].table
    assert table is not None
    low, high = _widened(seen) if table.domain is None else table.domain(seen.low, seen.high)
    if table.pole_at_zero and low <= 0 <= high:
        raise refuse(f"node {layer!r}, operator {lookup.function}, range of its input", f"{low:.6g}..{high:.6g}",
                     "a range without 0", "calibrate with inputs that keep it away from 0")
    if table.keeps_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    unit = 2.0 ** -point
    # No input is beyond the type, and no key may be: the hardware takes the spacing from the first two.
    low, high = max(low, arch.number.minimum * unit), min(high, arch.number.maximum * unit)
    spacing = max(math.ceil(math.log2(max((high - low) / unit, 1) / (arch.lut_depth - 1))), 1)
    first = math.floor(low / unit / (1 << spacing)) << spacing
    if first + ((arch.lut_depth - 1) << spacing) < high / unit:
        spacing += 1
        first = math.floor(low / unit / (1 << spacing)) << spacing
    keys = (first + (np.arange(arch.lut_depth) << spacing)) * unit
    half = (1 << spacing) * unit / 2
    least, most = (-math.inf, math.inf) if table.domain is None else (low, high)
    left, right = np.clip(keys - half, least, most), np.clip(keys + half, least, most)
    middle = np.clip(keys, least, most)
    at_left, at_right, at_middle = function(left), function(right), function(middle)
    width = np.where(right > left, right - left, 1)
    slopes = np.where(right > left, (at_right - at_left) / width, 0.0)
    chord = at_left + slopes * (keys - left)
    values = np.where(right > left, (chord + at_middle + slopes * (keys - middle)) / 2, at_middle)
    zero = min((-first + (1 << spacing >> 1)) >> spacing, arch.lut_depth - 1) if table.keeps_zero else None
    if zero is not None:
        values[zero] = slopes[zero] * keys[zero]
    inside = np.linspace(low, high, 4001)
    index = np.clip(np.floor((inside - keys[0]) / (2 * half) + 0.5).astype(int), 0, len(keys) - 1)
    error = np.abs(values[index] + slopes[index] * (inside - keys[index]) - function(inside)).max()
    return Pieces(first, spacing, values, slopes, float(error), zero)


def _widened(seen: Range) -> tuple[float, float]:
    margin = MARGIN * (seen.high - seen.low)
    return seen.low - margin, seen.high + margin


def encode_table(pieces: Pieces, point: int, output_point: int, arch: Arch) -> tuple[tuple[int, ...], ...]:
    """Keys, values at the output's point, slopes such that distance * slope has it too; further tables are zero."""
    number = arch.number
    keys = number.saturate(pieces.first + (np.arange(arch.lut_depth) << pieces.spacing_log2))
    values = number.quantize(pieces.values, output_point)
    slopes = number.quantize(pieces.slopes, output_point - point + number.point)
    if pieces.zero is not None:
        values[pieces.zero] = -number.multiply(-keys[pieces.zero], slopes[pieces.zero])
    return tuple(tuple(int(entry) for entry in table) for table in (keys, values, slopes))
