# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and the functions that read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.support.errors import USER_ERROR, WeftError, explain
from weft.support.files import reason
from weft.support.packages import no_package

if TYPE_CHECKING:
    from weft.tmodel.network import Network

INTEGER = re.compile("-?[0-9]{1,20}")
"""The pattern of an integer for --set; longer ones are out of every key's range, and are refused as text."""

UNCOMPILED = frozenset({".onnx", ".pb", ".tflite"})

MOST_SIZES = 32
"""The most sizes for --shape."""

HOST_FALLBACK = True
"""Whether ``weft compile`` and ``weft.compile`` let the host run what the machine does not compute."""

ArchOption = Annotated[str, typer.Option("-a", "--arch", metavar="ARCH", help="A preset's name or a .tarch file.")]
FolderOption = Annotated[Path, typer.Option("-o", "--folder", metavar="DIR", help="Folder to write into.")]
TraceOption = Annotated[Path | None, typer.Option("--trace", metavar="FILE.json", help="Write when each operation ran, "
                                                  "for Perfetto; 1 us is 1 cycle (run: on rtl); default: not "
                                                  "written.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE",
                                                     help="Override an architecture key; may be repeated; "
                                                          "default: none.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, a frozen TensorFlow graph (.pb) or "
                                               "a TensorFlow Lite file (.tflite).", show_default=False)]
EndOption = Annotated[str, typer.Option("--end", metavar="NAME[,NAME]", help="Tensors (TensorFlow: nodes) that the "
                                        "network ends at; default: its own outputs; needed for a .pb.")]
ShapeOption = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME:N,N,..", help="Sizes of an input that "
                                                       "the file leaves open, or SIZE=N for one by its name; may be "
                                                       "repeated; default: none.")]
FixOption = Annotated[list[str] | None, typer.Option("--fix", metavar="NAME=VALUE", help="An input that always has "
                                                     "this value, one number or all in a row (1,2,3), and becomes a "
                                                     "constant; may be repeated; default: none.")]
_LATENCY = "How long DRAM takes to answer, reads and write responses alike"
LatencyOption = Annotated[int, typer.Option("--latency", min=2, max=1_000_000, metavar="CYCLES", help=f"{_LATENCY}.")]
OwnLatencyOption = Annotated[int | None, typer.Option("--latency", min=2, max=1_000_000, metavar="CYCLES",
                                                      help=f"{_LATENCY}; default: {EXPECTED.read_latency}, "
                                                           "not with --board.")]
MemoryOption = Annotated[str | None, typer.Option("--board", metavar="BOARD", help="Take the memory of this board, a "
                                                  "name of `weft board list`, to the cycle, for both windows and the "
                                                  "program; default: ideal memories.")]
PartOption = Annotated[str | None, typer.Option("--part", metavar="PART", help="A chip, such as XC7A35T; default: that "
                                                "of the preset's board.")]
AUTO_CORES = "auto"
CoresOption = Annotated[str, typer.Option("--cores", metavar="HOW", help="How several cores work: batch (an image a "
                                          "core, none waits for another), split (one image over all cores) or auto "
                                          "(what --for asks for).")]
