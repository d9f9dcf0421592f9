# SPDX-License-Identifier: Apache-2.0
"""Networks as people download them, each by one line of ``weft compile``, against what its maker's runtime gives.

    python scripts/today_table.py [NAME ...]          # ../shared/models/today, on the golden machine
    python scripts/today_table.py --inspect           # every file of ../shared/models: CPU seconds and memory

The line, the machine's share of the multiply-accumulates, the signal-to-noise ratio at the worst output or the task's
own measure, estimated cycles, how much of the array does work of the network as drawn, CPU seconds of the compiler.
Everything is written to build/today/. A measure that misses its bar ends the script with exit code 1.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from network_table import decibels

import weft
from weft.runtime.session import Session as Runs
from weft.runtime.streaming import stream
from weft.support.errors import run_script
from weft.tb.compile.tflite_files import LiteRt, with_transpose_conv
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import session

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models"
BUILD = ROOT / "build" / "today"
WEFT = ROOT / ".venv" / "bin" / "weft"
MOST_SECONDS, MOST_BYTES = 3.0, 1 << 30
"""The limits of ``weft inspect``: CPU seconds, bytes of memory."""

SILENCE, LOUD = 0.05, 0.3
"""Factors of a recording that calibrate beside it, for speakers who are farther away."""

BIN = 1 / 48
"""Octaves from one pitch to the next where the machine's bin is another one: half of a bin of swift-f0."""

Feed = dict[str, np.ndarray]
Measures = dict[str, tuple[float, float, bool]]
"""Quantity -> its value, its bar, and whether it may not be above the bar (else not below)."""


@dataclass(frozen=True)
class Case:
    """A file: its line beside ``-o`` and ``--calibrate``, the inputs that calibrate, and what is measured."""

    line: str
    inputs: Callable[[], Feed] | None
    measure: Callable[[weft.Session, Path], Measures]
    options: list[str] = field(default_factory=list)


def stored(name: str) -> Feed:
    """Return the arrays that lie beside a file."""
    return dict(np.load(MODELS / "today" / f"{name}.npz"))


