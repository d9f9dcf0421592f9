# SPDX-License-Identifier: Apache-2.0
"""Networks of ../shared/models, quantised by onnxruntime, on an INT8 machine: one table.

    python scripts/quantised_twins.py [--arch pynq] [--multiplier-width BITS] [--kind KIND] [--images N] [--write]
                                      [NAME ...]

Each float network is prepared and quantised by onnxruntime's static quantiser: QDQ, a scale for each output channel,
activations with a zero point, ranges by min-max. Then it says how many of the bytes that layers make, given equal
inputs, differ from onnxruntime's, and by how much at most. At last it compares the outputs on every image with
onnxruntime's (not fused): equal top-1, decibels at the worst image, the share of outputs that are
the same. What runs is layer after layer in bytes, which the program equals (``weft compile --check``). ``--write`` puts
the rows, with default options, into docs/data/twins.json, of which ``make docs`` makes the table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import typer
from network_table import CASES, Feed, class_of, samples_of

from weft.compiler.check.runners import RUNNERS, Sample
from weft.compiler.frontend.graph import Graph
from weft.compiler.indices.index import real_values
from weft.compiler.partition import Partition
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.samples import Samples
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, run_script
from weft.support.signals import signal_to_noise
from weft.tb.compile.layer_bytes import Watch, together
from weft.tb.compile.quantised_twin import prepared, quantised_twin
from weft.tmodel.onnx_engine import runner

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data" / "twins.json"
MODELS = ROOT.parent / "shared" / "models"
LAYER_IMAGES = 2
"""The images from which single layers are judged."""


NAMES = ("mnist_cntk_cnn", "mlperf_tiny_resnet8", "mlperf_tiny_vww_mobilenetv1_025", "resnet20_cifar10",
         "resnet20v2_cifar", "fsrcnn_x2", "fsrcnn_x2_deconv", "mtcnn_onet_48", "ppocr_cls_48x192",
         "ppocrv4_det_96x192", "squeezenet_v1_0_dc", "yolo_fastest_1_1_coco_320", "mobilenetv2_1.0_224",
         "ultraface_slim_320", "magika_tail_2048x64", "magika_v3_3_2048")
"""The networks whose convolutions INT8 machines can take."""


@dataclass(frozen=True)
class Row:
    """The result of one network.

    ``off``: of the ``bytes`` that layers make, those that differ from onnxruntime's, by ``most`` at most. ``equal``:
    on how many of ``images`` top-1 is the same, None if there is none. ``decibels``: at the worst image. ``same``: the
    share of outputs that equal onnxruntime's."""

    network: str
    bytes: int
    off: int
    most: int
    images: int
    equal: int | None
    decibels: float | None
    machine_share: float
    same: float


def outputs(front: Products, parts: Mapping[int, Products], sample: Sample) -> dict[str, np.ndarray]:
    """Return the network's outputs, subgraph after subgraph; the machine's are computed layer after layer in bytes."""
    graph = front[Graph]
    values = {port.name: real_values(np.asarray(sample[port.name]), port).astype(graph.type(port.tensor))
              for port in graph.inputs}
    number = 0
    for part in front[Partition].parts:
        if isinstance(part, Graph):
            number += 1
            values |= RUNNERS[Numbers].run(parts[number], {port.name: values[port.name].astype(np.float32)
                                                           for port in part.inputs})
        else:
            values |= part.run(values, graph.name)
    return {port.name: values[port.name] for port in graph.outputs}


def twin_of(path: Path, folder: Path, calibration: Feed, kind: str) -> Path:
    """Write the quantised form of the prepared network, one of ``KINDS``; return its path.

    Scales are those of output channels. They are those of tensors if the quantiser fails over the others, as it does
    over a matrix whose bias has two axes."""
    source = prepared(path, folder)
    try:
        return quantised_twin(source, calibration, kind)
    except ValueError:
        return quantised_twin(source, calibration, "qdq per tensor")


def measure(name: str, arch: Arch, images: int, kind: str) -> Row:
    """Return the result of one network. Raise WeftError if the network is refused."""
    calibration, given = samples_of(name, MODELS / f"{name}.onnx")
    samples = [{key: value[number:number + 1] for key, value in given.items()}
               for number in range(min(images, len(next(iter(given.values())))))]
    with tempfile.TemporaryDirectory() as folder:
        twin = twin_of(MODELS / f"{name}.onnx", Path(folder), calibration, kind)
        watch, exact = Watch(), runner(onnx.load(twin))
        front, _ = run_parts(Request(twin, given, host_fallback=True), arch, watch=watch.after, last="scales")
    found = together(watch.differences({key: value[number] for key, value in products[Samples].arrays.items()}, part)
                     for part, products in watch.parts.items() for number in range(min(LAYER_IMAGES, len(samples))))
    equal, decibels, same = 0, [], []
    for sample in samples:
        wanted, made = exact(sample), outputs(front, watch.parts, sample)
        decibels += [signal_to_noise(float((value ** 2).sum()), float(((value - made[key]) ** 2).sum()))
                     for key, value in wanted.items()]
        same += [np.isclose(made[key], value, rtol=1e-6).ravel() for key, value in wanted.items()]
        equal += all(value.argmax() == made[key].argmax() for key, value in wanted.items())
    return Row(name, len(found), int((found > 0).sum()), int(found.max(initial=0)), len(samples),
               equal if CASES[name].answer is class_of else None, min(filter(None, decibels), default=None),
               round(front[Partition].machine_share, 4), round(float(np.concatenate(same).mean()), 4))


def main(
    names: Annotated[list[str] | None, typer.Argument(help="networks; default all")] = None,
    arch: Annotated[str, typer.Option(help="preset whose size the INT8 machine has")] = "pynq",
    multiplier_width: Annotated[int, typer.Option(help="bits of a multiplier of requantization")] = 17,
    kind: Annotated[str, typer.Option(help="what the quantiser writes: qdq, or operators for QLinearConv")] = "qdq",
    images: Annotated[int, typer.Option(help="images of each network")] = 10,
    write: Annotated[bool, typer.Option(help="put the rows into docs/data/twins.json")] = False,
) -> None:
    """Measure the networks, and print the table."""
    machine = Arch.load(arch).replace(data_type="INT8", accumulator_width=None, lut_count=1, lut_depth=256,
                                      simd_registers_depth=2, multiplier_width=multiplier_width)
    rows = {row["network"]: row for row in (json.loads(DATA.read_text()) if DATA.exists() else [])}
    for name in names or NAMES:
        try:
            row = measure(name, machine, images, kind)
        except WeftError as error:
            print(f"{name}: {error}", flush=True)
            continue
        print(row, flush=True)
        rows[name] = asdict(row)
        if write:
            DATA.write_text(json.dumps([rows[key] for key in NAMES if key in rows], indent=1) + "\n")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