FOR_THROUGHPUT = "throughput"
GoalOption = Annotated[str, typer.Option("--for", metavar="GOAL", help="What several cores aim at: throughput (few "
                                         "cycles an image on average) or latency (few until an image is done).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


def override(arch: Arch, settings: Sequence[str] | None) -> Arch:
    """Return the machine with ``key=value`` settings applied. Raise WeftError for a wrong setting."""
    values: dict[str, Any] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise WeftError(explain("--set", setting, "KEY=VALUE", "for example --set mac_rounding=every_step"))
        values[key] = int(value) if INTEGER.fullmatch(value) else value
    return arch.replace(**values) if values else arch


def make_folder(path: Path) -> None:
    """Make a folder. Raise WeftError if it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeftError(explain(f"output folder {path}", reason(error),
                                "a folder that can be made", "choose another place")) from None


def need_simulation() -> None:
    """Raise WeftError if the packages of the extra ``sim`` are not there."""
    try:
        from weft.simulate import toolchain
    except ModuleNotFoundError as error:
        raise WeftError(no_package("simulation", str(error.name), "sim")) from None
    try:
        toolchain.setup()
    except toolchain.ToolchainError as error:
        raise WeftError(str(error)) from None


def verilog_of(arch: Arch) -> str:
    """Return the Verilog of a machine, after finding yosys."""
    need_simulation()
    from weft.hw.flow.verilog import verilog_text

    return verilog_text(arch)


def load(path: Path) -> Network:
    """Return a compiled network. Raise ModelError, with advice for a network that is not compiled."""
    from weft.runtime import Network

    if path.suffix in UNCOMPILED:
        raise WeftError(explain(f"model file {path}", "a network that is not compiled", "a .tmodel",
                                f"compile it first: weft compile {path} -a ARCH --calibrate FILE, then give the "
                                f".tmodel that this writes"))
    return Network.load(path)


def ends(output: str) -> tuple[str, ...]:
    """Return the names in --end. Raise WeftError if there are none."""
    outputs = tuple(filter(None, map(str.strip, output.split(","))))
    if output and not outputs:
        raise WeftError(explain("--end", repr(output), "NAME[,NAME]", "name a tensor, or leave --end out"))
    return outputs


def state_pairs(given: Sequence[str] | None, raw: bool) -> dict[str, str]:
    """Return output -> input, from --state. Raise WeftError for wrong pairs."""
    states: dict[str, str] = {}
    for text in given or ():
        made, _, read = text.partition(":")
        if not made or not read or made in states:
            raise WeftError(explain("--state", repr(text), "OUTPUT:INPUT once for an output",
                                    "for example --state h_out:h_in"))
        states[made] = read
    if states and raw:
        raise WeftError(explain("--state", "--raw", "arrays of the network's own types", "leave --raw out"))
    return states


def input_shapes(given: Sequence[str] | None) -> dict[str, tuple[int, ...] | int]:
    """Return sizes by input, and single sizes by their name, from --shape. Raise WeftError for wrong text."""
    shapes: dict[str, tuple[int, ...] | int] = {}
    for text in given or ():
        symbol, _, number = text.rpartition("=")
        if symbol and symbol not in shapes and INTEGER.fullmatch(number) and int(number) > 0:
            shapes[symbol] = int(number)
            continue
        name, _, sizes = text.rpartition(":")
        numbers = [int(size) if INTEGER.fullmatch(size.strip()) else 0 for size in sizes.split(",")]
        if not name or min(numbers) < 1 or len(numbers) > MOST_SIZES or name in shapes:
            raise WeftError(explain("--shape", repr(text), f"NAME:N,N,.. once for an input, at most {MOST_SIZES} sizes "
                                    "of at least 1, or SIZE=N", "for example --shape x:1,3,224,224 or --shape "
                                    "batch=1"))
        shapes[name] = tuple(numbers)
    return shapes


def fixed_inputs(given: Sequence[str] | None) -> dict[str, list[float | bool]]:
    """Return numbers by input, from --fix. Raise WeftError for wrong text."""
    fixed: dict[str, list[float | bool]] = {}
    for text in given or ():
        name, _, values = text.rpartition("=")
        try:
            numbers = [_number(value.strip()) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not name or not numbers or name in fixed:
            raise WeftError(explain("--fix", repr(text), "NAME=VALUE once for an input, numbers, true or false",
                                    "for example --fix sr=16000"))
        fixed[name] = numbers
    return fixed


def _number(text: str) -> float | bool:
    """Return the number or truth value in a text. Raise ValueError for other text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if INTEGER.fullmatch(text) else float(text)


def help_without_command(context: typer.Context) -> None:
    """Show the help of a group of commands and end with USER_ERROR where none of them is named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USER_ERROR)
