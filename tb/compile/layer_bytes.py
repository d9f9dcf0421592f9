# SPDX-License-Identifier: Apache-2.0
"""Layers in bytes against onnxruntime, which does not fuse what files round: each layer reads what onnxruntime made.

Where a file has weights as real numbers onnxruntime computes with those that the machine holds in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.compiler.check.checker import Checker
from weft.compiler.check.evaluate import Tensors
from weft.compiler.check.integers import quantised
from weft.compiler.check.scaled import Scaled
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.indices.index import feed
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Convolution, Load, Save
from weft.compiler.partition import Part
from weft.compiler.passes.propagate_quantizers import KEEPS_SCALE
from weft.compiler.passes.quantization import Quantization
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products, Step
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.scales import AffineParams, InputQuantization, LayerAffineParams, unchanged_bytes
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.tmodel.onnx_engine import runner
from weft.tmodel.scales import TensorScale

LEAST_EQUAL = 0.999
"""Of all bytes that a network's layers make, given equal inputs; no other may be off by more than one."""

STILL_ROUNDS = "order"
"""The last step behind which graphs round as the network's file does."""

COPIES = KEEPS_SCALE | {"Assemble"}

NEAR = 1e-3
"""Of a step: so near a whole number of them is what single precision has of one."""

Differences = dict[str, np.ndarray]
"""By layer, of all bytes that it makes and the file rounds: by how many steps they are off."""


class Watch:
    """``rounding``: of each of the machine's parts the graph while it still rounds as the file says; ``parts``: what
    all steps left of it. Give :meth:`after` to the compiler."""

    def __init__(self) -> None:
        self.rounding: dict[int, Graph] = {}
        self.parts: dict[int, Products] = {}

    def after(self, step: Step, products: Products) -> None:
        part = products.get(Part)
        if part is not None:
            self.parts[part.number] = products
            if step.name == STILL_ROUNDS:
                self.rounding[part.number] = products[Graph]

    def differences(self, sample: Mapping[str, np.ndarray], number: int = 1) -> Differences:
        """Those of a part, of one value for each of its inputs."""
        return differences(self.parts[number], self.rounding[number], sample)


class Checked(Watch):
    """Each step is checked too."""

    def __init__(self) -> None:
        super().__init__()
        self.checker = Checker()

    def after(self, step: Step, products: Products) -> None:
        super().after(step, products)
        self.checker.after(step, products)


def with_numbers(path: Path, arch: Arch, samples: Mapping[str, np.ndarray], ranges: str = "minmax",
                 outputs: tuple[str, ...] = ()) -> Watch:
    """The compiler as far as scales."""
    watch = Watch()
    run_parts(Request(path, samples, outputs=outputs, ranges=ranges), arch, watch=watch.after, last="scales")
    return watch


def scales_of(products: Products) -> AffineParams:
    scales = products[Numbers]
    assert isinstance(scales, AffineParams)
    return scales


def run_layer(products: Products, number: int, tensors: Tensors) -> None:
    """One layer, on ``tensors``."""
    layer, scales = products[Layers][number], scales_of(products)
    _run(products, layer, scales.layers[number], scales.tables.get(layer.output.name), tensors)


def _run(products: Products, layer: Layer, numbers: LayerAffineParams, table: tuple[int, ...] | None,
         tensors: Tensors) -> None:
    alone = replace(scales_of(products), layers=(numbers,), tables={layer.output.name: table} if table else {})
    own = alone.integers(0, layer, products[Graph].constants, products[Arch])
    Scaled(products[Arch], alone, [own]).run([layer], tensors)


def run_layers(products: Products, sample: Mapping[str, np.ndarray]) -> np.ndarray:
    """The only output, as real numbers in the layers' own order."""
    graph, scales, tensors = products[Graph], scales_of(products), tensors_of(products, sample)
    integers = quantised(products[Layers], graph.constants, scales, products[Arch])
    Scaled(products[Arch], scales, integers).run(products[Layers], tensors)
    port, = graph.outputs
    var = next(var for layer in products[Layers] for var in layer.outputs if var.name == port.tensor)
    return scales.vars[var.root].dequantize(tensors.read(var)).ravel()


def tensors_of(products: Products, sample: Mapping[str, np.ndarray]) -> Tensors:
    """With the inputs of one sample, and elsewhere the bytes of 0."""
    graph, scales, tensors = products[Graph], scales_of(products), Tensors(products[Graph], products[Arch], np.int64)
    given = feed(graph, sample)
    for var in dict.fromkeys(var for layer in products[Layers] for var in layer.inputs if var.name in given):
        tensors.write(var, scales.vars[var.root].quantize(given[var.name][0]))
    return tensors


def differences(products: Products, rounding: Graph, sample: Mapping[str, np.ndarray]) -> Differences:
    """Of layers that read what the file rounds, and rounds for all; and of tensors that it does not round for all, by
    how many steps they end below what others read."""
    graph, settled = products[Graph], products[Quantization].tensors
    names = [name for name in settled if rounding.shapes.get(name) == graph.shapes.get(name)]
    given, held = feed(rounding, sample), _with_held_weights(rounding, products)
    run = runner(to_onnx(held, [name for name in names if name not in given] or [rounding.outputs[0].tensor]))
    values = {**run(given), **feed(graph, sample)}
    expected = {name: settled[name].quantize(values[name])[0] for name in settled
                if name in values and values[name].shape == graph.shapes[name]}
    wanted = _wanted(rounding, values)
    """What is as in the file: rounded for all readers alike, or of values that rounding leaves as they are."""
    fair = {name for name in expected if wanted(name) == {settled[name]}
            or np.allclose(settled[name].dequantize(expected[name]), values[name][0], 0, NEAR * settled[name].scale)}
    found = {f"{name} as it is": _beyond(settled[name], values[name][0])
             for name in expected if len(wanted(name)) > 1}
    factors = {layer.factors.name for layer in products[Layers] if layer.factors is not None}
    pairs = zip(products[Layers], scales_of(products).layers, strict=True)
    for number, pair in enumerate(pairs):
        for layer, numbers in _where_rounded(*pair, expected):
            if all(var.name in fair for var in layer.inputs):
                made = _made(products, layer, numbers, scales_of(products).tables.get(pair[0].output.name), expected)
                found |= {f"{number} {layer.name} {name}": np.abs(value - expected[name])
                          for name, value in made.items() if name in expected}
                expected |= {name: value for name, value in made.items() if name in factors}  # which no file has
                fair |= made.keys() & factors
    return found


