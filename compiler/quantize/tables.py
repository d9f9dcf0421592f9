# SPDX-License-Identifier: Apache-2.0
"""Lookup tables: a function as straight pieces around evenly spaced keys.

``Lookup`` gives the distance to the nearest key, the value there and the slope there; the result is value + distance *
slope. The pieces run through the middle between the function and its chord, which halves the largest error. The keys
lie where the function bends; beyond the first and the last key their pieces go on as straight lines."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from weft.compiler.errors import ON_HOST, refuse
from weft.compiler.layers.stages import Lookup, Translate
from weft.compiler.lowering.functions import RealFunction, real_function, value_table
from weft.compiler.lowering.rules import ValueTable
from weft.compiler.quantize.points import rounded_together
from weft.compiler.quantize.ranges import HEADROOM, MOST_HEADROOM, Range
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import DataType

Span = tuple[float, float]
"""The lowest and the highest argument."""

CONSTANT = 2.0 ** -17
"""The share of a function's largest value below which a difference counts as none."""

UNSEEN = 2.0 ** -16
"""The additional error, as a share of the largest value, accepted to cover arguments not seen in calibration.

It is half a step of 16 bits."""

HOPELESS = 4.0
"""The ratio of a spacing's error to the accepted one beyond which closer keys are not tried.

Such keys no longer reach all bends, and closer ones do so even less."""

WORTH_A_SHIFT = 0.5
"""The ratio of errors below which keys are shifted by half a spacing, as the function has a bend there.

Otherwise keys that cover all arguments lie on multiples of their spacing."""

NEIGHBOURS = 4
"""The number of neighbouring values that are rounded together."""

EVEN_POINTS, POINTS_OF_A_SCALE = 2001, 400
"""The numbers of arguments at which pieces are judged.

They lie evenly over the range, and closer and closer to its ends and to zero."""


@dataclass(frozen=True)
class Pieces:
    """A function as straight pieces, in real numbers: values and slopes at evenly spaced keys.

    Key i is ``first`` + (i << ``spacing_log2``), an integer at the input's binary point. ``error``: the largest within
    the calibrated range. ``zero``: index of the piece that must map 0 to 0, None if there is none."""

    first: int
    spacing_log2: int
    values: np.ndarray
    slopes: np.ndarray
    error: float
    zero: int | None = None


def function_of(lookup: Lookup | Translate, opset: int) -> RealFunction:
    """Return the lookup's function, of an array of real numbers, as the ONNX ``opset`` defines it."""
    return real_function(lookup.function, lookup.attributes, opset)


def _spans(layer: str, lookup: Lookup, seen: Range) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the span of arguments seen in calibration, and the span of those that may come.

    Raise CompileError if a pole lies inside."""
    table = value_table(lookup.function, dict(lookup.attributes))
    beyond = seen.expected(HEADROOM) - seen.magnitude
    low, high = (seen.low, seen.high) if table.domain is None else table.domain(seen.low, seen.high)
    if table.pole_at_zero and low <= 0 <= high:
        raise refuse(f"node {layer!r}, operator {lookup.function}, range of its input", f"{low:.6g}..{high:.6g}",
                     "a range without 0", f"calibrate with inputs that keep it away from 0, or {ON_HOST}")
    if table.keeps_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return (low, high), (low - beyond, high + beyond) if table.domain is None else _beyond(low, high)


def _beyond(low: float, high: float) -> Span:
    """Return the span that a function with a domain or bend on one side of 0 must cover.

    It reaches arguments twice and half as large as those seen: the next sample's variance may be less than any
    before."""
    if high < 0:
        return MOST_HEADROOM * low, high / MOST_HEADROOM
    return (low / MOST_HEADROOM, MOST_HEADROOM * high) if low >= 0 else (low, high)


def _arguments(low: float, high: float) -> np.ndarray:
    """Return many arguments from ``low`` to ``high``, closer and closer together towards both and towards zero."""
    away = max(high - low, 1e-9) * np.geomspace(1e-6, 1, POINTS_OF_A_SCALE)
    found = np.concatenate([np.linspace(low, high, EVEN_POINTS), low + away, high - away, away, -away, [0.0]])
    return np.unique(found[(found >= low) & (found <= high)])


def needed_magnitude(layer: str, lookup: Lookup, seen: Range, opset: int) -> float:
    """Return the magnitude beyond which, on either side, a lookup's function is constant."""
    return _constant_beyond(replace(lookup, source=""), _spans(layer, lookup, seen)[1], opset)


