"""What a step of the pipeline does where that is more than one function of a room; the list is in ``pipeline.py``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from weft.compiler.backend.encode import MachineCode, machine_code
from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.reader import read_model
from weft.compiler.layers.build import build_layers
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.verifier import verify_layers
from weft.compiler.lir_verifier import verify
from weft.compiler.memory.layout import Layout, lay_out, place_of_consts
from weft.compiler.memory.variables import lifetimes
from weft.compiler.memory.verifier import verify_lifetimes, verify_places
from weft.compiler.passes.division import Division, Part, divide, whole
from weft.compiler.passes.fold_forward import fold_forward
from weft.compiler.passes.fuse_functions import fuse_functions
from weft.compiler.passes.fuse_gates import fuse_gates
from weft.compiler.passes.join_sums import join_sums
from weft.compiler.passes.lower_quantize import as_ranges
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.operators import check_bytes, check_supported
from weft.compiler.passes.quantization import Quantization, with_rounding
from weft.compiler.passes.scale_channels import scale_channels
from weft.compiler.passes.scale_functions import scale_functions
from weft.compiler.passes.settle_quantizers import settle_quantizers
from weft.compiler.passes.sizes import check_sizes
from weft.compiler.passes.split_functions import split_functions
from weft.compiler.products import Products
from weft.compiler.quantize.calibrate import (
    HEADROOM,
    Calibration,
    Samples,
    calibrate,
    channel_ranges,
    choose_samples,
    samples_of_parts,
    tensor_ranges,
)
from weft.compiler.quantize.choose_points import choose_points
from weft.compiler.quantize.choose_scales import choose_scales
from weft.compiler.quantize.consts import Consts, encode_consts
from weft.compiler.quantize.narrow import narrowed
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.sizes import tensor_sizes
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch


# -- the graph ---------------------------------------------------------------------------------------------------------
def read(request: Request) -> Graph:
    return read_model(request.model, request.outputs, request.shapes)


def samples(request: Request, graph: Graph) -> Samples:
    return choose_samples(graph, request.calibration)


def division(request: Request, graph: Graph, arch: Arch) -> Division:
    """The host gets what the machine does not compute, where that is asked for; else such a part is an error."""
    if not request.host_fallback:
        return whole(graph)
    return divided(graph, arch)


def divided(graph: Graph, arch: Arch | None) -> Division:
    """What ``arch`` computes and what is left for the host; without one only operators decide."""
    if arch is None:
        return divide(graph, check_supported)
    return divide(graph, lambda part: build_layers(_ready(_lowered(supported(part, arch), arch), arch), arch))


def _ready(graph: Graph, arch: Arch) -> Graph:
    """A canonical graph as layers are built of it."""
    return scale_channels(*settle_quantizers(graph), arch)


def _lowered(graph: Graph, arch: Arch) -> Graph:
    """In canonical form; of eight-bit numbers only functions as one table can do without products of tensors."""
    return canonical(fuse_functions(graph, arch) if arch.scheme.has_scales else graph, arch)


def parts(front: Products) -> list[Products]:
    """The products that the steps for each of the machine's parts begin with."""
    graphs = front[Division].graphs
    given = samples_of_parts(front[Graph], front[Samples], graphs)
    return [front.plus({Part: Part(number, len(graphs), graph), Graph: graph, Samples: inputs})
            for number, (graph, inputs) in enumerate(zip(graphs, given, strict=True), 1)]


def supported(graph: Graph, arch: Arch) -> Graph:
    """The same graph, all of whose tensors and operators the machine can hold and compute."""
    found = check_supported(check_sizes(graph, arch))
    return check_bytes(found) if arch.scheme.has_scales else found


def canonical(graph: Graph, arch: Arch) -> Graph:
    return normalise(graph, arch.array_size)


