"""The command line: a thin layer of commands. What they do lives in ``compiler/``, ``runtime/`` and ``hw/``.

Exit codes: 0 fine, 1 a user's mistake (one message on standard error, no traceback), 2 RTL and golden differ,
130 interrupted.
Heavy imports stand inside the commands, so that ``weft isa`` does not wait for onnxruntime.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer

from weft.cli import board, console, streams
from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import INTERRUPTED, USER_ERROR, WeftError, explain
from weft.hw.contract.timing import SIMULATED_DRAM_LATENCY
from weft.runtime.arrays import read_arrays, write_arrays
from weft.runtime.errors import Mismatch
from weft.runtime.files import read_bytes, reason, write_text

FINE, MISMATCH = 0, 2
INTEGER = re.compile("-?[0-9]{1,20}")
"""Of --set: longer ones are out of every key's range, and say so as text."""

app = typer.Typer(name="weft", add_completion=False, no_args_is_help=True, rich_markup_mode=None,
                  pretty_exceptions_enable=False,
                  help="Machine-learning accelerators: hardware, compiler, and the proof that both agree.")
app.add_typer(board.app, name="board")

ArchOption = Annotated[str, typer.Option("-a", "--arch", metavar="ARCH", help="A preset's name or a .tarch file.")]
FolderOption = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write into.")]
TraceOption = Annotated[Path | None, typer.Option("--trace", metavar="FILE.json", help="Write when each operation ran, "
                                                  "for Perfetto; 1 us is 1 cycle (run: on rtl).")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE",
                                                     help="Override an architecture key; may be repeated.")]


# -- commands ----------------------------------------------------------------------------------------------------------
@app.command()
def verilog(arch: ArchOption, output: FolderOption, overrides: SetOption = None) -> None:
    """Write weft_top.v, weft.json (every parameter) and weft.h (ISA and registers for C) of a machine."""
    from weft.hw.flow.reports import c_header, summary

    machine = override(Arch.load(arch), overrides)
    make_folder(output)
    with console.working("making the Verilog"):
        text = verilog_of(machine)
    parameters = json.dumps(summary(machine), indent=2) + "\n"
    files = {"weft_top.v": text, "weft.json": parameters, "weft.h": c_header(machine)}
    for name, content in files.items():
        write_text(output / name, content)
        print(output / name)