@functools.lru_cache(maxsize=1024)
def _constant_beyond(lookup: Lookup, span: Span, opset: int) -> float:
    """Return the magnitude beyond which the function is constant within ``span``."""
    arguments = _arguments(*span)
    values = function_of(lookup, opset)(arguments)
    least = CONSTANT * np.abs(values).max()
    bends = [np.flatnonzero(np.abs(values - end) > least) for end in (values[0], values[-1])]
    if not len(bends[0]):
        return float(np.abs(arguments).min())
    low, high = arguments[max(bends[0][0] - 1, 0)], arguments[min(bends[1][-1] + 1, len(arguments) - 1)]
    return float(max(-low, high, np.abs(arguments).min()))


def make_pieces(layer: str, lookup: Lookup, seen: Range, point: int, arch: Arch, opset: int) -> Pieces:
    """Return a lookup's pieces for inputs at binary ``point``. Raise CompileError if the function is not finite."""
    table = value_table(lookup.function, dict(lookup.attributes))
    # No input is beyond the type, and no key may be: the hardware takes the spacing from the first two.
    limits = arch.number.minimum * 2.0 ** -point, arch.number.maximum * 2.0 ** -point
    inside, wide = (tuple(np.clip(span, *limits).tolist()) for span in _spans(layer, lookup, seen))
    wide = _with_room(function_of(lookup, opset), inside, wide)
    return _best(layer, replace(lookup, source=""), inside, wide, table, point, arch.lut_depth, arch.number, opset)


def _with_room(function: RealFunction, inside: Span, wide: Span) -> Span:
    """Return the part of the span ``wide`` whose values the result has room for.

    A function that is steep only far beyond ``inside``, such as an exponential, would cost every value bits of its
    slope."""
    arguments = _arguments(*wide)
    values = np.abs(function(arguments))
    most = MOST_HEADROOM * values[(arguments >= inside[0]) & (arguments <= inside[1])].max(initial=0.0)
    fits = arguments[~(values > most)]
    return min(inside[0], float(fits.min(initial=inside[0]))), max(inside[1], float(fits.max(initial=inside[1])))


@functools.lru_cache(maxsize=1024)
def _best(layer: str, lookup: Lookup, inside: Span, wide: Span, table: ValueTable, point: int, depth: int,
          number: DataType, opset: int) -> Pieces:
    """Return the pieces, over all allowed keys, that serve the span ``wide`` best.

    They are chosen among those that serve ``inside`` about as well as any. Slopes are judged as the data type rounds
    them, because far from its key a line deviates by that error."""
    function = function_of(lookup, opset)
    arguments = [_arguments(*span) for span in (inside, wide)]
    wanted = [function(entry) for entry in arguments]
    if not np.isfinite(wanted[0]).all():
        raise refuse(f"node {layer!r}, a function by lookup table, range of its input", f"{inside[0]:.6g}.."
                     f"{inside[1]:.6g}", "a range in which it is finite", "calibrate with inputs that keep it there")
    largest = float(np.abs(wanted[0]).max()) or 1.0
    slope_point = math.floor(math.log2(number.maximum / largest / MOST_HEADROOM)) - point + number.point
    found: list[tuple[Pieces, float]] = []
    for spacing, firsts in _all_keys(wide, inside, point, depth):
        tried: list[tuple[Pieces, float]] = []
        for first in firsts:
            with np.errstate(invalid="ignore", over="ignore"):
                pieces = _pieces(function, wide, table, point, depth, first, spacing)
                rounded = replace(pieces, slopes=np.rint(pieces.slopes * 2.0 ** slope_point) * 2.0 ** -slope_point)
                errors = [float(np.nan_to_num(np.abs(_evaluated(rounded, entry, point) - values), nan=np.inf).max())
                          for entry, values in zip(arguments, wanted, strict=True)]
            if found or not tried or errors[0] < WORTH_A_SHIFT * tried[0][0].error:
                tried.append((replace(pieces, error=errors[0]), errors[1]))
        found += tried
        enough = 1.5 * min(pieces.error for pieces, _ in found) + UNSEEN * largest
        if min(pieces.error for pieces, _ in tried) > HOPELESS * enough:
            break  # keys that lie closer leave out even more
    return min((entry for entry in found if entry[0].error <= enough), key=lambda entry: entry[1])[0]


