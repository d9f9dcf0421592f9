# SPDX-License-Identifier: Apache-2.0
"""Layers of bytes with scales: from the layers to the program on the golden machine nothing changes the result,
whatever the scales are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.compiler import lir, steps
from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.runners import RUNNERS
from weft.compiler.choices import FORMULA, Choices
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.reader import read_model
from weft.compiler.layers.build import build_layers
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Convolution, Load
from weft.compiler.layers.var import Var
from weft.compiler.layers.verifier import verify_layers
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.passes.order import in_order
from weft.compiler.passes.quantization import Quantization
from weft.compiler.passes.scale_channels import scale_channels
from weft.compiler.pipeline import STEPS
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.scales import (
    AffineParams,
    InputQuantization,
    LayerAffineParams,
    OutputQuantization,
    unchanged_bytes,
    with_activation_tables,
)
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.registers import Register
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tmodel.scales import TensorScale

ROOMY = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)
ARCHS = {"roomy": ROOMY, "2 lanes": ROOMY.replace(array_size=2, local_depth=600, accumulator_depth=40, lut_count=2,
                                                  simd_registers_depth=3, simd_loop_depth=0),
         "3 lanes": ROOMY.replace(array_size=3, local_depth=300, accumulator_depth=30, accumulator_width=24),
         "activation tables": ROOMY.replace(activation_tables=8),
         "one table, none of SIMD": ROOMY.replace(array_size=3, local_depth=300, accumulator_depth=30, lut_count=0,
                                                  lut_depth=8, activation_tables=1)}
TABLES = ARCHS["activation tables"]
AFTER_NUMBERS = STEPS[[step.name for step in STEPS].index("consts"):]
SHAPE = (1, 12, 9, 8)


# -- networks ----------------------------------------------------------------------------------------------------------
def convolutions(maker: ModelMaker) -> None:
    """Strides, padding on all taps, groups, a single output channel in the last tile."""
    first = maker.node("Relu", maker.conv("x", 12, 9, (3, 3), pads=(1, 1, 1, 1), strides=(2, 1)))
    deep = maker.conv(first, 9, 9, (3, 3), group=9, pads=(1, 1, 1, 1))
    maker.conv(maker.conv(deep, 9, 17, (1, 1)), 17, 4, (2, 2), dilations=(2, 2), pads=(2, 2, 2, 2))


def residual(maker: ModelMaker) -> None:
    left = maker.conv("x", 12, 12, (3, 3), pads=(1, 1, 1, 1))
    total = maker.node("Relu", maker.node("Add", maker.node("Add", left, "x"), maker.conv("x", 12, 12, (1, 1))))
    maker.node("GlobalAveragePool", maker.node("MaxPool", total, kernel_shape=(3, 3), strides=(2, 2),
                                               pads=(1, 1, 0, 0)))


def preactivated(maker: ModelMaker) -> None:
    """Blocks that begin with a normalisation of the sum, which goes on as it is too; the last sum does not."""
    total = maker.conv("x", 12, 7, (1, 1))
    for _ in range(2):
        inner = maker.node("Relu", maker.conv(total, 7, 7, (3, 3), pads=(1, 1, 1, 1)))
        total = maker.node("Add", total, inner)
        normal = maker.node("BatchNormalization", total, *(maker.constant(np.full(7, value, np.float32))
                                                           for value in (0.7, -0.2, 0.1, 1.5)))
        total = maker.node("Add", maker.conv(maker.node("Relu", normal), 7, 7, (1, 1)), total)
    last = maker.node("BatchNormalization", total, *(maker.constant(np.full(7, value, np.float32))
                                                     for value in (0.5, 0.2, 0.1, 1.5)))
    maker.conv(last, 7, 3, (1, 1))


def parts(maker: ModelMaker) -> None:
    pooled = maker.node("MaxPool", maker.conv("x", 12, 5, (1, 1)), kernel_shape=(2, 2), strides=(1, 1))
    other = maker.node("Relu", maker.conv("x", 12, 7, (2, 2)))
    joined = maker.node("Concat", pooled, other, axis=1)
    larger = maker.node("Resize", joined, "", maker.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                        coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    maker.node("AveragePool", larger, kernel_shape=(3, 3), strides=(2, 2))


def functions(maker: ModelMaker) -> None:
    bent = maker.node("LeakyRelu", maker.conv("x", 12, 6, (3, 3)), alpha=0.2)
    maker.conv(maker.node("Tanh", bent), 6, 5, (1, 1))


def pooled_functions(maker: ModelMaker) -> None:
    """Max pools of functions, of one that others read too, and of one that a pool alone reads."""
    halves = {"kernel_shape": (2, 2), "strides": (2, 2)}
    bent = maker.node("LeakyRelu", maker.conv("x", 12, 7, (2, 1)), alpha=0.2)
    pooled = maker.node("MaxPool", bent, **halves)
    again = maker.node("MaxPool", maker.node("LeakyRelu", maker.conv(bent, 7, 5, (1, 1)), alpha=0.4), **halves)
    maker.node("Concat", maker.conv(again, 5, 4, (1, 1)), maker.conv(pooled, 7, 4, (1, 1)), axis=1)


def translated(maker: ModelMaker) -> None:
    """Functions of what others read too, behind a sum, behind each other, before a sum, and of the network's input;
    more of them than a machine may have tables."""
    before = maker.conv("x", 12, 7, (3, 3), pads=(1, 1, 1, 1))
    total = maker.node("Add", maker.node("Tanh", before), before)
    bent = maker.node("LeakyRelu", total, alpha=0.3)
    twice = maker.node("Sigmoid", maker.node("LeakyRelu", maker.conv(bent, 7, 12, (1, 1)), alpha=0.2))
    inner = maker.node("LeakyRelu", maker.node("Relu", maker.conv("x", 12, 12, (1, 1))), alpha=0.1)
    both = maker.node("Add", maker.node("Add", inner, twice), maker.node("Tanh", "x"))
    pooled = maker.node("MaxPool", maker.node("Tanh", maker.conv(both, 12, 5, (1, 1))), kernel_shape=(3, 3),
                        strides=(1, 1))
    maker.conv(pooled, 5, 3, (1, 1))


def matrices(maker: ModelMaker) -> None:
    flat = maker.node("Flatten", maker.node("MaxPool", "x", kernel_shape=(3, 3), strides=(3, 3)))
    maker.node("Gemm", maker.node("Relu", maker.node("Gemm", flat, maker.normal(72, 11), maker.normal(11))),
               maker.normal(11, 3))


def gates(maker: ModelMaker) -> None:
    """Channels times a number each: one gate for two tensors of 12 channels, the last tile of 17 with unused lanes."""
    inner = maker.conv("x", 12, 12, (1, 1))
    gate = maker.node("Sigmoid", maker.conv(maker.node("GlobalAveragePool", inner), 12, 12, (1, 1)))
    both = maker.node("Add", maker.node("Mul", gate, inner), maker.node("Relu", maker.node("Mul", "x", gate)))
    wide = maker.conv(both, 12, 17, (1, 1))
    maker.node("Mul", wide, maker.node("Sigmoid", maker.node("GlobalAveragePool", wide)))


NETWORKS = (convolutions, residual, preactivated, parts, functions, pooled_functions, translated, matrices,
            gates)


# -- scales ------------------------------------------------------------------------------------------------------------
class RandomScales:
    """Legal numbers without a meaning; results spread over their bytes. What a max pool reads and makes has one
    zero."""

    def __init__(self, layers: Sequence[Layer], graph: Graph, seed: int, activation_tables: int) -> None:
        self.random = np.random.default_rng(seed)
        roots = dict.fromkeys(var.root for layer in layers for var in layer.vars)
        zeros = {root: self.integer(-128, 128) for root in roots}
        for layer in [layer for layer in layers if layer.pool for _ in layers]:  # until they all agree
            zeros[layer.output.root] = zeros[pooled(layer).root]
        self.factors = {layer.factors.root for layer in layers if layer.factors is not None}
        zeros |= dict.fromkeys(self.factors, 0)  # what is beside the multiplier is 0
        self.graph, self.vars = graph, {root: TensorScale(0.01, zero) for root, zero in zeros.items()}
        for layer in layers:
            assert not layer.pool or self.vars[layer.output.root] == self.vars[pooled(layer).root]
        self.tables: dict[str, tuple[int, ...]] = {}
        made = tuple(map(self._layer, layers))
        if activation_tables:
            made = with_activation_tables(layers, made, self.tables, activation_tables)
        self.scales = AffineParams(self.vars, made, self.tables)

    def integer(self, low: int, end: int) -> int:
        return int(self.random.integers(low, end))

    def _layer(self, layer: Layer) -> LayerAffineParams:
        channels, source = layer.output.channels, self.vars[layer.core.input.root]
        if layer.function:
            table = self.random.integers(-128, 128, 256)
            table[self.vars[layer.argument.root].zero + 128] = self.vars[layer.value.root].zero
            self.tables[layer.output.name] = tuple(table.tolist())
        factor = self.integer(1, 1 << 12) if layer.adds else 1
        enters = tuple(InputQuantization(self.vars[var.root].zero, factor)
                       for var in (layer.loaded, *(add.input for add in layer.adds)))
        saves = [self._leave(save.var, 150.0 * factor, biased=save.scale is not None) for save in layer.saves]
        if layer.factors is not None:
            nothing = np.zeros(0, np.int64)
            enters = (InputQuantization(self.vars[layer.core.input.root].zero, self.integer(1 << 12, 1 << 16)),)
            saves = [OutputQuantization(20, nothing, nothing, self.vars[layer.output.root].zero)]
        if layer.pool or layer.lookup or (layer.translation and isinstance(layer.core, Load)):
            enters, saves = (InputQuantization(0, 1),), [unchanged_bytes(channels)] * len(layer.saves)
        if not isinstance(layer.core, Convolution):
            return LayerAffineParams(0, np.ones(channels), enters, tuple(saves))
        values = self.graph.constants[layer.core.weights]
        weights = np.abs(values).reshape(channels, -1).max(1) / 127 + 1e-9
        first = self._leave(layer.first, 7500 * values[0].size ** 0.5, biased=layer.output.root not in self.factors)
        return LayerAffineParams(source.zero, weights, enters if layer.rounding else (),
                           (first, *saves) if layer.rounding else (first,), layer.rounding is not None)

    def _leave(self, var: Var, spread: float, *, biased: bool = True) -> OutputQuantization:
        """Of accumulators that go as far as ``spread``."""
        biases = self.random.integers(-int(spread), int(spread) + 1, var.channels)
        return OutputQuantization(17 + int(np.log2(spread / 100)), self.random.integers(1 << 15, 1 << 17, var.channels),
                     biases * biased, self.vars[var.root].zero)


def pooled(layer: Layer) -> Var:
    """What its max pool reads: of a function the first that is saved."""
    return layer.outputs[0] if layer.lookup else layer.loaded


def compiled(network: Callable[[ModelMaker], None], arch: Arch, folder: Path, seed: int = 1) -> Products:
    """Its products, with random scales."""
    maker = ModelMaker(SHAPE)
    network(maker)
    path = maker.save(folder / "model.onnx")
    graph = in_order(steps.canonical(steps.supported(read_model(path), arch), arch))
    graph = scale_channels(graph, Quantization(), arch)
    layers = build_layers(graph, arch)
    verify_layers(layers, [port.tensor for port in graph.inputs])
    products = Products({Request: Request(path), Arch: arch, Choices: FORMULA, Graph: graph, Layers: layers,
                         Numbers: RandomScales(layers, graph, seed, arch.activation_tables).scales})
    for step in AFTER_NUMBERS:
        products = step.run(products)
    return products


# -- tests -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ARCHS)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_the_machine_computes_what_layers_mean(network: Callable[[ModelMaker], None], name: str,
                                               tmp_path: Path) -> None:
    products = compiled(network, ARCHS[name], tmp_path)
    sample = {"x": np.random.default_rng(2).normal(0, 1, SHAPE).astype(np.float32)}
    wanted, *found = (RUNNERS[kind].run(products, sample) for kind in (Numbers, Consts, MemoryPlan, Schedule,
                                                                       MachineCode))
    for made in found:
        assert made.keys() == wanted.keys()
        for key, value in wanted.items():
            assert len(np.unique(value)) > min(value.size, 8) // 2  # values that tell something
            np.testing.assert_array_equal(value, made[key])


def test_layers_go_on_only_where_no_bits_are_lost(tmp_path: Path) -> None:
    kinds = [layer.kind for layer in compiled(residual, ROOMY, tmp_path)[Layers]]
    assert kinds == ["mat_mul", "mat_mul+round+add+add+relu", "load+max_pool", "mat_mul"]
    assert compiled(parts, ROOMY, tmp_path)[Layers][0].kind == "mat_mul+round+max_pool"
    assert [layer.kind for layer in compiled(preactivated, ROOMY, tmp_path)[Layers]] == [
        "mat_mul", "mat_mul+relu+round+add+save+scale+relu", "mat_mul+round+add",
        "mat_mul+relu+round+add+save+scale+relu", "mat_mul+round+add+scale", "mat_mul"]
    assert [layer.kind for layer in compiled(functions, ROOMY, tmp_path)[Layers]] == [
        "mat_mul+round+lookup", "load+lookup", "mat_mul"]
    assert [layer.kind for layer in compiled(pooled_functions, ROOMY, tmp_path)[Layers]] == [
        "mat_mul+round+lookup+save+max_pool", "mat_mul+round+lookup+max_pool", "mat_mul", "mat_mul"]


def test_functions_are_looked_up_on_the_way_out_where_there_are_tables(tmp_path: Path) -> None:
    for arch in (TABLES, TABLES.replace(lut_count=0)):
        assert [layer.kind for layer in compiled(functions, arch, tmp_path)[Layers]] == [
            "mat_mul+translate", "load+translate", "mat_mul"]
        assert [layer.kind for layer in compiled(pooled_functions, arch, tmp_path)[Layers]] == [
            "mat_mul+translate+round+save+max_pool", "mat_mul+translate+round+max_pool", "mat_mul", "mat_mul"]
    assert [layer.kind for layer in compiled(translated, TABLES, tmp_path)[Layers]] == [
        "mat_mul", "load+translate", "load+add", "load+translate", "mat_mul+translate", "mat_mul+translate", "mat_mul",
        "load+translate", "mat_mul+relu+translate+round+add+add", "mat_mul+translate", "load+max_pool", "mat_mul"]


def test_a_table_is_loaded_once_where_there_is_room_for_all(tmp_path: Path) -> None:
    """Two layers may share one; where there is one place, each loads its own unless the one before has left it."""
    content = {"a": (1,) * 256, "b": (2,) * 256, "c": (1,) * 256}
    layers = [layer for layer in compiled(translated, TABLES, tmp_path)[Layers] if layer.translation][:3]
    own = LayerAffineParams(0, np.ones(1), (), (unchanged_bytes(1),))
    for count, wanted in ((1, [(1, True), (1, True), (1, True)]), (2, [(1, True), (2, True), (1, False)])):
        tables = dict(zip([layer.output.name for layer in layers], content.values(), strict=True))
        found = with_activation_tables(layers, [own] * 3, tables, count)
        assert [(each.activation_table, each.loads_table) for each in found] == wanted
    assert found[0].registers.requantizations[0][-1] == (Register.ACTIVATION_TABLE, 1)


def test_nothing_leaves_by_a_table_that_is_not_loaded(tmp_path: Path) -> None:
    products = compiled(functions, TABLES, tmp_path)
    operations = [entry for entry in products[Schedule].operations if not isinstance(entry, lir.LoadActivationTable)]
    assert len(operations) < len(products[Schedule].operations)
    with pytest.raises(Exception, match="by a table that nothing loaded"):
        steps.check_schedule(products[Graph], products[Consts], products[MemoryPlan],
                             Schedule.of(tuple(operations), np.zeros(len(operations), int)), TABLES)


@pytest.mark.parametrize(("before", "after", "joined"), [
    (None, None, True), (None, (0.1, 3), True), ((0.1, 3), (0.1, 3), True), ((0.1, 3), (0.1, 4), False),
    ((0.1, 3), (0.2, 3), False), ((0.1, 3), None, False)])
def test_a_relu_goes_on_over_a_tensor_of_its_own_scale(before: tuple[float, int] | None,
                                                       after: tuple[float, int] | None, joined: bool,
                                                       tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    maker.node("Relu", maker.conv("x", 12, 5, (1, 1)))
    graph = steps.canonical(read_model(maker.save(tmp_path / "model.onnx")), ROOMY)
    names = [node.output for node in graph.nodes]
    scales = {name: TensorScale(*given) for name, given in zip(names, (before, after), strict=True) if given}
    layers = build_layers(graph, ROOMY, scales)
    assert len(layers) == 2 - joined and isinstance(layers[-1].core, Convolution if joined else Load)
    assert layers[-1].saves[-1].relu


def test_a_sum_that_is_rounded_is_not_joined(tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    total = maker.node("Add", "x", maker.conv("x", 12, 12, (1, 1)))
    maker.node("Add", total, maker.conv("x", 12, 12, (1, 1)))
    graph = steps.canonical(read_model(maker.save(tmp_path / "model.onnx")), ROOMY)
    inner = next(node.output for node in graph.nodes if node.op == "Add")
    for scales, wanted in (({}, [2]), ({inner: TensorScale(1.0, 0)}, [1, 1])):
        assert [len(layer.adds) for layer in build_layers(graph, ROOMY, scales) if layer.adds] == wanted


@pytest.mark.parametrize(("factors", "leaves"), [
    ((1.0, 256.0), True), ((1.0, 257.0), False), ((1.0, 0.0), False), ((-1.0, -2.0), False),
    ((0.0, 0.0), False)])
def test_a_sum_leaves_twice_by_factors_that_share_a_shift(factors: tuple[float, float], leaves: bool,
                                                          tmp_path: Path) -> None:
    """All above 0, for a ReLU in bytes is a limit, and no further apart than their bits allow."""
    maker = ModelMaker(SHAPE)
    total = maker.node("Add", "x", maker.conv("x", 12, 12, (1, 1)))
    weights = np.resize(np.array(factors, np.float32), (12, 1, 1, 1))
    maker.node("Conv", total, maker.constant(weights), maker.normal(12), group=12)
    graph = steps.canonical(read_model(maker.save(tmp_path / "model.onnx", total, maker.nodes[-1].output[0])), ROOMY)
    kinds = [layer.kind for layer in build_layers(graph, ROOMY, {})]
    assert kinds == (["mat_mul+round+add+save+scale"] if leaves else ["mat_mul+round+add", "mat_mul"])


def test_one_scale_for_all_tiles_is_stored_and_loaded_once(tmp_path: Path) -> None:
    """The residual sum of 12 channels on 2 lanes: six tiles of random multipliers, of a max pool all of ones."""
    products = compiled(residual, ARCHS["2 lanes"], tmp_path)
    places = {layer.kind: own.scales for layer, own in zip(products[Layers], products[Consts].layers, strict=True)}
    assert places["load+max_pool"] == (0,) * 6
    assert places["mat_mul+round+add+add+relu"] == (0, 14, 28, 42, 56, 70)


def test_products_of_computed_tensors_are_refused(tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    maker.node("Mul", maker.conv("x", 12, 12, (1, 1)), "x")
    path = maker.save(tmp_path / "model.onnx")
    with pytest.raises(CompileError, match="operator Mul, two computed .* INT8.*fixed point.*FP16BP8, or"):
        build_layers(steps.canonical(read_model(path), ROOMY), ROOMY)


def test_a_table_has_a_value_for_every_byte(tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    maker.node("Tanh", maker.conv("x", 12, 12, (1, 1)))
    path = maker.save(tmp_path / "model.onnx")
    for arch in (ROOMY.replace(lut_depth=128), ROOMY.replace(lut_count=0)):
        with pytest.raises(CompileError, match="operator Tanh, .*lut_count, lut_depth: .* at least 1, 256"):
            build_layers(steps.canonical(read_model(path), arch), arch)


def test_text_comes_back(tmp_path: Path) -> None:
    several_cores = {lir.Signal}
    for arch, without in ((ROOMY, {lir.LoadActivationTable}), (TABLES, {lir.LoadLut, lir.Simd, lir.SimdLoop})):
        operations = compiled(functions, arch, tmp_path)[Schedule].operations
        assert {type(entry) for entry in operations} == {*lir.OPERATIONS.values()} - without - several_cores
        assert lir.parse_program(lir.program_text(operations)) == [*operations]
    assert any(value < 0 for entry in operations if isinstance(entry, lir.MatMul) for _, value in entry.settings)


def test_nothing_leaves_before_its_scale(tmp_path: Path) -> None:
    products = compiled(convolutions, ROOMY, tmp_path)
    operations = [entry for entry in products[Schedule].operations if not isinstance(entry, lir.LoadScale)]
    with pytest.raises(Exception, match="before a LoadScale"):
        steps.check_schedule(products[Graph], products[Consts], products[MemoryPlan],
                             Schedule.of(tuple(operations), np.zeros(len(operations), int)), ROOMY)
