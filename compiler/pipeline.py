# SPDX-License-Identifier: Apache-2.0
"""The compiler as one visible list: ``STEPS``. Read this file first.

Each step is a function from the products that it needs, by their types, to one that it makes (``products.py``).
``--dump-dir`` writes, after every step, its product as readable text, and a graph also as ONNX, to run it again."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from weft.compiler import steps
from weft.compiler.backend.join import join_reads
from weft.compiler.backend.report import CompileReport
from weft.compiler.backend.split import split
from weft.compiler.backend.write import check_place, write
from weft.compiler.choices import FORMULA, Choices
from weft.compiler.cores import AUTO, THROUGHPUT, AssignedLayer, check_choices_fit, check_cores
from weft.compiler.errors import CompileError, Fault
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import must_run
from weft.compiler.lowering.operators import check_bytes
from weft.compiler.parameters import OWN_POINTS, POINTS, SCALES, Parameters, parameters_of
from weft.compiler.partition import Part, Partition
from weft.compiler.passes.canonicalise_slopes import canonicalise_slopes
from weft.compiler.passes.canonicalise_variances import canonicalise_variances
from weft.compiler.passes.dead_pixels import drop_unread_pixels
from weft.compiler.passes.dead_taps import drop_dead_taps
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.fuse_functions import fuse_byte_functions, fuse_functions
from weft.compiler.passes.nest_pools import nest_pools
from weft.compiler.passes.order import in_order
from weft.compiler.passes.pack_inputs import pack_inputs
from weft.compiler.passes.pool_parts import pool_parts
from weft.compiler.passes.round_before_limits import round_before_limits
from weft.compiler.passes.scale_channels import scale_channels
from weft.compiler.products import Products, Step, checked
from weft.compiler.progress import told_to
from weft.compiler.quantize.narrow import MINMAX, known_ranges
from weft.compiler.request import NO_SHAPES, NO_VALUES, Request, Sizes, Values
from weft.compiler.scheduler.schedule import interleaved, schedule
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain
from weft.support.files import file_name
from weft.support.outputs import Kind, check_output, replacing

STEPS: tuple[Step, ...] = (
    Step("frontend", steps.read),                                   # model file -> Graph
    Step("samples", steps.samples),                                 # -> Samples of the network's inputs
    Step("mask_rows", steps.rows_masked),                           # -> Samples, of masks that leave rows out too
    Step("fit_masks", steps.masks_fitted),                          # -> Graph
    Step("partition", steps.partition),
    # -> Partition: parts of the machine and of the host
    # What follows is done for each of the machine's parts, with its own Graph and Samples.
    Step("check_supported", steps.supported),                       # -> Graph, the same
    Step("check_bytes", check_bytes, SCALES),                       # -> Graph, the same
    Step("limits_of_quantizers", steps.limits_of_quantizers, POINTS),  # -> Graph
    Step("pool_parts", pool_parts),
    Step("nest_pools", nest_pools),
    Step("canonicalise_variances", canonicalise_variances, POINTS),
    # bytes have too few bits for squares in any form
    Step("canonicalise_slopes", canonicalise_slopes),
    Step("turn_magnitudes", steps.magnitudes_turned, POINTS),       # squares have too few bits at one point
    Step("fold_kernels", steps.kernels_folded, POINTS),             # Fourier transforms
    Step("fuse_functions", fuse_functions, POINTS),
    Step("round_before_limits", round_before_limits, SCALES),
    Step("fuse_byte_functions", fuse_byte_functions, SCALES),
    Step("normalise", steps.canonical),
    Step("fold_channelwise", fold_channelwise),
    Step("split_channels", steps.channels_split, POINTS),              # of scales, a tensor has the file's
    Step("order", in_order),
    Step("fold_forward", steps.fold_offsets_forward, OWN_POINTS),   # one point for all leaves no room for offsets
    Step("propagate_quantizers", steps.settled),                       # -> Graph, Quantization: scales of the file
    Step("drop_unread_pixels", drop_unread_pixels),
    Step("fuse_additions", steps.sums_joined, POINTS),                   # of scales, what lies in one tensor has one
    Step("split_functions", steps.functions_split, OWN_POINTS),     # with one point for all no part has a better one
    Step("scale_functions", steps.functions_scaled, OWN_POINTS),    # -> Graph
    Step("fuse_gates", steps.gates_fused, OWN_POINTS),              # -> Graph
    Step("scale_channels", scale_channels, SCALES),                 # gates of channels
    Step("drop_dead_taps", drop_dead_taps),
    Step("pack_inputs", pack_inputs),
    Step("pack_taps", steps.taps_packed),                           # -> Graph, Quantization
    Step("layers", steps.layers),                                   # -> Layers
    Step("calibrate", steps.calibrated, POINTS),                    # -> Calibration: the range of every tensor
    Step("calibrate_scales", steps.calibrated_for_scales, SCALES),  # -> Calibration
    Step("points", steps.points, POINTS),                           # -> Numbers: points
    Step("scales", steps.scales, SCALES),                           # -> Numbers: scales and zero points
    Step("consts", steps.consts),                                   # -> Consts: the vectors of DRAM1
    Step("sequence", steps.in_sequence),                            # -> Choices, Layers, Numbers, Consts, in order
    Step("memory", steps.memory),                                   # -> Layout: places, and a tiling for each layer
    Step("schedule", schedule),                                     # -> Schedule of LIR operations
    Step("interleave", interleaved),                                # -> Schedule, in the order of their starts
    Step("verify", steps.check_schedule),                           # nothing
    Step("backend", steps.encoded),                                 # -> MachineCode, of one core
    Step("join_reads", join_reads),                                 # -> MachineCode, of cores with an image each
    Step("split", split),                                           # -> Cores, if all of them work on one image
)
"""The compiler's steps in order. Some run only for certain kinds of quantization parameters."""


