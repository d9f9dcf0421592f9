# SPDX-License-Identifier: Apache-2.0
"""Ranges and binary points of drawn tensors and layers, against plain counts, and as large as every layer allows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Add, Convolution, LeakyRelu, Load, Save
from weft.compiler.layers.var import Var
from weft.compiler.quantize.calibrate import calibrate, channel_ranges, tensor_ranges
from weft.compiler.quantize.choose_points import SUM_HEADROOM, choose_points
from weft.compiler.quantize.points import FixedPointParams
from weft.compiler.quantize.ranges import BINADES, HEADROOM, Calibration, Range, Tally, sum_key
from weft.compiler.quantize.samples import Samples
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import largest_point
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4)


# -- what tensors took -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
def test_a_tally_counts_magnitudes_by_powers_of_two(seed: int) -> None:
    """Also numbers that are one, of any shape and number; 0 has none."""
    draw, tally, seen = np.random.default_rng(seed), Tally(), []
    for _ in range(int(draw.integers(1, 4))):
        shape = draw.integers(1, 6, 3).tolist()
        value = np.exp2(draw.uniform(-44, 38, shape)) * draw.choice([-1, 0, 1], shape)
        value = np.where(draw.random(shape) < 0.3, np.exp2(np.rint(draw.uniform(-42, 38, shape))), value)
        seen.append(value.astype(np.float32).transpose(2, 0, 1))
        tally.add(seen[-1])
    every = np.concatenate([value.ravel() for value in seen]).astype(np.float64)
    found = tally.range(3.0)
    assert found.at_least == tuple(int((np.abs(every) >= 2.0 ** power).sum()) for power in BINADES)
    assert (found.low, found.high, found.count, found.unclipped) == (every.min(), every.max(), every.size, 3.0)
    assert found.squares == pytest.approx((every ** 2).sum()) and found.magnitude == tally.magnitude
    assert found.peaks == tuple(float(np.abs(value).max()) for value in seen)
    for exponent in (-60, -40, -3, 0, 7, 39, 40, 90):
        assert found.beyond(exponent) == (np.abs(every) >= 2.0 ** min(max(exponent, -40), 40)).sum()


def network(draw: np.random.Generator) -> Graph:
    """A convolution of one pixel, a ReLU, and one with two inputs' products of which some are never negative."""
    constants = {"w": draw.standard_normal((5, 3, 1, 1)), "v": draw.standard_normal((2, 5, 1, 1)),
                 "a": draw.standard_normal(5), "b": draw.standard_normal(2)}
    given = {"dilations": (1, 1), "group": 1, "kernel_shape": (1, 1), "pads": (0, 0, 0, 0), "strides": (1, 1)}
    nodes = (Node("c", "Conv", ("x", "w", "a"), ("c",), given), Node("r", "Relu", ("c",), ("r",)),
             Node("d", "Conv", ("r", "v", "b"), ("d",), given))
    shapes = {"x": (1, 3, 2, 3), "c": (1, 5, 2, 3), "r": (1, 5, 2, 3), "d": (1, 2, 2, 3)}
    return Graph("net", nodes, (GraphPort("x", shapes["x"], "x"),), (GraphPort("d", shapes["d"], "d"),),
                 shapes, {name: value.astype(np.float32) for name, value in constants.items()}, 13)