def fold_forward_where_measured(request: Request, graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Not where every tensor has the type's own point: there is no room for offsets."""
    if request.plain or not arch.scheme.has_points:
        return graph
    return fold_forward(graph, partial(channel_ranges, graph, given), HEADROOM)


def limits_of_quantizers(graph: Graph, given: Samples, arch: Arch) -> Graph:
    """What a quantised file says is kept on machines of eight-bit numbers; others compute the network of real numbers
    within its limits."""
    return graph if arch.scheme.has_scales else as_ranges(graph, partial(tensor_ranges, graph, given))


def settled_where_measured(graph: Graph, given: Samples) -> tuple[Graph, Quantization]:
    """Scales of tensors instead of FakeQuantize, of which only machines of eight-bit numbers still have some."""
    return settle_quantizers(graph, partial(tensor_ranges, graph, given))


def join_sums_where_measured(graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Not of eight-bit numbers: what lies in one tensor has one scale."""
    if arch.scheme.has_scales:
        return graph
    return join_sums(graph, arch.array_size, partial(channel_ranges, graph, given))


def split_functions_where_measured(request: Request, graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Not where every tensor has the type's own point: then no part has a better one."""
    if request.plain or not arch.scheme.has_points:
        return graph
    return split_functions(graph, lambda graph, names: channel_ranges(graph, given, names))


def scale_functions_where_measured(request: Request, graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Not of bytes, whose tables hold every value."""
    if request.plain or not arch.scheme.has_points:
        return graph
    return scale_functions(graph, arch.number.width, lambda graph, names: tensor_sizes(graph, given, names))


def fuse_gates_where_measured(request: Request, graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Not where every tensor has the type's own point: then the parts of a product have it too."""
    if request.plain or not arch.scheme.has_points:
        return graph
    return fuse_gates(graph, arch, lambda graph, names: tensor_sizes(graph, given, names))


# -- layers, numbers, memory -------------------------------------------------------------------------------------------
def layers(graph: Graph, quantization: Quantization, arch: Arch) -> Layers:
    built = build_layers(graph, arch, quantization.tensors)
    verify_layers(built, [port.tensor for port in graph.inputs])
    made = {var.root for layer in built for var in layer.outputs}
    for port in graph.outputs:
        if port.tensor not in made:
            raise refuse(f"output {port.name!r}", "an input of the model as it is", "a tensor computed by a layer",
                         "remove this output")
    return built


def calibrated(request: Request, graph: Graph, given: Samples, quantization: Quantization, arch: Arch) -> Calibration:
    """Ranges of eight-bit numbers may be narrower than what was seen; points have room beyond that."""
    graph = with_rounding(graph, quantization)
    seen = calibrate(graph, given)
    if arch.scheme.has_scales:
        return narrowed(graph, given, seen, request.ranges)
    if request.ranges != Request.ranges:
        raise refuse("ranges by " + request.ranges, f"an architecture with data_type {arch.data_type}, of fixed point",
                     "one whose numbers have scales", "leave --ranges out, or compile for data_type INT8")
    return seen


def points(request: Request, graph: Graph, built: Layers, calibration: Calibration, quantization: Quantization,
           arch: Arch) -> Numbers:
    """Points of fixed point, scales of bytes."""
    if arch.scheme.has_scales:
        if request.plain:
            raise refuse("plain points", f"an architecture with data_type {arch.data_type}, whose numbers have scales",
                         "one of fixed point", "leave --plain out")
        scales = choose_scales(built, graph, calibration, quantization, arch.accumulator_bits, arch.leave_tables)
        scales.check_limits(built)
        given = {var.root for layer in built for var in (*layer.inputs, *layer.outputs)
                 if var.name in quantization.tensors}
        return replace(scales, limited=frozenset(given), measured="" if given else scales.measured)
    return choose_points(built, graph.constants, calibration, arch, request.plain, graph.opset, graph.output_tensors())


def consts(graph: Graph, built: Layers, chosen: Numbers, arch: Arch) -> Consts:
    return encode_consts(built, graph.constants, chosen, arch)


def memory(request: Request, graph: Graph, built: Layers, stored: Consts, arch: Arch) -> Layout:
    layout = lay_out(lifetimes(graph, built, request.keep_tensors), built, stored, arch)
    verify_places([*layout.dram0.values(), *filter(None, [layout.copy])], arch.dram0_depth, "DRAM0")
    verify_places([place_of_consts(stored, built), *layout.dram1.values()], arch.dram1_depth, "DRAM1")
    verify_places(layout.local.values(), arch.local_depth, "local memory")
    verify_lifetimes(built, {**layout.dram0, **layout.local})
    return layout


# -- the program -------------------------------------------------------------------------------------------------------
def check_schedule(graph: Graph, stored: Consts, layout: Layout, scheduled: Schedule, arch: Arch) -> None:
    written = [*(layout.dram0[port.tensor] for port in graph.inputs), *filter(None, [layout.copy])]
    verify(scheduled.operations, arch, written, len(stored.vectors))


def encoded(scheduled: Schedule, arch: Arch) -> MachineCode:
    return machine_code(scheduled.operations, scheduled.layers, arch)
