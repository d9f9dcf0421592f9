"""Device strings: what each kind of machine is opened by, and how it is reached.

``KIND:PLACE?OPTION=VALUE&...``; what is allowed is in the table ``KINDS``. What a link needs is imported when one is
opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl

from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import WeftError, explain
from weft.runtime.devices import RTL, Backend, Golden
from weft.runtime.driver.memory_map import LITEX_BYTES, LITEX_MEMORY, LITEX_REGISTERS
from weft.runtime.driver.transport import PROGRAM_SECONDS
from weft.runtime.network import Network

Options = dict[str, Any]


class Target(Protocol):
    """A machine that was found. ``arch``: None where only the model will tell."""

    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> Arch | None: ...

    def backend(self, model: Network, arch: Arch) -> Backend:
        """What runs programs of ``model`` for ``arch``. Raises WeftError where they do not go together."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class GoldenTarget:
    """The numpy machine."""

    name: str
    arch: Arch | None

    def backend(self, model: Network, arch: Arch) -> Backend:
        return Golden(arch)

    def close(self) -> None:
        pass


# -- kinds -------------------------------------------------------------------------------------------------------------
def _golden(place: str, options: Options) -> Target:
    return GoldenTarget(_name("golden", place), Arch.load(place) if place else None)


def _simulated(place: str, options: Options) -> Target:
    from weft.runtime.driver.links import SimulatedTarget

    return SimulatedTarget(_name("sim", place), Arch.load(place) if place else None, options["seconds"])


def _serial(place: str, options: Options) -> Target:
    from weft.runtime.driver.links import litex_target
    from weft.runtime.driver.uartbone import open_serial

    return litex_target(open_serial(place, options["baud"]), options)


def _udp(place: str, options: Options) -> Target:
    from weft.runtime.driver.etherbone import open_udp
    from weft.runtime.driver.links import litex_target

    return litex_target(open_udp(place, options["port"]), options)


def _mmio(place: str, options: Options) -> Target:
    from weft.runtime.driver.links import LinkTarget
    from weft.runtime.driver.memory_mapped import open_mmio
    from weft.runtime.driver.register_machine import check_board

    transport, memory_map = open_mmio(place, options)
    target = LinkTarget(transport, memory_map, options["seconds"])
    check_board(target.registers, place, target.name)
    return target


def _name(kind: str, place: str) -> str:
    return f"{kind}:{place}" if place else kind


@dataclass(frozen=True)
class Kind:
    """``place``: what stands behind the colon, for people; in brackets: it may be left out. ``options``: their
    defaults, which also say of which type they are."""

    place: str
    open: Callable[[str, Options], Target]
    options: Mapping[str, int | float | str]


_TIME = {"seconds": PROGRAM_SECONDS}
_LITEX: Options = {"registers": LITEX_REGISTERS, "memory": LITEX_MEMORY, "bytes": LITEX_BYTES, "shell": "", **_TIME}

KINDS: dict[str, Kind] = {
    "golden": Kind("[PRESET]", _golden, {}),
    "sim": Kind("[PRESET]", _simulated, {"seconds": 86400.0}),
    "serial": Kind("PORT", _serial, {"baud": 3_000_000, **_LITEX}),
    "udp": Kind("HOST", _udp, {"port": 1234, **_LITEX}),
    "mmio": Kind("BOARD", _mmio, {"registers": 0x43C0_0000, "device": "/dev/mem", "buffer": "/dev/udmabuf0",
                                  "address": 0, "bytes": 0, **_TIME}),
}
"""By what stands before the colon of a device string."""


def device_forms() -> str:
    """All device strings, for people; and the name that only ``weft run`` takes."""
    forms = [kind + (f"[:{spec.place[1:]}" if spec.place[0] == "[" else f":{spec.place}")
             for kind, spec in KINDS.items()]
    return ", ".join([forms[0], f"{RTL} (weft run)", *forms[1:]])


def open_target(where: str, given: Mapping[str, Any] | None = None) -> Target:
    """The machine that a device string means, with options of its own and ``given`` ones. Raises WeftError."""
    kind, place, options = read_device(where, given)
    return kind.open(place, options)


def read_device(where: str, given: Mapping[str, Any] | None = None) -> tuple[Kind, str, Options]:
    """Kind, place and all options of a device string. Raises WeftError."""
    head, _, tail = where.partition("?")
    name, _, place = head.partition(":")
    kind = KINDS.get(name)
    if kind is None or (not place and kind.place[0] != "["):
        raise WeftError(explain("device", repr(where), device_forms(), "give one of these forms"))
    options: Options = dict(kind.options)
    for key, value in [*parse_qsl(tail, keep_blank_values=True), *(given or {}).items()]:
        if key not in options:
            raise WeftError(explain(f"option of device {head}", key, ", ".join(options) or "none", "leave it out"))
        options[key] = _option(key, value, options[key])
    return kind, place, options


def _option(key: str, value: Any, default: int | float | str) -> int | float | str:
    """As the default's type; integers also in hexadecimal."""
    try:
        converted = int(value, 0) if isinstance(default, int) and isinstance(value, str) else type(default)(value)
    except (TypeError, ValueError):
        converted = -1 if not isinstance(default, str) else ""
    if not isinstance(converted, str) and not 0 <= converted < 1 << 64:
        raise WeftError(explain(f"device option {key}", repr(value), "a number, also as 0x...", "correct it"))
    return converted
