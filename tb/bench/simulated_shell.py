"""A board's whole shell under Verilator, as a serial line that the driver opens."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from weft.boards.shell.generate import SHELL
from weft.hw.contract.arch import Arch
from weft.hw.flow.verilog import verilog_text
from weft.runtime.driver.uartbone import UartBone
from weft.simulate import toolchain
from weft.simulate.build import build_simulation
from weft.simulate.simulation import Simulation, run_simulation

HERE = Path(__file__).parent
READ = ("clk", "send_done", "take_done", "take_bytes", "taken", "wait_done")
WRITTEN = ("rst", "send_bytes", "send_count", "send_turn", "take_count", "take_turn", "wait_cycles",
           "wait_turn")
DATE = re.compile(r"^//.*$", re.MULTILINE)
"""In LiteX's comments: equal shells are to be equal text, which is built once."""
SILENT_CYCLES = 20_000
"""After which nothing more comes: longer than any access to the memory takes."""
LIFE_SECONDS = 7200.0


def build_shell(board: str, arch: Arch, folder: Path) -> tuple[Simulation, dict[str, Any]]:
    """The simulation of a board's shell around a machine, and its ``shell.json``; files go into ``folder``."""
    toolchain.setup()
    (folder / "weft.tarch").write_text(json.dumps(arch.to_dict()))
    subprocess.run([sys.executable, "-m", "weft.boards.shell.simulated", board, ".", "weft.tarch"], cwd=folder,
                   check=True, capture_output=True)
    text = DATE.sub("", (folder / f"{SHELL}.v").read_text()) + verilog_text(arch)
    names = "".join([*(f'public_flat_rw -module "shell_sim" -var "{name}" @(posedge clk)\n' for name in WRITTEN),
                     *(f'public_flat_rd -module "shell_sim" -var "{name}"\n' for name in READ)])
    simulation = build_simulation(text, top="shell_sim", sources=[HERE / "shell_sim.sv"], public_vlt=names)
    return simulation, json.loads((folder / "shell.json").read_text())


class SimulatedShell:
    """A line to a shell just after reset. Time passes only while somebody waits."""

    in_waiting = 0

    def __init__(self, simulation: Simulation, folder: Path, clock_hz: float) -> None:
        """``folder``: where ``build_shell`` wrote its files; memories of the shell are initialised from them."""
        self._clock_hz, self._stack = clock_hz, contextlib.ExitStack()
        work = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-shell-")))
        for file in folder.glob("*.init"):
            shutil.copy(file, work)
        self._stack.callback(lambda: self._thread.join(60))
        listener = self._stack.enter_context(Listener(str(work / "bus"), "AF_UNIX"))
        self._thread = threading.Thread(target=run_simulation, args=(simulation, "weft.tb.bench.serve_shell"), kwargs={
            "directory": work, "environment": {"WEFT_BUS": str(work / "bus")}, "timeout_seconds": LIFE_SECONDS,
            "seed": 1}, daemon=True)
        self._thread.start()
        self._connection = listener.accept()
        self._stack.callback(self._connection.close)

    def transport(self) -> UartBone:
        """What the driver's bridge stands on."""
        return UartBone("simulated shell", lambda: self, sleep=self.sleep)

    def write(self, content: bytes) -> None:
        self._connection.send(("send", bytes(content)))

    def read(self, size: int) -> bytes:
        self._connection.send(("take", size, SILENT_CYCLES))
        return self._connection.recv()

    def sleep(self, seconds: float) -> None:
        self._connection.send(("sleep", max(1, int(seconds * self._clock_hz))))

    def reset_input_buffer(self) -> None:
        """Nothing waits here: bytes are taken only when they are asked for."""

    def close(self) -> None:
        self._stack.close()
