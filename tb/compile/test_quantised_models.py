"""Quantised networks of the field: every layer gives the bytes that onnxruntime gives, of the same inputs."""

from __future__ import annotations

import numpy as np

from weft.cli.check.evaluate import Tensors
from weft.cli.check.integers import quantised
from weft.cli.check.scaled import Scaled
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.layers.hir import Layers, Var
from weft.compiler.passes.index import feed
from weft.compiler.products import Products, Step
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.scales import Scales
from weft.hw.contract.arch import Arch
from weft.runtime.onnx_engine import run_model

ARCH = Arch.load("pynq").replace(data_type="INT8", accumulator_width=None, lut_count=1, lut_depth=256,
                                 simd_registers_depth=2)
LEAST_EQUAL = 0.999
"""Of a layer's bytes, given equal inputs; no other may be off by more than one."""


class Watch:
    """The graph while it still rounds as the file says, and what all steps left."""

    def __init__(self) -> None:
        self.products: Products
        self.rounding: Graph

    def after(self, step: Step, products: Products) -> None:
        self.products = products
        if step.name == "fold_forward":
            self.rounding = products[Graph]


def layer_differences(watch: Watch, sample: dict[str, np.ndarray]) -> dict[str, tuple[float, int]]:
    """By layer: the share of equal bytes, and the largest difference, where each reads what onnxruntime made."""
    graph, numbers, layers = watch.products[Graph], watch.products[Numbers], watch.products[Layers]
    arch = watch.products[Arch]
    assert isinstance(numbers, Scales)
    known = [node.output for node in watch.rounding.nodes]
    made = {**run_model(to_onnx(watch.rounding, known), feed(watch.rounding, sample)), **feed(graph, sample)}

    def true_bytes(var: Var) -> np.ndarray:
        return numbers.tensor(var.root, arch).quantize(made[var.name][0])

    found = {}
    integers = quantised(layers, graph.constants, numbers, arch)
    for number, layer in enumerate(layers):
        if not {var.name for var in (*layer.inputs, *layer.outputs)} <= made.keys():
            continue
        tensors = Tensors(graph, arch, np.int64)
        for var in layer.inputs:
            tensors.write(var, true_bytes(var))
        alone = Scales(numbers.vars, numbers.layers[number:number + 1], numbers.tables)
        Scaled(arch, alone, integers[number:number + 1]).run([layer], tensors)
        differences = np.abs(tensors.read(layer.output) - true_bytes(layer.output))
        found[layer.name] = float((differences == 0).mean()), int(differences.max())
    return found
