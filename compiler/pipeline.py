"""The compiler as one visible list: ``STEPS``. Read this file first.

Each step is a pure function from a ``State`` to the same state with one or two more products. ``--dump-dir`` writes,
after every step, what it left as readable text, and while the product is a graph also as ONNX, to run it again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.compiler import lir
from weft.compiler.backend.encode import assemble, encode
from weft.compiler.backend.limit import array_vectors
from weft.compiler.backend.report import CompileReport, layer_table, total_vectors
from weft.compiler.errors import Fault, refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import must_run, read_model
from weft.compiler.layers import hir
from weft.compiler.layers.build import build_layers
from weft.compiler.layers.verifier import verify_layers
from weft.compiler.lir_verifier import verify
from weft.compiler.memory.consts import Consts, encode_consts
from weft.compiler.memory.layout import Layout, lay_out
from weft.compiler.memory.variables import lifetimes
from weft.compiler.memory.verifier import verify_lifetimes, verify_places
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.fold_forward import fold_forward
from weft.compiler.passes.host import fall_back, refuse_host
from weft.compiler.passes.join_sums import join_sums
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.operators import check_supported
from weft.compiler.passes.order import in_order
from weft.compiler.passes.pack_inputs import pack_inputs
from weft.compiler.passes.pool_parts import pool_parts
from weft.compiler.passes.sizes import check_sizes
from weft.compiler.passes.unread_pixels import drop_unread_pixels
from weft.compiler.quantize.calibrate import Calibration, calibrate, channel_ranges
from weft.compiler.quantize.points import Points, choose_points
from weft.compiler.scheduler.schedule import Schedule, interleaved, schedule
from weft.hw.contract.arch import EVERY_STEP, Arch
from weft.hw.contract.errors import WeftError, explain
from weft.runtime.files import file_name
from weft.runtime.host_part import HostPart
from weft.runtime.manifest import ConstFile, Port, TModel, write_files

FEWEST_STEPS = 16
"""Of the data type's, that an output's largest value should be worth."""
NOT_MADE: Any = None
"""A product of a step that has not run yet; the order of STEPS sees to it that none is read."""


@dataclass(frozen=True)
class State:
    """The options, and what the steps so far have made. A step reads only products of steps before it."""

    model: Path
    arch: Arch
    inputs: Mapping[str, np.ndarray] | None
    plain: bool
    host_fallback: bool = False
    outputs: tuple[str, ...] = ()
    graph: Graph = NOT_MADE
    host: HostPart | None = None
    layers: tuple[hir.Layer, ...] = ()
    calibration: Calibration = NOT_MADE
    points: Points = NOT_MADE
    consts: Consts = NOT_MADE
    layout: Layout = NOT_MADE
    schedule: Schedule = NOT_MADE
    program: bytes = b""
    instruction_counts: tuple[int, ...] = ()
    instruction_layers: np.ndarray = NOT_MADE

    def replace(self, **products: Any) -> State:
        return dataclasses.replace(self, **products)


@dataclass(frozen=True)
class Step:
    """``run`` makes the products, ``text`` prints them."""

    name: str
    run: Callable[[State], State]
    text: Callable[[State], str]


# -- frontend and passes -------------------------------------------------------------------------------------------
def _read(state: State) -> State:
    return state.replace(graph=read_model(state.model, state.outputs))


def _attempt(state: State, graph: Graph) -> None:
    """As far as a node of the model can be to blame."""
    build_layers(normalise(_check(state, graph), state.arch.array_size), state.arch)


def _check(state: State, graph: Graph) -> Graph:
    return check_supported(check_sizes(graph, state.arch))


def _split_host(state: State) -> State:
    if not state.host_fallback:
        refuse_host(state.graph)
        return state
    graph, host = fall_back(state.graph, partial(_attempt, state))
    return state.replace(graph=graph, host=host)


def _check_supported(state: State) -> State:
    return state.replace(graph=_check(state, state.graph))


def _host_text(state: State) -> str:
    return "" if state.host is None else f"on the host: {state.host.text()}\n"


def _normalise(state: State) -> State:
    return state.replace(graph=normalise(state.graph, state.arch.array_size))


def _fold_forward(state: State) -> State:
    """Not where every tensor has the type's own point: there is no room for offsets."""
    if state.plain or state.arch.mac_rounding == EVERY_STEP:
        return state
    return state.replace(graph=fold_forward(state.graph, partial(channel_ranges, state.graph, state.inputs)))


def _join_sums(state: State) -> State:
    measure = partial(channel_ranges, state.graph, state.inputs)
    return state.replace(graph=join_sums(state.graph, state.arch.array_size, measure))


def _pack_inputs(state: State) -> State:
    return state.replace(graph=pack_inputs(state.graph, state.arch))


def _graph_pass(function: Callable[[Graph], Graph]) -> Callable[[State], State]:
    return lambda state: state.replace(graph=function(state.graph))


