# SPDX-License-Identifier: Apache-2.0
"""What keeps noise small that deep networks add up: headroom, partial sums, ends of tables, rounded weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from weft.compiler import steps
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.layers.stages import Convolution, Lookup
from weft.compiler.layers.var import Var
from weft.compiler.lowering.functions import FUNCTION, of_steps, real_function
from weft.compiler.lowering.rewrite import NO_WINDOW
from weft.compiler.lowering.rules import SQUARE, Step
from weft.compiler.passes.normalise import OPSET
from weft.compiler.passes.scale_functions import scale_functions
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.calibrate import calibrate
from weft.compiler.quantize.points import added_on_average, rounded_weights, taps_seen
from weft.compiler.quantize.ranges import Calibration, Range, sum_key
from weft.compiler.quantize.samples import Samples
from weft.compiler.quantize.tables import encode_table, make_pieces
from weft.golden import alu
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, run_golden, signal_to_noise
from weft.tb.random.network_rule import TABLES
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import run_model as run_graph
from weft.tmodel.window import Window

ARCH = BASE.replace(**TABLES)
TABLE_ARCH = ARCH.replace(lut_depth=256)
SHAPE = (1, 4, 3, 3)


def compiled(maker: ModelMaker, given: np.ndarray, folder: Path, arch: Arch = ARCH) -> tuple[np.ndarray, np.ndarray]:
    """The only output for each of the inputs, with which it is calibrated too: in real numbers, and of golden."""
    path = maker.save(folder / "model.onnx")
    model = TModel.load(compile_model(path, arch, folder, calibration={"x": given}).model_path)
    exact = [list(run_float(path, {"x": sample[None]}).values()) for sample in given]
    return np.stack(exact), np.stack([list(run_golden(model, {"x": sample}).values()) for sample in given])


# -- headroom ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("peaks", "least"), [
    ((0.0208, 0.0255, 0.0233, 0.0257, 0.0266, 0.0241, 0.0257, 0.0217), 0.0338), ((27.5, 26.9), 43.6)])
def test_room_for_what_came_after_calibration(peaks: tuple[float, ...], least: float) -> None:
    """The last sum of a MobileNetV3 block and a ReLU of a text detector, whose next images saturated."""
    assert Range(-max(peaks), max(peaks), (), peaks=peaks).expected(1.125) >= least


def test_no_room_where_samples_are_alike() -> None:
    assert Range(0, 1, (), peaks=(1.0, 0.99, 1.0, 1.0, 0.99, 1.0)).expected(1.125) == 1.125


# -- partial sums ------------------------------------------------------------------------------------------------------
def test_partial_sums_are_those_of_one_sign() -> None:
    """6 - 5 + 1: no order of these terms goes beyond 7 or -5."""
    weights, bias = np.array([6.0, -5.0], np.float32).reshape(1, 2, 1, 1), np.ones(1, np.float32)
    graph = Graph("sums", (Node("conv", "Conv", ("x", "w", "b"), ("y",), {"kernel_shape": (1, 1), "group": 1,
                                                                           **NO_WINDOW}),),
                  (GraphPort("x", (1, 2, 1, 1), "x"),), (GraphPort("y", (1, 1, 1, 1), "y"),),
                  {"x": (1, 2, 1, 1), "y": (1, 1, 1, 1)}, {"w": weights, "b": bias}, OPSET)
    found = calibrate(graph, Samples({"x": np.ones((1, 2, 1, 1), np.float32)}, (0,), False))
    assert isinstance(found, Calibration)
    assert found.sums == {sum_key("x", "w"): pytest.approx(7)}


# -- ends of tables ----------------------------------------------------------------------------------------------------
HARD_SWISH: tuple[Step, ...] = (("Add", (0, 3.0), ()), ("Max", (1, 0.0), ()), ("Min", (2, 6.0), ()),
                                ("Mul", (0, 3), ()))


def behind(steps: tuple[Step, ...], *readers: Node) -> Graph:
    """A function of a convolution of 4 channels, and what reads it; the last of these is the output."""
    function = Node("function", FUNCTION, ("c",), ("f",), dict(of_steps((*HARD_SWISH, *steps), "any")))
    names = [reader.output for reader in readers] or ["f"]
    constants = {"w": np.full((4, 4, 1, 1), 0.5, np.float32), "b": np.ones(4, np.float32)}
    return Graph("tables", (conv("x", "c"), function, *readers), (GraphPort("x", SHAPE, "x"),),
                 (GraphPort("out", SHAPE, names[-1]),), dict.fromkeys(["x", "c", "f", *names], SHAPE), constants, OPSET)


def conv(source: str, name: str) -> Node:
    return Node(name, "Conv", (source, "w", "b"), (name,), {"kernel_shape": (1, 1), "group": 1, **NO_WINDOW})


def scaled(graph: Graph, magnitude: float = 1.0) -> Graph:
    """Where all tensors need room for ``magnitude``."""
    return scale_functions(graph, 16, lambda _, names: dict.fromkeys(names, (magnitude, 0.1)))


def slopes(graph: Graph) -> np.ndarray:
    """Of the function, far from 0 on either side."""
    function = next(node for node in graph.nodes if node.op == FUNCTION)
    return np.diff(real_function(FUNCTION, of_steps(function.attributes["steps"], "any"), OPSET)(
        np.array([-200.0, -100.0, 100.0, 200.0])))[::2] / 100


SIXTH: tuple[Step, ...] = (("Div", (4, 6.0), ()),)


@pytest.mark.parametrize("factor", [0.633, -0.24, 5.3])
def test_convolutions_take_the_rest_of_a_slope(factor: float) -> None:
    before = behind((*SIXTH, ("Mul", (5, factor), ()), ("Add", (6, 0.3), ())), conv("f", "y"))
    found = scaled(before)
    power = math.log2(slopes(found)[1])
    assert slopes(found)[0] == pytest.approx(0, abs=1e-6) and power == pytest.approx(round(power), abs=1e-4)
    assert_same(before, found)


@pytest.mark.parametrize(("magnitude", "factor"), [(1.0, 1.0), (1.1, 2 ** (-3 / 16)), (0.9, 2 ** (2 / 16))])
def test_ranges_are_filled(magnitude: float, factor: float) -> None:
    """The convolution before makes numbers that come just below a power of two; those behind take it back."""
    before = behind(SIXTH, conv("f", "y"))
    found = scaled(before, magnitude)
    assert found.constants[found.nodes[0].input(1)][0, 0, 0, 0] == pytest.approx(factor / 2)
    assert_same(before, found)


def test_a_gate_between_passes_the_rest_on() -> None:
    before = behind((("Mul", (4, 0.1), ()),), Node("gate", "Mul", ("f", "x"), ("g",), {}), conv("f", "z"),
                    conv("g", "y"))
    found = scaled(before)
    assert found.nodes[-1].input(1) != "w" != found.nodes[-2].input(1)
    assert_same(before, found)


def test_what_others_read_is_not_scaled() -> None:
    """The function's argument is the network's output too."""
    before = behind((("Mul", (4, 0.1), ()),), conv("f", "z"), conv("z", "y"),
                    Node("sum", "Add", ("y", "c"), ("s",), {}))
    found = scaled(before, 1.1)
    assert found.nodes[0].inputs == ("x", "w", "b") and found.nodes[2].input(1) != "w"
    assert_same(before, found)


@pytest.mark.parametrize("readers", [[Node("sum", "Add", ("f", "x"), ("y",), {})], [conv("f", "y"), Node(
    "square", "Mul", ("f", "f"), ("z",), {})], []])
def test_other_readers_keep_a_function_as_it_is(readers: list[Node]) -> None:
    graph = behind((("Mul", (4, 0.1), ()),), *readers)
    assert scaled(graph) is graph


@pytest.mark.parametrize("steps", [(("Sigmoid", (4,), ()), ("Mul", (5, 0.3), ())),
                                   (("Mul", (4, 4), ()), ("Mul", (5, 0.3), ()))])
def test_functions_without_such_a_line_stay(steps: tuple[Step, ...]) -> None:
    """Of slopes that are 0, or grow."""
    graph = behind(steps, conv("f", "y"))
    assert scaled(graph) is graph


def assert_same(before: Graph, found: Graph) -> None:
    """They compute the same."""
    given = {"x": np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32) * 4}
    (wanted, made) = (list(run_graph(to_onnx(graph), given).values())[0] for graph in (before, found))
    assert made == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_a_scaled_hard_swish_of_a_wide_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few arguments lie far out, all others where the function bends."""
    maker = ModelMaker((1, 4, 9, 9), opset=14)
    swish = maker.node("HardSwish", "x")
    moved = maker.node("Add", maker.node("Mul", swish, maker.constant(np.float32(0.633))),
                       maker.constant(np.float32(0.3)))
    maker.node("Conv", moved, maker.constant(np.eye(4, dtype=np.float32)[..., None, None]), kernel_shape=(1, 1))
    given = np.random.default_rng(1).standard_normal((4, 4, 9, 9)).astype(np.float32)
    given[:, 0, 0, 0] = 60, 61, -60, -61
    found = []
    for _ in range(2):
        exact, made = compiled(maker, given, tmp_path)
        bend = np.abs(exact) < 10
        found.append(signal_to_noise(exact[bend], made[bend]))
        monkeypatch.setattr(steps, "scale_functions", lambda graph, width, measure: graph)
    assert found[0] > found[1] + 3


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("later", [0.51, 0.8, 1.557, 2.1])
def test_a_reciprocal_beyond_what_was_seen(later: float, sign: int) -> None:
    """The sum of a softmax that was nearly sure of all samples, and is not of the next one; a smaller variance."""
    low, high = sorted((sign * 1.0, sign * 1.09))
    seen, later = Range(low, high, (), peaks=(1.0, 1.09, 1.01)), sign * later
    pieces = make_pieces("layer", Lookup("Reciprocal", (), "x"), seen, 13, TABLE_ARCH, OPSET)
    keys = (pieces.first + (np.arange(256) << pieces.spacing_log2)) * 2.0 ** -13
    nearest = np.abs(keys - later).argmin()
    assert pieces.values[nearest] + pieces.slopes[nearest] * (later - keys[nearest]) == pytest.approx(1 / later, 1e-3)
    assert pieces.error < 2 ** -15