def _where_rounded(layer: Layer, numbers: LayerAffineParams,
                   expected: Mapping[str, np.ndarray]) -> list[tuple[Layer, LayerAffineParams]]:
    """A layer as several where the file rounds within it: each operator of the file gets equal inputs."""
    looked_up, rounding = layer.translation, layer.rounding
    if looked_up is not None and isinstance(layer.core, Convolution) and looked_up.tensor.name in expected:
        before = Layer(layer.name, layer.core, (Save(looked_up.tensor, layer.first_relu),))
        saves = layer.saves if rounding else tuple(replace(save, relu=False) for save in layer.saves)
        behind = replace(layer, core=Load(looked_up.tensor), saves=saves,
                         rounding=rounding and replace(rounding, relu=False))
        rest = replace(numbers, rescales=(InputQuantization(0, 1), *numbers.rescales),
                       requantizations=(unchanged_bytes(layer.output.channels), *numbers.requantizations[1:]))
        return [(before, replace(numbers, rescales=(), requantizations=numbers.requantizations[:1], rounded=False)),
                *_where_rounded(behind, rest, expected)]
    if rounding is None or rounding.tensor.name not in expected:
        return [(layer, numbers)]
    before = Layer(layer.name, layer.core, (Save(rounding.tensor, rounding.relu),), layer.translation)
    saved = int(layer.saves[0].var == rounding.tensor)  # for others too: none reads what it makes
    behind = replace(layer, core=Load(rounding.tensor), saves=layer.saves[saved:], translation=None, rounding=None)
    loaded = int(isinstance(layer.core, Load))
    return [(before,
             replace(numbers, rescales=numbers.rescales[:loaded], requantizations=numbers.requantizations[:1],
                     rounded=False)),
            (behind,
             replace(numbers, rescales=numbers.rescales[loaded:], requantizations=numbers.requantizations[1 + saved:],
                             rounded=False))]


def _beyond(scale: TensorScale, values: np.ndarray) -> np.ndarray:
    """By how many steps a scale is too narrow, rounded, for each value for which it is by one or more."""
    steps = np.rint(np.abs(np.clip(values, scale.low, scale.high) - values) / scale.scale).astype(np.int64)
    return steps[steps > 0]


def _wanted(graph: Graph, values: Mapping[str, np.ndarray]) -> Callable[[str], set[TensorScale | None]]:
    """Of a tensor the scales that readers round it to, or what is made of it that rounding before it leaves the same;
    None among them for who computes on it."""
    consumers = graph.consumers()

    def is_half(node: Node) -> bool:
        """Whether a sum has but one term in every element, as a PRelu's: above 0 or below."""
        return (node.op == "Add" and all(name in values for name in node.inputs)
                and not np.logical_and(*(values[name] for name in node.inputs)).any())

    def wanted(name: str) -> set[TensorScale | None]:
        found: list[set[TensorScale | None]] = [
            wanted(node.output) if node.op in (*COPIES, "Relu") or is_half(node) else
            {scale_of(node) if node.op == FAKE_QUANTIZE else None} for node in consumers.get(name, [])]
        return set().union(*found)

    return wanted


def _with_held_weights(graph: Graph, products: Products) -> Graph:
    """The graph with the machine's weights, the nearest of their scale, where the file has real numbers."""
    constants = {}
    for layer, numbers in zip(products[Layers], scales_of(products).layers, strict=True):
        if not isinstance(layer.core, Convolution) or numbers.again is not None:
            continue
        name, weights = layer.core.weights, products[Graph].constants[layer.core.weights]
        steps = numbers.weight_scales.reshape(-1, 1, 1, 1)
        held = numbers.weights(weights) * steps
        off = (np.abs(held - weights) / steps).max()
        if name in graph.constants and NEAR < off <= 0.5 + NEAR:
            constants[name] = held.astype(np.float32)
    return graph.with_nodes(graph.nodes, constants)


def _made(products: Products, layer: Layer, numbers: LayerAffineParams, table: tuple[int, ...] | None,
          expected: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a layer that reads what is expected."""
    tensors = Tensors(products[Graph], products[Arch], np.int64)
    for var in layer.inputs:
        tensors.write(var, expected[var.name])
    _run(products, layer, numbers, table, tensors)
    return {var.name: tensors.read(var) for var in layer.outputs}


def together(found: Iterable[Differences]) -> np.ndarray:
    """Of all layers and samples."""
    entries = [entry.ravel() for one in found for entry in one.values()]
    return np.concatenate(entries) if entries else np.zeros(0, np.int64)


def insist(found: Iterable[Differences]) -> None:
    """Each byte off by one at most, and LEAST_EQUAL of them equal."""
    entries = together(found)
    assert len(entries) and entries.max() <= 1
    assert (entries == 0).mean() >= LEAST_EQUAL