def photographs(size: int, low: float = 0.0) -> np.ndarray:
    """Return photographs [images, size, size, 3] with values from ``low`` to 1."""
    found = []
    for name in ("ultraface_slim_320", "mobilenetv2_1.0_224"):
        given = np.load(MODELS / f"{name}.npz")["input_u8"].transpose(0, 2, 3, 1)
        rows, columns = (np.arange(size) * length // size for length in given.shape[1:3])
        found.append(given[:, rows][:, :, columns] / 255)
    return (np.concatenate(found) * (1 - low) + low).astype(np.float32)


def worst(wanted: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Return the decibels of the worst output."""
    return min(map(decibels, wanted, found))


def runs(path: Path) -> Runs:
    """Return the compiled network of a file, to be run step after step."""
    return Runs(Network.load(next((BUILD / path.name).glob("*.tmodel"))))


# -- measures ----------------------------------------------------------------------------------------------------------
def voice(machine: weft.Session, path: Path) -> Measures:
    """Judge a voice detector on 80 frames, and once more with its state carried from frame to frame."""
    given = stored("silero_vad_openvino_16k")
    fixed: Feed = {"sr": np.array(16000)} if path.stem == "silero_vad" else {}
    oracle, state, rows = session(path.read_bytes()), given["state"][0], []
    free: list[list[np.ndarray]] = [[], []]
    for frame, before in zip(given["input"], given["state"], strict=True):
        rows.append(oracle.run(None, {"input": frame, "state": state, **fixed}))
        state = rows[-1][1]
        for where, each in zip(free, (oracle.run(None, {"input": frame, "state": before, **fixed}),
                                      machine.run(None, {"input": frame, "state": before})), strict=True):
            where.append(each)
    carried = stream(runs(path), {"input": given["input"], "state": given["state"][0]}, {"stateN": "state"}).outputs
    speech, states = (np.stack([row[number] for row in rows]) for number in (0, 1))
    apart = max(np.abs(wanted[0] - found[0]).max() for wanted, found in zip(*free, strict=True))
    apart_later = np.abs(np.ravel(carried["output"]) - speech.ravel()).max()
    return {"probability": (apart, 0.02, True), "probability, state carried": (apart_later, 0.02, True),
            "dB of the state carried": (decibels(states.ravel(), np.ravel(carried["stateN"])), 35, False)}


def pitch(machine: weft.Session, path: Path) -> Measures:
    """Judge a pitch tracker: frames in the same bin."""
    given = stored("swift_f0")
    found = machine.run(["pitch"], {"audio": given["audio"][0]})[0]
    same = np.abs(np.log2(np.ravel(found) / np.ravel(given["pitch"]))) < BIN
    return {"% of frames in the same bin": (100 * float(same.mean()), 95, False)}


def own_outputs(machine: weft.Session, path: Path) -> Measures:
    """Judge by the outputs that lie beside the file."""
    given, names = stored(path.stem), [entry.name for entry in machine.get_outputs()]
    asked = [entry.name for entry in machine.get_inputs()]
    found = [worst([given[name][row] for name in names],
                   machine.run(names, {name: given[name][row] for name in asked}))
             for row in range(len(given[names[0]]))]
    return {"dB": (min(found), 45, False)}


def mask(machine: weft.Session, path: Path) -> Measures:
    """Judge a segmentation: pixels on the same side."""
    oracle, same = LiteRt(with_transpose_conv(path, BUILD)), []
    for image in photographs(256)[:2]:
        (output, wanted), = oracle.run({"input_1": image[None]}).items()
        same.append(((wanted > 0.5) == (machine.run([output], {"input_1": image[None]})[0] > 0.5)).mean())
    return {"% of pixels equal": (100 * float(min(same)), 99.5, False)}


def faces(machine: weft.Session, path: Path) -> Measures:
    """Judge a face detector by its outputs."""
    oracle, found = LiteRt(path), []
    for image in photographs(192, -1)[:2]:
        wanted = oracle.run({"input_1": image[None]})
        found.append(worst(list(wanted.values()), machine.run(list(wanted), {"input_1": image[None]})))
    return {"dB": (min(found), 45, False)}


def wake_word(machine: weft.Session, path: Path) -> Measures:
    """Judge a wake word by its bytes, over steps that keep their states."""
    random, steps = np.random.default_rng(0), 24
    loud = random.standard_normal((steps, 1, 3, 40)) * 40 + 20 * np.sin(np.arange(steps))[:, None, None, None] - 60
    given = loud.clip(-128, 127).astype(np.int8)
    states = {f"{name}/next": name for name in (entry.name for entry in machine.get_inputs()) if "states" in name}
    found = stream(runs(path), {"serving_default_input_audio": given}, states).outputs["StatefulPartitionedCall"]
    oracle = LiteRt(path)
    wanted = [oracle.run({"serving_default_input_audio": step})["StatefulPartitionedCall"] for step in given]
    return {"% of bytes equal": (100 * float((np.ravel(wanted) == np.ravel(found)).mean()), 99, False)}


CASES = {
    "silero_vad.onnx": Case("-a ultra96 --fix sr=16000 --shape input:1,576 --shape state:2,1,128",
                            lambda: _both("input", "state"), voice),
    "silero_vad_openvino_16k.onnx": Case("-a ultra96", lambda: _both("input", "state"), voice),
    "swift_f0.onnx": Case("-a ultra96 --shape audio:1,16000 --fix fmin=65 --fix fmax=400", lambda: {
        "audio": np.concatenate([stored("swift_f0")["audio"] * factor for factor in (1, LOUD, SILENCE)])}, pitch),
    "gpt_kv.onnx": Case("-a ultra96", lambda: _inputs_of("gpt_kv"), own_outputs),
    "gpt_dyn.onnx": Case("-a ultra96", lambda: _inputs_of("gpt_kv"), own_outputs),
    "selfie_segmentation.tflite": Case("-a ultra96", lambda: {"input_1": photographs(256)}, mask),
    "face_detection_full_range_sparse.tflite": Case("-a ultra96", lambda: {"input_1": photographs(192, -1)}, faces),
    "microwakeword_hey_jarvis.tflite": Case("-a ultra96_int8", None, wake_word),
}
SIZES = {"ppocrv4_det_dynamic.onnx": "--shape x:1,3,96,192"}
"""Options of ``weft inspect`` for files that leave sizes open and are not measured."""


def _both(*names: str) -> Feed:
    return {name: stored("silero_vad_openvino_16k")[name] for name in names}


def _inputs_of(name: str) -> Feed:
    return {key: value for key, value in stored(name).items() if key in ("x", "past_k", "past_v")}


# -- rows --------------------------------------------------------------------------------------------------------------
def told(*words: str) -> tuple[str, float]:
    """Run a weft command; return what it printed, and its CPU seconds. Raise CalledProcessError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([WEFT, *words], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row_of(name: str, case: Case) -> dict[str, object]:
    """Return the row of a file."""
    path, place = MODELS / "today" / name, BUILD / name
    options = case.line.split()
    if case.inputs is not None:
        np.savez(BUILD / f"{name}.npz", **case.inputs())
        options += ["--calibrate", str(BUILD / f"{name}.npz")]
    _, seconds = told("compile", str(path), *options, "-o", str(place))
    model = next(place.glob("*.tmodel"))
    shown = json.loads(told("inspect", str(path), *case.line.split(), "--json")[0])
    cycles = json.loads(told("estimate", str(model), "--json")[0])
    lanes = Network.load(model).arch.array_size
    measures = case.measure(weft.Session(model), path)
    return {"file": name, "line": case.line, "share": shown["machine_share"], "cycles": cycles["cycles"],
            "utilization": cycles["macs"] / (lanes**2 * cycles["cycles"]), "seconds": round(seconds, 1),
            "measures": {key: _judged(*measure) for key, measure in measures.items()}}


def _judged(value: float, bar: float, below: bool) -> dict[str, object]:
    """Return a measure beside its bar, and whether it is met."""
    return {"value": round(float(value), 4), "bar": bar, "met": bool(value <= bar if below else value >= bar)}


def inspected() -> bool:
    """Print the time and memory of ``weft inspect`` for every file; return whether all are within the bars."""
    fine = True
    for path in sorted(entry for entry in MODELS.rglob("*") if entry.suffix in (".onnx", ".tflite")):
        line = CASES[path.name].line if path.name in CASES else SIZES.get(path.name, "")
        asked = [word for word in line.split() if word not in ("-a", "ultra96", "ultra96_int8")]
        begin = os.times()
        probe = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys; done = subprocess.run("
                                "sys.argv[1:], stdout=subprocess.DEVNULL); "
                                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)",
                                WEFT, "inspect", path, *asked], capture_output=True, text=True, check=True)
        end = os.times()
        kilobytes, code = map(int, probe.stdout.split())
        seconds = end.children_user + end.children_system - begin.children_user - begin.children_system
        met = not code and seconds <= MOST_SECONDS and kilobytes * 1024 <= MOST_BYTES
        fine &= met
        print(f"{path.relative_to(MODELS)!s:50} {seconds:5.1f} s {kilobytes / 1024:6.0f} MB {'' if met else 'MISSED'}",
              flush=True)
    return fine


def main(names: Annotated[list[str] | None, typer.Argument()] = None, inspect: bool = False) -> None:
    """Measure the files, and print a row for each."""
    if inspect:
        raise typer.Exit(not inspected())
    BUILD.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in names or CASES:
        rows.append(row_of(name, CASES[name]))
        print(json.dumps(rows[-1]), flush=True)
        (BUILD / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    missed = [row["file"] for row in rows if row["share"] < 1 or not all(
        each["met"] for each in row["measures"].values())]  # type: ignore[operator, attr-defined]
    raise typer.Exit(bool(missed))


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
