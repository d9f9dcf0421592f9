# SPDX-License-Identifier: Apache-2.0
"""Functions of the pipeline's steps that combine several functions of a room; the list is in ``pipeline.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from weft.compiler.backend.encode import MachineCode, machine_code
from weft.compiler.choices import AGAIN, FORMULA, Choices, check_choices
from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.reader import read_model
from weft.compiler.layers.beside import arranged
from weft.compiler.layers.build import build_layers
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.outputs import saved_for_readers
from weft.compiler.layers.verifier import verify_layers
from weft.compiler.lir_verifier import verify
from weft.compiler.lowering.operators import check_bytes, check_supported
from weft.compiler.lowering.quantize import as_ranges
from weft.compiler.memory.plan import MemoryPlan, allocation_of_consts, plan_memory
from weft.compiler.memory.variables import has_room, live_ranges, need_room_for_ports
from weft.compiler.memory.verifier import verify_allocations, verify_live_ranges
from weft.compiler.partition import Part, Partition, partition_graph, whole
from weft.compiler.passes.fit_masks import fit_masks, mask_inputs
from weft.compiler.passes.fold_forward import fold_forward
from weft.compiler.passes.fold_kernels import fold_kernels
from weft.compiler.passes.fuse_additions import fuse_additions
from weft.compiler.passes.fuse_functions import fuse_byte_functions, has_byte_tables
from weft.compiler.passes.fuse_gates import fuse_gates
from weft.compiler.passes.magnitudes import turn_magnitudes
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.pack_taps import pack_taps
from weft.compiler.passes.propagate_quantizers import propagate_quantizers
from weft.compiler.passes.quantization import Quantization, with_rounding
from weft.compiler.passes.round_before_limits import round_before_limits
from weft.compiler.passes.scale_channels import scale_channels
from weft.compiler.passes.scale_functions import scale_functions
from weft.compiler.passes.sizes import check_sizes
from weft.compiler.passes.split_channels import split_channels
from weft.compiler.passes.split_functions import split_functions
from weft.compiler.products import Products
from weft.compiler.quantize.bounds import limited, with_bounds
from weft.compiler.quantize.calibrate import calibrate, channel_ranges, tensor_ranges
from weft.compiler.quantize.choose_points import choose_points
from weft.compiler.quantize.choose_scales import choose_scales
from weft.compiler.quantize.consts import Consts, encode_consts
from weft.compiler.quantize.narrow import narrowed
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.poles import poles
from weft.compiler.quantize.ranges import HEADROOM, Calibration
from weft.compiler.quantize.samples import Samples, choose_samples, samples_of_parts, whole_points, with_masked_rows
from weft.compiler.quantize.sizes import tensor_sizes
from weft.compiler.quantize.slopes import largest_slope, most_slopes
from weft.compiler.request import Request
from weft.compiler.scheduler.length import check_layers, check_length
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SchemeKind


# -- the graph ---------------------------------------------------------------------------------------------------------
def read(request: Request) -> Graph:
    """Return the graph of the model file."""
    return read_model(request.model, request.outputs, request.shapes, request.fixed)


def samples(request: Request, graph: Graph) -> Samples:
    """Return the calibration samples that are run."""
    return choose_samples(graph, request.calibration)


def rows_masked(graph: Graph, given: Samples) -> Samples:
    """Return the calibration samples, some of them once more with rows left out of computed masks of attention."""
    return with_masked_rows(given, mask_inputs(graph))


def masks_fitted(graph: Graph, given: Samples) -> Graph:
    """Return the graph with masks of attention raised to what a binary point can hold beside the samples' scores."""
    return fit_masks(graph, partial(tensor_ranges, graph, given))


def partition(request: Request, graph: Graph, given: Samples, arch: Arch) -> Partition:
    """Return the partition of the network; without ``--host-fallback`` a node for the host is an error."""
    if not request.host_fallback:
        return whole(graph)
    affine = arch.scheme.kind is SchemeKind.AFFINE  # whose tables hold infinite values as the ends of a scale
    return partitioned(graph, arch, {} if affine else poles(graph, partial(tensor_ranges, graph, given)))


