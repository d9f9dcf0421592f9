# SPDX-License-Identifier: Apache-2.0
"""Device strings: how each kind of machine is opened and reached.

``KIND:PLACE?OPTION=VALUE&...``; what is allowed is in the table ``KINDS``. The modules of a link are imported when one
is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from weft.hw.contract.arch import Arch, largest
from weft.hw.contract.csr import ADDRESS_WIDTH
from weft.hw.contract.host_link import ETHERBONE_PORT
from weft.runtime.devices import RTL, Backend, Golden
from weft.runtime.driver.memory_map import LITEX_BYTES, LITEX_MEMORY, LITEX_REGISTERS
from weft.runtime.driver.shell_file import LEAST_BAUD, MOST_BAUD, REACH
from weft.runtime.driver.transport import PROGRAM_SECONDS
from weft.runtime.run_settings import NO_TRACEPOINT, TIMEOUT_CYCLES, RunSettings
from weft.support.errors import WeftError, explain
from weft.support.packages import DISTRIBUTION, RUNTIME
from weft.tmodel.network import Network

if TYPE_CHECKING:
    from weft.runtime.driver.links import LinkTarget

Options = dict[str, Any]


class Target(Protocol):
    """A machine that was found. ``arch``: None if only the model will tell."""

    @property
    def name(self) -> str:
        """The device string."""
    @property
    def arch(self) -> Arch | None:
        """The machine, None if only the model will tell."""

    def backend(self, model: Network, arch: Arch) -> Backend:
        """Return the backend that runs programs of ``model`` for ``arch``.

        Raise WeftError if they do not go together."""

    def close(self) -> None:
        """Close the link."""


@dataclass(frozen=True)
class GoldenTarget:
    """The numpy machine."""

    name: str
    arch: Arch | None

    def backend(self, model: Network, arch: Arch) -> Backend:
        """Return a new numpy machine."""
        return Golden(arch)

    def close(self) -> None:
        """Do nothing."""
        pass


# -- kinds -------------------------------------------------------------------------------------------------------------
def _golden(place: str, options: Options) -> Target:
    """Open the numpy machine."""
    return GoldenTarget(_name("golden", place), Arch.load(place) if place else None)


def _simulated(place: str, options: Options) -> Target:
    """Open the simulated hardware. Raise WeftError where only the runtime is installed, which has none."""
    from weft.runtime.driver.links import SimulatedTarget

    if find_spec("weft.simulate") is None:
        raise WeftError(explain("device sim", f"{RUNTIME} alone", "golden, serial, udp and mmio", f"install "
                                f"{DISTRIBUTION} in place of {RUNTIME}"))

    return SimulatedTarget(_name("sim", place), Arch.load(place) if place else None, options["seconds"],
                           _settings(options))


def _settings(options: Options) -> RunSettings:
    """Return what each program is to find set."""
    return RunSettings(**{name: options[name] for name in SETTINGS})


def _with_settings(target: LinkTarget, options: Options) -> Target:
    """Return the target, each of whose programs finds set what the options say."""
    target.settings = _settings(options)
    return target


def _serial(place: str, options: Options) -> Target:
    """Open a board on a serial line."""
    from weft.runtime.driver.built_shells import known_bauds
    from weft.runtime.driver.links import litex_target
    from weft.runtime.driver.serial_ports import open_found
    from weft.runtime.driver.shell_file import ShellFile

    shell = ShellFile.load(Path(options["shell"])) if options["shell"] else None
    registers = shell.machine_base if shell else options["registers"]
    bauds = [options["baud"]] if options["baud"] else [shell.baud] if shell else known_bauds()
    return _with_settings(litex_target(open_found(place, bauds, registers), options), options)


def _udp(place: str, options: Options) -> Target:
    """Open a board on UDP."""
    from weft.runtime.driver.etherbone import open_udp
    from weft.runtime.driver.links import litex_target

    return _with_settings(litex_target(open_udp(place, options["port"]), options), options)


def _mmio(place: str, options: Options) -> Target:
    """Open the machine beside this processor."""
    from weft.runtime.driver.links import LinkTarget
    from weft.runtime.driver.memory_mapped import open_mmio
    from weft.runtime.driver.registers import check_board

    transport, memory_map = open_mmio(place, options)
    target = LinkTarget(transport, memory_map, options["seconds"])
    check_board(target.registers, place, target.name)
    return _with_settings(target, options)


def _name(kind: str, place: str) -> str:
    """Return a device string."""
    return f"{kind}:{place}" if place else kind


@dataclass(frozen=True)
class Number:
    """An option that takes a number of its default's type, within bounds that include both ends."""

    default: int | float
    least: int | float
    most: int | float
    step: int = 1
    """The number that an integer must be a multiple of."""

    @property
    def allowed(self) -> str:
        """The allowed values, for people."""
        if isinstance(self.default, float):
            return f"a number from {self.least:g} to {self.most:g}"
        of = f", a multiple of {self.step}" if self.step > 1 else ""
        return f"a number from {self.least} to {self.most}{of}, also as 0x..."