@pytest.mark.parametrize("seed", range(4))
def test_ranges_sums_and_means_are_those_of_all_samples(seed: int) -> None:
    """The first, the last and those between have extremes."""
    draw = np.random.default_rng(seed)
    graph, count = network(draw), 4
    x = (draw.standard_normal((count, 3, 2, 3)) * draw.permutation([1.0, 2.0, 3.0, 9.0])[:, None, None, None]).astype(
        np.float32)
    samples = Samples({"x": x[:, None]}, tuple(range(count)), False)
    terms = {"c": np.einsum("oi,nihw->noihw", graph.constants["w"][:, :, 0, 0], x)}
    values = {"x": x, "c": terms["c"].sum(2) + graph.constants["a"][:, None, None]}
    values["r"] = np.maximum(values["c"], 0)
    terms["d"] = np.einsum("oi,nihw->noihw", graph.constants["v"][:, :, 0, 0], values["r"])
    values["d"] = terms["d"].sum(2) + graph.constants["b"][:, None, None]

    found = channel_ranges(graph, samples, ["c", "d"])
    for name in ("c", "d"):
        assert np.allclose(found[name][0], values[name].min((0, 2, 3)), atol=1e-5)
        assert np.allclose(found[name][1], values[name].max((0, 2, 3)), atol=1e-5)
    for name, (low, high) in tensor_ranges(graph, samples, ["x", "r", "d"]).items():
        assert (low, high) == pytest.approx((values[name].min(), values[name].max()), abs=1e-5)
    seen = calibrate(graph, samples)
    assert seen.samples == count and not seen.random
    for name, value in values.items():
        own = seen.ranges[name]
        assert (own.low, own.high, own.count) == pytest.approx((value.min(), value.max(), value.size), abs=1e-5)
        assert own.peaks == pytest.approx([float(np.abs(each).max()) for each in value], abs=1e-5)
    for name, source, weights, bias in (("c", "x", "w", "a"), ("d", "r", "v", "b")):
        offsets = np.broadcast_to(graph.constants[bias][None, :, None, None, None], (count, len(graph.constants[bias]),
                                                                                      1, 2, 3))
        parts = np.concatenate([terms[name], offsets], axis=2)
        most = max(np.maximum(parts, 0).sum(2).max(), np.maximum(-parts, 0).sum(2).max())
        assert seen.sums[sum_key(source, weights)] == pytest.approx(most, rel=1e-5)
        assert np.allclose(seen.means[source], values[source].mean((0, 2, 3)), atol=1e-5)


# -- binary points -----------------------------------------------------------------------------------------------------
def drawn_layers(draw: np.random.Generator) -> tuple[list[Layer], dict[str, np.ndarray], Calibration]:
    """Convolutions, sums and leaky ReLUs on what others made, of numbers of any size."""
    layers, constants, sums = list[Layer](), {}, {}
    variables = [Var("x", 4, 3, 3)]
    ranges: dict[str, Range] = {}
    for number in range(int(draw.integers(2, 6))):
        source, other = (variables[int(place)] for place in draw.integers(len(variables), size=2))
        made, kind = Var(f"t{number}", 4, 3, 3), int(draw.integers(3))
        slope = LeakyRelu(float(draw.choice([0.25, 0.01]))) if draw.integers(3) == 0 else None
        adds = (Add(other),) if kind == 2 or draw.integers(2) else ()
        if kind < 2:
            size = float(2.0 ** draw.uniform(-6, 4))
            constants[f"w{number}"] = draw.standard_normal((4, 4, 1, 1)) * size
            constants[f"b{number}"] = draw.standard_normal(4) * float(2.0 ** draw.uniform(-6, 8))
            core = Convolution(source, f"w{number}", f"b{number}", 1, Window(), (3, 3), 0)
            sums[sum_key(source.name, core.weights)] = float(2.0 ** draw.uniform(-2, 9))
            layers.append(Layer(f"l{number}", core, (Save(made),), adds=adds, elementwise=slope))
        else:
            layers.append(Layer(f"l{number}", Load(source), (Save(made),), adds=adds, elementwise=slope))
        variables.append(made)
    for name in [var.name for var in variables]:
        high = float(2.0 ** draw.uniform(-4, 6))
        ranges[name] = Range(-high * float(draw.random()), high, (0,) * len(BINADES), 100,
                             100 * (high / 3) ** 2, (high,) * 9)
    return layers, constants, Calibration(ranges, sums, 9, False)


def rooms(layers: list[Layer], seen: Calibration, width: int) -> dict[str, int]:
    """The point of each tensor if no layer had accumulators."""
    found = {}
    for name, own in seen.ranges.items():
        made = [layer for layer in layers if layer.output.name == name]
        room = own.magnitude * (HEADROOM if made else 1.0)
        for layer in made:
            if isinstance(layer.elementwise, LeakyRelu):  # the SIMD unit sees it before it shrinks
                room = max(room, -own.low / layer.elementwise.slope * HEADROOM)
        found[name] = largest_point(room, width)
    return found


