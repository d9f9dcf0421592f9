# SPDX-License-Identifier: Apache-2.0
"""The published program of ../shared/vectors: results that the original machine gave on a board."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import EVERY_STEP
from weft.tb.shared import shared

FOLDER = "vectors/resnet20v2_zcu104"
IMAGES = 5
LONGEST_SECONDS = 30
"""A guard against a machine ten times too slow, in seconds of processor time; what it took is printed."""


def published() -> tuple[Arch, Path, dict]:
    model_file = shared(FOLDER) / "resnet20v2_cifar_onnx_zcu104.tmodel"
    model = json.loads(model_file.read_text())
    return Arch.from_dict({**model["arch"], "mac_rounding": EVERY_STEP}), model_file.parent, model


@pytest.mark.wide_cases("1", "2", "4")
@pytest.mark.parametrize("image", range(IMAGES))
def test_published_logits_are_exact(image: int) -> None:
    arch, folder, model = published()
    data = np.load(folder / "images.npz")
    machine = Machine(arch)
    machine.dram1.load_bytes(0, (folder / model["consts"][0]["file_name"]).read_bytes())
    vectors = np.zeros((1024, arch.array_size), np.int64)
    vectors[:, :3] = data["images"][image].reshape(3, 1024).T
    machine.dram0.write(model["inputs"][0]["base"], vectors)
    program = (folder / model["prog"]["file_name"]).read_bytes()
    begin = time.process_time()
    machine.run(program)
    seconds = time.process_time() - begin
    print(f"\nimage {image}: {seconds:.2f} s, {machine.program_counter} instructions")
    logits = machine.dram0.read(model["outputs"][0]["base"], 1)[0, :10]
    assert logits.tolist() == data["logits"][image].tolist()
    assert machine.program_counter == 50171
    assert seconds < LONGEST_SECONDS
