# SPDX-License-Identifier: Apache-2.0
"""The command ``weft compile``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from weft.cli import console
from weft.cli.following import following
from weft.cli.options import (
    AUTO_CORES,
    FOR_THROUGHPUT,
    HOST_FALLBACK,
    ArchOption,
    CoresOption,
    EndOption,
    FixOption,
    GoalOption,
    JsonOption,
    ModelArgument,
    SetOption,
    ShapeOption,
    ends,
    fixed_inputs,
    input_shapes,
    make_folder,
    override,
)
from weft.cli.outputs import Output, check_outputs
from weft.cli.poor import with_quality
from weft.hw.contract.arch import Arch
from weft.report.kinds import PAGE
from weft.runtime.arrays import read_arrays
from weft.support.errors import WeftError
from weft.support.files import file_name
from weft.support.outputs import Kind, write_text

ROWS = Kind.of_head("layers that --report wrote", r'\[(\n \{\n  "name": "[^\n]*\n  "kind": "|\]\n$)')

if TYPE_CHECKING:
    from weft.compiler.check.checker import Checker
    from weft.compiler.check.quality import Quality
    from weft.compiler.products import Products, Step
    from weft.compiler.request import Sizes, Values


def compile_command(
    model: ModelArgument,
    arch: ArchOption,
    folder: Annotated[Path | None, typer.Option("-o", "--folder", metavar="DIR", help="Folder to write into; default: "
                                                "build/NAME.")] = None,
    output: EndOption = "",
    calibrate: Annotated[Path | None, typer.Option("--calibrate", metavar="FILE", help="Inputs (.npz, .npy) that show "
                                                   "the values' ranges; default: random ones.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of the files that are written; "
                                             "default: the model's.")] = None,
    ranges: Annotated[str, typer.Option("--ranges", metavar="HOW", help="How an INT8 machine chooses ranges: minmax "
                                        "(what was seen), percentile or error (a few values saturate).")] = "minmax",
    plain: Annotated[bool, typer.Option("--plain", help="Give every tensor the data type's own binary point.")] = False,
    host_fallback: Annotated[bool, typer.Option("--host-fallback/--no-host-fallback", help="What the machine does not "
                                                "compute runs on the host (onnxruntime), wherever it stands, or is an "
                                                "error.")] = HOST_FALLBACK,
    shape: ShapeOption = None,
    fix: FixOption = None,
    cores: CoresOption = AUTO_CORES,
    goal: GoalOption = FOR_THROUGHPUT,
    schedule: Annotated[Path | None, typer.Option("--schedule", metavar="FILE.json", help="A schedule that weft ir "
                                                  "check accepts: it says which core computes which box of which "
                                                  "layer; default: the compiler chooses.")] = None,
    input_rate: Annotated[float | None, typer.Option("--input-rate", metavar="BYTES", min=1, max=1e12, help="Bytes a "
                                                     "second at which inputs reach the machine, such as 300000 over a "
                                                     "UART of 3 Mbaud: inputs are packed for the first layer only "
                                                     "where that gains more than it costs; default: their way "
                                                     "costs nothing.")] = None,
    report_file: Annotated[Path | None, typer.Option("--report", metavar="FILE.json",
                                                     help="Run some calibration inputs on golden; print and "
                                                     "write range, point, saturations, SNR (dB) of layers; "
                                                     "default: not run.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", metavar="PAGE.html", help="Write the same as a page to "
                                                   "look at, with timeline, roofline and memory (see weft report); "
                                                   "default: not written.")] = None,
    dump_dir: Annotated[Path | None, typer.Option("--dump-dir", metavar="DIR",
                                                  help="Write what every step leaves there; default: not "
                                                  "written.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run one input after every step; name the first step that "
                                        "changes the result (exit code 2).")] = False,
    seconds: Annotated[float | None, typer.Option("--tune", metavar="SECONDS", min=0, max=1_000_000, help="Search so "
                                                  "long for tilings, places and orders that take fewer cycles, and "
                                                  "write them to NAME.choices.json; default: no search.")] = None,
    steps: Annotated[int | None, typer.Option("--tune-steps", metavar="COUNT", min=0, max=10_000_000, help="Search so "
                                              "many candidates instead, with the same result on every computer; "
                                              "default: no search.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="NUMBER", min=0, max=1 << 32, help="Seed of the search.")] = 0,
    board: Annotated[str | None, typer.Option("--board", metavar="BOARD", help="Compile for this board's memory, "
                                              "which a search estimates with; default: for an ideal one.")] = None,
    choices: Annotated[Path | None, typer.Option("--choices", metavar="FILE", help="What an earlier search found, "
                                                 "without a search; default: the formulas choose.")] = None,
    as_json: JsonOption = False,
    overrides: SetOption = None,
) -> None:
    """Compile a network into .tmodel, .tprog and .tdata."""
    from weft.cli.tuning import Asked, chosen, print_tuned, tuned_object
    from weft.compiler.choices import KIND, SUFFIX, write_choices
    from weft.compiler.cores import check_choices_fit, check_cores
    from weft.compiler.pipeline import compile_model
    from weft.compiler.request import Request

    asked = Asked(seconds, steps, seed, board, choices)
    stem = file_name(name or model.stem, "--name" if name else "the model's name")
    folder = folder or Path("build") / stem
    check_outputs({"MODEL": model, "--calibrate": calibrate, "--arch": arch, "--choices": choices,
                   "--schedule": schedule}, [
        *(Output("--folder", folder / f"{stem}.{suffix}") for suffix in ("tmodel", "tprog", "tdata")),
        Output("--report", report_file, ROWS), Output("--html", html_file, PAGE),
        *([Output("--tune", folder / f"{stem}{SUFFIX}", KIND)] if asked.searches else [])])
    checker: Checker | None = None
    quality: Quality | None = None
    if check:
        from weft.compiler.check.checker import Checker  # with the golden machine, which others need not wait for

        checker = Checker()
    if calibrate:
        from weft.compiler.check.quality import Quality

        quality = Quality()

    def watch(step: Step, products: Products) -> None:
        if checker:
            checker.after(step, products)
        if quality:
            quality.after(step, products)

    machine = override(Arch.load(arch), overrides)
    cores, assigned = following(schedule, machine, cores)
    check_cores(cores, goal, machine)
    check_choices_fit(cores, goal, machine, asked.option)
    outputs, shapes, fixed = ends(output), input_shapes(shape), fixed_inputs(fix)
    calibration = calibration_inputs(calibrate, model, outputs, shapes, fixed) if calibrate else None
    for path in filter(None, (folder, dump_dir)):
        make_folder(path)
    input_cycles = _cycles_of_byte(arch, input_rate) if input_rate else 0.0
    request = Request(model, calibration, plain, host_fallback, outputs, shapes=shapes, ranges=ranges, fixed=fixed,
                      input_cycles=input_cycles, cores=cores, goal=goal, assigned=assigned)
    with console.progress() as progress:
        parts, found = chosen(asked, request, machine, progress)
        try:
            report = compile_model(model, machine, folder, name=name, calibration=calibration, plain=plain,
                                   host_fallback=host_fallback, outputs=outputs, dump_dir=dump_dir,
                                   watch=watch if checker or quality else None, shapes=shapes, ranges=ranges,
                                   fixed=fixed, choices=parts, cores=cores, goal=goal, assigned=assigned,
                                   input_cycles=input_cycles,
                                   progress=lambda step: progress(f"compiling: {step}", 0, 0))
        except WeftError:
            if checker:
                checker.insist()  # a step that went wrong before says more than what came of it
            raise
        if quality:
            progress("comparing outputs with the network's", 0, 0)
            report = with_quality(report, quality, machine)
        rows = list(report.layers)
        if report_file or html_file:
            from weft.cli.reporting import add_signals, write_page
            from weft.compiler.check.probe import layer_signals

            progress("running every layer on golden", 0, 0)
            signals = layer_signals(request, machine)
            rows = [{**row, **signal} for row, signal in zip(rows, signals, strict=True)]
            measured = add_signals(report.model_path, signals)
        if report_file:
            write_text(report_file, json.dumps(rows, indent=1) + "\n", ROWS)
        if html_file:
            write_page(measured, html_file, progress)
    tuned = tuned_object(found, [row["name"] for row in report.layers]) if found else None
    if tuned:
        write_choices(folder / f"{stem}{SUFFIX}", [each.choices for each in found], (tuned["before"], tuned["after"]))
    verdicts = checker.verdicts if checker else []
    if as_json:
        print(json.dumps({**console.compiled_object(report, rows, verdicts), **({"tuned": tuned} if tuned else {})}))
    else:
        console.print_compiled(report)
        if tuned:
            print_tuned(tuned)
        if report_file:
            console.print_layers(rows)
        if checker:
            console.print_check(verdicts)
    if checker:
        checker.insist()


def _cycles_of_byte(arch: str, input_rate: float) -> float:
    """Return the cycles of a machine in which a byte of an input reaches it, at ``input_rate`` bytes a second."""
    from weft.boards import clock_hz

    return clock_hz(arch) / input_rate


def calibration_inputs(path: Path, model: Path, outputs: Sequence[str],
                       shapes: Sizes, fixed: Values) -> dict[str, np.ndarray]:
    """Return a file's arrays by input name. Raise WeftError if one is missing.

    A lone array serves a lone input, whatever it is called."""
    from weft.compiler.frontend.reader import read_model

    names = [port.name for port in read_model(model, outputs, shapes, fixed).inputs]
    return read_arrays(path, names, "calibration file")