@app.command("compile")
def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a frozen TensorFlow graph (.pb).",
                                          show_default=False)],
    arch: ArchOption,
    folder: Annotated[Path, typer.Option("-o", "--folder", metavar="DIR", help="Folder to write into.")],
    output: Annotated[str, typer.Option("--output", metavar="NAME[,NAME]", help="Tensors (TensorFlow: nodes) that the "
                                        "network ends at; needed for a .pb.")] = "",
    calibrate: Annotated[Path | None, typer.Option("--calibrate", metavar="FILE", help="Inputs (.npz, .npy) that show "
                                                   "the values' ranges; without it random ones.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the files written; default: the model's.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="The data type's own binary point everywhere.")] = False,
    host_fallback: Annotated[bool, typer.Option("--host-fallback", help="Softmax, ArgMax, whatever else is refused, "
                                                "and all behind it, run on the host (onnxruntime).")] = False,
    report_file: Annotated[Path | None, typer.Option("--report", metavar="FILE.json",
                                                     help="Run some calibration inputs on golden; print and "
                                                     "write range, point, saturations, SNR of layers.")] = None,
    dump_dir: Annotated[Path | None, typer.Option("--dump-dir", metavar="DIR",
                                                  help="Write what every step leaves there.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run one input after every step; name the first step that "
                                        "changes the result (exit code 2).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    overrides: SetOption = None,
) -> None:
    """Compile a network into .tmodel, .tprog and .tdata."""
    from weft.cli.check.checker import Checker
    from weft.compiler.pipeline import compile_model

    checker = Checker() if check else None
    machine = override(Arch.load(arch), overrides)
    outputs = tuple(filter(None, map(str.strip, output.split(","))))
    if output and not outputs:
        raise WeftError(explain("--output", repr(output), "NAME[,NAME]", "name a tensor, or leave --output out"))
    calibration = calibration_inputs(calibrate, model, outputs) if calibrate else None
    for path in filter(None, (folder, dump_dir)):
        make_folder(path)
    with console.progress() as progress:
        try:
            report = compile_model(model, machine, folder, name=name, calibration=calibration, plain=plain,
                                   host_fallback=host_fallback, outputs=outputs, dump_dir=dump_dir,
                                   watch=checker.after if checker else None,
                                   progress=lambda step: progress(f"compiling: {step}", 0, 0))
        except WeftError:
            if checker:
                checker.insist()  # a step that went wrong before says more than what came of it
            raise
        rows = list(report.layers)
        if report_file:
            from weft.cli.check.probe import layer_signals

            progress("running every layer on golden", 0, 0)
            signals = layer_signals(model, machine, calibration, plain, host_fallback, outputs)
            rows = [{**row, **signal} for row, signal in zip(rows, signals, strict=True)]
            write_text(report_file, json.dumps(rows, indent=1) + "\n")
    verdicts = checker.verdicts if checker else []
    if as_json:
        print(json.dumps(console.compiled_object(report, rows, verdicts)))
    else:
        console.print_compiled(report)
        if report_file:
            console.print_layers(rows)
        if checker:
            console.print_check(verdicts)
    if checker:
        checker.insist()


@app.command()
def run(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    inputs: Annotated[Path, typer.Option("--input", metavar="FILE", help=".npz with an array for each input, or .npy; "
                                         "[N, ...] runs N times.")],
    on: Annotated[str, typer.Option("--on", metavar="golden|rtl", help="The numpy machine or the simulated "
                                    "hardware.")] = "golden",
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write the outputs as .npz.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Fixed-point vectors [size, array_size] in and out.")] = False,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    images: Annotated[int | None, typer.Option("--images", min=1, help="At most the first so many images.")] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="On rtl: do not run golden and compare.")] = False,
    trace: TraceOption = None,
    layers: Annotated[bool, typer.Option("--layers", help="On rtl, one image: where the cycles of each layer "
                                         "went.")] = False,
) -> None:
    """Run a compiled model. On rtl, golden runs too and every word of DRAM0 must be equal (else exit code 2)."""
    from weft.runtime import GOLDEN, RTL, Session, TModel

    if on not in (GOLDEN, RTL):
        raise WeftError(explain("--on", on, "golden or rtl", "choose one of them"))
    for option in [name for name, given in (("--trace", trace), ("--layers", layers)) if given and on != RTL]:
        raise WeftError(explain(option, f"--on {on}", "--on rtl", "add --on rtl, or use weft estimate"))
    loaded = TModel.load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    arrays = read_arrays(inputs, [spec.name for spec in loaded.inputs])
    if on == RTL:
        need_simulation()
    with console.progress() as progress:
        result = session.run(arrays, on=on, raw=raw, check=not no_check, most=images, progress=progress,
                             trace_operations=trace is not None or layers)
    if layers and result.images != 1:
        raise WeftError(explain("--layers", f"{result.images} images", "one image", "add --images 1"))
    if output:
        write_arrays(output, result.outputs)
    if trace:
        from weft.simulate.trace import chrome_trace

        write_text(trace, json.dumps(chrome_trace(result.operations)) + "\n")
    where = None
    if layers:
        from weft.cli.cycles import cycles_object, print_cycles, waits_of

        where = cycles_object(loaded, waits_of(loaded, *result.operations[0]))
    if as_json:
        print(json.dumps({**console.as_object(result), "checksums": loaded.checksums,
                          **({"where": where} if where else {})}))
    else:
        console.print_run(loaded, on, result)
        if where:
            print_cycles(where)
    if result.comparison:
        result.comparison.insist()


@app.command()
def estimate(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    trace: TraceOption = None,
    latency: Annotated[int, typer.Option("--latency", min=2, max=1_000_000, metavar="CYCLES", help="Of DRAM, reads "
                                         "and write responses alike.")] = SIMULATED_DRAM_LATENCY,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """How many cycles a compiled model takes and where they go, without simulating the hardware."""
    from weft.cli.estimate import estimated, print_estimate
    from weft.compiler.estimator.machine import DramTiming
    from weft.runtime import Session, TModel

    loaded = TModel.load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    with console.progress() as progress:
        found, where = estimated(session, DramTiming(latency, latency), progress)
    if trace:
        from weft.simulate.trace import chrome_trace

        write_text(trace, json.dumps(chrome_trace([(found.cycles, found.operations)])) + "\n")
    if as_json:
        print(json.dumps(where))
    else:
        print_estimate(where)


@app.command()
def isa(arch: ArchOption, overrides: SetOption = None) -> None:
    """Print a machine's instruction set and registers."""
    from weft.hw.flow.reports import isa_text

    print(isa_text(override(Arch.load(arch), overrides), max(shutil.get_terminal_size().columns, 60)), end="")


@app.command()
def disassemble(
    program: Annotated[Path, typer.Argument(metavar="FILE.tprog", help="A program.", show_default=False)],
    arch: ArchOption,
    overrides: SetOption = None,
) -> None:
    """Print a program's instructions, one a line, numbered as the program counter counts."""
    from weft.hw.contract.isa import Isa

    instructions = Isa(override(Arch.load(arch), overrides))
    content = read_bytes(program, "program", "name a .tprog file")
    for number, instruction in enumerate(instructions.disassemble(content)):
        print(f"{number:6d}  {instructions.text(instruction)}")


# -- helpers -----------------------------------------------------------------------------------------------------------
def override(arch: Arch, settings: Sequence[str] | None) -> Arch:
    """The machine with ``key=value`` settings applied. Raises WeftError."""
    values: dict[str, Any] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise WeftError(explain("--set", setting, "KEY=VALUE", "for example --set mac_rounding=every_step"))
        values[key] = int(value) if INTEGER.fullmatch(value) else value
    return arch.replace(**values) if values else arch


def calibration_inputs(path: Path, model: Path, outputs: Sequence[str]) -> dict[str, np.ndarray]:
    """The file's arrays; a lone one serves a lone input whatever it is called. Raises WeftError."""
    from weft.compiler.frontend.reader import read_model

    return read_arrays(path, [port.name for port in read_model(model, outputs).inputs], "calibration file")


def make_folder(path: Path) -> None:
    """Raises WeftError when it cannot be there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeftError(explain(f"output folder {path}", reason(error),
                                "a folder that can be made", "choose another place")) from None


def need_simulation() -> None:
    """Raises WeftError when the packages of the extra ``sim`` are not there."""
    try:
        from weft.simulate import toolchain
    except ModuleNotFoundError as error:
        raise WeftError(explain("simulation", f"no Python package {error.name}", "an installation with the extra sim",
                                "pip install 'weft[sim]'")) from None
    try:
        toolchain.setup()
    except toolchain.ToolchainError as error:
        raise WeftError(str(error)) from None


def verilog_of(arch: Arch) -> str:
    """The Verilog of a machine, with yosys found."""
    need_simulation()
    from weft.hw.flow.verilog import verilog_text

    return verilog_text(arch)


# -- exit codes --------------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The program ``weft``. A request to end (SIGTERM) is an interrupt, so that what was begun is cleaned up."""
    signal.signal(signal.SIGTERM, _interrupt)
    code = exit_code(arguments)
    streams.abandon()
    sys.exit(code)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; whatever goes wrong by the user's doing becomes one message and a 1."""
    try:
        with streams.guarded():
            return _command(arguments)
    except WeftError as error:
        return _say(error, USER_ERROR)
    except Mismatch as error:
        return _say(error, MISMATCH)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return USER_ERROR
    except OSError as error:  # what no reader and no writer has foreseen, such as a full disk behind another library
        place = "the system" if error.filename is None else f"file {os.fsdecode(error.filename)}"
        return _say(explain(place, reason(error), "files that can be read, and written where there is room",
                            "look at the disk and the file's rights, or choose another place"), USER_ERROR)
    except MemoryError:
        return _say(explain("memory", "less than this needs", "what fits", "give a smaller model or input"), USER_ERROR)


def _command(arguments: Sequence[str] | None) -> int:
    """typer ends every command by SystemExit; its own 2, for a wrong option, is a user's mistake here."""
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:
        return USER_ERROR if end.code == MISMATCH else int(end.code or FINE)
    return FINE


def _say(message: object, code: int) -> int:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(streams.printable(f"weft: {message}\n", sys.stderr.encoding))
    return code


if __name__ == "__main__":
    main()