def partitioned(graph: Graph, arch: Arch | None, known: Mapping[str, CompileError] | None = None) -> Partition:
    """Return the partition of the network between ``arch`` and the host; without ``arch`` only operators decide.

    ``known``: errors of nodes, by their names, that only samples tell."""
    return partition_graph(graph, partial(_refused, arch, known or {}))


def _refused(arch: Arch | None, known: Mapping[str, CompileError], part: Graph, every: bool) -> list[CompileError]:
    """Return the errors of nodes of a subgraph that the machine cannot compute: the first one, or ``every`` one."""
    found = [known[node.name] for node in part.nodes if node.name in known]
    if found and not every:
        return found[:1]
    try:
        if arch is None:
            check_supported(part)
            return []
        lowered = normalise(_checked(part, arch), arch.array_size, found if every else None, **_abilities(arch))
        if not found:
            build_layers(_ready(lowered, arch), arch, refused=found if every else None)
    except CompileError as error:
        if not error.node:
            raise
        found.append(error)
    return list({error.node: error for error in found}.values())


def _checked(graph: Graph, arch: Arch) -> Graph:
    """Return the graph, checked as the steps for the machine's number scheme check it.

    An INT8 machine runs only functions that one 256-entry table can express, so these are found first."""
    known = supported(graph, arch)
    if arch.scheme.kind is not SchemeKind.AFFINE:
        return turn_magnitudes(known)
    return fuse_byte_functions(round_before_limits(check_bytes(known), arch), arch)


def _ready(graph: Graph, arch: Arch) -> Graph:
    """Return a canonical graph in the form from which layers are built."""
    graph, quantization = propagate_quantizers(graph)
    return scale_channels(graph, quantization, arch) if arch.scheme.kind is SchemeKind.AFFINE else graph


def parts(front: Products, chosen: Sequence[Choices] | Choices) -> list[Products]:
    """Return the products with which the steps for each subgraph begin, with what is ``chosen`` for it, or for all."""
    graphs = front[Partition].graphs
    given = samples_of_parts(front[Graph], front[Samples], graphs)
    choices = (chosen,) * len(graphs) if isinstance(chosen, Choices) else chosen or (FORMULA,) * len(graphs)
    if len(choices) != len(graphs):
        raise refuse("choices", f"those of {len(choices)} parts", f"{len(graphs)} parts of the machine's", AGAIN)
    return [front.plus({Part: Part(number, len(graphs), graph), Graph: graph, Samples: inputs, Choices: own})
            for number, (graph, inputs, own) in enumerate(zip(graphs, given, choices, strict=True), 1)]


def supported(graph: Graph, arch: Arch) -> Graph:
    """Return the graph as it is. Raise CompileError for a tensor or operator that does not fit the machine."""
    return check_supported(check_sizes(graph, arch))


def kernels_folded(graph: Graph, arch: Arch) -> Graph:
    """Return the graph with convolutions whose kernels repeat themselves computed from sums of their input."""
    return fold_kernels(graph, arch.array_size)


def magnitudes_turned(graph: Graph, given: Samples) -> Graph:
    """Return the graph with roots of few squares computed by turns, which keep the bits of small numbers."""
    return turn_magnitudes(graph, partial(tensor_ranges, graph, given))


def canonical(graph: Graph, arch: Arch) -> Graph:
    """Return the graph in the few operators that layers are built of."""
    return normalise(graph, arch.array_size, None, **_abilities(arch))


def _abilities(arch: Arch) -> dict[str, Any]:
    """Return the facts of a machine on which the canonical form depends."""
    in_bytes = arch.scheme.kind is SchemeKind.AFFINE
    has_registers = arch.simd_registers_depth > 0
    return {"in_bytes": in_bytes, "has_abs": not in_bytes and has_registers,
            "most_slopes": 0 if in_bytes else most_slopes(arch), "largest_slope": largest_slope(arch.number),
            "has_slopes": has_byte_tables(arch) if in_bytes else has_registers or bool(arch.output_slope)}