def limits(layer: Layer, found: FixedPointParams, constants: dict[str, np.ndarray], seen: Calibration,
           arch: Arch) -> tuple[int, int]:
    """The largest point of a layer's accumulators, and the one that its weights would have."""
    added = sum(seen.ranges[add.input.name].magnitude for add in layer.adds)
    if isinstance(layer.core, Load):
        total = (added + seen.ranges[layer.core.input.name].magnitude) * HEADROOM
        return largest_point(total, arch.accumulator_bits), 0
    assert isinstance(layer.core, Convolution)
    weights, bias = constants[layer.core.weights], constants[layer.core.bias]
    measured = (seen.sums[sum_key(layer.core.input.name, layer.core.weights)] + added) * SUM_HEADROOM
    worst = [np.abs(weights[channel]).sum() * 2.0 ** (arch.number.width - 1 - found.vars[layer.core.input.root])
             + abs(bias[channel]) for channel in range(4)]
    return (largest_point(min(measured, float(max(worst)) + added * SUM_HEADROOM), arch.accumulator_bits),
            largest_point(float(np.abs(weights).max()), arch.number.width))


@pytest.mark.parametrize("seed", range(80))
def test_points_are_as_large_as_ranges_and_accumulators_allow(seed: int) -> None:
    """Every shift is one that the machine has; with a bit more of any number something has no room."""
    draw = np.random.default_rng(seed)
    arch = ARCH if seed % 2 else ARCH.replace(data_type="FP18BP10")
    layers, constants, seen = drawn_layers(draw)
    constants = {name: value.astype(np.float32) for name, value in constants.items()}
    found = choose_points(layers, constants, seen, arch, False, 13)
    width, most, points = arch.accumulator_bits, rooms(layers, seen, arch.number.width), found.vars
    used = {var.name for layer in layers for var in layer.vars}
    held = {name: points[name] == most[name] for name in used}
    assert all(points[name] <= most[name] for name in used)
    for layer, own in zip(layers, found.layers, strict=True):
        limit, weights = limits(layer, found, constants, seen, arch)
        source = layer.core.input.root
        shifts = {own.core_shift, *own.add_shifts, *own.output_shifts}
        assert 0 <= min(shifts) <= max(shifts) < width and own.accumulators <= limit
        assert own.add_shifts == tuple(own.accumulators - points[add.input.root] for add in layer.adds)
        assert own.output_shifts == (own.accumulators - points[layer.output.root],)
        for var in (layer.output, *(add.input for add in layer.adds)):
            held[var.name] |= points[var.name] in (own.accumulators, own.accumulators - width + 1)
        if isinstance(layer.core, Load):
            assert own.core_shift == own.accumulators - points[source]
            held[source] |= points[source] == own.accumulators
            finest = max(points[var.root] for var in layer.inputs)
            assert own.accumulators in (limit, finest)
            continue
        assert isinstance(layer.core, Convolution)
        assert own.accumulators == own.weights + points[source] and own.core_shift == own.accumulators - own.bias
        bias = largest_point(float(np.abs(constants[layer.core.bias]).max()), arch.number.width)
        assert own.bias == max(min(bias, own.accumulators), own.accumulators - width + 1)
        assert own.weights <= weights and (own.weights == weights or own.accumulators == limit)
        held[source] |= own.accumulators == limit
    assert all(held.values()), held


def test_without_a_point_of_its_own_all_have_that_of_the_type() -> None:
    layers, constants, seen = drawn_layers(np.random.default_rng(3))
    found = choose_points(layers, constants, seen, ARCH, True, 13)
    assert {*found.vars.values()} == {ARCH.number.point} and found.measured == ""
    for own, layer in zip(found.layers, layers, strict=True):
        assert (own.weights, own.bias, own.accumulators) == (ARCH.number.point, ARCH.number.point,
                                                             2 * ARCH.number.point)
        assert {own.core_shift, *own.add_shifts, *own.output_shifts} == {ARCH.number.point}
        assert len(own.add_shifts) == len(layer.adds) and replace(own).gate_shift is None