def test_rounded_squares_are_right_on_average() -> None:
    """All values of this table have one fraction, a quarter of a step: rounded alone, the mean is 1.7 % too small."""
    square = Lookup(FUNCTION, of_steps(SQUARE, "keeps_zero"), "x")
    pieces = make_pieces("layer", square, Range(-0.7, 0.7, (), peaks=(0.7,) * 9), 15, TABLE_ARCH, OPSET)
    table = np.array(encode_table(pieces, 15, 15, TABLE_ARCH))[..., None]
    arguments = np.rint(np.random.default_rng(5).normal(0, 0.0172, (100000, 1)) * 2.0 ** 15).astype(np.int64)
    distance, height, slope = alu.lookup(TABLE_ARCH.number, table, arguments)[:3]
    squares = TABLE_ARCH.number.multiply(distance, slope) + height
    assert np.mean(squares) * 2.0 ** 15 == pytest.approx(np.mean(arguments ** 2), rel=1e-2)


# -- rounded weights ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", [1, 2])
def test_what_rounding_adds_on_average(group: int) -> None:
    random = np.random.default_rng(2)
    errors, pixels = random.standard_normal((6, 4 // group, 2, 3)), random.standard_normal((4, 50))
    wanted = [sum(errors[out, channel].sum() * pixels[out * group // 6 * (4 // group) + channel].mean()
                  for channel in range(4 // group)) for out in range(6)]
    assert added_on_average(errors, group, pixels.mean(1)) == pytest.approx(np.array(wanted))


@pytest.mark.parametrize(("width", "kernel", "stride", "pad", "dilation", "wanted"), [
    (8, 3, 1, 1, 1, [1, 1, 1]), (7, 3, 2, 1, 1, [1, 1, 1]), (1, 3, 1, 1, 1, [0, 1, 0]), (2, 3, 1, 1, 1, [.5, 1, .5]),
    (1, 4, 1, 3, 1, [.25] * 4), (3, 2, 1, 4, 4, [.5, .5]), (1, 1, 1, 0, 1, [1])])
def test_taps_that_read_padding_count_less(width: int, kernel: int, stride: int, pad: int, dilation: int,
                                           wanted: list[float]) -> None:
    pixels = (width + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    window = Window((2, kernel), (1, stride), (0, pad), (1, dilation))
    core = Convolution(Var("x", 1, 5, width), "w", "b", 1, window, (4, pixels), 0)
    assert taps_seen(core) == pytest.approx(np.array([wanted, wanted]))


@pytest.mark.parametrize("data_type", ["FP16BP8", "INT8"])
def test_a_constant_for_each_column_has_no_error_on_average(data_type: str, tmp_path: Path) -> None:
    """One pixel makes it, with a kernel as large as the image: of 120 taps each pixel of the output sees one."""
    maker = ModelMaker((1, 2, 8, 15))
    maker.node("Add", "x", maker.constant(np.linspace(0.503, 2.9, 15, dtype=np.float32)))
    given = maker.random.standard_normal((4, 2, 8, 15)).astype(np.float32)
    exact, made = compiled(maker, given, tmp_path, BASE.replace(data_type=data_type))
    assert np.abs(made - exact).mean() < 0.02


def test_rounded_weights_add_nothing_on_average(tmp_path: Path) -> None:
    """One weight of 100 leaves the others 8 bits behind the point, and what they read is far from 0."""
    maker = ModelMaker((1, 16, 8, 8))
    weights = maker.random.uniform(-0.01, 0.01, (8, 16, 1, 1)).astype(np.float32)
    weights[0, 0] = 100
    maker.node("Conv", "x", maker.constant(weights), kernel_shape=(1, 1))
    given = maker.random.normal(1, 0.1, (4, 16, 8, 8)).astype(np.float32)
    exact, made = compiled(maker, given, tmp_path)
    assert np.abs((made - exact).mean((0, 1, 2, 4, 5)))[1:].max() < 1e-3


def test_errors_of_a_kernel_add_up_to_nothing() -> None:
    steps = np.random.default_rng(4).uniform(-9, 9, (5, 3, 3, 3))
    found = rounded_weights(steps, ARCH.number)
    assert np.abs((found - steps).sum((2, 3))).max() <= 0.5 and np.abs(found - steps).max() < 1
    assert np.abs((np.rint(steps) - steps).sum((2, 3))).max() > 1
    whole = np.rint(steps) * (steps > 0)
    assert (rounded_weights(whole, ARCH.number) == whole).all()
    assert rounded_weights(np.full((1, 1, 1, 1), 1e6), ARCH.number) == ARCH.number.maximum
