# SPDX-License-Identifier: Apache-2.0
"""``weft-runtime`` in an environment that has numpy and nothing else runs a model on a board behind a link."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from weft.runtime.session import Session
from weft.tb.bench.link_models import UdpWire, Witnessed
from weft.tb.bench.register_model import litex_model
from weft.tb.unit.driver.test_device import TINY, WITNESS, adder, inputs_for

ROOT = Path(__file__).parents[3]
IMAGES = 3
PROGRAM = """
import json, socket, sys
import numpy as np
from weft.runtime import Device
from weft.runtime.driver.etherbone import Etherbone
from weft.runtime.driver.links import LinkTarget, litex_map
from weft.support.errors import WeftError

model, inputs, far, near, witness = sys.argv[1:]
link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
link.bind(near)
link.connect(far)
target = LinkTarget(Etherbone("udp:model", link),
                    litex_map({"registers": 0x9000_0000, "memory": 0x4000_0000, "bytes": 1 << 20}))
target.watch(int(witness))
with Device(target) as device:
    device.load(model)
    found = [device.run({"x": image}, raw=True)["y"].tolist() for image in np.load(inputs)]
errors = []
for where in ("sim", "serial:/dev/null"):
    try:
        with Device.open(where) as device:
            device.load(model)
    except WeftError as error:
        errors.append(str(error))
tops = {name.partition(".")[0] for name, module in sys.modules.items() if module is not None}
print(json.dumps({"found": found, "errors": errors,
                  "others": sorted(tops - set(sys.stdlib_module_names) - {"__main__", "weft", "numpy"})}))
"""
pytestmark = pytest.mark.slow


def build(folder: Path) -> Path:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "runtime_wheel.py"), "--folder", str(folder)], check=True,
                   capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.wide
def test_the_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """To the byte, whenever they are built."""
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "runtime_wheel.py"), "--folder", str(folder)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("weft_runtime-*.whl"))


def test_the_wheel_is_for_every_processor(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.endswith(".py") for name in names if ".dist-info/" not in name)
    metadata = next(name for name in names if name.endswith("/METADATA"))
    needed = [line for line in zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
              if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert [line.partition("numpy")[0] for line in needed] == ["Requires-Dist: "]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel and this environment's numpy."""
    place = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = next(place.glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(packages)
    numpy = Path(np.__file__).parent
    for name in ("numpy", "numpy.libs"):
        if (numpy.parent / name).exists():
            (packages / name).symlink_to(numpy.parent / name)
    return place / "bin" / "python"


@pytest.fixture
def far_end(tmp_path: Path) -> Iterator[Path]:
    """The socket of a board: the golden machine behind registers, a memory and a witness."""
    wire, place = UdpWire(Witnessed(litex_model(TINY), WITNESS)), tmp_path / "far"
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.bind(str(place))

    def serve() -> None:
        while packet := link.recvfrom(2048):
            if not packet[0]:
                return
            for answer in wire._answers(packet[0]):
                link.sendto(answer, packet[1])

    thread = threading.Thread(target=serve)
    thread.start()
    yield place
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
        last.sendto(b"", str(place))
    thread.join()
    link.close()


def test_a_model_runs_with_numpy_alone(python: Path, far_end: Path, tmp_path: Path) -> None:
    made = adder(tmp_path)
    made.save()
    images = [inputs_for(made, number)["x"] for number in range(IMAGES)]
    np.save(tmp_path / "x.npy", np.stack(images))
    done = subprocess.run([python, "-c", PROGRAM, tmp_path / f"{made.name}.tmodel", tmp_path / "x.npy", far_end,
                           tmp_path / "near", str(WITNESS)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["found"] == [Session(made).run({"x": image}, raw=True).outputs["y"].tolist() for image in images]
    assert said["others"] == []
    assert ["weft-accelerator" in said["errors"][0], "pyserial" in said["errors"][1]] == [True, True], said["errors"]