def channels_split(graph: Graph, arch: Arch) -> Graph:
    """Return the graph with convolutions split of which others only choose channels."""
    return split_channels(graph, arch.array_size)


def fold_offsets_forward(graph: Graph, given: Samples) -> Graph:
    """Return the graph with offsets of channels moved into the layers that read them, by samples' ranges."""
    return fold_forward(graph, partial(channel_ranges, graph, given), HEADROOM)


def limits_of_quantizers(graph: Graph, given: Samples) -> Graph:
    """Return the graph with each FakeQuantize of a quantised file replaced by the limits of its numbers, or nothing.

    A lower limit of 0 is a Relu. Other limits stay only if the samples exceed them."""
    return as_ranges(graph, partial(tensor_ranges, graph, given))


def settled(graph: Graph, given: Samples) -> tuple[Graph, Quantization]:
    """Return the graph with each FakeQuantize replaced by its tensor's scale, and the scales (INT8 machines)."""
    return propagate_quantizers(graph, partial(tensor_ranges, graph, given))


def sums_joined(graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Return the graph with additions fused with the convolutions before them, if samples' ranges allow it."""
    return fuse_additions(graph, arch.array_size, partial(channel_ranges, graph, given))


def functions_split(graph: Graph, given: Samples) -> Graph:
    """Return the graph with functions split whose parts have better binary points than the whole."""
    return split_functions(graph, lambda graph, names: limited(graph, channel_ranges(graph, given, names)))


def functions_scaled(graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Return the graph with arguments and results of lookup tables multiplied by factors, so that they use all bits.

    The samples' ranges decide the factors. The convolutions before and behind a table absorb them."""
    return scale_functions(graph, arch.number.width, lambda graph, names: tensor_sizes(graph, given, names))


def gates_fused(graph: Graph, given: Samples, arch: Arch) -> Graph:
    """Return the graph with gated products fused into their convolutions, if binary points allow it."""
    return fuse_gates(graph, arch, lambda graph, names: tensor_sizes(graph, given, names))


def taps_packed(request: Request, graph: Graph, quantization: Quantization, arch: Arch) -> tuple[Graph, Quantization]:
    """Return the graph with copies of tensors in lanes that would be idle, and the scales of these copies.

    An outside schedule says which layers there are, so there are no others then."""
    if not request.copies or request.assigned:
        return graph, quantization
    packed = pack_taps(graph, arch)
    return packed, quantization.with_copies(packed)


# -- layers, numbers, memory -------------------------------------------------------------------------------------------
def layers(request: Request, graph: Graph, quantization: Quantization, arch: Arch) -> Layers:
    """Return the verified layers of a graph. Raise CompileError for an output that no layer computes.

    Where DRAM0 could lack room for what max pools of their own read, convolutions pool."""
    built = _arranged_layers(graph, quantization, arch)
    lives = live_ranges(graph, built, arch, request.keep_tensors)
    if not has_room(lives, arch):
        need_room_for_ports(lives, arch)  # before calibration runs on arrays of their size
        built = _arranged_layers(graph, quantization, arch, pools_alone=False)
    verify_layers(built, [port.tensor for port in graph.inputs])
    check_layers(built, graph.constants, arch)
    made = {var.root for layer in built for var in layer.outputs}
    for port in graph.outputs:
        if port.tensor not in made:
            raise refuse(f"output {port.name!r}", "an input of the model as it is", "a tensor computed by a layer",
                         "remove this output")
    return built


def _arranged_layers(graph: Graph, quantization: Quantization, arch: Arch, pools_alone: bool = True) -> Layers:
    """Return the layers of a graph in the order in which they run."""
    built = build_layers(graph, arch, quantization.tensors, pools_alone=pools_alone)
    if arch.scheme.kind is SchemeKind.FIXED_POINT:
        built = saved_for_readers(built, graph.output_tensors(), arch)
    return arranged(built, arch)


def calibrated(request: Request, graph: Graph, given: Samples, quantization: Quantization, arch: Arch) -> Calibration:
    """Return the range of every tensor, for binary points, which leave room beyond what was seen."""
    if request.ranges != Request.ranges:
        raise refuse("ranges by " + request.ranges, f"an architecture with data_type {arch.data_type}, of fixed point",
                     "one whose numbers have scales", "leave --ranges out, or compile for data_type INT8")
    graph = with_rounding(graph, quantization)
    return with_bounds(graph, calibrate(graph, given), arch.scheme.chooses_points)


def calibrated_for_scales(request: Request, graph: Graph, given: Samples, quantization: Quantization) -> Calibration:
    """Return the range of every tensor, for scales; it may be narrower than what was seen."""
    graph = with_rounding(graph, quantization)
    return narrowed(graph, given, with_bounds(graph, calibrate(graph, given), False), request.ranges)


def points(request: Request, graph: Graph, given: Samples, built: Layers, calibration: Calibration,
           arch: Arch) -> Numbers:
    """Return the parameters with a binary point for every tensor."""
    return choose_points(built, graph.constants, calibration, arch, request.plain, graph.opset, graph.output_tensors(),
                         whole_points(graph, given, arch.number.width), graph.copies)


def scales(request: Request, graph: Graph, built: Layers, calibration: Calibration, quantization: Quantization,
           arch: Arch) -> Numbers:
    """Return the parameters with a scale and a zero point for every tensor. Raise CompileError for ``--plain``."""
    if request.plain:
        raise refuse("plain points", f"an architecture with data_type {arch.data_type}, whose numbers have scales",
                     "one of fixed point", "leave --plain out")
    chosen = choose_scales(built, graph, calibration, quantization, arch)
    chosen.check_limits(built)
    given = {var.root for layer in built for var in (*layer.inputs, *layer.made) if var.name in quantization.tensors}
    bounded = {var.root for layer in built for var in layer.made if calibration.ranges[var.name].bounded}
    return replace(chosen, limited=frozenset(given | bounded), measured="" if given else chosen.measured)


def consts(graph: Graph, built: Layers, chosen: Numbers, arch: Arch) -> Consts:
    """Return the content of DRAM1 and the places of layers' constants in it."""
    return encode_consts(built, graph.constants, chosen, arch)


def in_sequence(built: Layers, chosen: Numbers, stored: Consts, arch: Arch,
                choices: Choices) -> tuple[Choices, Layers, Numbers, Consts]:
    """Return the layers in the sequence of the checked choices, with what belongs to each, and choices by place."""
    check_choices(choices, built, arch)
    if not choices.order:
        return choices, built, chosen, stored
    order = choices.sequence(len(built))
    moved = Layers(built[number] for number in order)
    return (replace(choices.by_place(len(built)), layers=""), moved, chosen.reordered(order, moved, arch),
            stored.reordered(order, moved, arch))


def memory(request: Request, graph: Graph, built: Layers, stored: Consts, arch: Arch, choices: Choices) -> MemoryPlan:
    """Return the verified memory plan: places of all tensors, and a tiling for each layer."""
    layout = plan_memory(live_ranges(graph, built, arch, request.keep_tensors), built, stored, arch, choices)
    verify_allocations([*layout.dram0.values(), *filter(None, [layout.copy])], arch.dram0_depth, "DRAM0")
    verify_allocations([allocation_of_consts(stored, built), *layout.dram1.values()], arch.dram1_depth, "DRAM1")
    verify_allocations(layout.local.values(), arch.local_depth, "local memory")
    verify_live_ranges(built, {**layout.dram0, **layout.local})
    return layout


# -- the program -------------------------------------------------------------------------------------------------------
def check_schedule(graph: Graph, stored: Consts, layout: MemoryPlan, scheduled: Schedule, arch: Arch) -> None:
    """Raise Fault if the scheduled program is wrong."""
    written = [*(layout.dram0[port.tensor] for port in graph.inputs), *filter(None, [layout.copy])]
    verify(scheduled.table, arch, written, len(stored.vectors))


def encoded(scheduled: Schedule, arch: Arch) -> MachineCode:
    """Return the machine code of the program. Raise CompileError if it is too long."""
    code = machine_code(scheduled.table, scheduled.layers, arch)
    check_length(len(code.layers), arch)
    return code