# -- layers, numbers, memory ---------------------------------------------------------------------------------------
def _layers(state: State) -> State:
    layers = build_layers(state.graph, state.arch)
    verify_layers(layers, [port.tensor for port in state.graph.inputs])
    made = {var.root for layer in layers for var in layer.outputs}
    for port in state.graph.outputs:
        if port.tensor not in made:
            raise refuse(f"output {port.name!r}", "an input of the model as it is", "a tensor computed by a layer",
                         "remove this output")
    return state.replace(layers=layers)


def _calibrate(state: State) -> State:
    return state.replace(calibration=calibrate(state.graph, state.inputs))


def _points(state: State) -> State:
    return state.replace(points=choose_points(state.layers, state.graph.constants, state.calibration, state.arch,
                                              state.plain, state.graph.opset))


def _consts(state: State) -> State:
    return state.replace(consts=encode_consts(state.layers, state.graph.constants, state.points, state.arch))


def _layout(state: State) -> State:
    layout = lay_out(lifetimes(state.graph, state.layers), state.layers, state.consts, state.arch)
    verify_places([*layout.dram0.values(), *filter(None, [layout.copy])], state.arch.dram0_depth, "DRAM0")
    verify_places(layout.local.values(), state.arch.local_depth, "local memory")
    verify_lifetimes(state.layers, {**layout.dram0, **layout.local})
    return state.replace(layout=layout)


# -- scheduler and backend -----------------------------------------------------------------------------------------
def _schedule(state: State) -> State:
    return state.replace(schedule=schedule(state.points, state.layout, state.arch))


def _interleave(state: State) -> State:
    return state.replace(schedule=interleaved(state.schedule, state.arch))


def _verify(state: State) -> State:
    written = [*(state.layout.dram0[port.tensor] for port in state.graph.inputs), *filter(None, [state.layout.copy])]
    verify(state.schedule.operations, state.arch, written, len(state.consts.vectors))
    return state


def _encode(state: State) -> State:
    instructions, starts = encode(state.schedule.operations, state.arch)
    counts = np.diff([*starts, len(instructions)])
    return state.replace(program=assemble(instructions, state.arch), instruction_counts=_by_layer(state, counts),
                         instruction_layers=np.repeat(state.schedule.layers, counts))


