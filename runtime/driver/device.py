# SPDX-License-Identifier: Apache-2.0
"""``Device``: what a user opens, loads a model into, and runs images on; the same for every machine.

    with Device.open("serial:auto") as device:
        device.load("build/model/model.tmodel")
        outputs = device.run({"x": image})          # numpy in and out, by tensor name
        future = device.launch({"x": image})        # returns at once
        outputs = future.wait()

docs/driver.md is the page for users.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.runtime.devices import Backend
from weft.runtime.driver.targets import Target, open_target
from weft.runtime.session import RunResult, Session
from weft.support.errors import WeftError, explain
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

Arrays = Mapping[str, np.ndarray]
"""Input or output -> array."""

AHEAD = 2
"""The launches that are processed at a time: one is packed or unpacked while another one runs."""


@dataclass
class Counters:
    """Sums over all runs since the model was loaded.

    ``cycles`` stays 0 on a machine that does not count them; ``seconds``: of the machine alone."""

    images: int = 0
    instructions: int = 0
    cycles: int = 0
    seconds: float = 0.0

    def add(self, result: RunResult) -> None:
        """Add the counts of a run."""
        self.images += result.images
        self.instructions += result.instructions
        self.cycles += result.cycles or 0
        self.seconds += result.seconds


class Launch:
    """A run that was started and may not have ended."""

    def __init__(self, future: Future[RunResult]) -> None:
        self._future = future

    def wait(self, timeout: float | None = None) -> dict[str, np.ndarray]:
        """Wait for the end and return the outputs by name.

        Raise the errors of :meth:`Device.run`, and TimeoutError after ``timeout`` seconds."""
        return self.result(timeout).outputs

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the end and return the outputs with cycles and instructions; errors are those of :meth:`wait`."""
        return self._future.result(timeout)

    def done(self) -> bool:
        """Tell whether the run has ended."""
        return self._future.done()

    def then(self, callback: Callable[[Launch], Any]) -> Launch:
        """Call ``callback`` with this launch when it has ended, with or without error; return the launch.

        It is called in a thread of the driver, or at once if the run has ended. An exception in it is logged and has no
        effect."""
        self._future.add_done_callback(lambda _: callback(self))
        return self


class Device:
    """One machine, with at most one model loaded. Methods may be called from any thread."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.counters = Counters()
        self._session: Session | None = None
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._under_way: set[Future[RunResult]] = set()
        self._workers = ThreadPoolExecutor(AHEAD, thread_name_prefix=f"weft {target.name}")

    @classmethod
    def open(cls, where: str, **options: Any) -> Device:
        """Open a machine by its device string.

        Forms are ``golden``, ``golden:PRESET``, ``sim``, ``sim:PRESET``, ``serial:PORT``, ``udp:HOST``, ``mmio:BOARD``;
        options as in ``serial:PORT?baud=115200`` or by keyword. Raise WeftError if it cannot be opened."""
        return cls(open_target(where, options))

    def __enter__(self) -> Device:
        """Return the device."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the device."""
        self.close()

    @property
    def name(self) -> str:
        """The device string."""
        return self.target.name

    @property
    def session(self) -> Session:
        """The loaded model on this device's machine. Raise WeftError before :meth:`load`."""
        if self._session is None:
            raise WeftError(explain(f"device {self.name}", "no model", "one that was loaded", "call load first"))
        return self._session

    @property
    def backend(self) -> Backend:
        """The backend that runs the loaded model's programs."""
        assert self.session and self._backend is not None
        return self._backend

    # -- models ----------------------------------------------------------------------------------------------------
    def load(self, model: Network | TModel | Path | str, arch: Arch | None = None) -> Network:
        """Load a network, or the ``.tmodel`` at a path, for later runs; current runs end first. Return the network.

        ``arch``: the machine, if the device string does not say it and it differs from the model's own. Raise WeftError
        for a model that this machine does not run, or has too little memory for."""
        if isinstance(model, TModel):
            model = Network.of(model)
        loaded = model if isinstance(model, Network) else Network.load(model)
        self.synchronize()
        self._session, self._backend = None, None
        session = Session(loaded, self.target.arch or arch or loaded.arch)
        self._backend = self.target.backend(loaded, session.arch)
        self._session, self.counters = session, Counters()
        return loaded

    # -- runs ------------------------------------------------------------------------------------------------------
    def run(self, inputs: Arrays, raw: bool = False) -> dict[str, np.ndarray]:
        """Return outputs by name for inputs by name, in the network's shapes: one image or many.

        Images lie along the first axis. ``raw``: vectors [size, array_size] of stored scalars in and out. Raise
        WeftError: ModelError for inputs that do not fit, MachineStop if the machine refuses an instruction (``cause``,
        ``program_counter``, ``instruction``), DeviceTimeout, LinkError; Mismatch if a simulation fails."""
        return self.launch(inputs, raw).wait()

    def launch(self, inputs: Arrays, raw: bool = False) -> Launch:
        """Start a run and return at once; the arrays must not change until the end. Parameters: see :meth:`run`."""
        session, backend = self.session, self.backend
        future = self._workers.submit(self._counted, session, backend, inputs, raw)
        with self._lock:
            self._under_way.add(future)
        future.add_done_callback(self._ended)
        return Launch(future)

    def map(self, images: Iterable[Arrays], raw: bool = False) -> Iterator[dict[str, np.ndarray]]:
        """Yield the outputs of each of the inputs, in order; the next ones are packed while one runs."""
        waiting: list[Launch] = []
        for inputs in images:
            waiting.append(self.launch(inputs, raw))
            if len(waiting) > AHEAD:
                yield waiting.pop(0).wait()
        for launch in waiting:
            yield launch.wait()

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait until nothing is under way. Raises TimeoutError; errors of runs are told by their launches."""
        with self._lock:
            under_way = set(self._under_way)
        if wait_for(under_way, timeout).not_done:
            raise TimeoutError(f"{self.name}: still running after {timeout} s")

    def close(self) -> None:
        """End what is under way, and let the machine go."""
        self._workers.shutdown(cancel_futures=True)
        self.target.close()

    def _counted(self, session: Session, backend: Backend, inputs: Arrays, raw: bool) -> RunResult:
        """Run, and count the run before anybody knows of its end. Errors are those of :meth:`run`."""
        result = session.run(inputs, on=backend, raw=raw, check=False)
        with self._lock:
            self.counters.add(result)
        return result

    def _ended(self, future: Future[RunResult]) -> None:
        """Forget a run that is not under way any more."""
        with self._lock:
            self._under_way.discard(future)