def steps_of(parameters: Parameters) -> tuple[Step, ...]:
    """Return the steps of the compiler for tensors with ``parameters``."""
    return checked((Request, Arch, Choices), tuple(step for step in STEPS if parameters in step.of))


LAST_OF_ALL = "partition"
"""The last step that runs once for the whole network; later ones run for each subgraph of the machine."""


def compile_model(model: Path, arch: Arch, output: Path, *, name: str | None = None,
                  calibration: Mapping[str, np.ndarray] | None = None, plain: bool = False,
                  host_fallback: bool = False, outputs: Sequence[str] = (), dump_dir: Path | None = None,
                  progress: Callable[[str], None] | None = None,
                  watch: Callable[[Step, Products], None] | None = None,
                  shapes: Sizes = NO_SHAPES, ranges: str = MINMAX, fixed: Values = NO_VALUES,
                  choices: Sequence[Choices] | Choices = (), cores: str = AUTO, goal: str = THROUGHPUT,
                  assigned: Sequence[AssignedLayer] = (), input_cycles: float = 0.0) -> CompileReport:
    """Compile a model file into ``output``/NAME.tmodel, NAME.tprog and NAME.tdata; return a report.

    NAME defaults to the file's stem. A ``.pb`` is a frozen TensorFlow graph, a ``.tflite`` one of TensorFlow Lite,
    everything else ONNX. ``outputs`` names the tensors (of TensorFlow: nodes) that the network ends at, by default
    those that the file declares; a frozen graph declares none. ``calibration`` maps input names to arrays [samples,
    ...]; without it seeded random inputs give the ranges, with a warning. ``plain`` computes everything at the data
    type's own point. With ``host_fallback`` the host runs what the machine refuses, such as ArgMax; without it such
    nodes are errors. ``progress`` is called with each step's name, and in long steps with the current layer. ``watch``
    is called with each step and its products. ``shapes``: sizes that the file leaves open, by input or by their names.
    ``fixed``: inputs that become constants, with their values. ``ranges``: how INT8 machines find ranges, one of
    ``narrow.RANGES``. ``choices``: what is chosen already, for each subgraph of the machine or for all. ``cores``: how
    several share the work, one of ``cores.CORES``. ``goal``: what is to be small, one of ``cores.GOALS``. ``assigned``:
    boxes of layers that an outside schedule gave to cores, with ``cores`` "split". ``input_cycles``: cycles of the
    machine that a byte of an input takes to reach it; where they cost more than they gain, inputs are not packed. Raise
    WeftError for everything that the user can mend."""
    model = Path(model)
    name = file_name(name or model.stem, "--name" if name else "the model's name")
    request = Request(model, calibration, plain, host_fallback, tuple(outputs), shapes=dict(shapes),
                      ranges=known_ranges(ranges), fixed=dict(fixed), input_cycles=input_cycles, cores=cores, goal=goal,
                      assigned=tuple(assigned))
    check_cores(cores, goal, arch)
    check_choices_fit(cores, goal, arch, "choices" if choices else None)
    check_place(Path(output), name)
    front, made = run_parts(request, arch, dump_dir, progress, watch, choices=choices)
    return write(front, made, Path(output), name)


def run_steps(request: Request, arch: Arch, dump_dir: Path | None = None,
              watch: Callable[[Step, Products], None] | None = None) -> Products:
    """Return all products of a network that the machine computes in one subgraph."""
    _, (products,) = run_parts(request, arch, dump_dir, watch=watch)
    return products