def _by_layer(state: State, numbers: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    """One number for each operation, summed up for each layer."""
    sums = np.bincount(state.schedule.layers, numbers, len(state.layers))
    return tuple(int(number) for number in sums)


STEPS: tuple[Step, ...] = (
    Step("frontend", _read, lambda state: state.graph.text()),
    Step("split_host", _split_host, lambda state: _host_text(state) + state.graph.text()),
    Step("check_supported", _check_supported, lambda state: state.graph.text()),
    Step("pool_parts", _graph_pass(pool_parts), lambda state: state.graph.text()),
    Step("normalise", _normalise, lambda state: state.graph.text()),
    Step("fold_channelwise", _graph_pass(fold_channelwise), lambda state: state.graph.text()),
    Step("order", _graph_pass(in_order), lambda state: state.graph.text()),
    Step("fold_forward", _fold_forward, lambda state: state.graph.text()),
    Step("drop_unread_pixels", _graph_pass(drop_unread_pixels), lambda state: state.graph.text()),
    Step("join_sums", _join_sums, lambda state: state.graph.text()),
    Step("pack_inputs", _pack_inputs, lambda state: state.graph.text()),
    Step("layers", _layers, lambda state: hir.text(state.layers)),
    Step("calibrate", _calibrate, lambda state: state.calibration.text()),
    Step("points", _points, lambda state: state.points.text()),
    Step("consts", _consts, lambda state: f"{len(state.consts.vectors)} vectors\n"),
    Step("memory", _layout, lambda state: state.layout.text()),
    Step("schedule", _schedule, lambda state: lir.program_text(state.schedule.operations)),
    Step("interleave", _interleave, lambda state: lir.program_text(state.schedule.operations)),
    Step("verify", _verify, lambda state: "no fault found\n"),
    Step("backend", _encode, lambda state: f"{len(state.program)} bytes\n"),
)
"""The compiler, in order."""


def compile_model(model: Path, arch: Arch, output: Path, *, name: str | None = None,
                  calibration: Mapping[str, np.ndarray] | None = None, plain: bool = False,
                  host_fallback: bool = False, outputs: Sequence[str] = (), dump_dir: Path | None = None,
                  progress: Callable[[str], None] | None = None,
                  watch: Callable[[Step, State], None] | None = None) -> CompileReport:
    """Compile a model file into ``output``/NAME.tmodel, NAME.tprog and NAME.tdata; NAME defaults to the file's stem.

    A ``.pb`` is a frozen TensorFlow graph, everything else ONNX. ``outputs`` names the tensors (of TensorFlow: nodes)
    that the network ends at, by default those that the ONNX file declares; a frozen graph declares none.

    ``calibration`` maps input names to arrays [samples, ...]; without it seeded random inputs give the ranges, with a
    warning. ``plain`` computes everything at the data type's own point. With ``host_fallback`` the host runs Softmax,
    ArgMax and what else is refused, and all that reads it; without it they are refused. ``progress`` hears each step's
    name, ``watch`` sees what each step left.
    Raises WeftError for everything that is the user's to mend.
    """
    model, output = Path(model), Path(output)
    name = file_name(name or model.stem, "--name" if name else "the model's name")
    state = State(model, arch, calibration, plain, host_fallback, tuple(outputs))
    for number, step in enumerate(STEPS):
        if progress is not None:
            progress(step.name)
        before = state.graph
        state = _run(step, state)
        if dump_dir is not None:
            _dump(Path(dump_dir), f"{number:02}_{step.name}", step, state, before is not state.graph)
        if watch is not None:
            watch(step, state)
    return _write(state, output, name)


def _run(step: Step, state: State) -> State:
    """What a step raises that is not meant for the user comes from a model that nobody can run, or is a fault."""
    try:
        return step.run(state)
    except WeftError:
        raise
    except Exception as error:
        must_run(state.model, state.outputs)
        raise Fault(explain(f"step {step.name!r}", f"{type(error).__name__} {error}", "a result, for onnxruntime runs "
                            "this model", "report it with the model; --dump-dir keeps the steps before")) from error


def _dump(folder: Path, stem: str, step: Step, state: State, graph_changed: bool) -> None:
    contents = {f"{stem}.txt": step.text(state).encode()}
    if graph_changed:
        contents[f"{stem}.onnx"] = to_onnx(state.graph).SerializeToString(deterministic=True)
    write_files(folder, contents)


def _write(state: State, folder: Path, name: str) -> CompileReport:
    passed = _by_layer(state, [array_vectors([operation]) for operation in state.schedule.operations])
    rows = layer_table(state.layers, state.points, state.calibration, state.layout, state.instruction_counts, passed,
                       state.arch)
    files = {kind: f"{name}.{kind}" for kind in ("tdata", "tprog", "tmodel")}
    manifest = TModel(
        name, folder, state.arch, files["tprog"], len(state.program),
        _const_files(state, files["tdata"]),
        _ports(state, state.graph.inputs), _ports(state, state.graph.outputs), state.host,
        sum(row["macs"] for row in rows), rows, state.instruction_layers)
    storage = state.arch.number.storage_dtype
    write_files(folder, {
        files["tdata"]: state.consts.vectors.astype(storage).tobytes(),
        files["tprog"]: state.program,
        files["tmodel"]: (json.dumps(manifest.to_json(), indent=1) + "\n").encode(),
    })
    return CompileReport(
        name, folder / files["tmodel"], folder / files["tprog"], folder / files["tdata"], rows,
        sum(state.instruction_counts), manifest.macs, total_vectors(rows),
        sum(row["saturated"] for row in rows), _warnings(state, rows), state.host)


def _const_files(state: State, name: str) -> tuple[ConstFile, ...]:
    size, copy = len(state.consts.vectors), state.layout.copy
    return ConstFile(name, 0, size), *([ConstFile(name, copy.base, size, "dram0")] if copy is not None else [])


def _ports(state: State, ports: tuple[Any, ...]) -> tuple[Port, ...]:
    places = state.layout.dram0
    found = []
    for port in ports:
        place, (_, channels, height, width) = places[port.tensor], state.graph.shapes[port.tensor]
        found.append(Port(port.name, place.base, place.size, tuple(port.shape), (channels, height, width),
                          state.points.vars[port.tensor], port.order, port.packing))
    return tuple(found)


def _warnings(state: State, rows: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    warnings = []
    if state.calibration.random and not (state.plain or state.arch.mac_rounding == EVERY_STEP):
        warnings.append("no calibration inputs: binary points come from random inputs and may be far off; "
                        "give real ones (--calibrate x.npz)")
    for port in state.graph.inputs:
        exponent = state.arch.number.width - 1 - state.points.vars[port.tensor]
        beyond = state.calibration.ranges[port.tensor].beyond(exponent)
        if beyond:
            warnings.append(f"input {port.name}: {beyond} calibration values saturate")
    for port in state.graph.outputs:
        largest = state.calibration.ranges[port.tensor].magnitude * 2.0 ** state.points.vars[port.tensor]
        if 0 < largest < FEWEST_STEPS:
            warnings.append(f"output {port.name}: its values are no more than {largest:.1f} steps of its type, for it "
                            "shares a binary point with much larger numbers; look for a damaged weight")
    for row in rows:
        if row["saturated"]:
            warnings.append(f"layer {row['name']}: {row['saturated']} calibration values saturate")
    return tuple(warnings)
