"""The warning of a compiled network whose outputs lost their signal; what measures it: ``check/quality.py``."""

from __future__ import annotations

from weft.tmodel.network import Network

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SchemeKind

KEY = "outputs_decibels"
"""Of the row of the last layer of a compiled network: signal to noise of the worst output."""


def recorded(network: Network) -> float | None:
    """Return what :func:`record` wrote; None for anything else."""
    found = next((row.get(KEY) for model in network.machines[-1:] for row in model.layers[-1:]), None)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def poor(decibels: float | None, arch: Arch) -> list[str]:
    """Return a warning of outputs that lost their signal, with the cure; none where they did not."""
    from weft.compiler.quantize.quality import POOR_DECIBELS

    if decibels is None or decibels >= POOR_DECIBELS:
        return []
    wider = ("bytes are too coarse for it: take an architecture of 16 bits (data_type FP16BP8)"
             if arch.scheme.kind is SchemeKind.AFFINE else "take a wider data_type (FP32BP16)")
    return [f"poor numbers: {decibels:.1f} dB of signal to noise at the worst output, on its calibration inputs; below "
            f"{POOR_DECIBELS:g} it has lost its signal; {wider}, or look for samples of another kind"]
