"""The command line: a thin layer of commands. What they do lives in ``compiler/``, ``runtime/`` and ``hw/``.

Exit codes: 0 fine, 1 a user's mistake (one message on standard error, no traceback), 2 RTL and golden differ,
130 interrupted.
Heavy imports stand inside the commands, so that ``weft isa`` does not wait for onnxruntime.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError  # typer has no public name for them

from weft.cli import board, console, streams
from weft.cli.archs import archs_command
from weft.cli.compiling import compile_command
from weft.cli.demo import demo_command
from weft.cli.doctor import doctor_command
from weft.cli.examples import add_examples
from weft.cli.exploring import explore_command
from weft.cli.inspecting import inspect_command
from weft.cli.options import (
    ArchOption,
    FolderOption,
    LatencyOption,
    PartOption,
    SetOption,
    TraceOption,
    load,
    make_folder,
    need_simulation,
    override,
    state_pairs,
    verilog_of,
    version,
)
from weft.cli.reporting import report_command
from weft.cli.values import insist_on_values
from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import INTERRUPTED, USER_ERROR, WeftError, explain
from weft.hw.contract.timing import SIMULATED_DRAM_LATENCY
from weft.runtime.arrays import read_arrays, write_arrays
from weft.runtime.errors import Mismatch
from weft.runtime.files import read_bytes, reason, write_text

if TYPE_CHECKING:
    from weft.runtime import Device, Session
    from weft.runtime.devices import Backend

FINE, MISMATCH = 0, 2

app = typer.Typer(name="weft", no_args_is_help=True, rich_markup_mode=None,
                  pretty_exceptions_enable=False,
                  help="Machine-learning accelerators: hardware, compiler, and the proof that both agree.")
app.add_typer(board.app, name="board")

app.command("compile")(compile_command)
app.command("inspect")(inspect_command)
app.command("archs")(archs_command)
app.command("report")(report_command)
app.command("explore")(explore_command)
app.command("doctor")(doctor_command)
app.command("demo")(demo_command)


@app.callback()
def weft(show_version: Annotated[bool, typer.Option("--version", help="Print the version and end.",
                                                    is_eager=True, callback=lambda on: _version(on))] = False) -> None:
    """Machine-learning accelerators: hardware, compiler, and the proof that both agree."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weft {version()}")
        raise typer.Exit


# -- commands ----------------------------------------------------------------------------------------------------------
@app.command()
def verilog(
    arch: ArchOption,
    output: FolderOption,
    fusesoc: Annotated[bool, typer.Option("--fusesoc", help="Write weft_top.core too, for FuseSoC.")] = False,
    vivado: Annotated[bool, typer.Option("--vivado", help="Write package_ip.tcl too, with which Vivado packages the "
                                         "machine as IP-XACT.")] = False,
    overrides: SetOption = None,
) -> None:
    """Write weft_top.v, weft.json (every parameter) and weft.h (ISA and registers for C) of a machine."""
    from weft.hw.flow.packaging import fusesoc_core, vivado_script
    from weft.hw.flow.reports import c_header, summary
    from weft.hw.top import with_ports

    machine = override(Arch.load(arch), overrides)
    make_folder(output)
    with console.working("making the Verilog"):
        text = verilog_of(machine)
    parameters = json.dumps(summary(machine), indent=2) + "\n"
    files = {"weft_top.v": text, "weft.json": parameters, "weft.h": c_header(machine)}
    if fusesoc:
        files["weft_top.core"] = fusesoc_core(Path(arch).stem, version())
    if vivado:
        files["package_ip.tcl"] = vivado_script(machine, list(with_ports(machine)[1]), version())
    for name, content in files.items():
        write_text(output / name, content)
        print(output / name)