def run_parts(request: Request, arch: Arch, dump_dir: Path | None = None,
              progress: Callable[[str], None] | None = None,
              watch: Callable[[Step, Products], None] | None = None,
              last: str = STEPS[-1].name, choices: Sequence[Choices] | Choices = ()) -> tuple[Products, list[Products]]:
    """Run the compiler up to and including the step ``last``.

    Return the products of the whole network and, for each subgraph of the machine, its own. ``dump_dir``, ``progress``,
    ``watch``: see :func:`compile_model`."""
    def run_all(steps: Sequence[Step], products: Products, prefix: str = "") -> Products:
        for step in steps:
            name = prefix + step.name
            if progress is not None:
                progress(name)
            with told_to(_within(name, progress)):
                before, products = products, _run(step, products)
            if dump_dir is not None:
                _dump(Path(dump_dir), f"{prefix}{STEPS.index(step):02}_{step.name}", step, products, before)
            if watch is not None:
                watch(step, products)
        return products

    all_steps = steps_of(parameters_of(request, arch))
    of_all = _behind(all_steps, LAST_OF_ALL)
    if dump_dir is not None:
        _check_dumps(Path(dump_dir), request)
    with _nothing_searched():
        front = run_all(all_steps[:of_all], Products({Request: request, Arch: arch, Choices: FORMULA}))
        with _blamed(LAST_OF_ALL, request):
            parts = steps.parts(front, choices)
        return front, [run_all(all_steps[of_all:_behind(all_steps, last)], products,
                               f"part{products[Part].number}_" if products[Part].count > 1 else "")
                       for products in parts]


def partition_model(request: Request, arch: Arch | None) -> tuple[Graph, Partition]:
    """Return the network, and its partition between ``arch`` and the host.

    Without a machine only operators decide. Raise WeftError for everything that the user can mend."""
    with _nothing_searched(), _blamed("partition", request):
        graph = steps.read(request)
        return graph, steps.partitioned(graph, arch)


def run_on(products: Products, after: str, last: str = STEPS[-1].name, without: Sequence[str] = ()) -> Products:
    """Return the products of a subgraph after the step ``last``, given those after the step ``after``.

    Steps ``without`` are left out."""
    all_steps = steps_of(parameters_of(products[Request], products[Arch]))
    with _nothing_searched():
        for step in all_steps[_behind(all_steps, after):_behind(all_steps, last)]:
            if step.name not in without:
                products = _run(step, products)
    return products


@contextlib.contextmanager
def _nothing_searched() -> Iterator[None]:
    """Switch off Python's garbage collection of cycles.

    Steps make millions of long-lived objects without cycles. Searching them again and again would take half of the time
    of a large network."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()


def _behind(all_steps: Sequence[Step], name: str) -> int:
    """Return the number of steps up to and including ``name``."""
    return [step.name for step in all_steps].index(name) + 1


def _within(name: str, progress: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Return a listener that passes progress within a step on to ``progress``, or None."""
    return None if progress is None else lambda what: progress(f"{name} {what}")


def _run(step: Step, products: Products) -> Products:
    """Return the products after a step; errors are explained."""
    with _blamed(step.name, products[Request]):
        return step.run(products)


@contextlib.contextmanager
def _blamed(name: str, request: Request) -> Iterator[None]:
    """Turn unexpected errors of a step into an error for the user: a model that cannot run, or a fault of the compiler.

    Numbers beyond single precision are refused where constants and samples are measured; numpy's warnings are off."""
    try:
        with np.errstate(all="ignore"):
            yield
    except CompileError as error:
        if request.host_fallback:
            error.forget_host()
        raise
    except (WeftError, MemoryError):
        raise
    except Exception as error:
        must_run(request.model, request.outputs, request.shapes, request.fixed)
        raise Fault(explain(f"step {name!r}", f"{type(error).__name__} {error}", "a result, for onnxruntime runs "
                            "this model", "report it with the model; --dump-dir keeps the steps before")) from error


# -- what steps leave in files -----------------------------------------------------------------------------------------
HEAD = "# what the step {} of weft compile left\n"
DUMPS = {"txt": Kind.of_head("what a step left", HEAD.format(r"\w+")),
         "onnx": Kind.of_head("a graph that a step left", r"\x08.\x12\x04weft")}
"""Suffix of a dumped file -> its kind. A graph names weft as its producer."""
_DUMPED = re.compile(rf"(part\d+_)?\d\d_({'|'.join(step.name for step in STEPS)})\.({'|'.join(DUMPS)})")


def _check_dumps(folder: Path, request: Request) -> None:
    """Raise WeftError if a dump would replace a file that no step wrote, or the model that is compiled."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := _DUMPED.fullmatch(path.name):
            if path.exists() and request.model.exists() and path.samefile(request.model):
                raise WeftError(explain(f"--dump-dir {folder}", "the model itself, by a name that a step writes",
                                        "a folder without it", "name another folder"))
            check_output(path, DUMPS[match[3]])


def _dump(folder: Path, stem: str, step: Step, products: Products, before: Products) -> None:
    """Write a step's product as text, and a new graph also as ONNX."""
    contents = {"txt": (HEAD.format(step.name) + step.text(products)).encode()}
    graph = products.get(Graph)
    if graph is not None and graph is not before.get(Graph):
        model = to_onnx(graph)
        model.producer_name = "weft"
        contents["onnx"] = model.SerializeToString(deterministic=True)
    for suffix, content in contents.items():
        with replacing(folder / f"{stem}.{suffix}", DUMPS[suffix]) as file:
            file.write(content)
