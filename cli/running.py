# SPDX-License-Identifier: Apache-2.0
"""The command ``weft run``: a compiled network on the golden machine, on the simulated hardware or on a device."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli import console
from weft.cli.devices import check_device, is_simulated, opened
from weft.cli.options import SetOption, TraceOption, load, need_simulation, override, state_pairs
from weft.cli.outputs import Output, check_outputs
from weft.report.kinds import TRACE
from weft.runtime.arrays import ARRAYS, read_arrays, write_arrays
from weft.runtime.devices import GOLDEN, RTL
from weft.support.errors import WeftError, explain

if TYPE_CHECKING:
    from weft.runtime import Session
    from weft.runtime.devices import Backend
    from weft.runtime.session import RunResult
    from weft.tmodel.network import Network


def run_command(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    inputs: Annotated[Path, typer.Option("--input", metavar="FILE", help=".npz with an array for each input, or .npy; "
                                         "[N, ...] runs N times.")],
    on: Annotated[str, typer.Option("--on", metavar="golden|rtl|DEVICE", help="The numpy machine, the simulated "
                                    "hardware, or a device: sim, serial:auto, serial:PORT, udp:HOST, "
                                    "mmio:BOARD.")] = "golden",
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the outputs as .npz; "
                                               "default: not written.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Fixed-point vectors [size, array_size] in and out.")] = False,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    images: Annotated[int | None, typer.Option("--images", min=1, metavar="COUNT", help="At most the first so many "
                                               "images; default: all.")] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not run golden too and compare.")] = False,
    state: Annotated[list[str] | None, typer.Option("--state", metavar="OUTPUT:INPUT", help="An output that the next "
                                                    "step reads as this input, at first 0; may be repeated; "
                                                    "default: none.")] = None,
    trace: TraceOption = None,
    layers: Annotated[bool, typer.Option("--layers", help="On rtl, one image: where the cycles of each layer "
                                         "went.")] = False,
    board: Annotated[str | None, typer.Option("--board", metavar="BOARD", help="On rtl: a name of `weft board list`, "
                                              "whose memory controller says when memory answers; default: ideal "
                                              "memories.")] = None,
    pieces: Annotated[str | None, typer.Option("--pieces", metavar="auto|COUNT", help="On rtl: cut the program at "
                                               "borders of layers, where golden knows memory, and simulate so many "
                                               "pieces side by side, one a processor; default: in one "
                                               "piece.")] = None,
    samples: Annotated[int, typer.Option("--samples", min=0, max=65535, metavar="CYCLES", help="On rtl and "
                                         "boards: look at the units every so many cycles, and tell what they did; "
                                         "0: never.")] = 0,
) -> None:
    """Run a compiled model.

    On rtl, golden runs too and every word of DRAM must be equal (else exit code 2); on a device every word of the
    outputs."""
    from weft.cli.in_pieces import in_pieces, piece_count
    from weft.runtime import Session

    _check_place(on, {"--trace": trace is not None, "--layers": layers, "--board": board is not None,
                      "--pieces": pieces is not None, **({"--samples": bool(samples)} if on == GOLDEN else {})})
    count = piece_count(pieces, {"--trace": trace is not None, "--layers": layers, "--samples": bool(samples),
                                 "--board": board is not None, "--no-check": no_check})
    check_outputs({"MODEL": model, "--input": inputs}, [Output("--output", output, ARRAYS),
                                                        Output("--trace", trace, TRACE)])
    loaded = load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    kept, names = state_pairs(state, raw), [tensor.name for tensor in loaded.signature.inputs]
    initial = [name for name in names if name in kept.values()]
    arrays = read_arrays(inputs, [name for name in names if name not in initial], optional=initial)
    options = in_pieces(count, session.arch) if count else {
        "trace_operations": trace is not None or layers, "sample_interval": samples}
    if board is not None:
        from weft.cli.memory import paced  # the estimator's imports take longer than a small run

        options |= paced(board, session)
    result = _run(session, on, arrays, kept, raw, {"check": not no_check, "most": images, **options})
    if layers and result.images != 1:
        raise WeftError(explain("--layers", f"{result.images} images", "one image", "add --images 1"))
    if output:
        write_arrays(output, result.outputs)
    if trace:
        from weft.cli.tracing import write_run

        write_run(trace, session.arch, result)
    where = _layers(loaded, result) if layers else None
    sampled = console.samples_object(loaded, result) if samples else None
    if as_json:
        print(json.dumps({**console.as_object(result), "checksums": loaded.checksums,
                          **({"where": where} if where else {}), **({"samples": sampled} if sampled else {})}))
    else:
        _print(loaded, on, result, sampled, where)
    if result.comparison:
        result.comparison.insist()


def _check_place(on: str, of_rtl: dict[str, bool]) -> None:
    """Raise WeftError for an unknown device, and for options that only RTL can serve on another device.

    ``of_rtl``: these options -> whether they are given."""
    check_device(on)
    for option in [name for name, given in of_rtl.items() if given and on != RTL]:
        raise WeftError(explain(option, f"--on {on}", "--on rtl", "add --on rtl, or use weft estimate"))


def _run(session: Session, on: str, arrays: Any, kept: dict[str, str], raw: bool, options: dict[str, Any]) -> RunResult:
    """Run the network, with its states if there are any. Raise WeftError and Mismatch.

    ``kept``: output -> input that the next step reads it as."""
    from weft.runtime.streaming import stream

    if is_simulated(on):
        need_simulation()
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(console.progress())
        machine: str | Backend = on
        interval = options.pop("sample_interval", 0) if on != RTL else 0
        if on not in (GOLDEN, RTL):
            device = stack.enter_context(opened(on, session, {"sample_cycles": interval} if interval else {}))
            session, machine = device.session, device.backend
        options = {**options, "on": machine, "progress": progress}
        return stream(session, arrays, kept, **options) if kept else session.run(arrays, raw=raw, **options)


def _layers(network: Network, result: RunResult) -> dict[str, Any]:
    """Return where the cycles of each layer went, over all of the network's programs."""
    from weft.cli.cycle_table import cycles_object, joined, waits_of

    return joined([cycles_object(program, waits_of(program, *ran)) for program, ran in
                   zip(network.machines, result.operations, strict=True)], network.arch)


def _print(network: Network, on: str, result: RunResult, sampled: dict[str, Any] | None,
           where: dict[str, Any] | None) -> None:
    """Print the result of a run, its samples and its cycles."""
    console.print_run(network, on, result)
    if sampled:
        console.print_samples(sampled)
    if where:
        from weft.cli.cycle_table import print_cycles

        print_cycles(where)