@dataclass(frozen=True)
class Kind:
    """A kind of device.

    ``place``: what stands behind the colon, for people; in brackets: it may be left out. ``options``: by name, a text's
    default or a Number."""

    place: str
    open: Callable[[str, Options], Target]
    options: Mapping[str, Number | str]


SETTINGS: dict[str, Number] = {
    "timeout_cycles": Number(TIMEOUT_CYCLES, 0, (1 << 16) - 1), "tracepoint": Number(NO_TRACEPOINT, 0, NO_TRACEPOINT),
    "dram0_cache": Number(0, 0, 15), "dram1_cache": Number(0, 0, 15), "sample_cycles": Number(0, 0, (1 << 16) - 1)}
"""The options that each program finds set, by their names in RunSettings."""
_TIME = {"seconds": Number(PROGRAM_SECONDS, 0.001, 1e7), **SETTINGS}
_LITEX: dict[str, Number | str] = {
    "registers": Number(LITEX_REGISTERS, 0, REACH - (1 << ADDRESS_WIDTH), 4),
    "memory": Number(LITEX_MEMORY, 0, REACH - 4, 4), "bytes": Number(LITEX_BYTES, 4096, REACH, 4), "shell": "", **_TIME}
_MOST_PHYSICAL = 1 << 52
"""A limit of physical addresses, beyond those of any Zynq's processors."""

KINDS: dict[str, Kind] = {
    "golden": Kind("[PRESET]", _golden, {}),
    "sim": Kind("[PRESET]", _simulated, {**SETTINGS, "seconds": Number(86400.0, 0.0, 1e7)}),
    "serial": Kind("auto|PORT", _serial, {"baud": Number(0, LEAST_BAUD, MOST_BAUD), **_LITEX}),
    "udp": Kind("HOST", _udp, {"port": Number(ETHERBONE_PORT, 1, 65535), **_LITEX}),
    "mmio": Kind("BOARD", _mmio, {
        "registers": Number(0x43C0_0000, 0, _MOST_PHYSICAL, 4), "cores": Number(1, 1, largest("cores")),
        "device": "/dev/mem", "buffer": "/dev/udmabuf0",
        "address": Number(0, 0, _MOST_PHYSICAL, 4), "bytes": Number(0, 4096, REACH, 4), **_TIME}),
}
"""The kinds of devices, by the word before the colon of a device string."""


def device_forms() -> str:
    """Return all device strings, for people; and the name that only ``weft run`` takes."""
    forms = [kind + (f"[:{spec.place[1:]}" if spec.place[0] == "[" else f":{spec.place}")
             for kind, spec in KINDS.items()]
    return ", ".join([forms[0], f"{RTL} (weft run)", *forms[1:]])


def open_target(where: str, given: Mapping[str, Any] | None = None) -> Target:
    """Open the machine of a device string, with its own options and ``given`` ones. Raise WeftError if it fails."""
    kind, place, options = read_device(where, given)
    return kind.open(place, options)


def read_device(where: str, given: Mapping[str, Any] | None = None) -> tuple[Kind, str, Options]:
    """Return kind, place and all options of a device string. Raise WeftError for a wrong one."""
    if not isinstance(where, str):
        raise WeftError(explain("device", f"a {type(where).__name__}", device_forms(), "give one of these forms"))
    head, _, tail = where.partition("?")
    name, _, place = head.partition(":")
    kind = KINDS.get(name)
    if kind is None or (not place and kind.place[0] != "[") or not place.isprintable():
        raise WeftError(explain("device", repr(where), device_forms(), "give one of these forms"))
    pairs = [(key, unquote(value)) for key, _, value in (each.partition("=") for each in tail.split("&") if each)]
    twice = next((key for key, count in Counter(key for key, _ in pairs).items() if count > 1), None)
    if twice is not None:
        raise WeftError(explain(f"option of device {head}", f"{twice} twice", "each option once", "leave one out"))
    options: Options = {key: getattr(option, "default", option) for key, option in kind.options.items()}
    for key, value in [*pairs, *(given or {}).items()]:
        if key not in kind.options:
            raise WeftError(explain(f"option of device {head}", key, ", ".join(options) or "none", "leave it out"))
        options[key] = _option(key, value, kind.options[key])
    return kind, place, options


def _option(key: str, value: Any, option: Number | str) -> int | float | str:
    """Return the value in the type of the option's default; integers also in hexadecimal.

    Raise WeftError for a value that is not allowed."""
    if isinstance(option, str):
        text = str(value)
        if not text.isprintable():
            raise WeftError(explain(f"device option {key}", repr(text), "a path of letters that print", "correct it"))
        return text
    kind = type(option.default)
    try:
        converted = int(value, 0) if kind is int and isinstance(value, str) else kind(value)
        good = option.least <= converted <= option.most and (kind is float or converted % option.step == 0)
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise WeftError(explain(f"device option {key}", repr(value), option.allowed, "correct it"))
    return converted