@app.command()
def run(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    inputs: Annotated[Path, typer.Option("--input", metavar="FILE", help=".npz with an array for each input, or .npy; "
                                         "[N, ...] runs N times.")],
    on: Annotated[str, typer.Option("--on", metavar="golden|rtl|DEVICE", help="The numpy machine, the simulated "
                                    "hardware, or a device: sim, serial:PORT, udp:HOST, mmio:BOARD.")] = "golden",
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
    samples: Annotated[int, typer.Option("--samples", min=0, max=65535, metavar="CYCLES", help="On rtl: look at the "
                                         "units every so many cycles, and tell what they did; 0: never.")] = 0,
) -> None:
    """Run a compiled model. On rtl, golden runs too and every word of DRAM0 must be equal (else exit code 2); on a
    device every word of the outputs."""
    from weft.runtime import GOLDEN, RTL, Session
    from weft.runtime.driver.targets import read_device
    from weft.runtime.streaming import stream

    if on not in (GOLDEN, RTL):
        read_device(on)
    for option in [name for name, given in (("--trace", trace), ("--layers", layers), ("--samples", samples))
                   if given and on != RTL]:
        raise WeftError(explain(option, f"--on {on}", "--on rtl", "add --on rtl, or use weft estimate"))
    loaded = load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    kept, names = state_pairs(state, raw), [tensor.name for tensor in loaded.signature.inputs]
    initial = [name for name in names if name in kept.values()]
    arrays = read_arrays(inputs, [name for name in names if name not in initial], optional=initial)
    if on in (RTL, "sim") or on.startswith("sim:"):
        need_simulation()
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(console.progress())
        machine: str | Backend = on
        if on not in (GOLDEN, RTL):
            device = stack.enter_context(opened(on, session))
            session, machine = device.session, device.backend
        options: dict[str, Any] = {"on": machine, "check": not no_check, "most": images, "progress": progress,
                   "trace_operations": trace is not None or layers, "sample_interval": samples}
        result = stream(session, arrays, kept, **options) if kept else session.run(arrays, raw=raw, **options)
    if layers and result.images != 1:
        raise WeftError(explain("--layers", f"{result.images} images", "one image", "add --images 1"))
    if output:
        write_arrays(output, result.outputs)
    if trace:
        from weft.cli.tracing import write_run

        write_run(trace, session.arch, result)
    where = None
    if layers:
        from weft.cli.cycles import cycles_object, joined, print_cycles, waits_of

        where = joined([cycles_object(program, waits_of(program, *ran)) for program, ran in
                        zip(loaded.machines, result.operations, strict=True)], loaded.arch)
    sampled = console.samples_object(loaded, result) if samples else None
    if as_json:
        print(json.dumps({**console.as_object(result), "checksums": loaded.checksums,
                          **({"where": where} if where else {}), **({"samples": sampled} if sampled else {})}))
    else:
        console.print_run(loaded, on, result)
        if sampled:
            console.print_samples(sampled)
        if where:
            print_cycles(where)
    if result.comparison:
        result.comparison.insist()


@app.command()
def estimate(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    trace: TraceOption = None,
    latency: LatencyOption = SIMULATED_DRAM_LATENCY,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """How many cycles a compiled model takes and where they go, without simulating the hardware."""
    from weft.cli.estimate import estimated, print_estimate
    from weft.compiler.estimator.machine import DramTiming
    from weft.runtime import Session

    loaded = load(model)
    session = Session(loaded, override(loaded.arch, overrides))
    with console.progress() as progress:
        found, where = estimated(session, DramTiming(latency, latency), progress)
    if trace:
        from weft.cli.tracing import write_estimates

        write_estimates(trace, session, found)
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, **where}))
    else:
        print_estimate(where)


@app.command("resources")
def resources_command(
    arch: ArchOption,
    part: PartOption = None,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """What a machine takes of a chip, predicted without synthesis, and whether it fits with the rest of a board."""
    from weft.cli.resources import predicted, print_predicted

    found = predicted(override(Arch.load(arch), overrides), arch, part)
    if as_json:
        print(json.dumps(found))
    else:
        print_predicted(found)


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


add_examples(app)
add_examples(board.app, "board ")


# -- helpers -----------------------------------------------------------------------------------------------------------
def opened(where: str, session: Session) -> Device:
    """The device, with the session's network loaded; to be closed. Raises WeftError."""
    from weft.runtime import Device

    device = Device.open(where)
    try:
        device.load(session.network, session.arch)
    except BaseException:
        device.close()
        raise
    return device


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
    """What typer says of a wrong option or argument becomes a message as all others."""
    insist_on_values(app, sys.argv[1:] if arguments is None else arguments)
    try:
        return int(app(args=None if arguments is None else list(arguments), prog_name="weft",
                       standalone_mode=False) or FINE)
    except NoArgsIsHelpError as help_text:
        help_text.show()
        return USER_ERROR
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else app.info.name
        raise WeftError(explain(f"command {command}", error.format_message().rstrip("."), _usage(error),
                                f"{command} --help")) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:  # of what shows a completion script
        return int(end.code or FINE)


def _usage(error: UsageError) -> str:
    """What may be typed there: the commands where one is unknown, else how the command is called."""
    if error.ctx is None:
        return "a command"
    if error.message.startswith("No such command"):
        return ", ".join(getattr(error.ctx.command, "commands", {}))
    return " ".join(error.ctx.get_usage().split())


def _say(message: object, code: int) -> int:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(streams.printable(f"weft: {message}\n", sys.stderr.encoding))
    return code


if __name__ == "__main__":
    main()
