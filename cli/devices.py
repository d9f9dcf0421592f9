# SPDX-License-Identifier: Apache-2.0
"""Devices by their strings, as ``weft run --on`` and ``weft.Session`` take them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from weft.runtime.devices import GOLDEN, RTL

if TYPE_CHECKING:
    from weft.runtime import Device, Session


def check_device(on: str) -> None:
    """Raise WeftError for a string that names no device."""
    from weft.runtime.driver.targets import read_device

    if on not in (GOLDEN, RTL):
        read_device(on)


def is_simulated(on: str) -> bool:
    """Tell whether a device needs the packages of the extra ``sim``."""
    return on in (RTL, "sim") or on.startswith(("sim:", "sim?"))


def opened(where: str, session: Session, options: Mapping[str, Any] = MappingProxyType({})) -> Device:
    """Return the device with the session's network loaded; the caller closes it. Raise WeftError if that fails.

    ``options``: others than those in the device string."""
    from weft.runtime import Device

    device = Device.open(where, **options)
    try:
        device.load(session.network, session.arch)
    except BaseException:
        device.close()
        raise
    return device