def _pieces(function: RealFunction, span: Span, table: ValueTable, point: int, depth: int, first: int,
            spacing: int) -> Pieces:
    """Return pieces with ``depth`` evenly spaced keys from ``first`` on; the outer lines reach the ends of ``span``."""
    keys, half = (first + (np.arange(depth) << spacing)) * 2.0 ** -point, 2.0 ** (spacing - point - 1)
    left, right = keys - half, keys + half
    left[0], right[-1] = min(left[0], span[0]), max(right[-1], span[1])
    domain = (-math.inf, math.inf) if table.domain is None else span
    left, right, middle = (np.clip(entry, *domain) for entry in (left, right, keys))
    at_left, at_right, at_middle = function(left), function(right), function(middle)
    width = np.where(right > left, right - left, 1)
    slopes = np.where(right > left, (at_right - at_left) / width, 0.0)
    chord = at_left + slopes * (keys - left)
    values = np.where(right > left, (chord + at_middle + slopes * (keys - middle)) / 2, at_middle)
    zero = None
    if table.keeps_zero:
        zero = min(max((-first + (1 << spacing >> 1)) >> spacing, 0), depth - 1)
        values[zero] = slopes[zero] * keys[zero]
    return Pieces(first, spacing, values, slopes, 0.0, zero)


def _evaluated(pieces: Pieces, arguments: np.ndarray, point: int) -> np.ndarray:
    """Return a table's values, in real numbers, for real arguments; ``point`` is the binary point of its keys."""
    places = arguments * 2.0 ** point - pieces.first
    index = np.clip(np.floor(places / (1 << pieces.spacing_log2) + 0.5).astype(int), 0, len(pieces.values) - 1)
    distance = (places - (index << pieces.spacing_log2)) * 2.0 ** -point
    return np.asarray(pieces.values[index] + pieces.slopes[index] * distance)


def _all_keys(wide: Span, inside: Span, point: int, depth: int) -> Iterator[tuple[int, list[int]]]:
    """Yield log2 of the keys' spacing and the first keys to try, from keys that cover ``wide`` to the closest."""
    unit = 2.0 ** -point
    widest = _covering(*wide, unit, depth)
    for spacing in range(widest, 0, -1):
        spans = dict.fromkeys((wide, inside))
        yield spacing, list(dict.fromkeys(first for span in spans for first in _first_keys(
            *span, unit, spacing, widest, depth)))


def _covering(low: float, high: float, unit: float, depth: int) -> int:
    """Return log2 of the spacing at which ``depth`` keys cover all arguments from ``low`` to ``high``."""
    spacing = max(math.ceil(math.log2(max((high - low) / unit, 1) / (depth - 1))), 1)
    first = math.floor(low / unit / (1 << spacing)) << spacing
    return spacing + (first + ((depth - 1) << spacing) < high / unit)


def _first_keys(low: float, high: float, unit: float, spacing: int, widest: int, depth: int) -> list[int]:
    """Return where keys may begin: at the lowest argument, such that they end at the highest, and around zero.

    Keys, or the middles between them if a bend there costs nothing, are multiples of the spacing."""
    lowest = math.floor(low / unit / (1 << spacing)) << spacing
    if spacing == widest:
        return [lowest, lowest + (1 << spacing >> 1)]
    length = (depth - 1) << spacing
    highest = math.floor(high / unit) - length
    starts = [lowest, highest, *(-(length * quarters // 4) for quarters in range(5) if low < 0 < high)]
    even = {min(max(start, lowest), highest) >> spacing << spacing for start in starts}
    return sorted(even | {start + (1 << spacing >> 1) for start in even})


def _rounded(steps: np.ndarray, number: DataType) -> np.ndarray:
    """Return values, given in steps, as whole numbers of the type, such that neighbours' errors cancel.

    The values of a square all have the same fraction, and a mean of squares would be off by its rounding error."""
    groups = [rounded_together(steps[first:first + NEIGHBOURS]) for first in range(0, len(steps), NEIGHBOURS)]
    return np.asarray(number.saturate(np.concatenate(groups).astype(np.int64)))


def encode_table(pieces: Pieces, point: int, output_point: int, arch: Arch) -> tuple[tuple[int, ...], ...]:
    """Return keys, values at the output's point, and slopes such that distance * slope has it too."""
    number = arch.number
    keys = number.saturate(pieces.first + (np.arange(arch.lut_depth) << pieces.spacing_log2))
    values = _rounded(pieces.values * 2.0 ** output_point, number)
    slopes = number.quantize(pieces.slopes, output_point - point + number.point)
    if pieces.zero is not None:
        values[pieces.zero] = -number.multiply(-keys[pieces.zero], slopes[pieces.zero])
    return tuple(tuple(int(entry) for entry in table) for table in (keys, values, slopes))
