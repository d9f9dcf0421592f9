# SPDX-License-Identifier: Apache-2.0
"""The command ``weft explore``."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from weft.boards import ASSUMED_HZ, BOARDS
from weft.cli import console
from weft.cli.options import (
    INTEGER,
    EndOption,
    FixOption,
    JsonOption,
    OwnLatencyOption,
    SetOption,
    ShapeOption,
    ends,
    fixed_inputs,
    input_shapes,
    override,
)
from weft.cli.outputs import Output, check_outputs
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, DramModel, IdealDram, LiteDram
from weft.support.errors import WeftError, explain
from weft.support.files import MOST_BYTES
from weft.support.outputs import Kind, write_text
from weft.support.processes import processes
from weft.support.strict_json import parse_object

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from weft.explore.measure import Network
    from weft.explore.search import Found, Outcome
    from weft.explore.space import Axes, Point
    from weft.explore.workers import Keys
    from weft.hw.flow.parts import Part

BASE = "arty"
"""The preset that gives the keys that are not searched, if no board is named."""
LEAST_DECIBELS = 30.0


def _is_machine(file: BinaryIO) -> bool:
    """Tell whether a file is a machine."""
    try:
        return bool(Arch.from_dict(parse_object(file.read(MOST_BYTES))))
    except WeftError:
        return False


MACHINE = Kind("a machine (.tarch)", _is_machine)
ModelsArgument = Annotated[list[Path], typer.Argument(metavar="MODEL", help="ONNX files; for several, one machine is "
                                                      "searched that serves all.", show_default=False)]


def explore_command(
    models: ModelsArgument,
    part: Annotated[str | None, typer.Option("--part", metavar="PART", help="The chip, such as xc7a35t; default: the "
                                             "board's.")] = None,
    board: Annotated[str | None, typer.Option("--board", metavar="BOARD", help="Take chip, clock and DRAM ports of "
                                              "this board, a name of `weft board list`; default: none.")] = None,
    arch: Annotated[str | None, typer.Option("-a", "--arch", metavar="ARCH", help="A preset or .tarch file that gives "
                                             "the keys that are not searched; default: the board's preset, without a "
                                             "board arty.")] = None,
    axis: Annotated[list[str] | None, typer.Option("--axis", metavar="KEY=V,V,..", help="Values to look at of an "
                                                   "architecture key; one value settles it; may be repeated; "
                                                   "default: those of docs/explore.md.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.tarch", help="Write the fastest "
                                                "machine that fits; default: not written.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the front (.svg, .png); "
                                              "default: not drawn.")] = None,
    results: Annotated[Path, typer.Option("--results", metavar="FILE", help="A file of what was measured; a search "
                                          "that was broken off goes on from there.")] = Path("build/explore.jsonl"),
    calibrate: Annotated[Path | None, typer.Option("--calibrate", metavar="FILE", help="Inputs (.npz, .npy) of the one "
                                                   "model; default: random ones.")] = None,
    host_fallback: Annotated[bool, typer.Option("--host-fallback/--no-host-fallback", help="The host runs what the "
                                                "machine does not; its time is not counted, so a machine that computes "
                                                "less looks faster.")] = False,
    least: Annotated[float, typer.Option("--least-snr", min=0, max=200, metavar="DB", help="SNR of a data type's "
                                         "outputs against real numbers; types below are ruled out.")] = LEAST_DECIBELS,
    latency: OwnLatencyOption = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, max=1024, metavar="COUNT", help="Worker processes; "
                                             "default: one a core.")] = None,
    dask: Annotated[bool, typer.Option("--dask", help="Workers of a Dask cluster on this machine.")] = False,
    scheduler: Annotated[str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Workers of a Dask scheduler, "
                                                  "on many machines, which read the models at the same paths: "
                                                  "tls://HOST:PORT; default: none.")] = None,
    tls_ca: Annotated[Path | None, typer.Option("--tls-ca", metavar="FILE.pem", help="Who signed the scheduler's "
                                                "certificate; default: as Dask's configuration says.")] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE.pem", help="Your certificate for the "
                                                  "scheduler; default: as Dask's configuration says.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE.pem", help="Its key; default: as Dask's "
                                                 "configuration says.")] = None,
    end: EndOption = "",
    shape: ShapeOption = None,
    fix: FixOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the machine: the fastest for each size of chip, by estimated cycles and predicted resources."""
    from weft.cli.front_plot import PICTURE, check_picture
    from weft.cli.resources import around
    from weft.explore.measure import Network, digest_of
    from weft.explore.results import Results
    from weft.explore.search import Search
    from weft.explore.space import points

    tls = {"--tls-ca": tls_ca, "--tls-cert": tls_cert, "--tls-key": tls_key}
    read = {**{f"MODEL {path}": path for path in models[1:]}, "MODEL": models[0], "--calibrate": calibrate}
    check_outputs({**read, "--arch": arch, **tls}, [
        Output("--output", output, MACHINE), Output("--plot", plot, PICTURE), Output("--results", results)])
    if plot:
        check_picture(plot)
    keys = _keys(scheduler, tls)
    chip, base, fixed = _place(part, board, arch)
    base, dram = override(base, overrides), _memory(board, latency)
    axes = _axes(axis, fixed, base, chip)
    _check_memory(dram, board, axes.get("cores", (base.cores,)))
    outputs = ends(end)
    for option in (["--calibrate"] if calibrate else []) + (["--end"] if outputs else []):
        if len(models) > 1:
            raise WeftError(explain(option, f"{len(models)} models", "one model", f"leave {option} out"))
    shapes = tuple(sorted(input_shapes(shape).items()))
    values = tuple((name, tuple(numbers)) for name, numbers in sorted(fixed_inputs(fix).items()))
    networks = [Network(path.resolve(), digest_of(path, calibrate), calibrate and calibrate.resolve(), host_fallback,
                        outputs, shapes, values) for path in models]
    store = Results(results)
    with console.progress() as progress:
        signals = _signals(networks, base, axes, progress)
        kept = {name: found for name, found in signals.items() if found is None or found >= least}
        if not kept:
            raise WeftError(explain("--least-snr", ", ".join(f"{name} {found:.1f} dB" for name, found in
                                                             signals.items()), f"a type with {least:g} dB or more",
                                    "give --calibrate, a wider --axis data_type=..., or a smaller --least-snr"))
        if signals:
            axes = {**axes, "data_type": tuple(kept)}
        progress("predicting resources", 0, 0)
        space = points(base, axes, chip, around(BOARDS[board] if board else None))
        _insist_on_values(axis, axes, base, space)
        with _executor(jobs or os.cpu_count() or 1, dask, scheduler, keys) as (executor, workers):
            outcome = Search(networks, space, executor, workers, store, dram, progress).run()
    if not outcome.front:
        raise _nothing(chip, space, outcome)
    hertz = BOARDS[board].clock_hz if board else ASSUMED_HZ
    if output:
        write_text(output, json.dumps(outcome.front[-1].point.arch.to_dict(), indent=2) + "\n", MACHINE)
    if plot:
        from weft.cli.front_plot import draw

        draw(plot, [(1e3 * found.cycles / hertz, found.point.share) for found in outcome.front], chip.name)
    if as_json:
        print(json.dumps(_object(networks, chip, hertz, dram, axes, signals, outcome, output)))
    else:
        _print(networks, chip, hertz, dram, axes, signals, outcome, output)


