# SPDX-License-Identifier: Apache-2.0
"""The warnings of poor numbers: outputs that lost their signal, and values beyond what calibration saw.

``compiler/check/quality.py`` measures the former, a run the latter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.compiler.backend.report import CompileReport
    from weft.compiler.check.quality import Quality
    from weft.hw.contract.arch import Arch
    from weft.runtime.session import RunResult
    from weft.tmodel.network import Network

MOST_NAMED = 8
"""The most samples that a warning names."""


def recorded(network: Network) -> float | None:
    """Return the signal to noise that ``compiler/check/quality.py`` recorded in a network; None if there is none."""
    from weft.tmodel.manifest import OUTPUTS_DECIBELS

    found = next((row.get(OUTPUTS_DECIBELS) for model in network.machines[-1:] for row in model.layers[-1:]), None)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def poor(decibels: float | None, arch: Arch) -> list[str]:
    """Return a warning if outputs lost their signal, with the cure; else an empty list."""
    from weft.compiler.quantize.quality import POOR_DECIBELS
    from weft.hw.contract.schemes import SchemeKind
    from weft.support.signals import NO_SIGNAL

    if decibels is None or decibels >= POOR_DECIBELS:
        return []
    wider = ("bytes are too coarse for it: take an architecture of 16 bits (data_type FP16BP8)"
             if arch.scheme.kind is SchemeKind.AFFINE else "take a wider data_type (FP32BP16)")
    found = f"{decibels:.1f} dB of signal to noise" if decibels > NO_SIGNAL else "no signal, or noise without end,"
    return [f"poor numbers: {found} at the worst output, on its calibration inputs; below "
            f"{POOR_DECIBELS:g} dB it has lost its signal; {wider}, or look for samples of another kind"]


def with_quality(report: CompileReport, quality: Quality, arch: Arch) -> CompileReport:
    """Return the report of a compilation that ``quality`` watched, with the warning of ``poor`` if there is one.

    What was measured is recorded in the ``.tmodel``, so that a later run warns too."""
    from weft.compiler.check.quality import record

    decibels = quality.decibels()
    if decibels is not None:
        record(report.model_path, decibels)
    return dataclasses.replace(report, warnings=(*report.warnings, *poor(decibels, arch)))


def saturations(result: RunResult, arch: Arch) -> list[str]:
    """Return warnings about values beyond what calibration saw that were cut, with the cure.

    Values that the compiler or narrower ranges cut on purpose do not count."""
    from weft.compiler.quantize.samples import SAMPLE_LIMIT
    from weft.hw.contract.schemes import SchemeKind

    if result.narrowed:
        return [f"input {name}: {count:,} values are beyond the range that --ranges left; compile with --ranges minmax "
                "to keep them" for name, count in result.saturated_inputs.items()]
    cure = (f"compile again with these samples among those of --calibrate (at most {SAMPLE_LIMIT} of them are run), or "
            "for a wider data_type")
    if arch.scheme.kind is SchemeKind.AFFINE:
        cure += "; a quantised file's own scales stay: quantise it again with such values"
    found = [f"input {name}: {count:,} values are beyond its range; {cure}"
             for name, count in result.saturated_inputs.items()]
    if result.saturated and result.saturated.beyond:
        found.append(f"{result.saturated.beyond:,} numbers are beyond what calibration saw and saturated on the machine"
                     f", {of_images(result.saturated.images)}; {cure}")
    return found


def of_images(numbers: Sequence[int]) -> str:
    """Return the numbers of samples, counted from 0, in words."""
    named = ", ".join(map(str, numbers[:MOST_NAMED])) + (", ..." if len(numbers) > MOST_NAMED else "")
    return f"in sample{'s' if len(numbers) > 1 else ''} {named}"
