# SPDX-License-Identifier: Apache-2.0
"""Broken ONNX files (``broken_models.py``): refused by a message, or compiled into a program that is right, or with a
warning that numbers are lost; never a traceback, never a hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.compiler.errors import Fault
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import run_float, signal_to_noise
from weft.tb.random.broken_models import BREAKS, broken_file
from weft.tb.random.network_rule import ARCHS
from weft.tmodel.network import Network

ARCH = ARCHS["lanes3"]
SECONDS, DECIBELS = 60, 20.0
QUICK, LONG = 100, 3000
FOUND = {
    34: "a constant of another shape, seen by onnxruntime alone", 94: "a name that is no UTF-8",
    332: "2**40 pixels", 1052: "a weight of 1e38", 1078: "slopes that do not broadcast", 1138: "data of another size",
    3485: "NaN as the bound of a Clip", 5859: "a Resize with a channel scale of 1.001",
    9388: "a tensor without elements", 11098: "a node that nothing reads, on the host", 11614: "2**40 groups",
    2206: "an infinite weight behind a hard swish"}
"""Seeds that once went wrong."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in what takes longer."""
    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def expected(path: Path, sample: np.ndarray) -> dict[str, np.ndarray] | None:
    """What onnxruntime computes; None where it refuses the file too."""
    try:
        return run_float(path, {"x": sample})
    except Exception:  # onnxruntime's errors have no common type
        return None


def problem_of(seed: int, folder: Path) -> str:
    """Empty where the compiler does right."""
    content, shape, done = broken_file(seed)
    path = folder / f"broken{seed}.onnx"
    path.write_bytes(content)
    samples = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    try:
        with limited(SECONDS):
            report = compile_model(path, ARCH, folder, calibration={"x": samples}, host_fallback=True)
    except Fault as error:
        return f"{done}: a fault of the compiler: {error}"
    except WeftError as error:
        return "" if "found" in str(error) and "allowed" in str(error) else f"{done}: says only {error}"
    except Exception as error:
        return f"{done}: {type(error).__name__}: {error}"
    wanted, session = expected(path, samples[:1]), Session(Network.load(report.model_path))
    if wanted is None:
        return ""
    found = session.run({"x": samples[:1]}).outputs
    for name, value in wanted.items():
        given, finite = found[name].reshape(value.shape), np.isfinite(value)
        if not np.array_equal(given[~finite], value[~finite], equal_nan=True):  # the host may give what the file says
            return f"{done}: compiled, although {name!r} is not finite"
        value, given = value[finite], given[finite]
        warned = any(f"output {name}:" in warning or "saturate" in warning for warning in report.warnings)
        if warned or np.abs(value).max(initial=0) < np.finfo(np.float32).tiny:
            continue
        noise = signal_to_noise(value, given)
        if noise < DECIBELS:
            return f"{done}: {noise:.1f} dB in {name!r}"
    return ""


def problems(seeds: range, folder: Path) -> list[str]:
    return [f"seed {seed}: {problem}" for seed in seeds if (problem := problem_of(seed, folder))]


@pytest.mark.slow
def test_refused_or_right(tmp_path: Path) -> None:
    assert not problems(range(QUICK), tmp_path)


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.values())
def test_what_once_went_wrong(seed: int, tmp_path: Path) -> None:
    assert not problem_of(seed, tmp_path)


@pytest.mark.long
def test_refused_or_right_at_length(tmp_path: Path) -> None:
    assert not problems(range(QUICK, LONG), tmp_path)


def test_every_break_breaks_something() -> None:
    """No two ways alike, and each of them taken."""
    done = {name for seed in range(300) for name in broken_file(seed)[2].split(", ")}
    assert done >= {change.__name__ for change in BREAKS} | {"bytes"}