# -- what is searched --------------------------------------------------------------------------------------------------
def _place(part: str | None, board: str | None, arch: str | None) -> tuple[Part, Arch, tuple[str, ...]]:
    """Return the chip, the base machine, and the keys that the board fixes. Raise WeftError."""
    from weft.cli.resources import part_named

    if (part is None) == (board is None):
        raise WeftError(explain("--part and --board", "both" if part else "neither", "one of them",
                                "name the chip (--part xc7a35t) or the board (--board ecpix5)"))
    if board is None:
        return part_named(part or ""), Arch.load(BASE if arch is None else arch), ()
    from weft.cli.board import board_named

    found = board_named(board)
    return part_named(found.part), Arch.load(found.arch if arch is None else arch), ("dram_ports",)


def _memory(board: str | None, latency: int | None) -> DramModel:
    """Return the memory of the machines: the board's, unless another latency is given."""
    if board is None or latency is not None:
        return EXPECTED if latency is None else IdealDram(latency, latency)
    return BOARDS[board].dram


def _check_memory(dram: DramModel, board: str | None, cores: Sequence[int | str]) -> None:
    """Raise WeftError for several cores where the board's own memory is meant."""
    if isinstance(dram, LiteDram) and set(cores) != {1}:
        raise WeftError(explain(f"--board {board}", f"machines of {max(cores)} cores", "one core: what this board's "
                                "memory does behind ports that cores share is not modelled", "add --latency CYCLES, "
                                "which stands for an ideal memory"))


