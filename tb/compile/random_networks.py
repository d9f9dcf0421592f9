"""Random small networks, each decided by its seed, and the rule by which one passes on a machine.

A network passes when three things hold:

1. ``weft compile --check`` finds no step that changes the result (``compiler/run/check.py``): graphs on onnxruntime and
   layers in real numbers within single precision; from the layers in fixed point, which ``compiler/run/evaluate.py``
   computes without tiles or instructions, to the program on the golden machine bit for bit.
2. Rounding costs no more than the data type does: over three samples together, 2 dB a bit between onnxruntime and the
   golden machine. (One sample alone may have only values that are small in the range of all.)
3. The same network on the same machine with numbers of 24 bits answers as onnxruntime does to ``WIDE_DECIBELS``: a
   single wrong pixel, which 16 bits might hide in their rounding, is far above that. Value tables have an error of
   their own (straight pieces): there the wide numbers come with tables of ``WIDE_TABLE`` entries, and
   ``TABLE_DECIBELS`` are enough for the network as it is and with wide numbers.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend.onnx_writer import run_model
from weft.compiler.manifest import TModel
from weft.compiler.pipeline import compile_model
from weft.compiler.run.check import DECIBELS_A_BIT, Checker
from weft.compiler.run.errors import Mismatch
from weft.compiler.run.session import RTL, Session
from weft.hw.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, run_golden, signal_to_noise

WIDE, WIDE_DECIBELS = "FP24BP12", 75.0
WIDE_TABLE, TABLE_DECIBELS = 1024, (20.0, 55.0)
TABLE_OPERATORS = ("Sigmoid", "Tanh", "Elu")
SAMPLES = 3
MOST_PIXELS = 400
"""Of any tensor."""

TABLES = {"lut_count": 2, "lut_depth": 64, "simd_registers_depth": 3}
ARCHS: dict[str, Arch] = {
    "lanes2": BASE.replace(array_size=2, local_depth=160, accumulator_depth=40, simd_loop_depth=0),
    "lanes3": BASE.replace(array_size=3, local_depth=700, accumulator_depth=90, stride0_depth=2, stride1_depth=1,
                           **TABLES),
    "lanes8": BASE.replace(dram0_depth=1 << 14, dram1_depth=1 << 14, local_depth=1024, accumulator_depth=256, **TABLES),
    "lanes12": BASE.replace(array_size=12, local_depth=1500, accumulator_depth=100),
}
"""Machines by name: small memories and roomy ones, with and without tables, loops and strides."""

TINY = Arch.load("tiny").replace(dram0_depth=1 << 16, dram1_depth=1 << 16)
SMALL: dict[str, Arch] = {
    "tiny": TINY,
    "small3": TINY.replace(array_size=3, local_depth=64, accumulator_depth=16, **TABLES),
    "small4": TINY.replace(array_size=4, local_depth=64, accumulator_depth=3, accumulator_banks=1, **TABLES),
    "small8": TINY.replace(array_size=8, local_depth=13, accumulator_depth=5, accumulator_banks=1),
}
"""Machines that have to split layers: the preset ``tiny`` behind DRAM in which the networks fit, and odd ones with
little more than a network's smallest tile."""
ARCHS |= SMALL


@dataclass(frozen=True)
class Case:
    """A machine and a seed, which together decide the network."""

    arch: str
    seed: int

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"python scripts/random_networks.py --arch {self.arch} --first {self.seed} --count 1"


# -- the generator -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Tensor:
    """A tensor [1, channels, height, width]."""

    name: str
    channels: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width


