# SPDX-License-Identifier: Apache-2.0
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

from weft.boards import BOARDS
from weft.boards.shell.generate import SHELL
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import LiteDram
from weft.hw.flow.verilog import verilog_text
from weft.runtime.driver.uartbone import UartBone
from weft.simulate import toolchain
from weft.simulate.build import build_simulation
from weft.simulate.simulation import Simulation, run_simulation

HERE = Path(__file__).parent
READ = ("clk", "watched", "send_done", "take_done", "take_bytes", "taken", "wait_done")
WRITTEN = ("rst", "watch_turn", "send_bytes", "send_count", "send_turn", "take_count", "take_turn", "wait_cycles",
           "wait_turn")
DATE = re.compile(r"^//.*$", re.MULTILINE)
"""The dates in LiteX's comments: equal shells are to be equal text, which is built once."""
SILENT_CYCLES = 20_000
"""The cycles after which nothing more comes: longer than any access to the memory takes."""
LIFE_SECONDS = 7200.0


def build_shell(board: str, arch: Arch, folder: Path) -> tuple[Simulation, dict[str, Any]]:
    """Return the simulation of a board's shell around a machine, and its ``shell.json``; files go into ``folder``."""
    toolchain.setup()
    (folder / "weft.tarch").write_text(json.dumps(arch.to_dict()))
    subprocess.run([sys.executable, "-m", "weft.boards.shell.simulated", board, ".", "weft.tarch"], cwd=folder,
                   check=True, capture_output=True)
    shell = DATE.sub("", (folder / f"{SHELL}.v").read_text())
    text = shell + watch_text(shell, watched(board)) + verilog_text(arch)
    names = "".join([*(f'public_flat_rw -module "shell_sim" -var "{name}" @(posedge clk)\n' for name in WRITTEN),
                     *(f'public_flat_rd -module "shell_sim" -var "{name}"\n' for name in READ)])
    simulation = build_simulation(text, top="shell_sim", sources=[HERE / "shell_sim.sv"], public_vlt=names)
    return simulation, json.loads((folder / "shell.json").read_text())


def watched(board: str) -> list[tuple[str, str, int]]:
    """Return (field of the estimator's DRAM, signal of the shell, bits) of all that decides how LiteDRAM goes on.

    It goes on from rest, or from within a refresh, with a machine of a shared DRAM port."""
    dram = BOARDS[board].dram
    if not isinstance(dram, LiteDram):
        return []
    each = [("refresh_count", "sdram_timer_count1", 16), ("state", "multiplexer_state", 3),
            ("read_time", "sdram_time0", 5), ("write_time", "sdram_time1", 4),
            ("request_grant", "sdram_choose_req_grant", 3), ("command_grant", "sdram_choose_cmd_grant", 3),
            ("refresh_state", "refresher_state", 2), ("refresh_wanted", "postponer_req_o", 1),
            ("refresh_step", "sdram_sequencer_trigger", 8), ("refresh_done", "sdram_sequencer_done1", 1)]
    for bank in range(dram.banks):
        each += [(f"bank.{bank}.grant", f"roundrobin{bank}_grant", 3),
                 (f"bank.{bank}.state", f"bankmachine{bank}_state", 3),
                 (f"bank.{bank}.open", f"sdram_bankmachine{bank}_row_opened", 1),
                 (f"bank.{bank}.row", f"sdram_bankmachine{bank}_row", 16)]
    return [*each, *((f"ports.{1 + number}.reads", f"dramport{number}_grant", 1) for number in range(2))]


def watch_text(shell: str, signals: list[tuple[str, str, int]]) -> str:
    """Return the module by which ``shell_sim.sv`` sees the memory's state, and whether the program is asked for."""
    # The last port is the program's, and its side of the machine has a higher number than LiteDRAM's.
    asks = re.findall(r"wire +(\w*litedramaxiport\d+_ar_valid);", shell)
    found = [re.search(rf"reg .* (\w*{signal}) =", shell) for _, signal, _ in signals]
    state = ", ".join(f"{bits}'(shell_sim.shell.{match[1]})" for (*_, bits), match in zip(signals, found, strict=True)
                      if match) or "1'b0"
    asked = f"shell_sim.shell.{max(asks)}" if asks else "1'b0"
    return ("\nmodule memory_watch(output [511:0] state, output asked);\n"
            f"  assign state = {{{state}}};\n  assign asked = {asked};\nendmodule\n")


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
        """Return the transport that the driver's bridge stands on."""
        return UartBone("simulated shell", lambda: self, sleep=self.sleep)

    def write(self, content: bytes) -> None:
        self._connection.send(("send", bytes(content)))

    def read(self, size: int) -> bytes:
        self._connection.send(("take", size, SILENT_CYCLES))
        return self._connection.recv()

    def sleep(self, seconds: float) -> None:
        self._connection.send(("sleep", max(1, int(seconds * self._clock_hz))))

    def watch(self) -> int:
        """Return the state of the memory when the program was first asked for since the last call.

        Its bits are those of ``watched``, the last one lowest."""
        self._connection.send(("watch",))
        state: int = self._connection.recv()
        return state

    def reset_input_buffer(self) -> None:
        """Do nothing: bytes are taken only when they are asked for, so none wait here."""

    def close(self) -> None:
        self._stack.close()