def _axes(given: Sequence[str] | None, fixed: Sequence[str], base: Arch, chip: Part) -> dict[str, Sequence[int | str]]:
    """Return the axes of the search: the defaults without fixed keys, and the user's. Raise WeftError."""
    from weft.explore.space import SETTLED, default_axes
    from weft.hw.flow.resources import check_counted

    axes = {key: values for key, values in default_axes(base, chip).items() if key not in fixed}
    axes |= {key: (value,) for key, value in SETTLED.items()}
    known = Arch.load(BASE).to_dict()
    for text in given or ():
        key, _, values = text.partition("=")
        if key not in known or not all(values.split(",")):
            raise WeftError(explain("--axis", text, f"KEY=V,V,.. with a key of {', '.join(known)}",
                                    "for example --axis array_size=4,8,12"))
        axes[key] = tuple(dict.fromkeys(int(value) if INTEGER.fullmatch(value) else value
                                        for value in values.split(",")))
        wrong = [value for value in axes[key] if type(value) is not type(known[key])]
        if wrong:
            raise WeftError(explain("--axis", f"{key}={wrong[0]}", "integers of at most 20 digits" if
                                    isinstance(known[key], int) else "names", "for example --axis array_size=4,8,12"))
    for data_type in axes["data_type"]:
        check_counted(base.replace(data_type=data_type), chip.family)
    return axes


def _insist_on_values(given: Sequence[str] | None, axes: Axes, base: Arch, space: Sequence[Point]) -> None:
    """Raise WeftError for a value of the user's that no machine can have."""
    for key in [text.partition("=")[0] for text in given or ()]:
        made = {getattr(point.arch, key) for point in space}
        for value in [value for value in axes[key] if value not in made]:
            base.replace(**{key: value})  # says why, where it is the value alone
            raise WeftError(explain("--axis", f"{key}={value}", f"values of a machine: {', '.join(map(str, made))}",
                                    "leave it out, or give other keys with --axis or --set that go with it"))


def _signals(networks: Sequence[Network], base: Arch, axes: Axes, progress: Any) -> dict[str, float | None]:
    """Return data type -> the least signal to noise of any network's outputs, in dB; None if there is no error."""
    from weft.compiler.check.signals import output_signal

    found: dict[str, float | None] = {}
    for name in axes.get("data_type", (base.data_type,)):
        lanes = max(size for size in axes.get("array_size", (base.array_size,)) if isinstance(size, int))
        machine = base.replace(data_type=name, array_size=lanes)
        progress(f"accuracy of {name}", 0, 0)
        each = [output_signal(network.request(), machine) for network in networks]
        known = [value for value in each if value is not None]
        found[str(name)] = min(known) if known else None
    return found


def _keys(scheduler: str | None, given: dict[str, Path | None]) -> Keys | None:
    """Return the keys in the files of the options --tls-..., None without such options. Raise WeftError."""
    from weft.explore.workers import Keys, check_address

    named = {option: path for option, path in given.items() if path is not None}
    if named and scheduler is None:
        raise WeftError(explain(next(iter(named)), "no --scheduler", "the keys of a scheduler",
                                "add --scheduler tls://HOST:PORT, or leave it out"))
    if named and len(named) < len(given):
        raise WeftError(explain("keys of --scheduler", f"{', '.join(named)} alone", ", ".join(given),
                                "give all of them, or none where Dask's configuration has them"))
    if scheduler is not None:
        check_address(scheduler)
    return Keys.read(*named.values()) if named else None


@contextlib.contextmanager
def _executor(jobs: int, on_dask: bool, scheduler: str | None, keys: Keys | None) -> Iterator[tuple[Executor, int]]:
    """Yield the workers, and how many there are."""
    if on_dask or scheduler is not None:
        from weft.explore.workers import dask

        with dask(jobs, scheduler, keys) as found:
            yield found
    else:
        with processes(jobs) as executor:
            yield executor, jobs


