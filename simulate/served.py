# SPDX-License-Identifier: Apache-2.0
"""A simulated machine to talk to: registers one by one, memories in place, and time on request.

The simulation stands still while nobody asks anything. ``serve.py`` is the simulator's side."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import threading
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.simulate.job import MemorySettings
from weft.simulate.leftovers import discard, owned, remove_dead
from weft.simulate.rtl import RUNS, Stage, build_rtl
from weft.simulate.sim_top import MEMORIES
from weft.simulate.simulation import Simulation, SimulationError, run_simulation

START_SECONDS = 60.0
"""The seconds in which a built simulator must start."""
LIFE_SECONDS = 30 * 86400.0


class ServedMachine:
    """A machine after reset, with zeros in its ``memories`` (by name), until :meth:`close`.

    ``memory``: their behaviour."""

    def __init__(self, arch: Arch, memory: MemorySettings | None = None, *, seed: int = 0,
                 stage: Stage | None = None) -> None:
        """Build and start the simulation. Raise BuildError, ToolchainError or SimulationError if that fails."""
        simulation = build_rtl(arch, stage=stage)
        self._stack = contextlib.ExitStack()
        self._error: Exception | None = None
        temporary = Path(tempfile.gettempdir())
        remove_dead(temporary, f"{RUNS}*")
        folder = self._stack.enter_context(owned(temporary, RUNS))
        self._stack.callback(discard, folder)
        try:
            self._start(arch, simulation, folder, memory or MemorySettings(), seed)
        except BaseException:
            self.close()
            raise

    def _start(self, arch: Arch, simulation: Simulation, folder: Path, memory: MemorySettings, seed: int) -> None:
        """Start the simulator and wait until it connects."""
        files = {name: folder / f"{name}.bin" for name in MEMORIES}
        self.memories = {name: Dram(arch, file) for name, file in files.items()}
        (folder / "job.json").write_text(json.dumps({"memory": dataclasses.asdict(memory), "seed": seed}))
        listener = self._stack.enter_context(Listener(str(folder / "bus"), "AF_UNIX"))
        environment = {"WEFT_BUS": str(folder / "bus"), "WEFT_JOB": str(folder / "job.json")}
        plusargs = [f"+{name}={file}" for name, file in files.items()]

        def simulate() -> None:
            try:
                run_simulation(simulation, "weft.simulate.serve", directory=folder, environment=environment,
                               plusargs=plusargs, seed=seed, timeout_seconds=LIFE_SECONDS)
            except Exception as error:  # told by the next request
                self._error = error
                with contextlib.suppress(OSError):
                    listener.close()

        self._thread = threading.Thread(target=simulate, name="simulator", daemon=True)
        self._thread.start()
        self._connection = self._accept(listener)
        self._stack.callback(self._end)

    def _accept(self, listener: Listener) -> Connection:
        """Return the connection to the simulator. Raise SimulationError if it does not come."""
        listener._listener._socket.settimeout(START_SECONDS)  # type: ignore[attr-defined]
        try:
            return listener.accept()
        except OSError:
            self._thread.join(1)
            raise self._error or TimeoutError(f"the simulator did not start within {START_SECONDS:g} s") from None

    def _end(self) -> None:
        """Hang up, and wait for the simulator's end."""
        self._connection.close()
        self._thread.join(START_SECONDS)

    # -- requests --------------------------------------------------------------------------------------------------
    def read(self, offset: int) -> int:
        """Return a control register; all ones if there is none."""
        return self._ask("read", offset)

    def write(self, offset: int, value: int) -> None:
        """Write a control register; nothing happens if there is none."""
        self._ask("write", offset, value)

    def run(self, cycles: int) -> bool:
        """Let the clock run ``cycles``, or until the interrupt; tell whether it is there."""
        return self._ask("run", cycles)

    def _ask(self, *request: object) -> Any:
        """Return the simulator's answer. Raise SimulationError if it has failed."""
        try:
            self._connection.send(request)
            return self._connection.recv()
        except (OSError, EOFError):
            self._thread.join(START_SECONDS)
            raise self._error or RuntimeError("the simulator is closed") from None

    def close(self) -> None:
        """End the simulation, and remove its files."""
        self._stack.close()


__all__ = ["ServedMachine", "SimulationError"]
