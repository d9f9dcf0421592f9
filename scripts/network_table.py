# SPDX-License-Identifier: Apache-2.0
"""Today's networks by the one line ``weft compile X.onnx -a ARCH --calibrate FILE --host-fallback``: one table.

    python scripts/network_table.py [--arch ultra96] [--write] [NAME ...]

For every float network of ../shared/models and of its exports/: the machine's share of its multiply-accumulates,
signal-to-noise against onnxruntime at the worst output, the task's answer, CPU seconds of the compiler, cycles.
``--write`` puts the rows into docs/data/networks.json, from which ``make docs`` makes the page.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer

import weft
from weft.cli.cycle_table import cycles_object, joined, waits_of
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.support.errors import run_script
from weft.tmodel.host_part import HostPart
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import session

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data" / "networks.json"
DATA_SETS = ROOT.parent / "shared" / "models"
SAMPLES = 8
"""The random inputs that calibrate a network which has none of its own."""
DECIBELS_OF_EQUALS = 999.0
TEXT, SHORTEST = 0.3, 3
"""The limits of a text detector: pixels above are text, regions with a shorter side are none (PaddleOCR's own)."""

Feed = dict[str, np.ndarray]


def class_of(output: np.ndarray) -> np.ndarray:
    """Return the numbers of the classes with the largest scores, the last axis."""
    return output.argmax(-1)


def boxes_of(output: np.ndarray) -> np.ndarray:
    """Return top, left, bottom and right of each region of text, from an image [1, 1, height, width]."""
    left = set(map(tuple, np.argwhere(output[0, 0] > TEXT).tolist()))
    boxes = []
    while left:
        region = [left.pop()]
        for row, column in region:  # grows while it is walked
            beside = {(row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} & left
            left -= beside
            region.extend(beside)
        pixels = np.array(region)
        boxes.append([*pixels.min(0), *pixels.max(0) + 1])
    return np.array(sorted(box for box in boxes if min(box[2] - box[0], box[3] - box[1]) >= SHORTEST))


@dataclass(frozen=True)
class Case:
    """The trial of a network.

    ``inputs``: names in the .npz -> the network's own. ``answer``: what the task reads from the first output."""

    inputs: dict[str, str] = field(default_factory=dict)
    change: Callable[[np.ndarray], np.ndarray] = lambda values: values
    answer: Callable[[np.ndarray], np.ndarray] | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    data: str = ""
    images: int = 2


def signed(values: np.ndarray) -> np.ndarray:
    """Return bytes as numbers from -1 to 1: (byte - 128) / 128."""
    return (values - 128) / 128


def faces(values: np.ndarray) -> np.ndarray:
    """Return bytes as the face detector takes them: (byte - 127) / 128."""
    return (values - 127) / 128


def twice(values: np.ndarray) -> np.ndarray:
    """Return images [n, channels, height, width] with each pixel repeated twice along both axes."""
    return values.repeat(2, 2).repeat(2, 3)


CASES: dict[str, Case] = {
    "fsrcnn_x2": Case(), "fsrcnn_x2_deconv": Case(),
    "magika_tail_2048x64": Case(answer=class_of, images=6), "magika_v3_3_2048": Case(answer=class_of, images=6),
    "mlperf_tiny_resnet8": Case(answer=class_of), "mlperf_tiny_vww_mobilenetv1_025": Case(answer=class_of),
    "mnist_cntk_cnn": Case(answer=class_of), "mobilenetv2_1.0_224": Case({"input": "input_u8"}, signed, class_of),
    "mtcnn_onet_48": Case(), "ppocr_cls_48x192": Case(answer=class_of, images=4),
    "ppocrv4_det_96x192": Case(answer=boxes_of),
    "ppocrv4_det_dynamic": Case(change=twice, answer=boxes_of, shapes={"x": (1, 3, 192, 384)},
                                data="ppocrv4_det_96x192", images=1),
    "resnet20_cifar10": Case(answer=class_of),
    "resnet20v2_cifar": Case({"input_1": "inputs"}, answer=class_of),
    "squeezenet_v1_0_dc": Case(answer=class_of), "ultraface_slim_320": Case({"input": "input_u8"}, faces),
    "yolo_fastest_1_1_coco_320": Case(),
    **{f"exports/{name}": Case() for name in (
        "convnext_mini", "embedding", "groupnorm_instnorm", "gru", "layernorm_decomposed", "linear_attention",
        "mbv3_block", "rmsnorm", "se_hswish", "tcn", "two_inputs", "uint8_nhwc_pre", "unet", "vit_sim")},
}
"""The networks. Those that are in eight bits already (QDQ) are not here."""
INTEGERS = {onnx.TensorProto.UINT8: 256, onnx.TensorProto.INT32: 100, onnx.TensorProto.INT64: 10}


def samples_of(name: str, path: Path) -> tuple[Feed, Feed]:
    """Return calibration inputs and images, [N, ...] by input, from the files beside the network or seeded random."""
    case, model = CASES[name], onnx.load(path, load_external_data=False)
    constants = {tensor.name for tensor in model.graph.initializer}
    ports = [port for port in model.graph.input if port.name not in constants]
    images, other = (path.parent / f"{Path(case.data or name).name}{end}.npz" for end in ("", "_calibrate"))
    if not images.exists():
        random = np.random.default_rng(1)
        return drawn(ports, random, SAMPLES), drawn(ports, random, case.images)
    def read(file: Path) -> Feed:
        stored = np.load(file)
        return {port.name: typed(case.change(stored[case.inputs.get(port.name, port.name)].astype(np.float32)), port)
                for port in ports}
    return read(other if other.exists() else images), read(images)


def typed(values: np.ndarray, port: onnx.ValueInfoProto) -> np.ndarray:
    """Return values in the type of an input."""
    return values.astype(onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type))


def drawn(ports: list[onnx.ValueInfoProto], random: np.random.Generator, count: int) -> Feed:
    """Return ``count`` seeded random inputs."""
    found = {}
    for port in ports:
        shape = (count, *(size.dim_value or 1 for size in port.type.tensor_type.shape.dim[1:]))
        most = INTEGERS.get(port.type.tensor_type.elem_type)
        found[port.name] = typed(random.integers(0, most, shape) if most else random.standard_normal(shape), port)
    return found


def decibels(exact: np.ndarray, found: np.ndarray) -> float:
    """Return the signal-to-noise ratio of an output, in dB."""
    noise = float(np.square(found.astype(np.float64) - exact).sum())
    return DECIBELS_OF_EQUALS if noise == 0 else 10 * np.log10(float(np.square(exact.astype(np.float64)).sum()) / noise)


def cycles_of(network: Network) -> int:
    """Return the estimated cycles of all of the machine's subgraphs."""
    parts = [part for part in network.parts if not isinstance(part, HostPart)]
    found = [(part, estimate(part.program, part.arch, IdealDram())) for part in parts]
    objects = [cycles_object(part, waits_of(part, one.cycles, one.operations)) for part, one in found]
    return int(joined(objects, network.arch)["cycles"])


def measured(name: str, arch: Arch) -> dict[str, Any]:
    """Return one row."""
    case, path = CASES[name], DATA_SETS / f"{name}.onnx"
    calibration, images = samples_of(name, path)
    with tempfile.TemporaryDirectory() as place:
        begin = time.process_time()
        report = weft.compile(path, arch, place, calibrate=calibration, shapes=case.shapes)
        seconds = time.process_time() - begin
        ours, exact = weft.Session(report.model_path), session(path.read_bytes())
        worst, same, asked = DECIBELS_OF_EQUALS, 0, min(case.images, len(next(iter(images.values()))))
        for number in range(asked):
            feed = {key: values[number:number + 1] for key, values in images.items()}
            wanted, made = exact.run(None, feed), ours.run(None, feed)
            worst = min([worst, *map(decibels, wanted, made)])
            same += case.answer is not None and np.array_equal(case.answer(wanted[0]), case.answer(made[0]))
        cycles = cycles_of(Network.load(report.model_path))
    host: dict[str, int] = {}
    for where in report.partition.places:
        if where.where == "host":
            host[where.operator] = host.get(where.operator, 0) + 1
    return {"network": name, "share": report.partition.machine_share, "host": host, "decibels": round(worst, 1),
            "answer": f"{same}/{asked}" if case.answer else "", "seconds": round(seconds, 1), "cycles": cycles,
            "warnings": list(report.warnings), "earlier": False}


def kept(commit: str) -> dict[str, dict]:
    """Return network -> the row that is there; rows of another commit are marked ``earlier``."""
    found: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {"commit": commit, "rows": []}
    return {row["network"]: {**row, "earlier": row["earlier"] or found["commit"] != commit} for row in found["rows"]}


def main(names: Annotated[list[str] | None, typer.Argument()] = None, arch: str = "ultra96",
         write: bool = False) -> None:
    """Measure the networks, and print the table."""
    machine, rows = Arch.load(arch), {}
    for name in names or CASES:
        rows[name] = measured(name, machine)
        print(json.dumps(rows[name]), flush=True)
    if write:  # what others ran before stays, and says so
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True,
                                text=True).stdout.strip()
        every = {**kept(commit), **rows}
        DATA.write_text(json.dumps({"commit": commit, "arch": Path(arch).stem,
                                    "rows": [every[name] for name in CASES if name in every]}, indent=1) + "\n")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