# -- what is told ------------------------------------------------------------------------------------------------------
def _nothing(chip: Part, space: Sequence[Point], outcome: Outcome) -> WeftError:
    """Return the error that no machine is left, with the most frequent reason."""
    from weft.cli.resources import USED

    why = max(outcome.refusals, key=lambda text: outcome.refusals[text], default="")
    if not why and space:
        least = min(space, key=lambda point: point.share)
        why = f"the smallest takes {100 * least.share:.0f} % of the {USED[least.largest]} that the chip has for it"
    return WeftError(explain(f"machines for {chip.name}", _told(outcome) + (f"; first of all: {why}" if why else ""),
                             "at least one that fits and runs every network",
                             "name a larger part, give other values with --axis, or add --host-fallback"))


def _told(outcome: Outcome) -> str:
    """Return how many machines had which result, in words."""
    counts = outcome.counts
    total = sum(counts.values())
    return (f"{total:,} machines looked at: {counts['too large']:,} do not fit, {counts['refused']:,} cannot run it, "
            f"{counts['bounded']:,} are certainly no faster than a smaller one, {counts['estimated']:,} estimated to "
            f"the cycle")


def _changed(found: Found, axes: Axes) -> dict[str, Any]:
    """Return the values of the keys that were searched."""
    return {key: getattr(found.point.arch, key) for key, values in axes.items() if len(values) > 1}


def _object(networks: Sequence[Network], chip: Part, hertz: float, dram: DramModel, axes: Axes,
            signals: dict[str, float | None], outcome: Outcome, output: Path | None) -> dict[str, Any]:
    """Return the object of ``--json``."""
    front = [{
        "arch": found.point.arch.to_dict(), "searched": _changed(found, axes), "cycles": found.cycles,
        "ms": 1e3 * found.cycles / hertz, "share": round(found.point.share, 4), "largest": found.point.largest,
        "each": {network.name: cycles for network, cycles in zip(networks, found.each, strict=True)},
        "resources": dict(found.point.counts), "signal_to_noise": signals.get(found.point.arch.data_type),
    } for found in outcome.front]
    latency = dram.read_latency if isinstance(dram, IdealDram) else None
    return {"schema": console.SCHEMA, "part": chip.name, "clock_hz": hertz, "dram_latency_cycles": latency,
            "front": front, "machines": outcome.counts, "signal_to_noise": signals,
            "output": str(output) if output else None}


def _print(networks: Sequence[Network], chip: Part, hertz: float, dram: DramModel, axes: Axes,
           signals: dict[str, float | None], outcome: Outcome, output: Path | None) -> None:
    """Print the front as a table and a plot."""
    from weft.cli.front_plot import text_plot

    memory = "with the board's memory"
    if isinstance(dram, IdealDram):
        memory = f"DRAM answering after {dram.read_latency} cycles"
        if dram.bus_bytes:
            memory += f" and moving {dram.bus_bytes:.1f} bytes a cycle, the board's typical case"
    rows = [(f"{found.cycles:,}", f"{1e3 * found.cycles / hertz:.3f}", f"{100 * found.point.share:.0f} %",
             found.point.largest, *(f"{found.point.counts[name]:,}" for name in ("lut", "ff", "dsp")),
             *map(str, _changed(found, axes).values())) for found in outcome.front]
    columns = ("cycles", f"ms at {hertz / 1e6:g} MHz", "of its room", "most", "LUT", "FF", "DSP",
               *(_changed(outcome.front[0], axes)))
    console.say(f"{', '.join(network.name for network in networks)} on {chip.name}: the machines that nothing cheaper "
                f"beats, {memory}")
    console.print_columns([columns, *rows])
    print()
    spots = [(1e3 * found.cycles / hertz, found.point.share) for found in outcome.front]
    print(text_plot(spots, console.table_width()))
    for name, decibels in signals.items():
        print(f"{name}: {'exact' if decibels is None else f'{decibels:.1f} dB'} signal to noise")
    console.say(_told(outcome))
    if output:
        print(f"the fastest: {output}")