class Network:
    """A network in the making: ``tensors`` so far, those still ``unread``, and the seeded ``random``."""

    def __init__(self, case: Case) -> None:
        self.random = np.random.default_rng([case.seed, zlib.crc32(case.arch.encode())])
        channels, height, width = self.integer(1, 14), self.integer(1, 13), self.integer(1, 13)
        self.maker = ModelMaker((1, channels, height, width), case.seed, opset=19)
        self.tensors = [Tensor("x", channels, height, width)]
        self.unread = {"x"}

    def integer(self, low: int, end: int) -> int:
        """low <= number < end."""
        return int(self.random.integers(low, end))

    def maybe(self, chance: float) -> bool:
        return bool(self.random.random() < chance)

    def pick(self) -> Tensor:
        """A tensor to go on from: mostly the newest."""
        return self.tensors[-1] if self.maybe(0.7) else self.tensors[self.integer(0, len(self.tensors))]

    def node(self, op: str, *inputs: Tensor | str, **attributes: object) -> str:
        names = [entry if isinstance(entry, str) else entry.name for entry in inputs]
        self.unread -= set(names)
        return self.maker.node(op, *names, **attributes)

    def made(self, name: str, channels: int, height: int, width: int) -> Tensor:
        tensor = Tensor(name, channels, height, width)
        self.tensors.append(tensor)
        self.unread.add(name)
        return tensor

    def same(self, op: str, source: Tensor, *inputs: str, **attributes: object) -> Tensor:
        """An operator that keeps the shape."""
        return self.made(self.node(op, source, *inputs, **attributes), source.channels, *source.size)

    def ints(self, *values: int) -> str:
        return self.maker.constant(np.array(values, np.int64))

    def floats(self, *values: float) -> str:
        return self.maker.constant(np.array(values, np.float32))

    def scaled(self, fan_in: int, *shape: int) -> str:
        """Weights that keep values near one."""
        values = self.maker.random.standard_normal(shape) / np.sqrt(max(fan_in, 1))
        return self.maker.constant(values.astype(np.float32))

    def conv(self, source: Tensor, channels: int, window: dict[str, tuple[int, ...]], group: int = 1) -> Tensor:
        kernel = window["kernel_shape"]
        per_group = source.channels // group
        inputs = [self.scaled(per_group * kernel[0] * kernel[1], channels, per_group, *kernel)]
        inputs += [self.scaled(4, channels)] if self.maybe(0.7) else []
        return self.made(self.node("Conv", source, *inputs, group=group, **window), channels,
                         *(outputs(source, window, axis) for axis in range(2)))

    def window(self, source: Tensor, most: int = 4, padding: bool = True) -> dict[str, tuple[int, ...]]:
        """Kernel, strides, dilations and pads (each below the kernel's reach) with at least one output pixel."""
        kernel, strides, dilations = ([self.integer(1, end) for _ in range(2)] for end in (most + 1, 4, 3))
        pads = [0, 0, 0, 0]
        for axis, size in enumerate(source.size):
            strides[axis] = 1 if self.maybe(0.5) else strides[axis]
            dilations[axis] = 1 if self.maybe(0.6) else dilations[axis]
            reach = (kernel[axis] - 1) * dilations[axis]
            for side in (axis, axis + 2) if padding and self.maybe(0.6) else ():
                pads[side] = self.integer(0, min(reach, 3) + 1)
            while size + pads[axis] + pads[axis + 2] <= (kernel[axis] - 1) * dilations[axis]:
                kernel[axis] -= 1
            if padding:
                pads[axis], pads[axis + 2] = (min(pads[side], (kernel[axis] - 1) * dilations[axis])
                                              for side in (axis, axis + 2))
        return {"kernel_shape": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations),
                "pads": tuple(pads)}


def outputs(source: Tensor, window: dict[str, tuple[int, ...]], axis: int) -> int:
    pads = window["pads"][axis] + window["pads"][axis + 2]
    reach = (window["kernel_shape"][axis] - 1) * window["dilations"][axis]
    return (source.size[axis] + pads - reach - 1) // window["strides"][axis] + 1


def convolution(net: Network) -> None:
    source = net.pick()
    divisors = [number for number in range(1, source.channels + 1) if source.channels % number == 0]
    group = divisors[net.integer(0, len(divisors))] if net.maybe(0.3) else 1
    net.conv(source, group * net.integer(1, max(2, 14 // group)), net.window(source), group)


def depthwise(net: Network) -> None:
    source = net.pick()
    net.conv(source, source.channels * net.integer(1, 3), net.window(source), source.channels)


def dense_kernel(net: Network) -> None:
    """A kernel as large as the image, or nearly so."""
    source = net.pick()
    kernel = tuple(max(1, size - net.integer(0, 2)) for size in source.size)
    net.conv(source, net.integer(1, 10), {"kernel_shape": kernel, "strides": (1, 1), "dilations": (1, 1),
                                          "pads": (0, 0, 0, 0)})


def transposed(net: Network) -> None:
    source = net.pick()
    kernel, strides = (tuple(net.integer(1, 4) for _ in range(2)) for _ in range(2))
    height, width = ((size - 1) * stride + reach for size, stride, reach in
                     zip(source.size, strides, kernel, strict=True))
    if height * width > MOST_PIXELS:
        return
    channels = net.integer(1, 8)
    weights = net.scaled(source.channels * 2, source.channels, channels, *kernel)
    net.made(net.node("ConvTranspose", source, weights, net.scaled(4, channels), strides=strides), channels, height,
             width)


def like(net: Network, source: Tensor) -> Tensor:
    """Another tensor of the same shape: one that is there, or a convolution of this one."""
    found = [tensor for tensor in net.tensors if (tensor.channels, tensor.size) == (source.channels, source.size)]
    if len(found) > 1 and net.maybe(0.6):
        return found[net.integer(0, len(found))]
    return net.conv(source, source.channels, {"kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1),
                                              "pads": (1, 1, 1, 1)})


def residual(net: Network) -> None:
    source = net.pick()
    other = like(net, source)
    net.made(net.node("Sub" if net.maybe(0.2) else "Add", source, other), source.channels, *source.size)


def product(net: Network) -> None:
    source = net.pick()
    net.made(net.node("Mul", source, like(net, source)), source.channels, *source.size)


def concat(net: Network) -> None:
    source = net.pick()
    axis = net.integer(1, 4) if net.maybe(0.4) else 1
    found = [tensor for tensor in net.tensors
             if axis == 1 and tensor.size == source.size and tensor.name != source.name]
    other = found[net.integer(0, len(found))] if found and net.maybe(0.6) else like(net, source)
    shape = [source.channels, *source.size]
    shape[axis - 1] += (other.channels, *other.size)[axis - 1]
    if shape[1] * shape[2] <= MOST_PIXELS and shape[0] <= 40:
        net.made(net.node("Concat", source, other, axis=axis), *shape)


def split(net: Network) -> None:
    source = net.pick()
    if source.channels < 2:
        return
    first = net.integer(1, source.channels)
    names = [f"split{len(net.maker.nodes)}_{part}" for part in range(2)]
    net.maker.nodes.append(helper.make_node("Split", [source.name, net.ints(first, source.channels - first)], names,
                                            name=names[0], axis=1))
    net.unread.discard(source.name)
    for name, channels in zip(names, (first, source.channels - first), strict=True):
        net.made(name, channels, *source.size)


def cut_out(net: Network) -> None:
    source = net.pick()
    (top, bottom), (left, right) = (sorted((net.integer(0, size + 1), net.integer(0, size + 1)))
                                    for size in source.size)
    bottom, right = (max(end, low + 1) for low, end in ((top, bottom), (left, right)))
    if bottom > source.height or right > source.width:
        return
    net.made(net.node("Slice", source, net.ints(top, left), net.ints(bottom, right), net.ints(2, 3)), source.channels,
             bottom - top, right - left)


def pad(net: Network) -> None:
    source = net.pick()
    top, left, bottom, right = (net.integer(0, 3) for _ in range(4))
    value = [net.maker.constant(np.float32(0.5))] if net.maybe(0.5) else []
    net.made(net.node("Pad", source, net.ints(0, 0, top, left, 0, 0, bottom, right), *value), source.channels,
             source.height + top + bottom, source.width + left + right)


def max_pool(net: Network) -> None:
    _pool(net, "MaxPool")


def average_pool(net: Network) -> None:
    _pool(net, "AveragePool", count_include_pad=net.integer(0, 2))


def _pool(net: Network, op: str, **attributes: int) -> None:
    source = net.pick()
    window = net.window(source)
    window["pads"] = tuple(min(value, size - 1) for value, size in zip(window["pads"], window["kernel_shape"] * 2,
                                                                       strict=True))  # onnxruntime's rule
    shape = tuple(outputs(source, window, axis) for axis in range(2))
    if all(shape[axis] > 0 and _reads_image(source, window, axis, shape[axis]) for axis in range(2)):
        net.made(net.node(op, source, **window, **attributes), source.channels, *shape)


def _reads_image(source: Tensor, window: dict[str, tuple[int, ...]], axis: int, count: int) -> bool:
    """Whether every one of ``count`` windows has a pixel that is no padding."""
    stride, pad, kernel, dilation = (window[key][axis] for key in ("strides", "pads", "kernel_shape", "dilations"))
    return all(any(0 <= output * stride - pad + tap * dilation < source.size[axis] for tap in range(kernel))
               for output in range(count))


def global_pool(net: Network) -> None:
    source = net.pick()
    net.made(net.node("GlobalMaxPool" if net.maybe(0.4) else "GlobalAveragePool", source), source.channels, 1, 1)


def relu(net: Network) -> None:
    net.same("Relu", net.pick())


def clip(net: Network) -> None:
    low, high = (0.0, 0.75) if net.maybe(0.6) else (-0.5, 0.5)
    net.same("Clip", net.pick(), *(net.maker.constant(np.float32(value)) for value in (low, high)))


def leaky(net: Network) -> None:
    net.same("LeakyRelu", net.pick(), alpha=float(net.random.choice([0.1, 0.25, 0.01])))


def slopes(net: Network) -> None:
    source = net.pick()
    net.same("PRelu", source, net.scaled(4, source.channels, 1, 1))


def table(net: Network) -> None:
    net.same(str(net.random.choice(TABLE_OPERATORS)), net.pick())


def scale(net: Network) -> None:
    source = net.pick()
    name = net.same("Mul", source, net.scaled(1, source.channels, 1, 1)) if net.maybe(0.7) else source
    net.same("Add", name, net.scaled(4, *((source.channels, 1, 1) if net.maybe(0.7) else (1,))))


def normalisation(net: Network) -> None:
    source = net.pick()
    variance = net.maker.constant(net.maker.random.uniform(0.5, 2, source.channels).astype(np.float32))
    net.same("BatchNormalization", source, *(net.scaled(1, source.channels) for _ in range(3)), variance)


def resize(net: Network) -> None:
    source = net.pick()
    factors = net.integer(1, 3), net.integer(1, 4)
    height, width = (size * factor for size, factor in zip(source.size, factors, strict=True))
    if height * width > MOST_PIXELS:
        return
    kind = {"mode": "linear"} if net.maybe(0.5) else {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.made(net.node("Resize", source, "", net.floats(1, 1, *factors), **kind), source.channels, height, width)


def shuffle(net: Network) -> None:
    source = net.pick()
    if source.channels % 2 == 0:
        name = net.node("Reshape", source, net.ints(1, 2, source.channels // 2, *source.size))
        name = net.node("Reshape", net.node("Transpose", name, perm=(0, 2, 1, 3, 4)),
                        net.ints(1, source.channels, *source.size))
        net.made(name, source.channels, *source.size)


def hard_swish(net: Network) -> None:
    net.same("HardSwish", net.pick())


OPERATORS: dict[Callable[[Network], None], float] = {
    convolution: 6, depthwise: 2, dense_kernel: 0.5, transposed: 0.7, residual: 2, product: 0.4, concat: 2, split: 1.2,
    cut_out: 0.7, pad: 0.6, max_pool: 2, average_pool: 1.2, global_pool: 0.4, relu: 3, clip: 1, leaky: 1, slopes: 0.6,
    table: 0.8, hard_swish: 0.3, scale: 0.8, normalisation: 1, resize: 0.8, shuffle: 0.6}
"""How often each is taken, relative to the others."""


def generate(case: Case, tables: bool) -> Network:
    """A network of some operators; with ``tables`` there may be functions that need a value table."""
    net = Network(case)
    operators = [operator for operator in OPERATORS if tables or operator is not table]
    chances = np.array([OPERATORS[operator] for operator in operators])
    for _ in range(net.integer(1, 9)):
        operators[net.random.choice(len(operators), p=chances / chances.sum())](net)
    if net.unread == {"x"}:
        convolution(net)
    if net.maybe(0.3):
        _matrix(net)
    return net


def _matrix(net: Network) -> None:
    """A matrix product at the end, on the newest tensor."""
    source = net.tensors[-1]
    size = source.channels * source.height * source.width
    if size > 2 * MOST_PIXELS:
        return
    flat, columns = net.node("Flatten", source), net.integer(1, 12)
    weights = net.scaled(size, size, columns)
    gemm = net.maybe(0.5)
    net.made(net.node("Gemm", flat, weights, net.scaled(4, columns)) if gemm else net.node("MatMul", flat, weights),
             columns, 1, 1)


# -- the rule ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    """``problem`` is empty where all is well; ``refusal`` is the compiler's, where it refused the network."""

    case: Case
    network: str
    problem: str = ""
    refusal: str = ""
    decibels: float = np.inf
    wide_decibels: float = np.inf

    def __str__(self) -> str:
        return f"{self.network}\n{self.case}: {self.problem or self.refusal}\nagain: {self.case.command}"


def describe(path: Path) -> str:
    """The network's nodes, one a line."""
    graph = onnx.load(path).graph
    shapes = {value.name: [entry.dim_value for entry in value.type.tensor_type.shape.dim]
              for value in (*graph.input, *graph.value_info, *graph.output)}
    shapes |= {value.name: list(value.dims) for value in graph.initializer}
    lines = [f"x {shapes['x']}"]
    for node in graph.node:
        attributes = ", ".join(f"{entry.name}={helper.get_attribute_value(entry)}" for entry in node.attribute)
        results = ", ".join(f"{name} {shapes.get(name)}" for name in node.output)
        inputs = ", ".join(f"{name} {shapes.get(name)}" if name.startswith("constant") else name
                           for name in node.input)
        lines.append(f"{results} = {node.op_type}({inputs}) {attributes}")
    return "\n".join(lines)


def save(case: Case, arch: Arch, folder: Path) -> tuple[Path, np.ndarray]:
    """The network as a file, and samples [SAMPLES, ...] of its input; all tensors that nothing reads are outputs."""
    net = generate(case, arch.lut_count >= 2)
    ends = [tensor.name for tensor in net.tensors if tensor.name in net.unread and tensor.name != "x"]
    path = net.maker.save(folder / "net.onnx", *ends)
    return path, net.maker.random.standard_normal((SAMPLES, *net.maker.shape[1:])).astype(np.float32)


def judge(case: Case, arch: Arch | None = None) -> Verdict:
    """Compile and run one case by the rule; ``arch`` in place of the one named."""
    arch = arch or ARCHS[case.arch]
    with tempfile.TemporaryDirectory() as name:
        path, samples = save(case, arch, Path(name))
        network = describe(path)
        try:
            checker = Checker()
            decibels = _decibels(path, arch, samples, checker)
            wide = _decibels(path, _widened(arch), samples)
        except CompileError as error:
            return Verdict(case, network, refusal=str(error))
        tables = any(f"= {op}(" in network for op in TABLE_OPERATORS)
        faults = [f"step {verdict.step!r}: {verdict.problem}" for verdict in checker.verdicts
                  if verdict.problem and verdict.step != "points"]
        bars = TABLE_DECIBELS if tables else (DECIBELS_A_BIT * arch.number.width, WIDE_DECIBELS)
        for name, found, least in zip((arch.data_type, WIDE), (decibels, wide), bars, strict=True):
            if found < least:
                faults.append(f"with {name}: {found:.1f} dB against onnxruntime; allowed: {least} dB or more")
        return Verdict(case, network, "; ".join(faults), decibels=decibels, wide_decibels=wide)


def _widened(arch: Arch) -> Arch:
    wide = arch.replace(data_type=WIDE)
    if not arch.lut_count:
        return wide
    return wide.replace(lut_depth=WIDE_TABLE, local_depth=max(arch.local_depth, WIDE_TABLE))


def _decibels(path: Path, arch: Arch, samples: np.ndarray, checker: Checker | None = None) -> float:
    """Of the worst output, over all samples, the golden machine against onnxruntime."""
    report = compile_model(path, arch, path.parent, calibration={"x": samples},
                           watch=checker.after if checker else None)
    model = TModel.load(report.model_path)
    expected = [run_model(path.read_bytes(), {"x": sample[None]}) for sample in samples]
    made = [run_golden(model, {"x": sample}) for sample in samples]
    assert all(found.keys() == expected[0].keys() for found in made)
    return min(signal_to_noise(*(np.stack([run[key] for run in runs]) for runs in (expected, made)))
               for key in expected[0])


def judge_on_rtl(case: Case) -> Verdict:
    """The program on the simulated hardware: every word of DRAM0 as the golden machine leaves it."""
    with tempfile.TemporaryDirectory() as name:
        path, samples = save(case, ARCHS[case.arch], Path(name))
        network = describe(path)
        try:
            report = compile_model(path, ARCHS[case.arch], path.parent, calibration={"x": samples})
        except CompileError as error:
            return Verdict(case, network, refusal=str(error))
        try:
            found = Session(TModel.load(report.model_path)).run({"x": samples[:1]}, on=RTL).comparison
            assert found is not None
            found.insist()
        except Mismatch as error:
            return Verdict(case, network, f"on RTL: {error}")
        return Verdict(case, network)
